package agent

import (
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/belay-run/belay/internal/condition"
	"github.com/belay-run/belay/internal/wording"
	"github.com/belay-run/belay/internal/yamlfile"
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
func (lib *library) responses(r *yamlfile.Reader, n *yamlfile.Node, id string) map[string][]wording.Variant {
	own := map[string][]wording.Variant{}
	top := r.Open(n, "")
	if top == nil {
		return own
	}
	top.Find("version") // other engines' files have one
	if responses := top.Sub("responses"); responses != nil {
		for i := range responses.Node.Fields {
			n := &responses.Node.Fields[i]
			variants := response(r, n)
			if len(variants) == 0 {
				continue
			}
			own[n.Name] = variants
			lib.later = append(lib.later, func() { lib.variants(r, n, variants, id) })
		}
	}
	top.Unknown()
	return own
}

// variants looks at the memory that the variants of a response name.
func (lib *library) variants(r *yamlfile.Reader, f *yamlfile.Field, variants []wording.Variant, id string) {
	if lib.a.Skills == nil {
		return // such an agent's own values are all that there is
	}
	for i, v := range variants {
		at := r.At(v.Line, v.Column)
		if v.Condition != nil {
			for _, chain := range v.Condition.Names() {
				if chain[0] == "session" {
					lib.checkChain(at, chain, id)
				}
			}
		}
		for _, m := range sessionPlaceholder.FindAllStringSubmatch(v.Text, -1) {
			if field := lib.set.Field(m[1] + "." + m[2]); field == nil {
				at.Warn("unknown-placeholder", fmt.Sprintf("responses.%s[%d] has {session.%s.%s}, which is not declared, so it is said as it is written", f.Name, i, m[1], m[2]),
					lib.nearMemory(m[1]+"."+m[2], id))
			} else if field.Private && field.Namespace != id {
				at.Warn("private-memory", fmt.Sprintf("responses.%s[%d] says a value that is private to the skill %s", f.Name, i, field.Namespace), "declare it under public: in the skill's memory.yml")
			}
		}
	}
}

var sessionPlaceholder = regexp.MustCompile(`\{session\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)`)

func response(r *yamlfile.Reader, f *yamlfile.Field) []wording.Variant {
	if !responseName.MatchString(f.Name) {
		r.Key(f).Err("bad-response-name", fmt.Sprintf("%s is no name of a response", yamlfile.Shown(f.Name)), "begin it with utter_, then letters, digits or _")
		return nil
	}
	builtin := wording.New("en", nil)
	if near := yamlfile.Nearest(f.Name, builtin.Names()); near != "" && !builtin.Has(f.Name) && yamlfile.Distance(near, f.Name) <= 2 {
		r.Key(f).Warn("misspelt-response", fmt.Sprintf("%s is close to the built-in %s but not the same", yamlfile.Shown(f.Name), near), fmt.Sprintf("rename it if it is meant to replace %s", near))
	}
	what := "responses." + f.Name
	if f.Value.Kind != yamlfile.List {
		r.Mismatch(f.Value, what, yamlfile.List, `write a list of variants, each "- text: …"`)
		return nil
	}
	if len(f.Value.Items) == 0 {
		r.Key(f).Err("missing-key", what+" has no variant", `write a list of variants, each "- text: …"`)
	}
	var out []wording.Variant
	always := false
	for i, item := range f.Value.Items {
		v, ok := variant(r, item, fmt.Sprintf("%s[%d]", what, i))
		if ok {
			out = append(out, v)
		}
		always = always || ok && v.Condition == nil || !ok
	}
	defaults(r, f, what, out)
	if len(out) > 0 && !always && !builtin.Has(f.Name) {
		r.Key(f).Warn("no-plain-variant", what+" has no variant without a condition, so it may have nothing to say", "add a variant without a condition")
	}
	return out
}

// defaults reports variants that are never said: of those without a condition only
// the first is.
func defaults(r *yamlfile.Reader, f *yamlfile.Field, what string, variants []wording.Variant) {
	seen := false
	for i, v := range variants {
		if v.Condition != nil {
			continue
		}
		if seen {
			r.At(v.Line, v.Column).Warn("unreachable-variant", fmt.Sprintf("%s[%d] is never said: a variant without a condition stands before it", what, i), "give it a condition, or delete it")
		}
		seen = true
	}
}

func variant(r *yamlfile.Reader, n *yamlfile.Node, what string) (wording.Variant, bool) {
	v := wording.Variant{File: r.File(), Line: n.Line, Column: n.Column}
	if n.Kind == yamlfile.Text {
		v.Text = n.Text
		if strings.TrimSpace(v.Text) == "" {
			r.On(n).Err("bad-value", what+" is blank", "write its text")
			return v, false
		}
		return v, true
	}
	s := r.Open(n, what)
	if s == nil {
		if n.Kind == yamlfile.Null {
			r.On(n).Err("missing-key", what+" has no text", "write text: under it")
		}
		return v, false
	}
	v.Text = s.TextOrBlank("text")
	if text := s.Find("text"); strings.TrimSpace(v.Text) == "" && (text == nil || text.Value.Kind == yamlfile.Text) {
		r.On(n).Err("missing-key", what+" has no text", "write text: under it")
	}
	if source := s.Get("condition", yamlfile.Text, "put it in quotes"); source != nil {
		c, err := condition.Compile(source.Text)
		if err != nil {
			r.On(source).Err("bad-condition", fmt.Sprintf("the condition of %s cannot be used: %v", what, err),
				`write an expression such as session.project.verified and session.cart.total > 100`)
		}
		v.Condition = c
	}
	metadata := s.Sub("metadata")
	if flag := metadata.Get("rephrase", yamlfile.Bool, "write true or false without quotes"); flag != nil {
		v.Rephrase = flag.Text == "true"
	}
	for _, f := range metadata.Rest() { // others' settings; only a slip of ours is told
		metadata.Slip(f)
	}
	idle(s, "buttons", "quick_replies", "elements", "image", "attachment", "custom", "channel", "id")
	s.Unknown()
	return v, v.Text != ""
}
