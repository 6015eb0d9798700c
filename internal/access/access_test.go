package access

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

var now = time.Date(2026, 11, 3, 9, 45, 0, 0, time.UTC)

// kept are tokens in memory.
type kept struct {
	tokens []Token
	used   []time.Time
	err    error
}

func (k *kept) TokenByHash(_ context.Context, h Hash) (Token, error) {
	for _, t := range k.tokens {
		if t.Hash == h {
			return t, k.err
		}
	}
	return Token{}, errors.Join(k.err, ErrUnknown)
}

func (k *kept) TokenUsed(_ context.Context, id string, at time.Time) error {
	for i := range k.tokens {
		if k.tokens[i].ID == id {
			k.tokens[i].LastUsed = at
		}
	}
	k.used = append(k.used, at)
	return errors.New("the disk is full")
}

func issue(t *testing.T, o Order) (Secret, Token) {
	t.Helper()
	if o.Tenant == "" {
		o.Tenant = "main"
	}
	if o.By == "" {
		o.By = "local:root"
	}
	secret, token, err := Issue(o, now)
	if err != nil {
		t.Fatal(err)
	}
	return secret, token
}

func TestCheck(t *testing.T) {
	good, a := issue(t, Order{Name: "ann", Role: Approver, Lifetime: time.Hour})
	revoked, b := issue(t, Order{Name: "bob", Role: Admin})
	b.Revoked = now.Add(-time.Second)
	ownerSecret, key := NewKey("root")
	clock := now
	store := &kept{tokens: []Token{a, b}}
	g := NewGate(store, key, func() time.Time { return clock }, nil)
	text := good.Reveal()
	for name, c := range map[string]struct {
		text string
		want error
	}{
		"good":             {text, nil},
		"revoked":          {revoked.Reveal(), ErrRevoked},
		"none":             {"", ErrUnknown},
		"prefix alone":     {"belay_", ErrUnknown},
		"unknown":          {NewSecret().Reveal(), ErrUnknown},
		"another prefix":   {"relay_" + text[6:], ErrUnknown},
		"upper case":       {strings.ToUpper(text), ErrUnknown},
		"a letter more":    {text + "a", ErrUnknown},
		"a letter less":    {text[:len(text)-1], ErrUnknown},
		"space around":     {" " + text, ErrUnknown},
		"not the alphabet": {text[:len(text)-1] + "1", ErrUnknown},
		"its hash":         {fmt.Sprintf("belay_%x", a.Hash)[:len(text)], ErrUnknown},
		"long":             {"belay_" + strings.Repeat("a", 1<<20), ErrUnknown},
	} {
		who, err := g.Check(t.Context(), c.text)
		if !errors.Is(err, c.want) || err != nil && who != (Identity{}) {
			t.Errorf("%s: %+v %v", name, who, err)
		}
	}
	who, err := g.Check(t.Context(), text)
	if err != nil || who != (Identity{Tenant: "main", Name: "ann", Role: Approver, Expires: a.Expires}) {
		t.Errorf("%+v %v", who, err)
	}
	if who, err := g.Check(t.Context(), ownerSecret.Reveal()); err != nil || !who.Owner || who.Name != "local:root" || who.Role != Admin {
		t.Errorf("owner %+v %v", who, err)
	}
	clock = a.Expires.Add(-1)
	if _, err := g.Check(t.Context(), text); err != nil {
		t.Error("expired too early:", err)
	}
	clock = a.Expires
	if _, err := g.Check(t.Context(), text); !errors.Is(err, ErrExpired) {
		t.Error("not expired:", err)
	}
	store.err = errors.New("the disk is gone")
	clock = now
	if _, err := g.Check(t.Context(), text); err == nil || errors.Is(err, ErrUnknown) {
		t.Error("a store that fails:", err)
	}
}

func TestWithoutAnOwnerNobodyIsTheOwner(t *testing.T) {
	secret, _ := NewKey("root")
	g := NewGate(&kept{}, Key{}, nil, nil)
	if _, err := g.Check(t.Context(), secret.Reveal()); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
}

func TestUseIsKeptOnceAnHour(t *testing.T) {
	secret, token := issue(t, Order{Name: "ann", Role: Viewer})
	store := &kept{tokens: []Token{token}}
	clock := now
	var log bytes.Buffer
	g := NewGate(store, Key{}, func() time.Time { return clock }, slog.New(slog.NewTextHandler(&log, nil)))
	for range 3 {
		for range 3 {
			if _, err := g.Check(t.Context(), secret.Reveal()); err != nil { // the failure to keep it lets nobody out
				t.Fatal(err)
			}
		}
		clock = clock.Add(10 * time.Minute) // 9:45, 9:55, 10:05
	}
	want := []time.Time{now.Truncate(time.Hour), now.Truncate(time.Hour).Add(time.Hour)}
	if len(store.used) != 2 || !store.used[0].Equal(want[0]) || !store.used[1].Equal(want[1]) {
		t.Errorf("kept %v, want %v", store.used, want)
	}
	if !strings.Contains(log.String(), "disk is full") || strings.Contains(log.String(), secret.Reveal()) {
		t.Errorf("log %s", log.String())
	}
}

func TestRoles(t *testing.T) {
	all := []Role{None, Viewer, Approver, Admin, 17}
	may := map[string]bool{
		"viewer viewer": true, "approver viewer": true, "approver approver": true,
		"admin viewer": true, "admin approver": true, "admin admin": true,
	}
	for _, have := range all {
		for _, need := range all {
			name := have.String() + " " + need.String()
			if got := have.Allows(need); got != may[name] {
				t.Errorf("%d for %d: %v", have, need, got)
			}
			for _, owner := range []bool{false, true} {
				for _, of := range []string{"main", "other", ""} {
					who := Identity{Tenant: of, Role: have, Owner: owner}
					want := may[name] && (owner || of == "main")
					err := who.May("main", need)
					var forbidden *ForbiddenError
					if (err == nil) != want || err != nil && !errors.As(err, &forbidden) {
						t.Errorf("%s of %q, owner %v: %v", name, of, owner, err)
					}
				}
			}
		}
	}
	if (Identity{Role: Admin}).May("", Viewer) == nil {
		t.Error("no tenant is a tenant")
	}
	for _, word := range []string{"", "none", "Admin", "root"} {
		if r, err := ParseRole(word); err == nil || r != None {
			t.Errorf("%q is %v", word, r)
		}
	}
	var r Role
	if err := json.Unmarshal([]byte(`"approver"`), &r); err != nil || r != Approver {
		t.Error(r, err)
	}
	if raw, err := json.Marshal(Role(9)); err != nil || string(raw) != `"none"` {
		t.Errorf("%s %v", raw, err)
	}
}

func TestIssue(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		secret, token := issue(t, Order{Name: "ann", Role: Viewer})
		text := secret.Reveal()
		if !wellFormed(text) || len(text) != 58 || seen[text] || seen[token.ID] || token.Hash != HashOf(text) || !token.Expires.IsZero() {
			t.Fatalf("%d %+v", len(text), token)
		}
		seen[text], seen[token.ID] = true, true
	}
	ok := Order{Tenant: "main", Name: "ann", Role: Viewer, By: "x"}
	for name, change := range map[string]func(*Order){
		"no tenant":     func(o *Order) { o.Tenant = "" },
		"a path":        func(o *Order) { o.Tenant = "../x" },
		"no name":       func(o *Order) { o.Name = "" },
		"a colon":       func(o *Order) { o.Name = "local:root" },
		"a line":        func(o *Order) { o.Name = "a\nb" },
		"a long name":   func(o *Order) { o.Name = strings.Repeat("a", 65) },
		"no role":       func(o *Order) { o.Role = None },
		"an odd role":   func(o *Order) { o.Role = 9 },
		"by nobody":     func(o *Order) { o.By = "" },
		"in the past":   func(o *Order) { o.Lifetime = -1 },
		"trailing line": func(o *Order) { o.Name = "a\n" },
	} {
		o := ok
		change(&o)
		if secret, _, err := Issue(o, now); err == nil || secret != "" {
			t.Errorf("%s: made", name)
		}
	}
	if _, _, err := Issue(ok, now); err != nil {
		t.Error(err)
	}
}

func TestASecretShowsItselfNowhere(t *testing.T) {
	secret := NewSecret()
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("made", "secret", secret)
	shown := log.String() + fmt.Sprintf("%v %s %+v %#v %q", secret, secret, struct{ S Secret }{secret}, secret, secret)
	if strings.Contains(shown, secret.Reveal()) || strings.Count(shown, "[hidden]") != 6 {
		t.Error(shown)
	}
}
