//go:build linux

package tests

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/belay-run/belay/internal/app/apptest"
	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/rawjson"
)

// service is a running "belay serve".
type service struct {
	t      *testing.T
	cmd    *exec.Cmd
	dir    string
	url    string
	log    *lockedText
	exited chan error
	client *http.Client
}

// lockedText is what a process writes to standard error.
type lockedText struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// serve starts the program on an agent's folder and waits until it listens.
func serve(t *testing.T, program, dir string) *service {
	t.Helper()
	s := &service{t: t, dir: dir, log: &lockedText{}, exited: make(chan error, 1), client: &http.Client{Transport: &http.Transport{}}}
	s.cmd = exec.Command(program, "serve", dir, "--port", "0")
	s.cmd.Stderr = s.log
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	said, err := lines.ReadString('\n')
	_, url, ok := strings.Cut(strings.TrimSpace(said), " on ")
	if err != nil || !ok {
		_ = s.cmd.Process.Kill()
		t.Fatalf("it said %q, %v\n%s", said, err, s.log)
	}
	s.url = url
	go func() {
		_, _ = io.Copy(io.Discard, lines)
		s.exited <- s.cmd.Wait()
	}()
	t.Cleanup(func() { s.kill() })
	return s
}

// kill ends the process as the kernel does when memory runs out, and waits for
// its end.
func (s *service) kill() {
	_ = s.cmd.Process.Kill() // it may have ended
	s.exited <- <-s.exited
	s.client.CloseIdleConnections()
}

// stop ends the process in order.
func (s *service) stop() {
	s.t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatal(err)
	}
	select {
	case err := <-s.exited:
		if s.exited <- err; err != nil {
			s.t.Errorf("it ended with %v\n%s", err, s.log)
		}
	case <-time.After(patience):
		s.t.Fatal("it does not end")
	}
	s.client.CloseIdleConnections()
}

// post sends a message by the webhook; with stream the texts come one by one.
func (s *service) post(ctx context.Context, sender, text string, does bodies, stream bool) (*http.Response, error) {
	message := map[string]any{"sender": sender, "message": text}
	if does != nil {
		message["call"] = does
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("%s/webhooks/rest/webhook?stream=%v", s.url, stream), bytes.NewReader(rawjson.Must(message)))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	return s.client.Do(req)
}

// say sends a message and gives the texts of the answer. An answer that did not
// come whole is an error.
func (s *service) say(sender, text string, does bodies) ([]string, error) {
	r, err := s.post(context.Background(), sender, text, does, false)
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if r.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", r.Status, b)
	}
	var replies []struct{ Text string }
	if err := json.Unmarshal(b, &replies); err != nil {
		return nil, err
	}
	var texts []string
	for _, reply := range replies {
		texts = append(texts, reply.Text)
	}
	return texts, nil
}

// tracker reads the record of a conversation, nothing when there is none.
func (s *service) tracker(sender string) (events []conversation.Exported) {
	s.t.Helper()
	r, err := s.client.Get(s.url + "/conversations/" + sender + "/tracker")
	if err != nil {
		s.t.Fatal(err)
	}
	defer r.Body.Close()
	if r.StatusCode == http.StatusNotFound {
		return nil
	}
	b, err := io.ReadAll(r.Body)
	var got struct{ Events []conversation.Exported }
	if err == nil {
		err = json.Unmarshal(b, &got)
	}
	if err != nil || r.StatusCode != http.StatusOK {
		s.t.Fatalf("tracker: %s, %v: %s", r.Status, err, b)
	}
	return got.Events
}

// said are the texts of a record in order, each with who said it, and the tools
// that ran.
func (s *service) said(sender string) (out []string) {
	for _, e := range s.tracker(sender) {
		switch {
		case e.Text != nil:
			out = append(out, e.Event+": "+*e.Text)
		case e.Event == string(conversation.ToolExecuted):
			out = append(out, "tool "+e.Name+": "+*e.Result)
		}
	}
	return out
}

// notes counts what the agent's Python noted for a conversation.
func (s *service) notes(sender, name string) (n int) {
	b, err := os.ReadFile(filepath.Join(s.dir, "notes.jsonl"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		var note apptest.Note
		if strings.Contains(line, sender) && json.Unmarshal([]byte(line), &note) == nil && note.What == name && note.Data["sender_id"] == sender {
			n++
		}
	}
	return n
}

// until waits for something that a right program does.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it never came to this: %s", what)
		}
	}
}

// limitFiles lets no file of a process grow beyond a size; ^0 lifts the limit.
func limitFiles(t *testing.T, pid int, size uint64) {
	t.Helper()
	limit := syscall.Rlimit{Cur: size, Max: ^uint64(0)}
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, uintptr(pid), syscall.RLIMIT_FSIZE, uintptr(unsafe.Pointer(&limit)), 0, 0, 0); errno != 0 {
		t.Fatalf("limit the files of process %d: %v", pid, errno)
	}
}

func TestDataFolder(t *testing.T) {
	t.Parallel()
	belay := program(t)
	dir := apptest.Folder(t, apptest.Files{"script.yml": "rules:\n  - when: {user: 'stream'}\n    pieces: ['one ', 'two']\ndefault:\n  say: fine\n"})
	s := serve(t, belay, dir)
	fine := func(t *testing.T) {
		t.Helper()
		if texts, err := s.say("ann", "hello", nil); err != nil || len(texts) != 1 || texts[0] != "fine" {
			t.Errorf("ann heard %q, %v", texts, err)
		}
	}
	fine(t)

	t.Run("a second owner is told who the first is", func(t *testing.T) {
		for _, args := range [][]string{{"serve", dir, "--port", "0"}, {"chat", dir}} {
			out, err := exec.Command(belay, args...).CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 1 {
				t.Errorf("%v ended with %v", args, err)
			}
			for _, part := range []string{"the data folder is in use by process " + fmt.Sprint(s.cmd.Process.Pid), "stop it, or use another data folder", dir} {
				if !strings.Contains(string(out), part) {
					t.Errorf("%v said %q, nothing of %q", args, out, part)
				}
			}
		}
		if there := processesIn(t, dir); len(there) != 2 {
			t.Errorf("beside the first one's worker and spare there are %v", there)
		}
		fine(t)
	})

	t.Run("with a full disk no reply leaves", func(t *testing.T) {
		before := s.said("ann")
		limitFiles(t, s.cmd.Process.Pid, 4096)
		if texts, err := s.say("ann", "to a full disk", nil); err == nil || !strings.HasPrefix(err.Error(), "503 ") || !strings.Contains(err.Error(), "the log says why") {
			t.Errorf("ann heard %q, %v", texts, err)
		}
		for _, stream := range []string{"application/json", "text/event-stream"} {
			req, err := http.NewRequest(http.MethodPost, s.url+"/v1/conversations/ann/messages", strings.NewReader(`{"message": "stream to a full disk"}`))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Accept", stream)
			r, err := s.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(r.Body)
			_ = r.Body.Close()
			if err != nil || strings.Contains(string(b), "one") || !strings.Contains(string(b), "could not run a turn") {
				t.Errorf("%s: ann heard %s, %v", stream, b, err)
			}
		}
		for _, part := range []string{"the disk is full or fails", filepath.Join(dir, ".belay")} {
			if !strings.Contains(s.log.String(), part) {
				t.Errorf("the log says nothing of %q:\n%s", part, s.log)
			}
		}
		limitFiles(t, s.cmd.Process.Pid, ^uint64(0))
		expect(t, "the record", s.said("ann"), before)
		fine(t)
		expect(t, "the record with room again", s.said("ann"), append(before, "user: hello", "bot: fine"))
	})

	t.Run("it ends in order", func(t *testing.T) {
		before := s.said("ann")
		s.stop()
		untilGone(t, dir)
		again := serve(t, belay, dir)
		expect(t, "the record", again.said("ann"), before)
		again.stop()
	})

	for _, c := range []struct {
		name  string
		make  func(t *testing.T) (data string)
		wants []string
	}{
		{"is a file", func(t *testing.T) string {
			apptest.Write(t, dir, "data", "")
			return filepath.Join(dir, "data")
		}, []string{"data folder", "--data"}},
		{"lies below a file", func(t *testing.T) string {
			apptest.Write(t, dir, "file", "")
			return filepath.Join(dir, "file", "data")
		}, []string{"make the data folder", "--data"}},
		{"must not be written to", func(t *testing.T) string {
			data := t.TempDir()
			if err := os.Chmod(data, 0o555); err != nil {
				t.Fatal(err)
			}
			return data
		}, []string{"permission denied", "data folder", "--data"}},
		{"has a folder in the database's place", func(t *testing.T) string {
			data := t.TempDir()
			if err := os.MkdirAll(filepath.Join(data, "belay.db"), 0o777); err != nil {
				t.Fatal(err)
			}
			return data
		}, []string{"belay.db"}},
	} {
		t.Run("a data folder that "+c.name, func(t *testing.T) {
			data := c.make(t)
			cmd := exec.Command(belay, "serve", dir, "--port", "0", "--data", data)
			if os.Geteuid() == 0 && c.name == "must not be written to" { // root may write anywhere
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
				for _, path := range []string{filepath.Dir(belay), filepath.Dir(filepath.Dir(dir)), filepath.Dir(dir), filepath.Dir(filepath.Dir(data)), filepath.Dir(data)} {
					if !strings.HasPrefix(path, filepath.Clean(os.TempDir())+"/") {
						continue // what is not of the tests stays as it is
					}
					if err := os.Chmod(path, 0o755); err != nil {
						t.Fatal(err)
					}
				}
			}
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 1 {
				t.Errorf("it ended with %v", err)
			}
			text := strings.TrimSpace(string(out))
			if last := text[strings.LastIndexByte(text, '\n')+1:]; !strings.HasPrefix(last, "belay: ") || !strings.Contains(last, strings.TrimSuffix(data, "/data")) {
				t.Errorf("it said %q", text)
			}
			for _, want := range c.wants {
				if !strings.Contains(text, want) {
					t.Errorf("it said %q, nothing of %q", text, want)
				}
			}
			untilGone(t, dir)
		})
	}
}
