package model

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/rawjson"
)

// reserved are the keys of a request that no setting may change: they decide
// what is asked and how the answer is read.
var reserved = map[string]bool{
	"model": true, "messages": true, "tools": true, "stream": true, "n": true,
	"functions": true, "function_call": true,
}

// aboutTools are settings that providers refuse in a request without tools.
var aboutTools = map[string]bool{"tool_choice": true, "parallel_tool_calls": true}

type function struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters"`
}

type offer struct {
	Type     string   `json:"type"`
	Function function `json:"function"`
}

// body writes a request. The JSON encoder would squeeze and escape raw messages,
// so the object is put together by hand.
func (c *Client) body(req chat.Request, stream bool) ([]byte, error) {
	var b bytes.Buffer
	b.Grow(len(req.Messages) + 1024)
	b.WriteString(`{"model":`)
	b.Write(rawjson.Must(c.cfg.Model))
	b.WriteString(`,"messages":`)
	if len(req.Messages) == 0 {
		b.WriteString(`[]`)
	}
	b.Write(req.Messages)
	if len(req.Tools) > 0 {
		tools, err := rawjson.Encode(offers(req.Tools))
		if err != nil {
			return nil, err
		}
		b.WriteString(`,"tools":`)
		b.Write(tools)
	}
	settings := c.settings(req, stream)
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		b.WriteByte(',')
		b.Write(rawjson.Must(key))
		b.WriteByte(':')
		b.Write(settings[key])
	}
	if stream {
		b.WriteString(`,"stream":true`)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

func offers(tools []chat.Tool) []offer {
	out := make([]offer, len(tools))
	for i, t := range tools {
		if len(t.Parameters) == 0 {
			t.Parameters = json.RawMessage(`{"type":"object","properties":{}}`)
		}
		out[i] = offer{"function", function(t)}
	}
	return out
}

// settings joins the configured keys and the request's; the request's win.
func (c *Client) settings(req chat.Request, stream bool) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	if stream {
		out["stream_options"] = json.RawMessage(`{"include_usage":true}`)
	}
	maps.Copy(out, c.cfg.Extra)
	for key, value := range req.Settings {
		if reserved[key] {
			c.cfg.Logger.Warn("a request setting was left out: it may not be changed", "model", c.name, "setting", key)
			continue
		}
		out[key] = value
	}
	maps.DeleteFunc(out, func(key string, value json.RawMessage) bool {
		switch {
		case len(value) == 0 || string(value) == "null":
			return true
		case key == "stream_options":
			return !stream
		}
		return len(req.Tools) == 0 && aboutTools[key]
	})
	return out
}
