package mcphost

import (
	"bytes"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/belay-run/belay/internal/logline"
)

// What a server prints goes to the log, but one that prints megabytes must not
// drown it: a line is cut, and beyond the rate lines are counted, not logged.
const (
	maxLine   = logline.Most
	lineRate  = 100 // a second
	lineBurst = 500
	minMask   = 8 // shorter values are words like "true", not secrets
)

// printed copies a server's lines to the log.
type printed struct {
	log  *slog.Logger
	now  func() time.Time
	mask *strings.Replacer

	mu           sync.Mutex
	last         string // of standard error
	tokens       float64
	filled       time.Time
	dropped      int64 // lines
	droppedBytes int64
	told         time.Time
}

// newPrinted masks the given values, which may be secrets that the server was
// given, wherever a line has them.
func newPrinted(log *slog.Logger, now func() time.Time, values ...map[string]string) *printed {
	var pairs []string
	for _, m := range values {
		for _, v := range m {
			if len(v) >= minMask {
				pairs = append(pairs, v, "***")
			}
		}
	}
	return &printed{log: log, now: now, mask: strings.NewReplacer(pairs...), tokens: lineBurst, filled: now()}
}

// modelKey is a key for models, which comes with a call's metadata and is good while
// that runs. A line may be cut in the middle of one.
var modelKey = regexp.MustCompile(`bk-[A-Za-z0-9_-]{20,43}`)

// Where a line came from.
const (
	fromStderr = "stderr"
	fromStdout = "stdout"
	fromLog    = "log message"
)

// line logs one line, or counts it; cut is how many bytes it was longer.
func (p *printed) line(from string, line []byte, cut int64) {
	line = bytes.TrimRight(line, "\r\n")
	if more := len(line) - logline.Read; more > 0 {
		line, cut = line[:logline.Read], cut+int64(more)
	}
	if len(line) == 0 && cut == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.allow() {
		p.dropped++
		p.droppedBytes += int64(len(line)) + cut
		if p.now().Sub(p.told) >= time.Second {
			p.report()
		}
		return
	}
	p.report()
	text, cut := logline.Cut(p.log, modelKey.ReplaceAllString(p.mask.Replace(string(line)), "***"), cut)
	if from == fromStderr {
		p.last = text
	}
	if cut > 0 {
		p.log.Info("mcp server printed", "from", from, "line", text, "cut_bytes", cut)
		return
	}
	p.log.Info("mcp server printed", "from", from, "line", text)
}

// note logs what a server did, at the rate of its lines, and says whether it was
// logged.
func (p *printed) note(what string, args ...any) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.allow() {
		p.dropped++
		return false
	}
	p.report()
	p.log.Warn(what, args...)
	return true
}

func (p *printed) allow() bool {
	now := p.now()
	p.tokens = min(p.tokens+now.Sub(p.filled).Seconds()*lineRate, lineBurst)
	p.filled = now
	if p.tokens < 1 {
		return false
	}
	p.tokens--
	return true
}

func (p *printed) report() {
	if p.dropped == 0 {
		return
	}
	p.log.Warn("mcp server printed more than the log takes", "suppressed_lines", p.dropped, "suppressed_bytes", p.droppedBytes)
	p.dropped, p.droppedBytes, p.told = 0, 0, p.now()
}

// forget drops the last words, of a program that ran before.
func (p *printed) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = ""
}

// lastWords is the last line of standard error.
func (p *printed) lastWords() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// copyStderr logs what r gives until it ends.
func (p *printed) copyStderr(r io.Reader) {
	var line []byte
	var cut int64
	buf := make([]byte, 8<<10)
	for {
		n, err := r.Read(buf)
		for b := buf[:n]; len(b) > 0; {
			part, rest, whole := bytes.Cut(b, []byte("\n"))
			room := min(logline.Read-len(line), len(part))
			line = append(line, part[:room]...)
			cut += int64(len(part) - room)
			if whole {
				p.line(fromStderr, line, cut)
				line, cut = line[:0], 0
			}
			b = rest
		}
		if err != nil {
			break
		}
	}
	p.line(fromStderr, line, cut)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.report()
}
