package secret

import (
	"context"
	"fmt"
	"log/slog"
)

// Handler masks messages and values before a log's handler sees them. scanners gives
// those that are to be asked now.
func Handler(to slog.Handler, scanners func() []*Scanner) slog.Handler {
	return &handler{to, scanners}
}

type handler struct {
	slog.Handler
	scanners func() []*Scanner
}

// Handle implements [slog.Handler].
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	all := h.scanners()
	if len(all) == 0 {
		return h.Handler.Handle(ctx, r)
	}
	out := slog.NewRecord(r.Time, r.Level, maskAll(all, r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		out.AddAttrs(maskAttr(all, a))
		return true
	})
	return h.Handler.Handle(ctx, out)
}

// Mask is for those who cut a text before they log it: of a secret that is cut nobody
// knows any more that it was one.
func (h *handler) Mask(text string) string { return maskAll(h.scanners(), text) }

// WithAttrs implements [slog.Handler].
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	out := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		out[i] = maskAttr(h.scanners(), a)
	}
	return &handler{h.Handler.WithAttrs(out), h.scanners}
}

// WithGroup implements [slog.Handler].
func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{h.Handler.WithGroup(name), h.scanners}
}

func maskAll(all []*Scanner, text string) string {
	for _, s := range all {
		text = s.Mask(text)
	}
	return text
}

func maskAttr(all []*Scanner, a slog.Attr) slog.Attr {
	v := a.Value.Resolve()
	switch v.Kind() {
	case slog.KindString:
		return slog.String(a.Key, maskAll(all, v.String()))
	case slog.KindGroup:
		var in []any
		for _, one := range v.Group() {
			in = append(in, maskAttr(all, one))
		}
		return slog.Group(a.Key, in...)
	case slog.KindAny:
		text := fmt.Sprint(v.Any())
		if b, ok := v.Any().([]byte); ok {
			text = string(b)
		}
		if masked := maskAll(all, text); masked != text {
			return slog.String(a.Key, masked)
		}
	default: // numbers, times
	}
	return slog.Attr{Key: a.Key, Value: v}
}
