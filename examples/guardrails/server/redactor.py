"""A hook that takes the tenant's known secrets out of results and answers: the name of each stands in its place."""

from __future__ import annotations

import json

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.types import ToolAnnotations

server = MCPServer("redactor")


def _replaced(text: str, found: list[dict]) -> str:
    """Text with the names of secrets in place of them. Positions are characters; those of several may overlap."""
    out, at = [], 0
    for one in sorted(found, key=lambda f: (f["start"], f["end"])):
        if one["start"] >= at:
            out += [text[at : one["start"]], f"[secret {one['name']}]"]
        at = max(at, one["end"])
    return "".join([*out, text[at:]])


def _walk(value: object, path: str, found: dict[str, list[dict]]) -> object:
    """Value with its strings replaced. Path is its JSON pointer from the event's root."""
    if isinstance(value, str):
        return _replaced(value, found[path]) if path in found else value
    if isinstance(value, list):
        return [_walk(item, f"{path}/{i}", found) for i, item in enumerate(value)]
    if isinstance(value, dict):
        return {key: _walk(item, f"{path}/{key.replace('~', '~0').replace('/', '~1')}", found) for key, item in value.items()}
    return value


@server.tool(annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))
def redact(event: dict, ctx: Context) -> dict:
    """Put the names of known secrets in their places; withhold a private key, known or not."""
    found = dict(ctx.request_context.meta or {}).get("belay/secrets")
    if found is None:
        return {"decision": "deny", "reason": "nobody looked for secrets"}
    field = "result" if event["event"] == "post_tool_call" else "output"
    if "PRIVATE KEY-----" in json.dumps(event[field]):
        return {"decision": "deny", "reason": "there is a private key in it"}
    if not found:
        return {"decision": "allow"}
    by_path: dict[str, list[dict]] = {}
    for one in found:
        by_path.setdefault(one["path"], []).append(one)
    names = ", ".join(sorted({one["name"] for one in found}))
    return {"decision": "modify", field: _walk(event[field], "/" + field, by_path), "reason": f"it held {names}"}


if __name__ == "__main__":
    server.run()
