package access

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Why somebody is not let in.
var (
	ErrUnknown = errors.New("this token is not known here; ask for another (`belay token create` makes one)")
	ErrRevoked = errors.New("this token was revoked; ask for another (`belay token create` makes one)")
	ErrExpired = errors.New("this token has expired; ask for another (`belay token create` makes one)")
)

// Why a token is not made or revoked.
var (
	ErrNameTaken = errors.New("a token of this name is there already; revoke it first, or take another name")
	ErrNoToken   = errors.New("there is no token of this name that holds; `belay token list` shows those that are")
)

// ForbiddenError says that a bearer may not do something.
type ForbiddenError struct {
	Have, Need Role
	Tenant     string // set when it is about another tenant's
}

func (e *ForbiddenError) Error() string {
	if e.Tenant != "" {
		return fmt.Sprintf("this token is for another tenant than %s; use one of that tenant", e.Tenant)
	}
	return fmt.Sprintf("this needs the role %s, and the token has %s; ask an admin, or use another token", e.Need, e.Have)
}

// Identity is who a token speaks for. The zero Identity may nothing.
type Identity struct {
	Tenant string
	Name   string // stands in records
	Role   Role
	// Owner says that it is the owner of the data folder, who may act for every
	// tenant.
	Owner   bool
	Expires time.Time // zero for never
}

// May says whether the bearer may act in a tenant with a role. The error is a
// [ForbiddenError].
func (i Identity) May(tenant string, need Role) error {
	if !i.Owner && (i.Tenant != tenant || tenant == "") {
		return &ForbiddenError{Have: i.Role, Need: need, Tenant: tenant}
	}
	if !i.Role.Allows(need) {
		return &ForbiddenError{Have: i.Role, Need: need}
	}
	return nil
}

// Tokens finds kept tokens.
type Tokens interface {
	// TokenByHash gives the token whose text has that hash, revoked or not.
	// [ErrUnknown].
	TokenByHash(ctx context.Context, h Hash) (Token, error)
	// TokenUsed keeps when a token was used, unless a later time is kept.
	TokenUsed(ctx context.Context, id string, at time.Time) error
}

// coarse is how exactly it is kept when a token was used: enough to find those that
// nobody needs, too little to follow anybody.
const coarse = time.Hour

// Key is a token that is nowhere kept: the owner's of a data folder.
type Key struct {
	name string
	hash Hash
}

// NewKey makes the owner's token. In records they are "local:" and the name, such
// as that of the system's user; with its colon that is no token's name.
func NewKey(name string) (Secret, Key) {
	secret := NewSecret()
	return secret, Key{name: "local:" + name, hash: HashOf(secret.Reveal())}
}

// Gate finds out whose a token is. It may be used from many goroutines.
type Gate struct {
	tokens Tokens
	owner  Key // zero: none
	clock  func() time.Time
	log    *slog.Logger
}

// NewGate makes a gate. owner is the zero Key when there is no such token. A nil
// clock is time.Now; a nil logger says nothing.
func NewGate(tokens Tokens, owner Key, clock func() time.Time, log *slog.Logger) *Gate {
	if clock == nil {
		clock = time.Now
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Gate{tokens: tokens, owner: owner, clock: clock, log: log}
}

// Check finds out whose a token is: [ErrUnknown], [ErrRevoked], [ErrExpired], or
// another error when that cannot be found out.
func (g *Gate) Check(ctx context.Context, text string) (Identity, error) {
	if !wellFormed(text) {
		return Identity{}, ErrUnknown
	}
	hash := HashOf(text)
	if g.owner != (Key{}) && same(hash, g.owner.hash) {
		return Identity{Name: g.owner.name, Role: Admin, Owner: true}, nil
	}
	// The look-up compares hashes, and how long it takes tells something of the hash
	// of what was sent, from which nobody gets to a token.
	t, err := g.tokens.TokenByHash(ctx, hash)
	now := g.clock()
	switch {
	case err != nil:
		return Identity{}, err
	case !same(hash, t.Hash):
		return Identity{}, ErrUnknown
	case !t.Revoked.IsZero():
		return Identity{}, ErrRevoked
	case !t.Expires.IsZero() && !now.Before(t.Expires):
		return Identity{}, ErrExpired
	}
	if used := now.Truncate(coarse); used.After(t.LastUsed) {
		if err := g.tokens.TokenUsed(ctx, t.ID, used); err != nil {
			g.log.Warn("cannot keep when a token was used", "token", t.Name, "error", err)
		}
	}
	return Identity{Tenant: t.Tenant, Name: t.Name, Role: t.Role, Expires: t.Expires}, nil
}

// same compares in a time that tells nothing of the hashes.
func same(a, b Hash) bool { return subtle.ConstantTimeCompare(a[:], b[:]) == 1 }
