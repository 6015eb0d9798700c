//go:build linux

package tests

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/belay-run/belay/internal/app/apptest"
	"github.com/belay-run/belay/internal/conversation"
)

func TestKilledInABlock(t *testing.T) {
	t.Parallel()
	files := maps.Clone(orderFiles)
	files["script.yml"] = `rules:
  - when: {user: 'order', offered: activate}
    call: {tool: activate, args: {target_id: order}}
  - when: {user: '^item (.*)$'}
    call: {tool: set_fields, args: {item: "{1}"}}
  - when: {user: '^street (.*)$'}
    call: {tool: set_fields, args: {street: "{1}"}}
  - when: {user: 'right'}
    call: {tool: set_fields, args: {right: true}}
  - when: {user: '^yes', offered: resolve_tool_confirmation}
    call: {tool: resolve_tool_confirmation, args: {confirmed: true}}
default:
  say: go on
`
	maps.Copy(files, playedHooks(longLimit, "on_turn_started"))
	belay, dir := program(t), apptest.Folder(t, files)
	s := serve(t, belay, dir)
	var wg sync.WaitGroup
	talks := func(sender string, texts ...string) (heard []string) {
		t.Helper()
		for _, text := range texts {
			got, err := s.say(sender, text, nil)
			if err != nil {
				t.Fatalf("%s, %q: %v\n%s", sender, text, err, s.log)
			}
			heard = got
		}
		return heard
	}
	expect(t, "before the tool", talks("tool", "order"), []string{"Hello.", "Which item?"})
	pending(t, &wg, s, "tool", "item slow", nil)
	expect(t, "before the confirmed tool", talks("confirmed", "order", "item lamp", "street slow", "right"), []string{"Reserve lamp?"})
	pending(t, &wg, s, "confirmed", "yes", nil)
	expect(t, "before the answer", talks("asked", "order", "item lamp", "street Elm", "right"), []string{"Reserve lamp?"})
	expect(t, "in a question", talks("collect", "order", "item lamp"), []string{"Which street?"})
	until(t, "both tools run", func() bool { return s.notes("tool", "tool quote") == 1 && s.notes("confirmed", "tool reserve") == 1 })
	s.kill()
	wg.Wait()
	s = serve(t, belay, dir)

	t.Run("killed in a block's tool: its outcome is unknown, it does not run again, and the block goes on", func(t *testing.T) {
		expect(t, "heard", talks("tool", "hello"), []string{"Which street?"})
		if got := s.said("tool"); !slices.Contains(got, "tool quote"+unknown) {
			t.Errorf("the record has %q", got)
		}
		expect(t, "how often it ran", s.notes("tool", "tool quote"), 1)
		expect(t, "after it", s.notes("tool", "tool tax"), 1)
		expect(t, "heard then", talks("tool", "street Elm"), []string{"go on"})
	})
	t.Run("killed in a block's confirmed tool: the same", func(t *testing.T) {
		expect(t, "heard", talks("confirmed", "hello"), []string{"go on", "Thank you.", anythingElse})
		got := s.said("confirmed")
		if !slices.Contains(got, "tool reserve"+unknown) || !slices.ContainsFunc(got, func(e string) bool {
			return strings.HasPrefix(e, "tool resolve_tool_confirmation: The call of reserve") && strings.HasSuffix(e, conversation.Unknown)
		}) {
			t.Errorf("the record has %q", got)
		}
		expect(t, "how often it ran", s.notes("confirmed", "tool reserve"), 1)
	})
	t.Run("killed between two turns: a confirmation and a question are still there", func(t *testing.T) {
		expect(t, "heard after yes", talks("asked", "yes"), []string{"Reserved as R1.", "go on", "Thank you.", anythingElse})
		expect(t, "how often it ran", s.notes("asked", "tool reserve"), 1)
		expect(t, "heard after the street", talks("collect", "street Elm"), []string{"go on"})
		for _, tool := range []string{"tool quote", "tool tax"} {
			expect(t, tool, s.notes("collect", tool), 1)
		}
	})
	s.stop()
	untilGone(t, dir)
}
