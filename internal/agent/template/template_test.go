package template_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/agent"
	"github.com/belay-run/belay/internal/agent/template"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/knowledge"
	"github.com/belay-run/belay/internal/model/scripted"
)

func TestTheAgentHasNoFindings(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "below", "shop")
	if err := template.Write(dir); err != nil {
		t.Fatal(err)
	}
	a, findings := agent.Read(dir)
	if len(findings) > 0 {
		t.Errorf("findings: %+v", findings)
	}
	if a.ID != "shop" || a.Model.Provider != agent.Scripted || len(a.Model.Script) == 0 ||
		!slices.Equal(a.HookFiles, []string{"hooks/example.py"}) || !slices.Equal(a.ToolFiles, []string{"tools/clock.py"}) {
		t.Errorf("%+v", a)
	}
	x, findings := knowledge.Open(dir, a.KnowledgeFiles, a.Language)
	if x == nil || len(findings) > 0 {
		t.Fatalf("findings: %+v", findings)
	}
	if err := x.Close(); err != nil {
		t.Error(err)
	}
	for _, name := range template.Files() {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != 0o644 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}

func TestTheScriptAnswers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "shop")
	if err := template.Write(dir); err != nil {
		t.Fatal(err)
	}
	a, _ := agent.Read(dir)
	script, findings := scripted.Parse(a.Model.ScriptFile, a.Model.Script)
	if script == nil || len(findings) > 0 {
		t.Fatalf("findings: %+v", findings)
	}
	const asked = `{"role":"user","content":"Are you open on Sunday?"}`
	tests := []struct{ messages, call, want string }{
		{`[{"role":"user","content":"hi"}]`, "", "Hello!"},
		{`[` + asked + `]`, "search_knowledge", `{"query":"Are you open on Sunday?"}`},
		{`[` + asked + `,{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"search_knowledge","arguments":"{}"}}]},` +
			`{"role":"tool","tool_call_id":"c","content":"[1] references/opening-hours.md#closed\nOpening hours > Closed\n\nClosed on Sundays.\n\n[2] x\ny\n\nz"}]`, "", "Closed on Sundays."},
		{`[{"role":"user","content":"what time is it"}]`, "current_time", ""},
		{`[{"role":"user","content":"Do you promise?"}]`, "", "I guarantee"},
	}
	for _, tt := range tests {
		r, err := script.Complete(t.Context(), chat.Request{Messages: json.RawMessage(tt.messages), Tools: []chat.Tool{{Name: "search_knowledge"}}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case tt.call == "" && (r.Text == nil || !strings.Contains(*r.Text, tt.want)):
			t.Errorf("%s: %v", tt.messages, r.Text)
		case tt.call != "" && (len(r.ToolCalls) != 1 || r.ToolCalls[0].Name != tt.call || !strings.Contains(string(r.ToolCalls[0].Arguments), tt.want)):
			t.Errorf("%s: %+v", tt.messages, r.ToolCalls)
		}
	}
}

func TestWriteRefuses(t *testing.T) {
	empty := t.TempDir()
	if err := template.Write(empty); err != nil {
		t.Errorf("an empty folder: %v", err)
	}
	before, err := os.ReadFile(filepath.Join(empty, "agent.yml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := template.Write(empty); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("a full folder: %v", err)
	}
	after, _ := os.ReadFile(filepath.Join(empty, "agent.yml"))
	if string(before) != string(after) {
		t.Error("a file was changed")
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := template.Write(file); err == nil {
		t.Error("a file was taken for a folder")
	}
}
