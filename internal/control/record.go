package control

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/belay-run/belay/internal/access"
	"github.com/belay-run/belay/internal/audit"
)

// AuditEntries are entries of a tenant's record.
type AuditEntries struct {
	Entries []audit.Entry `json:"entries" doc:"In order."`
	Head    audit.Head    `json:"head" doc:"Where the record ends by now."`
}

type auditInput struct {
	After int64 `query:"after" minimum:"-1" default:"-1" doc:"Give what comes after this entry; left out, the newest entries."`
	Limit int   `query:"limit" minimum:"1" maximum:"1000" default:"100"`
}

type verifyInput struct {
	Head string `query:"head" maxLength:"100" doc:"A head that was kept, <number>:<hash> or its hash alone: the record must come by it."`
}

func (s *Server) auditRoutes(api huma.API) {
	huma.Register(api, route(access.Viewer, http.MethodGet, "/v1/audit", "audit", "audit", "Read the audit record",
		"Who changed what, as a chain of hashes. The hash of an entry is over the bytes of its data as they come."), s.auditEntries)
	huma.Register(api, route(access.Viewer, http.MethodGet, "/v1/audit/verify", "verifyAudit", "audit", "Check the whole audit record",
		"Status 200 whether it is whole or not; see ok."), s.verifyAudit)
}

func (s *Server) auditEntries(ctx context.Context, in *auditInput) (*body[AuditEntries], error) {
	tenant := callerOf(ctx).Tenant
	head, err := s.service.Audit.AuditHead(ctx, tenant)
	if err != nil {
		return nil, s.failed(ctx, "read the audit record", err)
	}
	after := in.After
	if after < 0 {
		after = max(0, head.Seq-int64(in.Limit))
	}
	all, err := s.service.Audit.AuditEntries(ctx, tenant, after, in.Limit)
	if err != nil {
		return nil, s.failed(ctx, "read the audit record", err)
	}
	return &body[AuditEntries]{AuditEntries{Entries: list(all), Head: head}}, nil
}

func (s *Server) verifyAudit(ctx context.Context, in *verifyInput) (*body[audit.Report], error) {
	var kept []audit.Head
	if in.Head != "" {
		h, err := audit.ParseHead(in.Head)
		if err != nil {
			return nil, Refuse(Invalid, err.Error(), "")
		}
		kept = append(kept, h)
	}
	r, err := audit.Check(ctx, s.service.Audit, callerOf(ctx).Tenant, kept...)
	if err != nil {
		return nil, s.failed(ctx, "check the audit record", err)
	}
	return &body[audit.Report]{r}, nil
}
