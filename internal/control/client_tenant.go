package control

import (
	"context"
	"net/http"
	"net/url"

	"github.com/belay-run/belay/internal/policy"
)

// Plugins lists the tenant's plugins in the order in which their hooks run.
func (c *Client) Plugins(ctx context.Context) ([]Plugin, error) {
	var out PluginList
	err := c.get(ctx, "/v1/plugins", nil, &out)
	return out.Plugins, err
}

// InstallPlugin installs a plugin, or updates the one that o names.
func (c *Client) InstallPlugin(ctx context.Context, o PluginOrder) (out Installation, err error) {
	path := "/v1/plugins"
	if o.Name != "" {
		path += "/" + seg(o.Name) + "/update"
	}
	return out, c.post(ctx, path, o, &out)
}

// RemovePlugin removes a plugin.
func (c *Client) RemovePlugin(ctx context.Context, name string, force bool) error {
	q := url.Values{}
	if force {
		q.Set("force", "true")
	}
	return c.ask(ctx, http.MethodDelete, "/v1/plugins/"+seg(name), q, nil, nil)
}

// MovePlugin puts a plugin before another, or last when before is "".
func (c *Client) MovePlugin(ctx context.Context, name, before string) error {
	return c.post(ctx, "/v1/plugins/"+seg(name)+"/order", MoveOrder{before}, nil)
}

// GrantModel lets a plugin call the model, or no more.
func (c *Client) GrantModel(ctx context.Context, name string, granted bool) error {
	return c.post(ctx, "/v1/plugins/"+seg(name)+"/grants/model", GrantOrder{granted}, nil)
}

// Hooks says which hook sees what.
func (c *Client) Hooks(ctx context.Context, q HookQuery) ([]Hook, error) {
	var out HookList
	err := c.get(ctx, "/v1/hooks", set(url.Values{}, "event", q.Event, "tool", q.Tool, "agent", q.Agent), &out)
	return out.Hooks, err
}

// ShadowReport says what hooks that only look on would have changed in the newest
// jobs; jobs 0 is the server's number.
func (c *Client) ShadowReport(ctx context.Context, jobs int) (out ShadowReport, err error) {
	return out, c.get(ctx, "/v1/hooks/shadow", set(url.Values{}, "jobs", number(jobs)), &out)
}

// Policy gives the current policy.
func (c *Client) Policy(ctx context.Context) (out Policy, err error) {
	return out, c.get(ctx, "/v1/policy", nil, &out)
}

// PolicyVersion gives a version of the policy.
func (c *Client) PolicyVersion(ctx context.Context, version string) (out Policy, err error) {
	return out, c.get(ctx, "/v1/policy/versions/"+seg(version), nil, &out)
}

// PolicyVersions lists the policies that were applied, the newest first.
func (c *Client) PolicyVersions(ctx context.Context) ([]Policy, error) {
	var out PolicyList
	err := c.get(ctx, "/v1/policy/versions", nil, &out)
	return out.Policies, err
}

// ApplyPolicy makes a policy the current one.
func (c *Client) ApplyPolicy(ctx context.Context, o PolicyOrder) (out PolicyChange, err error) {
	return out, c.post(ctx, "/v1/policy", o, &out)
}

// LintPolicy checks a policy.
func (c *Client) LintPolicy(ctx context.Context, text string) (out LintReport, err error) {
	return out, c.post(ctx, "/v1/policy/lint", LintOrder{text}, &out)
}

// ExplainCall says what the policy decides about a call, stage by stage.
func (c *Client) ExplainCall(ctx context.Context, o ExplainOrder) ([]policy.Stage, error) {
	var out Explanation
	err := c.post(ctx, "/v1/policy/explain", o, &out)
	return out.Stages, err
}
