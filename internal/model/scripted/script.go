// Package scripted is a chat model that answers from a script: a YAML file with
// rules of the kind "when the user says this, say that, or call these tools".
// Demos and tests run on it without a key or a network.
//
//	rules:
//	  - when: {user: 'book .* on (\w+)'}
//	    call: {tool: find_slots, args: {day: "{1}"}}
//	  - when: {tool: find_slots}
//	    say: Ten o'clock is free.
//	default:
//	  say: I can only book appointments.
//
// [Parse] reads a script; what is wrong with it comes back as findings.
// A [Script] is a chat.Model. Its answers follow from the request alone, so one
// script serves any number of conversations at once. The one exception is a rule
// with several answers, which gives the next one each time the same conversation
// asks with the same messages; the conversation is that of chat.WithConversation.
//
// docs/scripted-model.md is the manual for authors.
package scripted

import (
	"regexp"
	"sync"
	"time"
)

// Name is the name of the model, which says that no model is behind it.
const Name = "scripted"

// Script is a model that answers by rules.
type Script struct {
	rules    []rule
	fallback *rule // answers when no rule holds; may be nil

	mu         sync.Mutex
	young, old map[place]int // how often a rule with several answers has answered
}

// rule is a condition with what is answered when it holds.
type rule struct {
	when    condition
	answers []answer // at least one; the last one is given again
}

// condition is what must hold, all of it. Patterns that are nil hold always.
type condition struct {
	user   *regexp.Regexp // the last user message
	tool   string         // who gave the last tool result of this turn
	result *regexp.Regexp // the last tool result of this turn
	system *regexp.Regexp // any system message
	last   *regexp.Regexp // the last message, whoever wrote it
	quiet  *regexp.Regexp // the last message of a request that offers no tools
	fill   *regexp.Regexp // the user's last message, of a request to fill in fields
	offers []string       // tools that the request must offer
}

// answer is one completion.
type answer struct {
	pieces []string
	delay  time.Duration // before each piece, or before an answer without text
	calls  []call
	fail   *fail
	finish string
}

type call struct {
	tool string
	id   string // "" for one of the script's own
	// args is the tree of the arguments. A text is the arguments' own text,
	// JSON or not.
	args any
}

type fail struct {
	status  int
	message string
}
