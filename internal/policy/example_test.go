package policy_test

import (
	"encoding/json"
	"fmt"

	"github.com/belay-run/belay/internal/policy"
)

const examplePolicy = `
rules:
  - name: no-force-push
    tools: [acme_github.push]
    when: has(arguments.force) && arguments.force
    verdict: refuse
    reason: a force push rewrites what others have
  - name: main
    tools: [acme_github.push]
    when: arguments.branch == "main"
    verdict: require_approval
    approvers: admin
    reason: main is released every night
  - name: never-drop
    tools: ["*.drop_*"]
    verdict: refuse
`

// A call is put to a policy twice: before hooks are asked, and on the arguments
// that they left.
func Example() {
	p, findings := policy.Parse("policy.yaml", []byte(examplePolicy))
	if len(findings) > 0 {
		fmt.Println(findings)
		return
	}
	fmt.Println(p.Outright(policy.Call{Tool: "acme_db.drop_table"}).Effect)

	push := policy.Call{Tool: "acme_github.push", Arguments: json.RawMessage(`{"branch": "main"}`)}
	fmt.Println(p.Outright(push).Effect) // hooks may be asked
	v := p.Decide(push, nil)
	fmt.Println(v.Effect, "by", v.Approvers+":", v.Reason)

	// A condition that cannot be evaluated counts as holding in a rule that restricts.
	v = p.Decide(policy.Call{Tool: "acme_github.push"}, nil)
	fmt.Println(v.Effect, "by", v.Approvers+":", v.Reason)

	// A policy with errors refuses all.
	broken, findings := policy.Parse("policy.yaml", []byte("rules:\n  - {tools: [a.b], verdict: alow}"))
	fmt.Println(findings[0].Line, findings[0].Message+";", findings[0].Hint)
	fmt.Println(broken.Decide(push, nil).Effect)
	// Output:
	// refuse
	// allow
	// require_approval by admin: main is released every night
	// require_approval by admin: the condition of rules[2] main could not be evaluated (the call has no "branch"), so it counts as holding
	// 2 rules[1].verdict is none of refuse, require_approval, allow; did you mean "allow"?
	// refuse
}

func ExamplePolicy_Explain() {
	p, _ := policy.Parse("policy.yaml", []byte(examplePolicy))
	push := policy.Call{Tool: "acme_github.push", Arguments: json.RawMessage(`{"branch": "main"}`)}
	for _, s := range p.Explain(push, nil) {
		said := "-"
		if s.Applies {
			said = s.Effect.String()
		}
		fmt.Printf("%-9s %-22s %-16s %s\n", s.Name, s.Part, said, s.Why)
	}
	// Output:
	// outright  rules[3] never-drop    -                it is about other tools
	// hooks                            -                pre_tool_call hooks are asked here; what follows is decided on the arguments they leave
	// rules     rules[1] no-force-push -                its condition does not hold
	// rules     rules[2] main          require_approval main is released every night
	// defaults  defaults.unannotated   -                a rule decides
	// decision                         require_approval main is released every night; the role admin answers
}
