package pyhost

import (
	"fmt"
	"os"
)

// The page is a piece of memory that worker and host share: a file that the
// worker maps and the host reads. Its first four bytes hold, in the machine's
// byte order, the id of the call whose step runs now, or 0. The worker writes it
// before and after each step, which costs it no system call, and the host reads
// it only when a worker has gone silent: then it tells who holds the
// interpreter, even when that is a C call that lets no Python code run.
const pageSize = 4096

func sizedPage(f *os.File) (*os.File, error) {
	if err := f.Truncate(pageSize); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("cannot size the page: %w", err)
	}
	return f, nil
}
