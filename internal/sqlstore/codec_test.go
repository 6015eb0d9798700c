package sqlstore

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/belay-run/belay/internal/conversation"
)

// FuzzDecodeEvent: whatever stands in a row is an event or an error, and an
// event that was read is written as it was.
func FuzzDecodeEvent(f *testing.F) {
	for _, e := range []conversation.Event{
		{},
		{Text: "hello", Extra: json.RawMessage(`{"a" : 1}`)},
		{Tool: &conversation.ToolRun{Name: "book", Arguments: json.RawMessage(`{}`), Result: "ok"}},
		{Batch: []conversation.ToolRun{{Name: "a"}, {Arguments: json.RawMessage{}}}},
	} {
		body, err := encodeEvent(e)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
	}
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Fuzz(func(t *testing.T, body []byte) {
		e, err := decodeEvent(body)
		if err != nil {
			return
		}
		again, err := encodeEvent(e)
		if err != nil {
			t.Fatal(err)
		}
		e2, err := decodeEvent(again)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(e, e2) {
			t.Errorf("%#v became %#v", e, e2)
		}
	})
}

func TestLRUKeepsWhatIsBusyAndWhatWasUsedLast(t *testing.T) {
	c := newLRU[string](2, func(busy bool) bool { return busy })
	c.put("a", true)
	c.put("b", false)
	c.put("c", false)
	c.get("b")
	c.put("d", false)
	for key, want := range map[string]bool{"a": true, "b": false, "c": false, "d": true} {
		if _, ok := c.get(key); ok != want {
			t.Errorf("%s is kept: %v, want %v", key, ok, want)
		}
	}
	c.put("a", false)
	c.put("e", false)
	if _, ok := c.get("d"); ok || len(c.found) != 2 || c.order.Len() != 2 {
		t.Error("what is no longer busy still counts")
	}
}
