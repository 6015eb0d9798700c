package mcphost

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// drain is how long those that a dead server left behind, in its group or with
// its pipes in hand, may take to end.
const drain = 200 * time.Millisecond

// process is a running server program with the pipes to it.
type process struct {
	cmd    *exec.Cmd
	stdin  *os.File
	stdout *os.File
	stderr *os.File
	exited chan struct{} // the program has ended and its group is gone; status is set
	quiet  chan struct{} // standard error has ended
	owner  sync.WaitGroup
	status string
}

// startProcess runs the configured command. Its lines on standard error go to out.
func startProcess(cfg Config, out *printed) (*process, error) {
	if info, err := os.Stat(cfg.Dir); cfg.Dir != "" && (err != nil || !info.IsDir()) {
		return nil, fmt.Errorf("its working folder %s is not there: make it or correct the configuration", cfg.Dir)
	}
	p := &process{exited: make(chan struct{}), quiet: make(chan struct{})}
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			_ = f.Close()
		}
	}()
	in, ours, err := os.Pipe()
	p.stdin, theirs = ours, append(theirs, in)
	var stdout, stderr *os.File
	if err == nil {
		p.stdout, stdout, err = os.Pipe()
		theirs = append(theirs, stdout)
	}
	if err == nil {
		p.stderr, stderr, err = os.Pipe()
		theirs = append(theirs, stderr)
	}
	if err != nil {
		p.close()
		return nil, fmt.Errorf("cannot make pipes: %w", err)
	}
	p.cmd = exec.Command(cfg.Command[0], cfg.Command[1:]...)
	p.cmd.Dir = cfg.Dir
	p.cmd.Env = cleanEnv(cfg.Env, os.LookupEnv)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = in, stdout, stderr
	p.cmd.SysProcAttr = ownGroup()

	started := make(chan error, 1)
	p.owner.Go(func() { p.run(started) })
	if err := <-started; err != nil {
		p.owner.Wait()
		p.close()
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("cannot run %q: %w: install it or correct the command", cfg.Command[0], err)
		}
		return nil, fmt.Errorf("cannot run %q: %w", cfg.Command[0], err)
	}
	p.owner.Go(func() {
		out.copyStderr(p.stderr)
		close(p.quiet)
	})
	return p, nil
}

// inherited are the variables that every server gets from this process.
var inherited = []string{"PATH", "HOME", "LANG", "TMPDIR"}

// cleanEnv is the environment of a server: what it was given by name, and nothing
// of this process's that it does not need to run at all.
func cleanEnv(named map[string]string, lookup func(string) (string, bool)) []string {
	env := []string{}
	for _, name := range inherited {
		if _, given := named[name]; given {
			continue
		}
		if v, ok := lookup(name); ok {
			env = append(env, name+"="+v)
		}
	}
	for name, v := range named {
		env = append(env, name+"="+v)
	}
	return env
}

// run starts the program and waits for it, on one thread from beginning to end:
// see [ownGroup].
func (p *process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := p.cmd.Start(); err != nil {
		started <- err
		return
	}
	started <- nil
	reap(p.cmd, func() {
		// Those of the group that still hold a pipe get a moment to end by themselves.
		p.signal(syscall.SIGTERM)
		select {
		case <-p.quiet:
		case <-time.After(drain):
		}
		p.signal(syscall.SIGKILL)
	})
	p.status = ended(p.cmd.ProcessState)
	// One that left the group may hold the pipes open for ever.
	until := time.Now().Add(drain)
	_ = p.stdout.SetReadDeadline(until)
	_ = p.stderr.SetReadDeadline(until)
	close(p.exited)
}

// ended says in words how a program ended.
func ended(s *os.ProcessState) string {
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return "it was ended by signal " + w.Signal().String()
	}
	return fmt.Sprintf("it exited with status %d", s.ExitCode())
}

func (p *process) signal(sig syscall.Signal) { _ = syscall.Kill(-p.cmd.Process.Pid, sig) }

// stop ends the program and all of its group: its input closes, then SIGTERM, then
// SIGKILL, with the grace between them. When hurry closes it is SIGKILL at once.
// stop returns when all are gone.
func (p *process) stop(grace time.Duration, hurry <-chan struct{}) {
	_ = p.stdin.Close()
	_ = p.stdout.SetReadDeadline(time.Time{})
	p.owner.Go(func() { _, _ = io.Copy(io.Discard, p.stdout) }) // so that it does not block in its last words
	wait := func() bool {
		t := time.NewTimer(grace)
		defer t.Stop()
		select {
		case <-p.exited:
			return true
		case <-hurry:
		case <-t.C:
		}
		return false
	}
	if !wait() {
		p.signal(syscall.SIGTERM)
		if !wait() {
			p.signal(syscall.SIGKILL)
		}
	}
	<-p.exited
	_ = p.stdout.Close()
	p.owner.Wait()
	p.close()
}

// close closes this process's ends of the pipes.
func (p *process) close() {
	for _, f := range []*os.File{p.stdin, p.stdout, p.stderr} {
		if f != nil {
			_ = f.Close()
		}
	}
}
