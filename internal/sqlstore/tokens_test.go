package sqlstore

import (
	"errors"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/access"
)

func TestTokensAreKeptAsHashes(t *testing.T) {
	dir := t.TempDir()
	now := at
	s := open(t, dir, Options{Clock: func() time.Time { return now }})
	ctx := t.Context()
	issue := func(tenant, name string, role access.Role, lifetime time.Duration) (string, access.Token) {
		t.Helper()
		secret, token, err := access.Issue(access.Order{Tenant: tenant, Name: name, Role: role, By: "local:root", Lifetime: lifetime}, now)
		if err != nil {
			t.Fatal(err)
		}
		return secret.Reveal(), token
	}
	annText, annToken := issue("main", "ann", access.Approver, time.Hour)
	if err := s.CreateToken(ctx, annToken); err != nil {
		t.Fatal(err)
	}
	bobText, bobToken := issue("other", "ann", access.Admin, 0) // another tenant's ann
	if err := s.CreateToken(ctx, bobToken); err != nil {
		t.Fatal(err)
	}
	_, again := issue("main", "ann", access.Admin, 0)
	if err := s.CreateToken(ctx, again); !errors.Is(err, access.ErrNameTaken) {
		t.Errorf("a second ann: %v", err)
	}
	for _, text := range []string{annText, bobText, annText[6:]} {
		if with := contains(t, dir, []byte(text)); with != "" {
			t.Errorf("a token stands in %s", with)
		}
	}
	closeStore(t, s)
	s = open(t, dir, Options{Clock: func() time.Time { return now }})

	gate := access.NewGate(s, access.Key{}, func() time.Time { return now }, nil)
	who, err := gate.Check(ctx, annText)
	if err != nil || who.Tenant != "main" || who.Name != "ann" || who.Role != access.Approver {
		t.Errorf("%+v %v", who, err)
	}
	if who, err := gate.Check(ctx, bobText); err != nil || who.Tenant != "other" || who.Role != access.Admin {
		t.Errorf("%+v %v", who, err)
	}
	annToken.LastUsed = now.Truncate(time.Hour)
	all, err := s.ListTokens(ctx, "main")
	if err != nil || len(all) != 1 || all[0] != annToken {
		t.Errorf("%+v %v\nwant %+v", all, err, annToken)
	}
	if err := s.TokenUsed(ctx, annToken.ID, now.Add(-time.Hour)); err != nil { // late: it must not win
		t.Error(err)
	}
	now = now.Add(time.Minute)
	revoked, err := s.RevokeToken(ctx, "main", "ann", "bob")
	annToken.Revoked, annToken.RevokedBy = now, "bob"
	if err != nil || revoked != annToken {
		t.Errorf("%+v %v\nwant %+v", revoked, err, annToken)
	}
	if _, err := gate.Check(ctx, annText); !errors.Is(err, access.ErrRevoked) {
		t.Errorf("revoked: %v", err)
	}
	for _, of := range []string{"main", "nobody"} {
		if _, err := s.RevokeToken(ctx, of, "ann", "bob"); !errors.Is(err, access.ErrNoToken) {
			t.Errorf("revoked twice: %v", err)
		}
	}
	if err := s.CreateToken(ctx, again); err != nil { // the name is free again
		t.Error(err)
	}
	if _, err := gate.Check(ctx, access.NewSecret().Reveal()); !errors.Is(err, access.ErrUnknown) {
		t.Error(err)
	}
	wantRecorded(t, s, "main",
		`local:root token.created ann {"expires":"2026-03-01T13:00:00Z","id":"`+annToken.ID+`","role":"approver"}`,
		`bob token.revoked ann {"id":"`+annToken.ID+`","role":"approver"}`,
		`local:root token.created ann {"id":"`+again.ID+`","role":"admin"}`)
	wantRecorded(t, s, "other", `local:root token.created ann {"id":"`+bobToken.ID+`","role":"admin"}`)
}

func TestATokenWithARoleOfALaterProgramMayNothing(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	secret, token, err := access.Issue(access.Order{Tenant: "main", Name: "ann", Role: access.Admin, By: "x"}, at)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.CreateToken(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	tamper(t, dir, "UPDATE token SET role = 'emperor'")
	s = open(t, dir, Options{})
	who, err := access.NewGate(s, access.Key{}, nil, nil).Check(t.Context(), secret.Reveal())
	if err == nil || who.Role != access.None {
		t.Errorf("%+v %v", who, err)
	}
}
