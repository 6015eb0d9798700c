//go:build linux

package tests

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/internal/app"
	"github.com/belay-run/belay/internal/app/apptest"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/rawjson"
)

// trouble is what a hook does that it should not.
type trouble struct {
	name, body string
	// fails is how it fails; "" when it does not.
	fails hook.FailureKind
	// lost says that the interpreter does not live on, so that other calls which
	// had begun may be lost with it.
	lost bool
	// long is for what takes its time before it fails, closed for what is tried
	// at a closed point too.
	long, closed bool
}

var troubles = []trouble{
	{name: "sleeps in C", body: "time.sleep(60)", fails: hook.Timeout, lost: true, closed: true},
	{name: "spins", body: "while True:\n    pass", fails: hook.Timeout, lost: true},
	{name: "prints megabytes", body: "for i in range(20_000):\n    print(i, 'x' * 100)", long: true},
	{name: "writes to the pipe", body: "import os\nos.write(4, b'hello, is anybody there')\nawait asyncio.sleep(5)", fails: hook.Crash, lost: true},
	{name: "writes an answer that nobody asked for to the pipe", body: "import os\nos.write(4, b'\\0\\0\\0\\6A\\x7f\\0\\0\\1\\0')\nawait asyncio.sleep(5)", fails: hook.Crash, lost: true},
	{name: "calls os._exit", body: "import os\nos._exit(3)", fails: hook.Crash, lost: true, closed: true},
	{name: "forks a child that holds the pipe", body: "import ctypes\nif ctypes.CDLL(None).fork() == 0:\n    time.sleep(600)"},
	{name: "forks a child that comes back", body: "import os\nos.fork()"},
	{name: "raises SystemExit", body: "raise SystemExit(3)", fails: hook.Crash, closed: true},
	{name: "raises KeyboardInterrupt", body: "raise KeyboardInterrupt()", fails: hook.Crash},
	{name: "returns 100 MB", body: "return p.model_copy(update={'text': 'x' * (100 << 20), 'messages': [{'role': 'x' * (100 << 20)}]})", fails: hook.WrongReturn, long: true, closed: true},
	{name: "recurses to death", body: "def deep():\n    return deep() + 1\ndeep()", fails: hook.Crash},
	{name: "recurses to death in C", body: "import sys\nclass Deep:\n    def __repr__(self):\n        return repr(self)\nsys.setrecursionlimit(10**9)\nrepr(Deep())", fails: hook.Crash, lost: true},
}

// post is where trouble is made, and what then follows from its failure.
type post struct {
	name, hook, long string // the hook for short and for long trouble
	heard, longHeard string // when it fails
	status           string
}

var posts = []post{
	{"a modify hook, open", "modify_outgoing_text", "modify_model_response", "done", "done", "completed"},
	{"a modify hook, closed", "modify_tool_call", "modify_model_request", "[call failed]", "[request failed]", "error"},
	{"an observer", "on_outgoing_text", "on_model_response", "done", "done", "completed"},
}

func TestTrouble(t *testing.T) {
	t.Parallel()
	limits := map[string]int{}
	for _, name := range everyHook() {
		limits[name] = longLimit
	}
	for _, p := range posts {
		limits[p.hook] = 1000
	}
	files := hooksWith(limits)
	returning := "hooks/on_model_response.py" // gives back what it was made to
	files[returning] = strings.Replace(files[returning], "    await play(\"on_model_response\", p)", "    got = await play(\"on_model_response\", p)\n    return None if got is p else got", 1)
	a := startPlayed(t, nil, guardedFiles, files)
	lost := 0
	for _, p := range posts {
		for _, c := range troubles {
			if p.status == "error" && !c.closed {
				continue
			}
			a.steady(t, 1, lost)
			if err := os.Remove(filepath.Join(a.Dir, "notes.jsonl")); err != nil && !os.IsNotExist(err) { // it would grow long
				t.Fatal(err)
			}
			trouble := tried{c: c, p: p, sender: c.name + ", " + p.name}
			a.try(t, &trouble)
			if c.lost {
				lost++
				a.untilLog(t, saysLost, lost)
			}
			t.Run("a hook "+trouble.sender+": the turn goes on by the policy", func(t *testing.T) { a.byPolicy(t, trouble) })
			t.Run("a hook "+trouble.sender+": no other call is lost unless the interpreter was", func(t *testing.T) { a.accounted(t, trouble, lost) })
		}
	}
	t.Run("a child that a hook forked ends with its worker", func(t *testing.T) {
		a.steady(t, 1, lost)
		if there := processesIn(t, a.Dir); len(there) != 2 {
			t.Errorf("worker and spare are %v", there)
		}
		a.turn(t, "forks once more", "hello", bodies{"on_turn_started": "import ctypes\nif ctypes.CDLL(None).fork() == 0:\n    time.sleep(600)"})
		a.App.WaitObservers()
		there := processesIn(t, a.Dir)
		if len(there) != 3 {
			t.Errorf("worker, spare and child are %v", there)
		}
		a.Close()
		untilGone(t, a.Dir)
	})
}

// tried is one trouble with what came of it.
type tried struct {
	c      trouble
	p      post
	sender string
	reply  sent
	others map[string]apptest.Reply
	logged int
	metric float64
}

func (d tried) hook() string {
	if d.c.long {
		return d.p.long
	}
	return d.p.hook
}

// try makes trouble while other conversations are busy.
func (a playedAgent) try(t *testing.T, d *tried) {
	t.Helper()
	d.logged, d.metric = a.countLog(`msg="a hook failed"`), a.metric(t, "belay_hook_failures_total")
	d.others = map[string]apptest.Reply{}
	var wg sync.WaitGroup
	var mu sync.Mutex
	over := make(chan struct{})
	for i := range 3 {
		wg.Go(func() {
			for n := 0; ; n++ {
				sender := fmt.Sprintf("%s, beside it %d-%d", d.sender, i, n)
				r := a.turn(t, sender, "hello", bodies{"modify_model_request": "note('busy', sender_id=p.sender_id)\nawait asyncio.sleep(0.1)", "on_model_response": "await asyncio.sleep(0.1)"})
				mu.Lock()
				d.others[sender] = r
				mu.Unlock()
				select {
				case <-over:
					return
				default:
				}
			}
		})
	}
	for i := range 3 {
		a.waitFor(t, fmt.Sprintf("%s, beside it %d-0", d.sender, i), "busy")
	}
	a.Next(d.sender, apptest.Call("look_up", map[string]any{"item": "chair"}), apptest.Says("done"))
	d.reply = <-a.send(t.Context(), played(d.sender, "hello", bodies{d.hook(): d.c.body}))
	a.App.WaitObservers()
	close(over)
	wg.Wait()
}

func (a playedAgent) byPolicy(t *testing.T, d tried) {
	heard, status := "done", "completed"
	if d.c.fails != "" && strings.HasPrefix(d.hook(), "modify_") {
		heard, status = d.p.heard, d.p.status
		if d.c.long {
			heard = d.p.longHeard
		}
	}
	if d.reply.err != nil || d.reply.Text() != heard || d.reply.Report.Status != status {
		t.Errorf("the user heard %q, status %s, error %v; want %q, %s", d.reply.Text(), d.reply.Report.Status, d.reply.err, heard, status)
	}
	failed := a.failedRuns(d.sender)
	dropped := slices.ContainsFunc(a.everyRun(d.sender), func(r hook.Run) bool { return r.Lane == hook.Observe && r.Dropped != "" })
	switch {
	case d.c.fails == hook.WrongReturn && strings.HasPrefix(d.hook(), "on_"): // what an observer returns is no failure
		if !dropped || len(failed) > 0 {
			t.Errorf("dropped: %v, failures: %+v", dropped, failed)
		}
	case d.c.fails == "" && len(failed) > 0:
		t.Errorf("failures: %+v", failed)
	case d.c.fails != "" && (len(failed) == 0 || failed[0].Failure.Kind != d.c.fails):
		t.Errorf("failures: %+v, want one that is a %s", failed, d.c.fails)
	}
}

var failedCalls = regexp.MustCompile(`failed_calls=(\d+)`)

// accounted proves that calls of other conversations failed only when their
// interpreter was lost, and that each failure is in the trace, the log and the
// metrics.
func (a playedAgent) accounted(t *testing.T, d tried, lost int) {
	if got := a.countLog(saysLost); got != lost {
		t.Errorf("%d workers were lost, want %d", got, lost)
	}
	failures := a.failedRuns(d.sender)
	for sender, r := range d.others {
		failed := a.failedRuns(sender)
		heard := "ok"
		for _, f := range failed {
			if f.Lane == hook.Modify && f.Point == hook.ModelRequest {
				heard = "[request failed]"
			}
			if !d.c.lost || f.Failure.Kind != hook.Crash || !strings.Contains(f.Failure.Message, "worker was lost") {
				t.Errorf("%s: %s failed: %+v", sender, f.Name, f.Failure)
			}
		}
		if r.Text() != heard {
			t.Errorf("%s: the user heard %q, failures %+v", sender, r.Text(), failed)
		}
		failures = append(failures, failed...)
	}
	if n := a.countLog(`msg="a hook failed"`) - d.logged; n != len(failures) {
		t.Errorf("%d failures in the traces, %d in the log", len(failures), n)
	}
	if n := a.metric(t, "belay_hook_failures_total") - d.metric; n != float64(len(failures)) {
		t.Errorf("%d failures in the traces, %v in the metrics", len(failures), n)
	}
	if !d.c.lost {
		return
	}
	inFlight := 0
	for _, f := range failures {
		if strings.Contains(f.Failure.Message, "worker was lost") {
			inFlight++
		}
	}
	all := failedCalls.FindAllStringSubmatch(a.Log(), -1)
	if said := all[len(all)-1][1]; said != strconv.Itoa(inFlight) {
		t.Errorf("the log says that %s calls were lost, the traces have %d", said, inFlight)
	}
}

// processesIn are the processes whose working folder is the agent's: its workers
// and what they started.
func processesIn(t *testing.T, dir string) (pids []int) {
	t.Helper()
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if at, err := os.Readlink(link); err == nil && at == real {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(link)))
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	return pids
}

// untilGone waits until no process of an agent's folder is left: the kernel takes a
// moment to end what was killed.
func untilGone(t *testing.T, dir string) {
	t.Helper()
	for end := time.Now().Add(patience); len(processesIn(t, dir)) > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the processes %v are left", processesIn(t, dir))
		}
	}
}

// children are the processes that this one started and that are not reaped.
func children(t *testing.T) (pids []string) {
	t.Helper()
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		b, err := os.ReadFile(list)
		if err != nil && !os.IsNotExist(err) { // a thread that has ended
			t.Fatal(err)
		}
		pids = append(pids, strings.Fields(string(b))...)
	}
	return pids
}

// crowdHooks stand at every point in both lanes. Each looks for other people's
// names in its payload, lets others run, and puts its own mark on what it gets.
func crowdHooks() apptest.Files {
	marks := map[string]string{
		"incoming_message": "{'text': p.text + mark}", "model_request": "{'messages': [*p.messages, {'role': 'system', 'content': mark}]}",
		"model_response": "{'text': p.text and p.text + mark}", "tool_call": "{'arguments': {**p.arguments, 'more': mark}}",
		"tool_result": "{'value': p.value + mark}", "knowledge_query": "{'query': p.query + mark}",
		"knowledge_results": "{'passages': [*p.passages, {'text': mark}]}", "outgoing_text": "{'text': p.text + mark}",
	}
	var b strings.Builder
	b.WriteString("from __future__ import annotations\n\nimport asyncio\n\nfrom belay.hooks import *\nfrom lib.crowd import look\n")
	for _, p := range hook.Points {
		if p.Dialect != hook.Turn {
			continue
		}
		fmt.Fprintf(&b, "\n\n@on_%[1]s(timeout_ms=%[2]d)\nasync def see_%[1]s(p: %[3]s) -> None:\n    await look('on_%[1]s', p)\n", p.Name, longLimit, p.Payload)
		if p.Modify {
			fmt.Fprintf(&b, "\n\n@modify_%[1]s(timeout_ms=%[2]d)\nasync def mark_%[1]s(p: %[3]s) -> %[3]s:\n    mark = await look('modify_%[1]s', p)\n    return p.model_copy(update=%[4]s)\n",
				p.Name, longLimit, p.Payload, marks[p.Name])
		}
	}
	return apptest.Files{"hooks.py": b.String(), "lib/crowd.py": `import asyncio
import re

from lib.probe import note


async def look(name, p):
    names = set(re.findall(r"<(user \d+)>", str(p.model_dump())))
    await asyncio.sleep(0)
    note(name, sender_id=p.sender_id, strangers=sorted(names - {p.sender_id}))
    return f" [{name} <{p.sender_id}>]"
`, "tools/crowd.py": `from __future__ import annotations

import asyncio

from belay.tools import ToolContext, ToolResult, tool


@tool(description="Says who asks.")
async def who(context: ToolContext, name: str, more: str) -> ToolResult:
    await asyncio.sleep(0.01)
    return ToolResult(llm_response={"asked": name, "asks": f"<{context.sender_id}>"})
`, "references/shop.md": "# Warranty\n\nThe warranty lasts two years.\n"}
}

// named is a model's answer that names who it is for.
func named(answer func(who string) apptest.Answer) apptest.Answer {
	return func(ctx context.Context, req chat.Request, delta func(string)) (chat.Response, error) {
		return answer("<"+chat.Conversation(ctx)+">")(ctx, req, delta)
	}
}

// This test is not parallel: it looks at all that the process has.
func TestCrowd(t *testing.T) {
	const people, turns = 200, 2
	before, kids := goleak.IgnoreCurrent(), children(t)
	dir := apptest.Folder(t, crowdHooks())
	a := playedAgent{apptest.StartIn(t, dir, apptest.Play(
		named(func(who string) apptest.Answer {
			return apptest.SaysAndCalls("let me look, "+who, apptest.C{Name: "search_knowledge", Args: map[string]any{"query": "warranty " + who}}, apptest.C{Name: "who", Args: map[string]any{"name": who}})
		}),
		named(func(who string) apptest.Answer { return apptest.Says("done, " + who) }),
		named(func(who string) apptest.Answer { return apptest.Says("again, " + who) })))}

	replies := make([][]apptest.Reply, people)
	var wg sync.WaitGroup
	for i := range people {
		wg.Go(func() {
			sender := fmt.Sprint("user ", i)
			for range turns {
				replies[i] = append(replies[i], a.turn(t, sender, "I am <"+sender+">", nil))
			}
		})
	}
	wg.Wait()
	a.App.WaitObservers()

	notes := map[any][]apptest.Note{}
	for _, n := range a.Notes() {
		notes[n.Data["sender_id"]] = append(notes[n.Data["sender_id"]], n)
	}
	stranger := regexp.MustCompile(`<user \d+>`)
	kept := map[string]string{}
	asked := 0
	kinds := a.Kinds("user 0")
	for i := range people {
		sender := fmt.Sprint("user ", i)
		events := string(rawjson.Must(a.Events(sender)))
		kept[sender] = events
		said := fmt.Sprint(replies[i][0].Texts, replies[i][1].Texts)
		for _, r := range a.RequestsOf(sender) {
			said += string(r.Messages)
		}
		for _, name := range stranger.FindAllString(strings.NewReplacer(`\u003c`, "<", `\u003e`, ">").Replace(said+events), -1) {
			if name != "<"+sender+">" {
				t.Errorf("%s got to %s", name, sender)
			}
		}
		if !strings.HasPrefix(replies[i][0].Text(), "let me look, <"+sender+">") || !strings.HasPrefix(replies[i][1].Text(), "again, <"+sender+">") || len(replies[i][0].Texts) != 2 {
			t.Errorf("%s heard %q and %q", sender, replies[i][0].Texts, replies[i][1].Texts)
		}
		for seq, e := range a.Events(sender) {
			if e.Seq != int64(seq+1) {
				t.Errorf("%s: event %d has the number %d", sender, seq+1, e.Seq)
			}
		}
		if !slices.Equal(a.Kinds(sender), kinds) || len(a.Of(sender, conversation.User)) != turns {
			t.Errorf("%s: events %v", sender, a.Kinds(sender))
		}
		for _, n := range notes[sender] {
			if len(n.Data["strangers"].([]any)) > 0 {
				t.Errorf("%s of %s saw %v", n.What, sender, n.Data["strangers"])
			}
		}
		runs := a.everyRun(sender)
		asked += len(runs)
		if len(a.failedRuns(sender)) > 0 || len(runs) != len(notes[sender]) || len(runs) != len(notes["user 0"]) || len(runs) < 30 {
			t.Errorf("%s: %d runs, %d notes, failures %+v", sender, len(runs), len(notes[sender]), a.failedRuns(sender))
		}
	}
	if n := a.metric(t, "belay_hook_runs_total"); n != float64(asked) {
		t.Errorf("%d runs in the traces, %v in the metrics", asked, n)
	}

	workers := processesIn(t, dir)
	a.Close()
	if len(workers) < 2 {
		t.Errorf("there were the processes %v", workers)
	}
	if left := processesIn(t, dir); len(left) > 0 {
		t.Errorf("the processes %v are left", left)
	}
	if left := children(t); !slices.Equal(left, kids) {
		t.Errorf("the children %v are left, there were %v", left, kids)
	}
	goleak.VerifyNone(t, before)

	// What was said is on disk, all of it.
	rows, err := app.ListHooks(t.Context(), app.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		asked -= int(r.Asked)
	}
	if asked != 0 {
		t.Errorf("the counts on disk lack %d runs", asked)
	}
	b := playedAgent{apptest.StartIn(t, dir)}
	for sender, events := range kept {
		if got := string(rawjson.Must(b.Events(sender))); got != events {
			t.Errorf("%s: the disk has\n%s\nand there was\n%s", sender, got, events)
		}
	}
}
