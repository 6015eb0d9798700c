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
func (a *Agent) readProfile(r *reader, n *node) {
	top := r.open(n, "")
	if top == nil {
		return
	}
	// The oldest agents have no "agent:" and all keys at the top.
	identity, flat := top.sub("agent"), false
	if !top.has("agent") && top.has("persona") {
		identity, flat = top, true
	}
	a.readIdentity(top, identity)

	// Older agents have these inside "agent:", newer ones beside it.
	tuning := func(key string) *section {
		outer, inner := top.has(key), identity.has(key)
		if outer && inner && !flat {
			r.key(identity.find(key)).err("duplicate-key", fmt.Sprintf("%q stands inside agent: and beside it", key), "keep the one beside agent:")
		}
		if inner && !outer {
			return identity
		}
		return top
	}
	a.Rules = tuning("rules").lines("rules")
	a.ToolTimeout = tuning("tool_timeout").duration("tool_timeout", DefaultToolTimeout)

	references := tuning("references").sub("references")
	a.Instructions = references.prose("instructions")
	references.closeLoosely()

	for _, key := range []string{"prompts", "orchestrator"} { // the second is the older name
		prompts := tuning(key).sub(key)
		if text := prompts.prose("text_rules"); text != "" && a.TextRules == "" {
			a.TextRules = text
		}
		prompts.closeLoosely()
	}
	for _, key := range []string{"conversation", "session_config", "engine_version"} {
		tuning(key).idle(key)
	}
	a.readOwn(top)
	if !flat {
		identity.close()
	}
	a.misplaced(top)
	top.close()
}

func (a *Agent) readIdentity(top, identity *section) {
	r := top.r
	if id := identity.text("id"); id != "" {
		if !goodID.MatchString(id) {
			r.on(identity.find("id").value).err("bad-value", identity.full("id")+" is not usable as a name",
				`begin with a letter or digit and use at most 64 letters, digits, "_", "." and "-"`)
		} else {
			a.ID = id
		}
	}
	if language := identity.text("language"); language != "" {
		if !goodLanguage.MatchString(language) {
			r.on(identity.find("language").value).err("bad-value", identity.full("language")+" is no language code", `write a code such as en, de or es-MX`)
		} else {
			a.Language = language
		}
	}
	a.Name = cmp.Or(identity.text("name"), top.text("name")) // others have these two beside "agent:"
	a.Description = cmp.Or(identity.text("description"), top.text("description"))
	if f := identity.find("voice"); f != nil && f.value.kind == isText {
		a.Voice = f.value.text
	}
	identity.idle("voice")
	before := len(*r.findings)
	a.Persona = identity.text("persona")
	if strings.TrimSpace(a.Persona) == "" && len(*r.findings) == before {
		at := r.whole()
		if f := top.find("agent"); f != nil {
			if identity == nil {
				return // it is no mapping, which has been reported
			}
			at = r.key(f)
		}
		at.err("missing-persona", "the agent has no persona", "write agent.persona: a few sentences on who the agent is and how it speaks")
	}
}

// readOwn reads the keys that are Belay's own.
func (a *Agent) readOwn(top *section) {
	own := top.sub("belay")
	limits := own.sub("limits")
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
		*c.into = limits.count(c.key, c.least, c.most, *c.into)
	}
	limits.close()
	a.readConversations(top, own)
	own.find("llm") // read with the integrations
	own.close()
}

// Bounds of conversations.keep.
const (
	leastKept = time.Hour
	mostKept  = 36_500 * 24 * time.Hour
)

// readConversations reads how long conversations are kept: at the top of the
// file, or under belay: like the other keys of our own.
func (a *Agent) readConversations(top, own *section) {
	at := top
	if inner := own.find("conversations"); inner != nil {
		if top.has("conversations") {
			top.r.key(inner).err("duplicate-key", `"conversations" stands inside belay: and beside it`, "keep one of them")
		} else {
			at = own
		}
	}
	s := at.sub("conversations")
	a.Keep = s.span("keep", leastKept, mostKept)
	s.close()
}

// misplaced reports keys that belong inside "agent:" with a better word than
// "unknown".
func (a *Agent) misplaced(top *section) {
	for _, f := range top.rest() {
		if slices.Contains(identityKeys, f.name) {
			top.r.key(f).err("misplaced-key", fmt.Sprintf("%q stands at the top of the file", f.name), "move it under agent:, indented")
			top.known = append(top.known, f.name)
		}
	}
}

// warnLanguage says which fixed texts will be English in an agent of another
// language.
func (a *Agent) warnLanguage(r *reader) {
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
		r.whole().warn("no-built-in-texts", "Belay has no built-in texts in the agent's language and says them in English: "+strings.Join(missing, ", "),
			"write them in "+ResponsesFile)
	}
}
