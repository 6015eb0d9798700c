package vault

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"filippo.io/age"
)

// ErrWrongKey says that something was sealed under another master key.
var ErrWrongKey = errors.New("sealed under another master key")

// Vault holds the master key. It may be used from many goroutines.
type Vault struct {
	identity  *age.X25519Identity
	recipient *age.X25519Recipient
	path      string
}

func newVault(identity *age.X25519Identity, path string) *Vault {
	return &Vault{identity: identity, recipient: identity.Recipient(), path: path}
}

// Recipient is the public half of the master key ("age1…"). It tells keys apart
// and is no secret.
func (v *Vault) Recipient() string { return v.recipient.String() }

// Path is the file the master key was read from.
func (v *Vault) Path() string { return v.path }

// NewDataKey makes a data key. The sealed form is what to store; its length is
// the same for every key of a vault. Sealing and opening cost some 0.1 ms each,
// so callers keep data keys they use often.
func (v *Vault) NewDataKey() (key DataKey, sealed []byte, err error) {
	secret := newSecret()
	key, err = newDataKey(secret)
	if err != nil {
		return DataKey{}, nil, err
	}
	var out bytes.Buffer
	w, err := age.Encrypt(&out, v.recipient)
	if err != nil {
		return DataKey{}, nil, fmt.Errorf("seal a data key: %w", err)
	}
	if _, err := w.Write(secret); err != nil {
		return DataKey{}, nil, fmt.Errorf("seal a data key: %w", err)
	}
	if err := w.Close(); err != nil {
		return DataKey{}, nil, fmt.Errorf("seal a data key: %w", err)
	}
	return key, out.Bytes(), nil
}

// Open opens a sealed data key. The error is [ErrWrongKey] when another master
// key sealed it.
func (v *Vault) Open(sealed []byte) (DataKey, error) {
	r, err := age.Decrypt(bytes.NewReader(sealed), v.identity)
	if err != nil {
		var other *age.NoIdentityMatchError
		if errors.As(err, &other) {
			return DataKey{}, fmt.Errorf("open a data key with the master key in %s: %w", v.path, ErrWrongKey)
		}
		return DataKey{}, fmt.Errorf("open a data key: the stored key is damaged: %w", err)
	}
	secret, err := io.ReadAll(io.LimitReader(r, secretSize+1))
	if err != nil {
		return DataKey{}, fmt.Errorf("open a data key: the stored key is damaged: %w", err)
	}
	return newDataKey(secret)
}
