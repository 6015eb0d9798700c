package agent

import (
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/belay-run/belay/internal/yamlfile"
)

var (
	variable   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	reference  = regexp.MustCompile(`^\s*\$\{([A-Za-z_][A-Za-z0-9_]*)\}\s*$`)
	expansion  = regexp.MustCompile(`\$\{[^}]*\}`)
	secretLike = regexp.MustCompile(`^(sk|pk|rk)[-_]|^gh[pousr]_|^github_pat_|^xox[abprs]-|^AKIA|^AIza|^eyJ`)
	secretKey  = regexp.MustCompile(`(?i)^(.+[_-])?(api_?key|token|secret|password|passwd|private_key|credentials?|authorization)$`)
)

const keyHint = "put the key in an environment variable and write its name under api_key_env"

// readIntegrations reads integrations.yml; the model may also stand in agent.yml
// under belay.llm, for an agent of one file.
func (a *Agent) readIntegrations(f *folder, agentFile *yamlfile.Node) {
	var own *yamlfile.Field
	r := f.reader(AgentFile)
	if agentFile != nil && agentFile.Kind == yamlfile.Mapping {
		if b := agentFile.Field("belay"); b != nil && b.Kind == yamlfile.Mapping {
			s := r.Open(b, "belay")
			own = s.Find("llm")
		}
	}
	if own != nil {
		secrets(r, own.Value)
		if own.Value.Kind == yamlfile.Mapping {
			a.Model = f.model(r.Open(own.Value, "belay.llm"), own)
		} else {
			r.Mismatch(own.Value, "belay.llm", yamlfile.Mapping, "write provider, model and api_key_env under it, indented")
		}
	}
	if !f.exists(IntegrationsFile) {
		if own == nil {
			f.reader(IntegrationsFile).Whole().Err("missing-model", "there is no "+IntegrationsFile+", so the agent has no model to ask",
				"write one with llm: {provider, model, api_key_env}")
		}
		return
	}
	r = f.reader(IntegrationsFile)
	n := f.yaml(IntegrationsFile)
	if n == nil {
		return // reported, or nothing in it
	}
	top := r.Open(n, "")
	if top == nil {
		return
	}
	secrets(r, n)
	groups := f.groups(top)
	llm := top.Find("llm")
	switch {
	case llm != nil && own != nil:
		r.Key(llm).Err("duplicate-key", "the model is named here and in "+AgentFile+" under belay.llm", "keep one of the two")
	case llm != nil:
		a.promptTokens(r, llm)
		a.Model = f.llm(top, llm, groups)
	case own == nil:
		r.Whole().Err("missing-model", "the agent has no model to ask", "write llm: {provider, model, api_key_env}")
	}
	channels(top)
	a.MCPServers = mcpServers(top)
	idle(top, "tracing", "voice_providers", "knowledge_sources", "tracker_store", "engine_version")
	top.Unknown()
}

// promptTokens reads the budget of a prompt where others have it. agent.yml wins.
func (a *Agent) promptTokens(r *yamlfile.Reader, llm *yamlfile.Field) {
	s := r.Open(llm.Value, "llm")
	if n := count(s, "max_prompt_tokens", 500, 10_000_000, DefaultLimits.PromptTokens); a.Limits.PromptTokens == DefaultLimits.PromptTokens {
		a.Limits.PromptTokens = n
	}
}

// channels passes over the REST channel, which is always there.
func channels(top *yamlfile.Section) {
	f := top.Find("channels")
	if f == nil || f.Value.Kind != yamlfile.Mapping {
		idle(top, "channels")
		return
	}
	for i := range f.Value.Fields {
		c := &f.Value.Fields[i]
		if c.Name == "rest" && len(c.Value.Items)+len(c.Value.Fields) == 0 && c.Value.Kind != yamlfile.Text || served(c) {
			continue
		}
		what := fmt.Sprintf("the channel %s is not served in this version", yamlfile.Shown(c.Name))
		if c.Name == "rest" {
			what = "the settings of the REST channel are not acted on in this version"
		}
		top.R.Key(c).Warn("not-acted-on", what, "the agent is served over HTTP: REST and server-sent events")
	}
}

// served says that a channel says nothing but what is so anyway: REST is enabled,
// another one is not.
func served(c *yamlfile.Field) bool {
	if c.Value.Kind != yamlfile.Mapping || len(c.Value.Fields) != 1 {
		return false
	}
	enabled := c.Value.Field("enabled")
	return enabled != nil && enabled.Kind == yamlfile.Bool && (enabled.Text == "true") == (c.Name == "rest")
}

// group is a named list of models, of which the first is asked.
type group struct {
	id    string
	model Model
}

func (f *folder) groups(top *yamlfile.Section) []group {
	n := top.Get("model_groups", yamlfile.List, `write a list of {id, models: [{provider, model, …}]}`)
	if n == nil {
		return nil
	}
	var out []group
	for i, item := range n.Items {
		s := top.R.Open(item, fmt.Sprintf("model_groups[%d]", i))
		if s == nil {
			continue
		}
		g := group{id: s.TextOrBlank("id")}
		if g.id == "" {
			top.R.On(item).Err("missing-key", s.Path()+" has no id", "give it an id, which llm.model_group then names")
		}
		if slices.ContainsFunc(out, func(o group) bool { return o.id == g.id && g.id != "" }) {
			top.R.On(item).Err("duplicate-key", "two model groups have the same id", "rename one of them")
		}
		g.model = f.firstModel(s, item)
		g.model.Group = g.id
		closeLoosely(s)
		out = append(out, g)
	}
	return out
}

func (f *folder) firstModel(s *yamlfile.Section, item *yamlfile.Node) Model {
	models := s.Get("models", yamlfile.List, "write a list of {provider, model, …}")
	if models == nil || len(models.Items) == 0 {
		if s.Find("models") == nil || models != nil {
			s.R.On(item).Err("missing-key", s.Path()+" names no model", "give it models: [{provider, model, api_key_env}]")
		}
		return Model{}
	}
	var first Model
	for i, m := range models.Items {
		path := fmt.Sprintf("%s.models[%d]", s.Path(), i)
		if ms := s.R.Open(m, path); ms != nil {
			model := f.model(ms, nil)
			if i == 0 {
				first = model
			}
		}
		if i == 1 {
			s.R.On(m).Warn("not-acted-on", "only the first model of a group is asked in this version", "put the one to use first")
		}
	}
	return first
}

// llm reads the choice of the model: the name of a group, or the model itself.
func (f *folder) llm(top *yamlfile.Section, llm *yamlfile.Field, groups []group) Model {
	s := top.R.Open(llm.Value, "llm")
	if s == nil {
		return Model{}
	}
	s.Find("max_prompt_tokens") // see promptTokens
	if !s.Has("model_group") {
		return f.model(s, llm)
	}
	named := s.TextOrBlank("model_group")
	for _, key := range []string{"provider", "model"} {
		if k := s.Find(key); k != nil {
			top.R.Key(k).Err("duplicate-key", fmt.Sprintf("llm names a model group and %q beside it", key), "keep one of the two ways")
		}
	}
	closeLoosely(s)
	var ids []string
	for _, g := range groups {
		if g.id == named {
			return g.model
		}
		ids = append(ids, g.id)
	}
	if named == "" {
		return Model{}
	}
	hint := "add it to model_groups"
	if near := yamlfile.Nearest(named, ids); near != "" {
		hint = fmt.Sprintf("did you mean %q?", near)
	}
	top.R.On(s.Find("model_group").Value).Err("unknown-model-group", "llm.model_group names a group that is not in model_groups", hint)
	return Model{}
}

// notSent are keys of other engines' clients, which a provider would refuse.
var notSent = []string{"use_chat_completions_endpoint", "api_type", "api_version", "deployment", "cache", "id", "organization"}

// model reads one model's keys. at is where the model as a whole is named, nil
// for a list's item.
func (f *folder) model(s *yamlfile.Section, at *yamlfile.Field) Model {
	r := s.R
	m := Model{Provider: s.TextOrBlank("provider"), Name: s.TextOrBlank("model"), BaseURL: address(s), KeyVariable: keyVariable(s),
		Timeout: duration(s, "timeout", 0), Temperature: s.Number("temperature", 0, 2), MaxTokens: optional(s, "max_tokens", 1), MaxRetries: optional(s, "max_retries", 0)}
	whole := r.On(s.Node)
	if at != nil {
		whole = r.Key(at)
	}
	if m.Provider == "" && !s.Has("provider") {
		whole.Err("missing-key", s.Path()+" has no provider", "name one, such as openai, or scripted with script: FILE")
	}
	switch {
	case strings.EqualFold(m.Provider, Scripted):
		m.Provider = Scripted
		f.script(&m, s, whole)
	case m.Provider != "" && m.Name == "" && !s.Has("model"):
		whole.Err("missing-key", s.Path()+" has no model", "name the provider's model, such as gpt-4o-mini")
	}
	if m.Provider != Scripted && s.Has("script") {
		r.Key(s.Find("script")).Err("bad-value", s.Full("script")+" is for the provider scripted only", "delete it, or write provider: scripted")
	}
	idle(s, notSent...)
	m.Extra = extra(s)
	return m
}

// address reads base_url, or api_base as others call it.
func address(s *yamlfile.Section) string {
	key := "base_url"
	if !s.Has(key) {
		key = "api_base"
	} else if f := s.Find("api_base"); f != nil {
		s.R.Key(f).Err("duplicate-key", s.Path()+" has base_url and api_base", "keep one of the two; they mean the same")
	}
	text := s.TextOrBlank(key)
	if text == "" {
		s.Find("api_base")
		return ""
	}
	value := s.Find(key).Value
	if unexpanded(s.R, value) {
		return ""
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		s.R.On(value).Err("bad-value", s.Full(key)+" is no http or https address", "write for example http://127.0.0.1:8000/v1")
		return ""
	case u.User != nil:
		s.R.On(value).Err("key-in-file", s.Full(key)+" has a user or password in it", keyHint)
		return ""
	}
	return text
}

// keyVariable reads the name of the variable that holds the key. A key itself is
// never accepted.
func keyVariable(s *yamlfile.Section) string {
	var names []string
	if text := s.TextOrBlank("api_key_env"); text != "" {
		if !variable.MatchString(text) || secretLike.MatchString(text) {
			s.R.On(s.Find("api_key_env").Value).Err("key-in-file", s.Full("api_key_env")+" is not the name of an environment variable", keyHint)
		} else {
			names = append(names, text)
		}
	}
	// An inline key is reported by secrets; ${NAME} names a variable too.
	if f := s.Find("api_key"); f != nil && f.Value.Kind == yamlfile.Text {
		if m := reference.FindStringSubmatch(f.Value.Text); m != nil {
			names = append(names, m[1])
		}
	}
	if len(names) > 1 {
		s.R.Key(s.Find("api_key")).Err("duplicate-key", s.Path()+" has api_key_env and api_key", "keep api_key_env")
	}
	if len(names) == 0 {
		return ""
	}
	return names[0]
}

// script reads the script of a scripted model: a file of the folder, or the
// script itself.
func (f *folder) script(m *Model, s *yamlfile.Section, whole yamlfile.Spot) {
	script := s.Find("script")
	switch {
	case script == nil:
		whole.Err("missing-script", s.Path()+" is scripted and names no script", "write script: FILE, with a file of this folder")
	case script.Value.Kind == yamlfile.List || script.Value.Kind == yamlfile.Mapping:
		if raw, ok := asJSON(s.R, script.Value); ok {
			m.Script = raw // JSON is YAML
		}
	case script.Value.Kind == yamlfile.Text:
		m.ScriptFile = script.Value.Text
		if data, ok := f.linked(s.R.On(script.Value), m.ScriptFile, "missing-script"); ok {
			m.Script = data
		}
	default:
		s.R.Mismatch(script.Value, s.Full("script"), yamlfile.Text, "name a file of this folder, or write the script under it")
	}
}

// extra collects the keys that nobody asked for. One that looks like a slip of a
// known key is reported instead of being sent to a provider.
func extra(s *yamlfile.Section) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	for _, f := range s.Rest() {
		if f.Value.Kind == yamlfile.Null || secretKey.MatchString(f.Name) {
			continue // secrets has reported a key's value
		}
		if yamlfile.Shown(f.Name) == yamlfile.NotShown {
			s.R.Key(f).Err("unknown-key", "a key that is no name of a setting in "+s.Called(), "write plain words before the colon; if a key of yours slipped there, treat it as known to others")
			continue
		}
		if !realSetting(f.Name) && s.Slip(f) || unexpanded(s.R, f.Value) {
			continue
		}
		if raw, ok := asJSON(s.R, f.Value); ok {
			out[f.Name] = raw
		}
	}
	return out
}

// realSetting says that a key is a provider's, however near it is to one of ours.
func realSetting(key string) bool {
	return slices.Contains([]string{"top_p", "top_k", "min_p", "seed", "stop", "n", "user", "logprobs", "models", "modalities", "store", "metadata", "max_completion_tokens"}, key)
}

// unexpanded reports ${NAME} where nothing is put in its place.
func unexpanded(r *yamlfile.Reader, n *yamlfile.Node) bool {
	found := false
	each(n, func(v *yamlfile.Node) {
		if v.Kind == yamlfile.Text && expansion.MatchString(v.Text) {
			found = true
			r.On(v).Err("unexpanded-variable", "${…} is not filled in here", "write the value itself; only a key may come from the environment, by api_key_env")
		}
	})
	return found
}

func each(n *yamlfile.Node, do func(*yamlfile.Node)) {
	do(n)
	for _, i := range n.Items {
		each(i, do)
	}
	for _, f := range n.Fields {
		each(f.Value, do)
	}
}

// secrets reports keys, tokens and passwords that stand in a file.
func secrets(r *yamlfile.Reader, n *yamlfile.Node) {
	each(n, func(v *yamlfile.Node) {
		for i := range v.Fields {
			f := &v.Fields[i]
			if f.Value.Kind != yamlfile.Text || strings.TrimSpace(f.Value.Text) == "" || expansion.MatchString(f.Value.Text) {
				continue
			}
			if secretKey.MatchString(f.Name) || secretLike.MatchString(f.Value.Text) && f.Name != "api_key_env" {
				r.On(f.Value).Err("key-in-file", fmt.Sprintf("the value of %s is written in the file", yamlfile.Shown(f.Name)), "do not write keys in files; "+keyHint)
			}
		}
	})
}
