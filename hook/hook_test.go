package hook

import (
	"context"
	"testing"
)

// text returns a payload of a point that has a field named text.
func text(point, s string) Payload { return NewPayload(PointNamed(point)).Set("text", s) }

// func_ returns a modify hook that answers with f.
func modifier(name, point string, f Func) *Hook {
	return &Hook{Name: name, Point: PointNamed(point), Lane: Modify, Func: f}
}

func saying(name, point string, v Verdict) *Hook {
	return modifier(name, point, func(context.Context, Payload) (Verdict, error) { return v, nil })
}

func passing(name, point string) *Hook { return saying(name, point, Go()) }

func mustEngine(t testing.TB, r Recorder, hooks ...*Hook) *Engine {
	t.Helper()
	e, err := NewEngine(r, hooks...)
	if err != nil {
		t.Fatal(err)
	}
	return e
}
