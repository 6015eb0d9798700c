package pyhost

import (
	"bytes"
	"io"
	"log/slog"
	"time"

	"github.com/belay-run/belay/internal/logline"
)

// Printed is the log's message for a line that Python printed, and PrintedLine the
// key of the line.
const (
	Printed     = "python printed"
	PrintedLine = "line"
)

// What workers print goes to the log, but a hook that prints megabytes must not
// drown it: a line is cut, and beyond the rate lines are counted, not logged.
const (
	maxLine   = logline.Most
	lineRate  = 100 // a second
	lineBurst = 500
)

// output copies what one worker prints to the log, line by line.
type output struct {
	log  *slog.Logger
	tell func(bytes int64) // about suppressed output
	now  func() time.Time

	line []byte
	last string // the last line; read once copyFrom has returned
	cut  int64  // bytes of the current line beyond what is read

	tokens    float64
	filled    time.Time
	dropped   int64
	droppedIn int64 // lines
	told      time.Time
}

func newOutput(log *slog.Logger, now func() time.Time, tell func(int64)) *output {
	t := now()
	return &output{log: log, tell: tell, now: now, tokens: lineBurst, filled: t}
}

// copyFrom logs what r gives until it ends, and returns after the last line.
func (o *output) copyFrom(r io.Reader) {
	buf := make([]byte, 16<<10)
	for {
		n, err := r.Read(buf)
		o.write(buf[:n])
		if err != nil {
			break
		}
	}
	if len(o.line) > 0 {
		o.end()
	}
	o.report()
}

func (o *output) write(b []byte) {
	for len(b) > 0 {
		i := bytes.IndexByte(b, '\n')
		part := b
		if i >= 0 {
			part = b[:i]
		}
		room := max(logline.Read-len(o.line), 0)
		o.line = append(o.line, part[:min(room, len(part))]...)
		o.cut += int64(max(len(part)-room, 0))
		if i < 0 {
			return
		}
		o.end()
		b = b[i+1:]
	}
}

// end logs or counts the current line.
func (o *output) end() {
	line, cut := bytes.TrimRight(o.line, "\r"), o.cut
	o.line, o.cut = o.line[:0], 0
	if !o.allow() {
		o.dropped += int64(len(line)) + cut + 1
		o.droppedIn++
		if o.now().Sub(o.told) >= time.Second {
			o.report()
		}
		return
	}
	if o.dropped > 0 {
		o.report()
	}
	if len(line) == 0 && cut == 0 {
		return
	}
	text, cut := logline.Cut(o.log, string(line), cut)
	o.last = text
	if cut > 0 {
		o.tell(cut)
		o.log.Info(Printed, PrintedLine, text, "cut_bytes", cut)
		return
	}
	o.log.Info(Printed, PrintedLine, text)
}

func (o *output) allow() bool {
	now := o.now()
	o.tokens = min(o.tokens+now.Sub(o.filled).Seconds()*lineRate, lineBurst)
	o.filled = now
	if o.tokens < 1 {
		return false
	}
	o.tokens--
	return true
}

// report says how much was not logged.
func (o *output) report() {
	if o.dropped == 0 {
		return
	}
	o.log.Warn("python printed more than the log takes", "suppressed_bytes", o.dropped, "suppressed_lines", o.droppedIn)
	o.tell(o.dropped)
	o.dropped, o.droppedIn, o.told = 0, 0, o.now()
}

func (o *output) lastLine() string { return o.last }
