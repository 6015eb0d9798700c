package sqlstore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/vault"
)

// The test binary runs itself as another process, which plays a role in a data
// folder and says on its output what it did.

// spawn starts a child in a role; what it writes comes line by line.
func spawn(t *testing.T, role, dir string) (*exec.Cmd, *bufio.Scanner, io.WriteCloser) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), "SQLSTORE_CHILD="+role, "SQLSTORE_DIR="+dir)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewScanner(out), in
}

// child plays a role and gives the process's exit code.
func child(role string) int {
	dir := os.Getenv("SQLSTORE_DIR")
	roles := map[string]func(context.Context, string, *vault.Vault) error{
		"append": appendForEver, "own": own, "switch": switchBesideOwner, "fill": fillTheDisk,
	}
	v, err := vault.Open(dir, "")
	if err == nil {
		err = roles[role](context.Background(), dir, v)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		return 1
	}
	return 0
}

// own owns the folder until its input ends.
func own(ctx context.Context, dir string, v *vault.Vault) error {
	s, err := Open(ctx, dir, Options{Vault: v})
	if err != nil {
		return err
	}
	fmt.Println(os.Getpid())
	_, err = io.Copy(io.Discard, os.Stdin)
	return errors.Join(err, s.Close())
}

// appendForEver appends in ten conversations at once and says which events have
// been acknowledged, until somebody kills it.
func appendForEver(ctx context.Context, dir string, v *vault.Vault) error {
	s, err := Open(ctx, dir, Options{Vault: v})
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	for i := range 10 {
		wg.Go(func() {
			id := conversation.ID{Sender: fmt.Sprint(i)}
			there, err := s.Load(ctx, id)
			for seq := int64(len(there)) + 1; err == nil; seq++ {
				text := strings.Repeat(fmt.Sprint(i), int(seq*997%40_000))
				err = errors.Join(
					s.AppendTrace(ctx, id, []conversation.Trace{{Turn: "t", Data: []byte(text)}}),
					s.Append(ctx, id, []conversation.Event{{Seq: seq, Kind: conversation.User, Text: text}}),
				)
				if err == nil {
					mu.Lock()
					fmt.Println(i, seq)
					mu.Unlock()
				}
			}
			fmt.Fprintln(os.Stderr, "child:", err)
		})
	}
	wg.Wait()
	return errors.New("appending has ended")
}

// switchBesideOwner disables a hook while another process owns the folder.
func switchBesideOwner(ctx context.Context, dir string, v *vault.Vault) error {
	s, err := Attach(ctx, dir, Options{Vault: v})
	if err != nil {
		return err
	}
	events, err := s.Load(ctx, ann)
	if err != nil || len(events) != 1 || events[0].Text != "a" {
		return fmt.Errorf("the other process's events are %v, %w", events, err)
	}
	_, err = s.SetHookSwitch(ctx, HookSwitch{Tenant: "main", Agent: "clinic", Hook: "hooks/a.py:mask", Disabled: true, By: "child"})
	return errors.Join(err, s.Close())
}

// fillTheDisk lets no file grow over a limit, and takes the limit away again.
func fillTheDisk(ctx context.Context, dir string, v *vault.Vault) error {
	s, err := Open(ctx, dir, Options{Vault: v})
	if err != nil {
		return err
	}
	var free syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &free); err != nil {
		return err
	}
	tight := syscall.Rlimit{Cur: 256 << 10, Max: free.Max}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &tight); err != nil {
		return err
	}
	seq := int64(0)
	for err == nil && seq < 100 {
		seq++
		err = s.Append(ctx, ann, []conversation.Event{{Seq: seq, Text: strings.Repeat("x", 20_000)}})
	}
	if !errors.Is(err, ErrDisk) || !strings.Contains(err.Error(), dir) {
		return fmt.Errorf("at event %d: %w, want ErrDisk", seq, err)
	}
	if again := s.Append(ctx, bob, []conversation.Event{{Seq: 1, Text: strings.Repeat("x", 1<<20)}}); !errors.Is(again, ErrDisk) {
		return fmt.Errorf("the next one: %w, want ErrDisk", again)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &free); err != nil {
		return err
	}
	if err := s.Append(ctx, ann, []conversation.Event{{Seq: seq, Text: "y"}}); err != nil {
		return fmt.Errorf("with room again: %w", err)
	}
	fmt.Println(seq)
	return s.Close()
}
