package hook

import (
	"strings"
	"testing"
)

// decide answers what waits.
func decide(t testing.TB, s State, yes bool) (State, error) {
	t.Helper()
	next, err := s.Decide(Decision{Yes: yes, Digest: s.Digest()})
	if err != nil {
		t.Fatal(err)
	}
	return next, nil
}

func threeHooks(t testing.TB) *Chain {
	return chain(t, passing("one", PreToolCall), passing("two", PreToolCall), passing("three", PreToolCall))
}

func TestAHoldWaitsAtItsPlace(t *testing.T) {
	s, _ := folded(t, threeHooks(t), pluginCall(`{"n":1}`), says(Go()), says(HoldFor("over 500", args(`{"n":2}`))))
	if s.Next() != NeedPerson || string(s.Payload.Get("arguments")) != `{"n":2}` {
		t.Fatalf("waits with %s", asJSON(t, s.Payload))
	}
	t.Run("yes goes on there with exactly that value", func(t *testing.T) {
		s, _ := decide(t, s, true)
		if s.Next() != NeedHook || s.At != 2 {
			t.Fatalf("needs %d at %d", s.Next(), s.At)
		}
		s, _ = s.Fold(says(Go()))
		if s.End.Kind != Continue || string(s.End.Payload.Get("arguments")) != `{"n":2}` {
			t.Fatalf("ended as %s", asJSON(t, s.End))
		}
	})
	t.Run("no ends it there, with the hook's reason", func(t *testing.T) {
		s, _ := decide(t, s, false)
		if !s.Over || s.End.Kind != Reject || s.End.Reason != "over 500" || !s.End.Refused || s.End.Hook.Name != "two" {
			t.Fatalf("ended as %s", asJSON(t, s.End))
		}
	})
	t.Run("a deadline counts as no and says so, but nobody refused", func(t *testing.T) {
		s, err := s.Decide(Decision{Yes: true, Expired: true, Digest: s.Digest()})
		if err != nil || s.End.Kind != Reject || s.End.Reason != "over 500; nobody decided in time" || s.End.Refused {
			t.Fatalf("ended as %s, %v", asJSON(t, s.End), err)
		}
	})
}

func TestADecisionIsBoundToWhatWasShown(t *testing.T) {
	c := threeHooks(t)
	one, _ := folded(t, c, pluginCall(`{"n":1}`), says(HoldFor("first")))
	t.Run("a yes to another value", func(t *testing.T) {
		other, _ := folded(t, c, pluginCall(`{"n":2}`), says(HoldFor("first")))
		if s, err := one.Decide(Decision{Yes: true, Digest: other.Digest()}); err == nil || s.Next() != NeedPerson {
			t.Fatalf("it was taken: %+v", s)
		}
	})
	t.Run("a yes to another hook's question about the same value", func(t *testing.T) {
		s, _ := decide(t, one, true)
		s, _ = s.Fold(says(HoldFor("second")))
		if _, err := s.Decide(Decision{Yes: true, Digest: one.Digest()}); err == nil {
			t.Fatal("a late second click was taken for the next answer")
		}
	})
	t.Run("an empty digest", func(t *testing.T) {
		if _, err := one.Decide(Decision{Yes: true}); err == nil {
			t.Fatal("it was taken")
		}
	})
	t.Run("a decision that nobody asked for", func(t *testing.T) {
		s := Begin(c, pluginCall(`{}`))
		if _, err := s.Decide(Decision{Yes: true, Digest: s.Digest()}); err == nil {
			t.Fatal("it was taken")
		}
		over, _ := decide(t, one, false)
		if _, err := over.Decide(Decision{Yes: true, Digest: over.Digest()}); err == nil {
			t.Fatal("a second answer was taken")
		}
	})
	t.Run("what two contents have in common does not make their digests one", func(t *testing.T) {
		a := pluginCall(`{}`).Set("tool", "a").Set("commands", "b")
		b := pluginCall(`{}`).Set("tool", "ab").Set("commands", "")
		c := pluginCall(`{}`).Set("tool", "a")
		if a.Digest() == b.Digest() || a.Digest() == c.Digest() || c.Digest() == c.Set("commands", "").Digest() {
			t.Fatal("they are one")
		}
		if NewPayload(PointNamed(JobStart)).Digest() == NewPayload(PointNamed(JobEnd)).Digest() {
			t.Fatal("two points have one digest")
		}
	})
}

func TestAYesIsForTheValueThatWasShown(t *testing.T) {
	c := threeHooks(t)
	held := func(answers ...Answer) State {
		s := Begin(c, pluginCall(`{"n":1}`))
		for _, a := range answers {
			s, _ = s.Fold(a)
			if s.Next() == NeedPerson && s.At < 3 {
				s, _ = decide(t, s, true)
			}
		}
		return s
	}
	reasonsOf := func(s State) string { return reasons(s.Open()) }

	t.Run("unchanged, nobody is asked again", func(t *testing.T) {
		if s := held(says(HoldFor("a")), says(Go()), says(Go())); !s.Over || s.End.Kind != Continue {
			t.Fatalf("%s", asJSON(t, s))
		}
	})
	t.Run("changed later, it is asked once more at the end, with all reasons", func(t *testing.T) {
		s := held(says(HoldFor("a")), says(HoldFor("b")), says(Go(args(`{"n":2}`))))
		if s.Next() != NeedPerson || reasonsOf(s) != "a; b" {
			t.Fatalf("asks about %q", reasonsOf(s))
		}
		yes, _ := decide(t, s, true)
		if yes.End.Kind != Continue || string(yes.End.Payload.Get("arguments")) != `{"n":2}` {
			t.Fatalf("%s", asJSON(t, yes))
		}
		no, _ := decide(t, s, false)
		if no.End.Kind != Reject || no.End.Reason != "a; b" || !no.End.Refused {
			t.Fatalf("%s", asJSON(t, no))
		}
	})
	t.Run("changed and changed back, nobody is asked again", func(t *testing.T) {
		if s := held(says(HoldFor("a")), says(Go(args(`{"n":2}`))), says(Go(args(`{"n": 1}`)))); !s.Over || s.End.Kind != Continue {
			t.Fatalf("%s", asJSON(t, s))
		}
	})
	t.Run("a later hold on another value asks for the earlier ones too", func(t *testing.T) {
		s := held(says(HoldFor("a")), says(Go(args(`{"n":2}`))))
		s, _ = s.Fold(says(HoldFor("c")))
		if reasonsOf(s) != "a; c" {
			t.Fatalf("asks about %q", reasonsOf(s))
		}
		if s, _ = decide(t, s, true); s.End.Kind != Continue {
			t.Fatalf("%s", asJSON(t, s))
		}
	})
	t.Run("a hold that changes the value itself is asked on the new one", func(t *testing.T) {
		s := held(says(HoldFor("a")), says(Go()))
		s, _ = s.Fold(says(HoldFor("c", args(`{"n":3}`))))
		if reasonsOf(s) != "a; c" || string(s.Payload.Get("arguments")) != `{"n":3}` {
			t.Fatalf("asks about %q on %s", reasonsOf(s), asJSON(t, s.Payload))
		}
	})
	t.Run("a deny after a yes still ends it", func(t *testing.T) {
		s := held(says(HoldFor("a")), says(RejectFor("no")))
		if s.End.Kind != Reject || s.End.Refused || !strings.Contains(s.End.Reason, "no") {
			t.Fatalf("%s", asJSON(t, s))
		}
	})
}
