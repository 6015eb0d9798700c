//go:build linux

package tests

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/approval"
	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/control"
	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/station"
)

// badProbe is a server by the official SDK whose hook answers, or fails, in the way
// that the name of the function says that it is asked about.
const badProbe = `
WIRE = os.dup(1)  # the SDK takes standard output for itself
import json, pathlib, time
import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.types import ToolAnnotations

HERE = pathlib.Path(os.environ["PROBE"])
server = MCPServer("probe")
READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)


def note(name, **data):
    with (HERE / "log.jsonl").open("a") as f:
        f.write(json.dumps({"name": name, **data}) + "\n")


def looks(kind):
    def look(what: str = "") -> str:
        return "seen " + kind

    server.tool(name="look_" + kind, annotations=READS)(look)


for kind in KINDS:
    looks(kind)

SAID = {
    "garbage": "no JSON at all", "misspelled": {"decision": "dney"}, "capitals": {"decision": "ALLOW"}, "list": ["allow"],
    "number": {"decision": 7}, "silent": {}, "null": None, "explained": {"decision": "dney", "reason": "it is late"},
}


@server.tool(annotations=READS)
def naughty(event: dict) -> str:
    kind = event["tool"].removeprefix("probe.look_")
    if kind in ("sleeps", "default"):
        time.sleep(20)
    if kind == "raises":
        raise ValueError("the number 4111 is wrong")
    said = SAID.get(kind, {"decision": "allow"})
    return said if isinstance(said, str) else json.dumps(said)


@server.tool(annotations=READS)
def nothing(event: dict):
    return None


@server.tool(annotations=READS)
async def late(event: dict, ctx: Context) -> str:
    try:
        await anyio.sleep(600)
    except BaseException:
        result = {"content": [{"type": "text", "text": '{"decision": "deny"}'}]}
        os.write(WIRE, json.dumps({"jsonrpc": "2.0", "id": int(ctx.request_id), "result": result}).encode() + b"\n")
        note("cancelled")
        raise


server.run()
`

// badServer is a small server whose hook does what harms the server. Its first
// argument says what.
const badServer = `
import json, pathlib, sys, time

HERE = pathlib.Path(os.environ["PROBE"])
NAME = sys.argv[1]
DIED = HERE / ("died-" + NAME)
FUNCTIONS = [{"name": name, "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True, "openWorldHint": False}} for name in ("naughty", "look")]


def write(line):
    os.write(1, line.encode() + b"\n")


def answer(id, result):
    write(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}))


def decide(id, decision):
    answer(id, {"content": [{"type": "text", "text": json.dumps({"decision": decision})}]})


def misbehave(id):
    with (HERE / "log.jsonl").open("a") as f:
        f.write(json.dumps({"name": NAME, "pid": os.getpid()}) + "\n")
    match NAME:
        case "exits":
            os._exit(3)
        case "large":
            decide(id, "x" * 50_000_000)
            return
        case "flood":
            decide(id, "x" * 60_000_000)
        case "grandchild":
            if os.fork() == 0:
                time.sleep(600)
            os._exit(5)
        case "reborn" if not DIED.exists():
            DIED.touch()
            os._exit(6)
        case "banner":
            write("a banner in the middle")
        case "twice":
            decide(id, "allow")
            decide(id, "deny")
            return
    decide(id, "allow")


write("a banner")
if NAME == "hangs":
    time.sleep(600)
if NAME == "reborn" and DIED.exists():
    time.sleep(3)
for line in sys.stdin:
    m = json.loads(line)
    match m["method"]:
        case "initialize":
            answer(m["id"], {"protocolVersion": m["params"]["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": NAME, "version": "1"}})
        case "tools/list":
            answer(m["id"], {"tools": FUNCTIONS})
        case "tools/call" if m["params"]["name"] == "look":
            answer(m["id"], {"content": [{"type": "text", "text": "seen"}]})
        case "tools/call":
            misbehave(m["id"])
        case "ping":
            answer(m["id"], {})
`

// aFailure is a way in which a hook fails.
type aFailure struct {
	kind   string
	tool   string // the server, probe when it harms nobody else
	call   string // the function, naughty when it is another
	limit  string
	reason string // what the reason says; "" when the hook answers allow after all
	record string // what the history says; reason when it says the same
}

func (f aFailure) look() string { return "look_" + f.kind }

var hookFailures = []aFailure{
	{kind: "sleeps", limit: "1s", reason: "no answer within 1s"},
	{kind: "late", call: "late", limit: "1s", reason: "no answer within 1s"},
	{kind: "default", reason: "no answer within 2s"},
	{kind: "exits", tool: "exits", reason: "crashed", record: "status 3"},
	{kind: "raises", reason: "crashed", record: "naughty"},
	{kind: "missing", call: "nobody", reason: "crashed", record: "nobody"},
	{kind: "grandchild", tool: "grandchild", limit: "20s", reason: "crashed", record: "status 5"},
	{kind: "garbage", reason: "no JSON object"},
	{kind: "misspelled", reason: `"dney" is no decision`},
	{kind: "explained", reason: "it is late"},
	{kind: "capitals", reason: `"ALLOW" is no decision`},
	{kind: "list", reason: "not an object"},
	{kind: "number", reason: "not a word"},
	{kind: "silent", reason: "no decision"},
	{kind: "null", reason: "not an object"},
	{kind: "nothing", call: "nothing", reason: "not an object"},
	{kind: "banner", tool: "banner", limit: "20s"},
	{kind: "twice", tool: "twice", limit: "20s"},
}

// failing makes a plugin whose hooks fail in every way, for three agents that stand
// to failures as their names say.
func failing(t *testing.T) *jobs {
	var m strings.Builder
	m.WriteString("name: acme\ntools:\n  - {id: probe, mcp: [python, probe.py]}\n")
	for _, tool := range []string{"exits", "flood", "large", "grandchild", "reborn", "banner", "twice"} {
		fmt.Fprintf(&m, "  - {id: %s, mcp: [python, bad.py, %s]}\n", tool, tool)
	}
	m.WriteString("agents:\n")
	for _, name := range []string{"allow", "deny", "escalate"} {
		fmt.Fprintf(&m, "  - {id: %s, instructions: Work., model: m, tools: [\"probe.*\"]}\n", name)
	}
	m.WriteString("hooks:\n")
	var kinds []string
	var batch []string
	for _, f := range hookFailures {
		kinds = append(kinds, f.kind)
		batch = append(batch, "probe."+f.look(), "{}")
		tool, call := f.tool, f.call
		if tool == "" {
			tool = "probe"
		}
		if call == "" {
			call = "naughty"
		}
		for _, policy := range []string{"allow", "deny", "escalate"} {
			fmt.Fprintf(&m, "  - {on: pre_tool_call, call: %s.%s, match: {tools: [probe.%s], agents: [%s]}, on_timeout: %s", tool, call, f.look(), policy, policy)
			if f.limit != "" {
				fmt.Fprintf(&m, ", timeout: %s", f.limit)
			}
			m.WriteString("}\n")
		}
	}
	for kind, limit := range map[string]string{"reborn": "1s", "flood": "30s", "large": "30s"} {
		fmt.Fprintf(&m, "  - {on: pre_tool_call, call: %s.naughty, match: {tools: [probe.look_%s]}, timeout: %s}\n", kind, kind, limit)
		kinds = append(kinds, kind)
	}
	reborn := does("probe.look_reborn", "{}")
	model := &playing{list: []chat.Response{does(batch...), says("Done.")}, by: map[string][]chat.Response{
		"reborn": {reborn, reborn, says("Done.")},
		"much":   {does("probe.look_flood", "{}", "probe.look_large", "{}"), says("Done.")},
	}}
	j := newJobs(t, model)
	list, _ := json.Marshal(kinds)
	j.server("probe.py", "KINDS = "+string(list)+"\n"+badProbe)
	j.server("bad.py", badServer)
	j.manifest(m.String())
	j.open()
	j.install()
	j.policy("rules:\n  - {name: unknown, tools: [probe.nobody], verdict: allow}\n")
	return j
}

func TestHooksThatFail(t *testing.T) {
	t.Parallel()
	j := failing(t)
	ids := map[string]job.ID{}
	for _, name := range []string{"allow", "deny", "escalate"} {
		ids[name] = j.startOf(name, name)
	}
	var broken []aFailure
	for _, f := range hookFailures {
		if f.reason != "" {
			broken = append(broken, f)
		}
	}
	waiting := j.waits(len(broken))
	yes := func(tool string) bool { return len(tool)%2 == 0 }
	asked := map[string]control.Approval{}
	for _, a := range waiting {
		asked[a.Request.Tool] = a
		j.decide(a, approval.Answer{Yes: yes(a.Request.Tool)})
	}
	for name, id := range ids {
		completed(t, j.end(id), "Done.")
		if got := j.readsOf(name); len(got) != len(hookFailures) {
			t.Fatalf("%s: the model read %q", name, got)
		}
	}
	for i, f := range hookFailures {
		tool := "probe." + f.look()
		made := "seen " + f.kind
		t.Run("P61 "+f.kind+", on_timeout: allow goes on with the call", func(t *testing.T) {
			if got := j.readsOf("allow")[i]; got != made {
				t.Errorf("the model read %q", got)
			}
		})
		t.Run("P61 P65 "+f.kind+", on_timeout: deny says what happened", func(t *testing.T) {
			got := j.readsOf("deny")[i]
			if f.reason == "" {
				if got != made {
					t.Errorf("the model read %q", got)
				}
				return
			}
			if !strings.HasPrefix(got, "The call to "+tool+" was not made: hook ") || !strings.Contains(got, f.reason) || strings.Contains(got, "4111") {
				t.Errorf("the model read %q, which should say %q", got, f.reason)
			}
		})
		t.Run("P61 P65 "+f.kind+", on_timeout: escalate asks a person and says what happened", func(t *testing.T) {
			a, there := asked[tool]
			if there != (f.reason != "") {
				t.Fatalf("a person was asked: %t", there)
			}
			if there && (a.Request.Kind != approval.Hook || len(a.Request.Reasons) != 1 || !strings.Contains(a.Request.Reasons[0].Text, f.reason)) {
				t.Errorf("the person was asked %+v", a.Request)
			}
			if got := j.readsOf("escalate")[i]; (got == made) != (!there || yes(tool)) {
				t.Errorf("the model read %q", got)
			}
		})
		t.Run("P62 P65 "+f.kind+" is in the history", func(t *testing.T) {
			for name, id := range ids {
				a := j.answerOf(id, fmt.Sprintf("agent/0/call/%d/pre/", i))
				said := string(a.Value)
				if a.Failure != nil {
					said = a.Failure.Kind + ": " + a.Failure.Message
				}
				if want := cmp.Or(f.record, f.reason); a.Failure != nil && !strings.Contains(said, want) {
					t.Errorf("%s: the history has %s, want %q", name, said, want)
				}
				if bad := f.limit != "" || f.tool != ""; bad && f.reason != "" && a.Failure == nil {
					t.Errorf("%s: the history has %s", name, said)
				}
			}
		})
	}
	t.Run("P62 P63 a server that died is started again, and that time is its own", func(t *testing.T) {
		completed(t, j.end(j.startOf("deny", "reborn")), "Done.")
		got := j.readsOf("reborn")
		if len(got) != 2 || !strings.Contains(got[0], "crashed") || got[1] != "seen reborn" {
			t.Errorf("the model read %q", got)
		}
		if asked := j.asked("reborn"); len(asked) != 2 || asked[0]["pid"] == asked[1]["pid"] {
			t.Errorf("asked %v", asked)
		}
	})
	t.Run("P61 P62 P65 50 MB and more", func(t *testing.T) {
		id := j.startOf("deny", "much")
		completed(t, j.end(id), "Done.")
		got := j.readsOf("much")
		for i, why := range []string{"sent a message of more than 48 MiB", "is no decision"} {
			if len(got) != 2 || !strings.Contains(got[i], "was not made") || len(got[i]) > 1000 {
				t.Fatalf("the model read %.1000q", got)
			}
			if slow := i == 1 && strings.Contains(got[i], "no answer within 30s"); !slow && !strings.Contains(got[i], why) { // on a slow machine 50 MB take their time
				t.Errorf("the model read %.1000q, which should say %q", got, why)
			}
		}
		if a := j.answerOf(id, "agent/0/call/0/pre/"); a.Failure == nil || !strings.Contains(a.Failure.Message, "48 MiB") {
			t.Errorf("the history has %+v", a.Failure)
		}
	})
	t.Run("P64 a late answer changes nothing", func(t *testing.T) {
		until(t, "the server was sent the cancellations", func() bool { return len(j.asked("cancelled")) == 3 })
		until(t, "their answers came", func() bool { return strings.Contains(j.log.String(), "answered what nobody waits for") })
		for name, id := range ids {
			a := j.answerOf(id, "agent/0/call/1/pre/")
			if a.Failure == nil || a.Failure.Kind != job.TimedOut {
				t.Errorf("%s: the history has %+v", name, a)
			}
			if r, err := j.st.Replay(t.Context(), id); err != nil || len(r.Differences) > 0 {
				t.Errorf("%s: replayed %+v, %v", name, r, err)
			}
		}
	})
}

const notStarting = `name: acme
tools:
  - {id: probe, mcp: [python, bad.py, fine]}
  - {id: hangs, mcp: [python, bad.py, hangs]}
  - {id: absent, mcp: [./no-such-program]}
agents:
  - {id: allow, instructions: Work., model: m, tools: ["probe.*"]}
  - {id: deny, instructions: Work., model: m, tools: ["probe.*"]}
  - {id: escalate, instructions: Work., model: m, tools: ["probe.*"]}
hooks:
  - {on: pre_tool_call, call: hangs.naughty, match: {agents: [allow]}, on_timeout: allow}
  - {on: pre_tool_call, call: absent.naughty, match: {agents: [deny]}}
  - {on: pre_tool_call, call: hangs.naughty, match: {agents: [escalate]}, on_timeout: escalate}
  - {on: post_tool_call, call: absent.naughty, match: {agents: [escalate]}, on_timeout: escalate}
`

func TestHooksWhoseServersDoNotStart(t *testing.T) {
	t.Parallel()
	j := newJobs(t, &playing{list: []chat.Response{does("probe.look", "{}"), says("Done.")}})
	j.server("bad.py", badServer)
	j.manifest(notStarting)
	j.config = func(c *station.Config) { c.StartLimit = 5 * time.Second }
	j.open()
	j.install()
	ids := map[string]job.ID{}
	for _, name := range []string{"allow", "deny", "escalate"} {
		ids[name] = j.startOf(name, name)
	}
	t.Run("P63 P85 a server that is not ready in time, on_timeout: allow", func(t *testing.T) {
		completed(t, j.end(ids["allow"]), "Done.")
		j.read(t, "allow", "seen")
	})
	t.Run("P65 P85 a program that is not there, on_timeout: deny", func(t *testing.T) {
		completed(t, j.end(ids["deny"]), "Done.")
		if got := j.readsOf("deny"); len(got) != 1 || !strings.Contains(got[0], "hook absent.naughty denied it: ") || !strings.Contains(got[0], "no-such-program") {
			t.Errorf("the model read %q", got)
		}
	})
	t.Run("P63 P65 P85 a server that is not ready in time, on_timeout: escalate", func(t *testing.T) {
		before := j.waitsIn(ids["escalate"])
		if r := before.Request; r.Kind != approval.Hook || r.Event != "pre_tool_call" || !strings.Contains(r.Reasons[0].Text, "was not ready within 5s") {
			t.Errorf("asked %+v", r)
		}
		j.decide(before, approval.Answer{Yes: true})
		after := j.waitsIn(ids["escalate"], before)
		if r := after.Request; r.Event != "post_tool_call" || string(r.Value) != `"seen"` {
			t.Errorf("asked %+v", r)
		}
		j.decide(after, approval.Answer{})
		completed(t, j.end(ids["escalate"]), "Done.")
		if got := j.readsOf("escalate"); len(got) != 1 || strings.Contains(got[0], "seen") || !strings.HasSuffix(got[0], " A person refused it.") {
			t.Errorf("the model read %q", got)
		}
	})
	t.Run("P62 the history says why", func(t *testing.T) {
		for name, id := range ids {
			listed := string(j.answerOf(id, "functions").Value)
			if !strings.Contains(listed, "was not ready within 5s") || !strings.Contains(listed, "no-such-program") {
				t.Errorf("%s: %s", name, listed)
			}
		}
	})
}

// answerOf is the one answer in a job's history to a question whose key begins so.
func (j *jobs) answerOf(id job.ID, prefix string) job.Answer {
	j.t.Helper()
	h, err := j.st.History(context.Background(), id)
	if err != nil {
		j.t.Fatal(err)
	}
	var out []job.Answer
	for _, r := range h.Records {
		if r.What == job.Answered && strings.HasPrefix(r.Key, prefix) {
			out = append(out, *r.Answer)
		}
	}
	if len(out) != 1 {
		j.t.Fatalf("%d answers at %s", len(out), filepath.Base(prefix))
	}
	return out[0]
}
