package logline_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/logline"
	"github.com/belay-run/belay/internal/secret"
)

const value = "hush-hush-hush-hush-hush"

func logger(t *testing.T) *slog.Logger {
	t.Helper()
	key, err := secret.NewKey([]byte(strings.Repeat("key", 11)))
	if err != nil {
		t.Fatal(err)
	}
	prints, err := key.Prints([]byte(value))
	if err != nil {
		t.Fatal(err)
	}
	all := []*secret.Scanner{secret.NewScanner(key, []secret.Entry{{Name: "A", Prints: prints}})}
	return slog.New(secret.Handler(slog.DiscardHandler, func() []*secret.Scanner { return all })).With("server", "x")
}

func TestLinesAreCut(t *testing.T) {
	for _, c := range []struct {
		text string
		rest int64
		want string
		cut  int64
	}{
		{"short \xff", 0, "short \uFFFD", 0},
		{strings.Repeat("x", logline.Most), 0, strings.Repeat("x", logline.Most), 0},
		{strings.Repeat("x", logline.Most+10), 0, strings.Repeat("x", logline.Most), 10},
		{strings.Repeat("x", logline.Read), 7, strings.Repeat("x", logline.Most), logline.Read - logline.Most + 7},
		{strings.Repeat("x", logline.Most-1) + "é", 0, strings.Repeat("x", logline.Most-1) + "\uFFFD", 1},
	} {
		if got, cut := logline.Cut(slog.New(slog.DiscardHandler), c.text, c.rest); got != c.want || cut != c.cut {
			t.Errorf("%.20q, %d bytes, and %d: %d bytes, %d cut", c.text, len(c.text), c.rest, len(got), cut)
		}
	}
}

// Wherever a line is cut, no part of a secret is left of it.
func TestNoPartOfASecretIsLeft(t *testing.T) {
	log := logger(t)
	for at := logline.Most - 2*len(value); at < logline.Read+2*len(value); at += 5 {
		for _, filling := range []string{"x", value + " "} {
			line := strings.Repeat(filling, at/len(filling)+1)[:at] + value + strings.Repeat("y", 100)
			text, rest := line[:min(len(line), logline.Read)], int64(max(0, len(line)-logline.Read))
			if filling != "x" {
				text, rest = line[:min(len(line), logline.Read)], 1 // what is read ends within a secret
			}
			got, cut := logline.Cut(log, text, rest)
			if strings.Contains(got, "hush") || len(got) > logline.Most || cut == 0 && len(line) > logline.Read {
				t.Fatalf("a secret at %d: %d cut: …%q", at, cut, got[max(0, len(got)-100):])
			}
		}
	}
	if got := logline.Masked(log, "a "+value); got != "a [secret A]" {
		t.Errorf("masked: %q", got)
	}
}
