package agent

import (
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/belay-run/belay/internal/condition"
	"github.com/belay-run/belay/internal/wording"
)

var responseName = regexp.MustCompile(`^utter_[A-Za-z0-9_./-]+$`)

// readResponses reads responses.yml, the project's and the skills'. It runs after
// agent.yml, for the language, and after memory, which texts and conditions name.
func (a *Agent) readResponses(f *folder, lib *library) {
	own := lib.responses(f.reader(ResponsesFile), f.yaml(ResponsesFile), "")
	var skills map[string]map[string][]wording.Variant
	if a.Skills != nil {
		skills = map[string]map[string][]wording.Variant{}
		for _, k := range a.Skills.Skills {
			if k.Builtin {
				continue
			}
			file := path.Join("skills", k.ID, ResponsesFile)
			if r := lib.responses(f.reader(file), f.yaml(file), k.ID); len(r) > 0 {
				skills[k.ID] = r
			}
		}
	}
	a.Responses = wording.NewWithSkills(a.Language, own, skills)
	a.warnLanguage(f.reader(AgentFile))
}

// responses reads one file of responses; id is the skill that it belongs to.
func (lib *library) responses(r *reader, n *node, id string) map[string][]wording.Variant {
	own := map[string][]wording.Variant{}
	top := r.open(n, "")
	if top == nil {
		return own
	}
	top.find("version") // other engines' files have one
	if responses := top.sub("responses"); responses != nil {
		for i := range responses.n.fields {
			n := &responses.n.fields[i]
			variants := r.response(n)
			if len(variants) == 0 {
				continue
			}
			own[n.name] = variants
			lib.later = append(lib.later, func() { lib.variants(r, n, variants, id) })
		}
	}
	top.close()
	return own
}

// variants looks at the memory that the variants of a response name.
func (lib *library) variants(r *reader, f *field, variants []wording.Variant, id string) {
	if lib.a.Skills == nil {
		return // such an agent's own values are all that there is
	}
	for i, v := range variants {
		at := r.at(v.Line, v.Column)
		if v.Condition != nil {
			for _, chain := range v.Condition.Names() {
				if chain[0] == "session" {
					lib.checkChain(at, chain, id)
				}
			}
		}
		for _, m := range sessionPlaceholder.FindAllStringSubmatch(v.Text, -1) {
			if field := lib.set.Field(m[1] + "." + m[2]); field == nil {
				at.warn("unknown-placeholder", fmt.Sprintf("responses.%s[%d] has {session.%s.%s}, which is not declared, so it is said as it is written", f.name, i, m[1], m[2]),
					lib.nearMemory(m[1]+"."+m[2], id))
			} else if field.Private && field.Namespace != id {
				at.warn("private-memory", fmt.Sprintf("responses.%s[%d] says a value that is private to the skill %s", f.name, i, field.Namespace), "declare it under public: in the skill's memory.yml")
			}
		}
	}
}

var sessionPlaceholder = regexp.MustCompile(`\{session\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)`)

func (r *reader) response(f *field) []wording.Variant {
	if !responseName.MatchString(f.name) {
		r.key(f).err("bad-response-name", fmt.Sprintf("%s is no name of a response", shown(f.name)), "begin it with utter_, then letters, digits or _")
		return nil
	}
	builtin := wording.New("en", nil)
	if near := nearest(f.name, builtin.Names()); near != "" && !builtin.Has(f.name) && distance(near, f.name) <= 2 {
		r.key(f).warn("misspelt-response", fmt.Sprintf("%s is close to the built-in %s but not the same", shown(f.name), near), fmt.Sprintf("rename it if it is meant to replace %s", near))
	}
	what := "responses." + f.name
	if f.value.kind != isList {
		r.mismatch(f.value, what, isList, `write a list of variants, each "- text: …"`)
		return nil
	}
	if len(f.value.items) == 0 {
		r.key(f).err("missing-key", what+" has no variant", `write a list of variants, each "- text: …"`)
	}
	var out []wording.Variant
	always := false
	for i, item := range f.value.items {
		v, ok := r.variant(item, fmt.Sprintf("%s[%d]", what, i))
		if ok {
			out = append(out, v)
		}
		always = always || ok && v.Condition == nil || !ok
	}
	r.defaults(f, what, out)
	if len(out) > 0 && !always && !builtin.Has(f.name) {
		r.key(f).warn("no-plain-variant", what+" has no variant without a condition, so it may have nothing to say", "add a variant without a condition")
	}
	return out
}

// defaults reports variants that are never said: of those without a condition only
// the first is.
func (r *reader) defaults(f *field, what string, variants []wording.Variant) {
	seen := false
	for i, v := range variants {
		if v.Condition != nil {
			continue
		}
		if seen {
			r.at(v.Line, v.Column).warn("unreachable-variant", fmt.Sprintf("%s[%d] is never said: a variant without a condition stands before it", what, i), "give it a condition, or delete it")
		}
		seen = true
	}
}

func (r *reader) variant(n *node, what string) (wording.Variant, bool) {
	v := wording.Variant{File: r.file, Line: n.line, Column: n.column}
	if n.kind == isText {
		v.Text = n.text
		if strings.TrimSpace(v.Text) == "" {
			r.on(n).err("bad-value", what+" is blank", "write its text")
			return v, false
		}
		return v, true
	}
	s := r.open(n, what)
	if s == nil {
		if n.kind == isNull {
			r.on(n).err("missing-key", what+" has no text", "write text: under it")
		}
		return v, false
	}
	before := len(*r.findings)
	v.Text = s.text("text")
	if strings.TrimSpace(v.Text) == "" && len(*r.findings) == before {
		r.on(n).err("missing-key", what+" has no text", "write text: under it")
	}
	if source := s.get("condition", isText, "put it in quotes"); source != nil {
		c, err := condition.Compile(source.text)
		if err != nil {
			r.on(source).err("bad-condition", fmt.Sprintf("the condition of %s cannot be used: %v", what, err),
				`write an expression such as session.project.verified and session.cart.total > 100`)
		}
		v.Condition = c
	}
	metadata := s.sub("metadata")
	if flag := metadata.get("rephrase", isBool, "write true or false without quotes"); flag != nil {
		v.Rephrase = flag.text == "true"
	}
	for _, f := range metadata.rest() { // others' settings; only a slip of ours is told
		if near := nearest(f.name, metadata.known); near != "" {
			r.key(f).err("unknown-key", fmt.Sprintf("unknown key %s in %s", shown(f.name), metadata.path), fmt.Sprintf("did you mean %q?", near))
		}
	}
	s.idle("buttons", "quick_replies", "elements", "image", "attachment", "custom", "channel", "id")
	s.close()
	return v, len(*r.findings) == before || v.Text != ""
}
