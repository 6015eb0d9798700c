"""Numbers that nobody is to read, taken out at every door."""

from __future__ import annotations

from belay.hooks import (
    IncomingMessagePayload,
    KnowledgeQueryPayload,
    KnowledgeResultsPayload,
    ModelRequestPayload,
    OutgoingTextPayload,
    ToolCallPayload,
    ToolResultPayload,
    modify_incoming_message,
    modify_knowledge_query,
    modify_knowledge_results,
    modify_model_request,
    modify_outgoing_text,
    modify_tool_call,
    modify_tool_result,
)
from lib.masking import mask


@modify_incoming_message()
async def mask_message(payload: IncomingMessagePayload) -> IncomingMessagePayload:
    """Before the message is stored."""
    return payload.model_copy(update={"text": mask(payload.text)})


@modify_model_request()
async def cool_model(payload: ModelRequestPayload) -> ModelRequestPayload:
    """A bank wants no inventions."""
    return payload.model_copy(update={"model_settings": {"temperature": 0}})


@modify_tool_call()
async def tidy_digits(payload: ToolCallPayload) -> ToolCallPayload:
    """Models write card digits in many ways; the last four are what counts."""
    if payload.tool_name != "set_fields" or "card" not in payload.arguments:
        return payload
    digits = "".join(c for c in str(payload.arguments["card"]) if c.isdigit())[-4:]
    return payload.model_copy(update={"arguments": {**payload.arguments, "card": digits}})


@modify_tool_result()
async def mask_result(payload: ToolResultPayload) -> ToolResultPayload:
    """Before a model reads what a tool has said."""
    return payload.model_copy(update={"value": mask(payload.value)})


@modify_knowledge_query()
async def mask_query(payload: KnowledgeQueryPayload) -> KnowledgeQueryPayload:
    """Nothing personal is searched for."""
    return payload.model_copy(update={"query": mask(payload.query)})


@modify_knowledge_results()
async def public_only(payload: KnowledgeResultsPayload) -> KnowledgeResultsPayload:
    """What is marked as internal stays inside."""
    return payload.model_copy(update={"passages": [p for p in payload.passages if "INTERNAL" not in p["text"]]})


@modify_outgoing_text()
async def mask_text(payload: OutgoingTextPayload) -> OutgoingTextPayload:
    """The last door."""
    return payload.model_copy(update={"text": mask(payload.text)})
