package rawjson

import (
	"encoding/json"
	"testing"
)

func TestWritten(t *testing.T) {
	for raw, want := range map[string]string{
		`"plain, text: as it is"`:        "plain, text: as it is",
		`{"a":1,"b":[1,2]}`:              `{"a": 1, "b": [1, 2]}`,
		`{"a" : "x,y:z\"," }`:            `{"a": "x,y:z\","}`,
		"  [ 12345678901234567890 ] ":    `[12345678901234567890]`,
		`{"e":"é","slash":"\\","u":"<"}`: `{"e": "é", "slash": "\\", "u": "<"}`,
		`null`:                           `null`,
		`true`:                           `true`,
		`not JSON`:                       `not JSON`,
	} {
		if got := Written(json.RawMessage(raw)); got != want {
			t.Errorf("%s was written as %s, not %s", raw, got, want)
		}
	}
}

func TestListKeepsBytes(t *testing.T) {
	got := List([]json.RawMessage{json.RawMessage(`{"a" : "<&>"}`), json.RawMessage(`1`)})
	if string(got) != `[{"a" : "<&>"},1]` {
		t.Errorf("got %s", got)
	}
	if string(List(nil)) != "[]" {
		t.Errorf("no items: %s", List(nil))
	}
	if raw := Must(map[string]string{"k": "<a> & b"}); string(raw) != `{"k":"<a> & b"}` {
		t.Errorf("encoded as %s", raw)
	}
}
