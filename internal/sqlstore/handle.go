package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/sqlstore/rows"
	"github.com/belay-run/belay/internal/vault"
)

// cached is how many conversations have their keys kept open, at about 1 KB
// each; opening a sealed key costs 0.2 ms.
const cached = 1024

// handle is what a writer needs to know of a conversation. There is never more
// than one live handle of a conversation, so that two callers cannot both make
// it.
type handle struct {
	id     conversation.ID
	pins   int // callers and waiting lines that hold it; guarded by keyring.mu
	once   sync.Once
	err    error
	key    vault.DataKey
	sealed []byte // the key as it is to be stored, when the conversation is new

	// row is the conversation's id in the database, 0 until it is written. Only
	// the writer's goroutine sets it after once.
	row atomic.Int64
	// dead says that the conversation was deleted: whoever still holds the
	// handle must get another.
	dead atomic.Bool
}

// keyring keeps handles and opened data keys.
type keyring struct {
	vault *vault.Vault
	mu    sync.Mutex
	held  *lru[conversation.ID, *handle]
	// opened has data keys by the row of their conversation, whose number is
	// never used again.
	opened *lru[int64, vault.DataKey]
}

func newKeyring(v *vault.Vault, size int) *keyring {
	return &keyring{
		vault:  v,
		held:   newLRU[conversation.ID](size, func(h *handle) bool { return h.pins > 0 }),
		opened: newLRU[int64](size, func(vault.DataKey) bool { return false }),
	}
}

// finder looks a conversation up in the database.
type finder func(ctx context.Context, id conversation.ID) (rows.FindConversationRow, error)

// acquire gives the live handle of a conversation; the caller must release it.
func (k *keyring) acquire(ctx context.Context, id conversation.ID, find finder) (*handle, error) {
	k.mu.Lock()
	h, ok := k.held.get(id)
	if !ok {
		h = &handle{id: id}
	}
	h.pins++ // before put, which may throw out what nobody holds
	if !ok {
		k.held.put(id, h)
	}
	k.mu.Unlock()

	// Others may wait for the same load: this caller's end must not be theirs.
	h.once.Do(func() { h.err = k.load(context.WithoutCancel(ctx), h, find) })
	if h.err != nil {
		k.release(h)
		k.forget(h)
		return nil, h.err
	}
	return h, nil
}

func (k *keyring) load(ctx context.Context, h *handle, find finder) error {
	found, err := find(ctx, h.id)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		h.key, h.sealed, err = k.vault.NewDataKey()
		return err
	case err != nil:
		return fmt.Errorf("look up the conversation: %w", err)
	}
	h.row.Store(found.ID)
	h.key, err = k.open(found.ID, found.Sealed)
	return err
}

// open opens the data key of a conversation, or finds it opened.
func (k *keyring) open(row int64, sealed []byte) (vault.DataKey, error) {
	if k.vault == nil {
		return vault.DataKey{}, errNoVault
	}
	k.mu.Lock()
	key, ok := k.opened.get(row)
	k.mu.Unlock()
	if ok {
		return key, nil
	}
	key, err := k.vault.Open(sealed)
	if err != nil {
		return vault.DataKey{}, err
	}
	k.mu.Lock()
	k.opened.put(row, key)
	k.mu.Unlock()
	return key, nil
}

func (k *keyring) hold(h *handle) {
	k.mu.Lock()
	h.pins++
	k.mu.Unlock()
}

func (k *keyring) release(h *handle) {
	k.mu.Lock()
	h.pins--
	k.mu.Unlock()
}

// forget drops a handle, but not one that came after it.
func (k *keyring) forget(h *handle) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if now, ok := k.held.get(h.id); ok && now == h {
		k.held.drop(h.id)
	}
}

// kill ends the handle of a deleted conversation, if there is one.
func (k *keyring) kill(id conversation.ID, row int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.opened.drop(row)
	if h, ok := k.held.get(id); ok {
		h.dead.Store(true)
		k.held.drop(id)
	}
}
