package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func read(t *testing.T, text string) (*Config, string, string) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, File)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, found := Read(path)
	var rules []string
	for _, f := range found {
		if f.Line == 0 || f.Hint == "" || f.File != File {
			t.Errorf("a finding without a place or a hint: %+v", f)
		}
		rules = append(rules, f.Rule)
	}
	return c, strings.Join(rules, " "), dir
}

func TestRead(t *testing.T) {
	c, rules, dir := read(t, `models:
  default: {provider: openai, model: gpt-4o, api_key_env: OPENAI_API_KEY, timeout: 30s}
  demo: {provider: scripted, script: scripts/demo.yml}
approvals:
  expiry: 2h
  webhook: {url: "http://127.0.0.1:9000/w", secret_env: HOOK_SECRET}
  command: [say, something waits]
listen: 127.0.0.1:7421
`)
	want := &Config{Listen: "127.0.0.1:7421", Models: map[string]Model{
		"default": {Provider: "openai", Name: "gpt-4o", KeyVariable: "OPENAI_API_KEY", Timeout: 30 * time.Second},
		"demo":    {Provider: Scripted, Script: filepath.Join(dir, "scripts/demo.yml")},
	}, Approvals: Approvals{Expiry: 2 * time.Hour, WebhookURL: "http://127.0.0.1:9000/w", SecretVariable: "HOOK_SECRET", Command: []string{"say", "something waits"}}}
	if rules != "" || !reflect.DeepEqual(c, want) {
		t.Errorf("%s\n got %+v\nwant %+v", rules, c, want)
	}
	if m, err := c.Model("nobody"); err != nil || m.Name != "gpt-4o" {
		t.Errorf("an alias that is not there: %+v, %v", m, err)
	}
	if _, err := (&Config{}).Model("x"); err == nil || !strings.Contains(err.Error(), "--model") {
		t.Errorf("no model at all: %v", err)
	}
}

func TestReadReportsWhatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"":                                  "",
		"modles: {}":                        "unknown-key",
		"models: {a: {model: x}}":           "missing-key",
		"models: {a: {provider: scripted}}": "missing-key",
		"models: {a: {provider: openai, model: x, api_key_env: sk-1}}": "bad-value",
		"approvals: {expiry: 400d}":                                    "bad-value",
		"approvals: {webhook: {url: nowhere, secret_env: A}}":          "bad-value",
		"approvals: {webhook: {url: 'http://a/b'}}":                    "missing-key",
		"listen: here": "bad-value",
	} {
		if _, rules, _ := read(t, text); rules != want {
			t.Errorf("%q: findings %q, want %q", text, rules, want)
		}
	}
	if _, found := Read(filepath.Join(t.TempDir(), "none.yaml")); len(found) > 0 {
		t.Errorf("a file that is not there: %v", found)
	}
}
