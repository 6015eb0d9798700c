package convtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/finding"
)

// write writes a file of a test's folder and returns its path.
func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// whole is a file with everything that may stand in one.
const whole = `x-model: &model
  rules:
    - when: {user: hello}
      say: Hi!
conversations:
  - name: everything
    sender: ada
    channel: {name: web, metadata: {page: /start}}
    memory: {project.name: Ada, session.booking.day: null}
    model: *model
    turns:
      - user: hello
        extra: {button: 1}
        expect:
          message: {contains: hello, discarded: rejected}
          texts:
            - Hi!
            - {text: Hi!, response: utter_hi, source: rephrased}
            - {contains: [a, b]}
            - {matches: '^\d+$'}
          not_texts: [secret, {matches: x}]
          tools:
            - look_up
            - {name: pay, arguments: {amount: 1.50, to: null}, result: {ok: true}, is_error: false, by: confirmation}
            - {name: pay, arguments: '{"amount": 1}', result: done, by: model}
          confirmation: {asked: pay, resolved: false}
          memory: {project.name: Ada, project.age: null}
          skill: null
          block: main
          step: null
          hooks:
            - {hook: hooks.py:mask, point: incoming_message, said: changed}
            - {hook: watch, said: [seen, failed]}
            - {hook: other}
          status: completed
  - name: recorded
    channel: phone
    turns:
      - user: hello
        recording:
          - text: Let me see.
            tool_calls:
              - {name: look_up, arguments: {item: lamp}, id: call_1, type: function}
          - {purpose: rephrase, text: Well.}
          - empty: true
          - fail: it was down
        expect: {texts: [], tools: [], confirmation: none}
      - user: bye
        recording: []
  - name: recorded as a whole
    model: {recording: [{text: Hi.}]}
    turns: [{user: hello}]
  - name: with a script of its own
    model: {script: scripts/hi.yml}
    turns: [{user: hello}]
`

func TestReadsEverything(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "scripts/hi.yml", "default: {say: Hi.}\n")
	f, found := Read(write(t, dir, "all.yml", whole))
	if len(found) > 0 {
		t.Fatalf("findings: %+v", found)
	}
	c := f.Conversations[0]
	e := c.Turns[0].Expect
	if c.Script == nil || string(c.Channel) != `{"metadata":{"page":"/start"},"name":"web"}` || len(c.Memory) != 2 || c.Memory[1].Name != "booking.day" {
		t.Errorf("conversation: %+v", c)
	}
	if len(e.Texts.Items) != 4 || len(e.Tools.Items) != 3 || e.Skill.Text != "" || e.Block.Text != "main" || len(e.Hooks) != 3 || *e.Confirmation.Resolved {
		t.Errorf("expected: %+v", e)
	}
	if got := string(e.Tools.Items[1].Arguments); got != `{"amount": 1.50, "to": null}` {
		t.Errorf("arguments %s", got)
	}
	r := f.Conversations[1]
	if !r.own() || len(r.Turns[0].Recording) != 4 || r.Turns[0].Recording[0].Calls[0].ID != "call_1" || len(r.Turns[1].Recording) != 0 {
		t.Errorf("recorded: %+v", r.Turns[0])
	}
	if e := r.Turns[0].Expect; e.Texts == nil || e.Tools == nil || !e.Confirmation.None {
		t.Errorf("empty lists must count: %+v", e)
	}
	if len(f.Conversations[2].Recording) != 1 || f.Conversations[3].Script == nil {
		t.Error("models")
	}
}

func TestFindsMistakes(t *testing.T) {
	turn := func(expect string) string {
		return "conversations:\n  - name: x\n    turns:\n      - user: hi\n        expect: " + expect + "\n"
	}
	for name, c := range map[string]struct{ text, want string }{
		"nothing":               {"", ":0:0 missing-key"},
		"no conversations":      {"other: 1\n", ":1:1 missing-key :1:1 unknown-key"},
		"none in the list":      {"conversations: []\n", ":1:1 empty-list"},
		"no name":               {"conversations:\n  - turns: [{user: hi}]\n", ":2:5 missing-key"},
		"no turns":              {"conversations:\n  - name: x\n", ":2:5 missing-key"},
		"no turn":               {"conversations:\n  - name: x\n    turns: []\n", ":3:5 empty-list"},
		"no user":               {"conversations:\n  - name: x\n    turns: [{expect: {texts: []}}]\n", ":3:14 missing-key"},
		"same name":             {"conversations:\n  - {name: x, turns: [{user: hi}]}\n  - {name: x, turns: [{user: hi}]}\n", ":3:12 duplicate-name"},
		"bad sender":            {"conversations:\n  - {name: x, sender: \"a\\nb\", turns: [{user: hi}]}\n", ":2:23 bad-value"},
		"number for a text":     {"conversations:\n  - {name: x, turns: [{user: 42}]}\n", ":2:30 wrong-type"},
		"unknown key":           {turn("{text: [Hi]}"), ":5:18 unknown-key"},
		"texts no list":         {turn("{texts: Hi}"), ":5:25 wrong-type"},
		"unknown key in a text": {turn("{texts: [{contain: Hi}]}"), ":5:27 unknown-key"},
		"bad pattern":           {turn("{texts: [{matches: '('}]}"), ":5:36 bad-pattern"},
		"unknown source":        {turn("{texts: [{source: ai}]}"), ":5:35 unknown-value"},
		"a tool without a name": {turn("{tools: [{arguments: {a: 1}}]}"), ":5:27 missing-key"},
		"unknown by":            {turn("{tools: [{name: a, by: nobody}]}"), ":5:40 unknown-value"},
		"arguments a list":      {turn("{tools: [{name: a, arguments: [1]}]}"), ":5:47 wrong-type"},
		"unknown word":          {turn("{hooks: [{hook: a, said: rejected}]}"), ":5:42 unknown-value"},
		"unknown word in list":  {turn("{hooks: [{hook: a, said: [retry, no]}]}"), ":5:50 unknown-value"},
		"unknown status":        {turn("{status: done}"), ":5:26 unknown-value"},
		"confirmation of what":  {turn("{confirmation: maybe}"), ":5:32 unknown-value"},
		"nothing not said":      {turn("{not_texts: []}"), ":5:29 empty-list"},
		"skill no text":         {turn("{skill: 7}"), ":5:25 wrong-type"},
		"two models":            {"conversations:\n  - name: x\n    model: {default: {say: a}}\n    turns:\n      - user: hi\n        recording: [{text: a}]\n", ":6:20 two-models"},
		"a bad inline script":   {"conversations:\n  - name: x\n    model:\n      rules:\n        - when: {usr: a}\n          say: b\n    turns: [{user: hi}]\n", ":5:18 script-key"},
		"no such script":        {"conversations:\n  - name: x\n    model: {script: no.yml}\n    turns: [{user: hi}]\n", ":3:21 missing-script"},
		"an empty completion":   {"conversations:\n  - {name: x, turns: [{user: hi, recording: [{purpose: fill}]}]}\n", ":2:47 missing-key"},
		"empty with a text":     {"conversations:\n  - {name: x, turns: [{user: hi, recording: [{text: a, empty: true}]}]}\n", ":2:63 bad-value"},
		"not YAML":              {"conversations: [\n", ":1:16 yaml-syntax"},
		"no JSON number":        {turn("{memory: {project.a: .inf}}"), ":5:38 bad-value"},
	} {
		t.Run(name, func(t *testing.T) {
			_, found := parse("t.yml", []byte(c.text))
			var got []string
			for _, f := range found {
				got = append(got, fmt.Sprintf(":%d:%d %s", f.Line, f.Column, f.Rule))
				if f.Hint == "" || f.Severity != finding.Error || f.File != "t.yml" && f.Rule != "missing-script" {
					t.Errorf("finding %+v", f)
				}
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("found %q, want %q: %+v", strings.Join(got, " "), c.want, found)
			}
		})
	}
}

func TestFilesThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	big := write(t, dir, "big.yml", "conversations: # "+strings.Repeat("x", 5<<20)+"\n")
	for path, rule := range map[string]string{big: "too-large", filepath.Join(dir, "no.yml"): "missing-file", dir: "missing-file"} {
		if _, found := Read(path); len(found) != 1 || found[0].Rule != rule || found[0].File != path {
			t.Errorf("%s: %+v, want %s", path, found, rule)
		}
	}
}

func TestFindsTests(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b.yml", "a/c.yaml", "a/.hidden.yml", ".git/x.yml", "__pycache__/y.yml", "notes.md"} {
		write(t, dir, name, "")
	}
	got, err := Find(dir)
	if err != nil || len(got) != 2 || got[0] != filepath.Join(dir, "a", "c.yaml") || got[1] != filepath.Join(dir, "b.yml") {
		t.Errorf("found %q, %v", got, err)
	}
	if got, err := Find(filepath.Join(dir, "nowhere")); err != nil || got != nil {
		t.Errorf("found %q, %v", got, err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte("conversations: [{name: a, turns: [{user: b, expect: {skill: }}]}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, found := parse("t.yml", data)
		if finding.HasErrors(found) {
			return
		}
		for _, c := range file.Conversations {
			if c.Name == "" || len(c.Turns) == 0 {
				t.Errorf("a conversation without a name or turns was let through: %+v", c)
			}
		}
	})
}
