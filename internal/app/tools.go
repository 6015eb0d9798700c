package app

import (
	"context"
	"fmt"

	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/pyhost"
	"github.com/belay-run/belay/internal/rawjson"
	"github.com/belay-run/belay/internal/turn"
)

// tools runs the Python tools of a folder for turns.
type tools struct {
	host *pyhost.Host
	list []turn.Tool
}

func newTools(h *pyhost.Host) *tools {
	t := &tools{host: h}
	for _, info := range h.Tools() {
		t.list = append(t.list, turn.Tool{
			Tool:    chat.Tool{Name: info.Name, Description: info.Description, Parameters: info.Parameters},
			Confirm: info.RequiresConfirmation, Question: info.UtterForConfirmation, Denial: info.UtterOnUserDenial, OnSuccess: info.OnSuccess,
			Timeout: info.Timeout,
		})
	}
	return t
}

func (t *tools) List() []turn.Tool { return t.list }

var outcomes = map[pyhost.Outcome]turn.ToolOutcome{
	pyhost.OK: turn.ToolOK, pyhost.Errored: turn.ToolError, pyhost.TimedOut: turn.ToolTimeout, pyhost.Unknown: turn.ToolUnknown, pyhost.NotRun: turn.ToolUnavailable,
}

// Run runs a tool. What the model reads of a failure names its kind, never the
// text of an exception.
func (t *tools) Run(ctx context.Context, c turn.ToolCall) turn.ToolAnswer {
	a := t.host.CallTool(ctx, pyhost.ToolCall{Tool: c.Tool, Arguments: c.Arguments, SenderID: c.Sender, TurnID: c.Turn, Channel: c.Channel, Call: c.Call,
		Key: c.Sender, Limit: c.Timeout})
	out := turn.ToolAnswer{Outcome: outcomes[a.Outcome], Text: a.Text, Took: a.Took}
	switch {
	case a.Outcome == pyhost.OK:
		out.Text = rawjson.Written(a.Value)
	case out.Text == "":
		out.Text = fmt.Sprintf("Error: %s failed.", c.Tool)
	}
	return out
}
