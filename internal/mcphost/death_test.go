//go:build linux

package mcphost

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// host, in the environment, makes this test's program run a server and wait.
const host = "MCPHOST_TEST_HOST"

func runHost() {
	s, err := Open(Config{ID: "child", Command: strings.Split(os.Getenv(host), "\n"), Logger: slog.New(slog.DiscardHandler), OnEvent: func(e Event) {
		if e.Kind == Started {
			fmt.Println(e.PID)
		}
	}})
	if err != nil {
		panic(err)
	}
	s.Call(context.Background(), CallRequest{Tool: "echo", Arguments: json.RawMessage("{}")})
	select {}
}

func init() {
	if os.Getenv(host) != "" {
		runHost()
	}
}

// TestHostDies checks that a server which minds neither the end of its input nor
// SIGTERM does not outlive the program that started it.
func TestHostDies(t *testing.T) {
	var c Config
	script(t, "naughty.py", "ignores_sigterm")(&c)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), host+"="+strings.Join(c.Command, "\n"))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	gone(t, pid)
}
