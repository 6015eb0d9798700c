package hook_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

	"github.com/belay-run/belay/hook"
)

var digits = regexp.MustCompile(`\d{4,}`)

// A hook of the modify lane masks card numbers before anything is stored.
func Example_modify() {
	mask := &hook.Hook{
		Name:  "mask",
		Point: hook.PointNamed(hook.IncomingMessage),
		Lane:  hook.Modify,
		Func: func(_ context.Context, p hook.Payload) (hook.Verdict, error) {
			return hook.Go(p.Change("text", digits.ReplaceAllString(p.Text("text"), "****"))), nil
		},
	}
	engine, err := hook.NewEngine(nil, mask)
	if err != nil {
		fmt.Println(err)
		return
	}
	p := hook.NewPayload(mask.Point).Set("text", "my card is 4111111111111111")
	result := engine.Run(context.Background(), engine.Chain(p.Point(), hook.Who{}), p, hook.Asker{Key: "ann"})
	fmt.Println(result.Kind, result.Payload.Text("text"))
	for _, run := range result.Runs {
		fmt.Println(run.Name, "said", run.Said, "and changed", run.Changed[0].Field)
	}
	// Output:
	// continue my card is ****
	// mask said continue and changed text
}

// A hook of the observe lane sees what comes by. Nothing waits for it, and nothing
// it does can alter or stop what it looks at.
func Example_observe() {
	log := &hook.Hook{
		Name:  "log",
		Point: hook.PointNamed(hook.ToolCall),
		Lane:  hook.Observe,
		Func: func(_ context.Context, p hook.Payload) (hook.Verdict, error) {
			fmt.Println("calls", p.Text("tool_name"))
			return hook.RejectFor("I do not like it"), nil
		},
	}
	recorder := hook.RecorderFunc(func(r hook.Run) { fmt.Println(r.Name, r.Said+":", r.Dropped) })
	engine, err := hook.NewEngine(recorder, log)
	if err != nil {
		fmt.Println(err)
		return
	}
	p := hook.NewPayload(log.Point).Set("tool_name", "book")
	result := engine.Run(context.Background(), engine.Chain(p.Point(), hook.Who{}), p, hook.Asker{Key: "ann"})
	engine.Wait()
	fmt.Println(result.Kind)
	// Output:
	// calls book
	// log seen: reject means nothing in the observe lane
	// continue
}

// limit refuses payments over a limit of its own.
func limit(name string, most float64, over hook.Verdict) *hook.Hook {
	return &hook.Hook{
		Name:  name,
		Point: hook.PointNamed(hook.PreToolCall),
		Lane:  hook.Modify,
		Match: hook.Match{Tools: []string{"bank.pay"}},
		Func: func(_ context.Context, p hook.Payload) (hook.Verdict, error) {
			var pay struct{ Amount float64 }
			if err := p.Decode("arguments", &pay); err != nil {
				return hook.Verdict{}, err
			}
			if pay.Amount > most {
				return over, nil
			}
			return hook.Go(), nil
		},
	}
}

func payment(amount float64) hook.Payload {
	return hook.NewPayload(hook.PointNamed(hook.PreToolCall)).Set("tool", "bank.pay").Set("arguments", map[string]any{"amount": amount})
}

// Hooks run in order. Each sees what the one before it left, and the first that
// rejects ends the chain.
func Example_order() {
	round := &hook.Hook{
		Name:  "round",
		Point: hook.PointNamed(hook.PreToolCall),
		Lane:  hook.Modify,
		Func: func(_ context.Context, p hook.Payload) (hook.Verdict, error) {
			var pay map[string]float64
			if err := p.Decode("arguments", &pay); err != nil {
				return hook.Verdict{}, err
			}
			pay["amount"] = float64(int(pay["amount"]))
			return hook.Go(p.Change("arguments", pay)), nil
		},
	}
	engine, err := hook.NewEngine(nil, round, limit("small", 100, hook.RejectFor("over 100")), limit("tiny", 1, hook.RejectFor("over 1")))
	if err != nil {
		fmt.Println(err)
		return
	}
	who := hook.Who{Agent: "teller", Tool: "bank.pay"}
	for _, amount := range []float64{100.7, 101.2} {
		p := payment(amount)
		result := engine.Run(context.Background(), engine.Chain(p.Point(), who), p, hook.Asker{Key: "job-1"})
		fmt.Printf("%s %s %q\n", result.Kind, result.Payload.Get("arguments"), result.Reason)
		for _, run := range result.Runs {
			fmt.Println("-", run.Name, run.Said)
		}
	}
	// Output:
	// reject {"amount":100} "over 1"
	// - round continue
	// - small continue
	// - tiny reject
	// reject {"amount":101} "over 100"
	// - round continue
	// - small reject
}

// A hold waits for a person. The state is data: it can be written down while
// nobody has decided, and the decision is bound to what the person was shown.
func Example_hold() {
	engine, err := hook.NewEngine(nil, limit("ask above 500", 500, hook.HoldFor("more than 500 euros")))
	if err != nil {
		fmt.Println(err)
		return
	}
	chain := engine.Chain(hook.PointNamed(hook.PreToolCall), hook.Who{Tool: "bank.pay"})

	state := hook.Begin(chain, payment(700))
	for state.Next() == hook.NeedHook {
		h := chain.Hook(state.At)
		answer := engine.Ask(context.Background(), h, state.Payload, hook.Asker{Key: "job-1"})
		state, _ = state.Fold(answer)
	}
	kept, err := json.Marshal(state)
	if err != nil {
		fmt.Println(err)
		return
	}

	// Days later, in another process.
	state, err = hook.Resume(chain, kept)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("may %s run with %s? %s\n", state.Payload.Text("tool"), state.Payload.Get("arguments"), state.Open()[0].Reason)
	_, err = state.Decide(hook.Decision{Yes: true, Digest: "that of another payment"})
	fmt.Println("refused:", err != nil)
	state, err = state.Decide(hook.Decision{Yes: true, Digest: state.Digest()})
	fmt.Println(state.End.Kind, err)
	// Output:
	// may bank.pay run with {"amount":700}? more than 500 euros
	// refused: true
	// continue <nil>
}

// A hook that fails gives no verdict. What follows is its policy: at a point that
// guards something, closed; where the show must go on, open.
func Example_failure() {
	broken := func(context.Context, hook.Payload) (hook.Verdict, error) {
		return hook.Go(), errors.New("no connection to the word list")
	}
	engine, err := hook.NewEngine(nil,
		&hook.Hook{Name: "words in", Point: hook.PointNamed(hook.IncomingMessage), Lane: hook.Modify, Func: broken},
		&hook.Hook{Name: "words out", Point: hook.PointNamed(hook.OutgoingText), Lane: hook.Modify, Func: broken})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, point := range []string{hook.IncomingMessage, hook.OutgoingText} {
		p := hook.NewPayload(hook.PointNamed(point)).Set("text", "hello")
		result := engine.Run(context.Background(), engine.Chain(p.Point(), hook.Who{}), p, hook.Asker{Key: "ann"})
		run := result.Runs[0]
		fmt.Printf("%s: %s, so %s: %s\n", run.Name, run.Failure.Kind, run.Policy, result.Kind)
	}
	// Output:
	// words in: crash, so closed: reject
	// words out: crash, so open: continue
}
