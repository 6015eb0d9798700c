package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/belay-run/belay/internal/access"
)

// ownerFile is the file of a data folder in which its owner says where it answers.
const ownerFile = "owner.json"

// Owner says how to reach the process that owns a data folder. Only the folder's
// user can read it: the token may do everything.
type Owner struct {
	Address string        `json:"address"` // host:port
	Token   access.Secret `json:"token"`
	PID     int           `json:"pid"`
	// Passing says that the owner is a command, which ends with what it was asked for.
	// Jobs of others that it runs go on with whoever has the folder next.
	Passing bool `json:"passing,omitempty"`
}

// ErrNoOwner says that nobody has written how to reach the owner of a data folder,
// or that who did answers no more.
var ErrNoOwner = errors.New("no belay answers for this data folder")

// WriteOwner lets others reach the owner of a data folder. Whoever writes it owns
// the folder's lock, so that there is one at most.
func WriteOwner(dir string, o Owner) error {
	raw, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("write where the owner answers: %w", err)
	}
	f, err := os.CreateTemp(dir, "."+ownerFile+"-") // for its user alone
	if err != nil {
		return fmt.Errorf("write where the owner answers: %w", err)
	}
	_, err = f.Write(append(raw, '\n'))
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, ownerFile))
	}
	if err != nil {
		return fmt.Errorf("write where the owner answers: %w", errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}

// ReadOwner reads how to reach the owner of a data folder. [ErrNoOwner] when nobody
// wrote it. What an owner that was killed left behind reads well; its address does
// not answer, or another program does: compare the PID with that of the folder's
// lock.
func ReadOwner(dir string) (Owner, error) {
	path := filepath.Join(dir, ownerFile)
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Owner{}, fmt.Errorf("%w (there is no %s); start one with `belay serve`", ErrNoOwner, path)
	}
	if err != nil {
		return Owner{}, fmt.Errorf("read where the owner answers: %w; run as the user who serves the data folder", err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return Owner{}, fmt.Errorf("read where the owner answers: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return Owner{}, fmt.Errorf("others can read or write %s, which holds a token: remove it and start `belay serve` again", path)
	}
	var o Owner
	if err := json.Unmarshal(raw, &o); err != nil || o.Address == "" || o.Token == "" {
		return Owner{}, fmt.Errorf("%s does not say where the owner answers: remove it and start `belay serve` again", path)
	}
	return o, nil
}

// RemoveOwner takes back what this process wrote.
func RemoveOwner(dir string, o Owner) error {
	now, err := ReadOwner(dir)
	if errors.Is(err, ErrNoOwner) || err == nil && now != o {
		return nil
	}
	return errors.Join(err, os.Remove(filepath.Join(dir, ownerFile)))
}
