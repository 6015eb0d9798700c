package gateway

import (
	"log/slog"
	"sync"
	"time"
)

// tally logs what happens often: the first time at once, then how often it was, at
// intervals.
type tally struct {
	mu   sync.Mutex
	last time.Time
	what string
	more int // since the last line
}

const interval = 10 * time.Second

func (t *tally) log(to *slog.Logger, now time.Time, what string, about ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.what = what
	if t.more++; !t.last.IsZero() && now.Sub(t.last) < interval {
		return
	}
	to.Warn(what, append(about, "count", t.more)...)
	t.last, t.more = now, 0
}

// rest logs what was not logged yet.
func (t *tally) rest(to *slog.Logger) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.more > 0 {
		to.Warn(t.what, "count", t.more)
		t.more = 0
	}
}
