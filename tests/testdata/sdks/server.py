"""Asks models through the official Python SDKs of OpenAI and Anthropic, with the key that came with the call."""

from __future__ import annotations

import urllib.error
import urllib.request

import anthropic
import openai
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.types import ToolAnnotations

server = MCPServer("py")
TOOLS = [{"name": "add", "description": "Add.", "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}}}]


@server.tool(annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))
def ask(vendor: str, model: str, prompt: str, stream: bool, ctx: Context) -> dict:
    """One message: what came back, as the SDK has it."""
    key = dict(ctx.request_context.meta or {})["belay/model"]
    try:
        return (_anthropic if vendor == "anthropic" else _openai)(key, model, prompt, stream)
    except (anthropic.APIStatusError, openai.APIStatusError) as err:
        return {"error": type(err).__name__, "status": err.status_code, "message": str(err.message)}


def _anthropic(key: dict, model: str, prompt: str, stream: bool) -> dict:
    client = anthropic.Anthropic(api_key=key["token"], base_url=key["anthropic_base_url"], max_retries=0)
    listed = [m.id for m in client.models.list()]
    request = {"model": model, "max_tokens": 64, "messages": [{"role": "user", "content": prompt}], "tools": TOOLS}
    counted = client.messages.count_tokens(**{k: v for k, v in request.items() if k != "max_tokens"}).input_tokens
    pieces = 0
    if stream:
        with client.messages.stream(**request) as s:
            pieces = sum(1 for _ in s.text_stream)
            message = s.get_final_message()
    else:
        message = client.messages.create(**request)
    return {
        "text": "".join(b.text for b in message.content if b.type == "text"),
        "calls": [{"name": b.name, "arguments": b.input} for b in message.content if b.type == "tool_use"],
        "stop": message.stop_reason,
        "in": message.usage.input_tokens,
        "out": message.usage.output_tokens,
        "pieces": pieces,
        "listed": listed,
        "counted": counted,
    }


def _openai(key: dict, model: str, prompt: str, stream: bool) -> dict:
    client = openai.OpenAI(api_key=key["token"], base_url=key["openai_base_url"], max_retries=0)
    listed = [m.id for m in client.models.list()]
    tools = [{"type": "function", "function": {"name": t["name"], "description": t["description"], "parameters": t["input_schema"]}} for t in TOOLS]
    request = {"model": model, "messages": [{"role": "user", "content": prompt}], "tools": tools}
    if not stream:
        done = client.chat.completions.create(**request)
        choice = done.choices[0]
        calls = [{"name": c.function.name, "arguments": c.function.arguments} for c in choice.message.tool_calls or []]
        return {"text": choice.message.content or "", "calls": calls, "stop": choice.finish_reason, "in": done.usage.prompt_tokens,
                "out": done.usage.completion_tokens, "pieces": 0, "listed": listed}  # fmt: skip
    text, pieces, stop, calls = "", 0, None, {}
    for chunk in client.chat.completions.create(**request, stream=True):
        delta = chunk.choices[0].delta  # a chunk without choices was not asked for
        for c in delta.tool_calls or []:
            one = calls.setdefault(c.index, {"name": "", "arguments": ""})
            one["name"] += c.function.name or ""
            one["arguments"] += c.function.arguments or ""
        if delta.content:
            text, pieces = text + delta.content, pieces + 1
        stop = chunk.choices[0].finish_reason or stop
    return {"text": text, "calls": list(calls.values()), "stop": stop, "pieces": pieces, "listed": listed}


@server.tool(annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))
def environment(ctx: Context) -> dict:
    """What the server's environment and this call have of models."""
    import os

    named = {k: v for k, v in os.environ.items() if "BASE_URL" in k or k.startswith("BELAY_")}
    meta = dict(ctx.request_context.meta or {})
    keys = {k: v for k, v in meta.items() if k.endswith("/model")}
    return {"environment": named, "everything": "\n".join(os.environ.values()), "key": next(iter(keys.values()), None), "names": list(keys)}


@server.tool(annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))
def visit(paths: list[str], ctx: Context) -> dict:
    """What the gateway answers to the key on these paths: by path the status."""
    key = dict(ctx.request_context.meta or {})["belay/model"]
    out = {}
    for path in paths:
        method, _, rest = path.partition(" ")
        headers = {"Authorization": "Bearer " + key["token"], "Content-Type": "application/json"}
        request = urllib.request.Request(key["url"] + rest, method=method, headers=headers, data=b"{}" if method == "POST" else None)
        try:
            out[path] = urllib.request.urlopen(request).status
        except urllib.error.HTTPError as err:
            out[path] = err.code
    return out


@server.tool(annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))
def allow(event: dict) -> dict:
    """A hook without an opinion."""
    return {"decision": "allow"}


if __name__ == "__main__":
    server.run()
