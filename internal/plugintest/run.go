package plugintest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"github.com/belay-run/belay/internal/expect"
	"github.com/belay-run/belay/internal/plugin"
)

// Config says which plugin is tested, and how.
type Config struct {
	Manifest *plugin.Manifest
	Version  string // of this program; told to the servers
	Logger   *slog.Logger
	// Down are ids of tools whose servers cannot be asked: nobody asks them.
	Down []string
	// Only, when set, picks cases by their names.
	Only *regexp.Regexp
	// Timeout bounds a case; 0 means a minute.
	Timeout time.Duration
	// Each is told of the results of a file, in the files' order; it may be nil.
	Each func(*FileResult)
}

// Status says what came of a case.
type Status string

// The statuses.
const (
	Passed Status = "ok"
	Failed Status = "failed"
	NotRun Status = "not run"
)

// FileResult is what came of a file.
type FileResult struct {
	File    *File
	Results []*Result
	Took    time.Duration
}

// Result is what came of a case.
type Result struct {
	Case     *Case
	Status   Status
	Took     time.Duration
	Failures []expect.Failure
	// Notes are about what the case did not ask for, such as that a person is asked
	// before a hook is.
	Notes []string
}

// Run runs the cases of the files one after another, on servers that are started once.
// An error means that they could not be run. When ctx ends, what was not run yet is
// not.
func Run(ctx context.Context, cfg Config, files []*File) (_ *Report, err error) {
	cfg.Timeout = cmp.Or(cfg.Timeout, time.Minute)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	began := time.Now()
	out := &Report{Plugin: cfg.Manifest.Name, Coverage: newCoverage(cfg.Manifest)}
	if cfg.Only != nil {
		out.Partial = "not all cases were run"
	}
	s, err := openStage(cfg)
	if err != nil {
		return nil, err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		err = errors.Join(err, s.close(end))
	}()
	for _, f := range files {
		result := &FileResult{File: f}
		fileBegan := time.Now()
		for _, c := range f.Cases {
			if cfg.Only != nil && !cfg.Only.MatchString(c.Name) {
				continue
			}
			r := &Result{Case: c, Status: NotRun}
			result.Results = append(result.Results, r)
			if ctx.Err() != nil {
				out.Partial = "some cases could not be run"
				continue
			}
			s.run(ctx, r, out.Coverage)
		}
		result.Took = time.Since(fileBegan)
		out.Files = append(out.Files, result)
		if cfg.Each != nil {
			cfg.Each(result)
		}
	}
	out.Took = time.Since(began)
	out.Interrupted = ctx.Err() != nil
	return out, nil
}

// run runs one case.
func (s *stage) run(ctx context.Context, r *Result, cover *Coverage) {
	began := time.Now()
	limited, cancel := context.WithTimeoutCause(ctx, s.cfg.Timeout, fmt.Errorf("it did not end within %s", s.cfg.Timeout))
	defer cancel()
	seen, err := s.play(limited, r.Case)
	r.Took = time.Since(began)
	switch {
	case err != nil && ctx.Err() != nil:
		return // interrupted: it was not run to its end
	case err != nil:
		r.Failures = []expect.Failure{{What: "case", Line: r.Case.Line, Message: err.Error()}}
	case r.Case.Event != nil:
		r.Failures = compareEvent(r.Case, seen)
	default:
		r.Failures = compareJob(r.Case, seen)
	}
	if seen != nil {
		cover.add(seen.told)
		r.Notes = seen.notes
	}
	if r.Status = Passed; len(r.Failures) > 0 {
		r.Status = Failed
	}
}
