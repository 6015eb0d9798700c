package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// The commands of scripts for what goes on beside them:
//
//	start NAME PROGRAM ARGS…        starts a program
//	send NAME TEXT                  writes a line to its input
//	await NAME REGEXP               waits until it writes what matches, after what
//	                                matched last; a named group becomes a variable
//	signal NAME TERM|HUP|INT        sends a signal
//	end NAME [STATUS]               closes its input and waits for its end with the
//	                                status (0); what it wrote is then in NAME.out
//	request NAME METHOD URL [BODY]  makes an HTTP request, with the token $TOKEN
//	answer NAME                     waits for its answer, gives status and body as stdout
//	http METHOD URL [BODY]          does both
//	capture REGEXP                  wants the last stdout to match; a named group
//	                                becomes a variable
var driverCommands = map[string]func(ts *testscript.TestScript, neg bool, args []string){
	"start":   driving(2, (*driver).start),
	"send":    driving(2, (*driver).send),
	"await":   driving(2, (*driver).await),
	"signal":  driving(2, (*driver).signal),
	"end":     driving(1, (*driver).end),
	"request": driving(3, (*driver).request),
	"answer":  driving(1, (*driver).answer),
	"http":    driving(2, (*driver).http),
	"capture": driving(1, (*driver).capture),
}

// patience is how long a script waits for anything. It is only used up when the
// test fails.
const patience = 90 * time.Second

func driving(least int, do func(*driver, *testscript.TestScript, []string)) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) < least {
			ts.Fatalf("the command takes at least %d arguments and no !", least)
		}
		do(ts.Value(driverKey{}).(*driver), ts, args)
	}
}

type driverKey struct{}

// driver is what goes on beside one script.
type driver struct {
	processes map[string]*process
	requests  map[string]chan response
}

type process struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *watched
	seen int           // of out, by await
	done chan struct{} // closed once it has ended
}

func (d *driver) killAll() {
	for _, p := range d.processes {
		_ = p.cmd.Process.Kill() // it may have ended
		<-p.done
	}
}

func (d *driver) process(ts *testscript.TestScript, name string) *process {
	p := d.processes[name]
	if p == nil {
		ts.Fatalf("%s was not started", name)
	}
	return p
}

func (d *driver) start(ts *testscript.TestScript, args []string) {
	path, err := exec.LookPath(ts.Getenv("BIN") + "/" + args[1])
	ts.Check(err)
	p := &process{cmd: exec.Command(path, args[2:]...), out: newWatched(), done: make(chan struct{})}
	p.cmd.Dir = ts.MkAbs(".")
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "XDG_CACHE_HOME", "BELAY_PYTHON", "BELAY_TOKEN", "BELAY_MODEL", "BELAY_KEY_FILE", "BELAY_DATA", "ACME_REPOSITORY", "HOOK_SECRET"} {
		p.cmd.Env = append(p.cmd.Env, name+"="+ts.Getenv(name))
	}
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	p.in, err = p.cmd.StdinPipe()
	ts.Check(err)
	ts.Check(p.cmd.Start())
	d.processes[args[0]] = p
	go func() {
		_ = p.cmd.Wait() // end looks at the status
		close(p.done)
	}()
}

func (d *driver) send(ts *testscript.TestScript, args []string) {
	_, err := io.WriteString(d.process(ts, args[0]).in, args[1]+"\n")
	ts.Check(err)
}

func (d *driver) await(ts *testscript.TestScript, args []string) {
	p, re := d.process(ts, args[0]), regexp.MustCompile(args[1])
	over := time.After(patience)
	for {
		text, more := p.out.look()
		ended := false
		select {
		case <-p.done: // nothing comes after what look gives next
			text, _ = p.out.look()
			ended = true
		default:
		}
		if m := re.FindStringSubmatchIndex(text[p.seen:]); m != nil {
			for i, group := range re.SubexpNames() {
				if group != "" {
					ts.Setenv(group, text[p.seen+m[2*i]:p.seen+m[2*i+1]])
				}
			}
			p.seen += m[1]
			return
		}
		if ended {
			ts.Fatalf("%s ended and did not write %s; all that it wrote:\n%s", args[0], args[1], text)
		}
		select {
		case <-more:
		case <-p.done:
		case <-over:
			ts.Fatalf("%s did not write %s; all that it wrote:\n%s", args[0], args[1], text)
		}
	}
}

func (d *driver) signal(ts *testscript.TestScript, args []string) {
	signal := map[string]os.Signal{"TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP, "INT": os.Interrupt}[args[1]]
	if signal == nil {
		ts.Fatalf("no signal %s", args[1])
	}
	ts.Check(d.process(ts, args[0]).cmd.Process.Signal(signal))
}

func (d *driver) end(ts *testscript.TestScript, args []string) {
	p, want := d.process(ts, args[0]), 0
	if len(args) > 1 {
		var err error
		want, err = strconv.Atoi(args[1])
		ts.Check(err)
	}
	_ = p.in.Close() // it may be closed already
	select {
	case <-p.done:
	case <-time.After(patience):
		text, _ := p.out.look()
		ts.Fatalf("%s does not end; all that it wrote:\n%s", args[0], text)
	}
	text, _ := p.out.look()
	ts.Check(os.WriteFile(ts.MkAbs(args[0]+".out"), []byte(text), 0o666))
	if got := p.cmd.ProcessState.ExitCode(); got != want {
		ts.Fatalf("%s ended with status %d, not %d (%s):\n%s", args[0], got, want, p.cmd.ProcessState, text)
	}
}

type response struct {
	text string
	err  error
}

func (d *driver) request(ts *testscript.TestScript, args []string) {
	body := strings.Join(args[3:], " ")
	req, err := http.NewRequest(args[1], args[2], strings.NewReader(body))
	ts.Check(err)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if token := ts.Getenv("TOKEN"); token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	answer := make(chan response, 1)
	d.requests[args[0]] = answer
	go func() {
		client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
		r, err := client.Do(req)
		if err != nil {
			answer <- response{err: err}
			return
		}
		defer func() { _ = r.Body.Close() }()
		text, err := io.ReadAll(r.Body)
		answer <- response{fmt.Sprintf("%d\n%s\n", r.StatusCode, text), err}
	}()
}

func (d *driver) answer(ts *testscript.TestScript, args []string) {
	answer := d.requests[args[0]]
	if answer == nil {
		ts.Fatalf("no request %s was made", args[0])
	}
	r := <-answer
	ts.Check(r.err)
	_, err := io.WriteString(ts.Stdout(), r.text)
	ts.Check(err)
}

func (d *driver) http(ts *testscript.TestScript, args []string) {
	d.request(ts, append([]string{"http"}, args...))
	d.answer(ts, []string{"http"})
}

func (*driver) capture(ts *testscript.TestScript, args []string) {
	re, text := regexp.MustCompile(args[0]), ts.ReadFile("stdout")
	m := re.FindStringSubmatch(text)
	if m == nil {
		ts.Fatalf("stdout does not match %s:\n%s", args[0], text)
	}
	for i, group := range re.SubexpNames() {
		if group != "" {
			ts.Setenv(group, m[i])
		}
	}
}

// watched is output that can be waited for.
type watched struct {
	mu   sync.Mutex
	b    bytes.Buffer
	more chan struct{} // closed when something is written
}

func newWatched() *watched { return &watched{more: make(chan struct{})} }

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.more)
	w.more = make(chan struct{})
	return w.b.Write(p)
}

// look gives what was written so far, and what is closed when there is more.
func (w *watched) look() (string, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String(), w.more
}
