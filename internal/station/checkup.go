package station

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/belay-run/belay/internal/agentjob"
	"github.com/belay-run/belay/internal/control"
	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/plugin"
	"github.com/belay-run/belay/internal/policy"
)

// checkup looks at one thing after another and writes down what it finds.
type checkup struct {
	*Station
	tenant string
	found  []control.Check
	// functions are what the servers of the plugins list, by the tool's id; those that
	// could not be asked are not there.
	functions map[string][]plugin.Function
}

func (c *checkup) say(level control.Level, about, hint, format string, args ...any) {
	c.found = append(c.found, control.Check{Level: level, About: about, Text: fmt.Sprintf(format, args...), Hint: hint})
}

// Checkup implements [control.Upkeep].
func (s *Station) Checkup(ctx context.Context, tenant string) ([]control.Check, error) {
	c := &checkup{Station: s, tenant: tenant, functions: map[string][]plugin.Function{}}
	all, err := s.installed(ctx, tenant)
	if err != nil { // a snapshot that was changed, say; the rest can be looked at
		c.say(control.Failing, "plugins", "no job starts until that is mended", "%v", err)
	}
	c.python(ctx, all)
	c.servers(ctx, all)
	for _, in := range all {
		c.plugin(in)
	}
	c.matches(all)
	c.agents(ctx, all)
	c.reachable(ctx, all)
	c.settled(all)
	if err := c.secrets(ctx, all); err != nil {
		return nil, err
	}
	for _, look := range []func(context.Context, []Installed) error{c.outside, c.policy, c.people} {
		if err := look(ctx, all); err != nil {
			return nil, err
		}
	}
	return c.found, nil
}

const lookAtPython = `import sys, importlib.util as u
print("%d.%d" % sys.version_info[:2], *(name for name in ("mcp", "pydantic") if not u.find_spec(name)))`

// python looks at the interpreter, if plugins need one.
func (c *checkup) python(ctx context.Context, all []Installed) {
	need := map[string]string{} // module → who needs it
	for _, in := range all {
		for _, t := range in.Manifest.Tools {
			if !t.Remote() && (t.Command[0] == "python" || t.Command[0] == "python3") {
				need["mcp"] = "tool " + t.ID
			}
		}
		for _, a := range in.Manifest.Agents {
			if a.Folder != "" {
				need["pydantic"] = "agent " + a.ID
			}
		}
	}
	if len(need) == 0 {
		return
	}
	const hint = "set BELAY_PYTHON to a Python 3.11 or newer that has what the plugins need"
	name := interpreter("python3")
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, "-c", lookAtPython).Output()
	said := strings.Fields(string(out))
	if err != nil || len(said) == 0 {
		c.say(control.Failing, "python", hint, "%s cannot be run: %v", name, err)
		return
	}
	var major, minor int
	if _, err := fmt.Sscanf(said[0], "%d.%d", &major, &minor); err != nil || major < 3 || major == 3 && minor < 11 {
		c.say(control.Failing, "python", hint, "%s is Python %s, and 3.11 is the oldest that will do", name, said[0])
		return
	}
	c.say(control.Fine, "python", "", "%s is Python %s", name, said[0])
	for _, missing := range said[1:] {
		if who := need[missing]; who != "" {
			c.say(control.Warning, "python", fmt.Sprintf("run %s -m pip install %s, unless it does without", name, missing), "%s has no %s, which %s may need", name, missing, who)
		}
	}
}

// startLimit is how long a server may take to start and to say what it offers.
const startLimit = 40 * time.Second

// servers asks all servers what they offer.
func (c *checkup) servers(ctx context.Context, all []Installed) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	var asked sync.WaitGroup
	var mu sync.Mutex
	failed := map[string]error{}
	for _, in := range all {
		for _, t := range in.Manifest.Tools {
			asked.Go(func() {
				functions, err := c.offers(ctx, in, t.ID)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					failed[t.ID] = err
					return
				}
				c.functions[t.ID] = functions
			})
		}
	}
	asked.Wait()
	for _, in := range all {
		for _, t := range in.Manifest.Tools {
			if err := failed[t.ID]; err != nil {
				c.say(control.Failing, "plugin "+in.Name, cmp.Or(mend(in.Manifest.Tool(t.ID), err), "its hooks fail, and its functions cannot be called; belay plugin lint says more"), "the server of tool %s does not serve: %v", t.ID, err)
			}
		}
	}
}

func (c *checkup) offers(ctx context.Context, in Installed, tool string) ([]plugin.Function, error) {
	server, err := c.Station.servers.get(ctx, in.Tenant, agentjob.Tool{ID: tool, Plugin: in.Name, Digest: in.Digest})
	if err != nil {
		return nil, err
	}
	listed, err := server.Tools(ctx)
	out := make([]plugin.Function, 0, len(listed))
	for _, f := range listed {
		out = append(out, plugin.Function{Name: f.Name, Annotations: policy.Annotations(f.Annotations), InputSchema: f.InputSchema})
	}
	return out, err
}

// plugin says what its lint finds, such as hooks that declare nothing of themselves.
func (c *checkup) plugin(in Installed) {
	about := "plugin " + in.Name
	var shadows, served int
	for _, h := range in.Manifest.Hooks {
		if h.Shadow {
			shadows++
		}
	}
	for _, t := range in.Manifest.Tools {
		if _, ok := c.functions[t.ID]; ok {
			served++
		}
	}
	if served == len(in.Manifest.Tools) {
		c.say(control.Fine, about, "", "%s%d tools serve; installed by %s", versionOf(in), served, in.InstalledBy)
	}
	for _, f := range plugin.Lint(in.Manifest, c.functions) {
		level := control.Warning
		if f.Severity == finding.Error {
			level = control.Failing
		}
		c.say(level, about, f.Hint, "%s:%d: %s", f.File, f.Line, f.Message)
	}
	if shadows > 0 {
		c.say(control.Note, about, "belay plugin shadow-report says what they would have changed", "%d of its hooks only look on: their decisions do not bind", shadows)
	}
	if wantsModel(in.Manifest) && !in.ModelGranted {
		c.say(control.Warning, about, "belay plugin update --accept-model lets it", "it wants to call the model and may not")
	}
}

func versionOf(in Installed) string {
	if in.Version == "" {
		return ""
	}
	return "version " + in.Version + "; "
}

// matches looks for names in the matches of hooks that nothing here has: they are
// exact, and a guard with a misspelt one is never asked.
func (c *checkup) matches(all []Installed) {
	agents := map[string]bool{}
	tools := map[string]bool{}
	for _, in := range all {
		for _, a := range in.Manifest.Agents {
			agents[a.ID], tools[a.ID] = true, true // an agent folder's own tools go by the agent's name
		}
		for _, t := range in.Manifest.Tools {
			tools[t.ID] = true
		}
	}
	for _, in := range all {
		for i := range in.Manifest.Hooks {
			h := &in.Manifest.Hooks[i]
			for _, full := range h.Match.Tools {
				id, name, _ := strings.Cut(full, ".")
				listed, asked := c.functions[id]
				if !tools[id] || asked && !slices.ContainsFunc(listed, func(f plugin.Function) bool { return f.Name == name }) {
					c.nobody(in, h, full)
				}
			}
			for _, name := range h.Match.Agents {
				if !agents[name] {
					c.nobody(in, h, "agent "+name)
				}
			}
		}
	}
}

func (c *checkup) nobody(in Installed, h *plugin.Hook, name string) {
	c.say(control.Warning, "plugin "+in.Name, "names are exact; correct it unless its plugin is yet to come",
		"%s:%d: hook %s watches %s, which no installed plugin has", h.File, h.Line, h.Call(), name)
}

// agents looks whether the agents' models can be asked.
func (c *checkup) agents(ctx context.Context, all []Installed) {
	if c.cfg.Client != nil {
		return
	}
	for _, in := range all {
		for _, a := range in.Manifest.Agents {
			if _, err := c.models.named(ctx, c.tenant, a.Model); err != nil {
				c.say(control.Failing, "agent "+a.ID, "its jobs do not start", "%v", err)
			}
		}
	}
}

// outside names the agents that plugins' hooks do not watch, because they answer
// outside a job.
func (c *checkup) outside(ctx context.Context, all []Installed) error {
	level := control.Note
	if slices.ContainsFunc(all, func(in Installed) bool { return len(in.Manifest.Hooks) > 0 }) {
		level = control.Warning
	}
	const hint = "run it as a job where they must watch it, or check in the agent's own hooks"
	talked, err := c.store.Agents(ctx, c.tenant)
	if err != nil {
		return err
	}
	for _, name := range talked {
		c.say(level, "agent "+name, hint, "it has answered in conversations, outside a job: the hooks of plugins do not watch it there")
	}
	for _, in := range all {
		for _, a := range in.Manifest.Agents {
			if a.Folder != "" && !slices.Contains(talked, a.ID) {
				c.say(control.Note, "agent "+a.ID, hint, "it is an agent folder: the hooks of plugins watch its jobs, and not what belay chat or belay serve make of the folder")
			}
		}
	}
	return nil
}

func (c *checkup) policy(ctx context.Context, _ []Installed) error {
	p, err := c.Policy(ctx, c.tenant)
	if err != nil {
		return err
	}
	if p.Default {
		c.say(control.Note, "policy", "belay policy apply FILE sets one", "none was applied: functions that only read are allowed, and a person is asked about all others")
		return nil
	}
	c.say(control.Fine, "policy", "", "version %s, applied by %s", p.Version, p.By)
	return nil
}

// people looks whether those who decide come to know what waits.
func (c *checkup) people(ctx context.Context, _ []Installed) error {
	asked, err := c.asked(ctx, c.tenant)
	if err != nil {
		return err
	}
	if len(asked) > 0 {
		c.say(control.Note, "approvals", "belay approval list", "waiting for a person: %d, the first since %s", len(asked), asked[0].Asked.Format(time.RFC3339))
	}
	a := c.settings.Approvals
	if a.WebhookURL == "" && len(a.Command) == 0 {
		c.say(control.Note, "approvals", "name a webhook or a command under approvals in "+c.cfg.Data+"/belay.yaml", "nobody is told when something waits for a person")
	}
	if a.WebhookURL != "" && os.Getenv(a.SecretVariable) == "" {
		c.say(control.Failing, "approvals", "set it where jobs run: approvers are not told until then", "the webhook's secret is missing: the variable %s is not set", a.SecretVariable)
	}
	sent, err := c.store.Messages(ctx, c.tenant, mostMessages)
	if err != nil {
		return err
	}
	for _, target := range []string{webhookTarget, commandTarget} {
		c.told(target, sent)
	}
	return nil
}
