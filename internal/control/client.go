package control

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/belay-run/belay/internal/access"
	"github.com/belay-run/belay/internal/audit"
	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/rawjson"
)

// Client asks a server of this package. A refusal is a [Problem]; when nobody
// answers it is [ErrNoOwner].
type Client struct {
	base   string
	token  string
	tenant string
	http   *http.Client
}

// NewClient returns a client. address is host:port or a URL; tenant is "" for that
// of the token.
func NewClient(address string, token access.Secret, tenant string) *Client {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	// No proxy: an address of this machine must not leave it, nor the token.
	transport := &http.Transport{MaxIdleConnsPerHost: 2, IdleConnTimeout: 30 * time.Second, ResponseHeaderTimeout: 10 * time.Minute}
	return &Client{base: strings.TrimSuffix(address, "/"), token: token.Reveal(), tenant: tenant, http: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Close lets go of idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

func (c *Client) request(ctx context.Context, method, path string, query url.Values, in any) (*http.Response, error) {
	var body io.Reader
	if in != nil {
		raw, err := rawjson.Encode(in)
		if err != nil {
			return nil, fmt.Errorf("write a request: %w", err)
		}
		body = bytes.NewReader(raw)
	}
	target := c.base + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil {
		return nil, fmt.Errorf("the address of the server is none: %w", err)
	}
	r.Header.Set("Authorization", "Bearer "+c.token)
	if c.tenant != "" {
		r.Header.Set(tenantHeader, c.tenant)
	}
	if in != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(r)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("%w: nobody listens at %s; start one with `belay serve`", ErrNoOwner, c.base)
	case err != nil:
		return nil, fmt.Errorf("ask %s: %w", c.base, err)
	case resp.StatusCode >= http.StatusMultipleChoices:
		return nil, errors.Join(refusal(resp), resp.Body.Close())
	}
	return resp, nil
}

const maxProblem = 4 << 20

// refusal reads why a server did not do something.
func refusal(resp *http.Response) error {
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
	p := &Problem{}
	if err != nil || json.Unmarshal(raw, p) != nil || p.Detail == "" {
		return problemOf(resp.StatusCode, Broken, "the server answered "+resp.Status, "is it a belay that listens there?")
	}
	return p
}

// ask makes a request and reads the answer into out, which may be nil.
func (c *Client) ask(ctx context.Context, method, path string, query url.Values, in, out any) (err error) {
	resp, err := c.request(ctx, method, path, query, in)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return fmt.Errorf("read the answer of %s: %w", c.base, err)
	}
	return nil
}

func (c *Client) get(ctx context.Context, path string, query url.Values, out any) error {
	return c.ask(ctx, http.MethodGet, path, query, nil, out)
}

func (c *Client) post(ctx context.Context, path string, in, out any) error {
	return c.ask(ctx, http.MethodPost, path, nil, in, out)
}

// seg is a segment of a path.
func seg(s string) string { return url.PathEscape(s) }

// set sets what is not empty.
func set(q url.Values, pairs ...string) url.Values {
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	return q
}

func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// Health says how the server is.
func (c *Client) Health(ctx context.Context) (out Health, err error) {
	return out, c.get(ctx, healthPath, nil, &out)
}

// Whoami says whose the token is.
func (c *Client) Whoami(ctx context.Context) (out Whoami, err error) {
	return out, c.get(ctx, "/v1/whoami", nil, &out)
}

// StartJob starts a job and gives its id.
func (c *Client) StartJob(ctx context.Context, o JobOrder) (string, error) {
	var out StartedJob
	err := c.post(ctx, "/v1/jobs", o, &out)
	return out.ID, err
}

// Jobs lists jobs, the newest first; limit 0 is the server's.
func (c *Client) Jobs(ctx context.Context, agent string, limit int, states ...job.State) ([]Job, error) {
	q := set(url.Values{}, "agent", agent, "limit", number(limit))
	words := make([]string, len(states))
	for i, s := range states {
		words[i] = string(s)
	}
	var out JobList
	err := c.get(ctx, "/v1/jobs", set(q, "state", strings.Join(words, ",")), &out)
	return out.Jobs, err
}

// Job gives a job with what happened in it after an entry, 0 for all.
func (c *Client) Job(ctx context.Context, id string, after int64) (out JobHistory, err error) {
	return out, c.get(ctx, "/v1/jobs/"+seg(id), set(url.Values{}, "after", number(int(after))), &out)
}

// CancelJob asks for the end of a job.
func (c *Client) CancelJob(ctx context.Context, id, reason string) error {
	return c.post(ctx, "/v1/jobs/"+seg(id)+"/cancel", CancelOrder{reason}, nil)
}

// ReplayJob runs a job's code against its history.
func (c *Client) ReplayJob(ctx context.Context, id string) (out job.Report, err error) {
	return out, c.post(ctx, "/v1/jobs/"+seg(id)+"/replay", nil, &out)
}

// Approvals lists approvals: "waiting", "decided" or "all"; jobID "" is any.
func (c *Client) Approvals(ctx context.Context, state, jobID string, limit int) ([]Approval, error) {
	var out ApprovalList
	err := c.get(ctx, "/v1/approvals", set(url.Values{}, "state", state, "job", jobID, "limit", number(limit)), &out)
	return out.Approvals, err
}

// Approval gives an approval with all that is asked.
func (c *Client) Approval(ctx context.Context, id string) (out Approval, err error) {
	return out, c.get(ctx, "/v1/approvals/"+seg(id), nil, &out)
}

// Decide decides an approval. Set the order's digest to that of what was shown.
func (c *Client) Decide(ctx context.Context, id string, o DecisionOrder) (out Approval, err error) {
	return out, c.post(ctx, "/v1/approvals/"+seg(id), o, &out)
}

// ApprovalEvent is an event of the feed of approvals.
type ApprovalEvent struct {
	Name     string // waiting, decided or ready
	Approval Approval
}

// FollowApprovals calls tell with each event of the feed, until ctx ends, tell gives
// an error, or the server ends the feed, which is an error too.
func (c *Client) FollowApprovals(ctx context.Context, tell func(ApprovalEvent) error) (err error) {
	resp, err := c.request(ctx, http.MethodGet, "/v1/approvals/feed", nil, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	lines := bufio.NewReader(resp.Body)
	name, data := "", ""
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("the feed of %s broke off: %w; connect again", c.base, err)
		}
		switch line = strings.TrimRight(line, "\r\n"); {
		case strings.HasPrefix(line, "event: "):
			name = line[len("event: "):]
		case strings.HasPrefix(line, "data: "):
			data = line[len("data: "):]
		case line == "" && name != "":
			if err := told(name, []byte(data), tell); err != nil {
				return err
			}
			name, data = "", ""
		}
	}
}

func told(name string, data []byte, tell func(ApprovalEvent) error) error {
	e := ApprovalEvent{Name: name}
	switch name {
	case feedError:
		p := &Problem{}
		if err := json.Unmarshal(data, p); err != nil {
			return fmt.Errorf("read the feed of approvals: %w", err)
		}
		return p
	case feedWaiting, feedDecided:
		if err := json.Unmarshal(data, &e.Approval); err != nil {
			return fmt.Errorf("read the feed of approvals: %w", err)
		}
	case feedReady:
	default:
		return nil // of a later server
	}
	return tell(e)
}

// Audit gives entries of the audit record after one, or the newest when after is
// less than 0.
func (c *Client) Audit(ctx context.Context, after int64, limit int) (out AuditEntries, err error) {
	q := set(url.Values{}, "limit", number(limit))
	if after >= 0 {
		q.Set("after", strconv.FormatInt(after, 10))
	}
	return out, c.get(ctx, "/v1/audit", q, &out)
}

// VerifyAudit checks the audit record; head may be "".
func (c *Client) VerifyAudit(ctx context.Context, head string) (out audit.Report, err error) {
	return out, c.get(ctx, "/v1/audit/verify", set(url.Values{}, "head", head), &out)
}

// CreateToken makes a token.
func (c *Client) CreateToken(ctx context.Context, o TokenOrder) (out IssuedToken, err error) {
	return out, c.post(ctx, "/v1/tokens", o, &out)
}

// Tokens lists the tenant's tokens.
func (c *Client) Tokens(ctx context.Context) ([]access.Token, error) {
	var out TokenList
	err := c.get(ctx, "/v1/tokens", nil, &out)
	return out.Tokens, err
}

// RevokeToken ends a token.
func (c *Client) RevokeToken(ctx context.Context, name string) (out access.Token, err error) {
	return out, c.ask(ctx, http.MethodDelete, "/v1/tokens/"+seg(name), nil, nil, &out)
}
