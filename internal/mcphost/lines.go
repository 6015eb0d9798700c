package mcphost

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// errFlood ends a server, or a call over HTTP, that sends more than it may.
var errFlood = errors.New("the answer is too long")

// lineReader gives the lines of a server's standard output.
type lineReader struct {
	r    *bufio.Reader
	max  int // bytes of a line
	long []byte
}

func newLineReader(r io.Reader, limit int) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, 64<<10), max: limit}
}

// next gives the next line without its end; it is good until the call after. A
// last line that has no end counts too. A line of more than the limit is
// [errFlood]: who knows whether it ever ends.
func (l *lineReader) next() ([]byte, error) {
	l.long = l.long[:0]
	for {
		part, err := l.r.ReadSlice('\n')
		whole := err == nil
		if !whole && !errors.Is(err, bufio.ErrBufferFull) && len(part)+len(l.long) == 0 {
			return nil, err
		}
		if len(bytes.TrimRight(part, "\r\n"))+len(l.long) > l.max {
			return nil, errFlood
		}
		if len(l.long) == 0 && (whole || !errors.Is(err, bufio.ErrBufferFull)) {
			return bytes.TrimSuffix(part, []byte("\n")), nil
		}
		l.long = append(l.long, part...)
		if whole || !errors.Is(err, bufio.ErrBufferFull) {
			line := bytes.TrimSuffix(l.long, []byte("\n"))
			if cap(l.long) > 1<<20 {
				l.long = nil // one large answer must not be held for the server's life
			}
			return line, nil
		}
	}
}

// parseLine gives the messages of a line: one, or several when the server sends
// batches, as protocol 2025-03-26 allows. Anything else, such as a banner, a
// logger's JSON or half a message, is none.
func parseLine(line []byte) ([]jsonrpc.Message, bool) {
	line = bytes.TrimSpace(bytes.TrimPrefix(line, []byte("\xEF\xBB\xBF")))
	if len(line) == 0 || (line[0] != '{' && line[0] != '[') || !json.Valid(line) {
		return nil, false
	}
	if line[0] == '{' {
		m, err := jsonrpc.DecodeMessage(line)
		return []jsonrpc.Message{m}, err == nil
	}
	var batch []json.RawMessage
	if err := json.Unmarshal(line, &batch); err != nil || len(batch) == 0 {
		return nil, false
	}
	all := make([]jsonrpc.Message, 0, len(batch))
	for _, raw := range batch {
		m, err := jsonrpc.DecodeMessage(raw)
		if err != nil {
			return nil, false
		}
		all = append(all, m)
	}
	return all, true
}
