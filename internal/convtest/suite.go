package convtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/model/scripted"
)

// File is one file of tests.
type File struct {
	Path          string // as it was named
	Conversations []*Conversation

	skills bool // some expectation is about skills or memory
}

// Conversation is one test.
type Conversation struct {
	Name    string
	Line    int
	Column  int
	Sender  string          // "" for one that nobody else has
	Channel json.RawMessage // {name, metadata}
	Memory  []Value         // what is remembered when it begins
	Turns   []*Turn

	// At most one of these is set; without one the agent's own model answers.
	Script    *scripted.Script
	Recording []Completion // of the whole conversation
	recorded  bool         // some turn, or the conversation, brings a recording
}

// own says whether the conversation brings its model.
func (c *Conversation) own() bool { return c.Script != nil || c.recorded }

// Turn is one message of the user's and what is expected to come of it.
type Turn struct {
	Line      int
	User      string
	Extra     json.RawMessage
	Recording []Completion // of this turn
	Expect    Expect

	notes []string // what Record could not hold
}

// Purposes of a request to the model.
const (
	Main     = "main"
	Rephrase = "rephrase" // reword a fixed text
	Fill     = "fill"     // which fields did the user give already?
)

// Completion is one answer of the model in a recording.
type Completion struct {
	Line    int
	Purpose string
	Text    *string
	Calls   []chat.ToolCall
	Empty   bool
	Fail    string // why there was no completion
}

// Value is a memory value, null for one that is not set.
type Value struct {
	Name         string // full name
	Value        json.RawMessage
	Line, Column int
}

// Expect is what is written of a turn. What is nil is not looked at.
type Expect struct {
	Message      *TextMatch
	Texts        *List[TextMatch]
	NotTexts     []TextMatch
	Tools        *List[ToolMatch]
	Confirmation *ConfirmMatch
	Memory       []Value
	Skill        *Name
	Block        *Name
	Step         *Name
	Hooks        []HookMatch
	Status       *Name
}

// List is a list that is expected as a whole.
type List[T any] struct {
	Line  int
	Items []T
}

// Name is one word, "" for none.
type Name struct {
	Line, Column int
	Text         string
}

// TextMatch is what is expected of a text.
type TextMatch struct {
	Line, Column int
	Text         *string  // the whole of it
	Contains     []string // parts
	Matches      *regexp.Regexp
	Response     string // name of the fixed text
	Source       string
	Discarded    string // of a message: by what
}

// ToolMatch is what is expected of a tool's run.
type ToolMatch struct {
	Line, Column int
	Name         string
	Arguments    json.RawMessage // a part of them
	Result       json.RawMessage // a part of it; a JSON text is looked for in the result
	IsError      *bool
	By           string
}

// ConfirmMatch is what is expected of confirmations.
type ConfirmMatch struct {
	Line, Column int
	None         bool
	Asked        string // name of the tool
	Resolved     *bool
}

// HookMatch is a hook that must have said something in a turn.
type HookMatch struct {
	Line, Column int
	Hook         string
	Point        string
	Said         []string // one of these; none: it was asked
}

// Find lists the files of tests in a folder and below it, sorted. Hidden folders and
// files are passed over.
func Find(dir string) ([]string, error) {
	var out []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		switch hidden := strings.HasPrefix(name, ".") && path != dir; {
		case d.IsDir() && (hidden || name == "__pycache__"):
			return fs.SkipDir
		case d.IsDir() || hidden:
			return nil
		}
		if ext := filepath.Ext(name); ext == ".yml" || ext == ".yaml" {
			out = append(out, path)
		}
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for tests: %w", err)
	}
	slices.Sort(out)
	return out, nil
}
