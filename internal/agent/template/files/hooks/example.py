"""Your own checks around what the agent does: one hook of each lane."""

from __future__ import annotations

import logging
import re

from belay.hooks import (
    IncomingMessagePayload,
    TurnFinishedPayload,
    modify_incoming_message,
    on_turn_finished,
)

log = logging.getLogger("example")

_CARD = re.compile(r"\b\d(?:[ -]?\d){12,15}\b")


@modify_incoming_message()
async def mask_cards(message: IncomingMessagePayload) -> IncomingMessagePayload:
    """Modify: the turn waits for it. Card numbers are masked before anything is stored or sent."""
    return message.model_copy(update={"text": _CARD.sub("[card number]", message.text)})


@on_turn_finished()
async def note_turn(turn: TurnFinishedPayload) -> None:
    """Observe: nothing waits for it. A line in the log for each turn."""
    log.info("turn %s ended: %s", turn.turn_id, turn.status)
