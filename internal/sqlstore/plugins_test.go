package sqlstore

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func order(t *testing.T, s *Store, tenant string) string {
	t.Helper()
	all, err := s.Plugins(t.Context(), tenant)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range all {
		names = append(names, p.Name)
	}
	return strings.Join(names, " ")
}

// P104: plugins stand in the order of their first install; an update keeps the place.
func TestPluginsStandInTheOrderOfTheirFirstInstall(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	ctx := t.Context()
	steps := []struct {
		do   func() error
		want string
	}{
		{func() error { _, err := s.InstallPlugin(ctx, Plugin{Tenant: "main", Name: "b"}, "", "x"); return err }, "b"},
		{func() error { _, err := s.InstallPlugin(ctx, Plugin{Tenant: "main", Name: "a"}, "", "x"); return err }, "b a"},
		{func() error { _, err := s.InstallPlugin(ctx, Plugin{Tenant: "other", Name: "z"}, "", "x"); return err }, "b a"},
		{func() error { _, err := s.InstallPlugin(ctx, Plugin{Tenant: "main", Name: "c"}, "", "x"); return err }, "b a c"},
		{func() error { _, err := s.UpdatePlugin(ctx, Plugin{Tenant: "main", Name: "b"}, "x"); return err }, "b a c"},
		{func() error { return s.RemovePlugin(ctx, "main", "a", "x", false) }, "b c"},
		{func() error { _, err := s.InstallPlugin(ctx, Plugin{Tenant: "main", Name: "d"}, "", "x"); return err }, "b c d"},
		{func() error { _, err := s.InstallPlugin(ctx, Plugin{Tenant: "main", Name: "a"}, "", "x"); return err }, "b a c d"},
		{func() error { return s.MovePlugin(ctx, "main", "d", "b", "x") }, "d b a c"},
		{func() error { return s.MovePlugin(ctx, "main", "d", "c", "x") }, "b a d c"},
		{func() error { return s.MovePlugin(ctx, "main", "b", "", "x") }, "a d c b"},
		{func() error { return s.MovePlugin(ctx, "main", "b", "", "x") }, "a d c b"},
		{func() error { return s.MovePlugin(ctx, "main", "d", "d", "x") }, "a d c b"},
		{func() error { return s.MovePlugin(ctx, "main", "a", "d", "x") }, "a d c b"},
		{func() error { _, err := s.InstallPlugin(ctx, Plugin{Tenant: "main", Name: "e"}, "c", "x"); return err }, "a d e c b"},
		{func() error { return s.RemovePlugin(ctx, "main", "e", "x", true) }, "a d c b"},
		{func() error { return s.MovePlugin(ctx, "main", "b", "d", "x") }, "a b d c"},
		{func() error { _, err := s.InstallPlugin(ctx, Plugin{Tenant: "main", Name: "e"}, "", "x"); return err }, "a b d e c"},
	}
	for i, step := range steps {
		if err := step.do(); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		if got := order(t, s, "main"); got != step.want {
			t.Fatalf("step %d: %s, want %s", i, got, step.want)
		}
	}
	if got := order(t, s, "other"); got != "z" {
		t.Errorf("the other tenant has %s", got)
	}
	for name, err := range map[string]error{
		"install twice":      second(s.InstallPlugin(ctx, Plugin{Tenant: "main", Name: "a"}, "", "x")),
		"before nobody":      second(s.InstallPlugin(ctx, Plugin{Tenant: "main", Name: "f"}, "nobody", "x")),
		"before another's":   second(s.InstallPlugin(ctx, Plugin{Tenant: "main", Name: "f"}, "z", "x")),
		"update nothing":     second(s.UpdatePlugin(ctx, Plugin{Tenant: "main", Name: "z"}, "x")),
		"remove nothing":     s.RemovePlugin(ctx, "main", "z", "x", true),
		"move nothing":       s.MovePlugin(ctx, "main", "z", "", "x"),
		"move before nobody": s.MovePlugin(ctx, "main", "a", "z", "x"),
		"grant to nobody":    s.GrantModel(ctx, "main", "z", true, "x"),
		"no such":            second(s.Plugin(ctx, "main", "z")),
	} {
		want := ErrNoPlugin
		if name == "install twice" {
			want = ErrPluginInstalled
		}
		if !errors.Is(err, want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := order(t, s, "main"); got != "a b d e c" {
		t.Errorf("refusals changed the order to %s", got)
	}
}

func TestAPluginsLifeIsKeptAndRecorded(t *testing.T) {
	now := at
	dir := t.TempDir()
	s := open(t, dir, Options{Clock: func() time.Time { return now }})
	ctx := t.Context()
	want := Plugin{Tenant: "main", Name: "acme", Version: "1", Digest: "sha256:1", Manifest: "oz0-plugin.yaml", ModelGranted: true}
	got, err := s.InstallPlugin(ctx, want, "", "ann")
	want.Installed, want.InstalledBy = now, "ann"
	if err != nil || got != want {
		t.Errorf("%+v %v", got, err)
	}
	now = now.Add(time.Hour)
	want.Version, want.Digest, want.Updated, want.UpdatedBy = "2", "sha256:2", now, "bob"
	if got, err := s.UpdatePlugin(ctx, Plugin{Tenant: "main", Name: "acme", Version: "2", Digest: "sha256:2", Manifest: "oz0-plugin.yaml", ModelGranted: true}, "bob"); err != nil || got != want {
		t.Errorf("%+v %v", got, err)
	}
	closeStore(t, s)
	s = open(t, dir, Options{Clock: func() time.Time { return now }})
	if got, err := s.Plugin(ctx, "main", "acme"); err != nil || got != want {
		t.Errorf("%+v %v", got, err)
	}
	if got, err := s.PluginDigests(ctx); err != nil || strings.Join(got, " ") != "sha256:2" {
		t.Error(got, err)
	}
	for _, granted := range []bool{false, false, true} {
		if err := s.GrantModel(ctx, "main", "acme", granted, "cleo"); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Plugin(ctx, "main", "acme"); err != nil || got.ModelGranted != granted {
			t.Errorf("%+v %v", got, err)
		}
	}
	if err := s.RemovePlugin(ctx, "main", "acme", "dan", true); err != nil {
		t.Fatal(err)
	}
	if got, err := s.PluginDigests(ctx); err != nil || len(got) != 0 {
		t.Error(got, err)
	}
	if got, err := s.InstallPlugin(ctx, Plugin{Tenant: "main", Name: "acme"}, "", "eve"); err != nil || got.ModelGranted || !got.Updated.IsZero() {
		t.Errorf("a grant or an update outlived the removal: %+v %v", got, err)
	}
	wantRecorded(t, s, "main",
		`ann plugin.installed acme {"digest":"sha256:1","version":"1"}`,
		`ann plugin.reads.granted acme {"kind":"model"}`,
		`bob plugin.updated acme {"digest":"sha256:2","from":"sha256:1","version":"2"}`,
		`cleo plugin.reads.revoked acme {"kind":"model"}`,
		`cleo plugin.reads.granted acme {"kind":"model"}`,
		`dan plugin.removed acme {"digest":"sha256:2","forced":true,"version":"2"}`,
		`eve plugin.installed acme {"digest":"","version":""}`)
}
