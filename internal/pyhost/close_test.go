package pyhost

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belay-run/belay/hook"
)

// lives says whether there is such a process that still runs.
func lives(pid int) bool {
	if err := syscall.Kill(pid, 0); errors.Is(err, syscall.ESRCH) {
		return false
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return runtime.GOOS != "linux"
	}
	rest := status[strings.LastIndexByte(string(status), ')')+1:]
	return !strings.HasPrefix(string(rest), " Z")
}

func awaitDeath(t *testing.T, pids ...int) {
	t.Helper()
	late := time.Now().Add(patience)
	for slices.ContainsFunc(pids, lives) {
		if time.Now().After(late) {
			t.Fatalf("a process of %v lives on", pids)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (r *rig) pids() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	var pids []int
	if r.spare != nil {
		pids = append(pids, r.spare.proc.pid())
	}
	for _, p := range r.places {
		p.mu.Lock()
		if p.worker != nil {
			pids = append(pids, p.worker.proc.pid())
		}
		p.mu.Unlock()
	}
	return pids
}

func TestClose(t *testing.T) {
	t.Run("waits for calls under way and lets the interpreter end in order", func(t *testing.T) {
		mark := filepath.Join(t.TempDir(), "mark")
		r := newRig(t, shout+`
import asyncio, atexit

@atexit.register
def bye():
    open("`+mark+`", "a").write("bye\n")

@modify_outgoing_text(timeout_ms=5000)
async def slow(message: OutgoingTextPayload) -> OutgoingTextPayload:
    await asyncio.sleep(0.3)
    return message
`)
		r.spareReady()
		pids := r.pids()
		slow := r.start(t.Context(), "slow", "k")
		if err := r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if a := slow.wait(); a.Failure != nil {
			t.Errorf("failure is %+v", a.Failure)
		}
		if len(pids) != 2 || slices.ContainsFunc(pids, lives) {
			t.Errorf("of %v some live on", pids)
		}
		if lines(t, mark) != 2 {
			t.Errorf("%d interpreters ended in order", lines(t, mark))
		}
		r.failed(r.ask("shout"), hook.Unavailable)
		if err := r.Close(t.Context()); err != nil {
			t.Errorf("closing twice: %v", err)
		}
	})
	t.Run("does not wait longer than its context", func(t *testing.T) {
		r := toolRig(t)
		r.spareReady()
		pids := r.pids()
		answer := make(chan ToolAnswer, 1)
		go func() { answer <- r.call("wait", `{}`, time.Minute) }()
		r.ask("shout")
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		start := time.Now()
		if err := r.Close(ctx); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("took %v", took)
		}
		if a := <-answer; a.Outcome != Unknown && a.Outcome != NotRun {
			t.Errorf("answer is %+v", a)
		}
		if slices.ContainsFunc(pids, lives) {
			t.Errorf("of %v some live on", pids)
		}
	})
	t.Run("while a worker is stuck", func(t *testing.T) {
		r := newRig(t, notebook)
		pids := r.pids()
		r.start(t.Context(), "sleeper", "k")
		shouted := r.start(t.Context(), "shout", "k", "text", "hallo")
		if err := r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		shouted.wait() // answered one way or the other
		if slices.ContainsFunc(pids, lives) {
			t.Errorf("of %v some live on", pids)
		}
	})
	t.Run("at once after loading", func(t *testing.T) {
		r := newRig(t, shout, func(c *Config) { c.Workers = 3 })
		if err := r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("an interpreter that does not end", func(t *testing.T) {
		r := newRig(t, shout+"\nimport atexit, time\natexit.register(time.sleep, 60)\n")
		start := time.Now()
		if err := r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > 2*quitTime {
			t.Errorf("took %v", took)
		}
	})
}

func TestWorkersThatDieAgainAndAgain(t *testing.T) {
	r := newRig(t, shout+`
import os, threading, pathlib

if pathlib.Path("poison").exists():
    threading.Timer(0.01, os._exit, (9,)).start()

@modify_outgoing_text()
async def leave(message: OutgoingTextPayload) -> OutgoingTextPayload:
    os._exit(0)
`)
	if err := os.WriteFile(filepath.Join(r.dir, "poison"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	r.ask("leave")
	r.events.wait(t, func(all []Event) bool {
		n := 0
		for _, e := range all {
			if e.Kind == StateLost || e.Kind == WorkerFailed {
				n++
			}
		}
		return n >= freeDeaths+2
	}, "many deaths")
	r.mu.Lock()
	quick := r.quick
	r.mu.Unlock()
	if quick <= freeDeaths {
		t.Errorf("only %d young deaths were counted", quick)
	}
	if err := os.Remove(filepath.Join(r.dir, "poison")); err != nil {
		t.Fatal(err)
	}
	if got := r.text(r.ask("shout", "text", "hallo")); got != `"hallo!"` {
		t.Errorf("text is %s", got)
	}
}

func TestBackOff(t *testing.T) {
	h := &Host{}
	for _, c := range []struct {
		quick int
		want  time.Duration
	}{{0, 0}, {freeDeaths, 0}, {freeDeaths + 1, firstWait}, {freeDeaths + 2, 2 * firstWait}, {freeDeaths + 5, 16 * firstWait}, {1000, longestGap}} {
		h.quick = c.quick
		if wait, need := h.need(); !need || wait != c.want {
			t.Errorf("after %d young deaths: wait %v, need %v", c.quick, wait, need)
		}
	}
}

// A host that is killed leaves no worker behind, whatever the worker does. The
// host is this test's program, started once more.
func TestHostKilled(t *testing.T) {
	if os.Getenv("PYHOST_TEST_CHILD") != "" {
		childHost(t)
		return
	}
	for _, c := range []struct{ name, hook string }{
		{"idle", ""},
		{"in C code that keeps the interpreter", "hold"},
		{"with a child of a hook", "child"},
	} {
		t.Run(c.name, func(t *testing.T) {
			exe, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(exe, "-test.run=^TestHostKilled$", "-test.v")
			cmd.Env = append(os.Environ(), "PYHOST_TEST_CHILD="+c.hook+".")
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var pids []int
			scan := bufio.NewScanner(out)
			for scan.Scan() {
				if words, ok := strings.CutPrefix(scan.Text(), "pids"); ok {
					for _, w := range strings.Fields(words) {
						pid, err := strconv.Atoi(w)
						if err != nil {
							t.Fatal(err)
						}
						pids = append(pids, pid)
					}
					break
				}
			}
			if len(pids) < 2 || !lives(pids[0]) {
				t.Fatalf("pids are %v", pids)
			}
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			awaitDeath(t, pids...)
		})
	}
}

func childHost(t *testing.T) {
	r := newRig(t, shout+`
import ctypes, os, subprocess, threading

@modify_outgoing_text(timeout_ms=60000)
async def hold(message: OutgoingTextPayload) -> OutgoingTextPayload:
    open("begun", "w").write("\n")
    ctypes.PyDLL(None).sleep(60)
    return message

@modify_tool_call()
async def child(call: ToolCallPayload) -> ToolCallPayload:
    return call.model_copy(update={"tool_name": str(subprocess.Popen(["sleep", "60"]).pid)})
`)
	r.spareReady()
	pids := r.pids()
	switch os.Getenv("PYHOST_TEST_CHILD") {
	case "hold.":
		r.start(t.Context(), "hold", "k")
		for lines(t, filepath.Join(r.dir, "begun")) == 0 {
			time.Sleep(time.Millisecond)
		}
	case "child.":
		pid, err := strconv.Atoi(strings.Trim(r.text(r.ask("child")), `"`))
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	fmt.Println("pids", strings.Trim(fmt.Sprint(pids), "[]"))
	select {}
}

// When no worker comes up, calls wait for a while and then fail.
func TestNoWorkerInTime(t *testing.T) {
	r := newRig(t, shout+`
import pathlib, time

if pathlib.Path("poison").exists():
    time.sleep(60)
`+guard("leave", "", "import os\nos._exit(0)"), func(c *Config) { c.workerWait = 500 * time.Millisecond })
	r.spareReady()
	if err := os.WriteFile(filepath.Join(r.dir, "poison"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	r.ask("leave") // the spare takes over
	r.ask("leave") // nobody does
	a := r.ask("shout")
	f := r.failed(a, hook.Unavailable)
	if !strings.Contains(f.Message, "no Python worker could be started in time") || a.Waited < 400*time.Millisecond {
		t.Errorf("failure is %+v after %v", f, a.Waited)
	}
}

// What follows an observer's answer may take its time.
func TestSlowListener(t *testing.T) {
	r := newRig(t, notebook)
	release := make(chan struct{})
	k := r.hook("note")
	r.Start(t.Context(), hook.Question{Hook: k, Payload: hook.NewPayload(k.Point), Key: "k"}, func(hook.Answer) { <-release })
	for range 20 {
		if got := r.text(r.ask("shout", "text", "hallo")); got != `"hallo!"` {
			t.Errorf("text is %s", got)
		}
	}
	close(release)
}
