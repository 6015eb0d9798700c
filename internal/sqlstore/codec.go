package sqlstore

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/belay-run/belay/internal/conversation"
)

// An event's body is what stands in no column of its own: the length of a JSON
// object, the object, then the event's strands, each with its length plus one,
// 0 for nil. Strands are the texts and the raw JSON of the event. They are kept
// byte for byte: encoding/json would rewrite raw JSON (spaces, escapes) and
// texts that are not UTF-8, and a turn run again must see the bytes it saw.

// rest is an event without what stands in columns.
type rest struct {
	conversation.Event
	Seq  *struct{} `json:"seq,omitempty"`
	Kind *struct{} `json:"event,omitempty"`
	Turn *struct{} `json:"turn_id,omitempty"`
	At   *struct{} `json:"timestamp,omitempty"`
}

var errBody = errors.New("the body cannot be read")

// strand is a part of an event that is kept as it is.
type strand struct {
	text *string
	raw  *json.RawMessage
}

// strands lists an event's parts; the order is part of the format.
func strands(e *conversation.Event) []strand {
	all := []strand{{text: &e.Text}, {raw: &e.Extra}}
	if e.Tool != nil {
		all = append(all, strand{raw: &e.Tool.Arguments}, strand{text: &e.Tool.Result})
	}
	for i := range e.Batch {
		all = append(all, strand{raw: &e.Batch[i].Arguments}, strand{text: &e.Batch[i].Result})
	}
	if e.Memory != nil {
		all = append(all, strand{raw: &e.Memory.Value})
	}
	return all
}

// encodeEvent makes the body of an event, which it does not change.
func encodeEvent(e conversation.Event) ([]byte, error) {
	if e.Tool != nil {
		tool := *e.Tool
		e.Tool = &tool
	}
	if e.Memory != nil {
		memory := *e.Memory
		e.Memory = &memory
	}
	e.Batch = slices.Clone(e.Batch)

	var tail []byte
	for _, s := range strands(&e) {
		switch {
		case s.text != nil:
			tail = binary.AppendUvarint(tail, uint64(len(*s.text))+1)
			tail = append(tail, *s.text...)
			*s.text = ""
		case *s.raw == nil:
			tail = append(tail, 0)
		default:
			tail = binary.AppendUvarint(tail, uint64(len(*s.raw))+1)
			tail = append(tail, *s.raw...)
			*s.raw = nil
		}
	}
	head, err := json.Marshal(rest{Event: e})
	if err != nil {
		return nil, fmt.Errorf("encode event %d: %w", e.Seq, err)
	}
	body := make([]byte, 0, len(head)+len(tail)+binary.MaxVarintLen64)
	body = binary.AppendUvarint(body, uint64(len(head)))
	body = append(body, head...)
	return append(body, tail...), nil
}

// decodeEvent reads a body; the columns are the caller's to set.
func decodeEvent(body []byte) (conversation.Event, error) {
	n, used := binary.Uvarint(body)
	if used <= 0 || n > uint64(len(body)-used) {
		return conversation.Event{}, errBody
	}
	head, tail := body[used:used+int(n)], body[used+int(n):]
	var r rest
	if err := json.Unmarshal(head, &r); err != nil {
		return conversation.Event{}, fmt.Errorf("%w: %w", errBody, err)
	}
	e := r.Event
	for _, s := range strands(&e) {
		n, used := binary.Uvarint(tail)
		if used <= 0 || n > uint64(len(tail)-used)+1 {
			return conversation.Event{}, errBody
		}
		tail = tail[used:]
		if n == 0 {
			if s.raw != nil {
				*s.raw = nil
			}
			continue
		}
		if s.text != nil {
			*s.text = string(tail[:n-1])
		} else {
			*s.raw = slices.Clone(tail[:n-1])
		}
		tail = tail[n-1:]
	}
	if len(tail) > 0 {
		return conversation.Event{}, errBody
	}
	return e, nil
}

// nanos is how times are stored: nanoseconds since 1970, 0 for none.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func fromNanos(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}
