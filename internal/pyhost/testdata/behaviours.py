"""What the hooks of hook/hooktest do, in Python. Each function is the body of a hook."""

from __future__ import annotations

import asyncio
import time

from belay.hooks import HookRejection, ModelRequestPayload, RetryModel

notebook: dict[str, list[str]] = {}
asked = 0

POINTS = {
    "TurnStartedPayload": "turn_started",
    "TurnFinishedPayload": "turn_finished",
    "IncomingMessagePayload": "incoming_message",
    "ModelRequestPayload": "model_request",
    "ModelResponsePayload": "model_response",
    "ToolCallPayload": "tool_call",
    "ToolResultPayload": "tool_result",
    "KnowledgeQueryPayload": "knowledge_query",
    "KnowledgeResultsPayload": "knowledge_results",
    "OutgoingTextPayload": "outgoing_text",
}


def text_field(payload):
    return next((name for name in ("text", "query") if hasattr(payload, name)), None)


async def pass_on(payload):
    return payload


async def shout(payload):
    name = text_field(payload)
    setattr(payload, name, getattr(payload, name) + "!")
    return payload


async def change_nested(payload):
    payload.messages[0]["meta"]["tags"].append("seen")
    return payload


async def try_read_only(payload):
    return payload.model_copy(
        update={"sender_id": "someone else", "tool_names": ["mine"], "model_settings": {"temperature": 0.5}}
    )


async def replace(payload):
    payload.messages[0]["content"] = "lost"
    payload.messages.append({"role": "user", "content": "lost"})
    rest = {name: getattr(payload, name) for name in type(payload).model_fields if name != "messages"}
    return ModelRequestPayload(messages=[{"role": "user", "content": "replaced"}], **rest)


async def count(payload):
    global asked
    asked += 1
    return payload.model_copy(update={"text": str(asked)})


async def huge(payload):
    return payload.model_copy(update={"text": "x" * (4 << 20)})


async def too_huge(payload):
    return payload.model_copy(update={"text": "x" * (64 << 20)})


async def nap(payload):
    await asyncio.sleep(0.03)
    return await sign(payload)


async def sign(payload):
    return payload.model_copy(update={"text": payload.text + "/" + payload.sender_id})


async def note(payload):
    entry, name = POINTS[type(payload).__name__], text_field(payload)
    if name:
        entry += "=" + getattr(payload, name)
    notebook.setdefault(payload.sender_id, []).append(entry)
    return payload


async def report(payload):
    return payload.model_copy(update={"text": ",".join(notebook.pop(payload.sender_id, []))})


async def reject(payload):
    raise HookRejection(reason="not today")


async def retry(payload):
    raise RetryModel(feedback="try again")


async def change_then_reject(payload):
    payload.text = "changed"
    raise HookRejection(reason="not today")


async def crash(payload):
    raise ValueError("boom")


async def change_then_crash(payload):
    payload.text = "changed"
    raise ValueError("boom")


async def wait(payload):
    await asyncio.Event().wait()


async def block(payload):
    time.sleep(60)


async def wrong_type(payload):
    return None


async def wrong_shape(payload):
    wrong = {"messages": {"role": "user"}} if hasattr(payload, "messages") else {"text": 5}
    return payload.model_copy(update=wrong)


async def return_signal(payload):
    return HookRejection(reason="not today")
