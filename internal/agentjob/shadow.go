package agentjob

import (
	"cmp"
	"slices"
	"strings"

	"github.com/belay-run/belay/hook"
)

// Shadow is what one hook that only looks on would have done in jobs.
type Shadow struct {
	Plugin string `json:"plugin"`
	Hook   string `json:"hook" doc:"<tool>.<function>"`
	Event  string `json:"event"`
	Asked  int    `json:"asked"`
	// What it would have come to. A failure counts as failed, and also as what its
	// policy makes of it.
	Allowed   int `json:"allowed"`
	Denied    int `json:"denied"`
	Modified  int `json:"modified"`
	Escalated int `json:"escalated"`
	Failed    int `json:"failed"`
	// Examples are of answers that would have changed something.
	Examples []ShadowExample `json:"examples,omitempty" doc:"Answers that would have changed something, the newest jobs first."`
}

// Changes counts what would have gone another way.
func (s *Shadow) Changes() int { return s.Denied + s.Modified + s.Escalated }

// ShadowExample is one answer that would have changed something.
type ShadowExample struct {
	Job    string `json:"job"`
	Key    string `json:"key" doc:"Of the question in the job's history."`
	Tool   string `json:"tool,omitempty"`
	Would  string `json:"would" enum:"deny,modify,escalate"`
	Reason string `json:"reason,omitempty"`
	Failed string `json:"failed,omitempty" doc:"How the hook failed, if it did: then its on_timeout decides."`
}

const mostExamples = 5 // of a hook

// Shadows counts what hooks that only look on would have changed. The zero value
// has counted nothing.
type Shadows struct {
	at  map[[3]string]int // plugin, event, hook → its place in all
	all []Shadow
}

// Add counts the answers of a job. Jobs that come first give the examples.
func (s *Shadows) Add(spec *Spec, told []Told) {
	if s.at == nil {
		s.at = map[[3]string]int{}
	}
	for i := range spec.Hooks {
		if h := &spec.Hooks[i]; h.Shadow {
			s.of(h.Plugin, h.Event, h.Name()) // so that those that were never asked are seen too
		}
	}
	told = slices.Clone(told)
	slices.SortStableFunc(told, func(a, b Told) int { return cmp.Compare(a.Key, b.Key) }) // branches of a batch tell in any order
	for _, t := range told {
		if !t.Shadow {
			continue
		}
		name, _, _ := strings.Cut(t.Name, "#")
		id, _, _ := strings.Cut(name, ".")
		tool, _ := spec.tool(id)
		s.of(tool.Plugin, t.Event, name).count(t)
	}
}

func (s *Shadows) of(plugin, event, name string) *Shadow {
	key := [3]string{plugin, event, name}
	at, known := s.at[key]
	if !known {
		at = len(s.all)
		s.at[key] = at
		s.all = append(s.all, Shadow{Plugin: plugin, Hook: name, Event: event})
	}
	return &s.all[at]
}

// Report gives what was counted, by plugin, event and hook.
func (s *Shadows) Report() []Shadow {
	out := slices.Clone(s.all)
	slices.SortFunc(out, func(a, b Shadow) int {
		return cmp.Or(cmp.Compare(a.Plugin, b.Plugin), cmp.Compare(a.Event, b.Event), cmp.Compare(a.Hook, b.Hook))
	})
	return out
}

func (s *Shadow) count(t Told) {
	s.Asked++
	would, reason, failure := t.Says, t.Run.Reason, ""
	if t.Says == HasFailed {
		s.Failed++
		would = map[hook.Policy]string{hook.Open: Allowed, hook.HoldPolicy: Escalated}[t.Run.Policy]
		would = cmp.Or(would, Denied)
		if t.Run.Failure != nil {
			failure, reason = string(t.Run.Failure.Kind), cmp.Or(reason, t.Run.Failure.Reason())
		}
	}
	switch would {
	case Allowed:
		s.Allowed++
		return
	case Modified:
		s.Modified++
	case Escalated:
		s.Escalated++
	default:
		s.Denied++
	}
	if len(s.Examples) < mostExamples {
		s.Examples = append(s.Examples, ShadowExample{Job: t.Job, Key: t.Key, Tool: t.Tool, Would: would, Reason: reason, Failed: failure})
	}
}
