package scripted

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/rawjson"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func script(t *testing.T, src string) *Script {
	t.Helper()
	s, found := Parse("script.yml", []byte(src))
	if len(found) > 0 {
		t.Fatalf("findings: %+v", found)
	}
	return s
}

// say writes messages: "role: text", and for a tool "tool NAME: result" after the
// call that it answers.
func messages(lines ...string) json.RawMessage {
	var out []json.RawMessage
	for i, line := range lines {
		role, text, _ := strings.Cut(line, ": ")
		if name, isTool := strings.CutPrefix(role, "tool "); isTool {
			id := fmt.Sprint("c", i)
			out = append(out, rawjson.Must(map[string]any{"role": "assistant", "content": nil, "tool_calls": []any{map[string]any{
				"id": id, "type": "function", "function": map[string]any{"name": name, "arguments": "{}"}}}}))
			out = append(out, rawjson.Must(map[string]any{"role": "tool", "tool_call_id": id, "content": text}))
			continue
		}
		out = append(out, rawjson.Must(map[string]any{"role": role, "content": text}))
	}
	return rawjson.List(out)
}

// request is one that offers the tools listen and book.
func request(lines ...string) chat.Request {
	return chat.Request{Messages: messages(lines...), Tools: []chat.Tool{{Name: "listen"}, {Name: "book"}}}
}

// told shows a completion in one line.
func told(r chat.Response, err error) string {
	if err != nil {
		return "error: " + err.Error()
	}
	out := "-"
	if r.Text != nil {
		out = *r.Text
	}
	for _, c := range r.ToolCalls {
		out += fmt.Sprintf(" %s%s", c.Name, c.Arguments)
	}
	return out
}

func TestConditions(t *testing.T) {
	s := script(t, `
rules:
  - when: {quiet: '^Reword'}
    say: Reworded.
  - when: {tool: find, result: '"free": \["(.*?)"'}
    say: "{1} is free."
  - when: {tool: find}
    say: Nothing is free.
  - when: {system: 'Do not claim (\w+)'}
    say: I claim no {1}.
  - when: {user: 'both', result: 'x'}
    say: Both.
  - when: {user: 'offered', offered: [book, cancel]}
    say: Offered.
  - when: {user: 'offered', offered: book}
    say: Only book is offered.
  - when: {user: '(?i)^book (?P<what>\w+) on (\w+)'}
    call: {tool: book, args: {what: "{what}", day: "{2}", n: 2, list: [a, {b: "{1}"}], yes: true, no: null}}
  - when: {last: '^ping$'}
    say: pong
default:
  say: What?
`)
	tests := []struct {
		name string
		req  chat.Request
		want string
	}{
		{"the user's words", request("system: s", "user: Book bikes on Monday"), `- book{"day":"Monday","list":["a",{"b":"bikes"}],"n":2,"no":null,"what":"bikes","yes":true}`},
		{"the last words count", request("user: book bikes on Monday", "assistant: Done.", "user: Thanks"), "What?"},
		{"a tool has answered", request("user: book bikes on Monday", "tool book: ok"), "What?"},
		{"a tool by name and result", request("user: book bikes on Monday", `tool find: {"free": ["9:00"]}`), "9:00 is free."},
		{"a tool by name", request("user: x", `tool find: {"free": []}`), "Nothing is free."},
		{"the last tool counts", request("user: x", `tool find: a`, "tool book: b"), "What?"},
		{"a tool of an earlier turn", request("user: x", "tool find: a", "assistant: b", "user: y"), "What?"},
		{"a note to the model, after a tool too", request("user: x", "tool book: a", "system: Do not claim bookings."), "I claim no bookings."},
		{"user and result", request("user: both", "tool book: x"), "Both."},
		{"user and result, without one", request("user: both"), "What?"},
		{"what is offered", request("user: offered"), "Only book is offered."},
		{"the last message", request("user: x", "assistant: ping"), "pong"},
		{"a quiet request", chat.Request{Messages: messages("system: s", "user: Reword this")}, "Reworded."},
		{"a quiet request that no rule is for", chat.Request{Messages: messages("user: book bikes on Monday")}, "error: the script has no rule for a request without tools, such as one to rephrase a text or any of an agent without tools; add a rule with when: {quiet: '.*'}"},
		{"a request with tools is not quiet", request("user: Reword this"), "What?"},
		{"content in parts", chat.Request{Tools: []chat.Tool{{Name: "t"}}, Messages: json.RawMessage(`[{"role":"user","content":[{"type":"text","text":"book cars"},{"type":"image_url"},"x",{"type":"text","text":" on Friday"}]}]`)}, "What?"},
		{"messages of any shape", chat.Request{Tools: []chat.Tool{{Name: "t"}}, Messages: json.RawMessage(`[{"role":1},{},[],null,{"role":"user","content":"book cars on Friday"}]`)}, `- book{"day":"Friday","list":["a",{"b":"cars"}],"n":2,"no":null,"what":"cars","yes":true}`},
		{"no messages", chat.Request{Messages: json.RawMessage(`[]`)}, "error: the scripted model cannot read the request: messages are no list, or an empty one"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := told(s.Complete(t.Context(), tt.req, nil)); got != tt.want {
				t.Errorf("%s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestAnswers(t *testing.T) {
	tests := []struct{ name, answer, want, finish string }{
		{"say", `say: Hello.`, "Hello.", "stop"},
		{"pieces", `pieces: ["Hel", "lo", 1]`, "Hello1", "stop"},
		{"a text and calls", "say: One moment.\n  call: [{tool: a}, {tool: b, args: {x: 1.5}}]", `One moment. a{} b{"x":1.5}`, "tool_calls"},
		{"arguments as text", `call: {tool: a, args: '{"n": {1}, "s":  "{{x}}"}'}`, `- a{"n": 7, "s":  "{x}"}`, "tool_calls"},
		{"arguments that are no JSON", `call: {tool: a, args: '{"n": {1}'}`, `- a"{\"n\": 7"`, "tool_calls"},
		{"arguments with marks", `call: {tool: a, args: {q: "<{1}>"}}`, `- a{"q":"<7>"}`, "tool_calls"},
		{"empty", `empty: true`, "-", "stop"},
		{"a blank text", `say: " "`, " ", "stop"},
		{"finish", "say: cut\n  finish: length", "cut", "length"},
		{"fail", `fail: {status: 503, message: no}`, "error: no", ""},
		{"fail after a text", "pieces: [a, b]\n  fail: {}", "error: the scripted model fails as its script says", ""},
		{"braces", `say: '{"a": {"b": {{1}}}}'`, `{"a": {"b": {1}}}`, "stop"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := script(t, "rules:\n- when: {user: 'n(\\d)'}\n  "+tt.answer+"\n")
			r, err := s.Complete(t.Context(), request("user: n7"), nil)
			if got := told(r, err); got != tt.want || r.Finish != tt.finish {
				t.Errorf("%s, finish %q\nwant %s, %q", got, r.Finish, tt.want, tt.finish)
			}
		})
	}
}

func TestEmptyAnswerIsEmpty(t *testing.T) {
	r, err := script(t, `default: {empty: true}`).Complete(t.Context(), request("user: x"), nil)
	if err != nil || !r.Empty() || r.Text != nil {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestFailure(t *testing.T) {
	_, err := script(t, `default: {fail: {status: 429}}`).Complete(t.Context(), request("user: x"), nil)
	var known *chat.Error
	if !errors.As(err, &known) || known.Status != 429 || known.Attempts != 1 {
		t.Errorf("error %#v", err)
	}
}

func TestCallIDs(t *testing.T) {
	s := script(t, `default: {answers: [{call: [{tool: a}, {tool: b}]}, {call: [{tool: a, id: mine}]}]}`)
	seen := map[string]bool{}
	for _, req := range []chat.Request{request("user: x"), request("user: x"), request("user: y")} {
		r, err := s.Complete(t.Context(), req, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range r.ToolCalls {
			if seen[c.ID] || c.ID == "" {
				t.Errorf("id %q", c.ID)
			}
			seen[c.ID] = true
		}
	}
	if !seen["mine"] {
		t.Error("the id of the script was not used")
	}
	again, err := script(t, `default: {call: [{tool: a}, {tool: b}]}`).Complete(t.Context(), request("user: y"), nil)
	if err != nil || !seen[again.ToolCalls[0].ID] {
		t.Errorf("the same request gets another id in another run: %+v, %v", again, err)
	}
}

func TestPiecesStreamWithDelays(t *testing.T) {
	s := script(t, `default: {pieces: [a, b, c], delay: 20ms}`)
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var at []string
		r, err := s.Complete(t.Context(), request("user: x"), func(p string) { at = append(at, fmt.Sprint(p, time.Since(began))) })
		if got := fmt.Sprint(at); err != nil || got != "[a20ms b40ms c60ms]" || r.Latency != 60*time.Millisecond {
			t.Errorf("%s, latency %v, %v", got, r.Latency, err)
		}
	})
}

func TestCallerCancelsADelay(t *testing.T) {
	s := script(t, `default: {pieces: [a, b], delay: 1h}`)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var got string
		go func() { time.Sleep(90 * time.Minute); cancel() }()
		_, err := s.Complete(ctx, request("user: x"), func(p string) { got += p })
		if !errors.Is(err, context.Canceled) || got != "a" {
			t.Errorf("%q, %v", got, err)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := script(t, `default: {say: a}`).Complete(ctx, request("user: x"), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled call was answered: %v", err)
	}
}

func TestSequence(t *testing.T) {
	s := script(t, `
rules:
  - when: {user: hi}
    answers:
      - empty: true
      - fail: {}
      - say: Hello.
`)
	ask := func(conversation string, lines ...string) string {
		return told(s.Complete(chat.WithConversation(t.Context(), conversation), request(lines...), nil))
	}
	failed := "error: the scripted model fails as its script says"
	for i, want := range []string{"-", failed, "Hello.", "Hello."} {
		if got := ask("a", "user: hi"); got != want {
			t.Errorf("answer %d is %q, want %q", i, got, want)
		}
	}
	if got := ask("b", "user: hi"); got != "-" {
		t.Errorf("another conversation went on in the first one's answers: %q", got)
	}
	if got := ask("a", "user: hi", "assistant: Hello.", "user: hi"); got != "-" {
		t.Errorf("another request of a conversation went on in the answers: %q", got)
	}
}

func TestManyConversationsAtOnce(t *testing.T) {
	s := script(t, `
rules:
  - when: {user: 'n(\d+)'}
    answers: [{empty: true}, {say: "a{1}"}]
`)
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			ctx := chat.WithConversation(t.Context(), fmt.Sprint(i))
			req := request("user: n" + fmt.Sprint(i%3))
			first, second := told(s.Complete(ctx, req, nil)), told(s.Complete(ctx, req, nil))
			if first != "-" || second != fmt.Sprint("a", i%3) {
				t.Errorf("conversation %d got %q, %q", i, first, second)
			}
		})
	}
	wg.Wait()
}

func TestSequencesAreForgotten(t *testing.T) {
	s := script(t, `default: {answers: [{empty: true}, {say: a}]}`)
	for i := range 3 * remembered {
		s.turn(place{conversation: fmt.Sprint(i)}, 2)
	}
	if n := len(s.young) + len(s.old); n > 2*remembered {
		t.Errorf("%d places are kept", n)
	}
	if s.turn(place{conversation: fmt.Sprint(3*remembered - 1)}, 2) != 1 {
		t.Error("the newest place was forgotten")
	}
}

// Every script in the manual is read without findings.
func TestManual(t *testing.T) {
	manual, err := os.ReadFile("../../../docs/scripted-model.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(manual), -1)
	if len(blocks) < 3 {
		t.Errorf("%d scripts in the manual", len(blocks))
	}
	for _, b := range blocks {
		if !strings.Contains(b[1], "rules:") && !strings.Contains(b[1], "default:") {
			continue // the agent's configuration
		}
		if _, found := Parse("manual", []byte(b[1])); len(found) > 0 {
			t.Errorf("%s\n%+v", b[1], found)
		}
	}
	for _, keys := range [][]string{scriptKeys, ruleKeys, whenKeys, callKeys, failKeys} {
		for _, key := range keys {
			if !strings.Contains(string(manual), "`"+key+"`") {
				t.Errorf("the manual does not explain %s", key)
			}
		}
	}
}

func TestFullNamesOfFunctions(t *testing.T) {
	for _, name := range []string{"git.push", "git__push"} {
		s := script(t, "rules:\n  - when: {tool: "+name+"}\n    say: Pushed.\n  - when: {offered: "+name+"}\n    call: {tool: "+name+"}\n")
		req := chat.Request{Messages: messages("user: push"), Tools: []chat.Tool{{Name: "git__push"}}}
		got, err := s.Complete(context.Background(), req, nil)
		if err != nil || len(got.ToolCalls) != 1 || got.ToolCalls[0].Name != "git__push" {
			t.Errorf("%s: called %+v, %v", name, got.ToolCalls, err)
		}
		req.Messages = messages("user: push", "tool git__push: done")
		if got, err := s.Complete(context.Background(), req, nil); told(got, err) != told(chat.Response{Text: new("Pushed.")}, nil) {
			t.Errorf("%s: after the result it said %s", name, told(got, err))
		}
	}
}
