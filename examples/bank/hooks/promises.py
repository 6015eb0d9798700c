"""The model may say that money was sent only when a tool has sent it."""

from __future__ import annotations

import json

from belay.hooks import (
    ModelResponsePayload,
    RetryModel,
    ToolResultPayload,
    TurnStartedPayload,
    modify_model_response,
    on_tool_result,
    on_turn_started,
)

_sent: set[str] = set()


@on_turn_started()
async def new_turn(payload: TurnStartedPayload) -> None:
    """Each turn is judged by what happened in it."""
    _sent.discard(payload.sender_id)


@on_tool_result(final=True)
async def money_sent(payload: ToolResultPayload) -> None:
    """A confirmed transfer arrives under the name of the call that confirmed it."""
    if payload.tool_name != "resolve_tool_confirmation" or payload.is_error:
        return
    try:
        if json.loads(payload.value).get("status") == "sent":
            _sent.add(payload.sender_id)
    except ValueError:
        return


@modify_model_response()
async def no_empty_promise(payload: ModelResponsePayload) -> ModelResponsePayload:
    """Send a draft back that promises what nobody did."""
    if payload.text and "has been sent" in payload.text and payload.sender_id not in _sent:
        raise RetryModel(feedback="No money was sent in this turn. Do not say that it was.")
    return payload
