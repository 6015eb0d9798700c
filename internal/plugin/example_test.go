package plugin_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/plugin"
)

// A plugin's folder is read and checked before any of its programs is started.
func ExampleRead() {
	dir, err := os.MkdirTemp("", "plugin")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	manifest := `name: acme-policy
tools:
  - id: acme_policy
    mcp: [python, -m, acme_policy.server]
hooks:
  - on: pre_tool_call
    call: acme_policy.check
    match: {tools: [acme_github.push]}
  - on: pre_tool_call
    call: acme_policy.judge
    decisions: [allow, escalate]
    on_timeout: deny
`
	if err := os.WriteFile(filepath.Join(dir, plugin.File), []byte(manifest), 0o644); err != nil {
		fmt.Println(err)
		return
	}
	m, findings := plugin.Read(dir)
	if err := finding.Text(os.Stdout, findings); err != nil {
		fmt.Println(err)
	}
	for _, h := range m.Chain(hook.PreToolCall, "acme-reviewer", "acme_github.push") {
		fmt.Println(h.Call(), "sees", h.Watches())
	}
	// Output:
	// belay-plugin.yaml:12:17: error: a hook that may only allow and escalate escalates when it fails [bad-on-timeout]
	//     hint: write on_timeout: escalate, or leave it out
	//
	// 1 error, 0 warnings in 1 file
	// acme_policy.check sees calls of acme_github.push of every agent before it is made
	// acme_policy.judge sees each call of every agent before it is made
}
