package plugintest

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/belay-run/belay/internal/agentjob"
	"github.com/belay-run/belay/internal/expect"
	"github.com/belay-run/belay/internal/plugin"
)

// KindHook is the kind of decision points that hooks are.
const KindHook = "hook"

// Branches of decision points.
const (
	BranchAllowed   = "allowed"
	BranchRefused   = "refused"
	BranchEscalated = "escalated"
)

// Coverage says which branches of the plugin's hooks cases have gone through.
type Coverage struct {
	Points []*Point `json:"points"`
}

// Point is a decision point: one hook.
type Point struct {
	Kind string `json:"kind"`
	// Name is <event>:<tool>.<function>; a second hook of the same function at the
	// event has #2 after it.
	Name         string `json:"name"`
	File         string `json:"file"`
	Line         int    `json:"line"`
	EscalateOnly bool   `json:"escalate_only"`
	Asked        int    `json:"asked"`
	// Branches are counted: allowed and refused, or allowed and escalated.
	Branches []*Branch `json:"branches"`
	// Seen are answers that are shown and not counted, since what a hook changes or
	// escalates depends on what the cases' calls carry.
	Seen map[string]int `json:"seen"`
}

// Branch is one way through a decision point.
type Branch struct {
	Name  string `json:"name"`
	Count int    `json:"count"`
}

func newCoverage(m *plugin.Manifest) *Coverage {
	c := &Coverage{Points: []*Point{}}
	for _, d := range m.Declarations() {
		p := &Point{Kind: KindHook, Name: d.Hook.Point.Name + ":" + d.Hook.Name, File: d.Hook.File, Line: d.Hook.Line, EscalateOnly: d.EscalateOnly, Seen: map[string]int{}}
		second := BranchRefused
		if d.EscalateOnly {
			second = BranchEscalated
		}
		p.Branches = []*Branch{{Name: BranchAllowed}, {Name: second}}
		c.Points = append(c.Points, p)
	}
	return c
}

// wordsOf are the branches, by what hooks say.
var wordsOf = map[string]string{agentjob.Allowed: BranchAllowed, agentjob.Denied: BranchRefused, agentjob.Escalated: BranchEscalated, agentjob.Modified: "modified", agentjob.HasFailed: "failed"}

// add counts what hooks said in a case. A failure goes through no branch: it tries
// nothing of what the hook is written for.
func (c *Coverage) add(told []agentjob.Told) {
	for _, t := range told {
		i := slices.IndexFunc(c.Points, func(p *Point) bool { return p.Name == t.Event+":"+t.Name })
		if i < 0 {
			continue
		}
		p, name := c.Points[i], wordsOf[t.Says]
		p.Asked++
		if b := p.branch(name); b != nil {
			b.Count++
		} else {
			p.Seen[name]++
		}
	}
}

func (p *Point) branch(name string) *Branch {
	for _, b := range p.Branches {
		if b.Name == name {
			return b
		}
	}
	return nil
}

// Counts says how many branches there are, and how many of them cases went through.
func (c *Coverage) Counts() (covered, all int) {
	for _, p := range c.Points {
		for _, b := range p.Branches {
			all++
			if b.Count > 0 {
				covered++
			}
		}
	}
	return covered, all
}

// Percent is the share of branches that cases went through; 100 when there are none.
func (c *Coverage) Percent() float64 {
	covered, all := c.Counts()
	if all == 0 {
		return 100
	}
	return 100 * float64(covered) / float64(all)
}

// Below says whether the share is below so many percent.
func (c *Coverage) Below(percent float64) bool {
	covered, all := c.Counts()
	return float64(covered)*100 < percent*float64(all)
}

// Unreached are the hooks that no case has asked.
func (c *Coverage) Unreached() []*Point {
	out := []*Point{}
	for _, p := range c.Points {
		if p.Asked == 0 {
			out = append(out, p)
		}
	}
	return out
}

// WriteText writes the coverage as a table.
func (c *Coverage) WriteText(w io.Writer) error {
	var b strings.Builder
	if len(c.Points) == 0 {
		b.WriteString("\nThe plugin has no hooks, so there is nothing to cover.\n")
		_, err := io.WriteString(w, b.String())
		return err
	}
	covered, all := c.Counts()
	fmt.Fprintf(&b, "\nCoverage: %d of %d branches, %s\n", covered, all, percent(c.Percent())) // each point has two
	wide := 0
	for _, p := range c.Points {
		wide = max(wide, len(p.Name))
	}
	for _, p := range c.Points {
		fmt.Fprintf(&b, "  %s  %-*s", p.Kind, wide, expect.Printable(p.Name))
		for _, branch := range p.Branches {
			count := fmt.Sprint(branch.Count)
			if branch.Count == 0 {
				count = "–"
			}
			fmt.Fprintf(&b, "  %s %-3s", branch.Name, count)
		}
		var also []string
		for _, name := range []string{"modified", BranchEscalated, BranchRefused, "failed"} {
			if n := p.Seen[name]; n > 0 {
				also = append(also, fmt.Sprintf("%s %d", name, n))
			}
		}
		if len(also) > 0 {
			fmt.Fprintf(&b, "  seen: %s", strings.Join(also, ", "))
		}
		b.WriteString("\n")
	}
	_, err := io.WriteString(w, trimmed(b.String()))
	return err
}

// trimmed takes blanks off the ends of lines.
func trimmed(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

// percent never shows 100 for less.
func percent(p float64) string {
	if p == float64(int(p)) {
		return fmt.Sprintf("%d %%", int(p))
	}
	return fmt.Sprintf("%.1f %%", float64(int(p*10))/10)
}
