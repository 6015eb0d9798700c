package hook

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func TestParseDecision(t *testing.T) {
	call := PointNamed(PreToolCall)
	for raw, want := range map[string]string{
		`{"decision":"allow"}`:                                      `{"kind":"continue"}`,
		` {"decision": "allow", "reason": "fine"} `:                 `{"kind":"continue","reason":"fine"}`,
		`{"decision":"allow","arguments":{"n":2}}`:                  `{"kind":"continue"}`,
		`{"decision":"deny","reason":"no","arguments":5}`:           `{"kind":"reject","reason":"no"}`,
		`{"decision":"deny"}`:                                       `{"kind":"reject"}`,
		`{"decision":"modify","arguments":{"n":2},"tool":"other"}`:  `{"kind":"continue","changes":[{"field":4,"value":{"n":2}}]}`,
		`{"decision":"modify","arguments":5}`:                       `{"kind":"continue","changes":[{"field":4,"value":5}]}`, // the fold refuses it
		`{"decision":"modify","arguments":{"n":9007199254740993}}`:  `{"kind":"continue","changes":[{"field":4,"value":{"n":9007199254740993}}]}`,
		`{"decision":"escalate","reason":"odd"}`:                    `{"kind":"hold","reason":"odd"}`,
		`{"decision":"escalate","reason":null,"arguments":{}}`:      `{"kind":"hold","changes":[{"field":4,"value":{}}]}`,
		`{"\u0064ecision":"d\u0065ny"}`:                             `{"kind":"reject"}`,
		`{"decision":"deny","reason":7}`:                            `{"kind":"reject"}`,
		`{"decision":"allow","decision":"deny"}`:                    `{"kind":"reject"}`,
		`{"decision":"deny","decision":"allow"}`:                    `{"kind":"reject"}`,
		`{"decision":5,"decision":"deny"}`:                          `{"kind":"reject"}`,
		`{"x":[{"decision":"deny"}],"y":"\"}","decision":"allow"}`:  `{"kind":"continue"}`,
		`{"decision":"allow","Decision":"deny","decision ":"deny"}`: `{"kind":"continue"}`,
	} {
		a := ParseDecision(call, []byte(raw))
		if a.Failure != nil || asJSON(t, a.Verdict) != want {
			t.Errorf("%s\nis  %s %v\nnot %s", raw, asJSON(t, a.Verdict), a.Failure, want)
		}
	}
	for raw, want := range map[string]string{
		``:                                    "the answer is empty",
		"  \n":                                "the answer is empty",
		`null`:                                "the answer is null, not an object",
		`[{"decision":"allow"}]`:              "the answer is a list",
		`"allow"`:                             "the answer is a string",
		`{"decision":"allow"} {}`:             "not JSON",
		"Starting…\n{\"decision\":\"allow\"}": "not JSON",
		"{\"decision\":\"allow\",\"x\":\"\xff\"}": "not JSON",
		`{}`:                                                  "the answer has no decision",
		`{"Decision":"deny"}`:                                 "the answer has no decision",
		`{"decision":null}`:                                   "the decision is null, not a word",
		`{"decision":true}`:                                   "the decision is a boolean",
		`{"decision":["allow"]}`:                              "the decision is a list",
		`{"decision":""}`:                                     `"" is no decision`,
		`{"decision":"Allow"}`:                                `"Allow" is no decision`,
		`{"decision":"DENY"}`:                                 `"DENY" is no decision`,
		`{"decision":"allow "}`:                               `"allow " is no decision`,
		`{"decision":"reject","reason":"really"}`:             `"reject" is no decision: it is allow, deny, modify or escalate, in lower case; it gave the reason "really"`,
		`{"decision":"allow","decision":"allow"}`:             "two decisions",
		`{"decision":"modify"}`:                               "modify without a value",
		`{"decision":"modify","result":{}}`:                   "modify without a value",
		`{"decision":"modify","arguments":{},"arguments":{}}`: `"arguments" stands twice`,
		`{"decision":"escalate","arguments":{},"\u0061rguments":{}}`:            `"arguments" stands twice`,
		`{"decision":"modify","arguments":{"to":"ann","to":"bob"}}`:             `key "to" stands twice`,
		`{"decision":"modify","arguments":{"a":[{"t\u006f":1,"x":{},"to":2}]}}`: `key "to" stands twice`,
		`{"decision":"` + strings.Repeat("ä", 5000) + `"}`:                      "ä…\" is no decision",
	} {
		a := ParseDecision(call, []byte(raw))
		if a.Failure == nil || a.Failure.Kind != WrongReturn || !strings.Contains(a.Failure.Message, want) || len(a.Failure.Message) > 1000 {
			t.Errorf("%.200s\nis %s %v, want a failure with %q", raw, asJSON(t, a.Verdict), a.Failure, want)
		}
		if a.Verdict.Kind != Reject {
			t.Errorf("%s: the verdict beside the failure is %s", raw, a.Verdict.Kind)
		}
	}
	t.Run("each point has its own key", func(t *testing.T) {
		for point, key := range map[string]string{PreToolCall: "arguments", PostToolCall: "result", JobStart: "input", JobEnd: "output", PreLLMCall: "messages"} {
			p := PointNamed(point)
			a := ParseDecision(p, []byte(`{"decision":"modify","arguments":[],"result":[],"input":[],"output":[],"messages":[]}`))
			if a.Failure != nil || len(a.Verdict.Changes) != 1 || p.Fields[a.Verdict.Changes[0].Field].Name != key {
				t.Errorf("%s: %+v", point, a)
			}
		}
	})
	t.Run("a reason that is no string is dropped and said", func(t *testing.T) {
		if a := ParseDecision(call, []byte(`{"decision":"deny","reason":{}}`)); len(a.Notes) != 1 || !strings.Contains(a.Notes[0], "an object") {
			t.Errorf("notes are %q", a.Notes)
		}
	})
	t.Run("what cannot be used becomes what the policy says, with the word in the reason", func(t *testing.T) {
		s, runs := folded(t, chain(t, passing("a", PreToolCall)), pluginCall(`{}`), ParseDecision(call, []byte(`{"decision":"alow"}`)))
		if s.End.Kind != Reject || !strings.Contains(s.End.Reason, `"alow" is no decision`) || runs[0].Failure.Kind != WrongReturn {
			t.Errorf("ended as %s", asJSON(t, s.End))
		}
	})
	t.Run("the value does not share bytes with the answer", func(t *testing.T) {
		raw := []byte(`{"decision":"modify","arguments":{"n":1}}`)
		a := ParseDecision(call, raw)
		for i := range raw {
			raw[i] = 'x'
		}
		if string(a.Verdict.Changes[0].Value) != `{"n":1}` {
			t.Error("it does")
		}
	})
}

// Whatever an answer is, it never reads as a softer decision than an ordinary
// JSON reader could see in it.
func FuzzParseDecision(f *testing.F) {
	for _, seed := range []string{`{"decision":"allow"}`, `{"decision":"deny","decision":"allow"}`, `{"decision":"modify","arguments":{"a":[1,{"b":"\\\""}]}}`,
		`{"decision":"escalate","reason":"\u00e4"}`, `{"decision":"alow"}`, `[]`, ``, `{"a":{"decision":"deny"},"decision":"allow"}`} {
		f.Add([]byte(seed))
	}
	point := PointNamed(PreToolCall)
	f.Fuzz(func(t *testing.T, raw []byte) {
		given := bytes.Clone(raw)
		a := ParseDecision(point, raw)
		if !bytes.Equal(given, raw) {
			t.Fatal("it wrote to the answer")
		}
		var plain map[string]json.RawMessage
		err := json.Unmarshal(raw, &plain)
		if a.Failure != nil {
			if a.Failure.Kind != WrongReturn || a.Failure.Message == "" {
				t.Fatalf("failure is %+v", a.Failure)
			}
			return
		}
		if err != nil || plain == nil {
			t.Fatalf("an answer that is no object was read as %+v", a.Verdict)
		}
		var word string
		if json.Unmarshal(plain["decision"], &word) != nil {
			t.Fatalf("no word was read as %+v", a.Verdict)
		}
		want := map[string]Kind{"allow": Continue, "modify": Continue, "deny": Reject, "escalate": Hold}
		kind, known := want[word]
		if !known && a.Verdict.Kind != Reject {
			t.Fatalf("%q was read as %s", word, a.Verdict.Kind)
		}
		if known && kind != a.Verdict.Kind && a.Verdict.Kind != Reject { // of two decisions a deny counts
			t.Fatalf("%q was read as %s", word, a.Verdict.Kind)
		}
		if changes := a.Verdict.Changes; (word == "modify" && a.Verdict.Kind == Continue) != (len(changes) == 1) && word != "escalate" {
			t.Fatalf("%q has changes %+v", word, changes)
		} else if len(changes) == 1 && !sameJSON(changes[0].Value, plain["arguments"]) {
			t.Fatalf("the value is %s, an ordinary reader sees %s", changes[0].Value, plain["arguments"])
		}
	})
}
