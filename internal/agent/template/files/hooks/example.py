"""Your own checks around what the agent does: one hook of each lane."""

from __future__ import annotations

import logging

from belay.hooks import (
    HookRejection,
    OutgoingTextPayload,
    TurnFinishedPayload,
    modify_outgoing_text,
    on_turn_finished,
)

log = logging.getLogger("example")


@modify_outgoing_text()
async def no_promises(message: OutgoingTextPayload) -> OutgoingTextPayload:
    """Modify: the turn waits for it. A text that promises too much is not sent."""
    if "guarantee" in message.text.lower():
        raise HookRejection(reason="the text promises something")
    return message


@on_turn_finished()
async def note_turn(turn: TurnFinishedPayload) -> None:
    """Observe: nothing waits for it. A line in the log for each turn."""
    log.info("turn %s ended: %s", turn.turn_id, turn.status)
