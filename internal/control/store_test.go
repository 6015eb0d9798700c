package control_test

import (
	"context"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/access"
	"github.com/belay-run/belay/internal/audit"
	"github.com/belay-run/belay/internal/control"
	"github.com/belay-run/belay/internal/sqlstore"
	"github.com/belay-run/belay/internal/vault"
)

// The store is the gate's, the tokens' and the record's port as it is.
var (
	_ access.Tokens  = (*sqlstore.Store)(nil)
	_ control.Tokens = (*sqlstore.Store)(nil)
	_ audit.Reader   = (*sqlstore.Store)(nil)
)

func TestTokensAndRecordOverARealStore(t *testing.T) {
	dir := t.TempDir()
	keys, err := vault.Open(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	store, err := sqlstore.Open(t.Context(), dir, sqlstore.Options{Vault: keys})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	secret, key := access.NewKey("root")
	addr, stop := control.Serve(t, control.Service{
		Gate: access.NewGate(store, key, time.Now, nil), Audit: store, Tokens: store,
		Health: func(context.Context) control.Health { return control.Health{OK: true} },
	})
	defer stop()
	owner := control.NewClient(addr, secret, "acme")
	defer owner.Close()
	ctx := t.Context()
	made, err := owner.CreateToken(ctx, control.TokenOrder{Name: "ann", Role: "admin"})
	if err != nil {
		t.Fatal(err)
	}
	ann := control.NewClient(addr, access.Secret(made.Secret), "")
	defer ann.Close()
	if _, err := ann.CreateToken(ctx, control.TokenOrder{Name: "bob", Role: "viewer", ExpiresIn: 3600}); err != nil {
		t.Fatal(err)
	}
	all, err := ann.Tokens(ctx)
	if err != nil || len(all) != 2 || all[1].By != "ann" || all[0].LastUsed.IsZero() {
		t.Errorf("%+v %v", all, err)
	}
	before, err := ann.VerifyAudit(ctx, "")
	if err != nil || !before.OK || before.Entries != 2 || before.Tenant != "acme" {
		t.Errorf("%+v %v", before, err)
	}
	if _, err := owner.RevokeToken(ctx, "ann"); err != nil {
		t.Fatal(err)
	}
	if _, err := ann.Tokens(ctx); err == nil {
		t.Error("a revoked token holds")
	}
	record, err := owner.Audit(ctx, -1, 0)
	if err != nil || len(record.Entries) != 3 || record.Entries[2].Actor != "local:root" || record.Entries[2].Action != audit.TokenRevoked {
		t.Errorf("%+v %v", record, err)
	}
	if ok, bad := audit.Verify(record.Entries); !ok {
		t.Errorf("entry %d did not come through whole", bad)
	}
	after, err := owner.VerifyAudit(ctx, before.Head.String())
	if err != nil || !after.OK || after.Head.Seq != 3 {
		t.Errorf("%+v %v", after, err)
	}
}
