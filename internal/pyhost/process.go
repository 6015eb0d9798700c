package pyhost

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	pipeSize = 1 << 20                // so that 200 KB of messages go over in one piece
	dumpTime = 20 * time.Millisecond  // for a stuck worker to write where it is stuck
	drain    = 100 * time.Millisecond // for what a dead worker left in its pipes
)

// process is a running interpreter with the pipes to it.
type process struct {
	cmd  *exec.Cmd
	in   *os.File // to the worker's descriptor 3
	out  *os.File // from its descriptor 4
	life *os.File // closes when this process ends
	page *os.File // see page.go
	text *os.File // what it prints
}

// startProcess runs the worker of the Python package in sdk with the interpreter
// python. The working folder is the agent's.
func startProcess(python, sdk, dir string) (*process, error) {
	p := &process{}
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			_ = f.Close()
		}
	}()
	pipe := func(read, write **os.File) error {
		r, w, err := os.Pipe()
		*read, *write = r, w
		return err
	}
	var in, out, life, text *os.File
	page, err := newPage()
	if err == nil {
		p.page = page
		err = pipe(&in, &p.in)
	}
	if err == nil {
		theirs = append(theirs, in)
		err = pipe(&p.out, &out)
	}
	if err == nil {
		theirs = append(theirs, out)
		err = pipe(&life, &p.life)
	}
	if err == nil {
		theirs = append(theirs, life)
		err = pipe(&p.text, &text)
	}
	if err != nil {
		p.close()
		return nil, fmt.Errorf("cannot make the pipes of a Python worker: %w", err)
	}
	theirs = append(theirs, text)
	widen(p.in)
	widen(p.out)

	p.cmd = exec.Command(python, "-u", filepath.Join(sdk, "belay", "worker", "__main__.py"))
	p.cmd.Dir = dir
	p.cmd.Env = workerEnv(os.Environ())
	p.cmd.Stdout, p.cmd.Stderr = text, text
	p.cmd.ExtraFiles = []*os.File{in, out, life, page}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// workerEnv is the host's environment without Belay's own settings, which may
// hold secrets that are none of the agent's business.
func workerEnv(environ []string) []string {
	var env []string
	for _, kv := range environ {
		if !strings.HasPrefix(kv, "BELAY_") {
			env = append(env, kv)
		}
	}
	return env
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// kill ends the worker's whole process group.
func (p *process) kill() { _ = syscall.Kill(-p.pid(), syscall.SIGKILL) }

// dump asks a stuck worker to write its stack to the log: the worker registers
// this signal with faulthandler, which needs no running interpreter.
func (p *process) dump() { _ = syscall.Kill(p.pid(), syscall.SIGUSR2) }

// running returns the id of the call whose step runs now; 0 when there is none
// or nobody knows.
func (p *process) running() uint32 {
	var b [4]byte
	if n, err := p.page.ReadAt(b[:], 0); n < len(b) || err != nil {
		return 0
	}
	return binary.NativeEndian.Uint32(b[:])
}

// close closes the host's ends.
func (p *process) close() {
	for _, f := range []*os.File{p.in, p.out, p.life, p.page, p.text} {
		if f != nil {
			_ = f.Close()
		}
	}
}
