package sqlstore

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// lockFile is the file whose lock makes a process the owner of a data folder.
const lockFile = "belay.lock"

// ErrInUse says that another process owns the data folder.
var ErrInUse = errors.New("the data folder is in use")

// InUseError is [ErrInUse] with who the owner is.
type InUseError struct {
	Dir   string
	Owner string // such as "process 12"
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("open %s: %v by %s; stop it, or use another data folder", e.Dir, ErrInUse, e.Owner)
}

// Unwrap makes it an ErrInUse.
func (e *InUseError) Unwrap() error { return ErrInUse }

// lock makes this process the owner of the folder until the file is closed. The
// kernel gives the lock back when the process ends, however it ends, so the file
// itself may stay. Children do not inherit it: Go opens files close-on-exec.
func lock(dir string) (*os.File, error) {
	path := filepath.Join(dir, lockFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the data folder: %w; can this user write to %s?", err, dir)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		owner := owner(f)
		_ = f.Close() // the failure above is the news
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, &InUseError{Dir: dir, Owner: owner}
		}
		return nil, fmt.Errorf("lock %s: %w; the data folder must be on a local disk", path, err)
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock the data folder: %w", err), f.Close())
	}
	return f, nil
}

// owner names the process that wrote its number into the file.
func owner(f *os.File) string {
	b, err := io.ReadAll(io.LimitReader(f, 32))
	pid := strings.TrimSpace(string(b))
	switch {
	case err != nil || pid == "":
		return "another process" // it has not come to write its number yet
	case pid == fmt.Sprint(os.Getpid()):
		return "this process (" + pid + ")"
	}
	return "process " + pid
}
