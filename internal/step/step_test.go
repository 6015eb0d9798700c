package step

import (
	"context"
	"errors"
	"testing"
	"time"
)

type doubled struct {
	N int `json:"n"`
}

func TestRecordAndReplay(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	clock := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	direct := NewDirect(ctx, map[string]Handler{
		"double": func(_ context.Context, c Call) (any, error) { return doubled{2 * c.Input.(int)}, nil },
		"fail":   func(context.Context, Call) (any, error) { return nil, context.Canceled },
	}, func() time.Time { return clock })
	record := NewRecord(direct)
	flow := func(s Steps) (int, time.Time, error) {
		a, err := s.Do(Call{Key: "a", Kind: "double", Input: 21})
		if err != nil {
			return 0, time.Time{}, err
		}
		d, err := As[doubled](a)
		if err != nil {
			return 0, time.Time{}, err
		}
		at := s.Now()
		_, err = s.Do(Call{Key: "b", Kind: "fail", Input: nil})
		return d.N, at, err
	}
	n, at, err := flow(record)
	if n != 42 || !at.Equal(clock) || !errors.Is(err, context.Canceled) {
		t.Fatalf("%d %v %v", n, at, err)
	}
	replay, err := NewReplay(record.Journal())
	if err != nil {
		t.Fatal(err)
	}
	if n, at, err := flow(replay); n != 42 || !at.Equal(clock) || !errors.Is(err, ErrStopped) {
		t.Errorf("again: %d %v %v", n, at, err)
	}
	for name, c := range map[string]Call{
		"another key":   {Key: "c", Kind: "double", Input: 21},
		"another input": {Key: "a", Kind: "double", Input: 22},
		"another kind":  {Key: "a", Kind: "fail", Input: 21},
	} {
		if _, err := replay.Do(c); !errors.Is(err, ErrDiffers) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := NewReplay(append(record.Journal(), Kept{Key: "a"})); err == nil {
		t.Error("a key that stands twice was taken")
	}
	if _, err := direct.Do(Call{Key: "d", Kind: "nobody"}); err == nil {
		t.Error("a kind without a handler was asked")
	}
	cancel()
	if _, err := direct.Do(Call{Key: "e", Kind: "double", Input: 1}); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v", err)
	}
}
