package sqlstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/vault"
)

func TestMain(m *testing.M) {
	if role := os.Getenv("SQLSTORE_CHILD"); role != "" {
		os.Exit(child(role))
	}
	goleak.VerifyTestMain(m)
}

var (
	ann = conversation.ID{Tenant: "main", Agent: "clinic", Sender: "ann"}
	bob = conversation.ID{Tenant: "main", Agent: "clinic", Sender: "bob"}
	at  = time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)
)

func keys(t testing.TB, dir string) *vault.Vault {
	t.Helper()
	v, err := vault.Open(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// open opens the store of a folder and closes it when the test ends.
func open(t testing.TB, dir string, o Options) *Store {
	t.Helper()
	if o.Vault == nil {
		o.Vault = keys(t, dir)
	}
	s, err := Open(t.Context(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeStore(t, s) })
	return s
}

func closeStore(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func says(seq int64, text string) conversation.Event {
	return conversation.Event{Seq: seq, Kind: conversation.User, Turn: "t1", At: at, Text: text}
}

func add(t testing.TB, s *Store, id conversation.ID, events ...conversation.Event) {
	t.Helper()
	if err := s.Append(t.Context(), id, events); err != nil {
		t.Fatal(err)
	}
}

func load(t testing.TB, s *Store, id conversation.ID) []conversation.Event {
	t.Helper()
	events, err := s.Load(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return events
}

// filled sets every field of a value, so that a field added later is tested too.
func filled(v reflect.Value, n *int) {
	*n++
	switch v.Type() {
	case reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(at))
		return
	case reflect.TypeFor[json.RawMessage]():
		v.Set(reflect.ValueOf(json.RawMessage(fmt.Sprintf(` {"n" : %d, "tag":"<b>", "big":9007199254740993 } `, *n))))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		filled(v.Elem(), n)
	case reflect.Struct:
		for i := range v.NumField() {
			filled(v.Field(i), n)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			filled(v.Index(i), n)
		}
	case reflect.String:
		v.SetString(fmt.Sprintf("<text> \u2028 %d", *n))
	case reflect.Int64:
		v.SetInt(1)
	case reflect.Bool:
		v.SetBool(true)
	default:
		panic("a field of a kind this test does not know: " + v.Kind().String())
	}
}

func TestAnEventComesBackByteForByte(t *testing.T) {
	var full conversation.Event
	n := 0
	filled(reflect.ValueOf(&full).Elem(), &n)
	no := false
	events := []conversation.Event{
		full,
		{Seq: 2, Kind: conversation.Bot, At: at, Text: "not UTF-8: \xff\xfe\x00", Extra: json.RawMessage("\xff")},
		{Seq: 3, Kind: conversation.ToolExecuted, At: at, Tool: &conversation.ToolRun{Arguments: json.RawMessage{}, Result: "\xff"}},
		{Seq: 4, Kind: conversation.ConfirmResolved, At: at, Confirmed: &no},
		{Seq: 5},
	}
	before := fmt.Sprintf("%#v", events)
	dir := t.TempDir()
	s := open(t, dir, Options{})
	add(t, s, ann, events...)
	if after := fmt.Sprintf("%#v", events); after != before {
		t.Error("Append changed the caller's events")
	}
	closeStore(t, s)
	for name, s := range map[string]*Store{"after a restart": open(t, dir, Options{})} {
		got := load(t, s, ann)
		for i := range events {
			if i >= len(got) || !reflect.DeepEqual(got[i], events[i]) {
				t.Errorf("%s: event %d is\n%#v, want\n%#v", name, i+1, got[i], events[i])
			}
		}
	}
}

func TestNothingStoredIsNoError(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	ctx := t.Context()
	if got := load(t, s, ann); len(got) != 0 {
		t.Errorf("events of nobody: %v", got)
	}
	if lines, err := s.Traces(ctx, ann, ""); err != nil || len(lines) != 0 {
		t.Errorf("traces of nobody: %v, %v", lines, err)
	}
	if there, err := s.Delete(ctx, ann); there || err != nil {
		t.Errorf("deleted nobody: %v, %v", there, err)
	}
	if err := errors.Join(s.Append(ctx, ann, nil), s.AppendTrace(ctx, ann, nil), s.AddHookStats(nil), s.Flush(ctx)); err != nil {
		t.Error(err)
	}
	if all, err := s.List(ctx, "main", "clinic"); err != nil || len(all) != 0 {
		t.Errorf("conversations of nobody: %v, %v", all, err)
	}
	nobody := conversation.ID{}
	add(t, s, nobody, conversation.Event{Seq: 1})
	if got := load(t, s, nobody); len(got) != 1 {
		t.Errorf("events of the empty id: %v", got)
	}
}

func TestAnEventMustFollowTheNewestOne(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	add(t, s, ann, says(1, "a"), says(2, "b"))
	cases := map[string][]conversation.Event{
		"there already":        {says(2, "x")},
		"there in part":        {says(2, "x"), says(3, "y")},
		"a gap":                {says(4, "x")},
		"a gap among them":     {says(3, "x"), says(5, "y")},
		"backwards among them": {says(3, "x"), says(2, "y")},
		"zero":                 {says(0, "x")},
		"the first again":      {says(1, "x")},
	}
	for name, events := range cases {
		if err := s.Append(t.Context(), ann, events); !errors.Is(err, ErrConflict) {
			t.Errorf("%s: error %v, want ErrConflict", name, err)
		}
	}
	add(t, s, ann, says(3, "c"))
	var texts []string
	for _, e := range load(t, s, ann) {
		texts = append(texts, e.Text)
	}
	if got := strings.Join(texts, ""); got != "abc" {
		t.Errorf("the record is %q, want abc", got)
	}
	if err := s.Append(t.Context(), bob, []conversation.Event{says(2, "x")}); !errors.Is(err, ErrConflict) {
		t.Errorf("a conversation that begins at 2: error %v, want ErrConflict", err)
	}
	if got := load(t, s, bob); len(got) != 0 {
		t.Errorf("the refused conversation has %d events", len(got))
	}
}

func TestOfTwoOwnersOneFailsAndTheOthersInTheTransactionDoNot(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	const rivals = 8
	var wg sync.WaitGroup
	var mu sync.Mutex
	won, lost := 0, 0
	for i := range rivals {
		wg.Go(func() {
			err := s.Append(t.Context(), ann, []conversation.Event{says(1, "x")})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				won++
			case errors.Is(err, ErrConflict):
				lost++
			default:
				t.Error(err)
			}
		})
		wg.Go(func() {
			id := conversation.ID{Sender: fmt.Sprint(i)}
			if err := s.Append(t.Context(), id, []conversation.Event{says(1, "y")}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won != 1 || lost != rivals-1 {
		t.Errorf("%d won and %d lost, want 1 and %d", won, lost, rivals-1)
	}
}

func TestManyConversationsAtOnceKeepApart(t *testing.T) {
	const senders, turns = 200, 4
	dir := t.TempDir()
	s := open(t, dir, Options{cached: 16}) // far fewer than are busy
	var wg sync.WaitGroup
	for i := range senders {
		wg.Go(func() {
			id := conversation.ID{Tenant: "main", Agent: "clinic", Sender: fmt.Sprint("s", i)}
			for n := range int64(turns) {
				events := []conversation.Event{says(2*n+1, id.Sender), says(2*n+2, id.Sender)}
				if err := s.Append(context.Background(), id, events); err != nil {
					t.Error(err)
					return
				}
				lines := []conversation.Trace{{Turn: fmt.Sprint(n), At: at, Data: json.RawMessage(`"` + id.Sender + `"`)}}
				if err := s.AppendTrace(context.Background(), id, lines); err != nil {
					t.Error(err)
				}
				if err := s.AddHookStats([]HookStat{{Agent: "clinic", Hook: "h", Asked: 1}}); err != nil {
					t.Error(err)
				}
				got, err := s.Load(context.Background(), id)
				if err != nil || len(got) != int(2*n+2) {
					t.Errorf("%s has %d events after turn %d: %v", id.Sender, len(got), n, err)
				}
			}
		})
	}
	wg.Wait()
	closeStore(t, s)
	s = open(t, dir, Options{})
	for i := range senders {
		id := conversation.ID{Tenant: "main", Agent: "clinic", Sender: fmt.Sprint("s", i)}
		events := load(t, s, id)
		if len(events) != 2*turns {
			t.Fatalf("%s has %d events, want %d", id.Sender, len(events), 2*turns)
		}
		for n, e := range events {
			if e.Seq != int64(n+1) || e.Text != id.Sender {
				t.Fatalf("%s: event %d is %d %q", id.Sender, n+1, e.Seq, e.Text)
			}
		}
		lines, err := s.Traces(t.Context(), id, "")
		if err != nil {
			t.Fatal(err)
		}
		for n, l := range lines {
			if l.Turn != fmt.Sprint(n) || string(l.Data) != `"`+id.Sender+`"` {
				t.Fatalf("%s: trace line %d is %s %s", id.Sender, n, l.Turn, l.Data)
			}
		}
		if len(lines) != turns {
			t.Fatalf("%s has %d trace lines, want %d", id.Sender, len(lines), turns)
		}
	}
	stats, err := s.HookStats(t.Context(), "", "clinic")
	if err != nil || len(stats) != 1 || stats[0].Asked != senders*turns {
		t.Errorf("counts %+v, %v", stats, err)
	}
}

func TestALargeBodyStandsOnceInAConversation(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	big := strings.Repeat("0123456789abcdef", 10<<20/16)
	add(t, s, ann, says(1, big), says(2, "small"))
	add(t, s, ann, says(3, big))
	add(t, s, bob, says(1, big))
	count := func() (n int) {
		t.Helper()
		if err := s.reads.QueryRowContext(t.Context(), "SELECT count(*) FROM blob").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := count(); n != 2 {
		t.Errorf("%d blobs, want one for each conversation", n)
	}
	got := load(t, s, ann)
	if len(got) != 3 || got[0].Text != big || got[1].Text != "small" || got[2].Text != big {
		t.Error("large texts did not come back")
	}
	line := conversation.Trace{Turn: "t", At: at, Data: json.RawMessage(`"` + big[:100<<10] + `"`)}
	if err := s.AppendTrace(t.Context(), ann, []conversation.Trace{line, line}); err != nil {
		t.Fatal(err)
	}
	lines, err := s.Traces(t.Context(), ann, "t")
	if err != nil || len(lines) != 2 || string(lines[1].Data) != string(line.Data) {
		t.Errorf("%d large trace lines, %v", len(lines), err)
	}
	if n := count(); n != 3 {
		t.Errorf("%d blobs after the trace, want 3", n)
	}
	if there, err := s.Delete(t.Context(), ann); !there || err != nil {
		t.Fatal(there, err)
	}
	if n := count(); n != 1 {
		t.Errorf("%d blobs after the deletion, want bob's", n)
	}
	if got := load(t, s, bob); got[0].Text != big {
		t.Error("bob's text is gone too")
	}
}

func TestTraceLinesAreNumberedInOrderAndFoundByTurn(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	lines := []conversation.Trace{{Turn: "t1", At: at, Data: json.RawMessage(`{"a": 1}`)}, {Turn: "t2", Data: json.RawMessage(`2`)}}
	if err := s.AppendTrace(t.Context(), ann, lines); err != nil {
		t.Fatal(err)
	}
	if lines[0].Seq == 0 || lines[1].Seq != lines[0].Seq+1 {
		t.Errorf("numbered %d and %d", lines[0].Seq, lines[1].Seq)
	}
	got, err := s.Traces(t.Context(), ann, "")
	if err != nil || !reflect.DeepEqual(got, lines) {
		t.Errorf("got %+v, %v; want %+v", got, err, lines)
	}
	closeStore(t, s)
	s = open(t, dir, Options{})
	more := []conversation.Trace{{Turn: "t1"}}
	if err := s.AppendTrace(t.Context(), ann, more); err != nil {
		t.Fatal(err)
	}
	if more[0].Seq <= lines[1].Seq {
		t.Errorf("after a restart the next line is %d, after %d", more[0].Seq, lines[1].Seq)
	}
	got, err = s.Traces(t.Context(), ann, "t1")
	if err != nil || len(got) != 2 || got[0].Seq != lines[0].Seq || got[1].Seq != more[0].Seq {
		t.Errorf("lines of one turn: %+v, %v", got, err)
	}
}

func TestConversationsAreListedTheNewestFirst(t *testing.T) {
	now := at
	s := open(t, t.TempDir(), Options{Clock: func() time.Time { return now }})
	add(t, s, ann, says(1, "a"))
	now = now.Add(time.Second)
	add(t, s, bob, says(1, "a"), says(2, "b"))
	add(t, s, conversation.ID{Tenant: "other", Agent: "clinic", Sender: "eve"}, says(1, "a"))
	add(t, s, conversation.ID{Tenant: "main", Agent: "shop", Sender: "eve"}, says(1, "a"))
	now = now.Add(time.Second)
	add(t, s, ann, says(2, "b"), says(3, "c"))
	got, err := s.List(t.Context(), "main", "clinic")
	want := []Summary{
		{ID: ann, Turns: 1, Events: 3, Created: at, Updated: at.Add(2 * time.Second)},
		{ID: bob, Turns: 1, Events: 2, Created: at.Add(time.Second), Updated: at.Add(time.Second)},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

func TestIdleConversations(t *testing.T) {
	now := at
	s := open(t, t.TempDir(), Options{Clock: func() time.Time { return now }})
	add(t, s, ann, says(1, "a"))
	add(t, s, conversation.ID{Tenant: "other", Agent: "clinic", Sender: "eve"}, says(1, "a"))
	now = now.Add(time.Second)
	add(t, s, bob, says(1, "a"))
	for after, want := range map[time.Duration][]conversation.ID{0: {}, 1: {ann}, time.Second: {ann}, time.Second + 1: {ann, bob}} {
		if got, err := s.Idle(t.Context(), "main", "clinic", at.Add(after)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("before %v: %v, %v; want %v", after, got, err, want)
		}
	}
	now = now.Add(time.Second)
	add(t, s, ann, says(2, "b"))
	if err := s.AppendTrace(t.Context(), bob, []conversation.Trace{{Turn: "t1"}}); err != nil { // no event
		t.Fatal(err)
	}
	if got, err := s.Idle(t.Context(), "main", "clinic", now); err != nil || !reflect.DeepEqual(got, []conversation.ID{bob}) {
		t.Errorf("got %v, %v", got, err)
	}
	for id, want := range map[conversation.ID]time.Time{ann: now, bob: at.Add(time.Second), {Sender: "nobody"}: {}} {
		if got, err := s.Updated(t.Context(), id); err != nil || !got.Equal(want) {
			t.Errorf("%v was updated %v, %v; want %v", id, got, err, want)
		}
	}
}

func TestAClosedStoreSaysSo(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	add(t, s, ann, says(1, "a"))
	closeStore(t, s)
	ctx := t.Context()
	for name, err := range map[string]error{
		"Append":       s.Append(ctx, ann, []conversation.Event{says(2, "b")}),
		"AppendTrace":  s.AppendTrace(ctx, ann, []conversation.Trace{{}}),
		"AddHookStats": s.AddHookStats([]HookStat{{Hook: "h"}}),
		"Flush":        s.Flush(ctx),
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s: error %v, want ErrClosed", name, err)
		}
	}
	if _, err := s.Load(ctx, ann); err == nil {
		t.Error("Load of a closed store gives no error")
	}
	if err := s.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
}

func TestACallWhoseContextHasEndedChangesNothing(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Append(ctx, ann, []conversation.Event{says(1, "a")}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want context.Canceled", err)
	}
	if _, err := s.Load(ctx, ann); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want context.Canceled", err)
	}
	if got := load(t, s, ann); len(got) != 0 {
		t.Errorf("%d events", len(got))
	}
}

func TestFilesAreForTheirOwnerAloneInAFolderOfAnyName(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a b?c#d%41&e=f")
	s := open(t, dir, Options{})
	add(t, s, ann, says(1, "a"))
	names := func() string {
		t.Helper()
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, f := range files {
			info, err := f.Info()
			if err != nil {
				t.Fatal(err)
			}
			if mode := info.Mode().Perm(); mode != 0o600 {
				t.Errorf("%s has mode %04o", f.Name(), mode)
			}
			names = append(names, f.Name())
		}
		return strings.Join(names, " ")
	}
	if got, want := names(), "belay.db belay.db-shm belay.db-wal belay.key belay.lock"; got != want {
		t.Errorf("files %s, want %s", got, want)
	}
	closeStore(t, s)
	// The log goes only with the last connection: that none is left shows here.
	if got, want := names(), "belay.db belay.key belay.lock"; got != want {
		t.Errorf("files after the close %s, want %s", got, want)
	}
}
