package policy_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/policy"
)

// A policy from anyone is read in time, its findings are whole, and one that was
// not read never allows.
func FuzzParse(f *testing.F) {
	f.Add(guarded, `{"branch":"main","force":true}`)
	f.Add("rules:\n  - {tools: ['*'], verdict: allow, when: 'arguments.all(k, arguments.all(l, k != l))'}", `{"a":[1,{"b":null}]}`)
	f.Add("rules: &a [*a]\n? [x]\n: y", `{"a":1,"a":2}`)
	f.Fuzz(func(t *testing.T, text, arguments string) {
		start := time.Now()
		p, findings := policy.Parse("p.yaml", []byte(text))
		if p.Usable() == finding.HasErrors(findings) {
			t.Errorf("usable %v with %v", p.Usable(), findings)
		}
		for _, x := range findings {
			if x.File == "" || x.Rule == "" || x.Message == "" || x.Hint == "" || x.Line < 0 || x.Column < 0 {
				t.Errorf("not whole: %+v", x)
			}
		}
		c := call("acme_github.push", arguments)
		v := p.Decide(c, []policy.Past{{Tool: "a.b", Outcome: policy.Succeeded, Arguments: json.RawMessage(arguments)}})
		if v.Effect != policy.Allow && v.Reason == "" {
			t.Errorf("no reason: %+v", v)
		}
		if v.Effect == policy.Allow && (!p.Usable() || !json.Valid([]byte(arguments)) && arguments != "") {
			t.Errorf("allowed: %+v", v)
		}
		if d := time.Since(start); d > 20*time.Second {
			t.Errorf("took %v", d)
		}
	})
}
