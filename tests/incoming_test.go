package tests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/app/apptest"
	"github.com/belay-run/belay/internal/conversation"
)

// rejecting turns away a message with "spam" and masks one with "secret".
const incomingHooks = `from __future__ import annotations

from belay.hooks import HookRejection, IncomingMessagePayload, modify_incoming_message


@modify_incoming_message()
async def guard(message: IncomingMessagePayload) -> IncomingMessagePayload:
    if "spam" in message.text:
        raise HookRejection(reason="it is spam")
    if "crash" in message.text:
        raise ValueError("secret-exception-text")
    return message.model_copy(update={"text": message.text.replace("secret", "[masked]")})
`

func TestIncoming(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Files{"hooks.py": incomingHooks})

	t.Run("T50 a rejected message stays in the record and reaches no model", func(t *testing.T) {
		r := a.Say("t50", "spam for you")
		if r.Text() != "I'm sorry, but I can't help with that message." {
			t.Errorf("the user heard %q", r.Text())
		}
		a.Say("t50", "hello")
		user := a.Of("t50", conversation.User)
		if len(user) != 2 || user[0].Text != "spam for you" || user[0].Discarded == nil || user[0].Discarded.By != "rejected" || user[0].Discarded.Reason != "it is spam" {
			t.Errorf("user events: %+v", user)
		}
		if strings.Contains(a.AllRequests(), "spam") {
			t.Error("a model request has text of the rejected message")
		}
		if r.Report.Status != "completed" {
			t.Errorf("status %s", r.Report.Status)
		}
	})

	t.Run("T51 a failed hook is closed", func(t *testing.T) {
		asked := len(a.Requests())
		r := a.Say("t51", "crash please")
		if len(a.Requests()) != asked {
			t.Error("the model was asked")
		}
		if r.Text() != "I'm sorry, but I couldn't process your message. Please try again." || r.Report.Status != "error" {
			t.Errorf("the user heard %q, status %s", r.Text(), r.Report.Status)
		}
		user := a.Of("t51", conversation.User)
		if len(user) != 1 || user[0].Discarded == nil || user[0].Discarded.By != "hook_error" {
			t.Errorf("user events: %+v", user)
		}
	})

	t.Run("T52 the words as typed are stored nowhere", func(t *testing.T) {
		a.Say("t52", "my secret")
		if user := a.Of("t52", conversation.User); user[0].Text != "my [masked]" {
			t.Errorf("the record has %q", user[0].Text)
		}
		if strings.Contains(a.AllRequests(), "my secret") {
			t.Error("the model got the words as typed")
		}
		a.App.WaitObservers()
		if _, err := a.App.Traces(t.Context(), "t52", ""); err != nil { // everything is on disk
			t.Fatal(err)
		}
		files, err := filepath.Glob(filepath.Join(a.Data, "*"))
		if err != nil || len(files) == 0 {
			t.Fatalf("data files: %v %v", files, err)
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(b), "my secret") || strings.Contains(string(b), "my [masked]") {
				t.Errorf("%s has the message in the clear", filepath.Base(f))
			}
		}
		if strings.Contains(a.Log(), "my secret") {
			t.Error("the log has the words as typed")
		}
	})
}
