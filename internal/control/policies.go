package control

import (
	"context"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/belay-run/belay/internal/access"
	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/policy"
)

// policyFile is the name under which findings speak of a policy that came as a text.
const policyFile = "policy.yaml"

// PolicyList are the policies of a tenant.
type PolicyList struct {
	Policies []Policy `json:"policies" doc:"All that were applied, the newest first, without their texts."`
}

// LintOrder is a policy to be checked.
type LintOrder struct {
	Text string `json:"text" maxLength:"1048576" doc:"The policy's YAML."`
}

// LintReport says what is wrong with a policy.
type LintReport struct {
	OK       bool              `json:"ok" doc:"It can be applied."`
	Version  string            `json:"version,omitempty" doc:"The version that it would be."`
	Findings []finding.Finding `json:"findings"`
}

// ExplainOrder is a call to be explained.
type ExplainOrder struct {
	Call ExplainQuery `json:"call"`
	Text *string      `json:"text,omitempty" maxLength:"1048576" doc:"A policy's YAML to explain the call by; left out, the current policy."`
}

// Explanation is every stage of a decision.
type Explanation struct {
	Stages []policy.Stage `json:"stages" doc:"In order; the last is the decision."`
}

type policyVersion struct {
	Version string `path:"version" maxLength:"128"`
}

func (s *Server) policyRoutes(api huma.API) {
	const tag = "policy"
	huma.Register(api, route(access.Viewer, http.MethodGet, "/v1/policy", "getPolicy", tag, "Show the current policy", ""), s.getPolicy)
	huma.Register(api, route(access.Admin, http.MethodPost, "/v1/policy", "applyPolicy", tag, "Apply a policy",
		"New jobs go by it; a running job keeps the version it started with, unless enforce_now is set.", http.StatusConflict), s.applyPolicy)
	huma.Register(api, route(access.Viewer, http.MethodPost, "/v1/policy/lint", "lintPolicy", tag, "Check a policy", "Changes nothing."), s.lintPolicy)
	huma.Register(api, route(access.Viewer, http.MethodPost, "/v1/policy/explain", "explainPolicy", tag, "Say what the policy decides about a call", "Makes no call and asks no hook."), s.explainPolicy)
	huma.Register(api, route(access.Viewer, http.MethodGet, "/v1/policy/versions", "listPolicies", tag, "List the policies that were applied", ""), s.listPolicies)
	huma.Register(api, route(access.Viewer, http.MethodGet, "/v1/policy/versions/{version}", "getPolicyVersion", tag, "Show a version of the policy", "", http.StatusNotFound), s.getPolicyVersion)
}

func (s *Server) getPolicy(ctx context.Context, _ *struct{}) (*body[Policy], error) {
	p, err := s.service.Policies.Policy(ctx, callerOf(ctx).Tenant)
	if err != nil {
		return nil, s.failed(ctx, "show the policy", err)
	}
	return &body[Policy]{p}, nil
}

func (s *Server) getPolicyVersion(ctx context.Context, in *policyVersion) (*body[Policy], error) {
	p, err := s.service.Policies.PolicyVersion(ctx, callerOf(ctx).Tenant, in.Version)
	if err != nil {
		return nil, s.failed(ctx, "show a policy", err)
	}
	return &body[Policy]{p}, nil
}

func (s *Server) listPolicies(ctx context.Context, _ *struct{}) (*body[PolicyList], error) {
	all, err := s.service.Policies.PolicyVersions(ctx, callerOf(ctx).Tenant)
	if err != nil {
		return nil, s.failed(ctx, "list the policies", err)
	}
	return &body[PolicyList]{PolicyList{list(all)}}, nil
}

// read reads a policy that came as a text; an empty one is the default.
func readPolicy(text string) (*policy.Policy, []finding.Finding) {
	if strings.TrimSpace(text) == "" {
		return policy.Default(), nil
	}
	return policy.Parse(policyFile, []byte(text))
}

func (s *Server) applyPolicy(ctx context.Context, in *struct{ Body PolicyOrder }) (*body[PolicyChange], error) {
	_, found := readPolicy(in.Body.Text)
	if finding.HasErrors(found) {
		return nil, RefuseFindings("the policy cannot be applied", found)
	}
	if strings.TrimSpace(in.Body.Text) == "" {
		in.Body.Text = ""
	}
	done, err := s.service.Policies.ApplyPolicy(ctx, callerOf(ctx), in.Body)
	if err != nil {
		return nil, s.failed(ctx, "apply the policy", err)
	}
	done.Findings = finding.Clean(found, done.Findings)
	return &body[PolicyChange]{done}, nil
}

func (s *Server) lintPolicy(_ context.Context, in *struct{ Body LintOrder }) (*body[LintReport], error) {
	p, found := readPolicy(in.Body.Text)
	return &body[LintReport]{LintReport{OK: !finding.HasErrors(found), Version: p.Version(), Findings: list(found)}}, nil
}

func (s *Server) explainPolicy(ctx context.Context, in *struct{ Body ExplainOrder }) (*body[Explanation], error) {
	var p *policy.Policy
	if in.Body.Text != nil {
		var found []finding.Finding
		if p, found = readPolicy(*in.Body.Text); finding.HasErrors(found) {
			return nil, RefuseFindings("the call cannot be explained by this policy", found)
		}
	}
	stages, err := s.service.Policies.ExplainCall(ctx, callerOf(ctx).Tenant, p, in.Body.Call)
	if err != nil {
		return nil, s.failed(ctx, "explain a call", err)
	}
	return &body[Explanation]{Explanation{list(stages)}}, nil
}
