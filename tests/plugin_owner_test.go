//go:build linux

package tests

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/control"
	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/sqlstore"
	"github.com/belay-run/belay/internal/station"
)

// A job runs in the real program, whose disk is full for a while.
func TestOwnerOfADataFolder(t *testing.T) {
	t.Parallel()
	j := startJobs(t, "hooks:\n  - {on: pre_tool_call, call: probe.judge, timeout: 30s}\n  - {on: post_tool_call, call: probe.check}\n")
	j.answers(map[string]any{"judge": "wait"})
	j.close()
	script := filepath.Join(t.TempDir(), "script.yml")
	j.write(script, "rules:\n  - when: {user: go}\n    call: {tool: probe__look, args: '{\"what\": \"x\"}'}\ndefault: {say: Done.}\n")
	belay := program(t)
	flags := []string{"--data", j.data, "--tenant", "main"}
	cmd := exec.Command(belay, append([]string{"job", "run", "worker", "--input", "go", "--watch", "--model", "scripted/" + script}, flags...)...)
	var out, log lockedText
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // it may have ended
	until(t, "the hook is asked", func() bool { return len(j.asked("judge")) == 1 })
	t.Run("a second owner is told the first one's process", func(t *testing.T) {
		_, err := station.Open(context.Background(), station.Config{Data: j.data})
		if !errors.Is(err, sqlstore.ErrInUse) || !strings.Contains(err.Error(), fmt.Sprintf("process %d", cmd.Process.Pid)) {
			t.Errorf("opened with %v", err)
		}
	})
	t.Run("a second command is the first one's client", func(t *testing.T) {
		list, err := exec.Command(belay, append([]string{"job", "list"}, flags...)...).CombinedOutput()
		if err != nil || !strings.Contains(string(list), "running") || !strings.Contains(string(list), "worker") {
			t.Errorf("%v: %s", err, list)
		}
	})
	t.Run("while the disk is full the job stays, says so, and loses nothing", func(t *testing.T) {
		limitFiles(t, cmd.Process.Pid, 4096)
		if err := os.WriteFile(filepath.Join(j.probe, "go on"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		until(t, "it says that its journal fails", func() bool { return strings.Contains(log.String(), "the journal fails") })
		if len(j.asked("look")) > 0 {
			t.Error("an answer that is not on disk has taken effect")
		}
		start, err := exec.Command(belay, append([]string{"job", "run", "worker", "--input", "other", "--model", "scripted/" + script}, flags...)...).CombinedOutput()
		if err == nil || !strings.Contains(string(start), "belay: ") {
			t.Errorf("a job was started on a full disk: %s", start)
		}
		limitFiles(t, cmd.Process.Pid, ^uint64(0))
		if err := <-ended; err != nil || !strings.Contains(out.String(), "Done.") {
			t.Fatalf("%v\n%s%s", err, &out, &log)
		}
		if got := j.order(); got != "judge pre_tool_call, look, check post_tool_call" {
			t.Errorf("asked %s", got)
		}
	})
	j.open()
	all, err := j.st.Jobs(t.Context(), job.Filter{Tenant: "main"})
	if err != nil || len(all) != 1 {
		t.Fatalf("%+v, %v", all, err)
	}
	if r, err := j.st.Replay(t.Context(), all[0].ID); err != nil || len(r.Differences) > 0 {
		t.Errorf("replayed %+v, %v", r, err)
	}
}

// watchers is a plugin whose hook watches whatever it can.
const watchers = `name: watchers
tools:
  - {id: watch, mcp: [python, server.py]}
hooks:
  - {on: pre_tool_call, call: watch.check}
`

func TestWhomHooksWatch(t *testing.T) {
	t.Parallel()
	j := startJobs(t, "hooks:\n  - {on: pre_tool_call, call: probe.second}\n", look("x"), says("Done."))
	own := j.plugin
	elsewhere := j.me
	elsewhere.Tenant = "elsewhere"
	install := func(t *testing.T, c control.Caller, order control.PluginOrder) {
		t.Helper()
		if _, err := j.st.InstallPlugin(t.Context(), c, order); err != nil {
			t.Fatal(err)
		}
	}
	j.plugin = t.TempDir()
	j.server("server.py", probeServer)
	j.manifest(watchers)
	run := func(t *testing.T, c control.Caller) []string {
		t.Helper()
		before := len(j.asked(""))
		caller := j.me
		j.me = c
		defer func() { j.me = caller }()
		completed(t, j.run("go"), "Done.")
		var out []string
		for _, e := range j.asked("")[before:] {
			out = append(out, fmt.Sprint(e["name"]))
		}
		return out
	}
	t.Run("P03 a plugin's hooks watch the agents of other plugins of the tenant", func(t *testing.T) {
		install(t, j.me, control.PluginOrder{Path: j.plugin})
		expect(t, "asked", run(t, j.me), []string{"second", "check", "look"})
	})
	t.Run("P104 a plugin that is moved is asked before another", func(t *testing.T) {
		if err := j.st.MovePlugin(t.Context(), j.me, "watchers", "acme"); err != nil {
			t.Fatal(err)
		}
		expect(t, "asked", run(t, j.me), []string{"check", "second", "look"})
	})
	t.Run("P104 a plugin that is installed again stands where it stood", func(t *testing.T) {
		if err := j.st.RemovePlugin(t.Context(), j.me, "watchers", false); err != nil {
			t.Fatal(err)
		}
		expect(t, "asked without it", run(t, j.me), []string{"second", "look"})
		install(t, j.me, control.PluginOrder{Path: j.plugin})
		expect(t, "asked", run(t, j.me), []string{"check", "second", "look"})
	})
	t.Run("P03 and no agent of another tenant", func(t *testing.T) {
		install(t, elsewhere, control.PluginOrder{Path: own})
		if _, err := j.st.ApplyPolicy(t.Context(), elsewhere, control.PolicyOrder{Text: allowTools}); err != nil {
			t.Fatal(err)
		}
		expect(t, "asked", run(t, elsewhere), []string{"second", "look"})
	})
}
