package gateway

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

type said struct{ name, data string }

// split feeds a stream in pieces and gives what its events say. All bytes must come
// out again.
func split(t *testing.T, most int, pieces ...string) (out []said) {
	t.Helper()
	s := splitter{most: most}
	var raw bytes.Buffer
	give := func(e event) {
		raw.Write(e.raw)
		if e.data != nil {
			out = append(out, said{string(e.name), string(e.data)})
		}
	}
	for _, p := range pieces {
		b := []byte(p)
		s.feed(b, give)
		clear(b) // the reader uses its buffer again
	}
	s.close(give)
	if whole := strings.Join(pieces, ""); raw.String() != whole {
		t.Fatalf("of %q came %q", whole, raw.String())
	}
	return out
}

func TestEvents(t *testing.T) {
	for name, tt := range map[string]struct {
		stream string
		want   []said
	}{
		"lines end with LF":        {"data: a\n\ndata: b\n\n", []said{{"", "a"}, {"", "b"}}},
		"with CRLF":                {"event: x\r\ndata: a\r\n\r\ndata: b\r\n\r\n", []said{{"x", "a"}, {"", "b"}}},
		"with CR":                  {"event: x\rdata: a\r\rdata: b\r\r", []said{{"x", "a"}, {"", "b"}}},
		"with each in turn":        {"event: x\rdata: a\r\n\ndata: b\n\rdata: c\r\n\r\n", []said{{"x", "a"}, {"", "b"}, {"", "c"}}},
		"several lines of data":    {"data: a\ndata: b\ndata\ndata:c\n\n", []said{{"", "a\nb\n\nc"}}},
		"comments and others":      {": ping\n\n:\nid: 7\nretry: 1\ndata: a\nwords\n\n", []said{{"", "a"}}},
		"one blank is left out":    {"data:  a \n\ndata:b\n\n", []said{{"", " a "}, {"", "b"}}},
		"blank lines before":       {"\n\n\r\n\rdata: a\n\n", []said{{"", "a"}}},
		"no end":                   {"data: a\n\ndata: b", []said{{"", "a"}, {"", "b"}}},
		"no blank line at the end": {"data: a\n\ndata: b\r", []said{{"", "a"}, {"", "b"}}},
		"a byte order mark":        {"\xEF\xBB\xBFdata: a\n\ndata: b\n\n", []said{{"", "a"}, {"", "b"}}},
		"nothing":                  {"", nil},
		"an event without data":    {"event: ping\n\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := split(t, maxEvent, tt.stream); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("whole: %q", got)
			}
			for i := range len(tt.stream) { // cut at each byte, and at each two
				if got := split(t, maxEvent, tt.stream[:i], tt.stream[i:]); !reflect.DeepEqual(got, tt.want) {
					t.Errorf("cut at %d: %q", i, got)
				}
				for j := i; j < len(tt.stream); j++ {
					if got := split(t, maxEvent, tt.stream[:i], tt.stream[i:j], tt.stream[j:]); !reflect.DeepEqual(got, tt.want) {
						t.Errorf("cut at %d and %d: %q", i, j, got)
					}
				}
			}
			if got := split(t, maxEvent, strings.Split(tt.stream, "")...); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("byte by byte: %q", got)
			}
		})
	}
}

// An event that is too long is given in pieces without data, wherever it is cut, and
// what comes after it is read again.
func TestLongEvents(t *testing.T) {
	for _, end := range []string{"\n", "\r\n", "\r"} {
		stream := "data: a" + end + end + "data: " + strings.Repeat("x", 40) + end + "data: y" + end + end + "data: b" + end + end
		for i := range len(stream) {
			got := split(t, 20, stream[:i], stream[i:])
			for at, want := range map[int]string{0: "a", len(got) - 1: "b"} {
				if len(got) < 2 || got[at].data != want {
					t.Fatalf("%q cut at %d: %q", end, i, got)
				}
			}
		}
		for _, size := range []int{1, 2, 3, 7} {
			var pieces []string
			for rest := stream; rest != ""; rest = rest[min(size, len(rest)):] {
				pieces = append(pieces, rest[:min(size, len(rest))])
			}
			if got := split(t, 20, pieces...); !reflect.DeepEqual(got, []said{{"", "a"}, {"", "b"}}) {
				t.Errorf("%q in pieces of %d: %q", end, size, got)
			}
		}
	}
}

func TestMemoryOfEventsIsBounded(t *testing.T) {
	s := splitter{most: 1000}
	piece := bytes.Repeat([]byte("x"), 100)
	for range 1000 {
		s.feed(piece, func(event) {})
	}
	if cap(s.buf) > 4000 {
		t.Errorf("%d bytes are held", cap(s.buf))
	}
}

// Before lines were looked for near their beginning, this took minutes.
func TestManyLinesTakeNoLongerEach(t *testing.T) {
	for _, end := range []string{"\r", "\n", "\r\n"} {
		line := "data:a" + end
		n := 3 << 20 / len(line)
		got := split(t, maxEvent, strings.Repeat(line, n), end, line)
		if len(got) != 2 || len(got[0].data) != 2*n-1 {
			t.Errorf("%q: %d events", end, len(got))
		}
	}
}

func TestEventsTakeNoAllocation(t *testing.T) {
	piece := []byte(strings.Repeat("event: content_block_delta\ndata: {\"type\":\"content_block_delta\"}\n\n", 20))
	s := splitter{most: maxEvent}
	give := func(event) {}
	s.feed(piece, give)
	if n := testing.AllocsPerRun(100, func() { s.feed(piece, give) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzEvents(f *testing.F) {
	f.Add("event: a\r\ndata: b\r\n\r\ndata: c\ndata: d\n\n: x\r\r", uint8(3), uint8(20))
	f.Add("\xEF\xBB\xBFdata\n\n\n", uint8(1), uint8(0))
	f.Fuzz(func(t *testing.T, stream string, size, most uint8) {
		want := split(t, maxEvent, stream)
		var pieces []string
		for rest := stream; rest != ""; rest = rest[min(int(size)+1, len(rest)):] {
			pieces = append(pieces, rest[:min(int(size)+1, len(rest))])
		}
		if got := split(t, maxEvent, pieces...); !reflect.DeepEqual(got, want) {
			t.Fatalf("whole %q, in pieces of %d %q", want, size+1, got)
		}
		split(t, int(most), pieces...)
		m := meter{api: OpenAI}
		n := meter{api: Anthropic}
		s := splitter{most: maxEvent}
		s.feed([]byte(stream), func(e event) { m.event(e); n.event(e) })
		for _, m := range []meter{m, n} {
			if u, _ := m.total(nil); u.Input < 0 || u.Output < 0 || u.Cached < 0 || u.CacheWritten < 0 || u.Reasoning < 0 || u.Cached+u.CacheWritten > u.Input || u.Reasoning > u.Output {
				t.Fatalf("%+v", u)
			}
		}
	})
}

func ExampleKey() {
	k := Key{Token: "bk-secret", URL: "http://127.0.0.1:1"}
	fmt.Printf("%v %+v %#v %s\n", k, k, k, k)
	// Output: [key for http://127.0.0.1:1] [key for http://127.0.0.1:1] [key for http://127.0.0.1:1] [key for http://127.0.0.1:1]
}
