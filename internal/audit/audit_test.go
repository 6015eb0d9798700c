package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

var at = time.Date(2026, 11, 3, 9, 30, 0, 123456789, time.FixedZone("", 3600))

// record makes a record of so many entries.
func record(t *testing.T, n int) []Entry {
	t.Helper()
	var all []Entry
	var head Head
	for i := range n {
		e, err := Next(head, at.Add(time.Duration(i)*time.Second), Fact{
			Tenant: "main", Actor: "ann", Action: PolicyApplied, Subject: "<p> \u2028",
			Data: Data{"n": i, "why": "a<b&c", "tools": []string{"x.y"}, "forced": true},
		})
		if err != nil {
			t.Fatal(err)
		}
		all, head = append(all, e), Head{e.Seq, e.Hash}
	}
	return all
}

// The hash is a promise to whoever checks records with a program of their own.
func TestTheHashIsAsDescribed(t *testing.T) {
	e := record(t, 1)[0]
	if got := string(e.Data); got != `{"forced":true,"n":0,"tools":["x.y"],"why":"a\u003cb\u0026c"}` {
		t.Errorf("data %s", got)
	}
	if got := e.Hash.String(); got != "e7028f007ec047400163c702ca353f7ae915b39565464b7ed3214a8e840b7ede" {
		t.Errorf("hash %s", got)
	}
}

func TestARecordComesThroughJSONUnchanged(t *testing.T) {
	all := record(t, 3)
	for name, escape := range map[string]bool{"escaped": true, "plain": false} {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(escape)
		if err := enc.Encode(all); err != nil {
			t.Fatal(err)
		}
		var back []Entry
		if err := json.Unmarshal(b.Bytes(), &back); err != nil {
			t.Fatal(err)
		}
		if ok, bad := Verify(back); !ok || back[2].Hash != all[2].Hash {
			t.Errorf("%s: entry %d is bad", name, bad)
		}
	}
}

func TestEveryChangeIsFound(t *testing.T) {
	other := record(t, 5)
	for i := range other {
		other[i].Actor = "eve"
		if i > 0 {
			other[i].Prev = other[i-1].Hash
		}
		other[i].Hash = other[i].Sum()
	}
	for name, c := range map[string]struct {
		change func(all []Entry) []Entry
		bad    int
		reason string
	}{
		"nothing":          {func(a []Entry) []Entry { return a }, -1, ""},
		"empty":            {func([]Entry) []Entry { return nil }, -1, ""},
		"time":             {func(a []Entry) []Entry { a[1].At = a[1].At.Add(1); return a }, 1, "changed"},
		"actor":            {func(a []Entry) []Entry { a[1].Actor = "bob"; return a }, 1, "changed"},
		"action":           {func(a []Entry) []Entry { a[1].Action = PluginMoved; return a }, 1, "changed"},
		"subject":          {func(a []Entry) []Entry { a[0].Subject = "x"; return a }, 0, "changed"},
		"data":             {func(a []Entry) []Entry { a[4].Data = json.RawMessage("{}"); return a }, 4, "changed"},
		"spelling of data": {func(a []Entry) []Entry { a[4].Data = append(a[4].Data, ' '); return a }, 4, "changed"},
		"a text moved on":  {func(a []Entry) []Entry { a[1].Actor, a[1].Action = "an", "npolicy.applied"; return a }, 1, "changed"},
		"hash":             {func(a []Entry) []Entry { a[3].Hash[0]++; return a }, 3, "changed"},
		"with its hash":    {func(a []Entry) []Entry { a[2].Actor = "bob"; a[2].Hash = a[2].Sum(); return a }, 3, "does not follow"},
		"one replaced":     {func(a []Entry) []Entry { a[2] = other[2]; return a }, 2, "does not follow"},
		"one left out":     {func(a []Entry) []Entry { return slices.Delete(a, 2, 3) }, 2, "missing"},
		"the first cut":    {func(a []Entry) []Entry { return a[1:] }, 0, "missing"},
		"twice":            {func(a []Entry) []Entry { return slices.Insert(a, 2, a[1]) }, 2, "stands in its place"},
		"swapped":          {func(a []Entry) []Entry { a[1], a[2] = a[2], a[1]; return a }, 1, "missing"},
		"another tenant": {func(a []Entry) []Entry {
			a[4].Tenant = "other"
			a[4].Hash = a[4].Sum()
			return a
		}, 4, "another tenant"},
	} {
		t.Run(name, func(t *testing.T) {
			all := c.change(record(t, 5))
			if ok, bad := Verify(all); ok != (c.bad < 0) || bad != c.bad {
				t.Errorf("ok %v, first bad %d, want %d", ok, bad, c.bad)
			}
			r, err := Check(t.Context(), kept(all), "main")
			if err != nil {
				t.Fatal(err)
			}
			if r.OK != (c.bad < 0) || r.OK && r.FirstBad != 0 || !r.OK && r.FirstBad != int64(c.bad+1) || !strings.Contains(r.Reason, c.reason) {
				t.Errorf("report %+v", r)
			}
		})
	}
	if ok, _ := Verify(other); !ok {
		t.Error("the other record is not whole either: this test shows nothing")
	}
}

// kept is a log that holds what it is given, in pages.
type kept []Entry

func (k kept) AuditEntries(_ context.Context, _ string, after int64, most int) ([]Entry, error) {
	return k[min(len(k), int(after)):min(len(k), int(after)+min(most, 2))], nil
}

func (k kept) AuditHead(context.Context, string) (Head, error) {
	return Head{}, errors.New("not asked")
}

func TestACutTailIsSeenAgainstAKeptHead(t *testing.T) {
	all := record(t, 5)
	head := Head{4, all[3].Hash}
	anew := record(t, 6)
	for i := range anew {
		anew[i].Actor = "eve"
		if i > 0 {
			anew[i].Prev = anew[i-1].Hash
		}
		anew[i].Hash = anew[i].Sum()
	}
	for name, c := range map[string]struct {
		all  []Entry
		kept Head
		bad  int64
	}{
		"grown since":           {all, head, 0},
		"as it was":             {all[:4], head, 0},
		"hash alone":            {all, Head{0, head.Hash}, 0},
		"cut":                   {all[:3], head, 4},
		"cut, hash alone":       {all[:3], Head{0, head.Hash}, 4},
		"all gone":              {nil, head, 1},
		"written anew":          {anew, head, 4},
		"a head of nothing":     {nil, Head{}, 0},
		"the number is another": {all, Head{3, head.Hash}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			parsed, err := ParseHead(" " + c.kept.String() + "\n")
			if err != nil || parsed != c.kept {
				t.Fatalf("%v %v", parsed, err)
			}
			r, err := Check(t.Context(), kept(c.all), "main", parsed, parsed)
			if err != nil || r.OK != (c.bad == 0) || r.FirstBad != c.bad {
				t.Errorf("%+v %v", r, err)
			}
			if len(c.all) > 0 && r.Entries != int64(len(c.all)) {
				t.Errorf("%d entries", r.Entries)
			}
		})
	}
	for _, bad := range []string{"", ":", "x", "1:2", "-1:" + head.Hash.String(), head.Hash.String() + "0", "1:" + head.Hash.String()[1:], "x:" + head.Hash.String()} {
		if _, err := ParseHead(bad); err == nil || !strings.Contains(err.Error(), "belay audit verify") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if got, err := ParseHead(head.Hash.String()); err != nil || got.Hash != head.Hash {
		t.Error(got, err)
	}
}

func TestAReportIsJSON(t *testing.T) {
	r, err := Check(t.Context(), kept(record(t, 2)), "main")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(raw, &back); err != nil || back != r || !strings.Contains(string(raw), `"head":"2:`) {
		t.Errorf("%s %v", raw, err)
	}
	if err := json.Unmarshal([]byte(`{"head":"none"}`), &back); err == nil {
		t.Error("a head that is none was read")
	}
	var h Hash
	if h.UnmarshalText([]byte(strings.Repeat("g", 64))) == nil || h.UnmarshalText([]byte("00")) == nil {
		t.Error("a hash that is none was read")
	}
}

type broken struct{ kept }

func (broken) AuditEntries(context.Context, string, int64, int) ([]Entry, error) {
	return nil, errors.New("the disk is gone")
}

func TestARecordThatCannotBeReadIsNeverFoundWhole(t *testing.T) {
	if r, err := Check(t.Context(), broken{}, "main"); err == nil || r.OK {
		t.Errorf("%+v %v", r, err)
	}
}

func TestFactsAreNames(t *testing.T) {
	long := strings.Repeat("ü", 200)
	e, err := Next(Head{}, at, Fact{Tenant: "main", Actor: long, Action: HookDisabled, Subject: "\xff", Data: Data{"a": long, "b": []string{long}, "c": int64(1)}})
	if err != nil {
		t.Fatal(err)
	}
	if len(e.Actor) > 260 || !strings.HasSuffix(e.Actor, "ü…") || e.Subject != "\uFFFD" || len(e.Data) > 600 {
		t.Errorf("%+v %s", e, e.Data)
	}
	if e, err := Next(Head{}, at, Fact{Tenant: "main", Actor: "a", Action: HookDisabled}); err != nil || string(e.Data) != "{}" {
		t.Errorf("%s %v", e.Data, err)
	}
	many := make([]string, 100)
	for i := range many {
		many[i] = long
	}
	for name, f := range map[string]Fact{
		"no tenant":    {Actor: "a", Action: HookDisabled},
		"no actor":     {Tenant: "main", Action: HookDisabled},
		"odd tenant":   {Tenant: "\xff", Actor: "a", Action: HookDisabled},
		"no action":    {Tenant: "main", Actor: "a"},
		"odd action":   {Tenant: "main", Actor: "a", Action: "Did Something"},
		"a float":      {Tenant: "main", Actor: "a", Action: HookDisabled, Data: Data{"x": 1.5}},
		"raw JSON":     {Tenant: "main", Actor: "a", Action: HookDisabled, Data: Data{"x": json.RawMessage("{}")}},
		"too much":     {Tenant: "main", Actor: "a", Action: HookDisabled, Data: Data{"x": many}},
		"nested":       {Tenant: "main", Actor: "a", Action: HookDisabled, Data: Data{"x": map[string]any{}}},
		"no such type": {Tenant: "main", Actor: "a", Action: HookDisabled, Data: Data{"x": nil}},
	} {
		if _, err := Next(Head{}, at, f); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

func TestFactsGoAlongWithAChange(t *testing.T) {
	if got := AlongOf(t.Context()); got != nil {
		t.Error(got)
	}
	f := Fact{Actor: "ann"}
	if got := AlongOf(Along(t.Context(), f)); len(got) != 1 || got[0].Actor != "ann" {
		t.Error(got)
	}
}
