package tests

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/app/apptest"
	"github.com/belay-run/belay/internal/conversation"
)

// tellingFiles are formFiles with a session's begin, and tools that say something
// themselves: one that the model calls, one that a block runs, and one that the
// user is asked about.
func tellingFiles() apptest.Files {
	files := formFiles()
	files["skills/default_session_start/skill.md"] = "---\nname: Begin\n---\n\n:::ordered_block id=main\nsteps:\n  - action: utter_welcome\n:::\n"
	files["responses.yml"] += "  utter_welcome: [Welcome.]\n"
	files["skills/tell/skill.md"] = "---\nname: Tell\ndescription: Tells.\ntool_constraints:\n  - ask_and_tell: {requires_confirmation: true}\n---\n\nTell, or @block.all.\n\n" +
		":::ordered_block id=all\nsteps:\n  - execute_tool: tell\n:::\n"
	files["skills/tell/tools.py"] = `from __future__ import annotations

from belay.tools import ToolContext, ToolResult, tool


@tool(description="Tells.")
async def tell(context: ToolContext) -> ToolResult:
    await context.send("Told one.")
    await context.send("Told two.")
    return ToolResult(llm_response={})


@tool(description="Tells when the user agrees.")
async def ask_and_tell(context: ToolContext) -> ToolResult:
    await context.send("Told three.")
    return ToolResult(llm_response={})
`
	return files
}

// skillScenes are conversations that bring every text that a skill says.
func skillScenes() (out []scene) {
	source := func(text string) string {
		switch {
		case text == "in other words":
			return conversation.Rephrased
		case text == "hi", text == "the rest":
			return conversation.FromModel
		}
		return conversation.Verbatim
	}
	for _, w := range rewordings() {
		s := scene{name: w.name, want: slices.Concat(w.earlier, w.heard("in other words"))}
		for range len(w.turns) + 1 {
			s.say = append(s.say, "go on")
		}
		s.answers = slices.Concat(slices.Concat(w.turns...), w.before, []apptest.Answer{apptest.Says("in other words")}, w.after)
		for _, text := range s.want {
			s.sources = append(s.sources, source(text))
			if source(text) == conversation.FromModel {
				s.streams = append(s.streams, text)
			}
		}
		out = append(out, s)
	}
	return append(out,
		scene{name: "texts that a tool sends", say: []string{"tell"}, answers: []apptest.Answer{starts("tell"), apptest.Call("tell", nil), apptest.Says("That is all.")},
			want: []string{"Told one.", "Told two.", "That is all."}, streams: []string{"That is all."}, sources: []string{"llm", "llm", "llm"}},
		scene{name: "texts that a block's tool sends", say: []string{"tell"}, answers: []apptest.Answer{starts("tell"), starts("all"), apptest.Says("That is all.")},
			want: []string{"Told one.", "Told two.", "That is all."}, streams: []string{"That is all."}, sources: []string{"llm", "llm", "llm"}},
		scene{name: "texts that a confirmed tool sends", say: []string{"tell", "yes"}, answers: []apptest.Answer{starts("tell"), apptest.Call("ask_and_tell", nil), yes, apptest.Says("That is all.")},
			want: []string{"I am about to run ask_and_tell. Shall I go ahead?", "Told three.", "That is all."}, streams: []string{"That is all."}, sources: []string{"verbatim", "llm", "llm"}},
		scene{name: "a filler beside a skill's end", say: []string{"plain"}, answers: []apptest.Answer{starts("plain"), apptest.SaysAndCalls("Bye.", apptest.C{Name: "complete_skill"}), asWritten},
			want: []string{"Bye.", anythingElse}, streams: []string{"Bye."}, sources: []string{"filler", "verbatim"}})
}

func TestEveryTextOfSkillsIsSeen(t *testing.T) {
	t.Parallel()
	files := tellingFiles()
	files["hooks/see.py"] = speakingFiles["hooks/see.py"]
	a := apptest.Start(t, files)
	for _, s := range skillScenes() {
		for _, live := range []bool{false, true} {
			sender := fmt.Sprintf("%s, live %v", s.name, live)
			t.Run("T122 an observer sees it once: "+sender, func(t *testing.T) {
				r, want := s.play(a, sender, live), append([]string{"Welcome."}, s.want...)
				expect(t, "the user heard", r.Texts, want)
				expect(t, "seen", notedTexts(a, "seen", sender), want)
				_, sources := spoken(a, sender)
				expect(t, "sources", sources, append([]string{"verbatim"}, s.sources...))
				pieces := s.streams
				if !live {
					pieces = nil
				}
				expect(t, "pieces", r.Pieces, pieces)
			})
		}
	}
	files = maps.Clone(files)
	files["hooks/stamp.py"] = stampHooks
	b := apptest.Start(t, files)
	for _, s := range skillScenes() {
		s.checked(t, b)
	}
}

func TestTextsOfABlockAreHeldBack(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		hook string
		held bool
	}{{"modify_model_response", true}, {"modify_tool_call", true}, {"modify_outgoing_text", true}, {"modify_model_request", false}, {"modify_tool_result", false}, {"on_outgoing_text", false}} {
		a := startPlayed(t, nil, orderFiles, playedHooks(longLimit, c.hook))
		t.Run("T106 a text of a step, with "+c.hook, func(t *testing.T) {
			a.orders(t, "ann", "lamp", "street")
			a.Next("ann", sets(map[string]any{"street": "Elm"}), apptest.Pieces("Is it ", "right?"))
			in := played("ann", "Elm", nil)
			in.Live = true
			r, err := a.Send(t.Context(), in)
			if err != nil {
				t.Fatal(err)
			}
			want := []string{"text:Is it right?"}
			if !c.held {
				want = append([]string{"piece:Is it ", "piece:right?"}, want...)
			}
			expect(t, "sent", r.Order, want)
		})
		if c.hook != "modify_outgoing_text" {
			continue
		}
		t.Run("T55 no token of a step's text is sent unchecked", func(t *testing.T) {
			a.orders(t, "bob", "lamp", "street")
			a.Next("bob", sets(map[string]any{"street": "Elm"}), apptest.Pieces("planted ", "words"))
			in := played("bob", "Elm", bodies{"modify_outgoing_text": "p.text = p.text.replace('planted', 'other')"})
			in.Live = true
			r, err := a.Send(t.Context(), in)
			if err != nil {
				t.Fatal(err)
			}
			expect(t, "sent", r.Order, []string{"text:other words"})
			wantNone(t, "the record", inJSON(a.Events("bob")), "planted")
		})
	}
}

func TestRejectedTextsOfSkills(t *testing.T) {
	t.Parallel()
	files := tellingFiles()
	files["hooks.py"] = strings.Replace(rejectingHooks, `"forbidden" in p.text`, `p.text in ("[form]", "[ask_name]", "[ask_send]", "[began]", "Told one.")`, 1)
	a := playedAgent{apptest.Start(t, files)}

	t.Run("T124 a block goes on when its texts are rejected, and waits for what it asked", func(t *testing.T) {
		a.Next("form", starts("form"), nothing, asWritten, asWritten)
		r := a.turn(t, "form", "form", nil)
		expect(t, "heard", r.Texts, []string{"Welcome.", outgoingRejected, outgoingRejected})
		expect(t, "the turn", []string{r.Report.Status, r.Report.Why}, []string{"completed", "waiting"})
		a.Next("form", sets(map[string]any{"name": "Ada"}), asWritten)
		r = a.turn(t, "form", "Ada", nil)
		expect(t, "heard then", r.Texts, []string{outgoingRejected})
		expect(t, "memory", a.remembers("form"), map[string]string{"form.name": `"Ada"`})
		a.Next("form", yes, asWritten)
		r = a.turn(t, "form", "yes", nil)
		expect(t, "heard at the end", r.Texts, []string{anythingElse})
		expect(t, "the tool ran", of(a.toolNotes("form"), "tool"), []string{"tool send"})
		wantNone(t, "what the model is asked by the engine or itself, later", inJSON(a.Prompts("form")[4:]), "[form]\"", "[ask_name]\"")
	})

	t.Run("T124 a rejected text of the activation is not said again", func(t *testing.T) {
		a.Next("talk", starts("talk"), asWritten, apptest.Says("hi"), apptest.Says("hi"))
		expect(t, "heard", a.turn(t, "talk", "talk", nil).Texts, []string{"Welcome.", outgoingRejected, "hi"})
		expect(t, "heard then", a.turn(t, "talk", "and?", nil).Texts, []string{"hi"})
	})

	t.Run("T124 a tool's rejected text is replaced by the fallback alone", func(t *testing.T) {
		a.Next("tell", starts("tell"), apptest.Call("tell", nil), apptest.Says("That is all."))
		expect(t, "heard", a.turn(t, "tell", "tell", nil).Texts, []string{"Welcome.", outgoingRejected, "Told two.", "That is all."})
	})

	t.Run("T125 one fallback a text, which the hook is not asked about", func(t *testing.T) {
		a.Next("all", starts("form"), nothing, asWritten, asWritten, sets(map[string]any{"name": "Ada"}), asWritten, no, asWritten)
		var heard, told []string
		for _, text := range []string{"form", "Ada", "no"} {
			heard = append(heard, a.turn(t, "all", text, nil).Texts...)
		}
		for _, text := range []string{"Welcome.", "[form]", "[ask_name]", "[ask_send]", anythingElse} {
			told = append(told, text, outgoingRejected)
		}
		expect(t, "heard", heard, []string{outgoingRejected, outgoingRejected, outgoingRejected, outgoingRejected, outgoingRejected})
		expect(t, "asked", notedTexts(a.Agent, "asked", "all"), []string{"Welcome.", "[form]", "[ask_name]", "[ask_send]", anythingElse})
		expect(t, "seen", notedTexts(a.Agent, "seen", "all"), told)
	})
}
