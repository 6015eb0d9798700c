"""A judge that compares a call with the job's request, by the words and numbers that both name."""

from __future__ import annotations

import json
import re

from mcp.server import MCPServer
from mcp.types import ToolAnnotations

server = MCPServer("judge")
WORD = re.compile(r"[a-z]{4,}|\d+")


def _words(text: str) -> set[str]:
    return set(WORD.findall(text.lower()))


@server.tool(annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))
def compare(event: dict) -> dict:
    """Does the call do what the job was asked for?"""
    wanted = _words(event.get("request", ""))
    named = _words(json.dumps(list(event["arguments"].values())))
    odd = sorted(named - wanted)
    if not odd:
        return {"decision": "allow"}
    return {"decision": "escalate", "reason": f"the request names no {', '.join(odd)}"}


if __name__ == "__main__":
    server.run()
