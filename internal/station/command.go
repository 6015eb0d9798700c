package station

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/belay-run/belay/internal/config"
	"github.com/belay-run/belay/internal/model"
	"github.com/belay-run/belay/internal/notice"
)

// command runs the program that tells approvers, with what waits as JSON on its
// standard input. It is a [notice.Sender].
type command struct {
	args    []string
	dir     string   // the data folder, as for other paths in its settings
	without []string // variables that it does not get
	log     *slog.Logger
}

// Send implements [notice.Sender].
func (c *command) Send(ctx context.Context, m notice.Message) error {
	cmd := exec.CommandContext(ctx, c.args[0], c.args[1:]...)
	cmd.Dir = c.dir
	cmd.Stdin = strings.NewReader(m.Body)
	cmd.Env = c.environment()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that what it started ends with it
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	var out bounded
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if err == nil {
		return nil
	}
	if said := strings.TrimSpace(out.String()); said != "" {
		c.log.Warn("the command that tells approvers said", "output", said)
	}
	var status *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%s had not ended after %s", c.args[0], tellLimit)
	case errors.As(err, &status):
		return fmt.Errorf("%s ended with %s", c.args[0], status)
	}
	return fmt.Errorf("run %s: %w", c.args[0], err)
}

// environment is that of the program, without its secrets.
func (c *command) environment() []string {
	return slices.DeleteFunc(os.Environ(), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return strings.HasPrefix(name, "BELAY_") || slices.Contains(c.without, name)
	})
}

// secretVariables are the variables that hold secrets of the data folder's settings.
func (s *Station) secretVariables() []string {
	out := []string{s.settings.Approvals.SecretVariable}
	models := slices.Collect(maps.Values(s.settings.Models))
	if m, err := s.settingsOf(config.Default); err == nil { // also what --model names
		models = append(models, m)
	}
	for _, m := range models {
		p, _ := model.ProviderNamed(m.Provider)
		out = append(out, cmp.Or(m.KeyVariable, p.KeyVariable))
		own, _ := s.settings.Provider(m.Provider)
		out = append(out, own.KeyVariable)
	}
	return out
}

// secret reads a secret from the environment.
func (*Station) secret(variable string) (string, error) {
	if v := os.Getenv(variable); v != "" {
		return v, nil
	}
	return "", fmt.Errorf("the secret is missing: set the environment variable %s", variable)
}

// bounded keeps the first bytes that are written to it.
type bounded struct{ bytes.Buffer }

const maxSaid = 500

func (b *bounded) Write(p []byte) (int, error) {
	if room := maxSaid - b.Len(); room > 0 {
		_, _ = b.Buffer.Write(p[:min(room, len(p))]) // a buffer takes everything
	}
	return len(p), nil
}
