package conversation

import (
	"encoding/json"
	"time"
)

// Exported is an event in the form of the export: flat, with the kinds and the
// metadata keys that tools around such records know.
type Exported struct {
	Event     string          `json:"event"`
	Timestamp float64         `json:"timestamp"` // seconds since 1970
	Text      *string         `json:"text,omitempty"`
	Name      string          `json:"name,omitempty"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Result    *string         `json:"result,omitempty"`
	IsError   bool            `json:"is_error,omitempty"`
	Status    string          `json:"status,omitempty"`
	Confirmed *bool           `json:"confirmed,omitempty"`
	Skill     string          `json:"skill_id,omitempty"`
	Block     string          `json:"block_id,omitempty"`
	Step      string          `json:"step_id,omitempty"`
	Key       string          `json:"key,omitempty"` // of a memory value
	Value     json.RawMessage `json:"value,omitempty"`
	Label     string          `json:"label,omitempty"` // of a request that no skill can help with
	Discarded *Discarded      `json:"discarded,omitempty"`
	Calls     []ToolRun       `json:"calls,omitempty"`
	Data      json.RawMessage `json:"data,omitempty"`
	Metadata  map[string]any  `json:"metadata,omitempty"`
}

// Export gives the events in the form of the export.
func Export(events []Event) []Exported {
	out := make([]Exported, 0, len(events))
	for i := range events {
		out = append(out, events[i].export())
	}
	return out
}

func (e *Event) export() Exported {
	x := Exported{Event: string(e.Kind), Timestamp: float64(e.At.UnixNano()) / float64(time.Second), Status: e.Status, Confirmed: e.Confirmed,
		Discarded: e.Discarded, Calls: e.Batch, Data: e.Extra, Metadata: map[string]any{"seq": e.Seq}}
	put := func(key, value string) {
		if value != "" {
			x.Metadata[key] = value
		}
	}
	put("turn_id", e.Turn)
	put("mantle_response_source", e.Source)
	put("utter_action", e.Response)
	if e.Kind != Bot {
		x.Skill, x.Block, x.Step = e.Skill, e.Block, e.Step
	}
	if m := e.Memory; m != nil {
		x.Key, x.Value = m.Name, m.Value
		put("by", m.By)
	}
	if e.Kind == Unsupported {
		x.Label = e.Note
	} else {
		put("note", e.Note)
	}
	put("tool_batch_id", e.BatchID)
	if e.Kind == User || e.Kind == Bot {
		x.Text = &e.Text
	}
	if t := e.Tool; t != nil {
		x.Name, x.IsError = t.Name, t.IsError
		if e.Kind == ToolExecuted { // a confirmation's arguments are those before the tool-result hooks
			x.Arguments, x.Result = t.Arguments, &t.Result
		}
		put("tool_call_id", t.CallID)
		put("tool_batch_id", t.BatchID)
		put("source", t.Source)
		put("skill_id", t.Skill)
		put("step_id", t.Step)
	}
	return x
}
