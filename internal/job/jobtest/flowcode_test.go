package jobtest

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestTheCheckOfFlowsFindsWhatItShould(t *testing.T) {
	text, err := os.ReadFile("testdata/flows/flows.go")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for i, line := range strings.Split(string(text), "\n") {
		if _, what, ok := strings.Cut(line, "// want "); ok {
			want = append(want, fmt.Sprintf("%d: %s", i+1, what))
		} else if strings.HasSuffix(line, "// any order:") {
			want = append(want, fmt.Sprintf("%d: range over a map", i+1))
		}
	}
	found, err := checkFlows("./testdata/flows")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range found {
		got = append(got, fmt.Sprintf("%d: %s", f.at.Line, f.what))
		if f.hint == "" {
			t.Errorf("%v has no hint", f)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestFlows holds the code that runs inside jobs to it.
func TestFlows(t *testing.T) {
	CheckFlows(t, map[string]string{
		"hooks.go: time.Now":   "how long a point took stands in the trace, which no flow reads",
		"hooks.go: time.Since": "likewise",
	}, "github.com/belay-run/belay/internal/loop", "github.com/belay-run/belay/internal/agentjob")
}
