package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/belay-run/belay/internal/turn"
)

// object is a JSON object, kept byte for byte.
type object json.RawMessage

// Schema says so in the OpenAPI document.
func (object) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true}
}

// UnmarshalJSON keeps the bytes. A null is as good as nothing.
func (o *object) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*o = nil
		return nil
	}
	*o = append((*o)[:0], b...)
	return nil
}

// ChatMessage is what both ways in take. (Its name, like those of the other
// bodies, stands in the OpenAPI document.)
type ChatMessage struct {
	Message     string          `json:"message,omitempty" doc:"What the user says."`
	Metadata    object          `json:"metadata,omitempty" doc:"Front-end data; hooks and tools see it as channel.metadata."`
	Attachments json.RawMessage `json:"attachments,omitempty" doc:"What is not text (a button, a file), in any form. No incoming hook sees it; it passes unchanged."`
	Call        object          `json:"call,omitempty" doc:"Telephony or session data; hooks and tools see it as call."`
	Interrupt   bool            `json:"interrupt,omitempty" doc:"Cancel the turn of this conversation that is running, instead of waiting for its end."`
}

// check finds a message that says nothing.
func (m *ChatMessage) check() []error {
	if m.Message == "" && m.extra() == nil {
		return []error{&huma.ErrorDetail{Location: "body.message", Message: "there is no text and there are no attachments"}}
	}
	return nil
}

// extra is what is not text, nil when there is nothing of it.
func (m *ChatMessage) extra() json.RawMessage {
	switch string(bytes.TrimSpace(m.Attachments)) {
	case "", "null", "[]", "{}", `""`:
		return nil
	}
	return m.Attachments
}

// inbound is the message on its way to a turn. channel is the channel's name.
func (m *ChatMessage) inbound(sender, channel string) Inbound {
	metadata := m.Metadata
	if metadata == nil {
		metadata = object("{}")
	}
	return Inbound{Sender: sender, Interrupt: m.Interrupt, Message: turn.Message{
		Text: m.Message, Extra: m.extra(), Call: json.RawMessage(m.Call),
		// Written by hand: an encoder would spell the metadata anew.
		Channel: json.RawMessage(`{"name":"` + channel + `","metadata":` + string(metadata) + `}`),
	}}
}

const maxID = 256

// checkID says what is wrong with the id of a conversation or a turn.
func checkID(where, id string) []error {
	if err := CheckID(id); err != nil {
		return []error{&huma.ErrorDetail{Location: where, Message: err.Error()}}
	}
	return nil
}

// CheckID says what is wrong with the id of a conversation.
func CheckID(id string) error {
	switch {
	case strings.TrimSpace(id) == "":
		return errors.New("an id cannot be blank")
	case len(id) > maxID:
		return fmt.Errorf("an id may have %d bytes at most", maxID)
	case !utf8.ValidString(id), strings.ContainsRune(id, utf8.RuneError):
		// Half a character reads as the replacement character: two ids could
		// become one.
		return errors.New("an id must be whole UTF-8")
	case strings.ContainsFunc(id, unseen):
		return errors.New("an id cannot have control characters")
	}
	return nil
}

// unseen is a character that changes how others show and is not seen itself.
func unseen(r rune) bool {
	return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || unicode.Is(unicode.Bidi_Control, r)
}
