"""Observers: they see everything and decide nothing."""

from __future__ import annotations

import logging
from collections import Counter

from belay.hooks import (
    IncomingMessagePayload,
    KnowledgeQueryPayload,
    KnowledgeResultsPayload,
    ModelRequestPayload,
    ModelResponsePayload,
    OutgoingTextPayload,
    ToolCallPayload,
    TurnFinishedPayload,
    on_incoming_message,
    on_knowledge_query,
    on_knowledge_results,
    on_model_request,
    on_model_response,
    on_outgoing_text,
    on_tool_call,
    on_turn_finished,
)

_log = logging.getLogger("bank")
_calls: Counter[str] = Counter()


@on_incoming_message(final=True)
async def length(payload: IncomingMessagePayload) -> None:
    """With final=True an observer sees what goes on, not what came in."""
    _log.debug("a message of %d characters", len(payload.text))


@on_model_request()
async def request(payload: ModelRequestPayload) -> None:
    """Every call of the model, quiet ones too."""
    _log.debug("iteration %d offers %d tools", payload.iteration, len(payload.tool_names))


@on_model_response()
async def response(payload: ModelResponsePayload) -> None:
    """How long the model took."""
    _log.debug("answered in %s ms", payload.latency_ms)


@on_tool_call(final=True)
async def count(payload: ToolCallPayload) -> None:
    """Which tools the model calls."""
    _calls[payload.tool_name] += 1


@on_knowledge_query(final=True)
async def asked(payload: KnowledgeQueryPayload) -> None:
    """How long questions are."""
    _log.debug("a query of %d characters", len(payload.query))


@on_knowledge_results(final=True)
async def found(payload: KnowledgeResultsPayload) -> None:
    """How much was found."""
    _log.debug("%d passages", len(payload.passages))


@on_outgoing_text(final=True)
async def said(payload: OutgoingTextPayload) -> None:
    """What is said, after the last door."""
    _log.debug("a text of %d characters", len(payload.text))


@on_turn_finished()
async def finished(payload: TurnFinishedPayload) -> None:
    """One line a turn."""
    _log.info("turn %s ended as %s", payload.turn_id, payload.status)
