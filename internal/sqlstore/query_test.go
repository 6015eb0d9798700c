package sqlstore

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	argument = regexp.MustCompile(`sqlc\.arg\(\w+\)|\?\d+`)
	queryEnd = regexp.MustCompile(`;\s*$`)
)

// TestTheGeneratedQueriesAreThoseOfTheSQLFiles compares the text of each query:
// running the generator itself takes minutes on a fresh machine.
func TestTheGeneratedQueriesAreThoseOfTheSQLFiles(t *testing.T) {
	files, err := filepath.Glob("queries/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		made, err := os.ReadFile(filepath.Join("rows", filepath.Base(file)+".go"))
		if err != nil {
			t.Fatal(err)
		}
		generated := argument.ReplaceAllString(string(made), "?")
		queries := strings.Split(string(source), "-- name: ")[1:]
		for _, q := range queries {
			q = queryEnd.ReplaceAllString("-- name: "+argument.ReplaceAllString(q, "?"), "\n")
			if !strings.Contains(generated, "`"+q+"`") {
				t.Errorf("%s: rows is not up to date; run `go generate ./internal/sqlstore`:\n%s", file, q)
			}
		}
		if n := strings.Count(generated, "-- name: "); n != len(queries) {
			t.Errorf("%s has %d queries, the generated file %d; run `go generate ./internal/sqlstore`", file, len(queries), n)
		}
	}
}
