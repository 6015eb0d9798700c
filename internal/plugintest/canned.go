package plugintest

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/belay-run/belay/internal/agentjob"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/rawjson"
)

// playing gives the case that a call belongs to.
func (s *stage) playing(ctx context.Context) *played {
	at, _ := job.AttemptOf(ctx)
	return s.of(at.ID)
}

// functions lists what the plugin's servers offer, and what the case brings.
func (s *stage) functions(ctx context.Context, c job.Call) (job.Answer, error) {
	var in agentjob.FunctionsCall
	if err := json.Unmarshal(c.Input, &in); err != nil {
		return job.Answer{}, err
	}
	in.Tools = slices.DeleteFunc(in.Tools, func(t agentjob.Tool) bool { return t.Plugin == elsewhere || slices.Contains(s.down, t.ID) })
	c.Input = rawjson.Must(in)
	a, err := s.real[agentjob.KindFunctions](ctx, c)
	p := s.playing(ctx)
	if err != nil || a.Failure != nil || p.c.Job == nil {
		return a, err
	}
	var all []agentjob.Function
	if err := json.Unmarshal(a.Value, &all); err != nil {
		return a, err
	}
	for i := range p.c.Job.Tools {
		all = p.c.Job.Tools[i].into(all)
	}
	a.Value, err = rawjson.Encode(all)
	return a, err
}

// into adds a canned function to those that servers list, or what the case says of it.
// One that no server lists and of which nothing is said declares that it only reads, so
// that no policy stands between the call and its result.
func (c *Canned) into(all []agentjob.Function) []agentjob.Function {
	at := slices.IndexFunc(all, func(f agentjob.Function) bool { return f.Full() == c.Text })
	if at < 0 {
		tool, name, _ := strings.Cut(c.Text, ".")
		yes, no := true, false
		all = append(all, agentjob.Function{Tool: tool, Name: name, Annotations: agentjob.Annotations{ReadOnly: &yes, OpenWorld: &no}})
		at = len(all) - 1
	}
	if c.Schema != nil {
		all[at].Schema = c.Schema
	}
	if c.Annotations != nil {
		all[at].Annotations = *c.Annotations
	}
	return all
}

// tool gives a canned result, or makes the call when there is none.
func (s *stage) tool(ctx context.Context, c job.Call) (job.Answer, error) {
	var in agentjob.ToolCall
	if err := json.Unmarshal(c.Input, &in); err != nil {
		return job.Answer{}, err
	}
	full, p := in.Tool.ID+"."+in.Function, s.playing(ctx)
	result, canned := p.made(c.Key, full, in.Arguments)
	if !canned {
		return s.real[agentjob.KindTool](ctx, c)
	}
	out := agentjob.ToolAnswer{Value: result.Value, Text: rawjson.Written(result.Value), Made: true}
	if result.Error != "" {
		out = agentjob.ToolAnswer{Value: rawjson.Must(result.Error), Text: result.Error, IsError: true, Made: true}
	}
	raw, err := rawjson.Encode(out)
	return job.Answer{Value: raw}, err
}

// made takes down a call and gives its canned result.
func (p *played) made(key, full string, args json.RawMessage) (Given, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen.calls = append(p.seen.calls, made{key, full, args})
	for _, c := range p.c.Job.Tools {
		if c.Text == full {
			n := p.given[full]
			p.given[full]++
			return c.Results[min(n, len(c.Results)-1)], true
		}
	}
	return Given{}, false
}

// listener is the case's model. It takes down what the model reads.
type listener struct{ p *played }

// Name implements [chat.Model].
func (l *listener) Name() string { return l.p.c.Job.Script.Name() }

// Complete implements [chat.Model].
func (l *listener) Complete(ctx context.Context, req chat.Request, delta func(string)) (chat.Response, error) {
	l.p.reads(req.Messages)
	if len(req.Tools) == 0 { // a script has rules of their own for such requests, which jobs do not make
		req.Tools = []chat.Tool{{Name: "none"}}
	}
	return l.p.c.Job.Script.Complete(ctx, req, delta)
}

// reads takes down the results in a request that are new.
func (p *played) reads(messages json.RawMessage) {
	var all []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
		ID      string          `json:"tool_call_id"`
		Calls   []struct {
			ID       string `json:"id"`
			Function struct {
				Name string `json:"name"`
			} `json:"function"`
		} `json:"tool_calls"`
	}
	_ = json.Unmarshal(messages, &all) // a hook may write anything; what could be read counts
	p.mu.Lock()
	defer p.mu.Unlock()
	names := map[string]string{}
	for _, m := range all {
		for _, c := range m.Calls {
			names[c.ID] = strings.Replace(c.Function.Name, "__", ".", 1)
		}
		if m.Role != "tool" {
			continue
		}
		text := rawjson.Written(m.Content)
		if key := m.ID + " " + text; !p.read[key] {
			p.read[key] = true
			p.seen.reads = append(p.seen.reads, reading{names[m.ID], text})
		}
	}
}

var callPlace = regexp.MustCompile(`^agent/(\d+)/call/(\d+)/`)

// place is where in a job a question stands: the calls of one batch are asked about
// side by side, so the order in which they come says nothing.
func place(key string) (iteration, call int, ok bool) {
	m := callPlace.FindStringSubmatch(key)
	if m == nil {
		return 0, 0, false
	}
	iteration, _ = strconv.Atoi(m[1]) // both are numbers
	call, _ = strconv.Atoi(m[2])
	return iteration, call, true
}

// arrange puts what is about the calls of one batch into the order of the batch, and
// leaves everything else as it came.
func arrange[T any](items []T, key func(*T) string) {
	for from := 0; from < len(items); {
		iteration, _, ok := place(key(&items[from]))
		to := from + 1
		for ; ok && to < len(items); to++ {
			if i, _, also := place(key(&items[to])); !also || i != iteration {
				break
			}
		}
		slices.SortStableFunc(items[from:to], func(a, b T) int {
			_, m, _ := place(key(&a))
			_, n, _ := place(key(&b))
			return m - n
		})
		from = to
	}
}
