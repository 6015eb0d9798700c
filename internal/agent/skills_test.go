package agent_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/agent"
	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/skill"
)

// withSkill is a good folder with one skill, whose files are given by name.
func withSkill(t testing.TB, files ...string) string {
	t.Helper()
	dir := good(t)
	for i := 0; i+1 < len(files); i += 2 {
		write(t, filepath.Join(dir, files[i]), files[i+1])
	}
	return dir
}

const front = "---\ndescription: Does it.\n---\n"

// found lists findings as "file:line:column: rule".
func found(fs []finding.Finding) []string {
	var out []string
	for _, f := range fs {
		out = append(out, fmt.Sprintf("%s:%d:%d: %s", f.File, f.Line, f.Column, f.Rule))
	}
	return out
}

func TestNoSkillsAndNoMemory(t *testing.T) {
	if a, _ := agent.Read(good(t)); a.Skills != nil {
		t.Errorf("skills: %+v", a.Skills)
	}
	a, fs := agent.Read(withSkill(t, "memory.yml", "city: {type: text}"))
	if len(fs) > 0 || a.Skills == nil || len(a.Skills.Skills) != 0 || a.Skills.Field("project.city") == nil {
		t.Errorf("only memory: %+v, %v", a.Skills, fs)
	}
}

func TestBuiltinSkills(t *testing.T) {
	a, fs := agent.Read(withSkill(t, "skills/x/skill.md", front+"Do it."))
	if len(fs) > 0 {
		t.Fatal(found(fs))
	}
	for id, field := range map[string]string{
		skill.Completed: "wants_to_continue", skill.ContinueInterrupt: "wants_to_resume", skill.UnsupportedRequest: "request_type",
	} {
		k := a.Skills.Skill(id)
		if k == nil || !k.Builtin || !k.EngineManaged || !k.OnlyBlocks() || a.Skills.Field(id+"."+field) == nil {
			t.Fatalf("%s: %+v", id, k)
		}
		for _, s := range k.Main().Steps {
			if s.Response != "" && !a.Responses.Has(s.Response) {
				t.Errorf("%s says %s, which is not there", id, s.Response)
			}
		}
	}
	if !slices.IsSortedFunc(a.Skills.Skills, func(a, b *skill.Skill) int { return strings.Compare(a.ID, b.ID) }) {
		t.Error("skills are not sorted")
	}
	own := ":::ordered_block id=main\nsteps:\n  - collect: wants_to_continue\n  - collect: mood\n:::\n"
	a, fs = agent.Read(withSkill(t, "skills/default_completed/skill.md", "---\nname: x\n---\n"+own, "skills/default_completed/memory.yml", "schema: {public: {mood: {type: text}}}"))
	if k := a.Skills.Skill(skill.Completed); len(fs) > 0 || k.Builtin || !k.EngineManaged || len(k.Memory) != 2 {
		t.Errorf("own one: %+v, %v", k, found(fs))
	}
}

func TestSkillFile(t *testing.T) {
	const block = ":::ordered_block id=main\nsteps:\n  - id: a\n    action: utter_internal_error\n:::\n"
	tests := []struct {
		name, text string
		want       []string // found in skills/x/skill.md
	}{
		{"plain", front + "Do it.\n", nil},
		{"empty", "", []string{"1:1: bad-front-matter"}},
		{"no end", "---\nname: x\n", []string{"1:1: bad-front-matter"}},
		{"nothing in it", "---\n---", []string{"1:1: missing-description"}},
		{"spaces behind ---", "--- \ndescription: x\n---\t\nText.", nil},
		{"text above", "Text\n" + front, []string{"1:1: bad-front-matter"}},
		{"CRLF", "\xef\xbb\xbf" + strings.ReplaceAll(front+"if: session.x.y\nText.\n", "\n", "\r\n"), []string{"4:1: unknown-memory"}},
		{"YAML of front matter", "---\nname: x\ndescription: \"y\n---\n", []string{"3:14: yaml-syntax"}},
		{"front matter is a list", "---\n- a\n---\n", []string{"2:1: wrong-type"}},
		{"second key", "---\nname: a\ndescription: x\nname: b\n---\n", []string{"4:1: duplicate-key"}},
		{"not UTF-8", front + "\xff", []string{"0:0: bad-encoding"}},
		{"control character", front + "a\x1b", []string{"4:2: bad-encoding"}},
		{"if at the end", front + "Text.\n\nif: 1 == 1\n\n", []string{"6:1: bad-guard"}},
		{"if and heading", front + "if: 1 == 1\n# Head\nText.\n", nil},
		{"blocks", front + block + strings.ReplaceAll(block, "main", "other"), nil},
		{"block within a block", front + ":::ordered_block id=a\nsteps: []\n" + block, []string{"4:1: bad-fence"}},
		{"spaces behind the fence", front + ":::ordered_block id='main' \nsteps:\n  - action: utter_internal_error\n::: \nText.", nil},
		{"attributes", front + ":::ordered_block id=main and more\nsteps: []\n:::\n", []string{"4:1: bad-fence"}},
		{"finding after a block", front + block + "\n@skill.nobody", []string{"10:1: unknown-skill"}},
		{"deep YAML", front + ":::ordered_block id=main\nsteps: " + strings.Repeat("[", 5000) + "\n:::\n", []string{"5:108: yaml-too-complex"}},
		{"blank lines", front + ":::ordered_block id=main\n" + strings.Repeat("\n", 60) + ":::\n", []string{"55:0: yaml-too-complex"}},
		{"a condition that is too long", front + "if: " + strings.Repeat("(", 3000) + "\nText.", []string{"4:1: bad-condition"}},
		{"loops", front + "if: all(1..1000000000, # > 1)\nText.", []string{"4:1: bad-condition"}},
		{"conditions", front + strings.Repeat("if: 1 == 1\nText.\n\n", 2100), []string{"6004:1: skill-too-complex"}},
		{"names", front + strings.Repeat("@skill.x ", 6000), []string{"4:45001: skill-too-complex"}},
		{"code", front + "```\nif: x\n:::note\n", []string{"5:1: unknown-memory", "6:1: bad-fence", "5:1: bad-guard"}},
		{"a call of itself", front + ":::ordered_block id=main\nsteps:\n  - call: x\n:::\n", []string{"6:5: block-cycle"}},
		{"an idle step", front + ":::ordered_block id=main\nsteps:\n  - id: a\n    noop: true\n    next: [{then: a}]\n:::\n", []string{"6:5: block-cycle"}},
		{"a circle with a choice", front + ":::ordered_block id=main\nsteps:\n  - id: a\n    noop: true\n    next: [{if: 1 == 1, then: a}]\n:::\n", nil},
		{"a circle with a tool", front + ":::ordered_block id=main\nsteps:\n  - id: a\n    execute_tool: x\n    next: a\n:::\n", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, fs := agent.Read(withSkill(t, "skills/x/skill.md", tt.text))
			var want []string
			for _, w := range tt.want {
				want = append(want, "skills/x/skill.md:"+w)
			}
			slices.Sort(want)
			got := found(fs)
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("got  %q\nwant %q", got, want)
			}
		})
	}
}

func TestLargeSkill(t *testing.T) {
	_, fs := agent.Read(withSkill(t, "skills/x/skill.md", front+strings.Repeat("x", 2<<20)))
	if got := found(fs); !slices.Equal(got, []string{"skills/x/skill.md:0:0: file-too-large"}) {
		t.Errorf("more than 2 MiB: %q", got)
	}
	for name, text := range map[string]string{
		"prose":       strings.Repeat("Do this and that. ", 30) + "\n\n",
		"one line":    "x ",
		"conditions":  "if: session.a.b\nx\n\n",
		"names":       "@skill.a ",
		"code":        "```x\n",
		"fences":      ":::ordered_block id=a\n",
		"blocks":      ":::ordered_block id=a\nsteps: []\n:::\n",
		"block":       "  - id: a\n",
		"other names": "@abcde.x session.a.b ",
	} {
		t.Run(name, func(t *testing.T) {
			whole := front
			if name == "block" {
				whole += ":::ordered_block id=a\nsteps:\n"
			}
			size := 1 << 18 // the race detector makes more of it slow
			if name == "prose" {
				size = 2 << 20
			}
			whole += strings.Repeat(text, (size-len(whole))/len(text))
			if name == "block" {
				whole += ":::\n"
			}
			dir := withSkill(t, "skills/x/skill.md", whole)
			start := time.Now()
			_, fs := agent.Read(dir)
			if d := time.Since(start); d > 30*time.Second {
				t.Errorf("took %v", d)
			} else {
				t.Logf("%v, %d findings", d, len(fs))
			}
		})
	}
}

func TestManySkills(t *testing.T) {
	dir := good(t)
	for i := range 500 {
		id := fmt.Sprintf("skill_%03d", i)
		write(t, filepath.Join(dir, "skills", id, "skill.md"), fmt.Sprintf(`---
name: Skill %[1]d
description: Does thing %[1]d.
requires: session.%[2]s.ready
tool_constraints:
  - act:
      requires: session.%[2]s.ready and session.%[2]s.count > 1
---
Do thing %[1]d, or go to @skill.skill_%03[3]d.

if: not session.%[2]s.ready
Get ready: @memory.%[2]s.count.

:::ordered_block id=steps
steps:
  - id: ask
    collect: count
    next:
      - if: session.%[2]s.count > 3
        then: done
      - else: ask
  - id: done
    instructions: Say so.
    complete_when: session.%[2]s.ready
:::
`, i, id, (i+1)%500))
		write(t, filepath.Join(dir, "skills", id, "memory.yml"), "schema:\n  public:\n    ready: {type: bool}\n    count: {type: int, llm_settable: true}\n")
		write(t, filepath.Join(dir, "skills", id, "responses.yml"), "responses:\n  utter_"+id+": [{text: x}]\n")
	}
	start := time.Now()
	a, fs := agent.Read(dir)
	t.Logf("500 skills: %v", time.Since(start))
	if len(fs) > 0 || len(a.Skills.Skills) != 503 {
		t.Errorf("%d skills, %.300q", len(a.Skills.Skills), found(fs))
	}
	write(t, filepath.Join(dir, "skills/one_more/skill.md"), front)
	_, fs = agent.Read(dir)
	if !slices.Contains(found(fs), "skills:0:0: too-many-skills") {
		t.Errorf("found %.200q", found(fs))
	}
}

func TestCircleOfManyBlocks(t *testing.T) {
	var b strings.Builder
	b.WriteString(front)
	const n = 2000
	for i := range n {
		fmt.Fprintf(&b, ":::ordered_block id=b%d\nsteps:\n  - call: b%d\n  - call: b%d\n:::\n", i, (i+1)%n, (i+2)%n)
	}
	_, fs := agent.Read(withSkill(t, "skills/x/skill.md", b.String()))
	if len(fs) == 0 || fs[0].Rule != "block-cycle" || len(fs) > 2*n || len(fs[0].Message) > 300 {
		t.Errorf("%d findings, %.300q", len(fs), found(fs))
	}
}

func TestCheckTools(t *testing.T) {
	dir := withSkill(t,
		"integrations.yml", goodIntegrations+"mcp_servers:\n  - {name: bank, url: 'https://bank.example/mcp'}\n  - {name: shop, url: 'https://shop.example/mcp'}\n",
		"skills/x/memory.yml", "schema: {public: {amount: {type: int}}}",
		"skills/x/skill.md", `---
description: Does it.
import_tools:
  - shared
  - own
  - sharde
  - mcp/bank:pay
  - mcp/shop:pay
  - mcp/bank:own
  - mcp/bank:listen
tool_constraints:
  - own: {requires: session.x.amount}
  - pay: {requires: session.x.amount}
  - not_imported: {requires: session.x.amount}
  - onw: {requires: session.x.amount}
---
Call @tool.own, @tool.shared, @tool.listen or @tool.set_fields.
Then @tool.nowhere.

:::ordered_block id=main
steps:
  - execute_tool: pay
  - execute_tool: not_imported
  - execute_tool: listen_closely
:::
`,
		"skills/y/skill.md", front+"Call @tool.own.\n")
	a, fs := agent.Read(dir)
	if len(fs) > 0 {
		t.Fatal(found(fs))
	}
	var b bytes.Buffer
	err := finding.Text(&b, agent.CheckTools(a, []agent.Tool{
		{Name: "own", File: "skills/x/tools.py"}, {Name: "shared", File: "tools/a.py"}, {Name: "not_imported", File: "tools.py"},
		{Name: "run_after_setting_amount", File: "skills/x/tools.py"}, {Name: "run_after_setting_total", File: "skills/x/tools/more.py"},
	}))
	if err != nil {
		t.Fatal(err)
	}
	const want = `skills/x/skill.md:5:5: warning: own is a tool of the skill itself [local-import]
    hint: take it out of import_tools: a skill's own tools need no import
skills/x/skill.md:6:5: error: there is no shared tool "sharde" [unknown-tool]
    hint: did you mean "shared"?
skills/x/skill.md:8:5: error: mcp/bank:pay and mcp/shop:pay have the same name [tool-collision]
    hint: import one of the two
skills/x/skill.md:9:5: error: own and mcp/bank:own have the same name [tool-collision]
    hint: import one of the two
skills/x/skill.md:9:5: error: the skill has a tool own itself [tool-collision]
    hint: rename its own tool
skills/x/skill.md:10:5: error: listen is a name of the framework's [tool-collision]
    hint: do not import it
skills/x/skill.md:14:5: error: not_imported is a shared tool that the skill does not import [tool-not-imported]
    hint: add it to import_tools
skills/x/skill.md:15:5: error: the skill has no tool "onw" [unknown-tool]
    hint: did you mean "own"?
skills/x/skill.md:18:6: error: the skill has no tool "nowhere" [unknown-tool]
    hint: write it in the skill's tools.py, or add it to import_tools
skills/x/skill.md:23:19: error: not_imported is a shared tool that the skill does not import [tool-not-imported]
    hint: add it to import_tools
skills/x/skill.md:24:19: error: the skill has no tool "listen_closely" [unknown-tool]
    hint: write it in the skill's tools.py, or add it to import_tools
skills/x/tools/more.py: warning: run_after_setting_total belongs to a value total, which the skill does not declare [unknown-memory]
    hint: declare it in the skill's memory.yml, or rename the tool
skills/y/skill.md:4:6: error: the skill has no tool "own" [unknown-tool]
    hint: write it in the skill's tools.py, or add it to import_tools

11 errors, 2 warnings in 3 files
`
	if b.String() != want {
		t.Errorf("got:\n%s", &b)
	}
	if fs := agent.CheckTools(&agent.Agent{}, []agent.Tool{{Name: "x", File: "tools.py"}}); fs != nil {
		t.Errorf("without skills: %v", fs)
	}
}

func TestSetting(t *testing.T) {
	lookup := func(name string) (string, bool) { return "<" + name + ">", name != "C" }
	text, missing := agent.Setting("a ${B} ${C} $D ${E F} ${C}").Expand(lookup)
	if text != "a <B> <C> $D ${E F} <C>" || !slices.Equal(missing, []string{"C"}) {
		t.Errorf("got %q, %q", text, missing)
	}
}

// TestDocumentedAgents reads the agents that the documents show.
func TestDocumentedAgents(t *testing.T) {
	shown := regexp.MustCompile("(?m)^`([A-Za-z0-9_./]+)`[^\n]*:\n\n```[a-z]+\n((?s:.*?))^```$")
	for _, page := range []string{"skills.md", "agent-folder.md"} {
		text := read(t, filepath.Join("../../docs", page))
		_, text, ok := strings.Cut(text, "## A small example")
		if !ok {
			t.Fatalf("%s has no example", page)
		}
		text, _, _ = strings.Cut(text, "\n## ")
		dir := t.TempDir()
		files := shown.FindAllStringSubmatch(text, -1)
		if len(files) < 5 {
			t.Fatalf("%s shows %d files", page, len(files))
		}
		for _, m := range files {
			write(t, filepath.Join(dir, m[1]), m[2])
		}
		if _, fs := agent.Read(dir); len(fs) > 0 {
			t.Errorf("%s: %q", page, found(fs))
		}
	}
}
