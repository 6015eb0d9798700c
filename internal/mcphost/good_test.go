package mcphost

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestTools(t *testing.T) {
	r := newRig(t, script(t, "good.py"))
	tools, err := r.Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	find := func(name string) Tool {
		i := slices.IndexFunc(tools, func(x Tool) bool { return x.Name == name })
		if i < 0 {
			t.Fatalf("no tool %q", name)
		}
		return tools[i]
	}
	check := find("check")
	if check.Description != "Decide on a call." || !strings.Contains(string(check.InputSchema), `"event"`) || check.OutputSchema != nil {
		t.Errorf("check: %+v", check)
	}
	if a := check.Annotations; a.ReadOnly == nil || !*a.ReadOnly || a.OpenWorld == nil || *a.OpenWorld || a.Destructive != nil || a.Idempotent != nil {
		t.Errorf("annotations of check: %+v", a)
	}
	if a := find("fails").Annotations; a.Destructive == nil || !*a.Destructive || a.Idempotent == nil || *a.Idempotent || a.ReadOnly != nil {
		t.Errorf("annotations of fails: %+v", a)
	}
	if a := find("words").Annotations; a != (Annotations{}) {
		t.Errorf("annotations of words: %+v", a)
	}
	if find("check_typed").OutputSchema == nil {
		t.Error("check_typed has no output schema")
	}
	r.log.wait(t, "at your service") // the banner went to the log
}

func TestThreeForms(t *testing.T) {
	r := newRig(t, script(t, "good.py"))
	for tool, want := range map[string]string{
		"check":       `{"decision":"allow","reason":"push is fine"}`,
		"check_typed": `{"decision":"deny","reason":"typed"}`,
		"check_maybe": `{"decision":"escalate","reason":"wrapped"}`,
		"check_text":  `{"decision":"allow","reason":"text in a wrapper"}`,
	} {
		o, err := r.ok(tool, `{"event": {"tool": "push"}}`, "").Object()
		if err != nil {
			t.Errorf("%s: %v", tool, err)
			continue
		}
		var got, wanted any
		if json.Unmarshal(o, &got) != nil || json.Unmarshal([]byte(want), &wanted) != nil || !equal(got, wanted) {
			t.Errorf("%s answered %s, not %s", tool, o, want)
		}
	}
	for tool, word := range map[string]string{"words": "text", "many": "a list"} {
		if o, err := r.ok(tool, "", "").Object(); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s answered the object %s, %v", tool, o, err)
		}
	}
}

func equal(a, b any) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}

func TestValues(t *testing.T) {
	r := newRig(t, script(t, "good.py"))
	if a := r.ok("long_number", "", ""); !strings.Contains(string(a.Value), "9007199254740993") || strings.Index(string(a.Value), `"z"`) > strings.Index(string(a.Value), `"a"`) {
		t.Errorf("value %s is not the server's own", a.Value)
	}
	if a := r.ok("many", "", "a\nb"); !strings.Contains(string(a.Value), `["a"`) {
		t.Errorf("value %s", a.Value)
	}
	r.ok("words", "", "just words")
	a := r.call("fails", "")
	r.failed(a, Error, "the disk is full")
	if !strings.Contains(string(a.Value), "the disk is full") {
		t.Errorf("value of a failure: %s", a.Value)
	}
	r.failed(r.call("no_such_tool", ""), Error, "no_such_tool")
	r.failed(r.call("check", `{}`), Error, "event")
	r.failed(r.call("check", `[]`), Unavailable, "not a JSON object")
}

func TestMeta(t *testing.T) {
	for name, set := range map[string]func(*Config){"python": script(t, "good.py"), "go": goCommand} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, set)
			a := r.Call(t.Context(), CallRequest{Tool: "meta", Meta: map[string]json.RawMessage{
				"belay/model": json.RawMessage(`{"token":"t","n":9007199254740993}`),
			}})
			o, err := a.Object()
			if err != nil {
				t.Fatal(err)
			}
			var got map[string]json.RawMessage
			if err := json.Unmarshal(o, &got); err != nil || !strings.Contains(string(got["belay/model"]), `"token"`) {
				t.Errorf("metadata came as %s", o)
			}
		})
	}
}

func TestCleanEnvironment(t *testing.T) {
	t.Setenv("AWS_SECRET_ACCESS_KEY", "not for servers")
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, script(t, "good.py"), func(c *Config) {
		c.Env, c.Dir = map[string]string{"ACME_TOKEN": "for this one"}, dir
	})
	o, err := r.ok("env", "", "").Object()
	if err != nil {
		t.Fatal(err)
	}
	var env map[string]string
	if err := json.Unmarshal(o, &env); err != nil {
		t.Fatal(err)
	}
	for name := range env {
		switch name {
		case "PATH", "HOME", "LANG", "TMPDIR", "ACME_TOKEN", "LC_CTYPE": // the last is Python's own doing
		default:
			t.Errorf("the server knows %s", name)
		}
	}
	if env["ACME_TOKEN"] != "for this one" || env["PATH"] != os.Getenv("PATH") {
		t.Errorf("the server lacks what it was given: %v", env)
	}
	r.ok("where", "", dir)
}

func TestTimeout(t *testing.T) {
	r := newRig(t, script(t, "good.py"))
	r.ok("words", "", "")
	start := time.Now()
	a := r.Call(t.Context(), CallRequest{Tool: "slow", Arguments: json.RawMessage(`{"seconds": 60}`), Timeout: 200 * time.Millisecond})
	r.failed(a, Timeout, "no answer within 200ms")
	if took := time.Since(start); took < 200*time.Millisecond || took > 5*time.Second || a.Took < 190*time.Millisecond {
		t.Errorf("gave up after %s, told %s", took, a.Took)
	}
	// The server was told.
	for until := time.Now().Add(patience); r.ok("cancellations", "", "").Text != "1"; {
		if time.Now().After(until) {
			t.Fatal("the function was not cancelled")
		}
	}
}

func TestCallerLeaves(t *testing.T) {
	r := newRig(t, script(t, "good.py"))
	ctx, cancel := context.WithCancel(t.Context())
	a := r.Call(ctx, CallRequest{Tool: "slow", Arguments: json.RawMessage(`{"seconds": 60}`), OnBegun: cancel})
	r.failed(a, Unknown, "given up")
	r.failed(r.Call(ctx, CallRequest{Tool: "words"}), Unavailable, "given up")
	r.ok("words", "", "just words")
}

func TestSideBySide(t *testing.T) {
	r := newRig(t, script(t, "good.py"))
	r.ok("words", "", "")
	start := time.Now()
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() { r.ok("slow", `{"seconds": 0.5}`, "slept") })
	}
	all.Wait()
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("20 calls of half a second took %s", took)
	}
}

func TestStartCountsApart(t *testing.T) {
	r := newRig(t, script(t, "good.py"))
	// Python needs longer to start than this call may take.
	begun := 0
	a := r.Call(t.Context(), CallRequest{Tool: "words", Timeout: 150 * time.Millisecond, OnBegun: func() { begun++ }})
	if a.Outcome != OK || begun != 1 {
		t.Fatalf("outcome %s (%s), begun %d times", a.Outcome, a.Failure, begun)
	}
	if a.Waited < 150*time.Millisecond || a.Took > 150*time.Millisecond {
		t.Errorf("waited %s, took %s", a.Waited, a.Took)
	}
	if e := r.event(Started); e.PID == 0 || e.Server != "under-test" || e.Took < 100*time.Millisecond {
		t.Errorf("event %+v", e)
	}
}

func TestPrintsWhileItRuns(t *testing.T) {
	r := newRig(t, script(t, "good.py"))
	r.ok("prints", "", "printed")
	r.log.wait(t, `"a line that is no message"`) // the SDK itself sends it to standard error
	r.log.wait(t, `from=stderr line="a line for the log"`)
	r.ok("words", "", "just words")
}

func TestGoServer(t *testing.T) {
	r := newRig(t, goCommand)
	o, err := r.ok("check", `{"event": {}}`, "").Object()
	if err != nil || string(o) != `{"decision":"allow"}` {
		t.Errorf("%s, %v", o, err)
	}
	r.failed(r.limited("slow", 50*time.Millisecond), Timeout, "50ms")
	r.ok("check", `{"event": {}}`, "")
}
