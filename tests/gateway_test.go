package tests

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/agentjob"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/control"
	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/gateway/gatewaytest"
	"github.com/belay-run/belay/internal/job"
)

const providerKey = "the-providers-own-key"

// asking is a station with a plugin whose tools ask models, and the provider that they
// reach.
type asking struct {
	*jobs
	provider     *gatewaytest.Provider
	manifestFile string
	noded        bool
}

// startAsking opens a station with these settings below models of the provider. Each
// step is what the agent's model does in turn.
func startAsking(t *testing.T, settings string, steps ...chat.Response) *asking {
	t.Helper()
	a := newAsking(t, settings, steps...)
	a.open()
	a.accept()
	return a
}

func newAsking(t *testing.T, settings string, steps ...chat.Response) *asking {
	t.Helper()
	a := &asking{newJobs(t, &playing{list: steps}), gatewaytest.NewProvider(), "belay-plugin.yaml", false}
	t.Cleanup(a.provider.Close)
	a.provider.Key = providerKey
	a.write(filepath.Join(a.data, "belay.yaml"), fmt.Sprintf(`providers:
  one: {api: openai, base_url: %q, key_secret: PROVIDER_KEY}
  two: {api: anthropic, base_url: %q, key_secret: PROVIDER_KEY}
models:
  gpt: {provider: one, model: gpt-double}
  gpt-tools: {provider: one, model: tools}
  gpt-limited: {provider: one, model: "429"}
  gpt-echo: {provider: one, model: echo}
  claude: {provider: two, model: claude-double}
  claude-tools: {provider: two, model: tools}
  claude-limited: {provider: two, model: "529"}
%s`, a.provider.OpenAI(), a.provider.Anthropic(), settings))
	a.plugin = t.TempDir()
	if err := os.CopyFS(a.plugin, os.DirFS(filepath.Join("testdata", "sdks"))); err != nil {
		t.Fatal(err)
	}
	return a
}

// accept installs the plugin with its grant, the provider's key, and lets tools work.
func (a *asking) accept() {
	a.t.Helper()
	a.withNode()
	if _, err := a.st.InstallPlugin(a.t.Context(), a.me, control.PluginOrder{Path: a.plugin, AcceptModel: true}); err != nil {
		a.t.Fatal(err)
	}
	if _, err := a.st.SetSecret(a.t.Context(), a.me, control.SecretOrder{Name: "PROVIDER_KEY", Value: providerKey}); err != nil {
		a.t.Fatal(err)
	}
	a.policy("rules:\n  - {name: all, tools: ['*'], verdict: allow}\n")
}

// withNode names this machine's Node.js in the manifest, or leaves the TypeScript
// server out when there is none.
func (a *asking) withNode() {
	a.t.Helper()
	path := filepath.Join(a.plugin, a.manifestFile)
	text, err := os.ReadFile(path)
	if err != nil {
		a.t.Fatal(err)
	}
	home := os.Getenv("BELAY_TEST_NODE")
	manifest := strings.Replace(string(text), "mcp: [node, ", fmt.Sprintf("mcp: [%q, ", filepath.Join(home, "bin", "node")), 1)
	if before, rest, there := strings.Cut(manifest, "  - id: ts\n"); home == "" && there {
		_, after, _ := strings.Cut(rest, "agents:\n")
		manifest = before + "agents:\n" + after
	}
	a.write(path, manifest)
	if home != "" && !a.noded {
		a.noded = true
		if _, err := a.st.SetSecret(a.t.Context(), a.me, control.SecretOrder{Name: "NODE_PATH", Value: filepath.Join(home, "node_modules")}); err != nil {
			a.t.Fatal(err)
		}
	}
}

// ask is a call of a server's function that asks a model.
func ask(server, vendor, model, prompt string, stream bool) string {
	return fmt.Sprintf(`{"vendor":%q,"model":%q,"prompt":%q,"stream":%v}`, vendor, model, prompt, stream)
}

// answered is what the SDKs' servers say of an answer.
type answered struct {
	Text    string
	Calls   []struct{ Name string }
	Stop    string
	In, Out int
	Pieces  int
	Listed  []string
	Counted int
	Error   string
	Status  int
	Message string
}

func (a *asking) answers() []answered {
	a.t.Helper()
	var out []answered
	for _, text := range a.reads() {
		var one answered
		if err := json.Unmarshal([]byte(text), &one); err != nil {
			a.t.Fatalf("%v: %s", err, text)
		}
		out = append(out, one)
	}
	return out
}

func TestModelsThroughTheVendorsSDKs(t *testing.T) {
	t.Parallel()
	for _, server := range []string{"py", "ts"} {
		t.Run("P50 P51 the SDKs of "+map[string]string{"py": "Python", "ts": "TypeScript"}[server]+" work unchanged with the key", func(t *testing.T) {
			t.Parallel()
			if server == "ts" && os.Getenv("BELAY_TEST_NODE") == "" {
				t.Skip("BELAY_TEST_NODE is not set; make test sets it")
			}
			var calls []string
			for _, vendor := range []string{"openai", "anthropic"} {
				alias := map[string]string{"openai": "gpt", "anthropic": "claude"}[vendor]
				for _, stream := range []bool{false, true} {
					calls = append(calls, server+".ask", ask(server, vendor, alias, "hello", stream), server+".ask", ask(server, vendor, alias+"-tools", "hello", stream))
				}
				calls = append(calls, server+".ask", ask(server, vendor, alias+"-limited", "hello", false))
			}
			a := startAsking(t, "", does(calls...), says("Done."))
			id := a.start("go")
			completed(t, a.end(id), "Done.")
			got := a.answers()
			if len(got) != 10 {
				t.Fatalf("%d answers: %s", len(got), a.reads())
			}
			text := strings.Join(gatewaytest.Text, "")
			for i, r := range got {
				anthropic, at := i >= 5, i%5
				listed := []string{"gpt", "gpt-echo", "gpt-limited", "gpt-tools"}
				if anthropic {
					listed = []string{"claude", "claude-limited", "claude-tools"}
				}
				stream := at == 2 || at == 3
				switch {
				case at == 4:
					if r.Status != map[bool]int{false: 429, true: 529}[anthropic] || r.Error == "" {
						t.Errorf("%d: the provider's refusal arrives as %+v", i, r)
					}
					continue
				case at%2 == 1:
					if len(r.Calls) != 1 {
						t.Errorf("%d: no call in %+v", i, r)
					}
				case r.Text != text || stream && r.Pieces != len(gatewaytest.Text):
					t.Errorf("%d: %+v", i, r)
				}
				if !slices.Equal(r.Listed, listed) || anthropic && r.Counted == 0 || !(stream && !anthropic) && r.Out == 0 {
					t.Errorf("%d: %+v", i, r)
				}
			}
			a.metered(id, server)
		})
	}
}

// metered checks the record of the SDKs' calls.
func (a *asking) metered(id job.ID, server string) {
	a.t.Helper()
	var asked, failed int
	for _, c := range a.calls(id) {
		switch {
		case c.Purpose == "agent" || strings.HasSuffix(c.Route, "count_tokens"):
		case c.Plugin != "acme" || c.Tool != server || c.Function != "ask" || c.Agent != "worker" || !strings.Contains(c.Purpose, "SDKs") || c.Step == "":
			a.t.Errorf("whose call is %+v", c)
		case c.Status != 200:
			failed++
		default:
			asked++
			if c.Usage.Output != gatewaytest.Output || c.Usage.Input != gatewaytest.Input || c.Estimated {
				a.t.Errorf("metered as %+v", c)
			}
		}
	}
	if asked != 8 || failed != 2 {
		a.t.Errorf("%d calls and %d failures are on record, want 8 and 2: %+v", asked, failed, a.calls(id))
	}
	for _, r := range a.provider.Requests() {
		if bytes.Contains(r.Body, []byte("bk-")) || strings.Contains(fmt.Sprint(r.Header), "bk-") {
			a.t.Error("the job's key reached the provider")
		}
	}
}

// keyOf runs a job whose tool shows what it has of models.
func (a *asking) keyOf(text string) (environment map[string]string, everything string, key map[string]string) {
	a.t.Helper()
	var got struct {
		Environment map[string]string
		Everything  string
		Key         map[string]string
	}
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		a.t.Fatalf("%v: %s", err, text)
	}
	return got.Environment, got.Everything, got.Key
}

// send asks the gateway by hand.
func send(t *testing.T, method, url, key, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }() // nothing is left to learn
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

const aQuestion = `{"model":"gpt","messages":[{"role":"user","content":"hello"}]}`

func TestKeysForModels(t *testing.T) {
	t.Parallel()

	t.Run("P52, P53 a key ends with its call, and the environment has addresses alone", func(t *testing.T) {
		t.Parallel()
		a := startAsking(t, "", does("py.environment", `{}`), does("py.environment", `{}`), says("Done."))
		id := a.start("go")
		completed(t, a.end(id), "Done.")
		environment, everything, key := a.keyOf(a.reads()[0])
		if want := map[string]string{"BELAY_MODEL_URL": key["url"], "ANTHROPIC_BASE_URL": key["anthropic_base_url"], "OPENAI_BASE_URL": key["openai_base_url"]}; fmt.Sprint(environment) != fmt.Sprint(want) {
			t.Errorf("the environment has %v, the key %v", environment, want)
		}
		if key["purpose"] != "ask through Python's SDKs" || !strings.HasSuffix(key["openai_base_url"], "/v1") || strings.HasSuffix(key["anthropic_base_url"], "/v1") || key["url"] == "" {
			t.Errorf("key %v", key)
		}
		_, _, other := a.keyOf(a.reads()[1])
		if key["token"] == "" || key["token"] == other["token"] || strings.Contains(everything, key["token"]) || strings.Contains(everything, providerKey) {
			t.Error("keys are not what they should be")
		}
		for name, used := range map[string]string{"after its job": key["token"], "tampered with": key["token"][:len(key["token"])-1] + "x", "none": "", "the provider's": providerKey} {
			if status, text := send(t, http.MethodPost, key["openai_base_url"]+"/chat/completions", used, aQuestion); status != http.StatusUnauthorized || strings.Contains(text, "bk-") {
				t.Errorf("%s: %d %s", name, status, text)
			}
		}
		if n := len(a.provider.Requests()); n != 0 {
			t.Errorf("the provider got %d requests", n)
		}
		for _, f := range []string{"belay.db", "belay.db-wal"} {
			if text, err := os.ReadFile(filepath.Join(a.data, f)); err == nil && bytes.Contains(text, []byte(key["token"])) {
				t.Errorf("%s holds a key", f)
			}
		}
		if strings.Contains(a.log.String(), key["token"]) {
			t.Error("the log holds a key")
		}
	})

	t.Run("P52 a key reaches the routes of models alone", func(t *testing.T) {
		t.Parallel()
		paths := map[string]int{"GET /v1/models": 200, "GET /v1/models/gpt": 200, "GET /v1/models/none": 404, "POST /v1/embeddings": 501, "POST /v1/responses": 501, "GET /v1/files": 501,
			"GET /v1/jobs": 501, "POST /v1/approvals/x": 501, "GET /": 501, "DELETE /v1/models/gpt": 405}
		raw, err := json.Marshal(map[string]any{"paths": slices.Sorted(maps.Keys(paths))})
		if err != nil {
			t.Fatal(err)
		}
		a := startAsking(t, "", does("py.visit", string(raw)), says("Done."))
		completed(t, a.run("go"), "Done.")
		var got map[string]int
		if err := json.Unmarshal([]byte(a.reads()[0]), &got); err != nil {
			t.Fatalf("%v: %s", err, a.reads())
		}
		for path, want := range paths {
			if got[path] != want {
				t.Errorf("%s: %d, want %d", path, got[path], want)
			}
		}
		if n := len(a.provider.Requests()); n != 0 {
			t.Errorf("the provider got %d requests", n)
		}
	})

	t.Run("P57 where no key can be made the call is made without one", func(t *testing.T) {
		t.Parallel()
		taken, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = taken.Close() }() // only a port is let go
		a := startAsking(t, "gateway: {listen: \""+taken.Addr().String()+"\"}\n", does("py.environment", `{}`), says("Done."))
		completed(t, a.run("go"), "Done.")
		environment, _, key := a.keyOf(a.reads()[0])
		if len(environment) != 0 || key != nil {
			t.Errorf("environment %v, key %v", environment, key)
		}
		if !strings.Contains(a.log.String(), "tools that ask models get no keys") {
			t.Error("the log says nothing of it")
		}
	})

	t.Run("P56 without the grant the gateway answers 403 and records why", func(t *testing.T) {
		t.Parallel()
		a := startAsking(t, "", does("py.ask", ask("py", "openai", "gpt", "hello", false)), does("py.ask", ask("py", "openai", "gpt", "hello", false)), says("Done."))
		if err := a.st.GrantModel(t.Context(), a.me, "acme", false); err != nil {
			t.Fatal(err)
		}
		id := a.start("go")
		completed(t, a.end(id), "Done.")
		if got := a.answers(); len(got) != 2 || got[0].Status != http.StatusForbidden || !strings.Contains(got[0].Message, "plugin acme may not use models") {
			t.Errorf("%+v", got)
		}
		calls := slices.DeleteFunc(a.calls(id), func(c control.ModelCall) bool { return c.Purpose == "agent" })
		if len(calls) == 0 || calls[0].Status != http.StatusForbidden || !strings.Contains(calls[0].Why, "may not use models") || calls[0].Plugin != "acme" {
			t.Errorf("recorded as %+v", calls)
		}
		if n := len(a.provider.Requests()); n != 0 {
			t.Errorf("the provider got %d requests", n)
		}
	})
}

func TestKeysOfPluginsForAnotherPlatform(t *testing.T) {
	t.Parallel()
	t.Run("P50 a plugin for another platform finds its key under that platform's name", func(t *testing.T) {
		t.Parallel()
		a := newAsking(t, "", does("py.environment", `{}`), says("Done."))
		a.open()
		if err := os.Rename(filepath.Join(a.plugin, "belay-plugin.yaml"), filepath.Join(a.plugin, "oz0-plugin.yaml")); err != nil {
			t.Fatal(err)
		}
		a.manifestFile = "oz0-plugin.yaml"
		a.accept()
		completed(t, a.run("go"), "Done.")
		if got := a.reads()[0]; !strings.Contains(got, `"oz0/model"`) || strings.Contains(got, `"belay/model"`) || !strings.Contains(got, `"token"`) {
			t.Errorf("it got %s", got)
		}
	})
}

func TestGrantsForModels(t *testing.T) {
	t.Parallel()

	t.Run("P54 a remote tool cannot declare that it uses a model", func(t *testing.T) {
		t.Parallel()
		a := newAsking(t, "")
		a.open()
		for name, tool := range map[string]string{
			"a url":  "{id: far, url: \"http://127.0.0.1:9/mcp\", uses_model: {purpose: judge}}",
			"a flow": "{id: far, flow: nightly, uses_model: {purpose: judge}}",
		} {
			a.manifest("name: far\ntools: [" + tool + "]\n")
			_, err := a.st.InstallPlugin(t.Context(), a.me, control.PluginOrder{Path: a.plugin, AcceptModel: true})
			var problem *control.Problem
			if !errors.As(err, &problem) || !slices.ContainsFunc(problem.Findings, func(f finding.Finding) bool { return f.Severity == finding.Error }) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})

	t.Run("P55 P58 an admin grants a model, the grant is audited and listed, and is taken back from the next call", func(t *testing.T) {
		t.Parallel()
		question := ask("py", "openai", "gpt", "hello", false)
		a := newAsking(t, "", does("py.ask", question), says("Done."), does("py.ask", question), says("Done."), does("py.ask", question), says("Done."))
		a.open()
		a.withNode()
		_, err := a.st.InstallPlugin(t.Context(), a.me, control.PluginOrder{Path: a.plugin})
		if err == nil || !strings.Contains(err.Error(), "wants to call the model") {
			t.Errorf("without a grant: %v", err)
		}
		if all, err := a.st.Plugins(t.Context(), "main"); err != nil || len(all) != 0 {
			t.Errorf("installed: %v %v", all, err)
		}
		a.accept()
		granted := func() bool {
			all, err := a.st.Plugins(t.Context(), "main")
			if err != nil || len(all) != 1 {
				t.Fatalf("%v %v", all, err)
			}
			return all[0].ModelGranted
		}
		if !granted() {
			t.Error("the list does not show the grant")
		}
		completed(t, a.run("first"), "Done.")
		if got := a.answers(); got[0].Text != strings.Join(gatewaytest.Text, "") {
			t.Errorf("with the grant: %+v", got)
		}
		if err := a.st.GrantModel(t.Context(), a.me, "acme", false); err != nil {
			t.Fatal(err)
		}
		if granted() {
			t.Error("the list still shows the grant")
		}
		completed(t, a.run("second"), "Done.")
		if got := a.answers(); got[0].Status != http.StatusForbidden {
			t.Errorf("after it was taken back: %+v", got)
		}
		// What it wants is no news, so that an update goes through; but it is not granted by that.
		if _, err := a.st.InstallPlugin(t.Context(), a.me, control.PluginOrder{Path: a.plugin, Name: "acme"}); err != nil {
			t.Error(err)
		}
		if granted() {
			t.Error("an update gave the grant back")
		}
		if _, err := a.st.InstallPlugin(t.Context(), a.me, control.PluginOrder{Path: a.plugin, Name: "acme", AcceptModel: true}); err != nil {
			t.Error(err)
		}
		completed(t, a.run("third"), "Done.")
		if got := a.answers(); got[0].Text != strings.Join(gatewaytest.Text, "") {
			t.Errorf("granted again: %+v", got)
		}
		facts, err := a.st.Store().AuditEntries(t.Context(), "main", 0, 1000)
		if err != nil {
			t.Fatal(err)
		}
		var said []string
		for _, f := range facts {
			if strings.HasPrefix(string(f.Action), "plugin.reads.") {
				said = append(said, fmt.Sprint(f.Action, " ", f.Subject, " ", string(f.Data), " by ", f.Actor))
			}
		}
		if got, want := strings.Join(said, "; "), "plugin.reads.granted acme {\"kind\":\"model\"} by tester; plugin.reads.revoked acme {\"kind\":\"model\"} by tester; plugin.reads.granted acme {\"kind\":\"model\"} by tester"; got != want {
			t.Errorf("audited: %s", got)
		}
	})

	t.Run("P58 an update that adds uses_model is refused until it is accepted", func(t *testing.T) {
		t.Parallel()
		a := newAsking(t, "")
		a.open()
		plain := "name: acme\ntools: [{id: py, mcp: [python, server.py]}]\n"
		asks := "name: acme\ntools: [{id: py, mcp: [python, server.py], uses_model: {purpose: judge}}]\n"
		install := func(text, name string, accept bool) error {
			a.manifest(text)
			_, err := a.st.InstallPlugin(t.Context(), a.me, control.PluginOrder{Path: a.plugin, Name: name, AcceptModel: accept})
			return err
		}
		if err := install(plain, "", false); err != nil {
			t.Fatal(err)
		}
		if err := install(asks, "acme", false); err == nil || !strings.Contains(err.Error(), "wants to call the model") {
			t.Errorf("without a grant: %v", err)
		}
		if err := install(asks, "acme", true); err != nil {
			t.Error(err)
		}
	})
}

func TestNoHookIsAskedAboutModelCallsOfPlugins(t *testing.T) {
	t.Parallel()
	t.Run("P94 a model call with a plugin's key is no event", func(t *testing.T) {
		t.Parallel()
		a := newAsking(t, "", does("py.ask", ask("py", "openai", "gpt", "hello", false)), says("Done."))
		path := filepath.Join(a.plugin, "belay-plugin.yaml")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		a.write(path, string(text)+"hooks:\n  - {on: pre_llm_call, call: py.allow}\n  - {on: pre_tool_call, call: py.allow}\n  - {on: post_tool_call, call: py.allow}\n")
		a.open()
		a.accept()
		id := a.start("go")
		completed(t, a.end(id), "Done.")
		if n := len(a.provider.Requests()); n != 1 {
			t.Errorf("the provider got %d requests", n)
		}
		h, err := a.st.History(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		asked := map[string]int{}
		for _, r := range h.Records {
			var in struct {
				Event struct{ Event string }
			}
			if r.What == job.Begun && r.Kind == agentjob.KindHook && json.Unmarshal(r.Input, &in) == nil {
				asked[in.Event.Event]++
			}
		}
		if want := map[string]int{"pre_llm_call": 2, "pre_tool_call": 1, "post_tool_call": 1}; !maps.Equal(asked, want) {
			t.Errorf("hooks were asked %v, want %v", asked, want)
		}
	})
}

func TestDoctorLooksAtModels(t *testing.T) {
	t.Parallel()
	a := newAsking(t, "gateway: {models: [gpt, keyless, lost]}\n")
	path := filepath.Join(a.data, "belay.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	a.write(path, strings.Replace(string(text), "models:\n", "models:\n  keyless: {provider: one, model: x, api_key_env: BELAY_TEST_NO_SUCH_KEY}\n  lost: {provider: scripted, script: nowhere.yml}\n", 1))
	a.open()
	a.accept()
	found, err := a.st.Checkup(t.Context(), "main")
	if err != nil {
		t.Fatal(err)
	}
	for about, want := range map[string]string{"model gpt": "ok: plugins may ask it: one/gpt-double at " + a.provider.OpenAI(), "model keyless": "error: the key of model one/x is missing: set the environment variable BELAY_TEST_NO_SUCH_KEY, or set BELAY_MODEL to another model", "model lost": "error: the script of the model: open "} {
		at := slices.IndexFunc(found, func(c control.Check) bool { return c.About == about })
		if at < 0 || !strings.HasPrefix(string(found[at].Level)+": "+found[at].Text, want) {
			t.Errorf("%s: want %q, got %+v", about, want, found)
		}
	}
}

func TestDataRulesOfModels(t *testing.T) {
	t.Parallel()

	t.Run("P51 the tenant's budget, allowlist and secrets hold for calls with a key", func(t *testing.T) {
		t.Parallel()
		a := startAsking(t, "gateway: {models: [gpt-echo, claude]}\n",
			does("py.ask", ask("py", "openai", "gpt", "hello", false)),
			does("py.ask", ask("py", "openai", "nowhere", "hello", false)),
			does("py.ask", ask("py", "openai", "claude", "hello", false)),
			does("py.ask", ask("py", "openai", "gpt-echo", "the token is planted-1234567", false)),
			says("Done."))
		if _, err := a.st.SetSecret(t.Context(), a.me, control.SecretOrder{Name: "TOKEN", Value: "planted-1234567"}); err != nil {
			t.Fatal(err)
		}
		id := a.start("go")
		completed(t, a.end(id), "Done.")
		got := a.answers()
		if got[0].Status != http.StatusForbidden || !strings.Contains(got[0].Message, "they may ask gpt-echo, claude") {
			t.Errorf("a model that is not allowed: %+v", got[0])
		}
		if got[1].Status != http.StatusForbidden && got[1].Status != http.StatusNotFound {
			t.Errorf("a model that is not there: %+v", got[1])
		}
		if got[2].Status != http.StatusBadRequest || !strings.Contains(got[2].Message, "Anthropic's API") {
			t.Errorf("a model of another API: %+v", got[2])
		}
		if got[3].Text != "the token is [secret TOKEN]" {
			t.Errorf("the provider read %+v", got[3])
		}
		calls := slices.DeleteFunc(a.calls(id), func(c control.ModelCall) bool { return c.Purpose == "agent" })
		last := calls[len(calls)-1]
		if !strings.Contains(fmt.Sprint(last.Verdicts), "TOKEN") || last.Request != "" || last.Answer != "" {
			t.Errorf("recorded as %+v", last)
		}
	})

	t.Run("P51 a job's budget stops calls with its keys before they are made", func(t *testing.T) {
		t.Parallel()
		a := startAsking(t, "budgets: {job: {tokens: 5000}}\n", does("py.ask", ask("py", "openai", "gpt", "hello", false)), says("Done."))
		a.model.list[0].Usage = chat.Usage{Input: 3900, Output: 1090} // the agent's own calls count too
		id := a.start("go")
		if end := a.end(id); end.Code != "LimitExceeded" {
			t.Errorf("ended as %+v", end)
		}
		calls := slices.DeleteFunc(a.calls(id), func(c control.ModelCall) bool { return c.Purpose == "agent" })
		if len(calls) != 1 || calls[0].Status != http.StatusPaymentRequired || !strings.Contains(calls[0].Why, "budget of job "+id.Job) || calls[0].Plugin != "acme" {
			t.Errorf("recorded as %+v", calls)
		}
		if n := len(a.provider.Requests()); n != 0 {
			t.Errorf("the provider got %d requests", n)
		}
	})
}
