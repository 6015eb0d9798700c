"""A server that speaks just enough of the protocol to break it in one way."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

how = sys.argv[1]
lock = threading.Lock()
tools = ["echo", "misbehave"]


def write(text):
    with lock:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def send(**message):
    write(json.dumps({"jsonrpc": "2.0", **message}))


def text(words):
    return {"content": [{"type": "text", "text": words}]}


def misbehave(id):
    match how:
        case "exits":
            print("the last words", file=sys.stderr, flush=True)
            os._exit(3)
        case "answers_and_exits":
            send(id=id, result=text("goodbye"))
            os._exit(0)
        case "dies_by_signal":
            os.kill(os.getpid(), signal.SIGKILL)
        case "garbage":
            for line in ["", "{", "null", "[]", '{"level": "info", "msg": "started"}', '{"jsonrpc": "2.0", "id": ', "\x00\xff", '{"jsonrpc":"1.0","id":%d,"result":{}}' % id]:
                write(line)
            send(id=id, result=text("after the garbage"))
        case "twice":
            send(id=id, result=text("first"))
            send(id=id, result=text("second"))
        case "another_id":
            send(id=id + 1000, result=text("for somebody else"))
        case "flood":
            write('{"jsonrpc": "2.0", "id": %d, "result": {"content": [{"type": "text", "text": "%s"}]}}' % (id, "x" * (50 << 20)))
        case "endless":
            while True:
                sys.stdout.write("x" * 65536)
        case "large":
            send(id=id, result=text("x" * (15 << 20)))
        case "late":
            threading.Timer(0.3, lambda: send(id=id, result=text("late"))).start()
        case "blocks":
            time.sleep(600)
        case "closes_stdout":
            os.close(1)
            time.sleep(600)
        case "closes_stdin":
            os.close(0)
            send(id=id, result=text("deaf now"))
            time.sleep(600)
        case "asks_without_end":
            for n in range(10000):
                send(id=f"s{n}", method="ping")
            time.sleep(600)
        case "asks":
            send(id="s1", method="ping")
            send(id="s2", method="sampling/createMessage", params={})
            answers = [json.loads(sys.stdin.readline()) for _ in range(2)]
            send(id=id, result=text(json.dumps(sorted("error" if "error" in a else "result" for a in answers))))
        case "wants_input":
            send(id=id, result={"resultType": "input_required", "inputRequests": {}, "content": []})
        case "no_result":
            send(id=id, result={"content": "not a list"})
        case "mcp_error":
            send(id=id, error={"code": -32603, "message": "no more disk"})
        case "vanishes":
            tools.remove("misbehave")
            send(method="notifications/tools/list_changed")
            send(id=id, result=text("gone"))
        case "logs":
            send(method="notifications/message", params={"level": "info", "data": "by the protocol"})
            send(method="notifications/progress", params={"progressToken": 1, "progress": 1})
            send(id=id, result=text("logged"))
        case "batch":
            write(json.dumps([{"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "batched"}}, {"jsonrpc": "2.0", "id": id, "result": text("in a batch")}]))
        case "shouts":
            for _ in range(20000):
                print("shout " * 10, file=sys.stderr)
                print("shout " * 10)
            send(id=id, result=text("hoarse"))
        case _:
            send(id=id, result=text("well behaved"))


def grandchild():
    # Holds both pipes and does not care for SIGTERM.
    program = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    child = subprocess.Popen([sys.executable, "-c", program])
    print(f"grandchild {child.pid}", file=sys.stderr, flush=True)


match how:
    case "exits_at_start":
        print("ModuleNotFoundError: No module named 'acme'", file=sys.stderr)
        sys.exit(1)
    case "silent_at_start" | "starts_late":
        if how == "silent_at_start" or not os.path.exists(sys.argv[2]):
            open(sys.argv[2], "w").close() if how == "starts_late" else None
            time.sleep(600)
    case "deaf_at_start":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
    case "has_grandchild":
        grandchild()
    case "ignores_sigterm":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

print("a banner", flush=True)
for line in sys.stdin:
    m = json.loads(line)
    method, id = m.get("method"), m.get("id")
    if method == "initialize":
        if how == "only_new":
            send(id=id, error={"code": -32601, "message": "Method not found"})
        else:
            send(id=id, result={"protocolVersion": m["params"]["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "naughty", "version": "1"}})
    elif method == "server/discover":
        send(id=id, result={"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}})
    elif method == "ping":
        send(id=id, result={})
    elif method == "tools/list":
        if how == "lists_in_circles":
            send(id=id, result={"tools": [], "nextCursor": "again"})
        else:
            send(id=id, result={"tools": [{"name": n, "inputSchema": {"type": "object", "z": 9007199254740993, "a": 1}} for n in tools]})
    elif method == "tools/call":
        name = m["params"]["name"]
        if name not in tools:
            send(id=id, error={"code": -32602, "message": f"Unknown tool: {name}"})
        elif name == "misbehave":
            misbehave(id)
            if how == "stops_reading":
                time.sleep(600)
        else:
            send(id=id, result=text(json.dumps(m["params"].get("arguments"))))
if how == "ignores_sigterm":
    time.sleep(600)
