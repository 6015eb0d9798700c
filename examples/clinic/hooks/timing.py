"""A line in the log for each turn."""

from __future__ import annotations

import logging
import time

from belay.hooks import (
    TurnFinishedPayload,
    TurnStartedPayload,
    on_turn_finished,
    on_turn_started,
)

# Python keeps messages below a warning to itself unless told otherwise.
logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
log = logging.getLogger("clinic.timing")
_started: dict[str, float] = {}


@on_turn_started()
async def start_clock(turn: TurnStartedPayload) -> None:
    """Remember when the turn began."""
    _started[turn.turn_id] = time.monotonic()


@on_turn_finished()
async def stop_clock(turn: TurnFinishedPayload) -> None:
    """Say how long it took."""
    began = _started.pop(turn.turn_id, None)
    if began is not None:
        log.info("turn %s %s after %.0f ms", turn.turn_id, turn.status, (time.monotonic() - began) * 1000)
