package pyhost

import (
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func quiet(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

func fixedClock() time.Time { return time.Unix(1_800_000_000, 0) }

func TestOutput(t *testing.T) {
	log, now, told := newLogbook(), fixedClock(), int64(0)
	o := newOutput(quiet(log), func() time.Time { return now }, func(n int64) { told += n })
	line := func(s string) { o.write([]byte(s)) }

	line("one\ntw")
	line("o\r\n\nlast")
	text := log.String()
	for _, want := range []string{"line=one\n", "line=two\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	if strings.Contains(text, "last") || strings.Contains(text, `line=""`) {
		t.Errorf("log is %s", text)
	}

	line("\n")
	for range 2 * lineBurst {
		line("123456789\n")
	}
	if n := strings.Count(log.String(), "123456789"); n > lineBurst || n < lineBurst/2 {
		t.Errorf("%d lines of a flood were logged", n)
	}
	now = now.Add(10 * time.Second)
	line("calm again\n")
	text = log.String()
	if !strings.Contains(text, "calm again") || !strings.Contains(text, "suppressed_bytes") || told < 10*lineBurst {
		t.Errorf("told %d, log is %.300s", told, text)
	}
}
