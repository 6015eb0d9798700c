package tests

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/approval"
	"github.com/belay-run/belay/internal/control"
	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/secret"
	"github.com/belay-run/belay/internal/sqlstore"
	"github.com/belay-run/belay/internal/vault"
)

// secretServer has hooks that note what they are told beside the event, and a function
// that says what it has in its environment.
const secretServer = `
import json, os, pathlib, sys
from typing import Any
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.types import ToolAnnotations

server = MCPServer("guard")
READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)


def note(name, event, ctx):
    meta = {k: v for k, v in dict(ctx.request_context.meta or {}).items() if "/secrets" in k}
    event = {k: v if len(str(v)) < 10000 else len(v) for k, v in event.items()}
    with (HERE / "guard.jsonl").open("a") as f:
        f.write(json.dumps({"name": name, "event": event, "meta": meta}) + "\n")
    return meta


@server.tool(annotations=READS)
def watch(event: dict, ctx: Context) -> dict:
    note("watch", event, ctx)
    return {"decision": "allow"}


@server.tool(annotations=READS)
def redact(event: dict, ctx: Context) -> dict:
    """Replaces secrets by their names."""
    meta = note("redact", event, ctx)
    found = meta.get("belay/secrets")
    if found is None:
        return {"decision": "deny", "reason": "nobody looked for secrets"}
    field = "output" if event["event"] == "job_end" else "result"
    if not found:
        return {"decision": "allow"}
    value = event[field]
    for f in sorted(found, key=lambda f: -f["start"]):
        if f["path"] == "/" + field:
            value = value[: f["start"]] + "<" + f["name"] + ">" + value[f["end"] :]
    return {"decision": "modify", field: value}


@server.tool(annotations=READS)
def leak(event: dict) -> dict:
    """Puts the secret where none was, and breaks when told to."""
    text = os.environ.get("TOKEN", "")
    print("printing", text, file=sys.stderr, flush=True)
    mode = (HERE / "leak").read_text() if (HERE / "leak").exists() else ""
    if mode == "raise":
        raise ValueError("broke with " + text)
    if mode == "escalate":
        return {"decision": "escalate", "reason": "look at " + text}
    if mode == "deny":
        return {"decision": "deny", "reason": "it has " + text}
    return {"decision": "modify", "result": "now with " + text}


@server.tool(annotations=READS)
def structured() -> dict[str, Any]:
    return json.loads((HERE / "answers.json").read_text())["structured"]


@server.tool(annotations=READS)
def environment() -> dict:
    return {"token": os.environ.get("TOKEN"), "other": os.environ.get("OTHER")}


server.run()
`

const plantedToken = `s3cr3t-"Töken"/+?` + "\nline"

type secretJobs struct{ *jobs }

// startSecrets starts jobs with a second plugin whose hooks these are.
func startSecrets(t *testing.T, hooks string, model ...string) *secretJobs {
	t.Helper()
	j := startJobs(t, "", does("probe.look", `{}`), says("done"))
	if len(model) > 0 {
		j.model.list[1] = says(model[0])
	}
	g := &secretJobs{j}
	g.install("belay-plugin.yaml", hooks)
	g.set("main", "TOKEN", plantedToken)
	return g
}

func (g *secretJobs) install(manifest, hooks string) {
	g.t.Helper()
	dir := g.t.TempDir()
	env := ""
	if strings.Contains(hooks, "guard.leak") {
		env = "    env: [TOKEN]\n"
	}
	g.write(filepath.Join(dir, manifest), "name: guard\nversion: 1.0.0\ntools:\n  - id: guard\n    mcp: [python, server.py]\n"+env+hooks)
	g.write(filepath.Join(dir, "server.py"), fmt.Sprintf("import pathlib\nHERE = pathlib.Path(%q)\n", g.probe)+secretServer)
	if _, err := g.st.InstallPlugin(g.t.Context(), g.me, control.PluginOrder{Path: dir, AcceptScan: true}); err != nil {
		g.t.Fatal(err)
	}
}

func (g *secretJobs) set(tenant, name, value string) {
	g.t.Helper()
	c := g.me
	c.Tenant = tenant
	if _, err := g.st.SetSecret(g.t.Context(), c, control.SecretOrder{Name: name, Value: value}); err != nil {
		g.t.Fatal(err)
	}
}

// looks runs a job in which the function look gives this.
func (g *secretJobs) looks(value any) *job.End {
	g.t.Helper()
	g.answers(map[string]any{"look": value})
	return g.run("go")
}

// startAs starts a job of an agent.
func (g *secretJobs) startAs(c control.Caller, agent string) job.ID {
	g.t.Helper()
	id, err := g.st.StartJob(g.t.Context(), c, control.JobOrder{Agent: agent})
	if err != nil {
		g.t.Fatal(err)
	}
	return id
}

type secretTold struct {
	Name  string         `json:"name"`
	Event map[string]any `json:"event"`
	Meta  map[string]any `json:"meta"`
}

// told is what the guard's hooks were told of an event since the last time.
func (g *secretJobs) told(event string) []secretTold {
	g.t.Helper()
	path := filepath.Join(g.probe, "guard.jsonl")
	raw, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		g.t.Fatal(err)
	}
	_ = os.Remove(path)
	var out []secretTold
	for line := range bytes.Lines(raw) {
		var one secretTold
		if err := json.Unmarshal(line, &one); err != nil {
			g.t.Fatal(err)
		}
		if one.Event["event"] == event {
			out = append(out, one)
		}
	}
	return out
}

func tokenAt(path string, start, end int, form secret.Form) map[string]any {
	return map[string]any{"path": path, "start": float64(start), "end": float64(end), "name": "TOKEN", "form": string(form)}
}

// tokenForms are the token in each of the forms in which it must be found.
func tokenForms() map[string]secret.Form {
	raw, _ := json.Marshal(plantedToken)
	return map[string]secret.Form{
		plantedToken: secret.Plain, strings.ReplaceAll(plantedToken, "\n", "\r\n"): secret.Newlines,
		base64.StdEncoding.EncodeToString([]byte(plantedToken)): secret.Base64, base64.URLEncoding.EncodeToString([]byte(plantedToken)): secret.Base64URL,
		hex.EncodeToString([]byte(plantedToken)): secret.Hex, strings.ToUpper(hex.EncodeToString([]byte(plantedToken))): secret.Hex,
		url.QueryEscape(plantedToken): secret.Percent, string(raw[1 : len(raw)-1]): secret.JSON,
	}
}

const toldOfSecrets = "hooks:\n  - {on: post_tool_call, call: guard.watch, scan: [secrets]}\n  - {on: job_end, call: guard.watch, scan: [secrets]}\n  - {on: post_tool_call, call: guard.watch}\n"

func TestHooksAreToldWhereSecretsAre(t *testing.T) {
	t.Parallel()
	g := startSecrets(t, toldOfSecrets, "the output é "+plantedToken)

	t.Run("P40 places in strings, by pointer and code point; the event is unchanged", func(t *testing.T) {
		n := len([]rune(plantedToken))
		g.looks("é😀 " + plantedToken + " and " + plantedToken)
		seen := g.told("post_tool_call")
		if len(seen) != 2 {
			t.Fatalf("asked: %+v\n%s", seen, g.log)
		}
		want := map[string]any{"belay/secrets": []any{tokenAt("/result", 3, 3+n, "plain"), tokenAt("/result", 8+n, 8+2*n, "plain")}}
		if !reflect.DeepEqual(seen[0].Meta, want) {
			t.Errorf("told %v, not %v", seen[0].Meta, want)
		}
		if len(seen[1].Meta) != 0 {
			t.Errorf("a hook that did not ask was told %v", seen[1].Meta)
		}
		if !reflect.DeepEqual(seen[0].Event, seen[1].Event) || seen[0].Event["result"] != "é😀 "+plantedToken+" and "+plantedToken {
			t.Errorf("events %v and %v", seen[0].Event, seen[1].Event)
		}
	})

	t.Run("P40 the job's output", func(t *testing.T) {
		g.looks("nothing")
		g2 := g.told("job_end")
		want := map[string]any{"belay/secrets": []any{tokenAt("/output", 13, 13+len([]rune(plantedToken)), "plain")}}
		if len(g2) != 1 || !reflect.DeepEqual(g2[0].Meta, want) {
			t.Errorf("told %+v, not %v", g2, want)
		}
	})

	t.Run("P43 each form", func(t *testing.T) {
		for text, form := range tokenForms() {
			g.looks("x " + text + " y")
			seen := g.told("post_tool_call")
			want := []any{tokenAt("/result", 2, 2+len([]rune(text)), form)}
			if len(seen) == 0 || !reflect.DeepEqual(seen[0].Meta["belay/secrets"], want) {
				t.Errorf("%s: told %+v, not %v", form, seen, want)
			}
		}
		for before := range 3 { // as a part of what was encoded
			enc := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("u", before) + plantedToken + ":rest of it"))
			g.looks(enc)
			seen := g.told("post_tool_call")
			want := []any{tokenAt("/result", before*8/6, ((before+len(plantedToken))*8+5)/6, "base64")}
			if len(seen) == 0 || !reflect.DeepEqual(seen[0].Meta["belay/secrets"], want) {
				t.Errorf("after %d bytes: told %+v, not %v", before, seen, want)
			}
		}
	})

	t.Run("P46 nothing found gives an empty list", func(t *testing.T) {
		g.looks("nothing")
		seen := g.told("post_tool_call")
		if len(seen) == 0 || !reflect.DeepEqual(seen[0].Meta, map[string]any{"belay/secrets": []any{}}) {
			t.Errorf("told %+v", seen)
		}
	})
}

func TestPlacesInStructuredResults(t *testing.T) {
	t.Parallel()
	j := startJobs(t, "", does("guard.structured", `{}`), says("done"))
	g := &secretJobs{j}
	g.set("main", "TOKEN", "hush-hush")
	g.install("oz0-plugin.yaml", "agents:\n  - {id: asker, instructions: Ask., model: asker, tools: [guard.structured]}\nhooks:\n  - {on: post_tool_call, call: guard.watch, scan: [secrets]}\n")

	t.Run("P40 pointers into objects and lists", func(t *testing.T) {
		g.answers(map[string]any{"structured": map[string]any{"items": []any{map[string]any{"body": "é hush-hush", "a/b~": "hush-hush"}}}})
		g.end(g.startAs(g.me, "asker"))
		seen := g.told("post_tool_call")
		if len(seen) != 1 {
			t.Fatalf("asked %+v\n%s", seen, g.log)
		}
		found, _ := seen[0].Meta["oz0/secrets"].([]any)
		want := []any{tokenAt("/result/items/0/body", 2, 11, "plain"), tokenAt("/result/items/0/a~1b~0", 0, 9, "plain")}
		if !reflect.DeepEqual(found, want) && !reflect.DeepEqual(found, []any{want[1], want[0]}) {
			t.Errorf("told %v, not %v", seen[0].Meta, want)
		}
	})

	t.Run("P42 a secret in a key", func(t *testing.T) {
		g.answers(map[string]any{"structured": map[string]any{"x hush-hush": 1}})
		g.end(g.startAs(g.me, "asker"))
		if seen := g.told("post_tool_call"); len(seen) != 0 {
			t.Errorf("the hook was asked: %+v", seen)
		}
		if read := g.reads(); len(read) != 1 || strings.Contains(read[0], "hush-hush") {
			t.Errorf("the model reads %q", read)
		}
	})
}

func TestScansThatAreNotHandedOver(t *testing.T) {
	t.Parallel()
	hook := func(onTimeout string) string {
		return "hooks:\n  - {on: post_tool_call, call: guard.watch, scan: [secrets], timeout: 30s, on_timeout: " + onTimeout + "}\n"
	}
	many := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "secret-number-%03d ", i)
		}
		return b.String()
	}
	setMany := func(g *secretJobs) {
		for i := range 101 {
			g.set("main", fmt.Sprintf("S%03d", i), fmt.Sprintf("secret-number-%03d", i))
		}
	}
	t.Run("P42 with 100 secrets it is asked, with 101 its on_timeout decides: deny", func(t *testing.T) {
		g := startSecrets(t, hook("deny"))
		setMany(g)
		g.looks(many(100))
		if seen := g.told("post_tool_call"); len(seen) != 1 || len(seen[0].Meta["belay/secrets"].([]any)) != 100 {
			t.Errorf("asked %d times\n%s", len(seen), g.log)
		}
		g.looks(many(101))
		if seen := g.told("post_tool_call"); len(seen) != 0 {
			t.Error("the hook was asked about 101 secrets")
		}
		if read := g.reads(); len(read) != 1 || strings.Contains(read[0], "secret-number") {
			t.Errorf("the model reads %.300q", read)
		}
	})
	t.Run("P41 P42 16 MiB of text are scanned to the last byte, one byte more is not: allow", func(t *testing.T) {
		g := startSecrets(t, hook("allow"))
		text := strings.Repeat("x", secret.MaxText-len("hush-hush")) + "hush-hush"
		g.set("main", "BIG", "hush-hush")
		g.looks(text)
		seen := g.told("post_tool_call")
		if len(seen) != 1 {
			t.Fatalf("asked %d times\n%.3000s", len(seen), g.log)
		}
		found, _ := seen[0].Meta["belay/secrets"].([]any)
		if len(found) != 1 || found[0].(map[string]any)["end"] != float64(secret.MaxText) {
			t.Errorf("told %v", found)
		}
		g.looks(text + "x")
		if seen := g.told("post_tool_call"); len(seen) != 0 {
			t.Error("the hook was asked about more than 16 MiB")
		}
		if read := g.reads(); len(read) != 1 || len(read[0]) < secret.MaxText {
			t.Error("its on_timeout is allow: the model should read the result")
		}
	})
}

// harm changes the database while nobody has it.
func (g *secretJobs) harm(statement string) {
	g.t.Helper()
	g.close()
	db, err := sql.Open("sqlite", filepath.Join(g.data, "belay.db"))
	if err != nil {
		g.t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(statement); err != nil {
		g.t.Fatal(err)
	}
	g.open()
}

func TestScanAfterEarlierHooks(t *testing.T) {
	t.Parallel()
	t.Run("P46 the scan is of what the earlier hook left", func(t *testing.T) {
		g := startSecrets(t, "hooks:\n  - {on: post_tool_call, call: guard.watch, scan: [secrets]}\n  - {on: post_tool_call, call: guard.leak}\n  - {on: post_tool_call, call: guard.redact, scan: [secrets]}\n")
		g.looks("clean")
		seen := g.told("post_tool_call")
		if len(seen) != 2 || len(seen[0].Meta["belay/secrets"].([]any)) != 0 || len(seen[1].Meta["belay/secrets"].([]any)) != 1 {
			t.Fatalf("told %+v\n%s", seen, g.log)
		}
		if read := g.reads(); len(read) != 1 || read[0] != "now with <TOKEN>" {
			t.Errorf("the model reads %q", read)
		}
		g.looks("has " + plantedToken)
		if seen := g.told("post_tool_call"); len(seen) != 2 || len(seen[0].Meta["belay/secrets"].([]any)) != 1 {
			t.Errorf("told %+v", seen)
		}
	})
}

func TestNothingOfOursHoldsSecrets(t *testing.T) {
	t.Parallel()
	var all []string
	for text := range tokenForms() {
		all = append(all, text)
	}
	planted := strings.Join(all, " | ")
	held := func(t *testing.T, what, where string) {
		t.Helper()
		for text, form := range tokenForms() {
			if strings.Contains(where, text) {
				t.Errorf("%s holds the secret as %s", what, form)
			}
		}
		for _, quoted := range []string{`s3cr3t-\"T`, `s3cr3t-\\\"T`, "s3cr3t-%22"} {
			if strings.Contains(where, quoted) {
				t.Errorf("%s holds the secret as %s", what, quoted)
			}
		}
	}
	g := startSecrets(t, "hooks:\n  - {on: post_tool_call, call: guard.leak, on_timeout: escalate}\n", "say "+planted)
	for _, mode := range []string{"raise", "escalate"} {
		t.Run("P44 in results, errors and prints: "+mode, func(t *testing.T) {
			g.write(filepath.Join(g.probe, "leak"), mode)
			g.answers(map[string]any{"look": planted})
			raw, _ := json.Marshal("do " + planted)
			id, err := g.st.StartJob(t.Context(), g.me, control.JobOrder{Agent: "worker", Input: raw})
			if err != nil {
				t.Fatal(err)
			}
			asked := g.waits(1)[0]
			shown, _ := json.Marshal(asked)
			held(t, "the approval", string(shown))
			held(t, "its reason", fmt.Sprintf("%+v", asked.Request.Reasons))
			held(t, "its value", string(asked.Request.Value))
			if !bytes.Contains(shown, []byte("[secret TOKEN]")) {
				t.Errorf("the approval does not name it: %s", shown)
			}
			g.decide(asked, approval.Answer{Yes: true}) // what it is bound to is not what is shown
			g.end(id)
			h, err := g.st.History(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			h.Job.End.Output = nil
			trace, _ := json.Marshal(h)
			held(t, "the trace", string(trace))
			held(t, "the log", g.log.String())
		})
	}
	t.Run("P44 a refusal", func(t *testing.T) {
		g.write(filepath.Join(g.probe, "leak"), "deny")
		g.looks("x")
		held(t, "the log", g.log.String())
	})
	t.Run("P44 the folder's bytes, and a scan without the store", func(t *testing.T) {
		entries, err := g.st.Store().AuditEntries(t.Context(), "main", 0, 1000)
		if err != nil {
			t.Fatal(err)
		}
		raw, _ := json.Marshal(entries)
		held(t, "the audit record", string(raw))
		g.close()
		err = filepath.WalkDir(g.data, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.Contains(path, "plugins") {
				return err
			}
			raw, err := os.ReadFile(path)
			held(t, filepath.Base(path), string(raw))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		keys, err := vault.Open(g.data, "")
		if err != nil {
			t.Fatal(err)
		}
		store, err := sqlstore.Attach(context.Background(), g.data, sqlstore.Options{Vault: keys})
		if err != nil {
			t.Fatal(err)
		}
		key, prints, err := store.SecretEntries(t.Context(), "main")
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		found := secret.NewScanner(key, prints).Scan(planted)
		if len(found) != len(all) {
			t.Errorf("found %d of %d forms", len(found), len(all))
		}
		raw, _ = json.Marshal(found)
		held(t, "the findings", string(raw))
		raw, _ = json.Marshal(prints)
		held(t, "the fingerprints", string(raw))
	})
}

func TestToolsGetSecretsOfTheirTenant(t *testing.T) {
	t.Setenv("OTHER", "of-the-environment")
	j := startJobs(t, "", does("guard.environment", `{}`), says("done"))
	g := &secretJobs{j}
	g.set("main", "TOKEN", "value-of-main")
	g.set("else", "TOKEN", "value-of-else")
	dir := t.TempDir()
	g.write(filepath.Join(dir, "belay-plugin.yaml"), `name: guard
version: 1.0.0
tools:
  - id: guard
    mcp: [python, server.py]
    env: [TOKEN, OTHER]
agents:
  - {id: asker, instructions: Ask., model: asker, tools: ["guard.*"]}
`)
	g.write(filepath.Join(dir, "server.py"), fmt.Sprintf("import pathlib\nHERE = pathlib.Path(%q)\n", g.probe)+secretServer)
	other := g.me
	other.Tenant = "else"
	for _, c := range []control.Caller{g.me, other} {
		if _, err := g.st.InstallPlugin(t.Context(), c, control.PluginOrder{Path: dir}); err != nil {
			t.Fatal(err)
		}
	}
	reads := func(c control.Caller) string {
		t.Helper()
		if end := g.end(g.startAs(c, "asker")); end.State != job.Completed {
			t.Fatalf("%+v\n%s", end, g.log)
		}
		return strings.Join(strings.Fields(strings.Join(g.reads(), "")), " ")
	}
	for range 2 {
		if got := reads(g.me); got != `{ "token": "value-of-main", "other": "of-the-environment" }` {
			t.Errorf("the tool has %s", got)
		}
		if got := reads(other); got != `{ "token": "value-of-else", "other": "of-the-environment" }` {
			t.Errorf("the other tenant's tool has %s", got)
		}
	}
	if _, err := g.st.SetSecret(t.Context(), g.me, control.SecretOrder{Name: "TOKEN", Value: "rotated-value", Rotate: true}); err != nil {
		t.Fatal(err)
	}
	if got := reads(g.me); !strings.Contains(got, "rotated-value") {
		t.Errorf("after the rotation the tool has %s", got)
	}
}

func TestUpdatesThatWantToBeTold(t *testing.T) {
	t.Parallel()
	g := &secretJobs{startJobs(t, "")}
	const quiet, told = "hooks:\n  - {on: post_tool_call, call: guard.watch}\n", "hooks:\n  - {on: post_tool_call, call: guard.watch, scan: [secrets]}\n"
	dir := t.TempDir()
	manifest := func(hooks string) {
		g.write(filepath.Join(dir, "belay-plugin.yaml"), "name: guard\nversion: 1.0.0\ntools:\n  - id: guard\n    mcp: [python, server.py]\n"+hooks)
	}
	g.write(filepath.Join(dir, "server.py"), fmt.Sprintf("import pathlib\nHERE = pathlib.Path(%q)\n", g.probe)+secretServer)
	update := func(accept bool, name string) error {
		_, err := g.st.InstallPlugin(t.Context(), g.me, control.PluginOrder{Path: dir, Name: name, AcceptScan: accept})
		return err
	}
	manifest(quiet)
	if err := update(false, ""); err != nil {
		t.Fatal(err)
	}
	t.Run("P58 an update that adds scan is refused until it is accepted", func(t *testing.T) {
		manifest(told)
		if err := update(false, "guard"); err == nil || !strings.Contains(err.Error(), "secrets") {
			t.Errorf("it gives %v", err)
		}
		if err := update(true, "guard"); err != nil {
			t.Error(err)
		}
		if err := update(false, "guard"); err != nil {
			t.Errorf("it wants no more than before: %v", err)
		}
	})
	t.Run("P45 the list of plugins says who is told", func(t *testing.T) {
		all, err := g.st.Plugins(t.Context(), "main")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(fmt.Sprint(all), "told where the tenant's known secrets are") {
			t.Errorf("listed %+v", all)
		}
	})
}
