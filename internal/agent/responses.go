package agent

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/belay-run/belay/internal/condition"
	"github.com/belay-run/belay/internal/wording"
)

var responseName = regexp.MustCompile(`^utter_[A-Za-z0-9_./-]+$`)

// readResponses reads responses.yml. It runs after agent.yml, for the language.
func (a *Agent) readResponses(f *folder) {
	own := map[string][]wording.Variant{}
	r := f.reader(ResponsesFile)
	if top := r.open(f.yaml(ResponsesFile), ""); top != nil {
		top.find("version") // other engines' files have one
		responses := top.sub("responses")
		if responses != nil {
			for i := range responses.n.fields {
				n := &responses.n.fields[i]
				if variants := r.response(n); len(variants) > 0 {
					own[n.name] = variants
				}
			}
		}
		top.close()
	}
	a.Responses = wording.New(a.Language, own)
	a.warnLanguage(f.reader(AgentFile))
}

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
	if len(out) > 0 && !always && !builtin.Has(f.name) {
		r.key(f).warn("no-plain-variant", what+" has no variant without a condition, so it may have nothing to say", "add a variant without a condition")
	}
	return out
}

func (r *reader) variant(n *node, what string) (wording.Variant, bool) {
	v := wording.Variant{Line: n.line}
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
