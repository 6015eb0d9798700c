package policy_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/policy"
)

// when makes a policy whose one rule has the condition, with each verdict.
func when(t *testing.T, condition, verdict string) *policy.Policy {
	t.Helper()
	quoted, err := json.Marshal(condition)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, fmt.Sprintf("rules:\n  - {tools: [\"*\"], agents: [\"*\"], verdict: %s, when: %s}\n", verdict, quoted))
}

func TestConditions(t *testing.T) {
	history := []policy.Past{
		{Tool: "acme_web.fetch", Outcome: policy.Succeeded, Arguments: json.RawMessage(`{"url":"http://x"}`)},
		{Tool: "acme_web.fetch", Outcome: policy.Failed},
	}
	c := call("acme_github.push", `{"branch":"main","n":3,"big":9007199254740993,"huge":18446744073709551615,"f":2.0,"none":null,"list":[1,"two"],"deep":{"z":1,"a":{"b":true}}}`)
	c.Origin.ChangedBy = []string{"acme_policy.check"}
	const (
		holds = "holds"
		not   = "does not hold"
	)
	for condition, want := range map[string]string{
		`arguments.branch == "main"`:                                             holds,
		`arguments.branch in ["main", "release"]`:                                holds,
		`arguments.branch.matches("^ma(in|ster)$")`:                              holds,
		`has(arguments.force)`:                                                   not,
		`has(arguments.none) && arguments.none == null`:                          holds,
		`arguments.n > 2 && arguments.n < 3.5`:                                   holds,
		`arguments.n == 3.0 && arguments.f == 2`:                                 holds,
		`arguments.big == 9007199254740993`:                                      holds,
		`arguments.big == 9007199254740992`:                                      not,
		`arguments.huge == 18446744073709551615u`:                                holds,
		`arguments.list.exists(x, x == "two")`:                                   holds,
		`size(arguments) == 8`:                                                   holds,
		`arguments.deep.a.b`:                                                     holds,
		`arguments.?deep.?x.hasValue()`:                                          not,
		`arguments.map(k, k)[0] == "big"`:                                        holds,
		`arguments.deep.map(k, k) == ["a", "z"]`:                                 holds,
		`tool == "acme_github.push"`:                                             holds,
		`agent.name == "acme-reviewer" && agent.provider == "openai"`:            holds,
		`job.tenant == "acme" && job.parent == ""`:                               holds,
		`job.started_by == "ci" && job.id == "job_1"`:                            holds,
		`origin.by == "model" && origin.harness == ""`:                           holds,
		`"acme_policy.check" in origin.changed_by`:                               holds,
		`calls.exists(c, c.tool.startsWith("acme_web."))`:                        holds,
		`calls.filter(c, c.outcome == "ok").size() == 1`:                         holds,
		`calls.exists(c, has(c.arguments.url) && c.arguments.url == "http://x")`: holds,
		`arguments.force`:                                                        `the call has no "force"`,
		`arguments.deep.q == 1`:                                                  `the call has no "q"`,
		`arguments[arguments.branch] == 1`:                                       "the call lacks a key",
		`arguments.branch > 3`:                                                   "a value is of another type than the condition expects",
		`arguments.branch`:                                                       "it gives something other than true or false",
		`arguments.none`:                                                         "it gives something other than true or false",
		`int(arguments.branch) == 1`:                                             "an operation failed",
		`arguments.n / 0 == 1`:                                                   "an operation failed",
		`arguments.force || true`:                                                holds,
		`arguments.force && false`:                                               not,
		`[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, [1,2,3,4,5,6,7,8,9,10].all(e, a+b+c+d+e != arguments.n)))))`: "it would take too long",
		`[1,2,3,4,5,6,7,8,9].map(a, "xxxxxxxxxxxxxxxx").map(s, s+s+s+s+s+s+s+s).map(s, s+s+s+s+s+s+s+s).map(s, s+s+s+s+s+s+s+s).map(s, s+s+s+s+s+s+s+s).map(s, s+s+s+s+s+s+s+s).size() == 1`:  "it would take too long",
	} {
		t.Run(condition, func(t *testing.T) {
			refuses, allows := when(t, condition, "refuse").Decide(c, history), when(t, condition, "allow").Decide(c, history)
			asks := when(t, condition, "require_approval").Decide(c, history)
			notes := strings.Join(refuses.Notes, "\n")
			// Without a rule the default for the call is an approval by annotation.
			switch want {
			case holds, not:
				if (refuses.Effect == policy.Refuse) != (want == holds) || (allows.Effect == policy.Allow) != (want == holds) || notes != "" {
					t.Errorf("refuse: %+v\nallow: %+v", refuses, allows)
				}
				if (asks.Kind == policy.ByRule) != (want == holds) || asks.Effect != policy.RequireApproval {
					t.Errorf("ask: %+v", asks)
				}
			default:
				if refuses.Effect != policy.Refuse || allows.Effect != policy.RequireApproval || allows.Kind != policy.ByAnnotation || asks.Kind != policy.ByRule {
					t.Errorf("not the strict side\nrefuse: %+v\nallow: %+v\nask: %+v", refuses, allows, asks)
				}
				if !strings.Contains(notes, "("+want+")") || !strings.Contains(strings.Join(allows.Notes, ""), "does not allow") {
					t.Errorf("want %q in %q and %q", want, notes, allows.Notes)
				}
			}
		})
	}
}

// What a verdict says never quotes the call.
func TestVerdictsQuoteNoValues(t *testing.T) {
	const secret = "hunter2hunter2"
	c := call("a.b", `{"x":"`+secret+`","y":{"`+secret+`":1}}`)
	for _, condition := range []string{
		`int(arguments.x) == 1`, `arguments[arguments.x] == 1`, `timestamp(arguments.x) == timestamp(arguments.x)`, `arguments.x > 1`,
		`duration(arguments.x) == duration("1s")`, `arguments.x.matches(arguments.x + "[")`, `arguments.y.map(k, int(k))[0] == 1`, `bool(arguments.x)`,
		`arguments.x`, `arguments.x == "` + "hunter" + `"`, `[1][arguments.x] == 1`,
	} {
		for _, verdict := range []string{"refuse", "require_approval", "allow"} {
			p := when(t, condition, verdict)
			if all := fmt.Sprintf("%+v %+v", p.Decide(c, nil), p.Explain(c, nil)); strings.Contains(all, secret) {
				t.Errorf("%s: %s", condition, all)
			}
		}
	}
}

// A default that refuses is no softer for a rule that could not be evaluated.
func TestAnErrorNeverReplacesADefault(t *testing.T) {
	p := parse(t, "defaults: {other: refuse}\nrules: [{tools: [a.b], verdict: require_approval, when: arguments.x == 1}]")
	if v := p.Decide(call("a.b", `{}`), nil); v.Effect != policy.Refuse {
		t.Errorf("without x: %+v", v)
	}
	if v := p.Decide(call("a.b", `{"x":1}`), nil); v.Effect != policy.RequireApproval {
		t.Errorf("with x: %+v", v)
	}
}

func TestBigArgumentsAreJudgedInTime(t *testing.T) {
	c := call("a.b", `{"text":"`+strings.Repeat("x", 16<<20)+`"}`)
	p := when(t, `arguments.text.contains("secret")`, "refuse")
	start := time.Now()
	if v := p.Decide(c, nil); v.Effect != policy.RequireApproval || len(v.Notes) > 0 {
		t.Errorf("got %+v", v)
	}
	if d := time.Since(start); d > 20*time.Second {
		t.Errorf("took %v", d)
	}
}

func TestConditionsEndInTime(t *testing.T) {
	c := call("a.b", `{"text":"`+strings.Repeat("x", 1<<20)+`","list":[`+strings.Repeat("1,", 9999)+`1]}`)
	for _, condition := range []string{
		`arguments.list.all(x, size(arguments.text) > 0)`, `arguments.list.all(x, arguments.text.size() > 0)`,
		`arguments.list.all(x, arguments.text + arguments.text != "")`, `arguments.list.all(x, arguments.text != arguments.text + "x")`,
		`arguments.list.all(x, !arguments.text.matches("x+y"))`, `arguments.list.all(x, !arguments.text.contains("xy"))`,
		`arguments.list.all(x, arguments.text == arguments.text)`, `arguments.list.all(x, arguments.list.all(y, x == y))`,
	} {
		start := time.Now()
		v := when(t, condition, "refuse").Decide(c, nil)
		if v.Effect != policy.Refuse || len(v.Notes) != 1 || !strings.Contains(v.Notes[0], "too long") {
			t.Errorf("%s: %+v", condition, v)
		}
		if d := time.Since(start); d > 20*time.Second {
			t.Errorf("%s took %v", condition, d)
		} else {
			t.Logf("%s: %v", condition, d)
		}
	}
}

func TestManyDecideAtOnce(t *testing.T) {
	p := parse(t, guarded)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 50 {
				c := call("acme_github.push", fmt.Sprintf(`{"branch":"main","n":%d}`, i))
				if v := p.Decide(c, nil); v.Effect != policy.RequireApproval {
					t.Errorf("got %+v", v)
				}
			}
		})
	}
	all.Wait()
}

func TestArgumentsInHistoryThatCannotBeRead(t *testing.T) {
	history := []policy.Past{{Tool: "x.y", Outcome: policy.Succeeded, Arguments: json.RawMessage(`{"a":1,"a":2}`)}}
	if v := when(t, `calls.exists(c, c.arguments.a == 2)`, "refuse").Decide(call("a.b", `{}`), history); v.Effect != policy.Refuse || len(v.Notes) != 1 {
		t.Errorf("got %+v", v)
	}
	if v := when(t, `calls.exists(c, c.tool == "z.z")`, "refuse").Decide(call("a.b", `{}`), history); v.Effect == policy.Refuse {
		t.Errorf("got %+v", v)
	}
}
