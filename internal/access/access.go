// Package access says who may do what: tokens with roles, one tenant each.
//
// A token is made once and shown once:
//
//	secret, token, err := access.Issue(access.Order{Tenant: "main", Name: "ann", Role: access.Approver, By: "local:root"}, time.Now())
//	err = store.CreateToken(ctx, token)
//	fmt.Println(secret.Reveal()) // belay_…; nobody can show it again
//
// Kept is its SHA-256 alone. A [Gate] finds out whose a token is, and the
// [Identity] says what its bearer may do:
//
//	who, err := gate.Check(ctx, bearer)
//	err = who.May("main", access.Approver)
//
// The process that owns a data folder makes a token for itself at each start
// ([NewKey]), which is kept in memory and in a file that only the folder's owner
// reads: whoever can read the folder can do everything with it anyway.
package access

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"time"
)

// Role is what a bearer may do; each may what the one before may. The zero Role may
// nothing.
type Role uint8

// The roles.
const (
	None     Role = iota
	Viewer        // looks
	Approver      // starts and cancels jobs, decides approvals
	Admin         // changes plugins, policy and tokens
)

var roleWords = []string{"none", "viewer", "approver", "admin"}

func (r Role) String() string {
	if int(r) < len(roleWords) {
		return roleWords[r]
	}
	return roleWords[None]
}

// Allows says whether the role may what another may.
func (r Role) Allows(need Role) bool { return r <= Admin && need <= Admin && need != None && r >= need }

// ParseRole reads a role's name.
func ParseRole(word string) (Role, error) {
	for r := Viewer; r <= Admin; r++ {
		if word == roleWords[r] {
			return r, nil
		}
	}
	return None, fmt.Errorf("%q is no role; take viewer, approver or admin", word)
}

// MarshalText writes the role's name.
func (r Role) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads it back.
func (r *Role) UnmarshalText(text []byte) (err error) {
	*r, err = ParseRole(string(text))
	return err
}

// Secret is the text of a token. It shows itself only when it is asked to.
type Secret string

const (
	prefix  = "belay_"
	entropy = 32 // bytes
)

var (
	alphabet = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)
	size     = len(prefix) + alphabet.EncodedLen(entropy)
)

// NewSecret makes the text of a token: "belay_" and 256 random bits.
func NewSecret() Secret {
	random := make([]byte, entropy)
	_, _ = rand.Read(random) // never fails
	return Secret(prefix + alphabet.EncodeToString(random))
}

// Reveal is the token itself.
func (s Secret) Reveal() string { return string(s) }

// String hides the token.
func (Secret) String() string { return prefix + "[hidden]" }

// GoString hides it too.
func (s Secret) GoString() string { return s.String() }

// LogValue hides it in logs.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// wellFormed says whether a text could be a token. It saves a look-up, nothing more.
func wellFormed(text string) bool {
	if len(text) != size || !strings.HasPrefix(text, prefix) {
		return false
	}
	_, err := alphabet.DecodeString(text[len(prefix):])
	return err == nil
}

// Hash is what is kept of a token's text. The text has 256 random bits, so that
// there is nothing to guess and no need for a slow hash.
type Hash [sha256.Size]byte

// HashOf is the hash of a token's text.
func HashOf(text string) Hash { return sha256.Sum256([]byte(text)) }

// Token is a token as it is kept.
type Token struct {
	ID      string    `json:"id"` // for the record; no secret
	Tenant  string    `json:"tenant"`
	Name    string    `json:"name"`
	Role    Role      `json:"role"`
	Hash    Hash      `json:"-"`
	Created time.Time `json:"created"`
	By      string    `json:"created_by"`
	// LastUsed is exact to the hour; zero for never.
	LastUsed  time.Time `json:"last_used,omitzero"`
	Expires   time.Time `json:"expires,omitzero"` // zero for never
	Revoked   time.Time `json:"revoked,omitzero"` // zero for not
	RevokedBy string    `json:"revoked_by,omitempty"`
}

// Order says what token to make.
type Order struct {
	Tenant string
	Name   string
	Role   Role
	By     string
	// Lifetime is how long the token holds; 0 for as long as nobody revokes it.
	Lifetime time.Duration
}

// Issue makes a token. The secret is not in it and must be shown to whoever asked.
func Issue(o Order, now time.Time) (Secret, Token, error) {
	if err := errors.Join(CheckTenant(o.Tenant), CheckName(o.Name)); err != nil {
		return "", Token{}, err
	}
	switch {
	case !o.Role.Allows(Viewer):
		return "", Token{}, errors.New("a token needs a role; take viewer, approver or admin")
	case o.By == "":
		return "", Token{}, errors.New("make a token: nobody says who makes it")
	case o.Lifetime < 0:
		return "", Token{}, errors.New("a token cannot have expired before it is made; give a time to come")
	}
	secret := NewSecret()
	id := make([]byte, 8)
	_, _ = rand.Read(id) // never fails
	t := Token{ID: "tok_" + hex.EncodeToString(id), Tenant: o.Tenant, Name: o.Name, Role: o.Role, Hash: HashOf(secret.Reveal()), Created: now, By: o.By}
	if o.Lifetime > 0 {
		t.Expires = now.Add(o.Lifetime)
	}
	return secret, t, nil
}

var (
	validName   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$`)
	validTenant = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
)

// CheckName says what is wrong with the name of a token. It stands in records as
// the name of who did something, so it can have no colon: those name others.
func CheckName(name string) error {
	if !validName.MatchString(name) {
		return fmt.Errorf("%q is no name for a token; take up to 64 letters, digits and . _ @ - and begin with a letter or digit", name)
	}
	return nil
}

// CheckTenant says what is wrong with the name of a tenant.
func CheckTenant(name string) error {
	if !validTenant.MatchString(name) {
		return fmt.Errorf("%q is no name of a tenant; take up to 64 letters, digits and . _ - and begin with a letter or digit", name)
	}
	return nil
}
