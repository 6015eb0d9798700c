package pyhost

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"github.com/belay-run/belay/hook"
)

// Outcomes of a hook in an answer frame.
const (
	outcomeReject = 0
	outcomeGo     = 1
	outcomeRetry  = 2
	outcomeFailed = 4
)

// report is what the worker says about a signal or a failure. Traceback has
// frames only; Text may hold the text of an exception.
type report struct {
	Text      string `json:"text"`
	Kind      string `json:"kind"`
	Type      string `json:"type"`
	File      string `json:"file"`
	Line      int    `json:"line"`
	Traceback string `json:"traceback"`
}

func (r *report) message() string {
	switch {
	case r.Type == "":
		return r.Text
	case r.Text == "":
		return r.Type
	}
	return r.Type + ": " + r.Text
}

func (r *report) failure() *hook.Failure {
	f := &hook.Failure{Kind: hook.Crash, Message: r.message(), File: r.File, Line: max(r.Line, 0), Traceback: r.Traceback}
	switch hook.FailureKind(r.Kind) {
	case hook.WrongReturn:
		f.Kind, f.Message = hook.WrongReturn, r.Text // the exception is the worker's own
	case hook.Cancelled:
		f.Kind = hook.Cancelled
	}
	return f
}

// parseHookAnswer reads the body of an answer frame of a hook at point. An error
// is a *protocolError: a worker never writes such a body. Whether the changes
// are allowed and have the right shape is for the engine to judge. Took is what
// the worker measured.
func parseHookAnswer(point *hook.Point, body []byte) (hook.Answer, error) {
	ran, body, err := parseRan(body)
	if err != nil {
		return hook.Answer{}, err
	}
	if len(body) == 0 {
		return hook.Answer{}, broken("an answer has no outcome")
	}
	a, err := parseOutcome(point, body[0], body[1:])
	a.Took = ran
	return a, err
}

// parseRan reads how long a call ran, with which every answer begins.
func parseRan(body []byte) (ran time.Duration, rest []byte, err error) {
	if len(body) < 4 {
		return 0, nil, broken("an answer ends inside the time that it took")
	}
	return time.Duration(binary.BigEndian.Uint32(body)) * time.Microsecond, body[4:], nil
}

func parseOutcome(point *hook.Point, outcome byte, rest []byte) (hook.Answer, error) {
	if outcome == outcomeGo {
		changes, err := parseChanges(point, rest)
		return hook.Answer{Verdict: hook.Go(changes...)}, err
	}
	var r report
	if err := strict(rest, &r); err != nil {
		return hook.Answer{}, broken("an answer's report cannot be read: %v", err)
	}
	switch outcome {
	case outcomeReject:
		return hook.Answer{Verdict: hook.RejectFor(r.Text), File: r.File, Line: r.Line}, nil
	case outcomeRetry:
		return hook.Answer{Verdict: hook.RetryWith(r.Text), File: r.File, Line: r.Line}, nil
	case outcomeFailed:
		return hook.Answer{Failure: r.failure()}, nil
	}
	return hook.Answer{}, broken("an answer has the unknown outcome %d", outcome)
}

func parseChanges(point *hook.Point, b []byte) ([]hook.Change, error) {
	if len(b) == 0 {
		return nil, broken("an answer ends before its changes")
	}
	count, b := int(b[0]), b[1:]
	if count > len(point.Fields) {
		return nil, broken("an answer at %s changes %d fields", point.Name, count)
	}
	var changes []hook.Change
	seen := uint64(0)
	for range count {
		if len(b) < 5 {
			return nil, broken("an answer ends inside a change")
		}
		field, size := int(b[0]), int64(binary.BigEndian.Uint32(b[1:5]))
		b = b[5:]
		if field >= len(point.Fields) || seen&(1<<field) != 0 {
			return nil, broken("an answer at %s changes field %d, which it cannot", point.Name, field)
		}
		if size > int64(len(b)) {
			return nil, broken("an answer ends inside a value")
		}
		seen |= 1 << field
		changes = append(changes, hook.Change{Field: field, Value: json.RawMessage(b[:size:size])})
		b = b[size:]
	}
	if len(b) > 0 {
		return nil, broken("an answer has %d bytes too many", len(b))
	}
	return changes, nil
}

// toolReport is the body of a tool's answer.
type toolReport struct {
	Outcome   string          `json:"outcome"`
	Value     json.RawMessage `json:"value"`
	Text      string          `json:"text"`
	Reads     []string        `json:"reads"`
	Type      string          `json:"type"`
	File      string          `json:"file"`
	Line      int             `json:"line"`
	Traceback string          `json:"traceback"`
	Message   string          `json:"message"`
}

// parseToolAnswer reads the body of an answer frame of a tool. Took is what the
// worker measured.
func parseToolAnswer(body []byte) (ToolAnswer, error) {
	ran, body, err := parseRan(body)
	if err != nil {
		return ToolAnswer{}, err
	}
	var r toolReport
	if err := strict(body, &r); err != nil {
		return ToolAnswer{}, broken("a tool's answer cannot be read: %v", err)
	}
	a := ToolAnswer{Value: r.Value, Text: r.Text, Reads: r.Reads, Took: ran}
	switch Outcome(r.Outcome) {
	case OK:
		a.Outcome = OK
		return a, nil
	case Errored:
		a.Outcome = Errored
		rep := report{Text: r.Message, Type: r.Type, File: r.File, Line: r.Line, Traceback: r.Traceback}
		a.Failure, a.Raised = rep.failure(), r.Type
		return a, nil
	}
	return ToolAnswer{}, broken("a tool's answer has the unknown outcome %q", r.Outcome)
}

// strict unmarshals one JSON value with nothing unknown in it and nothing after
// it.
func strict(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if d.InputOffset() != int64(len(bytes.TrimRight(b, " \t\r\n"))) {
		return fmt.Errorf("something follows the JSON value")
	}
	return nil
}
