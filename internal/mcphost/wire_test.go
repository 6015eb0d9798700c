package mcphost

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "write what was seen into the wire cases")

// pipes is a server that the test plays.
type pipes struct {
	conn *stdioConn
	all  []*os.File
}

func (l *pipes) transport() mcp.Transport { return l.conn }
func (l *pipes) connected()               { l.conn.connected() }
func (l *pipes) forget(p *pending)        { l.conn.forget(p) }
func (l *pipes) pid() int                 { return 1 }
func (l *pipes) hangs() bool              { return false }
func (l *pipes) end(why string)           { l.conn.end(why) }
func (l *pipes) abort()                   { _ = l.conn.Close() }
func (l *pipes) reason(error) string      { return "the case is over" }

func (l *pipes) stop(<-chan struct{}) {
	_ = l.conn.Close()
	for _, f := range l.all {
		_ = f.Close()
	}
	l.conn.writer.Wait()
}

// TestWire plays the cases of testdata/wire. In their section "wire" a line after
// "<" is what the server writes, one after ">" what it must read.
func TestWire(t *testing.T) {
	cases, err := filepath.Glob("testdata/wire/*.txtar")
	if err != nil || len(cases) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range cases {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			sections := map[string]*txtar.File{}
			for i := range a.Files {
				sections[a.Files[i].Name] = &a.Files[i]
			}
			wire, answer := play(t, sections["call"].Data, sections["wire"].Data)
			if *update {
				sections["wire"].Data, sections["answer"].Data = wire, answer
				if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if want := sections["wire"].Data; !bytes.Equal(wire, want) {
				t.Errorf("on the wire was\n%snot\n%s", wire, want)
			}
			if want := sections["answer"].Data; !bytes.Equal(answer, want) {
				t.Errorf("the answer was\n%snot\n%s", answer, want)
			}
		})
	}
}

func play(t *testing.T, call, wire []byte) (seen, answer []byte) {
	t.Helper()
	inR, inW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, func(c *Config) { c.Command, c.Version = []string{"none"}, "1" })
	r.dial = func() (link, error) {
		return &pipes{newStdioConn(outR, inW, r.cfg.MaxMessage, r.tell()), []*os.File{inR, inW, outR, outW}}, nil
	}
	done := make(chan []byte, 1)
	go func() {
		var seen bytes.Buffer
		defer func() { done <- seen.Bytes() }()
		from := bufio.NewReader(inR)
		for line := range strings.Lines(string(wire)) {
			if text, ok := strings.CutPrefix(line, "< "); ok {
				seen.WriteString(line)
				_, _ = outW.WriteString(text)
				continue
			}
			got, err := from.ReadString('\n')
			if err != nil {
				return
			}
			seen.WriteString("> " + got)
		}
	}()
	var req CallRequest
	if err := json.Unmarshal(call, &req); err != nil {
		t.Fatal(err)
	}
	req.Timeout = patience
	a := r.Call(t.Context(), req)
	seen = <-done
	var b bytes.Buffer
	fmt.Fprintf(&b, "outcome: %s\nvalue: %s\ntext: %s\n", a.Outcome, a.Value, a.Text)
	if a.Wrapped {
		b.WriteString("wrapped\n")
	}
	if a.Failure != "" {
		fmt.Fprintf(&b, "failure: %s\n", a.Failure)
	}
	if o, err := a.Object(); err != nil {
		fmt.Fprintf(&b, "no object: %v\n", err)
	} else {
		fmt.Fprintf(&b, "object: %s\n", o)
	}
	return seen, b.Bytes()
}
