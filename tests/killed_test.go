//go:build linux

package tests

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/belay-run/belay/internal/app/apptest"
	"github.com/belay-run/belay/internal/conversation"
)

// The agent that is killed. Its hooks and tools wait where they are told to, and
// its text streams: no hook holds it back.
var killedFiles = apptest.Files{
	"script.yml": `rules:
  - when: {user: 'quick (\d+)'}
    say: answer {1}
  - when: {user: 'look (\d+)'}
    say: let me look for {1}
    call: {tool: look_up, args: {item: "{1}"}}
  - when: {tool: look_up, result: '"item": "(\d+)"'}
    say: found {1}
  - when: {user: 'run slow'}
    say: this takes a while
    call: {tool: slow}
  - when: {user: 'pay (\d+)'}
    call: {tool: pay, args: '{"amount": {1}}'}
  - when: {user: '^yes'}
    call: {tool: resolve_tool_confirmation, args: {confirmed: true}}
  - when: {tool: resolve_tool_confirmation}
    say: it is done
  - when: {user: 'stream'}
    pieces: [ONES]
    delay: 200ms
  - when: {user: 'book'}
    call: {tool: book}
  - when: {tool: book}
    say: late
    delay: 60s
  - when: {user: 'think'}
    say: late
    delay: 60s
default:
  say: go on
`,
	"responses.yml": "responses:\n  utter_booked: [{text: Booked.}]\n",
	"tools/shop.py": `from __future__ import annotations

from belay.tools import ToolContext, ToolResult, tool
from lib.played import gate
from lib.probe import note


@tool(description="Looks an item up.")
async def look_up(context: ToolContext, item: str) -> ToolResult:
    note("look_up", sender_id=context.sender_id)
    return ToolResult(llm_response={"item": item})


@tool(description="Takes its time.", timeout=60)
async def slow(context: ToolContext) -> ToolResult:
    note("slow", sender_id=context.sender_id)
    await gate("never")
    return ToolResult(llm_response={"done": True})


@tool(description="Books.", on_success="utter_booked")
async def book(context: ToolContext) -> ToolResult:
    return ToolResult(llm_response={"booked": True})


@tool(description="Pays.", requires_confirmation=True)
async def pay(context: ToolContext, amount: int) -> ToolResult:
    note("pay", sender_id=context.sender_id, amount=amount)
    return ToolResult(llm_response={"paid": amount})
`,
}

// talker says one thing after another and keeps what it knows of the record: the
// turns that were answered, and what else was there after a kill.
type talker struct {
	sender string
	record []string
}

// talk goes on until no answer comes.
func (k *talker) talk(s *service, round int, answered *atomic.Int64) {
	for n := 0; ; n++ {
		number := fmt.Sprintf("%d%04d", round, n)
		text := "quick " + number
		want := []string{"answer " + number}
		record := []string{"user: " + text, "bot: " + want[0]}
		if n%2 == 1 {
			text = "look " + number
			want = []string{"let me look for " + number, "found " + number}
			record = []string{"user: " + text, "bot: " + want[0], `tool look_up: {"item": "` + number + `"}`, "bot: " + want[1]}
		}
		got, err := s.say(k.sender, text, nil)
		if err != nil {
			return
		}
		if !slices.Equal(got, want) {
			s.t.Errorf("%s heard %q, want %q", k.sender, got, want)
		}
		k.record = append(k.record, record...)
		answered.Add(1)
	}
}

const unknown = ": " + conversation.Unknown

// look compares the record with what the talker knows. Of the message that was
// not answered any part may be there.
func (k *talker) look(t *testing.T, s *service) {
	t.Helper()
	got := slices.DeleteFunc(s.said(k.sender), func(e string) bool { return strings.HasSuffix(e, unknown) })
	n := len(k.record)
	if len(got) < n || !slices.Equal(got[:n], k.record) {
		t.Fatalf("%s: of what was answered\n%q\nthe record has\n%q", k.sender, k.record, got)
	}
	if rest := got[n:]; len(rest) > 4 || len(rest) > 0 && !strings.HasPrefix(rest[0], "user: ") {
		t.Errorf("%s: beyond what was answered the record has %q", k.sender, rest)
	}
	k.record = got
	for i, e := range s.tracker(k.sender) {
		if e.Metadata["seq"] != float64(i+1) {
			t.Errorf("%s: event %d has the number %v", k.sender, i+1, e.Metadata["seq"])
		}
	}
}

// pending sends a message whose answer never comes whole, and gives its texts as
// they come.
func pending(t *testing.T, wg *sync.WaitGroup, s *service, sender, text string, does bodies) <-chan string {
	lines := make(chan string, 16)
	wg.Go(func() {
		defer close(lines)
		r, err := s.post(context.Background(), sender, text, does, true)
		if err != nil {
			return
		}
		defer r.Body.Close()
		for b := bufio.NewReader(r.Body); ; {
			line, err := b.ReadString('\n')
			if err != nil {
				return
			}
			lines <- line
		}
	})
	return lines
}

// firstPiece sends a message and returns when the first piece of the answer is
// there.
func firstPiece(t *testing.T, wg *sync.WaitGroup, s *service, sender string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, s.url+"/v1/conversations/"+sender+"/messages", strings.NewReader(`{"message": "stream"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream")
	r, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	b := bufio.NewReader(r.Body)
	for {
		line, err := b.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(line, `{"text":"piece "}`) {
			break
		}
	}
	wg.Go(func() {
		_, _ = io.Copy(io.Discard, b)
		_ = r.Body.Close()
	})
}

// lastWords are what a hook does when the service is killed: a worker must not
// live on because its interpreter does not come round to see that.
var lastWords = []string{"", "time.sleep(600)", "import ctypes\nctypes.CDLL(None).fork() or time.sleep(600)\nctypes.PyDLL(None).sleep(600)"}

func TestKilledInTheMiddle(t *testing.T) {
	t.Parallel()
	files := maps.Clone(killedFiles)
	files["script.yml"] = strings.Replace(files["script.yml"], "ONES", strings.Repeat(`"piece ", `, 200)+`"end"`, 1)
	maps.Copy(files, playedHooks(longLimit, "on_turn_started", "on_incoming_message", "modify_incoming_message", "on_model_request", "modify_model_request",
		"on_model_response", "on_tool_call", "on_tool_result", "modify_tool_result", "on_outgoing_text", "on_turn_finished"))
	belay, dir := program(t), apptest.Folder(t, files)
	talkers := make([]*talker, 6)
	for i := range talkers {
		talkers[i] = &talker{sender: fmt.Sprint("talker-", i)}
	}
	s := serve(t, belay, dir)
	for round := range 3 {
		var wg sync.WaitGroup
		var answered atomic.Int64
		for _, k := range talkers {
			wg.Go(func() { k.talk(s, round, &answered) })
		}
		in := func(what string) string { return fmt.Sprint(what, "-", round) }
		if texts, err := s.say(in("confirm"), "pay 12", nil); err != nil || len(texts) != 1 || !strings.Contains(texts[0], "pay") {
			t.Fatalf("the confirmation is asked for by %q, %v", texts, err)
		}
		tool := pending(t, &wg, s, in("tool"), "run slow", nil)
		result := pending(t, &wg, s, in("result"), "look 7", bodies{"modify_tool_result": "note('gate', sender_id=p.sender_id)\nawait gate('never')"})
		pending(t, &wg, s, in("incoming"), "hello", bodies{"modify_incoming_message": "note('gate', sender_id=p.sender_id)\nawait gate('never')"})
		pending(t, &wg, s, in("model"), "think", nil)
		booked := pending(t, &wg, s, in("booked"), "book", nil)
		firstPiece(t, &wg, s, in("stream"))
		for want, lines := range map[string]<-chan string{"this takes a while": tool, "let me look for 7": result, "Booked.": booked} {
			if got := <-lines; !strings.Contains(got, want) { // it has left, so what it depended on is on disk
				t.Fatalf("the first text is %q, want %q", got, want)
			}
		}
		until(t, "every kind of turn is under way", func() bool {
			return s.notes(in("tool"), "slow") == 1 && s.notes(in("result"), "gate") == 1 && s.notes(in("incoming"), "gate") == 1 &&
				s.notes(in("model"), "on_model_request") == 1 && answered.Load() > 40
		})
		if how := lastWords[round]; how != "" {
			pending(t, &wg, s, in("last"), "hello", bodies{"modify_incoming_message": "note('last', sender_id=p.sender_id)\n" + how})
			until(t, "the last hook has begun", func() bool { return s.notes(in("last"), "last") == 1 })
		}
		workers := processesIn(t, dir)
		s.kill()
		wg.Wait()
		t.Run(in("no worker lives on"), func(t *testing.T) {
			if len(workers) < 2 {
				t.Errorf("there were the processes %v", workers)
			}
			untilGone(t, dir)
		})

		s = serve(t, belay, dir)
		t.Run(in("every answered turn is there"), func(t *testing.T) {
			for _, k := range talkers {
				k.look(t, s)
			}
			expect(t, "the record of a filler that left", s.said(in("tool")), []string{"user: run slow", "bot: this takes a while"})
			expect(t, "the record of another", s.said(in("result")), []string{"user: look 7", "bot: let me look for 7"})
			expect(t, "the record of a text after a tool", s.said(in("booked")), []string{"user: book", `tool book: {"booked": true}`, "bot: Booked."})
			expect(t, "the record of a piece that left", s.said(in("stream")), []string{"user: stream"})
			if got := s.said(in("incoming")); len(got) != 0 {
				t.Errorf("before its hooks had passed it the message was stored: %q", got)
			}
		})
		t.Run(in("a tool that ran is unknown and does not run again"), func(t *testing.T) {
			for sender, name := range map[string]string{in("tool"): "slow", in("result"): "look_up"} {
				s.goesOn(t, sender, "hello", "go on")
				want := append(s.said(sender)[:2:2], "tool "+name+unknown, "user: hello", "bot: go on")
				expect(t, sender, s.said(sender), want)
				if n := s.notes(sender, name); n != 1 {
					t.Errorf("%s ran %d times", name, n)
				}
				if !slices.ContainsFunc(s.tracker(sender), func(e conversation.Exported) bool { return e.Event == string(conversation.TurnInterrupted) }) {
					t.Errorf("%s: the record says nothing of the interruption", sender)
				}
			}
		})
		t.Run(in("the conversations go on"), func(t *testing.T) {
			for _, what := range []string{"incoming", "model", "stream", "booked"} {
				s.goesOn(t, in(what), "hello", "go on")
			}
			s.goesOn(t, in("confirm"), "yes", "it is done")
			if n := s.notes(in("confirm"), "pay"); n != 1 {
				t.Errorf("the confirmed tool ran %d times", n)
			}
			if got := s.said(in("confirm")); !slices.Contains(got, `tool pay: {"paid": 12}`) {
				t.Errorf("the record has %q", got)
			}
		})
	}
	for _, k := range talkers {
		s.goesOn(t, k.sender, "quick 99", "answer 99")
	}
	s.stop()
	untilGone(t, dir)
}

// goesOn fails the test unless a conversation answers as it should.
func (s *service) goesOn(t *testing.T, sender, text, want string) {
	t.Helper()
	if texts, err := s.say(sender, text, nil); err != nil || !slices.Equal(texts, []string{want}) {
		t.Errorf("%s heard %q, %v; want %q\n%s", sender, texts, err, want, s.log)
	}
}
