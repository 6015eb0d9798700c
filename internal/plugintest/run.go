package plugintest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"time"

	"github.com/belay-run/belay/internal/expect"
	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/plugin"
)

// Config says which plugin is tested, and how.
type Config struct {
	Manifest *plugin.Manifest
	Version  string // of this program; told to the servers
	Logger   *slog.Logger
	// Only, when set, picks cases by their names.
	Only *regexp.Regexp
	// Timeout bounds a case; 0 means a minute.
	Timeout time.Duration
	// Warn is told, before cases run, of what does not keep them from running: a server
	// that cannot be asked and whose functions no hook is. It may be nil.
	Warn func([]finding.Finding)
	// Each is told of the results of a file, in the files' order; it may be nil.
	Each func(*FileResult)
}

// FindingsError says what is wrong with the plugin, so that no case was run.
type FindingsError struct{ Findings []finding.Finding }

func (e *FindingsError) Error() string {
	return "the plugin has mistakes: " + finding.Summary(e.Findings)
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

// Run checks the plugin's servers and runs the cases of the files on them, one after
// another. An error means that they could not be run; [FindingsError] is one of them.
// When ctx ends, what was not run yet is not.
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
	if out.pick(files, cfg.Only) == 0 {
		return out, nil
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
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	for _, f := range out.Files {
		fileBegan := time.Now()
		for _, r := range f.Results {
			if ctx.Err() == nil {
				s.run(ctx, r, out.Coverage)
			}
		}
		f.Took = time.Since(fileBegan)
		if cfg.Each != nil {
			cfg.Each(f)
		}
	}
	out.Took = time.Since(began)
	out.Interrupted = ctx.Err() != nil
	return out, nil
}

// pick takes in the cases to run, and counts them.
func (r *Report) pick(files []*File, only *regexp.Regexp) (n int) {
	for _, f := range files {
		result := &FileResult{File: f}
		for _, c := range f.Cases {
			if only == nil || only.MatchString(c.Name) {
				result.Results = append(result.Results, &Result{Case: c, Status: NotRun})
				n++
			}
		}
		r.Files = append(r.Files, result)
	}
	return n
}

// ready checks the plugin's servers. Those that cannot be asked and that no hook needs
// are left out: their functions may be canned.
func (s *stage) ready(ctx context.Context) error {
	m := s.cfg.Manifest
	var wrong, warn []finding.Finding
	for _, f := range s.bench.Lint(ctx) {
		at := slices.IndexFunc(m.Tools, func(t plugin.Tool) bool {
			return f.Rule == "mcp-unreachable" && t.Line == f.Line && t.Column == f.Column
		})
		switch {
		case at >= 0 && !slices.ContainsFunc(m.Hooks, func(h plugin.Hook) bool { return h.Tool == m.Tools[at].ID }):
			f.Severity = finding.Warning
			s.down, warn = append(s.down, m.Tools[at].ID), append(warn, f)
		case f.Severity == finding.Error:
			wrong = append(wrong, f)
		}
	}
	if len(wrong) > 0 && ctx.Err() == nil {
		return &FindingsError{wrong}
	}
	if len(warn) > 0 && s.cfg.Warn != nil {
		s.cfg.Warn(warn)
	}
	return nil
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
