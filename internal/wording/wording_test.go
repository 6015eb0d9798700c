package wording_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/condition"
	"github.com/belay-run/belay/internal/wording"
)

func when(t testing.TB, source string) *condition.Condition {
	t.Helper()
	c, err := condition.Compile(source)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestEveryNameHasATextInEveryLanguage(t *testing.T) {
	names := []string{wording.InternalError, wording.MaxIterations, wording.EmptyResponse, wording.ConfirmTool, wording.ConfirmDenied}
	for _, p := range hook.Points {
		for _, name := range []string{p.Response, p.Rejected, p.RejectedAlias} {
			if name != "" {
				names = append(names, name)
			}
		}
	}
	for _, language := range []string{"en", "de", "es", "de-AT", "ES_mx", "fr", ""} {
		book := wording.New(language, nil)
		for _, name := range names {
			text, rephrase, ok := book.Pick(name, nil)
			if !ok || text == "" || rephrase || !book.Has(name) || book.Own(name) {
				t.Errorf("%s in %q: %q, %v, %v", name, language, text, rephrase, ok)
			}
		}
	}
}

func TestLanguages(t *testing.T) {
	english, _, _ := wording.New("en", nil).Pick(wording.InternalError, nil)
	if english != "I'm sorry, but something went wrong. Please try again." {
		t.Errorf("got %q", english)
	}
	for language, same := range map[string]bool{"de": false, "es": false, "de-CH": false, "fr": true, "english": true} {
		text, _, _ := wording.New(language, nil).Pick(wording.InternalError, nil)
		if (text == english) != same {
			t.Errorf("%s: %q", language, text)
		}
	}
	if !wording.HasLanguage("de_DE") || wording.HasLanguage("fr") {
		t.Error("HasLanguage is wrong")
	}
}

func TestPick(t *testing.T) {
	own := map[string][]wording.Variant{
		"utter_fee": {
			{Text: "It is free."},
			{Text: "Lost: {session.fee} euros.", Condition: when(t, `session.reason == "lost"`), Rephrase: true},
			{Text: "never reached", Condition: when(t, "session.reason")},
		},
		"utter_only_sometimes": {{Text: "yes", Condition: when(t, "session.ok")}},
		wording.MaxIterations:  {{Text: "own", Condition: when(t, "session.ok")}},
		"utter_bad":            {{Text: "bad", Condition: when(t, "session > 3")}, {Text: "good"}},
	}
	builtin, _, _ := wording.New("en", nil).Pick(wording.MaxIterations, nil)
	tests := []struct {
		name, vars, want string
		rephrase, ok     bool
	}{
		{"utter_fee", `{}`, "It is free.", false, true},
		{"utter_fee", `{"session": {"reason": "lost", "fee": 3}}`, "Lost: 3 euros.", true, true},
		{"utter_fee", `{"session": {"reason": "stolen"}}`, "never reached", false, true},
		{"utter_only_sometimes", `{"session": {"ok": true}}`, "yes", false, true},
		{"utter_only_sometimes", `{"session": {"ok": false}}`, "", false, false},
		{"utter_unknown", `{}`, "", false, false},
		{wording.MaxIterations, `{"session": {"ok": true}}`, "own", false, true},
		{wording.MaxIterations, `{}`, builtin, false, true},
		{"utter_bad", `{"session": {}}`, "good", false, true},
	}
	var log bytes.Buffer
	book := wording.New("en", own).WithLog(slog.New(slog.NewTextHandler(&log, nil)))
	for _, tt := range tests {
		text, rephrase, ok := book.Pick(tt.name, vars(t, tt.vars))
		if text != tt.want || rephrase != tt.rephrase || ok != tt.ok {
			t.Errorf("%s with %s: %q, %v, %v", tt.name, tt.vars, text, rephrase, ok)
		}
	}
	if !strings.Contains(log.String(), "utter_bad") {
		t.Errorf("the failed condition is not in the log: %s", &log)
	}
}

func TestSkills(t *testing.T) {
	say := func(text string) []wording.Variant { return []wording.Variant{{Text: text}} }
	book := wording.NewWithSkills("en", map[string][]wording.Variant{
		"utter_project": say("project"), "utter_both": say("project"), wording.AskContinue: say("project"),
	}, map[string]map[string][]wording.Variant{
		"b": {"utter_both": say("b"), "utter_skills": say("b"), wording.AskResume: say("b"), "utter_if": {{Text: "b", Condition: when(t, "no")}}},
		"a": {"utter_skills": say("a"), "utter_a": say("a {x}"), "utter_if": say("a")},
	})
	tests := []struct{ skill, name, want string }{
		{"", "utter_project", "project"},
		{"b", "utter_project", "project"},
		{"b", "utter_both", "b"},
		{"a", "utter_both", "project"},
		{"", "utter_both", "project"},
		{"b", "utter_skills", "b"},
		{"", "utter_skills", "a"},
		{"c", "utter_skills", "a"},
		{"b", "utter_a", "a 1"},
		{"b", "utter_if", "a"},
		{"b", wording.AskContinue, "project"},
		{"a", wording.AskResume, "b"},
		{"b", wording.DeclineOther, "I'm sorry, that lies outside what I can help with."},
		{"b", "utter_nowhere", ""},
	}
	for _, tt := range tests {
		if got, _, ok := book.PickIn(tt.skill, tt.name, map[string]any{"x": 1}); got != tt.want || ok != (tt.want != "") || tt.want != "" != book.Has(tt.name) {
			t.Errorf("%s in %q: got %q, %v", tt.name, tt.skill, got, ok)
		}
	}
	if !book.Own("utter_a") || book.Own(wording.DeclineOther) || !slices.Contains(book.Names(), "utter_a") {
		t.Error("Own or Names is wrong")
	}
	for _, language := range []string{"en", "de", "es"} {
		for _, name := range wording.OfSkills {
			if text, rephrase, ok := wording.New(language, nil).Pick(name, map[string]any{"interrupted_task_name": "x"}); !ok || !rephrase || strings.Contains(text, "{") {
				t.Errorf("%s in %s: %q, %v, %v", name, language, text, rephrase, ok)
			}
		}
	}
}

func TestTheLaterSpellingWins(t *testing.T) {
	const old, later = "utter_outgoing_text_rejected", "utter_outgoing_message_rejected"
	one := []wording.Variant{{Text: "old"}}
	two := []wording.Variant{{Text: "later"}}
	tests := []struct {
		own  map[string][]wording.Variant
		want string
	}{
		{map[string][]wording.Variant{old: one}, "old"},
		{map[string][]wording.Variant{later: two}, "later"},
		{map[string][]wording.Variant{old: one, later: two}, "later"},
	}
	for _, tt := range tests {
		for _, name := range []string{old, later} {
			if text, _, _ := wording.New("en", tt.own).Pick(name, nil); text != tt.want {
				t.Errorf("%s: got %q, want %q", name, text, tt.want)
			}
		}
	}
}

func TestFill(t *testing.T) {
	const values = `{"name": "Ann {secret}", "secret": "no", "session": {"a": {"b": 1234567.5, "list": [1, "<x>"], "none": null, "yes": true}}}`
	tests := []struct{ text, want string }{
		{"Hello {name}.", "Hello Ann {secret}."}, // what was filled in is not looked at again
		{"{session.a.b}", "1234567.5"},
		{"{session.a.list} {session.a.yes}", `[1,"<x>"] true`},
		{"{session.a.none} {session.a.c} {session.x.y.z} {unknown}", "{session.a.none} {session.a.c} {session.x.y.z} {unknown}"},
		{"{name.deeper} {} { name } {{name}}", "{name.deeper} {} { name } {Ann {secret}}"},
		{`{"json": 1} 100 % {`, `{"json": 1} 100 % {`},
	}
	for _, tt := range tests {
		own := map[string][]wording.Variant{"utter_x": {{Text: tt.text}}}
		if got, _, _ := wording.New("en", own).Pick("utter_x", vars(t, values)); got != tt.want {
			t.Errorf("%q: got %q, want %q", tt.text, got, tt.want)
		}
	}
}

func TestConfirmation(t *testing.T) {
	tests := []struct{ arguments, want string }{
		{`{"day": "Monday", "seats": 2, "note": null, "tags": ["a"]}`, `I am about to run book with day: Monday, seats: 2, tags: ["a"]. Shall I go ahead?`},
		{`{}`, "I am about to run book. Shall I go ahead?"},
		{``, "I am about to run book. Shall I go ahead?"},
		{`not json`, "I am about to run book. Shall I go ahead?"},
		{`{"id": 9007199254740993}`, "I am about to run book with id: 9007199254740993. Shall I go ahead?"},
		{`{"tool": "x", "arguments": "y"}`, "I am about to run book with tool: x, arguments: y. Shall I go ahead?"},
	}
	for _, tt := range tests {
		got, _, _ := wording.New("en", nil).Pick(wording.ConfirmTool, wording.ConfirmVars("book", json.RawMessage(tt.arguments)))
		if got != tt.want {
			t.Errorf("%s: got %q", tt.arguments, got)
		}
	}
	long, _, _ := wording.New("en", nil).Pick(wording.ConfirmTool, wording.ConfirmVars("t", json.RawMessage(`{"a": "`+strings.Repeat("é", 5000)+`"}`)))
	if len([]rune(long)) > 300 {
		t.Errorf("a question of %d characters", len([]rune(long)))
	}
}

func vars(t testing.TB, text string) map[string]any {
	t.Helper()
	v := map[string]any{}
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func FuzzPick(f *testing.F) {
	f.Add("Hello {name} {session.a.b}", `{"name": "x", "session": {"a": {"b": [1]}}}`, "session.a")
	f.Add("{{a}}{", `{"a": "{a}"}`, "not a")
	f.Fuzz(func(t *testing.T, text, values, source string) {
		v := map[string]any{}
		if json.Unmarshal([]byte(values), &v) != nil {
			return
		}
		variants := []wording.Variant{{Text: text}}
		if c, err := condition.Compile(source); err == nil {
			variants = append(variants, wording.Variant{Text: "other", Condition: c})
		}
		book := wording.New("en", map[string][]wording.Variant{"utter_x": variants})
		if _, _, ok := book.Pick("utter_x", v); !ok {
			t.Error("no text although one variant has no condition")
		}
		if text, _, ok := book.Pick(wording.ConfirmTool, wording.ConfirmVars("t", json.RawMessage(values))); !ok || text == "" {
			t.Error("no confirmation question")
		}
	})
}
