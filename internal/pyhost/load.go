package pyhost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/belay-run/belay/internal/finding"
)

// startLimit is the time for an interpreter to start and to look at the agent's
// sources, before it imports anything of it.
const startLimit = 30 * time.Second

// stuckImport says that a module kept a worker from becoming ready.
type stuckImport struct {
	file string // empty when nothing of the agent was being imported
	hung bool
	why  string
}

func (e *stuckImport) Error() string {
	if e.file == "" {
		return "Python did not get as far as importing the agent: " + e.why
	}
	return fmt.Sprintf("importing %s: %s", e.file, e.why)
}

// first makes the first worker. A module that hangs or ends the interpreter is
// left out in the next try and becomes a finding.
func (h *Host) first(ctx context.Context) (*worker, error) {
	var stuck []finding.Finding
	for {
		w, r, err := h.launch(ctx, h.skip)
		var s *stuckImport
		if errors.As(err, &s) && s.file != "" && !slices.Contains(h.skip, s.file) {
			h.log.Warn("an agent's module cannot be imported", "file", s.file, "why", s.why)
			h.skip = append(h.skip, s.file)
			stuck = append(stuck, s.finding())
			continue
		}
		if err != nil {
			return nil, err
		}
		h.catalogue, err = newCatalogue(r)
		if err == nil {
			err = w.fit(h.catalogue, r, h.log)
		}
		if err != nil {
			w.end("its catalogue cannot be used", false)
			<-w.gone
			return nil, err
		}
		h.findings = append(stuck, r.Findings...)
		if r.Executable != "" {
			h.python = r.Executable // spares need not go through a wrapper again
		}
		w.ready = time.Now()
		h.log.Info("a Python worker is ready", "pid", w.proc.pid(), "took", time.Since(w.start),
			"python", r.Python, "pydantic", r.Pydantic, "hooks", len(r.Hooks), "tools", len(r.Tools))
		h.event(Event{Kind: WorkerStarted, Place: 0, PID: w.proc.pid()})
		return w, nil
	}
}

func (e *stuckImport) finding() finding.Finding {
	f := finding.Finding{File: e.file, Line: 1, Rule: "import-death", Severity: finding.Error,
		Message: "the interpreter ended while this module was imported: " + e.why,
		Hint:    "move what ends the process out of the module's top level, or guard native code that crashes"}
	if e.hung {
		f.Rule = "import-timeout"
		f.Message = "importing this module did not end: " + e.why
		f.Hint = "move network calls, waits and loops out of the module's top level into the functions that need them"
	}
	return f
}

// launch starts a worker and waits until it is ready.
func (h *Host) launch(ctx context.Context, skip []string) (*worker, *readyReport, error) {
	w, err := h.newWorker()
	if err != nil {
		return nil, nil, h.cannotStart(err)
	}
	order, err := json.Marshal(map[string]any{"root": h.cfg.Dir, "skip": append([]string{}, skip...), "declared": h.cfg.Declared})
	if err != nil {
		return nil, nil, err
	}
	w.box.send(func(b []byte) []byte {
		return appendFrame(b, frameLoad, 0, func(b []byte) []byte { return append(b, order...) })
	})
	r, err := h.awaitReady(ctx, w)
	close(w.loaded)
	if err != nil {
		w.end("it was not needed any more", false)
		<-w.gone
		return nil, nil, err
	}
	return w, r, nil
}

// awaitReady watches a worker import the agent.
func (h *Host) awaitReady(ctx context.Context, w *worker) (*readyReport, error) {
	file, limit := "", startLimit
	t := time.NewTimer(limit)
	defer t.Stop()
	for {
		select {
		case f := <-w.loading:
			switch f.kind {
			case frameImporting:
				file, limit = string(f.body), h.cfg.ImportLimit
				t.Reset(limit)
			case frameReady:
				var r readyReport
				if err := strict(f.body, &r); err != nil {
					return nil, fmt.Errorf("the Python worker's catalogue cannot be read (is the package in %s its own?): %w", h.sdk, err)
				}
				return &r, nil
			case frameCannot:
				return nil, h.cannotRun(f.body)
			}
		case <-t.C:
			w.end(fmt.Sprintf("importing %s took longer than %v", file, limit), true)
			return nil, &stuckImport{file: file, hung: true, why: fmt.Sprintf("it took longer than %v", limit)}
		case <-w.gone: // after its last frame
			why := w.ended()
			if last := w.out.lastLine(); file == "" && last != "" {
				why += "; its last line was: " + last
			}
			return nil, &stuckImport{file: file, why: why}
		case <-ctx.Done():
			return nil, fmt.Errorf("loading the agent's Python modules was given up: %w", ctx.Err())
		}
	}
}
