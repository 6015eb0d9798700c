package main

import (
	"encoding/json"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/belay-run/belay/internal/agentjob"
	"github.com/belay-run/belay/internal/approval"
	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/loop"
)

// printRecord prints one line of a job's history for a person.
func printRecord(w io.Writer, r job.Record) {
	line := func(sign, format string, args ...any) {
		fmt.Fprintf(w, "  %s %s  %s\n", r.At.Local().Format(time.TimeOnly), sign, plain(fmt.Sprintf(format, args...)))
	}
	switch r.What {
	case job.Begun:
		switch {
		case r.Try > 1:
			line("·", "%s: asked again, try %d", r.Key, r.Try)
		case r.Kind == agentjob.KindTool:
			var c agentjob.ToolCall
			if json.Unmarshal(r.Input, &c) == nil {
				line("→", "tool %s.%s %s", c.Tool.ID, c.Function, short(string(c.Arguments)))
			}
		case r.Kind == loop.KindModel:
			printNotMade(line, r.Input)
		}
	case job.Answered:
		printAnswer(line, r)
	case job.Asked:
		if req, err := approval.Read(r.Input); err == nil {
			line("?", "%s", asks(req))
		}
	case job.Decided:
		printDecision(line, r)
	}
}

// printNotMade prints what the model is told of calls that were not made, or whose
// results were withheld: not all that refuses a call has a record of its own.
func printNotMade(line func(string, string, ...any), input json.RawMessage) {
	var call loop.ModelCall
	var messages []struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	if json.Unmarshal(input, &call) != nil || json.Unmarshal(call.Request.Messages, &messages) != nil {
		return
	}
	first := len(messages)
	for first > 0 && messages[first-1].Role == "tool" {
		first--
	}
	for _, m := range messages[first:] {
		if strings.HasPrefix(m.Content, "The call to ") || strings.HasPrefix(m.Content, "The result of the call to ") ||
			strings.HasPrefix(m.Content, "Error: ") && strings.HasSuffix(m.Content, "Nothing was done.") {
			line("✗", "the model reads: %s", short(m.Content))
		}
	}
}

// asks says what a person is asked.
func asks(req approval.Request) string {
	what := req.Tool
	if what == "" {
		what = req.Event
	}
	var why []string
	for _, reason := range req.Reasons {
		why = append(why, strings.TrimSuffix(reason.By+": "+reason.Text, ": "))
	}
	return fmt.Sprintf("a person is asked about %s (%s): %s", what, req.Kind, strings.Join(why, "; "))
}

func printDecision(line func(string, string, ...any), r job.Record) {
	if r.Answer == nil {
		return
	}
	if f := r.Answer.Failure; f != nil {
		line("✗", "nobody decided: %s", f.Kind)
		return
	}
	var a approval.Answer
	if json.Unmarshal(r.Answer.Value, &a) != nil {
		return
	}
	said := "no"
	if a.Yes {
		said = "yes"
	}
	if a.Action != "" {
		said = string(a.Action)
	}
	line("!", "%s said %s%s", r.By, said, because(a.Note))
}

func because(note string) string {
	if note == "" {
		return ""
	}
	return ": " + note
}

func printAnswer(line func(string, string, ...any), r job.Record) {
	if r.Answer == nil {
		return
	}
	name := r.Key
	took := r.Answer.Took.Round(time.Millisecond)
	if f := r.Answer.Failure; f != nil {
		if isHook(name) {
			name = fmt.Sprintf("hook %s at %s", path.Base(name), point(name))
		}
		line("✗", "%s failed: %s %s", name, f.Kind, f.Message)
		return
	}
	switch {
	case strings.Contains(name, "/model/"):
		var a loop.ModelAnswer
		if json.Unmarshal(r.Answer.Value, &a) == nil {
			line("·", "model %s in %s", modelSaid(a), took)
		}
	case strings.HasSuffix(name, "/tool"), strings.Contains(name, "/tool/again"):
		var a agentjob.ToolAnswer
		if json.Unmarshal(r.Answer.Value, &a) == nil {
			line("←", "%s in %s", short(a.Text), took)
		}
	case isHook(name):
		var d struct {
			Decision  string          `json:"decision"`
			Reason    string          `json:"reason"`
			Arguments json.RawMessage `json:"arguments"`
			Result    json.RawMessage `json:"result"`
			Input     json.RawMessage `json:"input"`
			Output    json.RawMessage `json:"output"`
		}
		_ = json.Unmarshal(r.Answer.Value, &d) // what is no decision is shown as such
		if !slices.Contains(decisions, d.Decision) {
			line("✗", "hook %s at %s failed: it answered what is no decision, %s, in %s", path.Base(name), point(name), short(string(r.Answer.Value)), took)
			return
		}
		said := d.Decision + because(d.Reason)
		for _, value := range []json.RawMessage{d.Arguments, d.Result, d.Input, d.Output} {
			if len(value) > 0 {
				said += " → " + short(asText(value))
			}
		}
		line("●", "hook %s at %s: %s in %s", path.Base(name), point(name), said, took)
	}
}

// decisions are what a hook may answer.
var decisions = []string{"allow", "deny", "modify", "escalate"}

func modelSaid(a loop.ModelAnswer) string {
	switch {
	case a.Failed != "":
		return "failed: " + a.Failed
	case len(a.Response.ToolCalls) > 0:
		var names []string
		for _, c := range a.Response.ToolCalls {
			names = append(names, c.Name)
		}
		return "calls " + strings.Join(names, ", ")
	}
	return "answers"
}

// points are the parts of keys under which hooks are asked.
var points = map[string]string{"pre": "pre_tool_call", "post": "post_tool_call", "job_start": "job_start", "job_end": "job_end", "pre_llm": "pre_llm_call"}

func point(key string) string {
	dir := path.Dir(key)
	if path.Base(dir) == "shadow" {
		return points[path.Base(path.Dir(dir))] + ", looking on"
	}
	return points[path.Base(dir)]
}

func isHook(key string) bool { return point(key) != "" }

// short cuts a text for one line.
func short(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > 160 {
		return string(r[:160]) + "…"
	}
	return s
}
