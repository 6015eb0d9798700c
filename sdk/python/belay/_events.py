"""What was said in a conversation, in the shape in which tools of older agents read it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["BotUttered", "Event", "UserUttered"]


@dataclass
class Event:
    """Something that was said."""

    text: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    timestamp: float | None = None
    """Seconds since 1970, when known."""


@dataclass
class UserUttered(Event):
    """The user said it."""


@dataclass
class BotUttered(Event):
    """The agent said it; the metadata may have the response's name as ``utter_action``."""


_KINDS: dict[str, type[Event]] = {"user": UserUttered, "bot": BotUttered}


def read(events: Iterable[Mapping[str, Any]]) -> list[Event]:
    """Makes events of their JSON form; kinds that are not known here are left out."""
    return [
        _KINDS[event["event"]](
            event.get("text"), event.get("metadata") or {}, event.get("timestamp")
        )
        for event in events
        if event.get("event") in _KINDS
    ]
