package pyhost

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/hook"
)

func read(b []byte) (frame, error) { return readFrame(bufio.NewReader(bytes.NewReader(b))) }

func TestReadFrame(t *testing.T) {
	long := bytes.Repeat([]byte("x"), 3*trustedAlloc+17)
	for _, body := range [][]byte{nil, []byte("x"), long[:trustedAlloc], long} {
		b := appendFrame(nil, frameHookAnswer, 7, func(b []byte) []byte { return append(b, body...) })
		f, err := read(append(b, "next"...))
		if err != nil || f.kind != frameHookAnswer || f.id != 7 || !bytes.Equal(f.body, body) {
			t.Errorf("%d bytes: got %q %d, %d bytes, %v", len(body), f.kind, f.id, len(f.body), err)
		}
	}
	if _, err := read(nil); err != io.EOF {
		t.Errorf("the end of the pipe gives %v", err)
	}
	for name, b := range map[string][]byte{
		"ends in the head":  {0, 0, 0, 9, 'A'},
		"ends in the body":  append(binary.BigEndian.AppendUint32(nil, 100), "A\x00\x00\x00\x01abc"...),
		"too short":         {0, 0, 0, 4, 'A', 0, 0, 0, 1},
		"too long":          append(binary.BigEndian.AppendUint32(nil, maxFrameIn+1), "A\x00\x00\x00\x01"...),
		"of no known type":  {0, 0, 0, 5, 'Z', 0, 0, 0, 1},
		"of the host's own": {0, 0, 0, 5, 'H', 0, 0, 0, 1},
	} {
		var p *protocolError
		if _, err := read(b); !errors.As(err, &p) {
			t.Errorf("a frame that is %s gives %v", name, err)
		}
	}
}

// A frame that announces much and brings little costs little.
func TestReadFrameTrustsNoLength(t *testing.T) {
	b := append(binary.BigEndian.AppendUint32(nil, maxFrameIn), "A\x00\x00\x00\x01abc"...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := read(b); err == nil {
		t.Fatal("no error")
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 2*trustedAlloc {
		t.Errorf("%d bytes were allocated", n)
	}
}

var request = hook.PointNamed(hook.ModelRequest)

// ran3ms is how an answer begins: with 3 ms in microseconds.
const ran3ms = "\x00\x00\x0b\xb8"

func changes(pairs ...any) []byte {
	b := answerOf(outcomeGo, string([]byte{byte(len(pairs) / 2)}))
	for i := 0; i < len(pairs); i += 2 {
		raw := pairs[i+1].(string)
		b = append(b, byte(pairs[i].(int)))
		b = binary.BigEndian.AppendUint32(b, uint32(len(raw)))
		b = append(b, raw...)
	}
	return b
}

func answerOf(outcome byte, rest string) []byte {
	return append(append([]byte(ran3ms), outcome), rest...)
}

func TestParseHookAnswer(t *testing.T) {
	a, err := parseHookAnswer(request, changes(0, `[]`, 1, `{"seed":1}`))
	if err != nil || a.Verdict.Kind != hook.Continue || len(a.Verdict.Changes) != 2 || a.Took != 3*time.Millisecond || string(a.Verdict.Changes[1].Value) != `{"seed":1}` {
		t.Errorf("got %+v, %v", a, err)
	}
	a, err = parseHookAnswer(request, answerOf(outcomeReject, `{"text":"no","file":"hooks.py","line":3}`))
	if err != nil || a.Verdict.Kind != hook.Reject || a.Verdict.Reason != "no" || a.Line != 3 {
		t.Errorf("got %+v, %v", a, err)
	}
	a, err = parseHookAnswer(request, answerOf(outcomeFailed, `{"text":"boom","kind":"wrong_return","type":"X","line":-1}`))
	if err != nil || a.Failure == nil || a.Failure.Kind != hook.WrongReturn || a.Failure.Message != "boom" || a.Failure.Line != 0 || a.Took != 3*time.Millisecond {
		t.Errorf("got %+v, %v", a.Failure, err)
	}
	for name, b := range map[string][]byte{
		"empty":              {},
		"with half a time":   {0, 0, 1},
		"with only a time":   []byte(ran3ms),
		"of no outcome":      answerOf(3, `{}`),
		"with no changes":    answerOf(outcomeGo, ""),
		"with too many":      answerOf(outcomeGo, "\xc8"),
		"of a strange field": changes(50, `1`),
		"of a field twice":   changes(1, `1`, 1, `2`),
		"that ends early":    changes(0, `[]`)[:10],
		"that goes on":       append(changes(0, `[]`), 1),
		"with a huge value":  answerOf(outcomeGo, "\x01\x00\xff\xff\xff\xff"),
		"without JSON":       answerOf(outcomeReject, "{"),
		"with strange keys":  answerOf(outcomeReject, `{"what":1}`),
		"with two values":    answerOf(outcomeReject, `{}{}`),
	} {
		var p *protocolError
		if a, err := parseHookAnswer(request, b); !errors.As(err, &p) {
			t.Errorf("an answer %s gives %+v, %v", name, a, err)
		}
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add(appendFrame(nil, frameBegun, 1, nil))
	f.Add(appendFrame(nil, frameReady, 0, func(b []byte) []byte { return append(b, `{"hooks":[]}`...) }))
	f.Add(append(binary.BigEndian.AppendUint32(nil, maxFrameIn), "A\x00\x00\x00\x01abc"...))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bufio.NewReader(bytes.NewReader(b))
		for {
			got, err := readFrame(r)
			if err != nil {
				var p *protocolError
				if err != io.EOF && !errors.As(err, &p) {
					t.Fatalf("a strange error: %v", err)
				}
				return
			}
			again := appendFrame(nil, got.kind, got.id, func(b []byte) []byte { return append(b, got.body...) })
			if !bytes.Contains(b, again) {
				t.Fatalf("read what was not there: %q", again)
			}
		}
	})
}

func FuzzHookAnswer(f *testing.F) {
	f.Add(changes(0, `[]`, 1, `{}`))
	f.Add(answerOf(outcomeReject, `{"text":"no","file":"hooks.py","line":3}`))
	f.Add(answerOf(outcomeFailed, `{"text":"boom","kind":"crash","traceback":"a"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := parseHookAnswer(request, b)
		if err != nil {
			return
		}
		if a.Failure == nil && a.Verdict.Kind == hook.Hold {
			t.Fatal("a Python hook cannot hold")
		}
		if a.Took < 0 {
			t.Fatalf("it took %v", a.Took)
		}
		total := 0
		for _, c := range a.Verdict.Changes {
			if c.Field < 0 || c.Field >= len(request.Fields) {
				t.Fatalf("field %d", c.Field)
			}
			total += len(c.Value)
		}
		if total > len(b) {
			t.Fatal("more came out than went in")
		}
	})
}

func FuzzToolAnswer(f *testing.F) {
	f.Add([]byte(ran3ms + `{"outcome":"ok","value":{"a":1},"writes":[{"name":"x","value":2}]}`))
	f.Add([]byte(ran3ms + `{"outcome":"error","text":"a","type":"ValueError","file":"t.py","line":1,"traceback":"","message":"m"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := parseToolAnswer(b)
		if err == nil && a.Outcome == OK && !json.Valid(a.Value) && a.Value != nil {
			t.Fatalf("value is %q", a.Value)
		}
		if err == nil && (a.Outcome == OK) != (a.Failure == nil) {
			t.Fatalf("answer is %+v", a)
		}
	})
}

func FuzzReady(f *testing.F) {
	f.Add([]byte(`{"python":"3.12.1","hooks":[{"name":"h","point":"tool_call","lane":"modify","timeout_ms":5}],"tools":[{"name":"t"}],"findings":[]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var r readyReport
		if strict(b, &r) == nil {
			if c, err := newCatalogue(&r); err == nil && (len(c.hooks) != len(r.Hooks) || len(c.tools) != len(r.Tools)) {
				t.Fatal("the catalogue is not complete")
			}
		}
	})
}

func FuzzOutput(f *testing.F) {
	f.Add([]byte("one\ntwo\r\n\xff\n" + strings.Repeat("x", maxLine+5)))
	f.Fuzz(func(t *testing.T, b []byte) {
		log := newLogbook()
		o := newOutput(quiet(log), fixedClock, func(int64) {})
		o.copyFrom(bytes.NewReader(b))
		if len(o.last) > 4*maxLine {
			t.Fatalf("a line of %d bytes", len(o.last))
		}
	})
}

func TestWhatToolsSayAndSet(t *testing.T) {
	tool := func() *call { return &call{toolDone: func(ToolAnswer) {}, begun: time.Now()} }
	waits, over := tool(), tool()
	waits.begun = time.Time{}
	over.over = true
	for name, c := range map[string]*call{"a hook": {begun: time.Now()}, "one that has not begun": waits} {
		var p *protocolError
		if err := c.say([]byte("x")); !errors.As(err, &p) {
			t.Errorf("a text of %s gives %v", name, err)
		}
		if err := c.wrote([]byte(`{"name":"a.b","value":1}`)); !errors.As(err, &p) {
			t.Errorf("a value of %s gives %v", name, err)
		}
	}
	if err := over.say([]byte("x")); err != nil || len(over.said) > 0 {
		t.Errorf("a text that came late gives %q, %v", over.said, err)
	}
	c := tool()
	for range maxSaid {
		if err := c.say([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.say([]byte("x")); err == nil || len(c.said) != maxSaid {
		t.Errorf("%d texts, %v", len(c.said), err)
	}
	for _, body := range []string{`{"name":"a.b","value":1}`, `{"name":"a.c","value":2}`, `{"name":"a.b","value":null}`} {
		if err := c.wrote([]byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	if len(c.writes) != 2 || c.writes[0].Name != "a.b" || string(c.writes[0].Value) != "null" {
		t.Errorf("writes are %+v", c.writes)
	}
	for _, body := range []string{"", "[]", `{"name":1}`, `{"name":"a","value":1}x`} {
		if err := c.wrote([]byte(body)); err == nil {
			t.Errorf("%q is taken for a value", body)
		}
	}
}
