package mcphost

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// after checks that the server serves, started again if it was lost.
func (r *rig) after() {
	r.Helper()
	r.ok("echo", `{"n": 1}`, `{"n": 1}`)
}

func TestLostInACall(t *testing.T) {
	for how, word := range map[string]string{
		"exits":          "it exited with status 3",
		"dies_by_signal": "ended by signal killed",
		"closes_stdout":  "it closed its output",
		"flood":          "a message of more than 16 MiB",
		"endless":        "a message of more than 16 MiB",
	} {
		t.Run(how, func(t *testing.T) {
			r := naughty(t, how)
			r.after()
			r.failed(r.call("misbehave", ""), Unknown, word)
			if e := r.event(Lost); !strings.Contains(e.Why, word) || e.Calls > 1 || e.Failures != 1 {
				t.Errorf("event %+v", e)
			}
			r.after()
		})
	}
}

func TestLivesOn(t *testing.T) {
	for how, want := range map[string]struct {
		outcome Outcome
		text    string
	}{
		"garbage":     {OK, "after the garbage"},
		"twice":       {OK, "first"},
		"asks":        {OK, `["error", "result"]`},
		"logs":        {OK, "logged"},
		"batch":       {OK, "in a batch"},
		"shouts":      {OK, "hoarse"},
		"wants_input": {Error, "the function asks for more input, which cannot be given here"},
		"no_result":   {Error, "the server's answer is no result of a call"},
		"mcp_error":   {Error, "no more disk"},
	} {
		t.Run(how, func(t *testing.T) {
			r := naughty(t, how)
			if a := r.call("misbehave", ""); a.Outcome != want.outcome || a.Text != want.text {
				t.Errorf("%s %q (%s)", a.Outcome, a.Text, a.Failure)
			}
			r.after()
			r.close()
			for len(r.events) > 0 {
				if e := <-r.events; e.Kind == Lost {
					t.Errorf("the server was lost: %s", e.Why)
				}
			}
		})
	}
}

func TestWhatIsLogged(t *testing.T) {
	r := naughty(t, "garbage")
	r.ok("misbehave", "", "")
	r.log.wait(t, `started`)           // a logger's line
	r.log.wait(t, "not one whole mes") // half a message, of which only the length
	if strings.Contains(r.log.String(), "jsonrpc") {
		t.Errorf("the log has half a message:\n%s", r.log)
	}
	r = naughty(t, "logs")
	r.ok("misbehave", "", "")
	r.log.wait(t, `from="log message" line="by the protocol"`)
	r = naughty(t, "batch")
	r.ok("misbehave", "", "")
	r.log.wait(t, `from="log message" line=batched`)
	r = naughty(t, "shouts")
	r.ok("misbehave", "", "")
	r.close()
	if lines := strings.Count(r.log.String(), "shout shout"); lines > 5000 || !strings.Contains(r.log.String(), "suppressed_lines") {
		t.Errorf("%d of 40000 lines are in the log", lines)
	}
}

func TestSecretsInTheLog(t *testing.T) {
	r := newRig(t, script(t, "naughty.py", "exits_at_start"), func(c *Config) { c.Env = map[string]string{"TOKEN": "No module named"} })
	a := r.call("echo", "")
	r.failed(a, Unavailable, "***")
	if strings.Contains(r.log.String()+a.Failure, "No module") {
		t.Errorf("a named value is in the log:\n%s", r.log)
	}
}

func TestTwiceAndLate(t *testing.T) {
	r := naughty(t, "twice")
	r.ok("misbehave", "", "first")
	r.after()
	r.event(LateAnswer)

	r = naughty(t, "late")
	r.after()
	r.failed(r.limited("misbehave", 50*time.Millisecond), Timeout, "50ms")
	r.event(LateAnswer)
	r.after()

	r = naughty(t, "another_id")
	r.failed(r.limited("misbehave", 200*time.Millisecond), Timeout, "200ms")
	r.event(LateAnswer)
	r.after()
}

func TestLargeAnswer(t *testing.T) {
	r := naughty(t, "large")
	if a := r.call("misbehave", ""); a.Outcome != OK || len(a.Text) != 15<<20 {
		t.Errorf("%s, %d bytes (%s)", a.Outcome, len(a.Text), a.Failure)
	}
	r = naughty(t, "large", func(c *Config) { c.MaxMessage = 1 << 20 })
	a := r.call("echo", `{"x": "`+strings.Repeat("x", 1<<20)+`"}`)
	r.failed(a, Unavailable, "more than 1 MiB")
	r.after()
	r.failed(r.call("misbehave", ""), Unknown, "more than 1 MiB")
	r.after()
}

func TestAnswersAndExits(t *testing.T) {
	r := naughty(t, "answers_and_exits")
	for range 3 {
		r.ok("misbehave", "", "goodbye")
		r.event(Lost)
	}
}

func TestDeathWhileIdle(t *testing.T) {
	r := naughty(t, "")
	r.after()
	_ = syscall.Kill(r.event(Started).PID, syscall.SIGKILL)
	if e := r.event(Lost); !strings.Contains(e.Why, "signal killed") || e.Calls != 0 {
		t.Errorf("event %+v", e)
	}
	r.after()
}

func TestNeverBegunIsMadeAgain(t *testing.T) {
	r := naughty(t, "closes_stdin")
	r.ok("misbehave", "", "deaf now")
	begun := 0
	a := r.Call(t.Context(), CallRequest{Tool: "echo", OnBegun: func() { begun++ }})
	if a.Outcome != OK {
		t.Errorf("%s (%s)", a.Outcome, a.Failure)
	}
	if e := r.event(Lost); e.Why != "it no longer reads its input" {
		t.Errorf("event %+v", e)
	}
	if begun != 1 {
		t.Errorf("begun %d times", begun)
	}
	r.after()
}

func TestNotReady(t *testing.T) {
	quick := func(c *Config) { c.StartTimeout = 500 * time.Millisecond }
	for how, word := range map[string]string{"silent_at_start": "not ready within 500ms", "deaf_at_start": "not ready within 500ms"} {
		t.Run(how, func(t *testing.T) {
			r := newRig(t, script(t, "naughty.py", how, filepath.Join(t.TempDir(), "x")), quick)
			a := r.call("echo", "")
			r.failed(a, Unavailable, word)
			if a.Waited < 400*time.Millisecond || a.Took != 0 {
				t.Errorf("waited %s, took %s", a.Waited, a.Took)
			}
			r.failed(r.call("echo", ""), Unavailable, word)
			if _, err := r.Tools(t.Context()); err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("tools: %v", err)
			}
		})
	}
}

func TestStartsAtTheSecondTry(t *testing.T) {
	r := newRig(t, script(t, "naughty.py", "starts_late", filepath.Join(t.TempDir(), "x")), func(c *Config) { c.StartTimeout = time.Second })
	r.failed(r.call("echo", ""), Unavailable, "not ready")
	if e := r.event(StartFailed); e.Failures != 1 || e.PID != 0 {
		t.Errorf("event %+v", e)
	}
	r.after()
}

func TestExitsAtStart(t *testing.T) {
	var mu sync.Mutex
	var asked []int
	r := naughty(t, "exits_at_start", func(c *Config) {
		c.Backoff = func(n int) time.Duration {
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, n)
			return time.Millisecond
		}
	})
	for range 3 {
		r.failed(r.call("echo", ""), Unavailable, "it exited with status 1; the last line it printed: ModuleNotFoundError: No module named 'acme'")
	}
	mu.Lock()
	defer mu.Unlock()
	if len(asked) != 2 || asked[0] != 1 || asked[1] != 2 {
		t.Errorf("the back-off was asked for %v", asked)
	}
}

func TestNoSuchProgram(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Command = []string{"no-such-program-here"} })
	r.failed(r.call("echo", ""), Unavailable, "install it or correct the command")
	r = newRig(t, func(c *Config) { c.Command = []string{"cat"}; c.Dir = "/no/such/folder" })
	r.failed(r.call("echo", ""), Unavailable, "working folder /no/such/folder is not there")
	r = newRig(t, func(c *Config) { c.Command = []string{"/etc/passwd"} })
	r.failed(r.call("echo", ""), Unavailable, "permission denied")
}

func TestBlocked(t *testing.T) {
	r := naughty(t, "blocks", func(c *Config) { c.PingTimeout = 200 * time.Millisecond })
	r.after()
	pid := r.event(Started).PID
	r.failed(r.limited("misbehave", 50*time.Millisecond), Timeout, "50ms")
	if e := r.event(Lost); e.PID != pid || !strings.Contains(e.Why, "no sign of life for 200ms") {
		t.Errorf("event %+v", e)
	}
	r.after()
	gone(t, pid)
}

// TestBlockedByAnother checks that a call which still has time is not ended because
// another had less.
func TestBlockedByAnother(t *testing.T) {
	r := naughty(t, "blocks", func(c *Config) { c.PingTimeout = 50 * time.Millisecond })
	r.after()
	long := make(chan Answer, 1)
	begun := make(chan struct{})
	go func() {
		long <- r.Call(context.Background(), CallRequest{Tool: "misbehave", Timeout: time.Second, OnBegun: func() { close(begun) }})
	}()
	<-begun
	r.failed(r.limited("echo", 50*time.Millisecond), Timeout, "50ms")
	r.failed(<-long, Timeout, "no answer within 1s")
	r.event(Lost)
	r.after()
}

// TestDoesNotRead fills the pipe to a server that does not read: calls end in their
// time, and those that were not written are known not to have run.
func TestDoesNotRead(t *testing.T) {
	r := naughty(t, "blocks", func(c *Config) { c.PingTimeout = 2 * time.Second })
	r.after()
	r.failed(r.limited("misbehave", 20*time.Millisecond), Timeout, "20ms")
	big := json.RawMessage(`{"x": "` + strings.Repeat("x", 1<<20) + `"}`)
	a := r.Call(t.Context(), CallRequest{Tool: "echo", Arguments: big, Timeout: 500 * time.Millisecond})
	r.failed(a, Timeout, "500ms")
	r.failed(r.limited("echo", 50*time.Millisecond), Unavailable, "did not take the request")
	r.event(Lost)
	r.after()
}

func TestAsksWithoutEnd(t *testing.T) {
	r := naughty(t, "asks_without_end")
	r.failed(r.limited("misbehave", 5*time.Minute), Unknown, "did not read the answers")
	r.after()
}

func TestToolVanishes(t *testing.T) {
	r := naughty(t, "vanishes")
	if tools, err := r.Tools(t.Context()); err != nil || len(tools) != 2 || string(tools[0].InputSchema) != `{"type": "object", "z": 9007199254740993, "a": 1}` {
		t.Errorf("%v, %v", tools, err)
	}
	r.ok("misbehave", "", "gone")
	r.event(ToolsChanged)
	a := r.call("misbehave", "")
	r.failed(a, Error, "MCP error -32602: Unknown tool: misbehave")
	if string(a.Value) != `"Unknown tool: misbehave"` {
		t.Errorf("value %s", a.Value)
	}
	if tools, err := r.Tools(t.Context()); err != nil || len(tools) != 1 {
		t.Errorf("%v, %v", tools, err)
	}
}

func TestListInCircles(t *testing.T) {
	r := naughty(t, "lists_in_circles")
	if _, err := r.Tools(t.Context()); err == nil || !strings.Contains(err.Error(), "goes in circles") {
		t.Errorf("%v", err)
	}
}

func TestOnlyTheNewProtocol(t *testing.T) {
	r := naughty(t, "only_new")
	r.after()
	if tools, err := r.Tools(t.Context()); err != nil || len(tools) != 2 {
		t.Errorf("%v, %v", tools, err)
	}
	r.ok("misbehave", "", "well behaved")
}

// gone checks that a process ends. One that only waits to be buried has ended.
func gone(t *testing.T, pid int) {
	t.Helper()
	for until := time.Now().Add(patience); syscall.Kill(pid, 0) == nil; runtime.Gosched() {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if strings.Contains(string(stat), ") Z ") {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("process %d is still there", pid)
		}
	}
}

func TestGrandchild(t *testing.T) {
	find := func(r *rig) int {
		r.log.wait(t, "grandchild ")
		m := regexp.MustCompile(`grandchild (\d+)`).FindStringSubmatch(r.log.String())
		pid, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		return pid
	}
	t.Run("on close", func(t *testing.T) {
		r := naughty(t, "has_grandchild")
		r.after()
		pid := find(r)
		r.close()
		gone(t, pid)
	})
	t.Run("on death", func(t *testing.T) {
		r := naughty(t, "has_grandchild")
		r.after()
		pid := find(r)
		_ = syscall.Kill(r.event(Started).PID, syscall.SIGKILL)
		if e := r.event(Lost); !strings.Contains(e.Why, "signal killed") {
			t.Errorf("event %+v", e)
		}
		gone(t, pid)
		r.after()
	})
}

func TestCloseIsFirm(t *testing.T) {
	r := naughty(t, "ignores_sigterm")
	r.after()
	pid := r.event(Started).PID
	start := time.Now()
	r.close()
	gone(t, pid)
	if took := time.Since(start); took < 500*time.Millisecond || took > 10*time.Second {
		t.Errorf("closed after %s", took)
	}
	r.failed(r.call("echo", ""), Unavailable, "closed")
}

func TestCloseInAHurry(t *testing.T) {
	r := naughty(t, "ignores_sigterm", func(c *Config) { c.Grace = time.Hour })
	r.after()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := r.Close(ctx); err != nil {
		t.Error(err)
	}
	gone(t, r.event(Started).PID)
}

func TestCloseEndsCalls(t *testing.T) {
	r := naughty(t, "blocks")
	r.after()
	got := make(chan Answer, 1)
	begun := make(chan struct{})
	go func() {
		got <- r.Call(context.Background(), CallRequest{Tool: "misbehave", OnBegun: func() { close(begun) }})
	}()
	<-begun
	r.close()
	r.failed(<-got, Unknown, "it was stopped")
}

func TestCloseWhileStarting(t *testing.T) {
	r := newRig(t, script(t, "naughty.py", "silent_at_start", filepath.Join(t.TempDir(), "x")))
	got := make(chan Answer, 1)
	go func() { got <- r.call("echo", "") }()
	for until := time.Now().Add(patience); ; runtime.Gosched() {
		r.mu.Lock()
		starting := r.starting != nil
		r.mu.Unlock()
		if starting {
			break
		}
		if time.Now().After(until) {
			t.Fatal("it never started")
		}
	}
	r.close()
	r.failed(<-got, Unavailable, "closed")
}
