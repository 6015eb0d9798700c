package hook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// ParseDecision reads what a hook of a plugin answered at a point:
//
//	{"decision": "allow" | "deny" | "modify" | "escalate", "reason": "…", …}
//
// modify needs, and escalate may have, a new value under the point's one
// changeable field, such as "arguments" before a tool call. Every other key is
// ignored, and so is a reason that is no string.
//
// The reader is strict: whatever is not exactly one of the four words, in lower
// case, under exactly one key is a failure that names it, never "no opinion". Of
// an answer with two decisions a deny counts, since readers do not agree on which
// of the two is meant. Whether the new value fits the point, and whether the hook
// may answer so, is for [State.Fold] to judge; who knows a tool's input schema
// judges by that before the fold, and answers with a [WrongReturn] failure.
func ParseDecision(point *Point, raw []byte) Answer {
	raw = bytes.Trim(raw, space)
	switch {
	case len(raw) == 0:
		return Failed(WrongReturn, "the answer is empty")
	case !json.Valid(raw) || !utf8.Valid(raw):
		return Failed(WrongReturn, "the answer is not JSON")
	case raw[0] != '{':
		return Failed(WrongReturn, "the answer is %s, not an object", kindOf(raw))
	}
	return readDecision(raw, point).answer(point)
}

// decision is a plugin's answer, taken apart.
type decision struct {
	words  [][]byte // what stands under "decision"
	reason string
	notes  []string
	values [][]byte // what stands under the point's key
}

func readDecision(raw []byte, point *Point) decision {
	key := ""
	if i := point.Changeable(); i >= 0 {
		key = point.Fields[i].Name
	}
	var d decision
	eachMember(raw, func(quoted, value []byte) {
		switch name := unquote(quoted); {
		case name == "decision":
			d.words = append(d.words, value)
		case name == "reason" && value[0] == '"':
			d.reason = unquote(value)
		case name == "reason" && value[0] != 'n':
			d.notes = append(d.notes, "the reason was dropped: it is "+kindOf(value)+", not a string")
		case name == key:
			d.values = append(d.values, value)
		}
	})
	return d
}

func (d decision) answer(point *Point) Answer {
	word, failure := d.word()
	if failure != "" {
		return d.failed(failure)
	}
	v := Verdict{Reason: d.reason}
	switch word {
	case "allow":
		v.Kind = Continue
	case "deny":
		v.Kind = Reject
	case "modify":
		v.Kind = Continue
		if len(d.values) == 0 {
			return d.failed("modify without a value to put in place")
		}
	case "escalate":
		v.Kind = Hold
	default:
		return d.failed(fmt.Sprintf("%s is no decision: it is allow, deny, modify or escalate, in lower case", quote(word)))
	}
	if len(d.values) > 0 && (word == "modify" || word == "escalate") {
		field := point.Changeable()
		if len(d.values) > 1 {
			return d.failed(fmt.Sprintf("%q stands twice in the answer", point.Fields[field].Name))
		}
		if key, twice := doubledKey(d.values[0]); twice {
			return d.failed(fmt.Sprintf("key %s stands twice in one object of %q", quote(key), point.Fields[field].Name))
		}
		v.Changes = []Change{{Field: field, Value: bytes.Clone(d.values[0])}}
	}
	return Answer{Verdict: v, Notes: d.notes}
}

// word returns the one decision, or what is wrong with it.
func (d decision) word() (word, failure string) {
	for _, w := range d.words {
		if w[0] == '"' && unquote(w) == "deny" {
			return "deny", ""
		}
	}
	switch {
	case len(d.words) == 0:
		return "", "the answer has no decision"
	case len(d.words) > 1:
		return "", "the answer has two decisions"
	case d.words[0][0] != '"':
		return "", "the decision is " + kindOf(d.words[0]) + ", not a word"
	}
	return unquote(d.words[0]), ""
}

// failed gives the failure; the hook's own reason stays readable, since a person
// may have to decide now.
func (d decision) failed(what string) Answer {
	if d.reason != "" {
		what += "; it gave the reason " + quote(d.reason)
	}
	a := Failed(WrongReturn, "%s", what)
	a.Notes = d.notes
	return a
}

// quote writes a word of somebody else's so that it cannot pass for ours: in
// quotes, and not all of it when it is long.
func quote(word string) string {
	const most = 200
	if runes := []rune(word); len(runes) > most {
		word = string(runes[:most]) + "…"
	}
	return fmt.Sprintf("%q", word)
}
