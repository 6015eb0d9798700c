package tests

import (
	"os"
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/app"
	"github.com/belay-run/belay/internal/app/apptest"
)

// balances is a real MCP server by the official SDK.
const balances = `
from mcp.server import MCPServer

server = MCPServer("balances")


@server.tool()
def get_balance(account: str) -> dict:
    """The balance of an account."""
    if account == "gone":
        raise ValueError("no such account")
    return {"account": account, "balance": 12.5}


server.run()
`

func mcpAgent(t *testing.T) apptest.Files {
	t.Helper()
	python := os.Getenv("BELAY_PYTHON")
	if python == "" {
		t.Skip("BELAY_PYTHON is not set; make test sets it")
	}
	return apptest.Files{
		"integrations.yml": "llm: {provider: scripted, script: script.yml}\nmcp_servers:\n  - name: bank\n    command: ${BELAY_PYTHON}\n    args: [server.py]\n",
		"server.py":        balances,
		"script.yml": `rules:
  - when: {tool: get_balance, result: '"balance": ([\d.]+)'}
    say: "You have {1} euros."
  - when: {tool: get_balance}
    say: That did not work.
  - when: {system: 'The active skill is money', user: '(\w+)$', offered: get_balance}
    call: {tool: get_balance, args: {account: "{1}"}}
  - when: {tool: activate, system: 'The active skill is money'}
    say: Of which account?
  - when: {user: money}
    call: {tool: activate, args: {target_id: money}}
default: {say: Hello.}
`,
		"skills/money/skill.md": "---\nname: Money\ndescription: Says balances.\nimport_tools:\n  - mcp/bank:get_balance\n---\n\nCall @tool.get_balance.\n",
	}
}

func TestSkillsUseToolsOfMCPServers(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, mcpAgent(t))
	a.Say("u", "money")
	if got := a.Say("u", "of savings").Text(); got != "You have 12.5 euros." {
		t.Errorf("got %q", got)
	}
	r := a.Say("u", "of gone")
	if got := r.Text(); got != "That did not work." {
		t.Errorf("got %q", got)
	}
}

func TestTheCheckAsksMCPServers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, old, new, rule string }{
		{"a tool that the server does not have", "get_balance\n---", "get_balances\n---", "unknown-tool"},
		{"a server that does not start", "args: [server.py]", "args: [nothing.py]", "mcp-unreachable"},
		{"a variable that is not set", "${BELAY_PYTHON}", "${BELAY_NO_SUCH_VARIABLE}", "mcp-variable"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			files := mcpAgent(t)
			for name, text := range files {
				files[name] = strings.ReplaceAll(text, tt.old, tt.new)
			}
			dir := apptest.Folder(t, files)
			findings, _, err := app.Check(t.Context(), app.Config{Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range findings {
				if f.Rule == tt.rule && f.Line > 0 && f.Hint != "" {
					return
				}
			}
			t.Errorf("no finding %s among %v", tt.rule, findings)
		})
	}
}
