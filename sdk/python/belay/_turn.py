"""The turn in which the running hook or tool was called, for code that is not handed it."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from belay._events import UserUttered
from belay.hooks import Channel

__all__ = ["UTTER_ACTION_METADATA_KEY", "TurnContext", "current_turn_context"]

UTTER_ACTION_METADATA_KEY = "utter_action"
"""Where the metadata of a message to the user has the name of the response that it is."""


@dataclass(frozen=True)
class TurnContext:
    """What code knows of the turn in which it runs."""

    sender_id: str = ""
    """Id of the conversation's user."""
    turn_id: str = ""
    """Id of the turn; empty in hooks whose payload has none."""
    channel: Channel = field(default_factory=Channel)
    """The channel: its name and the front end's metadata."""
    call: dict[str, Any] = field(default_factory=dict)
    """Telephony or session data; empty unless the channel gives it."""
    skill: str = ""
    """Id of the active skill; empty in hooks, and when none is active."""
    text: str = ""
    """What the user said last; empty in hooks."""

    @property
    def turn(self) -> TurnContext:
        """The same: older agents write ``current_turn_context().turn.text``."""
        return self


#: What the call under way was given: a hook's payload or a tool's context.
running: ContextVar[Any] = ContextVar("belay_running")


def current_turn_context() -> TurnContext:
    """The turn that the running hook or tool belongs to, also below a function it called.

    LookupError when neither runs, such as while the agent is loaded.
    """
    given = running.get(None)
    if given is None:
        raise LookupError("no hook or tool runs: there is no current turn")
    said = getattr(given, "events", [])
    return TurnContext(
        sender_id=given.sender_id,
        turn_id=getattr(given, "turn_id", ""),
        channel=given.channel,
        call=given.call,
        skill=getattr(given, "skill", ""),
        text=next((e.text or "" for e in reversed(said) if isinstance(e, UserUttered)), ""),
    )
