package agentjob

import (
	"maps"
	"slices"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/approval"
	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/loop"
	"github.com/belay-run/belay/internal/policy"
)

// Hooks are under the tool policy as any function. What it says of one is decided
// before the hook is asked for the first time; a person's answer counts for the rest
// of the job.

// permitAll decides whether the hooks of a point may be asked.
func (r *run) permitAll(point string, who hook.Who) error {
	for _, d := range r.undecided(who, point) {
		if err := r.askPermit(r.steps, d); err != nil {
			return err
		}
	}
	return nil
}

// group is calls of a batch that wait for the same people: for a yes to hooks that
// all of them meet.
type group struct {
	ask   []*Hook
	calls []int
}

// inGroups runs each call of a batch, all side by side but for those that wait for
// the same person to let their hooks be asked. A branch has a run of its own, for
// what is permitted there.
func (r *run) inGroups(batch []loop.Call, call func(i int, r *run, s job.Steps) error) error {
	groups := r.grouped(batch)
	permitted := make([]map[string]string, len(groups))
	err := r.steps.Each(len(groups), func(n int, s job.Steps) error {
		own := *r
		own.permitted = maps.Clone(r.permitted)
		permitted[n] = own.permitted
		for _, d := range groups[n].ask {
			if err := own.askPermit(s, d); err != nil {
				return err
			}
		}
		return s.Each(len(groups[n].calls), func(i int, s job.Steps) error { return call(groups[n].calls[i], &own, s) })
	})
	if err != nil {
		return err
	}
	for _, p := range permitted {
		maps.Copy(r.permitted, p)
	}
	return nil
}

func (r *run) grouped(batch []loop.Call) []group {
	var groups []group
	for i, c := range batch {
		g := group{calls: []int{i}}
		if r.early(c) == "" { // else no hook is asked
			g.ask = r.undecided(hook.Who{Agent: r.spec.Agent.Name, Tool: r.fullName(c.Name)}, hook.PreToolCall, hook.PostToolCall)
		}
		var apart []group
		for _, other := range groups {
			if !slices.ContainsFunc(other.ask, func(d *Hook) bool { return slices.ContainsFunc(g.ask, d.same) }) {
				apart = append(apart, other)
				continue
			}
			g.calls = append(other.calls, g.calls...)
			for _, d := range g.ask {
				if !slices.ContainsFunc(other.ask, d.same) {
					other.ask = append(other.ask, d)
				}
			}
			g.ask = other.ask
		}
		groups = append(apart, g)
	}
	return groups
}

func (h *Hook) same(other *Hook) bool { return h.Name() == other.Name() }

// undecided gives the hooks at some points that a person must permit, each once. Of
// the others it keeps what the policy says.
func (r *run) undecided(who hook.Who, points ...string) []*Hook {
	var out []*Hook
	for _, name := range points {
		for _, h := range r.asked(hook.PointNamed(name), who) {
			d := r.known[h]
			if _, decided := r.permitted[d.Name()]; decided || slices.ContainsFunc(out, d.same) {
				continue
			}
			v, unlisted := r.verdictOf(d), r.unlisted[d.Tool]
			switch {
			case v.Effect == policy.Allow:
				r.permitted[d.Name()] = ""
			case v.Effect != policy.RequireApproval:
				r.permitted[d.Name()] = "the tool policy refuses to have the hook asked: " + v.Reason
			case unlisted != "": // what the function declares of itself is not known
				r.permitted[d.Name()] = unlisted
			default:
				out = append(out, d)
			}
		}
	}
	return out
}

// asked are the hooks of a point, those whose answers do not bind too.
func (r *run) asked(point *hook.Point, who hook.Who) []*hook.Hook {
	var out []*hook.Hook
	for c, i := r.hooks.Chain(point, who), 0; i < c.Modify(); i++ {
		out = append(out, c.Hook(i))
	}
	for _, h := range r.shadow {
		if h.Point == point && sees(h, who) {
			out = append(out, h)
		}
	}
	return out
}

func (r *run) verdictOf(d *Hook) policy.Verdict {
	call := r.policyCall(d.Name(), nil, nil)
	call.Origin = policy.Origin{By: policy.ByHook}
	return r.policy.Decide(call, nil)
}

// askPermit asks a person whether a hook may be asked, and keeps why not, "" when it
// may.
func (r *run) askPermit(s job.Steps, d *Hook) error {
	name, v := d.Name(), r.verdictOf(d)
	req := approval.Request{Kind: asks(v), Tool: name, Event: d.Event, Role: v.Approvers, Policy: r.policy.Version(),
		Reasons: []approval.Reason{{By: name, Text: v.Reason, Note: "a hook: it is asked about calls and jobs of the tenant"}}}
	yes, why, err := r.person(s, "permit/"+name, req)
	if err != nil {
		return err
	}
	if r.permitted[name] = ""; !yes {
		r.permitted[name] = "the hook may not be asked: " + why
	}
	return nil
}
