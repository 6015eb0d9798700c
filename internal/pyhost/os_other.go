//go:build !linux

package pyhost

import (
	"fmt"
	"os"
)

// newPage returns the page as a file that has lost its name.
func newPage() (*os.File, error) {
	f, err := os.CreateTemp("", "belay-worker-*")
	if err != nil {
		return nil, fmt.Errorf("cannot make the page: %w", err)
	}
	_ = os.Remove(f.Name())
	return sizedPage(f)
}

// widen does nothing: only Linux lets a pipe be made larger.
func widen(*os.File) {}
