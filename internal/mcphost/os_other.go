//go:build !linux

package mcphost

import (
	"os/exec"
	"syscall"
)

// ownGroup makes the program the head of a process group of its own.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// reap waits until the program has ended and lets clear end its group.
func reap(cmd *exec.Cmd, clear func()) {
	_ = cmd.Wait()
	clear()
}
