package mcphost

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/belay-run/belay/internal/rawjson"
)

// Outcome says how a call ended.
type Outcome string

// The outcomes.
const (
	OK          Outcome = "ok"          // the function answered
	Error       Outcome = "error"       // the function or the server answered that it failed
	Timeout     Outcome = "timeout"     // the call went out and had no answer in its time
	Unknown     Outcome = "unknown"     // the call went out and the server was lost, or the caller left
	Unavailable Outcome = "unavailable" // the call never went out: the function did not run
)

// Answer is how a call ended.
type Answer struct {
	Outcome Outcome `json:"outcome"`

	// Value is what the function gave: the structured value, else the text (a JSON
	// string) when it gave one text, else the list of its content blocks. It is nil
	// when there was no answer.
	Value json.RawMessage `json:"value,omitempty"`

	// Wrapped says that Value is {"result": …} only because the server's SDK puts
	// what is no object into one.
	Wrapped bool `json:"wrapped,omitempty"`

	// Text is what a model reads; of a call without an answer it is Failure.
	Text string `json:"text"`

	Took    time.Duration `json:"took"`              // from the request to the answer, or to giving up
	Waited  time.Duration `json:"waited"`            // for the server, before the request
	Failure string        `json:"failure,omitempty"` // why the outcome is not [OK]
}

// Object returns the JSON object that the function answered. Servers give the same
// answer in three forms, depending on how the function is annotated: as structured
// value, as text that is JSON, and wrapped as {"result": …}. An object that has the
// key "result" of its own is not taken apart: what is in it may be anybody's words.
func (a Answer) Object() (json.RawMessage, error) {
	if a.Outcome != OK {
		return nil, errors.New(a.Failure)
	}
	raw := a.Value
	if a.Wrapped {
		raw, _ = onlyResult(raw)
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		raw = json.RawMessage(text)
	}
	if raw = bytes.TrimSpace(raw); rawjson.IsObject(raw) {
		return raw, nil
	}
	return nil, fmt.Errorf("the function answered %s, not an object", a.kind())
}

// onlyResult takes the value out of an object whose only key is "result".
func onlyResult(raw json.RawMessage) (json.RawMessage, bool) {
	var keys map[string]json.RawMessage
	if json.Unmarshal(raw, &keys) != nil || len(keys) != 1 {
		return nil, false
	}
	inner, ok := keys["result"]
	return inner, ok
}

// Given is what the function gave: Value without what the server's SDK has put
// around it.
func (a Answer) Given() json.RawMessage {
	if a.Wrapped {
		if inner, ok := onlyResult(a.Value); ok {
			return inner
		}
	}
	return a.Value
}

// kind says in words what was answered.
func (a Answer) kind() string {
	raw := bytes.TrimSpace(a.Value)
	if a.Wrapped {
		raw, _ = onlyResult(raw)
	}
	if len(raw) == 0 {
		return "nothing"
	}
	switch raw[0] {
	case '"':
		return "text that is no JSON object"
	case '[':
		return "a list"
	case 'n':
		return "null"
	case 't', 'f':
		return "true or false"
	}
	return "a number"
}

// callResult is the result of tools/call as it is on the wire.
type callResult struct {
	Content           []json.RawMessage `json:"content"`
	StructuredContent json.RawMessage   `json:"structuredContent"`
	IsError           bool              `json:"isError"`
	ResultType        string            `json:"resultType"`
}

// block is what a model can read of a content block.
type block struct {
	Type     string  `json:"type"`
	Text     *string `json:"text"`
	MimeType string  `json:"mimeType"`
	Data     string  `json:"data"`
	URI      string  `json:"uri"`
	Name     string  `json:"name"`
	Resource struct {
		URI      string  `json:"uri"`
		MimeType string  `json:"mimeType"`
		Text     *string `json:"text"`
	} `json:"resource"`
}

// readResult makes an answer of a result. short cuts a server's words.
func readResult(raw json.RawMessage, short func(string) string) Answer {
	var r callResult
	if err := json.Unmarshal(raw, &r); err != nil {
		return failed(Error, "the server's answer is no result of a call")
	}
	if r.ResultType == "input_required" {
		return failed(Error, "the function asks for more input, which cannot be given here")
	}
	texts := make([]string, 0, len(r.Content))
	var only *string
	for _, c := range r.Content {
		var b block
		if err := json.Unmarshal(c, &b); err != nil {
			texts = append(texts, rawjson.Written(c))
			continue
		}
		texts = append(texts, b.read(c))
		if len(r.Content) == 1 && b.Type == "text" {
			only = b.Text
		}
	}
	a := Answer{Outcome: OK, Text: strings.Join(texts, "\n")}
	structured := len(r.StructuredContent) > 0 && string(r.StructuredContent) != "null"
	switch {
	case structured:
		a.Value = r.StructuredContent
	case only != nil:
		a.Value = rawjson.Must(*only)
	default:
		a.Value = rawjson.List(r.Content)
	}
	if _, single := onlyResult(a.Value); single && structured && len(r.Content) > 0 {
		// The text of an object that is not wrapped is that object.
		own := false
		if only != nil {
			_, own = onlyResult(json.RawMessage(*only))
		}
		a.Wrapped = !own
	}
	if len(r.Content) == 0 && structured {
		a.Text = rawjson.Written(a.Value)
	}
	if r.IsError {
		a.Outcome, a.Failure = Error, "the function answered an error"
		if a.Text != "" {
			a.Failure += ": " + short(a.Text)
		}
	}
	return a
}

func (b block) read(raw json.RawMessage) string {
	switch {
	case b.Type == "text" && b.Text != nil:
		return *b.Text
	case b.Type == "resource" && b.Resource.Text != nil:
		return *b.Resource.Text
	case b.Type == "resource":
		return fmt.Sprintf("[resource %s, %s]", b.Resource.URI, b.Resource.MimeType)
	case b.Type == "resource_link":
		return fmt.Sprintf("[resource %s: %s]", b.Name, b.URI)
	case b.Type == "image" || b.Type == "audio":
		return fmt.Sprintf("[%s, %s, %d bytes]", b.Type, b.MimeType, len(b.Data)/4*3)
	}
	return rawjson.Written(raw)
}

const failureMost = 500 // bytes of a server's words in a failure

func shortened(s string) string {
	if len(s) <= failureMost {
		return s
	}
	return strings.ToValidUTF8(s[:failureMost], "") + "…"
}

// failed is an answer that has no value.
func failed(o Outcome, why string) Answer { return Answer{Outcome: o, Failure: why, Text: why} }
