package scripted

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/belay-run/belay/internal/finding"
)

// Rules describes the findings that a script can have, sorted by id.
func Rules() []finding.Rule {
	return []finding.Rule{
		{ID: "script-answer", Summary: "An answer of a script says nothing, or things that exclude each other.", Help: "An answer has one of say, pieces and empty; call may stand beside a text, fail after one."},
		{ID: "script-key", Summary: "A script has a key that means nothing there.", Help: "A misspelt key would be passed over in silence. The hint names the keys that may stand there."},
		{ID: "script-never", Summary: "A rule of a script can never be reached.", Help: "Rules are tried in order and the first that holds answers. What should answer when nothing else does goes under default."},
		{ID: "script-pattern", Summary: "A pattern is no regular expression that Go's regexp package reads.", Help: "Lookarounds and back references do not exist there. Put patterns in single quotes."},
		{ID: "script-placeholder", Summary: "An answer uses a group that no pattern of its rule has.", Help: "{1} is the first pair of parentheses in the rule's pattern, {name} is (?P<name>…). Write {{name}} for {name} itself."},
		{ID: "script-syntax", Summary: "A script is not readable as YAML.", Help: "Check indentation, quotes and brackets."},
		{ID: "script-value", Summary: "A value of a script is of the wrong kind.", Help: "The message says what may stand there."},
	}
}

// Parse reads a script. The script is nil when a finding is an error.
func Parse(file string, src []byte) (*Script, []finding.Finding) {
	r := &reader{file: file}
	s := &Script{}
	if root := r.parse(src); root != nil {
		r.script(root, s)
	}
	finding.Sort(r.found)
	if finding.HasErrors(r.found) {
		return nil, r.found
	}
	return s, r.found
}

// The keys that may stand in each place.
var (
	scriptKeys = []string{"rules", "default"}
	answerKeys = []string{"say", "pieces", "call", "empty", "fail", "delay", "finish"}
	ruleKeys   = append([]string{"name", "when", "answers"}, answerKeys...)
	whenKeys   = []string{"user", "tool", "result", "system", "last", "quiet", "fill", "offered"}
	callKeys   = []string{"tool", "args", "id"}
	failKeys   = []string{"status", "message"}
)

func (r *reader) script(root ast.Node, s *Script) {
	f := r.fields(root, "a script", scriptKeys)
	for _, item := range r.list(f["rules"], "rules") {
		s.rules = append(s.rules, r.rule(item))
	}
	if n := f["default"]; n != nil {
		known := append([]string{"answers"}, answerKeys...)
		s.fallback = &rule{answers: r.answers(n, r.fields(n, "default", known), nil)}
	}
	if len(s.rules) == 0 && s.fallback == nil {
		r.err(root, "script-answer", "the script has neither rules nor default", "write rules:, each with when: and an answer such as say:")
	}
}

func (r *reader) rule(n ast.Node) rule {
	f := r.fields(n, "a rule", ruleKeys)
	r.text(f["name"], "name") // for the reader of the script only
	out := rule{}
	before := len(r.found)
	if w := r.fields(f["when"], "when", whenKeys); len(w) > 0 {
		out.when = r.when(f["when"], w)
	} else if f != nil && len(r.found) == before {
		r.err(n, "script-never", "a rule without conditions answers always, and what follows it never", "give it when:, or move its answer under default:")
	}
	out.answers = r.answers(n, f, out.when.groupNames())
	return out
}

func (r *reader) when(n ast.Node, f map[string]ast.Node) condition {
	c := condition{
		user:   r.pattern(f["user"], "user"),
		result: r.pattern(f["result"], "result"),
		system: r.pattern(f["system"], "system"),
		last:   r.pattern(f["last"], "last"),
		quiet:  r.pattern(f["quiet"], "quiet"),
		fill:   r.pattern(f["fill"], "fill"),
		tool:   r.text(f["tool"], "tool"),
	}
	for _, item := range r.oneOrMore(f["offered"]) {
		c.offers = append(c.offers, r.text(item, "offered"))
	}
	if c.quiet != nil && len(c.offers) > 0 {
		r.err(n, "script-never", "quiet is for requests that offer no tools, so offered cannot hold", "delete one of the two")
	}
	if c.fill != nil && (c.user != nil || c.result != nil || c.last != nil || c.quiet != nil || c.tool != "" || len(c.offers) > 0) {
		r.err(n, "script-never", "fill is for requests to fill in fields; only system may stand beside it", "delete the others")
	}
	return c
}

func (r *reader) pattern(n ast.Node, key string) *regexp.Regexp {
	if n == nil {
		return nil
	}
	re, err := regexp.Compile(r.text(n, key))
	if err != nil {
		r.err(n, "script-pattern", key+": "+strings.TrimPrefix(err.Error(), "error parsing regexp: "),
			"Go's regular expressions have no lookaround and no back references; put the pattern in single quotes")
		return nil
	}
	return re
}

// groupNames are what {…} may name in the answers of a rule.
func (c *condition) groupNames() []string {
	var out []string
	numbered := false
	for _, re := range []*regexp.Regexp{c.user, c.result, c.last, c.quiet, c.fill, c.system} { // as holds goes through them
		if re == nil {
			continue
		}
		for i, name := range re.SubexpNames() {
			if i > 0 && !numbered {
				out = append(out, strconv.Itoa(i))
			}
			if name != "" {
				out = append(out, name)
			}
		}
		numbered = numbered || re.NumSubexp() > 0
	}
	return out
}

// answers reads the one answer that stands in a rule itself, or those in a row
// under answers.
func (r *reader) answers(n ast.Node, f map[string]ast.Node, groups []string) []answer {
	several, ok := f["answers"]
	if !ok {
		return []answer{r.answer(n, f, groups)}
	}
	for _, key := range answerKeys {
		if f[key] != nil {
			r.err(f[key], "script-answer", key+" stands beside answers", "move it into one of the answers, or delete answers")
		}
	}
	var out []answer
	for _, item := range r.list(several, "answers") {
		out = append(out, r.answer(item, r.fields(item, "an answer", answerKeys), groups))
	}
	if len(out) == 0 {
		r.err(n, "script-answer", "answers is empty", "give at least one, such as - say: Hello")
	}
	return out
}

func (r *reader) answer(n ast.Node, f map[string]ast.Node, groups []string) answer {
	if f == nil {
		return answer{} // no mapping, which is reported
	}
	a := answer{delay: r.duration(f["delay"], "delay"), finish: r.text(f["finish"], "finish")}
	filled := func(n ast.Node, key string) string {
		text := r.text(n, key)
		r.placeholders(n, text, groups)
		return text
	}
	texts := 0
	if f["say"] != nil {
		a.pieces = []string{filled(f["say"], "say")}
		texts++
	}
	if f["pieces"] != nil {
		for _, item := range r.list(f["pieces"], "pieces") {
			a.pieces = append(a.pieces, filled(item, "pieces"))
		}
		texts++
	}
	for _, item := range r.oneOrMore(f["call"]) {
		a.calls = append(a.calls, r.call(item, groups))
	}
	if f["fail"] != nil {
		a.fail = r.fail(f["fail"])
	}
	if f["empty"] != nil && r.flag(f["empty"], "empty") {
		if texts++; len(a.calls) > 0 || a.fail != nil {
			r.err(f["empty"], "script-answer", "an empty answer has no calls and does not fail", "delete empty, or what stands beside it")
		}
	}
	switch {
	case texts > 1:
		r.err(n, "script-answer", "an answer has only one of say, pieces and empty", "keep one of them")
	case texts == 0 && len(a.calls) == 0 && a.fail == nil:
		r.err(n, "script-answer", "there is no answer here", "give say:, pieces:, call:, empty: true or fail:")
	case a.fail != nil && len(a.calls) > 0:
		r.err(f["call"], "script-answer", "an answer that fails makes no calls", "delete call or fail")
	}
	return a
}

func (r *reader) call(n ast.Node, groups []string) call {
	f := r.fields(n, "a call", callKeys)
	c := call{tool: r.text(f["tool"], "tool"), id: r.text(f["id"], "id")}
	if f != nil && c.tool == "" {
		r.err(n, "script-answer", "a call names no tool", "write tool: with the tool's name")
	}
	r.placeholders(f["id"], c.id, groups)
	if args := f["args"]; args != nil {
		c.args = r.tree(args, groups)
		switch c.args.(type) {
		case map[string]any, string, nil:
		default:
			r.err(args, "script-value", "args is neither a mapping nor a text", "write the arguments by name, or the raw text of the arguments in quotes")
		}
	}
	return c
}

func (r *reader) fail(n ast.Node) *fail {
	f := r.fields(n, "fail", failKeys)
	out := &fail{message: r.text(f["message"], "message")}
	if out.message == "" {
		out.message = "the scripted model fails as its script says"
	}
	if s := f["status"]; s != nil {
		status, err := strconv.Atoi(r.text(s, "status"))
		if err != nil || status < 400 || status > 599 {
			r.err(s, "script-value", "status is no HTTP status of a failure", "write a number from 400 to 599, or leave it out")
		}
		out.status = status
	}
	return out
}

// placeholders reports those that no group fills.
func (r *reader) placeholders(n ast.Node, text string, groups []string) {
	for _, m := range placeholder.FindAllStringSubmatch(text, -1) {
		if m[2] == "" || slices.Contains(groups, m[2]) {
			continue
		}
		hint := "The rule's patterns have the groups " + strings.Join(groups, ", ") + ". "
		if len(groups) == 0 {
			hint = "No pattern of the rule has a group; put one in parentheses. "
		}
		r.err(n, "script-placeholder", "{"+m[2]+"} is no group of the rule's patterns", hint+"Write {{"+m[2]+"}} for the text itself.")
	}
}
