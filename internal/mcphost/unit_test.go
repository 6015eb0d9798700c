package mcphost

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

func TestConfig(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	for word, c := range map[string]Config{
		"no id":            {Command: []string{"x"}, Logger: log},
		"no logger":        {ID: "a", Command: []string{"x"}},
		"neither":          {ID: "a", Logger: log},
		"a command and a":  {ID: "a", Command: []string{"x"}, URL: "http://x", Logger: log},
		"program is empty": {ID: "a", Command: []string{""}, Logger: log},
		"headers":          {ID: "a", Command: []string{"x"}, Headers: map[string]string{"a": "b"}, Logger: log},
		"no http":          {ID: "a", URL: "file:///etc/passwd", Logger: log},
	} {
		if s, err := Open(c); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%+v: %v, %v", c, s, err)
		}
	}
}

func TestBackoff(t *testing.T) {
	half := Backoff(func() float64 { return 0.5 })
	var got []time.Duration
	for n := range 9 {
		got = append(got, half(n))
	}
	ms := time.Millisecond
	want := []time.Duration{0, 0, 187500 * time.Microsecond, 375 * ms, 750 * ms, 1500 * ms, 3000 * ms, 3750 * ms, 3750 * ms}
	if !slices.Equal(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
	if d := Backoff(func() float64 { return 0 })(1000000); d != mostRest {
		t.Errorf("after a million failures: %s", d)
	}
}

func TestCleanEnv(t *testing.T) {
	host := map[string]string{"PATH": "/bin", "HOME": "/home", "SECRET": "x", "LANG": "C"}
	lookup := func(name string) (string, bool) { v, ok := host[name]; return v, ok }
	got := cleanEnv(map[string]string{"HOME": "/elsewhere", "TOKEN": "t"}, lookup)
	slices.Sort(got)
	if want := []string{"HOME=/elsewhere", "LANG=C", "PATH=/bin", "TOKEN=t"}; !slices.Equal(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
}

func TestPrinted(t *testing.T) {
	var log bytes.Buffer
	now := time.Unix(1000, 0)
	p := newPrinted(slog.New(slog.NewTextHandler(&log, nil)), func() time.Time { return now },
		map[string]string{"TOKEN": "very-secret", "DEBUG": "true"})
	p.copyStderr(strings.NewReader("first\r\n\n true very-secret \xff\n" + strings.Repeat("x", maxLine+10) + "\nno end"))
	for _, want := range []string{"line=first\n", `line=" true *** ` + "\uFFFD" + `"`, "cut_bytes=10", `line="no end"`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, log.String())
		}
	}
	p.line(fromStdout, []byte(`{"token":"bk-I9Aaxot3M3wIjZ4CqspOY1HNzyo2UyO44LeKfU54XJU"}`), 0)
	if !strings.Contains(log.String(), `{\"token\":\"***\"}`) {
		t.Errorf("a key for models stands in the log:\n%s", log.String())
	}
	if p.lastWords() != "no end" {
		t.Errorf("last words %q", p.lastWords())
	}
	log.Reset()
	for n := range 2000 {
		p.line(fromStdout, fmt.Appendf(nil, "line %d", n), 0)
	}
	if n := strings.Count(log.String(), "mcp server printed\""); n != lineBurst-5 {
		t.Errorf("%d lines at once", n)
	}
	now = now.Add(time.Second)
	p.line(fromStdout, []byte("later"), 0)
	if !strings.Contains(log.String(), "suppressed_lines=") || !strings.Contains(log.String(), "line=later") {
		t.Errorf("nothing tells of the suppressed lines:\n%s", log.String()[:500])
	}
}

func TestLines(t *testing.T) {
	read := func(text string, limit int) (got []string, err error) {
		l := newLineReader(strings.NewReader(text), limit)
		for {
			line, err := l.next()
			if err != nil {
				return got, err
			}
			got = append(got, string(line))
		}
	}
	long := strings.Repeat("y", 200<<10)
	got, err := read("a\n\nb\r\n"+long+"\nno end", 1<<20)
	if err != io.EOF || !slices.Equal(got, []string{"a", "", "b\r", long, "no end"}) {
		t.Errorf("%d lines, %v", len(got), err)
	}
	if got, err := read("12345\n123456\n", 5); err != errFlood || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := read(long, 100<<10); err != errFlood {
		t.Errorf("a line without end: %v", err)
	}
}

// FuzzLines checks that the filter gives exactly the messages of whatever a server
// prints, however it comes in, and never fails but for a line that is too long.
func FuzzLines(f *testing.F) {
	const answer = `{"jsonrpc":"2.0","id":1,"result":{}}`
	for _, s := range []string{
		answer, answer + "\n" + answer + "\r\n", "banner\n" + answer, answer + answer, "[" + answer + "," + answer + "]\n",
		`{"level":"info"}`, `[]`, "[1]", "null\n", "\xEF\xBB\xBF" + answer, answer[:20] + "\n" + answer, strings.Repeat("[", 3000),
		`{"jsonrpc":"2.0","method":"notifications/message"}`, `{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":""}}`,
		strings.Repeat("x", 5000) + "\n" + answer, `{"jsonrpc":"2.0","id":{},"result":1}`,
	} {
		f.Add([]byte(s), uint16(7))
	}
	f.Fuzz(func(t *testing.T, data []byte, piece uint16) {
		const limit = 4096
		l := newLineReader(&inPieces{data, int(piece)%5000 + 1}, limit)
		for _, want := range bytes.Split(data, []byte("\n")) {
			line, err := l.next()
			if len(bytes.TrimRight(want, "\r")) > limit {
				if err != errFlood {
					t.Fatalf("a line of %d bytes: %v", len(want), err)
				}
				return
			}
			if err == io.EOF && len(want) == 0 {
				return
			}
			if err != nil || !bytes.Equal(line, want) {
				t.Fatalf("line %q, %v, not %q", line, err, want)
			}
			all, ok := parseLine(line)
			if !ok {
				continue
			}
			for _, m := range all {
				if _, err := jsonrpc.EncodeMessage(m); err != nil {
					t.Fatalf("%q gave a message that cannot be written: %v", line, err)
				}
			}
		}
		if line, err := l.next(); err != io.EOF {
			t.Fatalf("after the end: %q, %v", line, err)
		}
	})
}

type inPieces struct {
	data []byte
	n    int
}

func (r *inPieces) Read(b []byte) (int, error) {
	if len(r.data) == 0 {
		return 0, io.EOF
	}
	n := copy(b, r.data[:min(r.n, len(r.data))])
	r.data = r.data[n:]
	return n, nil
}

// FuzzResult checks that no result of a server's makes an answer that cannot be used.
func FuzzResult(f *testing.F) {
	for _, s := range []string{
		`{"content":[{"type":"text","text":"{\"decision\":\"allow\"}"}]}`, `{"structuredContent":{"result":{}},"content":[{}]}`,
		`{"content":null}`, `{"content":[null,1,"x",[]]}`, `{}`, `null`, `[]`, ``, `{"structuredContent":null,"isError":true}`,
		`{"content":[{"type":"text"}]}`, `{"content":[{"type":"resource","resource":null}]}`, `{"content":{}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		a := readResult(raw, shortened)
		if (a.Outcome == OK) == (a.Failure != "") {
			t.Fatalf("outcome %s with failure %q", a.Outcome, a.Failure)
		}
		if o, err := a.Object(); err == nil && (len(o) == 0 || o[0] != '{') {
			t.Fatalf("the object is %q", o)
		}
	})
}
