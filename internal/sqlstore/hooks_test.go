package sqlstore

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/conversation"
)

func TestHookCountsAddUp(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	a := HookStat{Tenant: "main", Agent: "clinic", Hook: "hooks/a.py:mask"}
	one, two := a, a
	one.Asked, one.Changed, one.Rejected, one.Retried, one.Failed, one.Timeouts = 1, 2, 3, 4, 5, 6
	one.LastFired, one.LastFailure = at, at.Add(-time.Hour)
	two.Asked, two.LastFired = 10, at.Add(-time.Minute) // older: must not win
	b := HookStat{Tenant: "main", Agent: "clinic", Hook: "hooks/b.py:log", Asked: 1}
	elsewhere := HookStat{Tenant: "other", Agent: "clinic", Hook: "hooks/a.py:mask", Asked: 1}
	if err := s.AddHookStats([]HookStat{one, b, elsewhere}); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s) // once into the file, once more on top
	s = open(t, dir, Options{})
	if err := errors.Join(s.AddHookStats([]HookStat{two}), s.AddHookStats([]HookStat{two, b})); err != nil {
		t.Fatal(err)
	}
	want := one
	want.Asked += 20
	b.Asked = 2
	got, err := s.HookStats(t.Context(), "main", "clinic")
	if err != nil || !reflect.DeepEqual(got, []HookStat{want, b}) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestAHookIsDisabledForAWhileAndEverySwitchIsOnRecord(t *testing.T) {
	now := at
	s := open(t, t.TempDir(), Options{Clock: func() time.Time { return now }})
	ctx := t.Context()
	set := func(hook string, disabled bool, until time.Time, reason string) HookSwitch {
		t.Helper()
		sw, err := s.SetHookSwitch(ctx, HookSwitch{
			Tenant: "main", Agent: "clinic", Hook: hook, Disabled: disabled, Until: until, By: "ops", Reason: reason,
		})
		if err != nil {
			t.Fatal(err)
		}
		return sw
	}
	inForce := func() string {
		t.Helper()
		all, err := s.HookSwitches(ctx, "main", "clinic")
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, sw := range all {
			names = append(names, sw.Hook)
		}
		return strings.Join(names, " ")
	}
	history := []HookSwitch{
		set("b", true, at.Add(10*time.Minute), "it is broken"),
		set("a", true, time.Time{}, "for good"),
	}
	if got := inForce(); got != "a b" {
		t.Errorf("disabled: %s, want a b", got)
	}
	now = at.Add(10 * time.Minute)
	if got := inForce(); got != "a" {
		t.Errorf("disabled after the time has run out: %s, want a", got)
	}
	history = append(history, set("a", false, time.Time{}, "mended"))
	if got := inForce(); got != "" {
		t.Errorf("disabled after the enabling: %s", got)
	}
	got, err := s.HookSwitchHistory(ctx, "main", "clinic")
	if err != nil || !reflect.DeepEqual(got, history) {
		t.Errorf("history %+v, %v; want %+v", got, err, history)
	}
	if _, err := s.SetHookSwitch(ctx, HookSwitch{}); err == nil || !strings.Contains(err.Error(), "belay hooks") {
		t.Errorf("a switch of no hook: error %v", err)
	}
}

func TestASwitchOfAnotherProcessIsSeen(t *testing.T) {
	dir := t.TempDir()
	now := at
	var mu sync.Mutex
	s := open(t, dir, Options{Clock: func() time.Time { mu.Lock(); defer mu.Unlock(); return now }})
	add(t, s, ann, says(1, "a"))
	ctx, cancel := context.WithCancel(t.Context())
	tick, seen := make(chan time.Time), make(chan []HookSwitch, 10)
	var wg sync.WaitGroup
	wg.Go(func() {
		s.WatchHookSwitches(ctx, "main", "clinic", tick, func(all []HookSwitch) { seen <- all })
	})
	if got := <-seen; len(got) != 0 {
		t.Errorf("at first %v", got)
	}
	cmd, _, _ := spawn(t, "switch", dir)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	tick <- at
	if got := <-seen; len(got) != 1 || got[0].Hook != "hooks/a.py:mask" || got[0].By != "child" {
		t.Errorf("after the other process's switch %v", got)
	}
	set := func(sw HookSwitch) {
		t.Helper()
		sw.Tenant, sw.Agent = "main", "clinic"
		if _, err := s.SetHookSwitch(t.Context(), sw); err != nil {
			t.Fatal(err)
		}
		tick <- at
	}
	set(HookSwitch{Hook: "hooks/a.py:mask"})
	if got := <-seen; len(got) != 0 {
		t.Errorf("after the enabling %v", got)
	}
	set(HookSwitch{Hook: "b", Disabled: true, Until: at.Add(time.Minute)})
	if got := <-seen; len(got) != 1 {
		t.Errorf("after the own switch %v", got)
	}
	tick <- at
	mu.Lock()
	now = at.Add(time.Minute)
	mu.Unlock()
	tick <- at
	if got := <-seen; len(got) != 0 {
		t.Errorf("after the time has run out %v", got)
	}
	cancel()
	wg.Wait()
	if len(seen) != 0 {
		t.Errorf("told of a change where there was none: %v", <-seen)
	}
}

func TestAnAttachedStoreReadsAndCannotWrite(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	ctx := t.Context()
	add(t, s, ann, says(1, "a"))
	if err := errors.Join(
		s.AppendTrace(ctx, ann, []conversation.Trace{{Turn: "t"}}),
		s.AddHookStats([]HookStat{{Tenant: "main", Agent: "clinic", Hook: "h", Asked: 1}}),
		s.Flush(ctx),
	); err != nil {
		t.Fatal(err)
	}
	guest, err := Attach(ctx, dir, Options{Vault: keys(t, dir)})
	if err != nil {
		t.Fatal(err)
	}
	defer closeStore(t, guest)
	if got := load(t, guest, ann); len(got) != 1 {
		t.Errorf("%d events", len(got))
	}
	if got, err := guest.Traces(ctx, ann, ""); err != nil || len(got) != 1 {
		t.Errorf("%d trace lines, %v", len(got), err)
	}
	if got, err := guest.HookStats(ctx, "main", "clinic"); err != nil || len(got) != 1 {
		t.Errorf("%d counts, %v", len(got), err)
	}
	if got, err := guest.List(ctx, "main", "clinic"); err != nil || len(got) != 1 {
		t.Errorf("%d conversations, %v", len(got), err)
	}
	_, deleted := guest.Delete(ctx, ann)
	for name, err := range map[string]error{
		"Append":       guest.Append(ctx, ann, []conversation.Event{says(2, "b")}),
		"AppendTrace":  guest.AppendTrace(ctx, ann, []conversation.Trace{{}}),
		"AddHookStats": guest.AddHookStats([]HookStat{{Hook: "h"}}),
		"Delete":       deleted,
	} {
		if !errors.Is(err, ErrReadOnly) {
			t.Errorf("%s: error %v, want ErrReadOnly", name, err)
		}
	}
	// The owner deletes and begins anew: the guest must not use the old key.
	if _, err := s.Delete(ctx, ann); err != nil {
		t.Fatal(err)
	}
	add(t, s, ann, says(1, "anew"))
	if got := load(t, guest, ann); len(got) != 1 || got[0].Text != "anew" {
		t.Errorf("the guest reads %v", got)
	}

	blind, err := Attach(ctx, dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer closeStore(t, blind)
	if _, err := blind.Load(ctx, ann); err == nil || !strings.Contains(err.Error(), "master key") {
		t.Errorf("read without a key: %v", err)
	}
	if _, err := blind.SetHookSwitch(ctx, HookSwitch{Tenant: "main", Agent: "clinic", Hook: "h", Disabled: true}); err != nil {
		t.Error(err)
	}
	if got, err := s.HookSwitches(ctx, "main", "clinic"); err != nil || len(got) != 1 {
		t.Errorf("the owner sees %d switches, %v", len(got), err)
	}
}
