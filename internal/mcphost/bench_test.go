package mcphost

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

var event1K = json.RawMessage(`{"event": {"tool": "merge", "text": "` + strings.Repeat("x", 1000) + `"}}`)

func BenchmarkCall(b *testing.B) {
	c := Config{ID: "bench", Logger: slog.New(slog.DiscardHandler)}
	goCommand(&c)
	s, err := Open(c)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close(context.Background())
	req := CallRequest{Tool: "check", Arguments: event1K, Timeout: patience}
	s.Call(b.Context(), req)
	for b.Loop() {
		if a := s.Call(b.Context(), req); a.Outcome != OK {
			b.Fatal(a.Failure)
		}
	}
}

// BenchmarkSDK is the same call by the SDK alone.
func BenchmarkSDK(b *testing.B) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serve+"=1")
	cs, err := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil).Connect(b.Context(), &mcp.CommandTransport{Command: cmd}, &mcp.ClientSessionOptions{ProtocolVersion: versions[0]})
	if err != nil {
		b.Fatal(err)
	}
	defer cs.Close()
	for b.Loop() {
		if _, err := cs.CallTool(b.Context(), &mcp.CallToolParams{Name: "check", Arguments: event1K}); err != nil {
			b.Fatal(err)
		}
	}
}
