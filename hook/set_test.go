package hook

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
)

func names(hooks []*Hook) string {
	var out []string
	for _, h := range hooks {
		out = append(out, h.Name)
	}
	return strings.Join(out, " ")
}

func chainNames(c *Chain) string {
	if c == nil {
		return ""
	}
	return names(c.modify)
}

func TestMatch(t *testing.T) {
	at := func(name, point string, m Match) *Hook {
		h := passing(name, point)
		h.Match = m
		return h
	}
	e := mustEngine(t, nil,
		at("all", PreToolCall, Match{}),
		at("pay", PreToolCall, Match{Tools: []string{"bank.pay", "bank.move"}}),
		at("teller", PreToolCall, Match{Agents: []string{"teller"}}),
		at("both", PreToolCall, Match{Tools: []string{"bank.pay"}, Agents: []string{"teller", "boss"}}),
		at("job", JobStart, Match{Agents: []string{"boss"}}),
		passing("end", JobEnd))
	for _, c := range []struct {
		point string
		who   Who
		want  string
	}{
		{PreToolCall, Who{Agent: "teller", Tool: "bank.pay"}, "all pay teller both"},
		{PreToolCall, Who{Agent: "boss", Tool: "bank.pay"}, "all pay both"},
		{PreToolCall, Who{Agent: "teller", Tool: "bank.payout"}, "all teller"},
		{PreToolCall, Who{Agent: "Teller", Tool: "Bank.pay"}, "all"},
		{PreToolCall, Who{}, "all"},
		{JobStart, Who{Agent: "boss"}, "job"},
		{JobStart, Who{Agent: "teller"}, ""},
		{JobEnd, Who{Agent: "teller"}, "end"},
		{PostToolCall, Who{Agent: "teller", Tool: "bank.pay"}, ""},
	} {
		got := e.Chain(PointNamed(c.point), c.who)
		if chainNames(got) != c.want || (c.want == "") != (got == nil) {
			t.Errorf("%s for %+v: got %q, want %q", c.point, c.who, chainNames(got), c.want)
		}
	}
}

func TestSwitch(t *testing.T) {
	watch := observer("watch", IncomingMessage, func(context.Context, Payload) (Verdict, error) { return Go(), nil })
	e := mustEngine(t, nil, passing("mask", IncomingMessage), watch, passing("last", OutgoingText))
	point := PointNamed(IncomingMessage)
	off := map[string]bool{"mask": true, "gone": true, "last": false}
	pinned := e.Pin()
	e.Switch(off)
	off["watch"] = true // the caller's map is the caller's
	c := e.Chain(point, Who{})
	first, _ := c.Observers()
	if c.Modify() != 0 || names(first) != "watch" || names(c.Disabled()) != "mask" {
		t.Errorf("the chain is %+v", c)
	}
	if r := ask(e, text(IncomingMessage, "hi")); r.Kind != Continue || len(r.Runs) != 0 {
		t.Errorf("got %s", asJSON(t, r))
	}
	if got := pinned.Chain(point, Who{}); got.Modify() != 1 || len(got.Disabled()) != 0 {
		t.Error("a set that was pinned changed")
	}
	if err := e.Swap(passing("mask", IncomingMessage), passing("new", OutgoingText)); err != nil {
		t.Fatal(err)
	}
	if got := names(e.Chain(point, Who{}).Disabled()); got != "mask" {
		t.Errorf("a new set forgot what is off: %q", got)
	}
	if err := e.Swap(passing("x", IncomingMessage), passing("y", IncomingMessage)); err == nil || names(e.Hooks()) != "mask new" {
		t.Errorf("a bad set was taken: %s, %v", names(e.Hooks()), err)
	}
	e.Switch(nil)
	if e.Chain(point, Who{}).Modify() != 1 {
		t.Error("it is still off")
	}
	var none Set
	if none.Chain(point, Who{}) != nil {
		t.Error("the zero set has a chain")
	}
	e.Wait()
}

// A chain that was built by appending to a slice with room to spare ran, in
// another system, one job's hook for another job.
func TestChainsShareNoMemory(t *testing.T) {
	given := make([]*Hook, 0, 8)
	given = append(given, passing("all", PreToolCall))
	for _, agent := range []string{"a", "b"} {
		h := passing("only "+agent, PreToolCall)
		h.Match.Agents = []string{agent}
		given = append(given, h)
	}
	e := mustEngine(t, nil, given...)
	_ = append(given, passing("stray", PreToolCall))
	given[0].Name, given[1].Match.Agents[0], given[2] = "renamed", "b", nil

	point := PointNamed(PreToolCall)
	a := e.Chain(point, Who{Agent: "a"})
	var wg sync.WaitGroup
	for i := range 8 {
		agent := string(rune('a' + i%2))
		wg.Go(func() {
			for range 200 {
				c := e.Chain(point, Who{Agent: agent})
				_ = append(c.modify, passing("stray", PreToolCall)) // what a careless caller would do
				if got := chainNames(c); got != "all only "+agent {
					t.Errorf("agent %s has %s", agent, got)
					return
				}
			}
		})
	}
	wg.Wait()
	if got := chainNames(a); got != "all only a" {
		t.Errorf("the first chain is now %s", got)
	}
}

// Whatever is swapped and switched meanwhile, a run sees one set of hooks.
func TestSwappingWhileRunning(t *testing.T) {
	set := func(version int) []*Hook {
		var out []*Hook
		for i := range 3 {
			h := passing(fmt.Sprintf("%d.%d", version, i), PreToolCall)
			if i == 1 {
				h.Host, h.Func = h.Func, nil
			}
			out = append(out, h)
		}
		return append(out, observer(fmt.Sprintf("%d.watch", version), IncomingMessage, passing("", IncomingMessage).Func))
	}
	log := &recorded{}
	e := mustEngine(t, log, set(0)...)
	stop := make(chan struct{})
	var swapping, running sync.WaitGroup
	swapping.Go(func() {
		for version := 1; ; version++ {
			select {
			case <-stop:
				return
			default:
			}
			if err := e.Swap(set(version)...); err != nil {
				t.Error(err)
			}
			e.Switch(map[string]bool{fmt.Sprintf("%d.0", version): version%2 == 0})
		}
	})
	for range 4 {
		running.Go(func() {
			for range 200 {
				r := ask(e, pluginCall(`{}`))
				version, _, _ := strings.Cut(r.Runs[0].Name, ".")
				for _, run := range r.Runs {
					if !strings.HasPrefix(run.Name, version+".") {
						t.Errorf("one run asked %s and %s", r.Runs[0].Name, run.Name)
					}
				}
				ask(e, text(IncomingMessage, "hi"))
				e.Wait()
			}
		})
	}
	running.Wait()
	close(stop)
	swapping.Wait()
	e.Wait()
}
