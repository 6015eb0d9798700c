package tests

import (
	"database/sql"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/app/apptest"
	"github.com/belay-run/belay/internal/control"
	"github.com/belay-run/belay/internal/sqlstore"
	"github.com/belay-run/belay/internal/station"
)

// leakyFiles are an agent whose hooks and tools print, raise and answer what FORMS has.
var leakyFiles = apptest.Files{
	"lib/forms.py": `import json, os

FORMS = json.loads(open(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "forms.json")).read())
`,
	"hooks.py": `from belay.hooks import *
from lib.forms import FORMS


@on_incoming_message()
async def watch(message: IncomingMessagePayload) -> None:
    for form in FORMS:
        print("heard", form)
    raise ValueError(" | ".join(FORMS))


@modify_tool_result()
async def breaks(result: ToolResultPayload) -> ToolResultPayload:
    raise ValueError(" | ".join(FORMS))


@modify_outgoing_text()
async def stops(text: OutgoingTextPayload) -> OutgoingTextPayload:
    raise HookRejection(reason=" | ".join(FORMS))
`,
	"tools/leak.py": `from belay.tools import tool
from lib.forms import FORMS


@tool(description="Answers.")
async def leak(what: str):
    return {"found": FORMS, "text": " | ".join(FORMS)}


@tool(description="Fails.")
async def fails(what: str):
    raise RuntimeError(" | ".join(FORMS))
`,
}

func TestConversationsShowNoSecrets(t *testing.T) {
	spans := newCollector(t)
	forms := slices.Sorted(maps.Keys(tokenForms()))
	raw, err := json.Marshal(forms)
	if err != nil {
		t.Fatal(err)
	}
	dir := apptest.Folder(t, leakyFiles)
	apptest.Write(t, dir, "forms.json", string(raw))
	data := filepath.Join(dir, ".belay")
	st, err := station.Open(t.Context(), station.Config{Data: data, Idle: true})
	if err != nil {
		t.Fatal(err)
	}
	me := control.Caller{Tenant: "default", Name: "local:test"}
	if _, err := st.SetSecret(t.Context(), me, control.SecretOrder{Name: "TOKEN", Value: plantedToken}); err != nil {
		t.Fatal(err)
	}
	if err := st.Close(t.Context()); err != nil {
		t.Fatal(err)
	}

	a := apptest.StartIn(t, dir)
	planted := strings.Join(forms, " | ")
	a.Next("u", apptest.Calls(apptest.C{Name: "leak", Args: map[string]any{"what": planted}}, apptest.C{Name: "fails", Args: map[string]any{"what": planted}}), apptest.Says(planted))
	r := a.Say("u", planted)
	shown := a.App.TraceText(r.Report)
	trace := a.TraceText("u")
	a.Close() // sends the spans that are left
	for _, seen := range []struct{ what, text string }{{"the log", a.Log()}, {"the trace that is printed", shown}, {"the trace", trace}, {"the spans", spans.text()}} {
		t.Run(seen.what, func(t *testing.T) {
			if !strings.Contains(seen.text, "[secret TOKEN]") {
				t.Errorf("it does not name the secret:\n%.3000s", seen.text)
			}
			holdsNone(t, seen.what, seen.text)
		})
	}
	t.Run("the folder's bytes", func(t *testing.T) {
		for name, raw := range dataFiles(t, data) {
			holdsNone(t, name, string(raw))
		}
	})

	t.Run("when nobody can look for them, traces are withheld", func(t *testing.T) {
		db, err := sql.Open("sqlite", filepath.Join(data, "belay.db"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = db.Exec("DELETE FROM secret_print")
		if err = errors.Join(err, db.Close()); err != nil {
			t.Fatal(err)
		}
		a := apptest.StartIn(t, dir)
		if _, err := a.App.Traces(t.Context(), "u", ""); !errors.Is(err, sqlstore.ErrFingerprints) {
			t.Errorf("the trace is given, or not for that: %v", err)
		}
		if got := a.App.TraceText(r.Report); strings.Contains(got, "turn") || got == "" {
			t.Errorf("shown: %s", got)
		}
		wantAll(t, "the log", a.Log(), "secrets of tenants cannot be looked for")
	})
}

// holdsNone fails when a text has the planted token in any of its forms, as it is or
// within a JSON string.
func holdsNone(t *testing.T, what, text string) {
	t.Helper()
	for form, name := range tokenForms() {
		once, _ := json.Marshal(form)
		once = once[1 : len(once)-1]
		twice, _ := json.Marshal(string(once))
		for _, written := range []string{form, string(once), string(twice[1 : len(twice)-1])} {
			if at := strings.Index(text, written); at >= 0 {
				t.Errorf("%s holds the secret as %s: …%q", what, name, text[max(0, at-100):at])
				break
			}
		}
	}
}

// dataFiles are the files of a data folder by their names. Snapshots of plugins are
// what others wrote.
func dataFiles(t *testing.T, data string) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	err := filepath.WalkDir(data, func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == "plugins":
			return filepath.SkipDir
		case d.IsDir():
			return nil
		}
		out[d.Name()], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
