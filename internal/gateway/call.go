package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belay-run/belay/internal/httpio"
	"github.com/belay-run/belay/internal/rawjson"
	"github.com/belay-run/belay/internal/secret"
	"github.com/belay-run/belay/internal/spend"
)

// call is a request to a model.
type call struct {
	*exchange
	api   string // of the route: [OpenAI] or [Anthropic]
	rules Rules
	up    Upstream

	asked  asked
	extra  bool   // the usage chunk was asked for here, not by the client
	sent   []byte // the request as it goes to the provider
	record spend.Call
	out    spend.Outcome
	entry  *spend.Entry
}

// asked is what is read of a request.
type asked struct {
	doc     *document
	alias   string
	stream  bool
	tools   bool
	output  int // the cap that it names, for all choices together; 0 for none
	choices int
}

func newCall(x *exchange, api string) *call {
	b := x.grant.Binding
	return &call{exchange: x, api: api, record: spend.Call{ID: x.id, Tenant: b.Tenant, Job: b.Job, Agent: b.Agent, Plugin: b.Plugin,
		Tool: b.Tool, Function: b.Function, Step: b.Step, Purpose: b.Purpose, API: api, Route: routeOf(x.r.URL.Path)}}
}

// serve answers a call. However it ends, the ledger has it.
func (c *call) serve() {
	switch refusal := c.prepare(); {
	case refusal != nil && c.entry != nil:
		c.fail(refusal)
		return
	case refusal != nil:
		c.refuse(refusal)
		return
	}
	defer func() {
		if c.out.Status == 0 && c.out.Why == "" {
			c.out.Why = "the gateway failed"
		}
		c.entry.End(c.out) // counts only when nothing else ended it, so after a panic
	}()
	if c.up.API == Scripted {
		c.script()
		return
	}
	c.forward()
}

// refuse answers that a call is not made, and records it.
func (c *call) refuse(r *Refusal) {
	c.out.Status, c.out.Why, c.out.Took = r.Status, r.Reason, time.Since(c.began)
	c.g.cfg.Ledger.Refused(c.record, c.out)
	c.exchange.refuse(r)
}

// fail answers a call that was begun and brought nothing from a provider.
func (c *call) fail(r *Refusal) {
	c.end(r.Status, r.Reason)
	c.exchange.refuse(r)
}

// end charges the call.
func (c *call) end(status int, why string) {
	c.out.Status, c.out.Why, c.out.Took = status, why, time.Since(c.began)
	c.entry.End(c.out)
}

// prepare does all that comes before a model is asked.
func (c *call) prepare() *Refusal {
	if refusal := c.granted(); refusal != nil {
		return refusal
	}
	c.rules = c.g.cfg.Rules(c.grant.Tenant)
	if c.rules.MaxRequest <= 0 {
		c.rules.MaxRequest = DefaultMaxRequest
	}
	body, refusal := c.body()
	if refusal != nil {
		return refusal
	}
	body, names, refusal := c.mask(body)
	if refusal != nil {
		return refusal
	}
	if refusal := c.read(body); refusal != nil {
		return refusal
	}
	if refusal := c.find(); refusal != nil {
		return refusal
	}
	if len(names) > 0 {
		which := strings.Join(names, ", ")
		if c.rules.Secrets == RefuseSecrets {
			return &Refusal{http.StatusBadRequest, "the request has a secret of the tenant in it: " + which}
		}
		c.out.Verdicts = append(c.out.Verdicts, "secrets masked: "+which)
	}
	if refusal := c.begin(); refusal != nil {
		return refusal
	}
	if c.rules.RecordTexts {
		c.out.Request = c.sent
	}
	return nil
}

// body reads the request's body.
func (c *call) body() ([]byte, *Refusal) {
	body, refusal := httpio.ReadAll(c.w, c.r, c.rules.MaxRequest, c.g.bodyTime)
	switch {
	case refusal == nil && len(body) == 0:
		return nil, &Refusal{http.StatusBadRequest, "the request has no body"}
	case refusal == nil:
		return body, nil
	case c.grant.life.Err() != nil:
		return nil, c.told("read the request", c.grant.life.Err())
	}
	r := &Refusal{refusal.Status, refusal.Detail}
	if r.Status == http.StatusUnprocessableEntity {
		r.Status = http.StatusBadRequest // as the vendors have it
	}
	if refusal.Hint != "" {
		r.Reason += ": " + refusal.Hint
	}
	return nil, r
}

// mask puts the names of secrets in their places, and gives the names. In what goes to
// the provider beside the body, a secret cannot be masked: the request is refused.
func (c *call) mask(body []byte) ([]byte, []string, *Refusal) {
	if c.rules.Secrets == PassSecrets {
		return body, nil, nil
	}
	scanner, err := c.g.cfg.Scanner(c.r.Context(), c.grant.Tenant)
	if refusal := c.told("look for secrets in the request", err); refusal != nil {
		return nil, nil, refusal
	}
	if scanner == nil {
		return body, nil, nil
	}
	var around strings.Builder
	around.WriteString(c.r.URL.RawQuery)
	if said, err := url.QueryUnescape(c.r.URL.RawQuery); err == nil && said != c.r.URL.RawQuery { // however it was encoded
		around.WriteString("\n" + said)
	}
	for key, values := range c.r.Header {
		if passesOn(key) {
			around.WriteString("\n" + key + ": " + strings.Join(values, "\n"))
		}
	}
	text := around.String()
	if masked := scanner.Mask(text); masked != text { // single lines of secrets too
		names := masksIn(scanner, []byte(text), []byte(masked))
		return nil, nil, &Refusal{http.StatusBadRequest, "a header or the query of the request has a secret of the tenant in it: " + strings.Join(names, ", ")}
	}
	masked := scanner.MaskJSON(body)
	if len(masked) == len(body) && &masked[0] == &body[0] {
		return body, nil, nil
	}
	return masked, masksIn(scanner, body, masked), nil
}

// masksIn finds the secrets that were masked. The scanner's findings do not have all:
// single lines of longer secrets are masked too.
func masksIn(s *secret.Scanner, before, after []byte) []string {
	count := func(text []byte) map[string]int {
		out := map[string]int{}
		for _, part := range strings.Split(string(text), "[secret ")[1:] {
			if name, _, ok := strings.Cut(part, "]"); ok {
				out[name]++
			}
		}
		return out
	}
	was, is := count(before), count(after)
	return slices.DeleteFunc(s.Names(), func(name string) bool { return is[name] <= was[name] })
}

// otherModels are keys by which providers take models that are asked instead when the
// first cannot answer. What those are, and cost, nobody would have looked at.
var otherModels = []string{"models", "fallbacks", "route"}

// read finds out what is asked. The known keys are those that are read or set here, so
// no other spelling of them may get past.
func (c *call) read(body []byte) *Refusal {
	bad := func(format string, args ...any) *Refusal {
		return &Refusal{http.StatusBadRequest, fmt.Sprintf(format, args...)}
	}
	doc, err := parse(body)
	if err != nil {
		return bad("%v", err)
	}
	if name := doc.misspelt(append(slices.Clip(otherModels), "model", "stream", "stream_options", "max_tokens", "max_completion_tokens", "n")...); name != "" {
		return bad("the body has the key %s in another spelling: write it in small letters", name)
	}
	for _, name := range otherModels {
		if doc.value(name) != nil {
			return bad("the body has %s, by which a provider may ask other models: the gateway lets a request ask the one that model names", name)
		}
	}
	a := asked{doc: doc, choices: 1, tools: doc.value("tools") != nil}
	if json.Unmarshal(doc.value("model"), &a.alias) != nil || a.alias == "" || len(a.alias) > 256 {
		return bad("the body names no model: give model, a text of at most 256 bytes")
	}
	c.record.Alias = a.alias
	switch v := string(doc.value("stream")); v {
	case "true":
		a.stream = true
	case "false", "":
	default:
		return bad("stream is neither true nor false")
	}
	c.record.Stream = a.stream
	capFields := []string{"max_tokens"}
	if c.api == OpenAI {
		capFields = append(capFields, "max_completion_tokens")
		if v := doc.value("n"); v != nil {
			n, err := strconv.Atoi(string(v))
			if err != nil || n < 1 || n > 128 {
				return bad("n is no whole number from 1 to 128")
			}
			a.choices = n
		}
	}
	uncapped := false
	for _, name := range capFields {
		v := doc.value(name)
		if v == nil {
			continue
		}
		n, err := strconv.Atoi(string(v))
		if err != nil || n > 1<<30 {
			return bad("%s is no whole number", name)
		}
		// Servers with OpenAI's API take 0 and less for no cap, and differ on which of
		// two caps counts.
		uncapped = uncapped || n <= 0
		a.output = max(a.output, n*a.choices)
	}
	if uncapped {
		a.output = 0
	}
	c.asked = a
	return nil
}

// find finds the model, and whether this route can ask it.
func (c *call) find() *Refusal {
	up, err := c.g.cfg.Upstream(c.r.Context(), c.grant.Tenant, c.asked.alias)
	if refusal := c.told("find the model", err); refusal != nil {
		return refusal
	}
	c.up = up
	if c.up.Timeout <= 0 {
		c.up.Timeout = DefaultTimeout
	}
	c.record.API, c.record.Provider, c.record.Model = up.API, up.Provider, up.Model
	if up.Alias != "" {
		c.record.Alias = up.Alias
	}
	if up.API == c.api || up.API == Scripted {
		return nil
	}
	_, anthropic, openai := c.g.Addresses()
	right := "OpenAI's API: ask it with the base URL " + openai
	if up.API == Anthropic {
		right = "Anthropic's API: ask it with the base URL " + anthropic
	}
	return &Refusal{http.StatusBadRequest, fmt.Sprintf("the provider of model %s speaks %s; the gateway does not translate", c.record.Alias, right)}
}

// begin reserves what the call may cost, and makes the request that is sent.
func (c *call) begin() *Refusal {
	doc, counts := c.asked.doc, c.r.URL.Path == countPath
	var need spend.Need // a count of tokens costs nothing
	if !counts {
		need = spend.Need{Input: inputAtMost(doc.raw, c.asked.tools), Output: c.asked.output}
	}
	entry, err := c.g.cfg.Ledger.Begin(c.record, need)
	var over *spend.OverBudget
	switch {
	case errors.As(err, &over):
		return &Refusal{http.StatusPaymentRequired, over.Error()}
	case err != nil:
		return &Refusal{http.StatusServiceUnavailable, err.Error()}
	}
	c.entry = entry
	doc.set("model", string(rawjson.Must(c.up.Model)))
	if most := entry.Cap(); most > 0 && !counts {
		if most < c.asked.choices {
			return &Refusal{http.StatusPaymentRequired, fmt.Sprintf("the budgets leave %d tokens of output, too few for %d choices", most, c.asked.choices)}
		}
		for _, field := range c.capFields() {
			doc.set(field, strconv.Itoa(most/c.asked.choices))
		}
	}
	if c.api == OpenAI && c.asked.stream {
		c.extra = wantUsage(doc)
	}
	c.sent = doc.bytes()
	return nil
}

// capFields are the keys that a cap is given to: those that are there, for one of them
// is 0 or less or null, or else the one that the provider knows.
func (c *call) capFields() []string {
	if c.api == Anthropic {
		return []string{"max_tokens"}
	}
	there := slices.DeleteFunc([]string{"max_tokens", "max_completion_tokens"}, func(name string) bool { return c.asked.doc.field(name) == nil })
	switch {
	case len(there) > 0:
		return there
	case c.up.CapField != "":
		return []string{c.up.CapField}
	}
	return []string{"max_completion_tokens"}
}

// wantUsage makes a stream end with the usage, and says whether it would not have.
func wantUsage(doc *document) bool {
	const wanted = `{"include_usage":true}`
	raw := doc.value("stream_options")
	if raw == nil {
		doc.set("stream_options", wanted)
		return true
	}
	options, err := parse(raw)
	if err != nil || string(options.value("include_usage")) == "true" {
		return false
	}
	options.set("include_usage", "true")
	doc.set("stream_options", string(options.bytes()))
	return true
}

// cause says why a call that was stopped was.
func (c *call) cause(ctx context.Context) string {
	switch err := context.Cause(ctx); {
	case err == nil:
		return ""
	case errors.Is(err, errSilent), errors.Is(err, errEnded), errors.Is(err, errStopped):
		return err.Error()
	}
	return "the caller went away"
}
