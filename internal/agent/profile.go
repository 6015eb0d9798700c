package agent

import (
	"cmp"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/belay-run/belay/internal/wording"
	"github.com/belay-run/belay/internal/yamlfile"
)

var (
	identityKeys = []string{"id", "language", "name", "description", "persona", "voice"}
	goodID       = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)
	goodLanguage = regexp.MustCompile(`^[A-Za-z]{2,3}([-_][A-Za-z0-9]{2,8})*$`)
	notInID      = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)
)

// idOf makes an id from the folder's name.
func idOf(path string) string {
	id := strings.Trim(notInID.ReplaceAllString(filepath.Base(path), "-"), "-._")
	if !goodID.MatchString(id) {
		return "agent"
	}
	return id
}

// readProfile reads agent.yml. n is nil when there is no such file or nothing in
// it; that has been reported.
func (a *Agent) readProfile(r *yamlfile.Reader, n *yamlfile.Node) {
	top := r.Open(n, "")
	if top == nil {
		return
	}
	// The oldest agents have no "agent:" and all keys at the top.
	identity, flat := top.Sub("agent"), false
	if !top.Has("agent") && top.Has("persona") {
		identity, flat = top, true
	}
	a.readIdentity(top, identity)

	// Older agents have these inside "agent:", newer ones beside it.
	tuning := func(key string) *yamlfile.Section {
		outer, inner := top.Has(key), identity.Has(key)
		if outer && inner && !flat {
			r.Key(identity.Find(key)).Err("duplicate-key", fmt.Sprintf("%q stands inside agent: and beside it", key), "keep the one beside agent:")
		}
		if inner && !outer {
			return identity
		}
		return top
	}
	a.Rules = lines(tuning("rules"), "rules")
	a.ToolTimeout = duration(tuning("tool_timeout"), "tool_timeout", DefaultToolTimeout)

	references := tuning("references").Sub("references")
	a.Instructions = prose(references, "instructions")
	closeLoosely(references)

	for _, key := range []string{"prompts", "orchestrator"} { // the second is the older name
		prompts := tuning(key).Sub(key)
		if text := prose(prompts, "text_rules"); text != "" && a.TextRules == "" {
			a.TextRules = text
		}
		closeLoosely(prompts)
	}
	for _, key := range []string{"conversation", "session_config", "engine_version"} {
		idle(tuning(key), key)
	}
	a.readOwn(top)
	if !flat {
		identity.Unknown()
	}
	a.misplaced(top)
	top.Unknown()
}

func (a *Agent) readIdentity(top, identity *yamlfile.Section) {
	r := top.R
	if id := identity.TextOrBlank("id"); id != "" {
		if !goodID.MatchString(id) {
			r.On(identity.Find("id").Value).Err("bad-value", identity.Full("id")+" is not usable as a name",
				`begin with a letter or digit and use at most 64 letters, digits, "_", "." and "-"`)
		} else {
			a.ID = id
		}
	}
	if language := identity.TextOrBlank("language"); language != "" {
		if !goodLanguage.MatchString(language) {
			r.On(identity.Find("language").Value).Err("bad-value", identity.Full("language")+" is no language code", `write a code such as en, de or es-MX`)
		} else {
			a.Language = language
		}
	}
	a.Name = cmp.Or(identity.TextOrBlank("name"), top.TextOrBlank("name")) // others have these two beside "agent:"
	a.Description = cmp.Or(identity.TextOrBlank("description"), top.TextOrBlank("description"))
	if f := identity.Find("voice"); f != nil && f.Value.Kind == yamlfile.Text {
		a.Voice = f.Value.Text
	}
	idle(identity, "voice")
	a.Persona = identity.TextOrBlank("persona")
	if persona := identity.Find("persona"); strings.TrimSpace(a.Persona) == "" && (persona == nil || persona.Value.Kind == yamlfile.Text) {
		at := r.Whole()
		if f := top.Find("agent"); f != nil {
			if identity == nil {
				return // it is no mapping, which has been reported
			}
			at = r.Key(f)
		}
		at.Err("missing-persona", "the agent has no persona", "write agent.persona: a few sentences on who the agent is and how it speaks")
	}
}

// readOwn reads the keys that are Belay's own.
func (a *Agent) readOwn(top *yamlfile.Section) {
	own := top.Sub("belay")
	limits := own.Sub("limits")
	l := &a.Limits
	for _, c := range []struct {
		key         string
		into        *int
		least, most int
	}{
		{"iterations", &l.Iterations, 1, 100},
		{"empty_retries", &l.EmptyRetries, 0, 10},
		{"prompt_tokens", &l.PromptTokens, 500, 10_000_000},
		{"history", &l.History, 1, 1000},
		{"hook_workers", &l.HookWorkers, 1, 32},
		{"queue", &l.Queue, 1, 1000},
	} {
		*c.into = count(limits, c.key, c.least, c.most, *c.into)
	}
	limits.Unknown()
	a.readConversations(top, own)
	own.Find("llm") // read with the integrations
	own.Unknown()
}

// Bounds of conversations.keep.
const (
	leastKept = time.Hour
	mostKept  = 36_500 * 24 * time.Hour
)

// readConversations reads how long conversations are kept: at the top of the
// file, or under belay: like the other keys of our own.
func (a *Agent) readConversations(top, own *yamlfile.Section) {
	at := top
	if inner := own.Find("conversations"); inner != nil {
		if top.Has("conversations") {
			top.R.Key(inner).Err("duplicate-key", `"conversations" stands inside belay: and beside it`, "keep one of them")
		} else {
			at = own
		}
	}
	s := at.Sub("conversations")
	a.Keep = span(s, "keep", leastKept, mostKept)
	s.Unknown()
}

// misplaced reports keys that belong inside "agent:" with a better word than
// "unknown".
func (a *Agent) misplaced(top *yamlfile.Section) {
	for _, f := range top.Rest() {
		if slices.Contains(identityKeys, f.Name) {
			top.R.Key(f).Err("misplaced-key", fmt.Sprintf("%q stands at the top of the file", f.Name), "move it under agent:, indented")
			top.Find(f.Name) // known now
		}
	}
}

// warnLanguage says which fixed texts will be English in an agent of another
// language.
func (a *Agent) warnLanguage(r *yamlfile.Reader) {
	if wording.HasLanguage(a.Language) {
		return
	}
	var missing []string
	for _, name := range wording.New(a.Language, nil).Names() {
		if !a.Responses.Own(name) && (a.Skills != nil || !slices.Contains(wording.OfSkills, name)) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		r.Whole().Warn("no-built-in-texts", "Belay has no built-in texts in the agent's language and says them in English: "+strings.Join(missing, ", "),
			"write them in "+ResponsesFile)
	}
}
