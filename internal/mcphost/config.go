package mcphost

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"time"
)

// Config is one configured server. Exactly one of Command and URL is set.
type Config struct {
	ID      string            // names the server in logs, events and failures; required
	Command []string          // the program and its arguments
	Dir     string            // the program's working folder; empty: this process's own
	Env     map[string]string // the program's environment, beside PATH, HOME, LANG and TMPDIR
	URL     string            // where a streamable HTTP server answers
	Headers map[string]string // sent with every HTTP request
	Version string            // of this program; told to the server

	Logger  *slog.Logger // required
	OnEvent func(Event)  // told of starts and deaths; must return soon and not call the Server

	StartTimeout time.Duration // for a server to become ready; 0: 30 s
	PingTimeout  time.Duration // for a sign of life after a call ran out of time; 0: 5 s
	Grace        time.Duration // for a process to end when its input closes, and again after SIGTERM; 0: 2 s
	MaxMessage   int           // bytes of one message in either direction; 0: 16 MiB

	// Backoff is how long to wait before the next start, after the given number
	// of failures in a row: starts that failed and servers that died young. nil
	// is [Backoff] with random jitter.
	Backoff func(failures int) time.Duration
}

const (
	defaultStart   = 30 * time.Second
	defaultPing    = 5 * time.Second
	defaultGrace   = 2 * time.Second
	defaultMessage = 16 << 20
)

func (c Config) withDefaults() Config {
	if c.StartTimeout == 0 {
		c.StartTimeout = defaultStart
	}
	if c.PingTimeout == 0 {
		c.PingTimeout = defaultPing
	}
	if c.Grace == 0 {
		c.Grace = defaultGrace
	}
	if c.MaxMessage == 0 {
		c.MaxMessage = defaultMessage
	}
	if c.Backoff == nil {
		c.Backoff = Backoff(rand.Float64)
	}
	if c.Version == "" {
		c.Version = "dev"
	}
	return c
}

func (c Config) validate() error {
	switch {
	case c.ID == "":
		return errors.New("an MCP server has no id: give it one")
	case c.Logger == nil:
		return fmt.Errorf("MCP server %q has no logger", c.ID)
	case len(c.Command) == 0 && c.URL == "":
		return fmt.Errorf("MCP server %q has neither a command nor a url: give it one of them", c.ID)
	case len(c.Command) > 0 && c.URL != "":
		return fmt.Errorf("MCP server %q has a command and a url: give it one of them", c.ID)
	case len(c.Command) > 0 && c.Command[0] == "":
		return fmt.Errorf("MCP server %q has a command whose program is empty", c.ID)
	case len(c.Command) > 0 && len(c.Headers) > 0:
		return fmt.Errorf("MCP server %q has headers, which only a url takes: pass settings by env", c.ID)
	}
	if c.URL != "" {
		u, err := url.Parse(c.URL)
		if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
			return fmt.Errorf("MCP server %q has a url that is no http or https address", c.ID)
		}
	}
	return nil
}

const (
	firstRest = 250 * time.Millisecond
	mostRest  = 5 * time.Second
)

// Backoff returns the usual back-off: none after the first failure, for a server
// that died once should be back at once; then 250 ms, twice as long each time, at
// most 5 s. jitter, which gives numbers in [0, 1), takes up to half of it off, so
// that servers which died together do not start together.
func Backoff(jitter func() float64) func(failures int) time.Duration {
	return func(failures int) time.Duration {
		if failures <= 1 {
			return 0
		}
		rest := mostRest
		if failures < 8 {
			rest = min(firstRest<<(failures-2), mostRest)
		}
		return rest - time.Duration(jitter()*float64(rest)/2)
	}
}
