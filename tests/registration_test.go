package tests

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/app"
	"github.com/belay-run/belay/internal/app/apptest"
	"github.com/belay-run/belay/internal/finding"
)

// decorator is one decorator with what a hook under it is annotated with.
type decorator struct{ name, payload, returns string }

func (d decorator) modify() bool { return strings.HasPrefix(d.name, "modify_") }

// decorators are all that there are, the later names of the outgoing pair too.
func decorators() (out []decorator) {
	for _, s := range append(slices.Clone(standings), standing{point: "outgoing_message", payload: "OutgoingMessagePayload", modify: true}) {
		out = append(out, decorator{"on_" + s.point, s.payload, "None"})
		if s.modify {
			out = append(out, decorator{"modify_" + s.point, s.payload, s.payload})
		}
	}
	return out
}

// trials are hook files, each with what the check must find in it.
type trials struct {
	files apptest.Files
	want  map[string][]spot
}

func newTrials() *trials { return &trials{apptest.Files{}, map[string][]spot{}} }

// add adds a file for each decorator that want has a rule for; "" means that
// nothing is wrong. In the text DECORATOR, PAYLOAD and RETURNS stand for the
// decorator's; a finding is expected in each line that ends with "# here".
func (tr *trials) add(name, text string, want func(d decorator) (rule string, ok bool)) {
	for _, d := range decorators() {
		rule, ok := want(d)
		if !ok {
			continue
		}
		file := fmt.Sprintf("hooks/%s/%s.py", strings.ReplaceAll(name, " ", "_"), d.name)
		tr.files[file] = strings.NewReplacer("DECORATOR", d.name, "PAYLOAD", d.payload, "RETURNS", d.returns).Replace(text)
		tr.want[file] = nil
		if rule == "" {
			continue
		}
		for _, line := range marked(tr.files[file], "# here") {
			tr.want[file] = append(tr.want[file], spot{file, line, rule})
		}
	}
}

// run checks all files at once. Each file is a subtest. That many modify hooks
// stand at a point is no matter here.
func (tr *trials) run(t *testing.T, id string) {
	t.Helper()
	found := map[string][]spot{}
	for _, f := range check(t, tr.files) {
		if f.Rule != "double-modify" {
			found[f.File] = append(found[f.File], f)
		}
	}
	for _, file := range slices.Sorted(maps.Keys(tr.want)) {
		name := strings.TrimSuffix(strings.TrimPrefix(file, "hooks/"), ".py")
		t.Run(id+" "+strings.ReplaceAll(name, "/", ": "), func(t *testing.T) {
			if !slices.Equal(found[file], tr.want[file]) {
				t.Errorf("found %v, want %v in\n%s", found[file], tr.want[file], tr.files[file])
			}
		})
	}
}

func always(rule string) func(decorator) (string, bool) {
	return func(decorator) (string, bool) { return rule, true }
}

func inLane(modify bool, rule string) func(decorator) (string, bool) {
	return func(d decorator) (string, bool) { return rule, d.modify() == modify }
}

func TestBareDecorators(t *testing.T) {
	t.Parallel()
	tr := newTrials()
	rest := "async def f(p: PAYLOAD) -> RETURNS:\n    return p\n"
	tr.add("with parentheses", "from belay.hooks import DECORATOR, PAYLOAD\n\n\n@DECORATOR()\n"+rest, always(""))
	tr.add("bare", "from belay.hooks import DECORATOR, PAYLOAD\n\n\n@DECORATOR  # here\n"+rest, always("bare-decorator"))
	tr.add("bare under another name", "from belay.hooks import PAYLOAD\nfrom belay.hooks import DECORATOR as hook\n\n\n@hook  # here\n"+rest, always("bare-decorator"))
	tr.add("bare of a module", "import belay.hooks as h\nfrom belay.hooks import PAYLOAD\n\n\n@h.DECORATOR  # here\n"+rest, always("bare-decorator"))
	tr.add("bare in the older module", "from rasa.mantle.hooks import DECORATOR, PAYLOAD\n\n\n@DECORATOR  # here\n"+rest, always("bare-decorator"))
	tr.run(t, "T07")
}

func TestNotAsync(t *testing.T) {
	t.Parallel()
	tr := newTrials()
	head := "from belay.hooks import DECORATOR, PAYLOAD\n\n\n"
	tr.add("async", head+"@DECORATOR()\nasync def f(p: PAYLOAD) -> RETURNS:\n    return p\n", always(""))
	tr.add("a plain function", head+"@DECORATOR()\ndef f(p: PAYLOAD) -> RETURNS:  # here\n    return p\n", always("not-async"))
	tr.add("an async generator", head+"@DECORATOR()\nasync def f(p: PAYLOAD) -> RETURNS:  # here\n    yield p\n", always("not-async"))
	tr.add("registered by a call", head+"def f(p: PAYLOAD) -> RETURNS:  # here\n    return p\n\n\nDECORATOR()(f)\n", always("not-async"))
	tr.run(t, "T10")
}

func TestAnnotations(t *testing.T) {
	t.Parallel()
	tr := newTrials()
	head, rest := "from belay.hooks import *\n\n\n@DECORATOR()\n", "\n    return p\n"
	future := "from __future__ import annotations\n\n" + head
	payload, returns, signature := always("payload-annotation"), always("return-annotation"), always("signature")
	for _, c := range []struct {
		name, def string
		want      func(decorator) (string, bool)
	}{
		{"right", "async def f(p: PAYLOAD) -> RETURNS:", always("")},
		{"right as strings", `async def f(p: "PAYLOAD") -> "RETURNS":`, always("")},
		{"another payload", "async def f(p: Payload) -> RETURNS:  # here", payload},
		{"another payload as a string", `async def f(p: "Payload") -> RETURNS:  # here`, payload},
		{"no payload at all", "async def f(p: dict) -> RETURNS:  # here", payload},
		{"no annotation of the payload", "async def f(p) -> RETURNS:  # here", payload},
		{"returns another type", "async def f(p: PAYLOAD) -> str:  # here", returns},
		{"returns another type as a string", `async def f(p: PAYLOAD) -> "str":  # here`, returns},
		{"returns None", "async def f(p: PAYLOAD) -> None:  # here", inLane(true, "return-annotation")},
		{"returns the payload", "async def f(p: PAYLOAD) -> PAYLOAD:  # here", inLane(false, "return-annotation")},
		{"no annotation of what it returns", "async def f(p: PAYLOAD):  # here", returns},
		{"no parameter", "async def f() -> RETURNS:  # here\n    p = None", signature},
		{"two parameters", "async def f(p: PAYLOAD, context: dict) -> RETURNS:  # here", signature},
		{"a parameter by name only", "async def f(*, p: PAYLOAD) -> RETURNS:  # here", signature},
	} {
		tr.add(c.name, head+c.def+rest, c.want)
		tr.add(c.name+" with annotations as strings", future+c.def+rest, c.want)
	}
	// Only running it tells that there is no such name; then the decorator is the place.
	tr.add("a payload that is not there", "from belay.hooks import *\n\n\n@DECORATOR()  # here\nasync def f(p: 'NoSuchPayload') -> RETURNS:\n    return p\n", payload)
	tr.run(t, "T11")
}

func TestReturnedSignals(t *testing.T) {
	t.Parallel()
	tr := newTrials()
	head := "import belay.hooks\nfrom belay.hooks import *\nfrom belay.hooks import RetryModel as R\n\n\n@DECORATOR()\nasync def f(p: PAYLOAD) -> RETURNS:\n"
	for name, value := range map[string]string{
		"a rejection": "HookRejection(reason='no')", "a retry": "RetryModel('no')", "a class": "HookRejection", "under another name": "R(feedback='no')",
		"of a module": "belay.hooks.HookRejection('no')",
	} {
		tr.add("returns "+name, head+"    if p.sender_id:\n        return "+value+"  # here\n    return p\n", always("signal-returned"))
	}
	tr.run(t, "T12")
}

func TestDecoratorArguments(t *testing.T) {
	t.Parallel()
	tr := newTrials()
	rest := "\nasync def f(p: PAYLOAD) -> RETURNS:\n    return p\n"
	for i, c := range []struct {
		arguments string
		want      func(decorator) (string, bool)
	}{
		{"timeout_ms=1", always("")}, {"timeout_ms=60_000", always("")}, {"timeout_ms=2 * LIMIT", always("")}, {"timeout_ms=LIMIT", always("")},
		{"final=True", inLane(false, "")},
		{"timeout_ms=0", always("timeout-ms")}, {"timeout_ms=-1", always("timeout-ms")}, {"timeout_ms=1.0", always("timeout-ms")}, {"timeout_ms=0.5", always("timeout-ms")},
		{"timeout_ms='100'", always("timeout-ms")}, {"timeout_ms=True", always("timeout-ms")}, {"timeout_ms=None", always("timeout-ms")},
		{"timeout_ms=float('inf')", always("timeout-ms")}, {"timeout_ms=LIMIT - 700", always("timeout-ms")},
		{"timeout=5", always("decorator-argument")}, {"timeout_s=5", always("decorator-argument")}, {"100", always("decorator-argument")},
		{"name='x'", always("decorator-argument")}, {"timeout_ms=100, order=1", always("decorator-argument")}, {"final=1", always("decorator-argument")},
		{"final=True", inLane(true, "decorator-argument")},
	} {
		tr.add(fmt.Sprintf("%02d", i), "from belay.hooks import *\n\nLIMIT = 700\n\n\n@DECORATOR("+c.arguments+")  # here"+rest, c.want)
	}
	tr.run(t, "T85")
}

// modifies is a file with one modify hook.
func modifies(decorator, payload, name string) string {
	return fmt.Sprintf("from belay.hooks import %[1]s, %[2]s\n\n\n@%[1]s()\nasync def %[3]s(p: %[2]s) -> %[2]s:\n    return p\n", decorator, payload, name)
}

func TestDoubleModify(t *testing.T) {
	t.Parallel()
	files, single := apptest.Files{}, apptest.Files{}
	for _, s := range standings {
		if s.modify {
			files["hooks/a/"+s.point+".py"] = modifies("modify_"+s.point, s.payload, "first")
			files["hooks/b/"+s.point+".py"] = modifies("modify_"+s.point, s.payload, "second")
			single["hooks/"+s.point+".py"] = modifies("modify_"+s.point, s.payload, "only")
		}
	}
	for name, folder := range map[string]apptest.Files{
		"in two files": files,
		"in both layouts": {"hooks.py": modifies("modify_tool_call", "ToolCallPayload", "first"),
			"hooks/more.py": modifies("modify_tool_call", "ToolCallPayload", "second")},
		"in one file": {"hooks.py": modifies("modify_tool_call", "ToolCallPayload", "first") + modifies("modify_tool_call", "ToolCallPayload", "second")},
		"of one function": {"hooks.py": "from belay.hooks import *\n\n\n@modify_tool_call()\n@modify_tool_call()\n" +
			"async def both(p: ToolCallPayload) -> ToolCallPayload:\n    return p\n"},
		"in a loop": {"hooks.py": "from belay.hooks import *\n\n\nfor _ in range(2):\n\n    @modify_tool_call()\n" +
			"    async def twice(p: ToolCallPayload) -> ToolCallPayload:\n        return p\n"},
	} {
		places := map[string][]string{
			"in both layouts": {"hooks.py:4", "hooks/more.py:4"}, "in one file": {"hooks.py:4", "hooks.py:10"}, "of one function": {"hooks.py:4", "hooks.py:5"},
			"in a loop": {"hooks.py:6", "hooks.py:6"},
		}[name]
		dir := apptest.Folder(t, folder)
		checked, _, err := app.Check(context.Background(), app.Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		for how, findings := range map[string][]finding.Finding{"the check": checked, "loading": openFindings(t, dir)} {
			t.Run("T08 "+how+" finds two modify hooks "+name+" and names both places", func(t *testing.T) {
				said := ""
				for _, f := range findings {
					if f.Rule != "double-modify" || f.Severity != finding.Error {
						t.Errorf("another finding: %+v", f)
					}
					said += fmt.Sprintf("%s:%d: %s\n", f.File, f.Line, f.Message)
				}
				if name == "in two files" {
					for _, s := range standings {
						if s.modify && (!strings.Contains(said, "hooks/a/"+s.point+".py:4") || !strings.Contains(said, "hooks/b/"+s.point+".py:4")) {
							t.Errorf("not both places of %s are named in\n%s", s.point, said)
						}
					}
					return
				}
				if len(findings) != 1 || strings.Count(said, places[0]) < 1 || strings.Count(said, places[1]) < 1 {
					t.Errorf("findings, which should name %v:\n%s", places, said)
				}
			})
		}
	}
	t.Run("T08 one at each point is fine", func(t *testing.T) {
		expect(t, "findings", check(t, single), []spot(nil))
	})
}

// openFindings opens a folder, which must not serve, and returns why it does not.
func openFindings(t *testing.T, dir string) []finding.Finding {
	t.Helper()
	a, err := app.Open(context.Background(), app.Config{Dir: dir})
	if err == nil {
		t.Error("the agent serves")
		if err := a.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
	var found *app.FindingsError
	if !errors.As(err, &found) {
		t.Fatalf("open: %v", err)
	}
	return found.Findings
}
