package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"unicode"

	"github.com/belay-run/belay/internal/pyhost"
)

// printed is a log's handler that shows what hooks and tools print, whatever the
// log's level: who writes a hook looks for its print at the terminal.
type printed struct {
	slog.Handler
	to io.Writer
}

// Enabled implements [slog.Handler].
func (p *printed) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || p.Handler.Enabled(ctx, level)
}

// Handle implements [slog.Handler].
func (p *printed) Handle(ctx context.Context, r slog.Record) error {
	if p.Handler.Enabled(ctx, r.Level) {
		return p.Handler.Handle(ctx, r)
	}
	if r.Message != pyhost.Printed {
		return nil
	}
	var err error
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == pyhost.PrintedLine {
			_, err = fmt.Fprintf(p.to, "python> %s\n", plain(a.Value.String()))
		}
		return true
	})
	return err
}

// WithAttrs implements [slog.Handler].
func (p *printed) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &printed{p.Handler.WithAttrs(attrs), p.to}
}

// WithGroup implements [slog.Handler].
func (p *printed) WithGroup(name string) slog.Handler {
	return &printed{p.Handler.WithGroup(name), p.to}
}

// plain takes out what a terminal would act on, such as escape sequences: texts
// come from models, tools and libraries.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, text)
}
