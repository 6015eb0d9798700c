// Package control is the HTTP API under /v1 by which people and programs look after
// jobs, approvals, plugins, hooks, policy, audit record and tokens, and the client
// of it.
//
//	s, err := control.New(control.Service{Gate: gate, Jobs: station, …}, control.Config{Logger: logger})
//	...
//	err = s.Run(ctx) // until ctx ends; then it stops in order
//
// Every request but GET /healthz carries a bearer token; package access says what
// its role may do, and the OpenAPI document at /openapi.json which role a path
// needs. A token acts in its own tenant. The owner of the data folder acts in any,
// named in the header Belay-Tenant. Errors are [Problem]s.
//
// What does the work is a [Service], a set of small ports.
//
// # The client
//
// Whoever serves a data folder writes its [Owner] into the folder, with the owner's
// token, for the CLI beside it:
//
//	owner, err := control.ReadOwner(dir)
//	client := control.NewClient(owner.Address, owner.Token, tenant)
//	job, err := client.Job(ctx, id, 0)
package control

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/netutil"

	"github.com/belay-run/belay/internal/httpio"
)

// Config says where and how to serve. The zero Config serves this machine alone.
type Config struct {
	// Listen is host:port; "" means 127.0.0.1:5006, port 0 any free one. Tokens go
	// over it in plain: what others are to reach belongs behind a proxy with TLS.
	Listen string
	// Tenant is the one that the data folder's owner acts in when no other is
	// named; "" means "default".
	Tenant string
	// Version is the program's, for the OpenAPI document.
	Version string
	Logger  *slog.Logger
	// Clock is the time; nil means time.Now.
	Clock func() time.Time
	// Ready is told of the bound address; it may be nil.
	Ready func(net.Addr)
	// Passing is told to those who read where the owner answers; see [Owner].
	Passing bool

	// Grace is how long running requests may go on when the server stops; 0 means
	// 20 s.
	Grace time.Duration
	// MaxBody bounds a request's body in bytes; 0 means 4 MiB.
	MaxBody int64
	// BodyTime is how long a client may take to send its body; 0 means 15 s.
	BodyTime time.Duration
	// Stall is how long a client may take to read 16 KiB of an answer; then it
	// counts as gone. 0 means 10 s.
	Stall time.Duration
	// MaxConns bounds the connections; more wait to be accepted. 0 means 512.
	MaxConns int

	beat time.Duration // of a feed that has nothing to say
}

const defaultListen = "127.0.0.1:5006"

func (c Config) withDefaults() Config {
	if c.Listen == "" {
		c.Listen = defaultListen
	}
	if c.Tenant == "" {
		c.Tenant = "default"
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	for _, d := range []struct {
		value *time.Duration
		or    time.Duration
	}{{&c.Grace, 20 * time.Second}, {&c.BodyTime, 15 * time.Second}, {&c.Stall, 10 * time.Second}, {&c.beat, 15 * time.Second}} {
		if *d.value == 0 {
			*d.value = d.or
		}
	}
	if c.MaxBody == 0 {
		c.MaxBody = 4 << 20
	}
	if c.MaxConns == 0 {
		c.MaxConns = 512
	}
	return c
}

// Validate says what is wrong with a configuration, in words for the person who
// wrote it.
func (c Config) Validate() error {
	c = c.withDefaults()
	_, port, err := net.SplitHostPort(c.Listen)
	if _, perr := strconv.ParseUint(port, 10, 16); err != nil || perr != nil {
		return fmt.Errorf("listen address %q: write host:port, such as %s, with a port up to 65535", c.Listen, defaultListen)
	}
	return nil
}

// isLoopback says whether an address is reached from this machine alone.
func isLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && ip.Unmap().IsLoopback()
}

// Server serves the API.
type Server struct {
	cfg     Config
	service Service
	log     *slog.Logger
	http    *http.Server

	closing chan struct{} // closed when the server stops: feeds end
	life    *httpio.Life
}

// New returns a server, which does not listen yet.
func New(service Service, cfg Config) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if missing := service.missing(); missing != "" {
		return nil, fmt.Errorf("the control API lacks its %s", missing)
	}
	s := &Server{cfg: cfg, service: service, log: cfg.Logger, closing: make(chan struct{})}
	mux, err := s.routes()
	if err != nil {
		return nil, err
	}
	s.http = &http.Server{
		Handler:           s.guard(mux),
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
		// An installation may take minutes and a feed goes on for ever, so bodies are
		// read and answers written under deadlines of their own; see guard and httpio.
		ErrorLog:                     slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelWarn),
		DisableGeneralOptionsHandler: true,
	}
	s.life = httpio.NewLife(s.http, httpio.Ends{Grace: cfg.Grace, Last: afterCancel, Begin: func() { close(s.closing) }, Cancel: func() {
		s.log.Warn("requests that still run are cancelled: the time to stop is over")
	}})
	return s, nil
}

func (s Service) missing() string {
	for _, part := range []struct {
		name  string
		there bool
	}{
		{"gate", s.Gate != nil}, {"jobs", s.Jobs != nil}, {"approvals", s.Approvals != nil}, {"plugins", s.Plugins != nil}, {"hooks", s.Hooks != nil},
		{"policies", s.Policies != nil}, {"audit record", s.Audit != nil}, {"tokens", s.Tokens != nil}, {"upkeep", s.Upkeep != nil}, {"health", s.Health != nil},
	} {
		if !part.there {
			return part.name
		}
	}
	return ""
}

// Handler serves requests without a listener of the server's own.
func (s *Server) Handler() http.Handler { return s.http.Handler }

// Run listens and serves until ctx ends, then stops in order; see
// [Server.Shutdown]. It returns when no request runs any more.
func (s *Server) Run(ctx context.Context) error {
	var c net.ListenConfig
	listener, err := c.Listen(ctx, "tcp", s.cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w; is the port taken? choose another one", s.cfg.Listen, err)
	}
	addr := listener.Addr().String()
	s.log.Info("listening for control", "address", addr)
	if !isLoopback(addr) {
		s.log.Warn("others can reach the control API, and tokens go over it in plain; put a proxy with TLS before it", "address", addr)
	}
	return s.life.Serve(ctx, netutil.LimitListener(listener, s.cfg.MaxConns), s.cfg.Ready)
}

// afterCancel is how long cancelled requests get to come to their end.
const afterCancel = 5 * time.Second

// Shutdown stops listening, ends feeds and lets running requests end. When ctx ends
// first it cancels them. It returns when no request runs any more.
func (s *Server) Shutdown(ctx context.Context) error { return s.life.Shutdown(ctx) }
