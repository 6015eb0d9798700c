package mcphost

import (
	"errors"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// ownGroup makes the program the head of a process group of its own, which the
// system kills when the thread that started it ends. [process.run] keeps that
// thread, so the program dies with this process, however that ends.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// reap waits until the program has ended, lets clear end its group, and takes its
// status. Until then its number, and so the group's, cannot become another's.
func reap(cmd *exec.Cmd, clear func()) {
	for {
		err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	clear()
	_ = cmd.Wait()
}
