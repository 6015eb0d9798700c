"""The plugin's hooks: ordinary MCP functions that get an event and answer with a decision."""

from __future__ import annotations

import re

from mcp.server import MCPServer
from mcp.types import ToolAnnotations

server = MCPServer("acme-policy")
# A hook is a call too: a function that declares nothing would wait for a person before it is asked.
CHECK = ToolAnnotations(read_only_hint=True, open_world_hint=False)
PROTECTED = re.compile(r"^(release/|archive/)")
ADDRESS = re.compile(r"[^<>@\s]+@[^<>@\s]+\.[^<>@\s]+")
KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")
SIGNATURE = "Checked by acme-policy."


@server.tool(annotations=CHECK)
def branches(event: dict) -> dict:
    """Refuse what touches protected branches; tidy the names of the others."""
    arguments = {key: value.strip() if isinstance(value, str) else value for key, value in event["arguments"].items()}
    for value in arguments.values():
        if PROTECTED.match(str(value)):
            return {"decision": "deny", "reason": f"{value} is protected"}
    if arguments != event["arguments"]:
        return {"decision": "modify", "arguments": arguments}
    return {"decision": "allow"}


@server.tool(annotations=CHECK)
def pushes(event: dict) -> dict:
    """Send a push to main to a person."""
    if event["arguments"].get("branch") == "main":
        return {"decision": "escalate", "reason": "a push to main"}
    return {"decision": "allow"}


@server.tool(annotations=CHECK)
def redact(event: dict) -> dict:
    """Take mail addresses out of a result; withhold one that has a private key in it."""
    result = str(event["result"])
    if KEY.search(result):
        return {"decision": "deny", "reason": "there is a private key in it"}
    if ADDRESS.search(result):
        return {"decision": "modify", "result": ADDRESS.sub("address", result)}
    return {"decision": "allow"}


@server.tool(annotations=CHECK)
def sign(event: dict) -> dict:
    """Add to the answer that it was checked; refuse one that gives an address away."""
    output = event["output"]
    if ADDRESS.search(output):
        return {"decision": "deny", "reason": "there is a mail address in the answer"}
    if output.endswith(SIGNATURE):
        return {"decision": "allow"}
    return {"decision": "modify", "output": f"{output}\n\n{SIGNATURE}"}


if __name__ == "__main__":
    server.run()
