package telemetry

import (
	"context"
	"log/slog"

	"github.com/belay-run/belay/hook"
)

// Record counts a hook's run, and logs it when something about it must be seen:
// a failure, a signal or change that did not count, a rejection. The line has
// the hook's file and line, the reason, and an exception's text and call stack;
// it has no value of a payload.
func (t *Telemetry) Record(r hook.Run) {
	t.meters.hook(r)
	for _, note := range r.Notes {
		t.say(slog.LevelWarn, "hook: "+note, r)
	}
	if f := r.Failure; f != nil {
		t.failed(r, f)
	}
	if r.Dropped != "" {
		t.say(slog.LevelWarn, "what a hook said was dropped", r, "dropped", r.Dropped, "reason", r.Reason)
	}
	if len(r.PutBack) > 0 {
		t.say(slog.LevelInfo, "a hook changed read-only fields; they were put back", r, "fields", r.PutBack)
	}
	if r.Failure != nil || r.Dropped != "" {
		return
	}
	switch r.Said {
	case hook.Reject.String():
		t.say(slog.LevelInfo, "a hook rejected", r, "reason", r.Reason)
	case hook.Hold.String():
		t.say(slog.LevelInfo, "a hook holds for a person", r, "reason", r.Reason)
	case hook.Retry.String():
		// Its feedback is for the model and may quote what the model said.
		t.say(slog.LevelInfo, "a hook sent the model back", r)
	}
}

func (t *Telemetry) failed(r hook.Run, f *hook.Failure) {
	level := slog.LevelWarn
	if f.Kind == hook.Cancelled {
		level = slog.LevelDebug // the turn was cancelled, the hook did nothing wrong
	}
	args := []any{"kind", f.Kind, "error", f.Message, "took", r.Took}
	if r.Policy != "" {
		args = append(args, "policy", r.Policy)
	}
	if f.Traceback != "" {
		args = append(args, "traceback", f.Traceback)
	}
	t.say(level, "a hook failed", r, args...)
}

// say logs a line about a run.
func (t *Telemetry) say(level slog.Level, message string, r hook.Run, args ...any) {
	about := []any{"hook", r.Name, "point", r.Point, "lane", r.Lane}
	if r.File != "" {
		about = append(about, "file", r.File, "line", r.Line)
	}
	if h := r.Hook; h != nil && h.File != "" && h.File != r.File {
		about = append(about, "hook_file", h.File, "hook_line", h.Line) // it signalled or failed in what it calls
	}
	if r.Turn != "" {
		about = append(about, "turn", r.Turn)
	}
	t.logger.Log(context.Background(), level, message, append(about, args...)...)
}
