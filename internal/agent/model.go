package agent

import (
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
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
func (a *Agent) readIntegrations(f *folder, agentFile *node) {
	var own *field
	r := f.reader(AgentFile)
	if agentFile != nil && agentFile.kind == isMapping {
		if b := agentFile.field("belay"); b != nil && b.kind == isMapping {
			s := &section{r: r, n: b, path: "belay"}
			own = s.find("llm")
		}
	}
	if own != nil {
		r.secrets(own.value)
		a.Model = f.model(&section{r: r, n: own.value, path: "belay.llm"}, own)
	}
	if !f.exists(IntegrationsFile) {
		if own == nil {
			f.reader(IntegrationsFile).whole().err("missing-model", "there is no "+IntegrationsFile+", so the agent has no model to ask",
				"write one with llm: {provider, model, api_key_env}")
		}
		return
	}
	r = f.reader(IntegrationsFile)
	n := f.yaml(IntegrationsFile)
	if n == nil {
		return // reported, or nothing in it
	}
	top := r.open(n, "")
	if top == nil {
		return
	}
	r.secrets(n)
	groups := f.groups(top)
	llm := top.find("llm")
	switch {
	case llm != nil && own != nil:
		r.key(llm).err("duplicate-key", "the model is named here and in "+AgentFile+" under belay.llm", "keep one of the two")
	case llm != nil:
		a.promptTokens(r, llm)
		a.Model = f.llm(top, llm, groups)
	case own == nil:
		r.whole().err("missing-model", "the agent has no model to ask", "write llm: {provider, model, api_key_env}")
	}
	channels(top)
	a.MCPServers = mcpServers(top)
	top.idle("tracing", "voice_providers", "knowledge_sources", "tracker_store", "engine_version")
	top.close()
}

// promptTokens reads the budget of a prompt where others have it. agent.yml wins.
func (a *Agent) promptTokens(r *reader, llm *field) {
	s := r.open(llm.value, "llm")
	if n := s.count("max_prompt_tokens", 500, 10_000_000, DefaultLimits.PromptTokens); a.Limits.PromptTokens == DefaultLimits.PromptTokens {
		a.Limits.PromptTokens = n
	}
}

// channels passes over the REST channel, which is always there.
func channels(top *section) {
	f := top.find("channels")
	if f == nil || f.value.kind != isMapping {
		top.idle("channels")
		return
	}
	for i := range f.value.fields {
		c := &f.value.fields[i]
		if c.name == "rest" && c.value.size <= 1 && c.value.kind != isText || served(c) {
			continue
		}
		what := fmt.Sprintf("the channel %s is not served in this version", shown(c.name))
		if c.name == "rest" {
			what = "the settings of the REST channel are not acted on in this version"
		}
		top.r.key(c).warn("not-acted-on", what, "the agent is served over HTTP: REST and server-sent events")
	}
}

// served says that a channel says nothing but what is so anyway: REST is enabled,
// another one is not.
func served(c *field) bool {
	if c.value.kind != isMapping || len(c.value.fields) != 1 {
		return false
	}
	enabled := c.value.field("enabled")
	return enabled != nil && enabled.kind == isBool && (enabled.text == "true") == (c.name == "rest")
}

// group is a named list of models, of which the first is asked.
type group struct {
	id    string
	model Model
}

func (f *folder) groups(top *section) []group {
	n := top.get("model_groups", isList, `write a list of {id, models: [{provider, model, …}]}`)
	if n == nil {
		return nil
	}
	var out []group
	for i, item := range n.items {
		s := top.r.open(item, fmt.Sprintf("model_groups[%d]", i))
		if s == nil {
			continue
		}
		g := group{id: s.text("id")}
		if g.id == "" {
			top.r.on(item).err("missing-key", s.path+" has no id", "give it an id, which llm.model_group then names")
		}
		if slices.ContainsFunc(out, func(o group) bool { return o.id == g.id && g.id != "" }) {
			top.r.on(item).err("duplicate-key", "two model groups have the same id", "rename one of them")
		}
		g.model = f.firstModel(s, item)
		g.model.Group = g.id
		s.closeLoosely()
		out = append(out, g)
	}
	return out
}

func (f *folder) firstModel(s *section, item *node) Model {
	models := s.get("models", isList, "write a list of {provider, model, …}")
	if models == nil || len(models.items) == 0 {
		if s.find("models") == nil || models != nil {
			s.r.on(item).err("missing-key", s.path+" names no model", "give it models: [{provider, model, api_key_env}]")
		}
		return Model{}
	}
	var first Model
	for i, m := range models.items {
		path := fmt.Sprintf("%s.models[%d]", s.path, i)
		if ms := s.r.open(m, path); ms != nil {
			model := f.model(ms, nil)
			if i == 0 {
				first = model
			}
		}
		if i == 1 {
			s.r.on(m).warn("not-acted-on", "only the first model of a group is asked in this version", "put the one to use first")
		}
	}
	return first
}

// llm reads the choice of the model: the name of a group, or the model itself.
func (f *folder) llm(top *section, llm *field, groups []group) Model {
	s := top.r.open(llm.value, "llm")
	if s == nil {
		return Model{}
	}
	s.find("max_prompt_tokens") // see promptTokens
	if !s.has("model_group") {
		return f.model(s, llm)
	}
	named := s.text("model_group")
	for _, key := range []string{"provider", "model"} {
		if k := s.find(key); k != nil {
			top.r.key(k).err("duplicate-key", fmt.Sprintf("llm names a model group and %q beside it", key), "keep one of the two ways")
		}
	}
	s.closeLoosely()
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
	if near := nearest(named, ids); near != "" {
		hint = fmt.Sprintf("did you mean %q?", near)
	}
	top.r.on(s.find("model_group").value).err("unknown-model-group", "llm.model_group names a group that is not in model_groups", hint)
	return Model{}
}

// notSent are keys of other engines' clients, which a provider would refuse.
var notSent = []string{"use_chat_completions_endpoint", "api_type", "api_version", "deployment", "cache", "id", "organization"}

// model reads one model's keys. at is where the model as a whole is named, nil
// for a list's item.
func (f *folder) model(s *section, at *field) Model {
	r := s.r
	if s.n.kind != isMapping {
		r.mismatch(s.n, name(s.path), isMapping, "write provider, model and api_key_env under it, indented")
		return Model{}
	}
	m := Model{Provider: s.text("provider"), Name: s.text("model"), BaseURL: s.address(), KeyVariable: s.keyVariable(),
		Timeout: s.duration("timeout", 0), Temperature: s.number("temperature", 0, 2), MaxTokens: s.optional("max_tokens", 1), MaxRetries: s.optional("max_retries", 0)}
	whole := r.on(s.n)
	if at != nil {
		whole = r.key(at)
	}
	if m.Provider == "" && !s.has("provider") {
		whole.err("missing-key", s.path+" has no provider", "name one, such as openai, or scripted with script: FILE")
	}
	switch {
	case strings.EqualFold(m.Provider, Scripted):
		m.Provider = Scripted
		f.script(&m, s, whole)
	case m.Provider != "" && m.Name == "" && !s.has("model"):
		whole.err("missing-key", s.path+" has no model", "name the provider's model, such as gpt-4o-mini")
	}
	if m.Provider != Scripted && s.has("script") {
		r.key(s.find("script")).err("bad-value", s.full("script")+" is for the provider scripted only", "delete it, or write provider: scripted")
	}
	s.idle(notSent...)
	m.Extra = s.extra()
	return m
}

// address reads base_url, or api_base as others call it.
func (s *section) address() string {
	key := "base_url"
	if !s.has(key) {
		key = "api_base"
	} else if f := s.find("api_base"); f != nil {
		s.r.key(f).err("duplicate-key", s.path+" has base_url and api_base", "keep one of the two; they mean the same")
	}
	text := s.text(key)
	if text == "" {
		s.find("api_base")
		return ""
	}
	value := s.find(key).value
	if s.r.unexpanded(value) {
		return ""
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		s.r.on(value).err("bad-value", s.full(key)+" is no http or https address", "write for example http://127.0.0.1:8000/v1")
		return ""
	case u.User != nil:
		s.r.on(value).err("key-in-file", s.full(key)+" has a user or password in it", keyHint)
		return ""
	}
	return text
}

// keyVariable reads the name of the variable that holds the key. A key itself is
// never accepted.
func (s *section) keyVariable() string {
	var names []string
	if text := s.text("api_key_env"); text != "" {
		if !variable.MatchString(text) || secretLike.MatchString(text) {
			s.r.on(s.find("api_key_env").value).err("key-in-file", s.full("api_key_env")+" is not the name of an environment variable", keyHint)
		} else {
			names = append(names, text)
		}
	}
	// An inline key is reported by secrets; ${NAME} names a variable too.
	if f := s.find("api_key"); f != nil && f.value.kind == isText {
		if m := reference.FindStringSubmatch(f.value.text); m != nil {
			names = append(names, m[1])
		}
	}
	if len(names) > 1 {
		s.r.key(s.find("api_key")).err("duplicate-key", s.path+" has api_key_env and api_key", "keep api_key_env")
	}
	if len(names) == 0 {
		return ""
	}
	return names[0]
}

// script reads the script of a scripted model: a file of the folder, or the
// script itself.
func (f *folder) script(m *Model, s *section, whole spot) {
	script := s.find("script")
	switch {
	case script == nil:
		whole.err("missing-script", s.path+" is scripted and names no script", "write script: FILE, with a file of this folder")
	case script.value.kind == isList || script.value.kind == isMapping:
		if raw, ok := s.r.raw(script.value); ok {
			m.Script = raw // JSON is YAML
		}
	case script.value.kind == isText:
		m.ScriptFile = script.value.text
		if data, ok := f.linked(s.r.on(script.value), m.ScriptFile, "missing-script"); ok {
			m.Script = data
		}
	default:
		s.r.mismatch(script.value, s.full("script"), isText, "name a file of this folder, or write the script under it")
	}
}

// extra collects the keys that nobody asked for. One that looks like a slip of a
// known key is reported instead of being sent to a provider.
func (s *section) extra() map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	for _, f := range s.rest() {
		if f.value.kind == isNull || secretKey.MatchString(f.name) {
			continue // secrets has reported a key's value
		}
		if shown(f.name) == notShown {
			s.r.key(f).err("unknown-key", "a key that is no name of a setting in "+name(s.path), "write plain words before the colon; if a key of yours slipped there, treat it as known to others")
			continue
		}
		if near := nearest(f.name, s.known); near != "" && !realSetting(f.name) {
			s.r.key(f).err("unknown-key", fmt.Sprintf("unknown key %s in %s", shown(f.name), name(s.path)), fmt.Sprintf("did you mean %q?", near))
			continue
		}
		if s.r.unexpanded(f.value) {
			continue
		}
		if raw, ok := s.r.raw(f.value); ok {
			out[f.name] = raw
		}
	}
	return out
}

// realSetting says that a key is a provider's, however near it is to one of ours.
func realSetting(key string) bool {
	return slices.Contains([]string{"top_p", "top_k", "min_p", "seed", "stop", "n", "user", "logprobs", "models", "modalities", "store", "metadata", "max_completion_tokens"}, key)
}

// unexpanded reports ${NAME} where nothing is put in its place.
func (r *reader) unexpanded(n *node) bool {
	found := false
	r.each(n, func(v *node) {
		if v.kind == isText && expansion.MatchString(v.text) {
			found = true
			r.on(v).err("unexpanded-variable", "${…} is not filled in here", "write the value itself; only a key may come from the environment, by api_key_env")
		}
	})
	return found
}

func (r *reader) each(n *node, do func(*node)) {
	do(n)
	for _, i := range n.items {
		r.each(i, do)
	}
	for _, f := range n.fields {
		r.each(f.value, do)
	}
}

// secrets reports keys, tokens and passwords that stand in a file.
func (r *reader) secrets(n *node) {
	r.each(n, func(v *node) {
		for i := range v.fields {
			f := &v.fields[i]
			if f.value.kind != isText || strings.TrimSpace(f.value.text) == "" || expansion.MatchString(f.value.text) {
				continue
			}
			if secretKey.MatchString(f.name) || secretLike.MatchString(f.value.text) && f.name != "api_key_env" {
				r.on(f.value).err("key-in-file", fmt.Sprintf("the value of %s is written in the file", shown(f.name)), "do not write keys in files; "+keyHint)
			}
		}
	})
}
