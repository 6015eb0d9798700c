package skill_test

import (
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/skill"
)

func TestMentions(t *testing.T) {
	tests := []struct{ text, want string }{
		{"Invoke @skill.pay, or `@block.collect_it`.", "skill:pay block:collect_it"},
		{"Call @tool.send-mail. Then @memory.project.city.", "tool:send-mail memory:project.city"},
		{"@memory.project and @memory.pay.amount!", "memory:project memory:pay.amount"},
		{"me@skill.example, a.b@tool.org", ""},
		{"@skills.x @ skill.x @Skill.x @skill.", ""},
		{"(@skill.a)@skill.b", "skill:a skill:b"},
		{"@skill.a.b", "skill:a"},
		{"é@skill.a", "skill:a"},
	}
	for _, tt := range tests {
		var got []string
		for _, m := range skill.Mentions(tt.text) {
			got = append(got, string(m.Kind)+":"+m.Name)
			if text := tt.text[m.Start:m.End]; text != "@"+string(m.Kind)+"."+m.Name {
				t.Errorf("%q: cut to %q", tt.text, text)
			}
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%q: got %v", tt.text, got)
		}
	}
}
