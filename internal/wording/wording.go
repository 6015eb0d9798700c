// Package wording holds the fixed texts of an agent: those that Belay brings, by
// language, and those that the author wrote in responses.yml, which win.
//
// A [Book] is made once and never changes. [Book.Pick] chooses a response's
// first variant whose condition holds, else its first without one, and fills in
// what stands in braces:
//
//	book := wording.New("de", own)
//	text, rephrase, ok := book.Pick(wording.MaxIterations, nil)
//
// The names of responses are one space, whatever file they stand in. Where two
// skills have the same name, [Book.PickIn] takes that of the skill it is asked for.
//
// {session.cart.total} and {name} are looked up in the values given; one that
// has no value stays as it is written. What was filled in is not looked at
// again, so a value cannot bring placeholders of its own.
package wording

import (
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/belay-run/belay/internal/condition"
)

// Names of the responses that Belay speaks by itself. Each has a built-in text.
const (
	IncomingRejected  = "utter_incoming_message_rejected"   // a hook turned the user's message away
	IncomingHookError = "utter_incoming_message_hook_error" // a hook failed on the user's message
	RequestHookError  = "utter_model_request_hook_error"    // a hook failed on a model request
	ToolCallHookError = "utter_tool_call_hook_error"        // a hook failed on a tool call
	OutgoingRejected  = "utter_outgoing_text_rejected"      // stands for a text that a hook stopped
	InternalError     = "utter_internal_error"              // the turn failed
	MaxIterations     = "utter_max_iterations"              // the turn reached its cap
	EmptyResponse     = "utter_empty_response"              // the model had nothing to say
	ConfirmTool       = "utter_confirm_tool"                // asks before a tool runs; see [ConfirmVars]
	ConfirmDenied     = "utter_confirmation_denied"         // the user said no
)

// Names of the responses that Belay's own skills speak. Each has a built-in text.
const (
	AskContinue     = "utter_ask_wants_to_continue"          // after a skill: anything else?
	AskResume       = "utter_ask_wants_to_resume"            // back to {interrupted_task_name}?
	DeclineInDomain = "utter_decline_in_domain_out_of_scope" // the agent's subject, but nothing it can do
	DeclineOther    = "utter_decline_out_of_domain"          // not the agent's subject
)

// OfSkills are the responses that only an agent with skills ever says.
var OfSkills = []string{AskContinue, AskResume, DeclineInDomain, DeclineOther}

// Variant is one wording of a response.
type Variant struct {
	Text string
	// Condition is nil when the variant always fits.
	Condition *condition.Condition
	// Rephrase asks for a model to put the text in its own words.
	Rephrase bool
	// Where it stands; not set for a built-in text.
	File         string
	Line, Column int
}

// Book is the fixed texts of one agent. It is safe for use by many goroutines.
type Book struct {
	own     map[string][]Variant
	skills  map[string]map[string][]Variant // by the skill's id
	ids     []string                        // of skills, sorted
	builtin map[string][]Variant
	log     *slog.Logger
}

// New returns the texts for a language, such as "de" or "de-AT", with the
// author's own on top. A language without built-in texts gets the English ones.
func New(language string, own map[string][]Variant) *Book {
	return NewWithSkills(language, own, nil)
}

// NewWithSkills is [New] with the responses that the skills have of their own, by
// the skill's id.
func NewWithSkills(language string, own map[string][]Variant, skills map[string]map[string][]Variant) *Book {
	return &Book{own: own, skills: skills, ids: slices.Sorted(maps.Keys(skills)), builtin: builtin(language), log: slog.New(slog.DiscardHandler)}
}

// WithLog returns the book with a logger that hears of conditions that could not
// be evaluated.
func (b *Book) WithLog(log *slog.Logger) *Book {
	with := *b
	with.log = log
	return &with
}

// Pick returns the text of a response, with vars filled in, and whether it asks
// to be rephrased. It is not ok when there is no such response, or none of its
// variants fits.
func (b *Book) Pick(name string, vars map[string]any) (text string, rephrase, ok bool) {
	return b.PickIn("", name, vars)
}

// PickIn is [Book.Pick] for a text that is said while a skill is active: the skill's
// own response wins, then the project's, then that of another skill (the first by
// id), then the built-in one.
func (b *Book) PickIn(skill, name string, vars map[string]any) (text string, rephrase, ok bool) {
	for shelf := range b.shelves(skill) {
		for _, spelling := range spellings(name) {
			if v := b.choose(spelling, shelf[spelling], vars); v != nil {
				return fill(v.Text, vars), v.Rephrase, true
			}
		}
	}
	return "", false, false
}

// shelves goes through the places of texts, the one that wins first.
func (b *Book) shelves(skill string) iter.Seq[map[string][]Variant] {
	return func(yield func(map[string][]Variant) bool) {
		if own, ok := b.skills[skill]; ok && !yield(own) || !yield(b.own) {
			return
		}
		for _, id := range b.ids {
			if id != skill && !yield(b.skills[id]) {
				return
			}
		}
		yield(b.builtin)
	}
}

func (b *Book) choose(name string, variants []Variant, vars map[string]any) *Variant {
	var fallback *Variant
	for i := range variants {
		v := &variants[i]
		if v.Condition == nil {
			if fallback == nil {
				fallback = v
			}
			continue
		}
		holds, err := v.Condition.Holds(vars)
		if err != nil {
			// The error's text may quote a value, so it is not logged.
			b.log.Warn("a response's condition could not be evaluated; the variant is passed over",
				"response", name, "file", v.File, "line", v.Line, "condition", v.Condition.String())
			continue
		}
		if holds {
			return v
		}
	}
	return fallback
}

// Has says whether there is a response of that name.
func (b *Book) Has(name string) bool {
	return b.Own(name) || slices.ContainsFunc(spellings(name), func(s string) bool { return len(b.builtin[s]) > 0 })
}

// Own says whether the author wrote a response of that name, for the project or in
// a skill.
func (b *Book) Own(name string) bool {
	return slices.ContainsFunc(spellings(name), func(s string) bool {
		return len(b.own[s]) > 0 || slices.ContainsFunc(b.ids, func(id string) bool { return len(b.skills[id][s]) > 0 })
	})
}

// Names returns the names of all responses, sorted.
func (b *Book) Names() []string {
	all := map[string]bool{}
	for shelf := range b.shelves("") {
		for name := range shelf {
			all[name] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// outgoingRejectedLater is a later spelling of [OutgoingRejected].
const outgoingRejectedLater = "utter_outgoing_message_rejected"

// spellings returns the names under which a response is looked for, the one that
// wins first: of two spellings, the later one.
func spellings(name string) []string {
	if name == OutgoingRejected || name == outgoingRejectedLater {
		return []string{outgoingRejectedLater, OutgoingRejected}
	}
	return []string{name}
}

// HasLanguage says whether there are built-in texts for a language.
func HasLanguage(language string) bool {
	_, ok := texts[primary(language)]
	return ok
}

// primary is the first part of a language tag: "de" of "de-AT".
func primary(language string) string {
	p, _, _ := strings.Cut(strings.ReplaceAll(strings.ToLower(language), "_", "-"), "-")
	return p
}
