package tests

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/approval"
	"github.com/belay-run/belay/internal/control"
)

// other writes a second plugin, whose one hook is its own.
func other(t *testing.T, j *jobs, name string) string {
	t.Helper()
	dir := t.TempDir()
	server, err := os.ReadFile(filepath.Join(j.plugin, "server.py"))
	if err != nil {
		t.Fatal(err)
	}
	j.write(filepath.Join(dir, "server.py"), strings.ReplaceAll(string(server), `"name": name`, `"name": "`+name+`." + name`))
	j.write(filepath.Join(dir, "belay-plugin.yaml"), "name: "+name+"\ntools:\n  - id: "+name+"\n    mcp: [python, server.py]\nhooks:\n  - {on: pre_tool_call, call: "+name+".check}\n")
	return dir
}

func TestPluginsStandInTheOrderOfTheirInstall(t *testing.T) {
	t.Parallel()
	j := startJobs(t, "hooks:\n  - {on: pre_tool_call, call: probe.check}\n", does("probe.look", `{}`), says("Done."))
	second, third := other(t, j, "second"), other(t, j, "third")
	for _, dir := range []string{second, third} {
		if _, err := j.st.InstallPlugin(t.Context(), j.me, control.PluginOrder{Path: dir}); err != nil {
			t.Fatal(err)
		}
	}
	names := func() []string {
		all, err := j.st.Plugins(t.Context(), "main")
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, p := range all {
			out = append(out, p.Name)
		}
		return out
	}
	asked := func() []string {
		var out []string
		for _, e := range j.asked("") {
			if e["event"] != nil {
				out = append(out, e["name"].(string))
			}
		}
		return out
	}
	t.Run("P104 in the order of the first install, hooks too", func(t *testing.T) {
		completed(t, j.run("go"), "Done.")
		if got, want := asked(), []string{"check", "second.check", "third.check"}; !slices.Equal(got, want) || !slices.Equal(names(), []string{"acme", "second", "third"}) {
			t.Errorf("asked %v, listed %v", got, names())
		}
	})
	t.Run("P104 an update keeps the place", func(t *testing.T) {
		j.write(filepath.Join(second, "note.txt"), "another version")
		if _, err := j.st.InstallPlugin(t.Context(), j.me, control.PluginOrder{Path: second, Name: "second"}); err != nil {
			t.Fatal(err)
		}
		if got := names(); !slices.Equal(got, []string{"acme", "second", "third"}) {
			t.Errorf("listed %v", got)
		}
	})
}

func TestWhatAppliedWhenAJobStartedAppliesToItsEnd(t *testing.T) {
	t.Parallel()
	const hooks = "hooks:\n  - {on: job_start, call: probe.second}\n  - {on: pre_tool_call, call: probe.check}\n"
	hold := map[string]any{"second": map[string]any{"decision": "escalate", "reason": "wait"}}
	t.Run("P81 a plugin that is updated changes no running job", func(t *testing.T) {
		t.Parallel()
		j := startJobs(t, hooks, does("probe.look", `{"what": "x"}`), says("Done."))
		j.answers(hold)
		id := j.start("go")
		a := j.waits(1)[0]
		j.write(filepath.Join(j.plugin, "belay-plugin.yaml"), strings.Replace(manifestHead, "    env: [PROBE]\n", "", 1)) // without hooks
		if _, err := j.st.InstallPlugin(t.Context(), j.me, control.PluginOrder{Path: j.plugin, Name: "acme"}); err != nil {
			t.Fatal(err)
		}
		j.restart()
		j.decide(a, approval.Answer{Yes: true})
		completed(t, j.end(id), "Done.")
		if len(j.asked("check")) != 1 {
			t.Errorf("asked %s", j.order())
		}
		completed(t, j.run("go"), "Done.") // a new one has the new hooks: none
		if len(j.asked("check")) != 1 {
			t.Errorf("a job that started later asked %s", j.order())
		}
	})
	t.Run("P85 a hook of a plugin that was removed is never skipped", func(t *testing.T) {
		t.Parallel()
		j := startJobs(t, hooks, does("probe.look", `{"what": "x"}`), says("Done."))
		j.answers(hold)
		id := j.start("go")
		a := j.waits(1)[0]
		if err := j.st.RemovePlugin(t.Context(), j.me, "acme", false); err == nil {
			t.Error("a plugin was removed while a job that pinned it runs")
		}
		if err := j.st.RemovePlugin(t.Context(), j.me, "acme", true); err != nil {
			t.Fatal(err)
		}
		j.decide(a, approval.Answer{Yes: true})
		completed(t, j.end(id), "Done.")
		if len(j.asked("check")) > 0 || len(j.asked("look")) > 0 {
			t.Errorf("asked %s", j.order())
		}
		if got := j.reads(); len(got) != 1 || got[0] != "The call to probe.look was not made: hook probe.check denied it: unavailable: its plugin acme was removed." {
			t.Errorf("the model read %q", got)
		}
	})
	t.Run("P85 a hook whose snapshot is gone is never skipped", func(t *testing.T) {
		t.Parallel()
		j := startJobs(t, hooks, does("probe.look", `{"what": "x"}`), says("Done."))
		j.answers(hold)
		id := j.start("go")
		a := j.waits(1)[0]
		j.close()
		snapshots, err := filepath.Glob(filepath.Join(j.data, "plugins", "*"))
		if err != nil || len(snapshots) == 0 {
			t.Fatalf("%v, %v", snapshots, err)
		}
		for _, dir := range snapshots { // its server cannot start any more
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
		}
		j.open()
		j.decide(a, approval.Answer{Yes: true})
		completed(t, j.end(id), "Done.")
		if len(j.asked("check")) > 0 || len(j.asked("look")) > 0 {
			t.Errorf("asked %s", j.order())
		}
		if got := j.reads(); len(got) != 1 || !strings.HasPrefix(got[0], "The call to probe.look was not made: hook probe.check denied it: ") {
			t.Errorf("the model read %q", got)
		}
	})
}
