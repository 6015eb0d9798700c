package sqlstore

import (
	"errors"
	"testing"
	"time"
)

func TestEveryVersionOfAPolicyIsKept(t *testing.T) {
	now := at
	dir := t.TempDir()
	s := open(t, dir, Options{Clock: func() time.Time { now = now.Add(time.Second); return now }})
	ctx := t.Context()
	if _, there, err := s.Policy(ctx, "main"); err != nil || there {
		t.Error(there, err)
	}
	apply := func(tenant, version, text, replaces string) Policy {
		t.Helper()
		p, err := s.ApplyPolicy(ctx, Policy{Tenant: tenant, Version: version, Text: text, By: "ann", Enforced: version == "v2"}, replaces)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	first := apply("main", "v1", "rules: []\n", "")
	second2 := apply("main", "v2", "", "v1")
	apply("other", "v9", "x", "")
	if _, err := s.ApplyPolicy(ctx, Policy{Tenant: "main", Version: "v3", By: "bob"}, "v1"); !errors.Is(err, ErrPolicyMoved) {
		t.Errorf("a policy that was replaced meanwhile: %v", err)
	}
	back := apply("main", "v1", "rules: []\n", "v2")
	if !back.Applied.After(first.Applied) {
		t.Errorf("applied %v, then %v", first.Applied, back.Applied)
	}
	closeStore(t, s)
	s = open(t, dir, Options{})
	if got, there, err := s.Policy(ctx, "main"); err != nil || !there || got != back {
		t.Errorf("%+v %v %v", got, there, err)
	}
	if got, err := s.PolicyVersion(ctx, "main", "v2"); err != nil || got != second2 {
		t.Errorf("%+v %v", got, err)
	}
	for _, of := range [][2]string{{"main", "v9"}, {"nobody", "v1"}} {
		if _, err := s.PolicyVersion(ctx, of[0], of[1]); !errors.Is(err, ErrNoPolicy) {
			t.Errorf("%v: %v", of, err)
		}
	}
	all, err := s.Policies(ctx, "main")
	if err != nil || len(all) != 3 || all[0].Version != "v1" || all[1].Version != "v2" || !all[1].Enforced || all[0].Text != "" || all[2].Applied != first.Applied {
		t.Errorf("%+v %v", all, err)
	}
	wantRecorded(t, s, "main",
		`ann policy.applied v1 {"enforced":false,"replaces":""}`,
		`ann policy.applied v2 {"enforced":true,"replaces":"v1"}`,
		`ann policy.applied v1 {"enforced":false,"replaces":"v2"}`)
}
