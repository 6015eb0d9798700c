package convtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/belay-run/belay/internal/conversation"
)

// ReadExport reads a conversation that was exported: one object with its events, or
// an event a line.
func ReadExport(path string) (sender string, events []conversation.Event, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", nil, fmt.Errorf("read the export: %w", err)
	}
	var whole struct {
		Sender string                  `json:"sender_id"`
		Events []conversation.Exported `json:"events"`
	}
	if json.Unmarshal(data, &whole) == nil && whole.Events != nil {
		return whole.Sender, imported(whole.Events), nil
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	for {
		var e conversation.Exported
		err := dec.Decode(&e)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || e.Event == "" {
			return "", nil, fmt.Errorf("%s is no conversation as belay conversation export writes it: %w", path, cmpErr(err))
		}
		whole.Events = append(whole.Events, e)
	}
	return "", imported(whole.Events), nil
}

func cmpErr(err error) error {
	if err == nil {
		return errors.New("an entry is no event")
	}
	return err
}

// imported gives the events of an export as the record has them. Where the export
// names no turns, one begins with each message of the user's.
func imported(all []conversation.Exported) []conversation.Event {
	out := make([]conversation.Event, len(all))
	turn, said := 1, false
	for i := range all {
		e := importOne(&all[i])
		if e.Kind == conversation.User && e.Turn == "" {
			if said {
				turn++
			}
			said = true
		}
		if e.Turn == "" {
			e.Turn = fmt.Sprint("turn-", turn)
		}
		out[i] = e
	}
	return out
}

func importOne(x *conversation.Exported) conversation.Event {
	meta := func(key string) string {
		s, _ := x.Metadata[key].(string)
		return s
	}
	e := conversation.Event{Kind: conversation.Kind(x.Event), Turn: meta("turn_id"), At: time.Unix(0, int64(x.Timestamp*float64(time.Second))),
		Source: meta("mantle_response_source"), Response: meta("utter_action"), Note: meta("note"), Extra: x.Data, Discarded: x.Discarded,
		Batch: x.Calls, Confirmed: x.Confirmed, Status: x.Status, Skill: x.Skill, Block: x.Block, Step: x.Step}
	if x.Text != nil {
		e.Text = *x.Text
	}
	if x.Label != "" {
		e.Note = x.Label
	}
	if x.Key != "" {
		e.Memory = &conversation.Memory{Name: x.Key, Value: x.Value, By: meta("by")}
	}
	if x.Name == "" {
		e.BatchID = meta("tool_batch_id")
		return e
	}
	e.Tool = &conversation.ToolRun{Name: x.Name, Arguments: x.Arguments, IsError: x.IsError, CallID: meta("tool_call_id"), BatchID: meta("tool_batch_id"),
		Source: meta("source"), Skill: meta("skill_id"), Step: meta("step_id")}
	if len(e.Tool.Arguments) == 0 {
		e.Tool.Arguments = json.RawMessage(`{}`)
	}
	if x.Result != nil {
		e.Tool.Result = *x.Result
	}
	return e
}
