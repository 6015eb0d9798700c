//go:build linux

package tests

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// leakyServer has tools and hooks that put the planted texts wherever they can.
const leakyServer = `
import json, os, pathlib, sys
from typing import Any
from mcp.server import MCPServer
from mcp.types import ToolAnnotations

HERE = pathlib.Path(os.environ["PROBE"])
FORMS = json.loads((HERE / "forms.json").read_text())
ALL = " | ".join(FORMS)
server = MCPServer("leaky")
READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)


def dies():
    for form in FORMS:
        print("dies of", form, file=sys.stderr)
    print("at last", ALL, file=sys.stderr, flush=True)
    os._exit(3)


@server.tool(annotations=READS)
def look(what: str) -> str:
    print("looks", what, file=sys.stderr, flush=True)
    return ALL


@server.tool(annotations=READS)
def structured(what: str) -> dict[str, Any]:
    return {"found": FORMS, "all": ALL, "deep": [{"in": [ALL]}]}


@server.tool(annotations=READS)
def keys(what: str) -> dict[str, Any]:
    return {form: 1 for form in FORMS}


@server.tool(annotations=READS)
def raises(what: str) -> str:
    raise ValueError(ALL)


@server.tool()
def crash(what: str) -> str:
    dies()


@server.tool(annotations=READS)
def check(event: dict) -> dict:
    said = event["event"] + " " + str(event.get("tool", "")) + " " + str((event.get("arguments") or {}).get("what", ""))[:12]
    if "hook-raises" in said:
        raise ValueError(ALL)
    if "hook-cuts" in said:  # longer than what is logged of a line, and of an error
        for form in FORMS:
            print("y" * 4080 + form, file=sys.stderr, flush=True)
        raise ValueError("x" * 440 + max(FORMS, key=len))
    if "hook-dies" in said:
        dies()
    if "hook-asks" in said:
        return {"decision": "escalate", "reason": ALL}
    if "hook-denies" in said:
        return {"decision": "deny", "reason": ALL}
    if "hook-changes" in said and event["event"] == "pre_tool_call":
        return {"decision": "modify", "arguments": {"what": ALL}, "reason": ALL}
    if event["event"] == "job_end" and event["output"] == "refuse me":
        return {"decision": "deny", "reason": ALL}
    return {"decision": "allow"}


@server.tool(annotations=READS)
def changes(event: dict) -> dict:
    if event.get("tool") == "leaky.look" and event["result"] == ALL:
        return {"decision": "modify", "result": "changed: " + ALL, "reason": ALL}
    return {"decision": "allow"}


server.run()
`

const leakyManifest = `name: leaky
version: 1.0.0
tools:
  - {id: leaky, mcp: [python, server.py]}
agents:
  - {id: worker, instructions: Work., model: worker, tools: ["leaky.look", "leaky.structured", "leaky.keys", "leaky.raises", "leaky.crash"]}
hooks:
  - {on: pre_tool_call, call: leaky.check, on_timeout: escalate, timeout: 30s}
  - {on: post_tool_call, call: leaky.check, on_timeout: escalate, timeout: 30s}
  - {on: post_tool_call, call: leaky.changes, timeout: 30s}
  - {on: job_end, call: leaky.check, timeout: 30s}
`

// plantedForms are the token in what makes all of P43's forms: as it is, in base64 at
// each alignment, and so on.
func plantedForms() []string {
	out := slices.Sorted(maps.Keys(tokenForms()))
	for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawStdEncoding} {
		for before := range 3 {
			out = append(out, enc.EncodeToString([]byte(strings.Repeat("u", before)+plantedToken+":rest")))
		}
	}
	ascii := strings.NewReplacer(`"`, `\"`, "ö", `\u00f6`, "\n", `\n`, "/", `\/`).Replace(plantedToken)
	return append(out, url.PathEscape(plantedToken), regexp.MustCompile("%..").ReplaceAllStringFunc(url.QueryEscape(plantedToken), strings.ToLower), ascii)
}

// traces of the token: what is in one of its forms and in no masked text.
func plantedTraces() []string {
	out := []string{`s3cr3t-`, "s3cr3t%2d"}
	for before := range 3 {
		enc := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("u", before) + plantedToken + ":rest"))
		core := enc[(before*8+5)/6 : (before+len(plantedToken))*8/6]
		out = append(out, core[:12], strings.NewReplacer("+", "-", "/", "_").Replace(core[:12]))
	}
	all := hex.EncodeToString([]byte(plantedToken))
	return append(out, all[:16], strings.ToUpper(all[:16]))
}

// planted is a data folder that the real program serves.
type planted struct {
	*jobs
	belay string
	serve *exec.Cmd
	out   *lockedText
	url   string
	token string
	all   string
}

func (p *planted) start() {
	p.t.Helper()
	p.out = &lockedText{}
	p.serve = exec.Command(p.belay, "serve", "--data", p.data, "--tenant", "main", "--port", "0", "--log-level", "debug", "--model", "scripted/"+filepath.Join(p.probe, "script.yml"))
	p.serve.Stdout, p.serve.Stderr = p.out, p.out
	if err := p.serve.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = p.serve.Process.Kill(); _ = p.serve.Wait() }) // it may have ended
	address := regexp.MustCompile(`serves (http://\S+)`)
	until(p.t, "it serves", func() bool { return address.MatchString(p.out.String()) })
	p.url = address.FindStringSubmatch(p.out.String())[1]
	var owner struct{ Token string }
	raw, err := os.ReadFile(filepath.Join(p.data, "owner.json"))
	if err = errors.Join(err, json.Unmarshal(raw, &owner)); err != nil {
		p.t.Fatal(err)
	}
	p.token = owner.Token
}

// command runs the program on the data folder and gives all that it wrote.
func (p *planted) command(args ...string) string {
	p.t.Helper()
	out, err := exec.Command(p.belay, append(args, "--data", p.data, "--tenant", "main")...).CombinedOutput()
	if err != nil && !errors.As(err, new(*exec.ExitError)) {
		p.t.Fatal(err)
	}
	return string(out)
}

func (p *planted) get(path string) string {
	p.t.Helper()
	req, err := http.NewRequest(http.MethodGet, p.url+path, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+p.token)
	req.Header.Set("Belay-Tenant", "main")
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer r.Body.Close()
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(raw)
}

// shows fails when a text has the token, and tells whether it names it.
func (p *planted) shows(t *testing.T, what, text string) bool {
	t.Helper()
	if text == "" {
		t.Errorf("%s is empty", what)
	}
	holdsNone(t, what, text)
	for _, trace := range plantedTraces() {
		if at := strings.Index(text, trace); at >= 0 {
			t.Errorf("%s holds a part of the secret: …%q", what, text[max(0, at-80):min(len(text), at+40)])
			break
		}
	}
	return strings.Contains(text, "[secret TOKEN]")
}

// run runs a job to its end. What waits for a person is looked at in every way and
// approved.
func (p *planted) run(t *testing.T, input string) (id, said string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "input.txt")
	p.write(file, input)
	cmd := exec.Command(p.belay, "job", "run", "worker", "--input", "@"+file, "--watch", "--data", p.data, "--tenant", "main")
	var out lockedText
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }() // the job may fail
	until(t, "the job ends", func() bool {
		select {
		case <-ended:
			return true
		default:
		}
		p.approve(t)
		return false
	})
	first, _, _ := strings.Cut(out.String(), "\n")
	return strings.TrimPrefix(first, "job "), out.String()
}

func (p *planted) approve(t *testing.T) {
	t.Helper()
	var waiting []struct {
		ID      string
		Request struct{ Kind string }
	}
	list := p.command("approval", "list", "--json")
	if json.Unmarshal([]byte(list), &waiting) != nil || len(waiting) == 0 {
		return
	}
	p.shows(t, "approval list --json", list)
	p.shows(t, "approval list", p.command("approval", "list"))
	p.shows(t, "GET /v1/approvals", p.get("/v1/approvals"))
	for _, w := range waiting {
		named := p.shows(t, "approval show", p.command("approval", "show", w.ID))
		p.shows(t, "approval show --json", p.command("approval", "show", w.ID, "--json"))
		p.shows(t, "GET /v1/approvals/{id}", p.get("/v1/approvals/"+w.ID))
		if !named {
			t.Errorf("the approval does not name the secret:\n%s", p.command("approval", "show", w.ID))
		}
		order := []string{"approval", "approve", w.ID, "--note", p.all}
		if w.Request.Kind == "outcome" {
			order = append(order, "--action", "fail")
		}
		p.shows(t, "approval approve", p.command(order...))
		p.shows(t, "the decided approval", p.command("approval", "show", w.ID))
		p.shows(t, "a second decision", p.command(order...))
	}
}

func TestPlantedSecrets(t *testing.T) {
	p := &planted{jobs: newJobs(t, nil), belay: program(t)}
	forms := plantedForms()
	p.all = strings.Join(forms, " | ")
	quoted := func(v any) string {
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	script := "rules:\n"
	for input, tool := range map[string]string{"look": "look", "structured": "structured", "keys": "keys", "raises": "raises", "crash": "crash",
		"hook-raises": "look", "hook-dies": "look", "hook-asks": "look", "hook-denies": "look", "hook-changes": "look", "hook-cuts": "look"} {
		script += fmt.Sprintf("  - when: {user: '^%s '}\n    call: {tool: leaky.%s, args: %s}\n", input, tool, quoted(map[string]string{"what": input + " " + p.all}))
	}
	script += "  - when: {user: '^refused '}\n    say: refuse me\n  - when: {last: '.'}\n    say: " + quoted("said "+p.all) + "\n"
	p.write(filepath.Join(p.probe, "forms.json"), quoted(forms))
	p.write(filepath.Join(p.probe, "script.yml"), script)
	p.write(filepath.Join(p.probe, "value"), plantedToken)
	p.server("server.py", leakyServer)
	p.manifest(leakyManifest)
	told := filepath.Join(p.probe, "told.txt")
	p.write(filepath.Join(p.data, "belay.yaml"), "approvals:\n  command: [sh, -c, "+quoted("cat >> "+told)+"]\n")
	p.start()
	p.command("secret", "set", "TOKEN", "--file", filepath.Join(p.probe, "value"))
	if out := p.command("plugin", "install", p.plugin); !strings.Contains(out, "installed leaky") {
		t.Fatal(out)
	}
	policy := filepath.Join(p.probe, "policy.yaml")
	p.write(policy, "rules:\n  - {name: tools, tools: [\"leaky.*\"], verdict: allow}\n")
	p.command("policy", "apply", policy)

	for _, name := range []string{"look", "structured", "keys", "raises", "crash", "hook-raises", "hook-dies", "hook-asks", "hook-denies", "hook-changes", "hook-cuts", "refused", "output"} {
		t.Run("P44 in no form: "+name, func(t *testing.T) {
			id, said := p.run(t, name+" "+p.all)
			said, _, _ = strings.Cut(said, "completed\n") // the output, which is not masked
			p.shows(t, "job run", said)
			show, _, _ := strings.Cut(p.command("job", "show", id), "completed\n")
			p.shows(t, "job show", show)
			for what, text := range map[string]string{"job show --json": p.command("job", "show", id, "--json"), "GET /v1/jobs/{id}": p.get("/v1/jobs/" + id)} {
				if !p.shows(t, what, withoutOutput(t, text)) {
					t.Errorf("%s does not name it: %s", what, text)
				}
			}
			p.shows(t, "job replay", p.command("job", "replay", id))
		})
	}
	t.Run("P44 in no form: a job that is cancelled", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "input.txt")
		p.write(file, "hook-asks "+p.all)
		said := p.command("job", "run", "worker", "--input", "@"+file)
		id, _, _ := strings.Cut(strings.TrimPrefix(said, "job "), "\n")
		p.shows(t, "job cancel", p.command("job", "cancel", id, "--reason", p.all))
		p.shows(t, "job show", said+p.command("job", "show", id))
		p.shows(t, "job show --json", p.command("job", "show", id, "--json"))
	})
	t.Run("P44 in no form: what people give as words", func(t *testing.T) {
		file := filepath.Join(p.probe, "broken.yaml")
		p.write(file, "rules:\n  - {name: "+quoted(p.all)+", tools: [x], verdict: "+quoted(p.all)+", "+quoted(p.all)+": 1}\n")
		broken := t.TempDir()
		p.write(filepath.Join(broken, "belay-plugin.yaml"), "name: broken\n"+quoted(p.all)+": 1\ntools: [{id: "+quoted(p.all)+", mcp: [python]}]\n")
		p.shows(t, "policy apply", p.command("policy", "apply", file))
		p.shows(t, "plugin install", p.command("plugin", "install", broken))
		for _, form := range append(forms, p.all) {
			for _, args := range [][]string{
				{"job", "run", form}, {"job", "show", form}, {"approval", "show", form}, {"policy", "explain", "leaky.look", "--arguments", quoted(map[string]string{"what": form})},
				{"policy", "explain", form}, {"plugin", "remove", form}, {"secret", "rm", form}, {"token", "create", form + "!", "--role", "viewer"}, {"hooks", "--agent", form},
			} {
				p.shows(t, args[0]+" "+args[len(args)-2], p.command(args...))
			}
		}
	})
	t.Run("P44 in no form: lists, the audit record, what approvers are told, the log", func(t *testing.T) {
		for _, args := range [][]string{{"audit", "tail", "-n", "1000"}, {"audit", "tail", "-n", "1000", "--json"}, {"doctor"}, {"plugin", "shadow-report"}, {"approval", "list", "--state", "all", "--json"}} {
			p.shows(t, strings.Join(args, " "), p.command(args...))
		}
		p.shows(t, "GET /v1/audit", p.get("/v1/audit"))
		p.shows(t, "job list --json", withoutOutput(t, p.command("job", "list", "--json")))
		p.shows(t, "GET /v1/jobs", withoutOutput(t, p.get("/v1/jobs")))
		p.shows(t, "what approvers were told", p.read(told))
		if !p.shows(t, "the log", p.out.String()) {
			t.Error("the log does not name it")
		}
	})
	t.Run("P44 in no form: the bytes of the data folder, while it is served, after a kill, and after the end", func(t *testing.T) {
		p.folder(t)
		if err := p.serve.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = p.serve.Wait() // it was killed
		p.folder(t)
		p.start()
		if err := p.serve.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := p.serve.Wait(); err != nil {
			t.Fatal(err)
		}
		p.folder(t)
	})
}

func (p *planted) read(path string) string {
	p.t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(raw)
}

// folder looks at the bytes of every file of the data folder but the snapshots of
// plugins.
func (p *planted) folder(t *testing.T) {
	t.Helper()
	files := dataFiles(t, p.data)
	if len(files["belay.db"]) == 0 {
		t.Fatal("there is no database")
	}
	for name, raw := range files {
		if name != "belay.db-shm" { // numbers
			p.shows(t, name, string(raw)+" ")
		}
	}
}

// withoutOutput takes jobs' outputs out of JSON.
func withoutOutput(t *testing.T, text string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	var strip func(v any)
	strip = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, one := range v {
				strip(one)
			}
		case map[string]any:
			if end, ok := v["end"].(map[string]any); ok {
				delete(end, "output")
			}
			for _, one := range v {
				strip(one)
			}
		}
	}
	strip(v)
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
