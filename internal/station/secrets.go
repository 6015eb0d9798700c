package station

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/belay-run/belay/internal/approval"
	"github.com/belay-run/belay/internal/control"
	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/rawjson"
	"github.com/belay-run/belay/internal/secret"
	"github.com/belay-run/belay/internal/sqlstore"
)

// scanners are what finds the secrets of each tenant.
type scanners struct {
	store *sqlstore.Store // nil until the station has one: then there are no secrets
	clock func() time.Time

	mu  sync.Mutex
	of  map[string]tenantScanner
	all atomic.Pointer[[]*secret.Scanner] // of all tenants, for the log
}

type tenantScanner struct {
	*secret.Scanner
	until time.Time // when it looks for something that it no longer should; zero: never
}

// get gives a tenant's scanner, nil when the tenant has no secrets.
// [sqlstore.ErrFingerprints].
func (s *scanners) get(ctx context.Context, tenant string) (*secret.Scanner, error) {
	if s == nil {
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, there := s.of[tenant]; there && (known.until.IsZero() || s.clock().Before(known.until)) {
		return known.Scanner, nil
	}
	if s.store == nil {
		return nil, nil
	}
	delete(s.of, tenant)
	key, entries, err := s.store.SecretEntries(ctx, tenant)
	if err != nil {
		return nil, err
	}
	made := tenantScanner{Scanner: secret.NewScanner(key, entries)}
	for _, e := range entries {
		if !e.Until.IsZero() && (made.until.IsZero() || e.Until.Before(made.until)) {
			made.until = e.Until
		}
	}
	s.of[tenant] = made
	all := make([]*secret.Scanner, 0, len(s.of))
	for _, one := range s.of {
		if one.Scanner != nil {
			all = append(all, one.Scanner)
		}
	}
	s.all.Store(&all)
	return made.Scanner, nil
}

// changed says that a tenant has other secrets than before.
func (s *scanners) changed(ctx context.Context, tenant string) error {
	s.mu.Lock()
	delete(s.of, tenant)
	s.mu.Unlock()
	_, err := s.get(ctx, tenant)
	return err
}

// load gets the scanners of all tenants ready.
func (s *scanners) load(ctx context.Context) error {
	tenants, err := s.store.SecretTenants(ctx)
	for _, t := range tenants {
		_, one := s.get(ctx, t)
		err = errors.Join(err, one)
	}
	return err
}

// now gives the scanners of all tenants.
func (s *scanners) now() []*secret.Scanner {
	if all := s.all.Load(); all != nil {
		return *all
	}
	return nil
}

// mask takes a tenant's secrets out of a text that people are shown.
func (s *scanners) mask(ctx context.Context, tenant, text string) string {
	scanner, err := s.get(ctx, tenant)
	if err != nil && text != "" {
		return secret.Withheld
	}
	return scanner.Mask(text)
}

func (s *scanners) maskJSON(ctx context.Context, tenant string, raw json.RawMessage) json.RawMessage {
	scanner, err := s.get(ctx, tenant)
	if err != nil && len(raw) > 0 {
		return rawjson.Must(secret.Withheld)
	}
	return scanner.MaskJSON(raw)
}

// maskApproval takes the secrets out of what is told of an approval.
func (s *scanners) maskApproval(ctx context.Context, tenant string, a control.Approval) control.Approval {
	a.Request = s.maskRequest(ctx, tenant, a.Request)
	if a.Decided != nil {
		d := *a.Decided
		d.Note = s.mask(ctx, tenant, d.Note)
		a.Decided = &d
	}
	return a
}

// maskRequest takes the secrets out of what a person is asked. The question's digest
// stays that of what is asked.
func (s *scanners) maskRequest(ctx context.Context, tenant string, r approval.Request) approval.Request {
	r.Arguments, r.Value, r.Before = s.maskJSON(ctx, tenant, r.Arguments), s.maskJSON(ctx, tenant, r.Value), s.maskJSON(ctx, tenant, r.Before)
	reasons := make([]approval.Reason, len(r.Reasons))
	for i, why := range r.Reasons {
		why.Text, why.Note = s.mask(ctx, tenant, why.Text), s.mask(ctx, tenant, why.Note)
		reasons[i] = why
	}
	if r.Reasons != nil {
		r.Reasons = reasons
	}
	return r
}

// maskJob takes the secrets out of what is told of a job. Its output stays: it is what
// the job was for, and hooks at its end decide about it.
func (s *scanners) maskJob(ctx context.Context, j job.Job) job.Job {
	if len(j.Input) > 0 {
		j.Input = s.maskInput(ctx, j)
	}
	if j.End != nil {
		end := *j.End
		end.Reason = s.mask(ctx, j.Tenant, end.Reason)
		j.End = &end
	}
	if j.Cancel != nil {
		c := *j.Cancel
		c.Reason = s.mask(ctx, j.Tenant, c.Reason)
		j.Cancel = &c
	}
	return j
}

// maskInput masks a job's order, which is withheld as an object.
func (s *scanners) maskInput(ctx context.Context, j job.Job) json.RawMessage {
	if _, err := s.get(ctx, j.Tenant); err != nil {
		return rawjson.Must(map[string]string{"input": secret.Withheld})
	}
	return s.maskJSON(ctx, j.Tenant, j.Input)
}

func (s *scanners) maskHistory(ctx context.Context, h job.History) job.History {
	tenant := h.Job.Tenant
	h.Job = s.maskJob(ctx, h.Job)
	records := make([]job.Record, len(h.Records))
	for i, r := range h.Records {
		r.Input = s.maskJSON(ctx, tenant, r.Input)
		if r.Answer != nil {
			a := *r.Answer
			a.Value = s.maskJSON(ctx, tenant, a.Value)
			if a.Failure != nil {
				f := *a.Failure
				f.Message = s.mask(ctx, tenant, f.Message)
				a.Failure = &f
			}
			r.Answer = &a
		}
		records[i] = r
	}
	h.Records = records
	return h
}

// found tells a hook where the secrets of its tenant are in a field of its event. The
// error says why it cannot be told, and must not be asked then.
func (s *scanners) found(ctx context.Context, tenant, field string, event json.RawMessage) (json.RawMessage, error) {
	scanner, err := s.get(ctx, tenant)
	if err != nil {
		return nil, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(event, &fields); err != nil {
		return nil, err
	}
	findings, err := scanner.ScanJSON(fields[field], "/"+field)
	if err != nil {
		return nil, err
	}
	return rawjson.Encode(findings)
}

// Secrets implements [control.Secrets].
func (s *Station) Secrets(ctx context.Context, tenant string) ([]control.Secret, error) {
	all, err := s.store.Secrets(ctx, tenant)
	out := make([]control.Secret, 0, len(all))
	for _, one := range all {
		out = append(out, shownSecret(one))
	}
	return out, err
}

func shownSecret(s sqlstore.Secret) control.Secret {
	return control.Secret{Name: s.Name, Version: s.Version, Created: s.Created, Updated: s.Updated, By: s.By, Earlier: s.Earlier}
}

// SetSecret implements [control.Secrets].
func (s *Station) SetSecret(ctx context.Context, c control.Caller, o control.SecretOrder) (control.Secret, error) {
	if !utf8.ValidString(o.Value) || strings.Contains(o.Value, "\x00") {
		return control.Secret{}, control.Refuse(control.Invalid, "the value is no text, so no program can get it as a variable", "encode it, such as with base64")
	}
	made, err := s.store.SetSecret(ctx, sqlstore.SecretOrder{Tenant: c.Tenant, Name: o.Name, Value: []byte(o.Value), Rotate: o.Rotate, Keep: time.Duration(o.Keep) * time.Second, By: c.Name})
	switch {
	case errors.Is(err, sqlstore.ErrNoSecret):
		return control.Secret{}, control.Refuse(control.NotFound, err.Error(), "")
	case errors.Is(err, sqlstore.ErrSecretSet):
		return control.Secret{}, control.Refuse(control.Conflict, err.Error(), "")
	case errors.Is(err, sqlstore.ErrSecretName), errors.Is(err, secret.ErrShort), errors.Is(err, secret.ErrLong):
		return control.Secret{}, control.Refuse(control.Invalid, err.Error(), "")
	case err != nil:
		return control.Secret{}, err
	}
	return shownSecret(made), s.scanners.changed(ctx, c.Tenant)
}

// RemoveSecret implements [control.Secrets].
func (s *Station) RemoveSecret(ctx context.Context, c control.Caller, name string) error {
	err := s.store.RemoveSecret(ctx, c.Tenant, name, c.Name)
	if errors.Is(err, sqlstore.ErrNoSecret) {
		return control.Refuse(control.NotFound, err.Error(), "")
	}
	if err != nil {
		return err
	}
	return s.scanners.changed(ctx, c.Tenant)
}
