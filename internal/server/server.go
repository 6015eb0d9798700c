// Package server is Belay's HTTP API: a webhook and a streaming chat that run
// turns, the record and the trace of a conversation, health and metrics.
//
//	s, err := server.New(service, server.Config{Listen: "127.0.0.1:5005", Logger: logger})
//	...
//	err = s.Run(ctx) // until ctx ends; then it stops in order
//
// What runs turns is a [Service]. The server's own work is the wire: it takes
// only requests that it can read whole and fast, keeps strangers and foreign web
// pages out, and hands texts to clients at their pace, so that a slow one holds
// up no turn. Every error is an application/problem+json that quotes nothing of
// what was said.
package server

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"

	"github.com/belay-run/belay/internal/httpio"
)

// Server serves one agent.
type Server struct {
	cfg     Config
	service Service
	logger  *slog.Logger
	http    *http.Server
	life    *httpio.Life
}

// New returns a server, which does not listen yet. It refuses a configuration
// that would open the agent to others.
func New(service Service, cfg Config) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Token != "" && len(cfg.Token) < shortToken {
		cfg.Logger.Warn("the token is short enough to be guessed; use one of 16 characters or more")
	}
	s := &Server{cfg: cfg, service: service, logger: cfg.Logger}
	mux, err := routes(s)
	if err != nil {
		return nil, err
	}
	s.http = &http.Server{
		Handler:           s.guard(mux),
		ReadHeaderTimeout: cfg.HeaderTime,
		IdleTimeout:       cfg.IdleTime,
		MaxHeaderBytes:    cfg.MaxHeader,
		// A turn may take minutes, so bodies are read and answers written under
		// deadlines of their own; see guard and httpio.
		ErrorLog:                     slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelWarn),
		DisableGeneralOptionsHandler: true,
	}
	s.life = httpio.NewLife(s.http, httpio.Ends{Grace: cfg.Grace, Last: afterCancel, Cancel: func() {
		s.logger.Warn("turns that still run are cancelled: the time to stop is over")
	}})
	return s, nil
}

// Handler serves requests without a listener of the server's own, for tests.
func (s *Server) Handler() http.Handler { return s.http.Handler }

// Run listens and serves until ctx ends, then stops in order; see
// [Server.Shutdown]. It returns when no request runs any more.
func (s *Server) Run(ctx context.Context) error {
	listener, err := s.listen(ctx)
	if err != nil {
		return err
	}
	s.logger.Info("listening", "address", listener.Addr().String(), "token", s.cfg.Token != "")
	return s.life.Serve(ctx, netutil.LimitListener(listener, s.cfg.MaxConns), s.cfg.Ready)
}

func (s *Server) listen(ctx context.Context) (net.Listener, error) {
	var c net.ListenConfig
	network := "tcp"
	if host, _, err := net.SplitHostPort(s.cfg.Listen); err == nil && net.ParseIP(host).To4() != nil {
		network = "tcp4" // 0.0.0.0 means every IPv4 address, not IPv6's too
	}
	listener, err := c.Listen(ctx, network, s.cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w; is the port taken? choose another one", s.cfg.Listen, err)
	}
	// "localhost" may lead anywhere; what counts is where it led.
	if at, ok := listener.Addr().(*net.TCPAddr); s.cfg.Token == "" && (!ok || !at.IP.IsLoopback()) {
		_ = listener.Close()
		return nil, fmt.Errorf("%s leads to %s, where others can reach it: %w", s.cfg.Listen, listener.Addr(), errNeedsToken)
	}
	return listener, nil
}

// afterCancel is how long cancelled turns get to write down their end.
const afterCancel = 10 * time.Second

// Shutdown stops listening and lets running turns end. When ctx ends first it
// cancels them and waits for their ends. It returns when no request runs any
// more.
func (s *Server) Shutdown(ctx context.Context) error { return s.life.Shutdown(ctx) }
