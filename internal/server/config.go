package server

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Config says where and how to serve. The zero Config serves this machine alone.
type Config struct {
	// Listen is host:port; "" means 127.0.0.1:5005, port 0 any free one. An
	// address that others can reach needs a Token.
	Listen string
	// Token, when set, must come with every request but /healthz, as
	// "Authorization: Bearer …".
	Token string
	// Origins are the web origins, such as "https://shop.example", whose pages
	// may call the API; none but its own by default.
	Origins []string
	// Version is the program's, for the OpenAPI document.
	Version string
	// Metrics serves /metrics; nil leaves it out.
	Metrics http.Handler
	Logger  *slog.Logger
	// Ready is told of the bound address; it may be nil.
	Ready func(net.Addr)

	// Grace is how long running turns may go on when the server stops; 0 means
	// 20 s, less than 0 none.
	Grace time.Duration
	// MaxBody bounds a request's body in bytes; 0 means 1 MiB. MaxHeader bounds
	// its header; 0 means 32 KiB.
	MaxBody   int64
	MaxHeader int
	// HeaderTime and BodyTime bound how long a client may take to send them; 0
	// means 5 s and 15 s. IdleTime is how long a connection may wait for its
	// next request; 0 means 2 min.
	HeaderTime, BodyTime, IdleTime time.Duration
	// Stall is how long a client may take to read 16 KiB of an answer; then it
	// counts as gone. 0 means 10 s.
	Stall time.Duration
	// MaxConns bounds the connections; more wait to be accepted. 0 means 1024.
	MaxConns int
}

const defaultListen = "127.0.0.1:5005"

func (c Config) withDefaults() Config {
	if c.Listen == "" {
		c.Listen = defaultListen
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	for _, d := range []struct {
		value *time.Duration
		or    time.Duration
	}{{&c.Grace, 20 * time.Second}, {&c.HeaderTime, 5 * time.Second}, {&c.BodyTime, 15 * time.Second}, {&c.IdleTime, 2 * time.Minute}, {&c.Stall, 10 * time.Second}} {
		if *d.value == 0 {
			*d.value = d.or
		}
	}
	if c.MaxBody == 0 {
		c.MaxBody = 1 << 20
	}
	if c.MaxHeader == 0 {
		c.MaxHeader = 32 << 10
	}
	if c.MaxConns == 0 {
		c.MaxConns = 1024
	}
	return c
}

var errNeedsToken = errors.New("set a token (for example the output of `openssl rand -hex 24`), or listen on 127.0.0.1")

const shortToken = 16

// Validate says what is wrong with a configuration, in words for the person who
// wrote it.
func (c Config) Validate() error {
	c = c.withDefaults()
	host, port, err := net.SplitHostPort(c.Listen)
	if _, perr := strconv.ParseUint(port, 10, 16); err != nil || perr != nil {
		return fmt.Errorf("listen address %q: write host:port, such as %s, with a port up to 65535", c.Listen, defaultListen)
	}
	if c.Token == "" && !isLoopback(host) {
		return fmt.Errorf("others can reach %s: %w", c.Listen, errNeedsToken)
	}
	if strings.ContainsFunc(c.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errors.New("the token has a space, a line end or another character that no header takes: use letters and digits")
	}
	for _, o := range c.Origins {
		u, err := url.Parse(o)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.Scheme+"://"+u.Host != o {
			return fmt.Errorf("origin %q: write scheme and host, such as https://shop.example, and nothing behind them", o)
		}
	}
	return nil
}

// isLoopback says whether a host names this machine from within.
func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && ip.Unmap().IsLoopback()
}
