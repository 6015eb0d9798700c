package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/belay-run/belay/internal/access"
	"github.com/belay-run/belay/internal/approval"
	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/policy"
)

// ApprovalList are approvals of a tenant.
type ApprovalList struct {
	Approvals []Approval `json:"approvals" doc:"Those that wait, the oldest first, then the others, the newest first. Arguments and values stand only in the approval by itself."`
}

// DecisionOrder decides an approval.
type DecisionOrder struct {
	Decision string          `json:"decision" enum:"approve,deny"`
	Note     string          `json:"note,omitempty" maxLength:"4096" doc:"For the record, and for whoever asks why."`
	Action   approval.Action `json:"action,omitempty" enum:"retry,fail,result" doc:"For a call of which nobody knows whether it was made: make it again, treat it as failed, or take the result given here."`
	Result   json.RawMessage `json:"result,omitempty" doc:"With the action result: what the call gave."`
	// Digest is that of the approval as the decider saw it.
	Digest string `json:"digest,omitempty" maxLength:"64" doc:"The digest of the approval that was shown: the decision counts for nothing else."`
}

type approvalFilter struct {
	State string `query:"state" enum:"waiting,decided,all" default:"waiting"`
	Job   string `query:"job" maxLength:"128"`
	Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"200"`
}

// ApprovalPath names an approval in a path.
type ApprovalPath struct {
	ID string `path:"id" maxLength:"64"`
}

type decideInput struct {
	ApprovalPath
	Body DecisionOrder
}

func (s *Server) approvalRoutes(api huma.API) {
	huma.Register(api, route(access.Viewer, http.MethodGet, "/v1/approvals", "listApprovals", "approvals", "List what waits for a person, or did", ""), s.listApprovals)
	huma.Register(api, feedRoute(api), s.feed)
	huma.Register(api, route(access.Viewer, http.MethodGet, "/v1/approvals/{id}", "getApproval", "approvals", "Show what is asked", "", http.StatusNotFound), s.getApproval)
	huma.Register(api, route(access.Approver, http.MethodPost, "/v1/approvals/{id}", "decideApproval", "approvals", "Decide",
		"The first decision counts; a later one is told who was first (409, already_decided). Some approvals are for admins only.", http.StatusNotFound, http.StatusConflict), s.decide)
}

func (s *Server) listApprovals(ctx context.Context, in *approvalFilter) (*body[ApprovalList], error) {
	all, err := s.service.Approvals.Approvals(ctx, callerOf(ctx).Tenant,
		ApprovalFilter{Waiting: in.State != "decided", Decided: in.State != "waiting", Job: in.Job, Limit: in.Limit})
	if err != nil {
		return nil, s.failed(ctx, "list approvals", err)
	}
	out := make([]Approval, len(all))
	for i, a := range all {
		out[i] = a.brief()
	}
	return &body[ApprovalList]{ApprovalList{out}}, nil
}

// brief is the approval without what may be large.
func (a Approval) brief() Approval {
	a.Request.Arguments, a.Request.Value, a.Request.Before = nil, nil, nil
	return a
}

func (s *Server) getApproval(ctx context.Context, in *ApprovalPath) (*body[Approval], error) {
	a, err := s.service.Approvals.Approval(ctx, callerOf(ctx).Tenant, in.ID)
	if err != nil {
		return nil, s.failed(ctx, "show an approval", err)
	}
	return &body[Approval]{a}, nil
}

func (s *Server) decide(ctx context.Context, in *decideInput) (*body[Approval], error) {
	c := callerOf(ctx)
	a, err := s.service.Approvals.Approval(ctx, c.Tenant, in.ID)
	if err != nil {
		return nil, s.failed(ctx, "decide", err)
	}
	seen := a.Digest
	if in.Body.Digest != "" {
		if err := seen.UnmarshalText([]byte(in.Body.Digest)); err != nil {
			return nil, Refuse(Invalid, "the digest is none: "+err.Error(), "send that of the approval that was shown")
		}
	}
	answer := approval.Answer{Yes: in.Body.Decision == "approve", Note: in.Body.Note, By: c.Name, Action: in.Body.Action, Result: in.Body.Result}
	switch {
	case a.Request.Role == policy.Admin && !c.Role.Allows(access.Admin):
		return nil, Refuse(Forbidden, "only an admin decides this, and the token's role is "+c.Role.String(), "ask an admin")
	case a.State != Waiting:
		return nil, tooLate(&a)
	case seen != a.Digest:
		return nil, s.failed(ctx, "decide", job.ErrOtherQuestion)
	case !answer.Yes && answer.Action != "" && answer.Action != approval.Fail:
		return nil, Refuse(Invalid, fmt.Sprintf("deny and the action %s do not go together", answer.Action), "approve with an action, or deny without one")
	}
	if err := a.Request.Check(answer); err != nil {
		return nil, Refuse(Invalid, err.Error(), "")
	}
	err = s.service.Approvals.Decide(ctx, c, in.ID, seen, answer)
	now, readErr := s.service.Approvals.Approval(ctx, c.Tenant, in.ID)
	lost := errors.Is(err, job.ErrDecided) || errors.Is(err, job.ErrExpired) || errors.Is(err, job.ErrEnded)
	switch {
	case lost && readErr == nil && now.State != Waiting:
		return nil, tooLate(&now)
	case err != nil:
		return nil, s.failed(ctx, "decide", err)
	case readErr != nil: // it is decided all the same
		s.log.Error("cannot show an approval that was just decided", "approval", in.ID, "error", readErr)
		now = a
		now.State, now.Decided = Denied, &Decided{By: c.Name, At: s.cfg.Clock(), Note: answer.Note, Action: answer.Action}
		if answer.Yes {
			now.State = Approved
		}
	}
	return &body[Approval]{now}, nil
}

// tooLate says how an approval ended before this decision.
func tooLate(a *Approval) *Problem {
	switch {
	case a.State == Expired:
		return Refuse(Conflict, "the time to decide this has passed, which counts as no", "")
	case a.State == Closed:
		return Refuse(Conflict, "this is asked no more: its job has ended, or a policy was enforced", "")
	case a.Decided == nil:
		return Refuse(AlreadyDecided, fmt.Sprintf("this is %s already", a.State), "")
	}
	p := Refuse(AlreadyDecided, fmt.Sprintf("%s has %s this already, at %s", a.Decided.By, a.State, a.Decided.At.UTC().Format("2006-01-02 15:04:05 UTC")), "")
	p.Decided = a.Decided
	return p
}
