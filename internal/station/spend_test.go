package station

import (
	"errors"
	"testing"

	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/spend"
)

// What a provider has begun to answer it charges, whether or not an answer came.
func TestWhatAFailedAnswerCosts(t *testing.T) {
	for name, tt := range map[string]struct {
		err  error
		want int // tokens
	}{
		"three tries that broke off": {&chat.Error{Attempts: 3, Begun: 3}, 30},
		"refused":                    {&chat.Error{Status: 500, Attempts: 3}, 0},
		"out of time":                {&chat.Error{Attempts: 2, Begun: 1}, 10},
		"never asked":                {errors.New("no"), 0},
	} {
		l, err := spend.New(t.Context(), spend.Options{Store: forgetful{}})
		if err != nil {
			t.Fatal(err)
		}
		entry, err := l.Begin(spend.Call{ID: name, Tenant: "acme"}, spend.Need{Input: 40})
		if err != nil {
			t.Fatal(err)
		}
		c := charge{entry: entry, request: 40}
		c.end(t.Context(), &chat.Response{}, tt.err)
		if got := l.Standings("acme")[0]; got.Tokens != int64(tt.want) || got.ReservedTokens != 0 {
			t.Errorf("%s: %+v", name, got)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
