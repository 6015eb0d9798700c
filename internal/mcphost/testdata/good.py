"""A server written as its authors write them, with Python's official SDK."""

import asyncio
import os
import sys
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

server = MCPServer("good")
cancelled = 0


@server.tool(annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))
def check(event: dict) -> dict:
    """Decide on a call."""
    return {"decision": "allow", "reason": f"{event['tool']} is fine"}


@server.tool()
def check_typed(event: dict[str, Any]) -> dict[str, Any]:
    return {"decision": "deny", "reason": "typed"}


@server.tool()
def check_maybe(event: dict[str, Any]) -> dict[str, Any] | None:
    return {"decision": "escalate", "reason": "wrapped"}


@server.tool()
def check_text(event: dict[str, Any]) -> str:
    return '{"decision": "allow", "reason": "text in a wrapper"}'


@server.tool()
def words() -> str:
    return "just words"


@server.tool()
def many() -> list[str]:
    return ["a", "b"]


@server.tool()
def long_number() -> dict[str, int]:
    return {"z": 9007199254740993, "a": 1}


@server.tool(annotations=ToolAnnotations(destructive_hint=True, idempotent_hint=False))
def fails() -> str:
    raise ToolError("the disk is full")


@server.tool()
def meta(ctx: Context) -> dict[str, Any]:
    return dict(ctx.request_context.meta or {})


@server.tool()
def env() -> dict[str, str]:
    return dict(os.environ)


@server.tool()
def where() -> str:
    return os.getcwd()


@server.tool()
async def slow(seconds: float) -> str:
    global cancelled
    try:
        await asyncio.sleep(seconds)
    except BaseException:
        cancelled += 1
        raise
    return "slept"


@server.tool()
def cancellations() -> int:
    return cancelled


@server.tool()
def prints() -> str:
    print("a line that is no message", flush=True)
    print("a line for the log", file=sys.stderr, flush=True)
    return "printed"


if __name__ == "__main__":
    if sys.argv[1:] == ["http"]:
        server.run("streamable-http", port=int(os.environ["PORT"]))
    else:
        print("*** good 1.0, at your service ***", flush=True)
        server.run()
