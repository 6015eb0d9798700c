package loop

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/rawjson"
)

// Identity is on every payload of a turn.
type Identity struct {
	Sender  string
	Call    json.RawMessage // telephony or session data, {} when there is none
	Channel json.RawMessage // {name, metadata}
}

// Payload returns a payload of the point that carries the identity.
func (id Identity) Payload(point *hook.Point) hook.Payload {
	p := hook.NewPayload(point).Set("sender_id", id.Sender)
	if len(id.Call) > 0 {
		p = p.Set("call", id.Call)
	}
	if len(id.Channel) > 0 {
		p = p.Set("channel", id.Channel)
	}
	return p
}

var (
	pointRequest  = hook.PointNamed(hook.ModelRequest)
	pointResponse = hook.PointNamed(hook.ModelResponse)
	pointCall     = hook.PointNamed(hook.ToolCall)
	pointResult   = hook.PointNamed(hook.ToolResult)
)

// settings keeps what a hook may set for one model call. Every other key or
// value is left out; the rest stays. It names what it left out.
func settings(raw json.RawMessage) (map[string]json.RawMessage, []string) {
	var given map[string]json.RawMessage
	if err := json.Unmarshal(raw, &given); err != nil || len(given) == 0 {
		return nil, nil
	}
	out := map[string]json.RawMessage{}
	var left []string
	for _, key := range slices.Sorted(maps.Keys(given)) {
		if value := given[key]; settable(key, bytes.TrimSpace(value)) {
			out[key] = value
		} else {
			left = append(left, key)
		}
	}
	return out, left
}

func settable(key string, value []byte) bool {
	switch key {
	case "temperature", "top_p", "presence_penalty", "frequency_penalty":
		return hook.Finite(value)
	case "max_tokens", "seed":
		return hook.Finite(value) && !bytes.ContainsAny(value, ".eE")
	case "stop":
		var one string
		var many []*string
		if json.Unmarshal(value, &one) == nil && len(value) > 0 && value[0] == '"' {
			return true
		}
		if json.Unmarshal(value, &many) != nil || len(value) == 0 || value[0] != '[' {
			return false
		}
		for _, s := range many {
			if s == nil {
				return false
			}
		}
		return true
	}
	return false
}

// shown is a tool call as hooks see it at the model response.
type shown struct {
	ID   string          `json:"id,omitempty"`
	Name string          `json:"tool_name"`
	Args json.RawMessage `json:"tool_args"`
	Type string          `json:"type,omitempty"`
}

var noArguments = json.RawMessage(`{}`)

// show gives the calls as hooks see them. Arguments that are no object show as
// an empty one.
func show(calls []Call) json.RawMessage {
	out := make([]shown, len(calls))
	for i, c := range calls {
		out[i] = shown{ID: c.ID, Name: c.Name, Args: c.Arguments, Type: c.Type}
	}
	return rawjson.Must(out)
}

// Called gives the calls that a model made.
func Called(calls []chat.ToolCall) []Call {
	out := make([]Call, len(calls))
	for i, c := range calls {
		out[i] = Call{ID: c.ID, Type: c.Type, Name: c.Name, Arguments: c.Arguments}
		if !rawjson.IsObject(c.Arguments) {
			out[i].Arguments, out[i].Broken = noArguments, true
		}
	}
	return out
}

// reread gives the calls of a list that a hook returned. A call whose id was
// there keeps its type; new ones come without an id.
func reread(raw json.RawMessage, before []Call) ([]Call, error) {
	var given []shown
	if err := json.Unmarshal(raw, &given); err != nil {
		return nil, err
	}
	known := map[string]Call{}
	for _, c := range before {
		known[c.ID] = c
	}
	out := make([]Call, len(given))
	for i, g := range given {
		out[i] = Call{ID: g.ID, Type: g.Type, Name: g.Name, Arguments: g.Args}
		if old, ok := known[g.ID]; ok && g.ID != "" {
			out[i].Type = old.Type
			out[i].Broken = old.Broken && bytes.Equal(bytes.TrimSpace(g.Args), noArguments)
		}
	}
	return out, nil
}

// text gives the string of a field that holds text or null.
func text(raw json.RawMessage) *string {
	var s *string
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil
	}
	return s
}

func blank(s *string) bool { return s == nil || strings.TrimSpace(*s) == "" }
