package plugintest_test

import (
	"bytes"
	"context"
	"encoding/xml"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/expect"
	"github.com/belay-run/belay/internal/plugintest"
)

// good are cases that all pass.
const good = `cases:
  - name: allowed
    event: {on: pre_tool_call, tool: shop.order, arguments: {}}
    expect: allow
    hook: probe.check
    hooks: [probe.check, probe.second]
    value: {}
  - name: denied, and the next hook is not asked
    event: {on: pre_tool_call, tool: shop.order, arguments: {answer: {decision: deny, reason: not today}}}
    expect: deny
    reason: not today
    hooks: [{hook: probe.check, says: deny, reason: {matches: '^not'}}]
  - name: a change feeds the next hook
    event: {on: pre_tool_call, tool: shop.order, arguments: {answer: {decision: modify, reason: safer, arguments: {n: 1, second: {decision: modify, arguments: {n: 2}}}}}}
    expect: modify
    value: {n: 2.0}
    hooks: [{hook: probe.check, says: modify, value: {n: 1, second: {decision: modify, arguments: {n: 2}}}}, {hook: probe.second, says: modify}]
  - name: a person is asked about a new value
    event: {on: pre_tool_call, tool: shop.order, arguments: {answer: {decision: escalate, reason: big, arguments: {n: 3}}}}
    expect: escalate
    value: {n: 3}
    reason: {contains: [b, g]}
    hook: probe.check
    hooks: [{hook: probe.check, says: escalate, value: {n: 3}}, probe.second]
  - name: a person says no
    event: {on: pre_tool_call, tool: shop.order, arguments: {answer: {decision: escalate}}, approvals: [no]}
    expect: escalate
    hooks: [probe.check]
  - name: a hook that may only escalate is turned
    event: {on: pre_tool_call, agent: clerk, tool: shop.order, request: order x, agent_model: {provider: acme, model: big}, arguments: {judge: {decision: deny, reason: odd}}}
    expect: escalate
    hook: probe.judge
    reason: odd
  - name: a judge is told what the job was asked for, and the model
    event: {on: pre_tool_call, agent: clerk, tool: shop.order, request: order x, agent_model: {provider: acme, model: big}, arguments: {what: y}}
    expect: escalate
    reason: not asked for, says big
  - name: an answer that is no decision
    event: {on: pre_tool_call, tool: shop.order, arguments: {answer: {decision: dney}}}
    expect: deny
    reason: {contains: dney}
    hooks: [{hook: probe.check, says: failed, reason: {contains: dney}}]
  - name: a failure that escalates
    event: {on: post_tool_call, tool: shop.order, arguments: {answer: {}}, result: null}
    expect: escalate
    hook: probe.check
    hooks: [{hook: probe.check, says: failed}]
  - name: withheld
    event: {on: post_tool_call, tool: shop.order, arguments: {answer: {decision: deny}}, result: [1], is_error: true}
    expect: deny
  - name: nobody sees it
    event: {on: post_tool_call, agent: other, tool: shop.order, result: x}
    expect: allow
    hooks: []
  - name: a hook that is told where secrets are
    secrets: {SHOP_KEY: made-up-8d1f3a77}
    event: {on: post_tool_call, agent: other, tool: shop.read, result: the key is made-up-8d1f3a77.}
    expect: modify
    value: the key is [SHOP_KEY].
  - name: a hook that is told that there are none
    event: {on: post_tool_call, agent: other, tool: shop.read, result: the key is made-up-8d1f3a77.}
    expect: allow
    hooks: [probe.redact]
  - name: the start of a job
    event: {on: job_start, input: '{"decision": "modify", "input": "new"}'}
    expect: modify
    value: new
  - name: a hook that looks on does not bind
    event: {on: job_end, output: '{"decision": "deny"}'}
    expect: allow
    hooks: [{hook: probe.check, on: job_end, says: deny}]
  - name: a hook that declares nothing
    event: {on: pre_tool_call, agent: other, tool: shop.shout}
    expect: allow
  - name: the policy refuses before a hook is asked
    job:
      agent: clerk
      input: steal it
      model: {rules: [{when: {result: refuse}, say: No.}], default: {call: {tool: shop.steal}}}
      tools: {shop.steal: {result: 1}}
    expect:
      tools: []
      model_reads: [{tool: shop.steal, matches: refuses it}]
      hooks: [{hook: probe.check, on: job_start}, {hook: probe.check, on: job_end}]
  - name: a whole job
    job:
      agent: clerk
      input: order x and look
      model:
        rules:
          - {when: {tool: shop.order}, say: All is well.}
          - when: {user: order}
            call:
              - {tool: probe.look, args: {what: x}}
              - {tool: shop.order, args: {what: x, answer: {decision: escalate, reason: it costs}}}
              - {tool: shop.order, args: {what: y}}
      tools:
        shop.order: {schema: {type: object}, results: [{result: {ordered: true}}, {error: sold out}]}
      approvals: [{answer: no, note: too dear, tool: shop.order}, {answer: yes}]
    expect:
      state: completed
      output: {text: All is well., contains: well}
      tools: [{name: probe.look, arguments: {what: x}}, {name: shop.order, arguments: {what: y}}]
      approvals: [{kind: hook, by: probe.check, reason: it costs, value: {what: x, answer: {decision: escalate, reason: it costs}}}, {by: probe.judge}]
      model_reads: [seen x, 'The call to shop.order was not made: hook probe.check denied it: it costs. A person refused it.', '{"ordered": true}']
      hooks:
        - {hook: probe.check, on: job_start}
        - probe.check
        - probe.second
        - probe.judge
        - {hook: probe.check, says: escalate}
        - probe.check
        - probe.second
        - {hook: probe.judge, says: escalate}
        - {hook: probe.check, on: job_end, says: allow}
  - name: an agent of another plugin
    job:
      agent: {name: elsewhere, instructions: Do it., tools: [shop.order]}
      input: {a: 1}
      agent_model: {provider: acme, model: big}
      policy: {rules: [{name: ask, tools: [shop.order], verdict: require_approval, reason: money}]}
      model: {rules: [{when: {tool: shop.order}, say: Done.}], default: {call: {tool: shop.order, args: {n: 1}}}}
      tools: {shop.order: {result: fine}}
      approvals: [yes]
    expect:
      approvals: [{kind: policy, by: ask, reason: money, tool: shop.order}]
      tools: [{name: shop.order, arguments: {n: 1}}]
      model_reads: [fine]
  - name: a job waits for a person
    job: {input: go, model: {default: {call: {tool: shop.order}}}, tools: {shop.order: {annotations: {readOnlyHint: false}, result: 1}}}
    expect: {state: waiting, approvals: [{kind: annotation}], tools: []}
  - name: a job that is denied
    job: {input: '{"decision": "deny", "reason": "closed"}'}
    expect: {code: HookDenied, reason: {contains: closed}}
  - name: a server that dies in a call, whose call is given up
    job:
      model: {rules: [{when: {tool: probe.die, result: unknown}, say: Oh.}], default: {call: {tool: probe.die}}}
      approvals: [yes, no]
      policy: {rules: []}
    expect: {output: Oh., approvals: [{kind: annotation}, {kind: outcome}]}
  - name: an agent folder, with its own hooks
    job: {agent: chatty, model: {rules: [{when: {tool: shop.order, result: FINE}, say: Done.}], default: {call: {tool: shop.order}}}, tools: {shop.order: {result: fine}}}
    expect: {output: Done., model_reads: [FINE]}
  - name: a job that goes through
    job: {agent: {name: other}, input: look, model: {script: script.yml}}
    expect: allow
`

const script = "rules:\n  - {when: {tool: probe.look}, say: I looked.}\ndefault: {call: {tool: probe__look, args: {what: x}}}\n"

func run(t *testing.T, cfg plugintest.Config, files ...*plugintest.File) (*plugintest.Report, string) {
	t.Helper()
	var b bytes.Buffer
	cfg.Each = func(r *plugintest.FileResult) {
		if err := plugintest.WriteFile(&b, r); err != nil {
			t.Error(err)
		}
	}
	report, err := plugintest.Run(t.Context(), cfg, files)
	if err != nil {
		t.Fatal(err)
	}
	if err := report.WriteSummary(&b); err != nil {
		t.Fatal(err)
	}
	if err := report.Coverage.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	return report, b.String()
}

func TestCasesThatPass(t *testing.T) {
	python(t)
	m := write(t, map[string]string{"tests/good.yaml": good, "tests/script.yml": script})
	report, text := run(t, plugintest.Config{Manifest: m}, read(t, m, "tests/good.yaml"))
	if !report.OK() {
		t.Fatal(text)
	}
	covers(t, report.Coverage)
	cases, canaries := report.Totals()
	if cases.Passed < 15 || canaries.Passed != 6 || cases.Failed+canaries.Failed > 0 {
		t.Errorf("%+v, %+v", cases, canaries)
	}
	for _, want := range []string{"  canaries:\n  ok    allowed", "note: a person is asked before probe.loud is", "6 canaries: 6 ok, 0 failed"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}

// bad are cases that all fail, with what is said of each.
const bad = `cases:
  - name: another word
    event: {on: pre_tool_call, tool: shop.order, arguments: {answer: {decision: deny, reason: late}}}
    expect: modify
  - name: another value, reason and hook
    event: {on: pre_tool_call, tool: shop.order, arguments: {answer: {decision: modify, reason: x, arguments: {n: 1}}}}
    expect: modify
    value: {n: 2}
    reason: y
    hook: probe.second
  - name: other hooks
    event: {on: pre_tool_call, tool: shop.order}
    expect: allow
    hooks: [{hook: probe.second, says: deny, value: 1, reason: z}, probe.check]
  - name: nobody sees it
    event: {on: post_tool_call, agent: other, tool: shop.order, result: x}
    expect: allow
  - name: a denial by a crash is no denial
    event: {on: pre_tool_call, tool: shop.order, arguments: {answer: 7}}
    expect: deny
  - name: arguments that no tool gets
    event: {on: pre_tool_call, tool: probe.look, arguments: {what: 7}}
    expect: allow
  - name: refused outright
    event: {on: pre_tool_call, tool: shop.steal}
    expect: allow
  - name: a secret that is too short to be told from other texts
    secrets: {KEY: x}
    event: {on: pre_tool_call, tool: shop.order}
    expect: deny
  - name: an answer too many
    event: {on: pre_tool_call, tool: shop.order, approvals: [yes]}
    expect: allow
  - name: an answer too few
    event: {on: pre_tool_call, tool: shop.order, arguments: {answer: {decision: escalate}}, approvals: []}
    expect: escalate
  - name: a job in every way
    job:
      agent: clerk
      input: order
      model: {rules: [{when: {tool: shop.order}, say: Done.}], default: {call: {tool: shop.order, args: {n: 1}}}}
      tools: {shop.order: {result: fine}}
      approvals: [yes, yes]
    expect:
      output: Finished.
      tools: [{name: shop.order, arguments: {n: 2}}]
      model_reads: [{contains: x, tool: shop.order}]
      approvals: [{kind: policy, by: rule, tool: a.b, reason: r, value: 1}]
  - name: a job that waits
    job: {agent: clerk, input: order, model: {default: {call: {tool: shop.order}}}, tools: {shop.order: {annotations: {readOnlyHint: false}, result: fine}}}
    expect: {state: failed, code: HookDenied, reason: {contains: x}}
  - name: a job of another code
    job: {input: '{"decision": "deny"}'}
    expect: {code: ModelError, reason: x}
  - name: no model
    job: {input: hello}
    expect: allow
  - name: a canary that is changed
    job: {input: '{"decision": "modify", "input": "x"}', model: {default: {say: Done.}}}
    expect: allow
  - name: an answer of another kind
    job: {agent: clerk, input: order, model: {default: {call: {tool: shop.order, args: {answer: {decision: escalate}}}}}, tools: {shop.order: {result: fine}}, approvals: [retry]}
    expect: {state: completed}
`

func TestCasesThatFail(t *testing.T) {
	python(t)
	m := write(t, map[string]string{"tests/bad.yaml": bad})
	report, text := run(t, plugintest.Config{Manifest: m}, read(t, m, "tests/bad.yaml"))
	if report.OK() {
		t.Error("it is called fine")
	}
	for _, f := range report.Files {
		for _, r := range f.Results {
			if r.Status != plugintest.Failed {
				t.Errorf("%s: %s", r.Case.Name, r.Status)
			}
		}
	}
	golden(t, "bad.txt", steady(text, m.Dir))
	t.Run("as JSON", func(t *testing.T) {
		var b bytes.Buffer
		if err := report.WriteJSON(&b, false); err != nil {
			t.Fatal(err)
		}
		golden(t, "bad.json", regexp.MustCompile(`"took_ms": \d+`).ReplaceAllString(steady(b.String(), m.Dir), `"took_ms": 0`))
	})
	t.Run("as JUnit", func(t *testing.T) {
		var b bytes.Buffer
		least := 50.0
		if err := report.WriteJUnit(&b, &least); err != nil {
			t.Fatal(err)
		}
		var suites expect.Suites
		if err := xml.Unmarshal(b.Bytes(), &suites); err != nil {
			t.Fatal(err)
		}
		if suites.Tests != 17 || suites.Failures != 17 || len(suites.Suites) != 3 || !strings.Contains(b.String(), "only 38.8 % are") {
			t.Errorf("%s", b.String())
		}
	})
}

var update = flag.Bool("update", false, "write what is compared anew")

// steady takes out what differs from run to run.
func steady(text, dir string) string {
	return regexp.MustCompile(`\d+\.\d\ds`).ReplaceAllString(strings.ReplaceAll(text, dir, "DIR"), "0.00s")
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (run with -update)", err)
	}
	if got != string(want) {
		t.Errorf("%s differs (run with -update to accept):\n%s", path, got)
	}
}

// covers checks what the good cases cover.
func covers(t *testing.T, c *plugintest.Coverage) {
	t.Helper()
	point := func(name string) *plugintest.Point {
		for _, p := range c.Points {
			if p.Name == name {
				return p
			}
		}
		t.Fatalf("no point %s", name)
		return nil
	}
	counts := func(name string) string {
		p := point(name)
		return fmt.Sprintf("%s %d, %s %d, %v", p.Branches[0].Name, p.Branches[0].Count, p.Branches[1].Name, p.Branches[1].Count, p.Seen)
	}
	for name, want := range map[string]string{
		"job_start:probe.check":        "allowed 7, refused 1, map[modified:1]",
		"pre_tool_call:probe.judge":    "allowed 1, escalated 3, map[]",
		"post_tool_call:probe.check":   "allowed 1, refused 1, map[failed:1]", // a failure is no way through
		"post_tool_call:probe.check#2": "allowed 0, refused 0, map[]",
		"job_end:probe.check":          "allowed 6, refused 1, map[]", // it only looks on, and says it all the same
	} {
		if got := counts(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if none := c.Unreached(); len(none) != 1 || none[0].Name != "post_tool_call:probe.check#2" || none[0].Line != 12 {
		t.Errorf("unreached: %+v", none)
	}
	if covered, all := c.Counts(); covered != 13 || all != 18 || c.Below(72.2) || !c.Below(72.3) {
		t.Errorf("%d of %d", covered, all)
	}
}

func TestSomeCases(t *testing.T) {
	python(t)
	m := write(t, map[string]string{"tests/good.yaml": good, "tests/script.yml": script})
	report, text := run(t, plugintest.Config{Manifest: m, Only: regexp.MustCompile("^denied")}, read(t, m, "tests/good.yaml"))
	if cases, _ := report.Totals(); !report.OK() || cases.Passed != 1 || report.Partial == "" || strings.Contains(text, "no case reaches:") {
		t.Error(text)
	}
}

const slow = `cases:
  - name: a hook that takes its time
    event: {on: pre_tool_call, tool: shop.order, arguments: {sleep: 60}}
    expect: allow
  - name: another
    event: {on: pre_tool_call, tool: shop.order}
    expect: allow
`

func TestCasesThatDoNotEnd(t *testing.T) {
	python(t)
	m := write(t, map[string]string{"tests/slow.yaml": slow, "belay-plugin.yaml": strings.Replace(manifest, "call: probe.check, match: {agents: [test, clerk]}", "call: probe.check, timeout: 30s", 1)})
	report, text := run(t, plugintest.Config{Manifest: m, Timeout: 6 * time.Second}, read(t, m, "tests/slow.yaml"))
	results := report.Files[0].Results
	if results[0].Status != plugintest.Failed || !strings.Contains(text, "it did not end within 6s") || results[1].Status != plugintest.Passed {
		t.Error(text)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	report, err := plugintest.Run(ctx, plugintest.Config{Manifest: m}, []*plugintest.File{read(t, m, "tests/slow.yaml")})
	if err != nil || !report.Interrupted || report.OK() || report.Files[0].Results[0].Status != plugintest.NotRun {
		t.Errorf("%+v, %v", report, err)
	}
}
