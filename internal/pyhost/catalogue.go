package pyhost

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/finding"
)

// readyReport is the body of a worker's ready frame.
type readyReport struct {
	Python     string            `json:"python"`
	Executable string            `json:"executable"`
	Pydantic   string            `json:"pydantic"`
	Hooks      []hookReport      `json:"hooks"`
	Tools      []toolEntry       `json:"tools"`
	Findings   []finding.Finding `json:"findings"`
}

type hookReport struct {
	Name    string    `json:"name"`
	Point   string    `json:"point"`
	Lane    hook.Lane `json:"lane"`
	Final   bool      `json:"final"`
	Timeout int64     `json:"timeout_ms"`
	File    string    `json:"file"`
	Line    int       `json:"line"`
}

type toolEntry struct {
	Name                 string          `json:"name"`
	Description          string          `json:"description"`
	Parameters           json.RawMessage `json:"parameters"`
	File                 string          `json:"file"`
	Line                 int             `json:"line"`
	Skill                string          `json:"skill"`
	WantsContext         bool            `json:"wants_context"`
	RequiresConfirmation bool            `json:"requires_confirmation"`
	UtterForConfirmation string          `json:"utter_for_confirmation"`
	UtterOnUserDenial    string          `json:"utter_on_user_denial"`
	OnSuccess            string          `json:"on_success"`
	Timeout              float64         `json:"timeout_s"`
}

// catalogue is what the agent has, in the order of its first worker.
type catalogue struct {
	hooks []hook.Hook
	tools []ToolInfo
}

func newCatalogue(r *readyReport) (catalogue, error) {
	var c catalogue
	for _, e := range r.Hooks {
		point := hook.PointNamed(e.Point)
		if point == nil || point.Dialect != hook.Turn {
			return c, fmt.Errorf("hook %s stands at the unknown point %q", e.Name, e.Point)
		}
		if e.Lane != hook.Observe && e.Lane != hook.Modify {
			return c, fmt.Errorf("hook %s is in the unknown lane %q", e.Name, e.Lane)
		}
		c.hooks = append(c.hooks, hook.Hook{
			Name: e.Name, Point: point, Lane: e.Lane, Final: e.Final, Limit: time.Duration(e.Timeout) * time.Millisecond,
			File: e.File, Line: e.Line,
		})
	}
	for _, e := range r.Tools {
		c.tools = append(c.tools, ToolInfo{
			Name: e.Name, Description: e.Description, Parameters: e.Parameters, File: e.File, Line: e.Line,
			Skill: e.Skill, WantsContext: e.WantsContext,
			RequiresConfirmation: e.RequiresConfirmation, UtterForConfirmation: e.UtterForConfirmation,
			UtterOnUserDenial: e.UtterOnUserDenial, OnSuccess: e.OnSuccess,
			Timeout: time.Duration(e.Timeout * float64(time.Second)),
		})
	}
	return c, nil
}

// tool returns the place of a tool, or -1.
func (c *catalogue) tool(name, file string) int {
	for i := range c.tools {
		if c.tools[i].Name == name && (file == "" || c.tools[i].File == file) {
			return i
		}
	}
	return -1
}

// fit finds the worker's own numbers for what the catalogue has. A worker that
// starts later may have read other files.
func (w *worker) fit(c catalogue, r *readyReport, log *slog.Logger) error {
	own, err := newCatalogue(r)
	if err != nil {
		return err
	}
	missing := 0
	w.hooks, w.tools = make([]int, len(c.hooks)), make([]int, len(c.tools))
	for i := range c.hooks {
		w.hooks[i] = own.hook(&c.hooks[i])
		missing += min(w.hooks[i], 0)
	}
	for i := range c.tools {
		w.tools[i] = own.tool(c.tools[i].Name, c.tools[i].File)
		missing += min(w.tools[i], 0)
	}
	if missing < 0 || len(own.hooks) != len(c.hooks) || len(own.tools) != len(c.tools) {
		log.Warn("a new Python worker found other hooks or tools than the agent was loaded with: its files have changed; load the agent again",
			"missing", -missing)
	}
	return nil
}

// hook returns the place of the same hook, or -1.
func (c *catalogue) hook(k *hook.Hook) int {
	for i := range c.hooks {
		own := &c.hooks[i]
		if own.Name == k.Name && own.Point == k.Point && own.Lane == k.Lane {
			return i
		}
	}
	return -1
}
