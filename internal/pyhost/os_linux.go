package pyhost

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// newPage returns the page as memory that is in no file system.
func newPage() (*os.File, error) {
	fd, err := unix.MemfdCreate("belay-worker", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("cannot make the page: %w", err)
	}
	return sizedPage(os.NewFile(uintptr(fd), "belay-worker"))
}

// widen makes a pipe large, where the system's bounds allow it.
func widen(f *os.File) {
	if c, err := f.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, pipeSize) })
	}
}
