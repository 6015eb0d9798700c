"""Tools that a model may call.

A tool is an ``async`` function in ``tools/`` of the agent's folder or of a skill's. Its
annotations give the parameters' JSON schema, its docstring's ``Args`` their
descriptions. A parameter named ``context`` is given by Belay and hidden from the model::

    from belay.tools import ToolContext, ToolResult, tool

    @tool(description="Books an appointment.", requires_confirmation=True)
    async def book(day: date, context: ToolContext) -> ToolResult:
        \"\"\"Books.

        Args:
            day: The day of the appointment.
        \"\"\"
        return ToolResult(llm_response={"status": "booked", "for": context.sender_id})

A decorated function stays the function it was: a unit test awaits it directly.
"""  # noqa: D214 (the section is the example's)

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar, overload

from belay import _registry
from belay._events import Event
from belay._turn import TurnContext, current_turn_context
from belay.hooks import Channel
from belay.memory import InvalidMemoryValue, Memory, MemoryAlreadySet, UndeclaredMemory

__all__ = [
    "InvalidMemoryValue",
    "Memory",
    "MemoryAlreadySet",
    "ToolContext",
    "ToolResult",
    "TurnContext",
    "UndeclaredMemory",
    "current_turn_context",
    "tool",
]

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(frozen=True)
class ToolResult:
    """What a tool gives back.

    ``llm_response`` is what the model reads: any value with a JSON form, best an object.
    """

    llm_response: Any = None
    next: Any = None
    """What older agents want to be done next. It is taken, but not acted on."""


class Cancelled:
    """Whether the caller has given up on the tool: true when it is called, or used as a bool."""

    def __init__(self) -> None:
        """Begins as false."""
        self._is = False

    def cancel(self) -> None:
        """Makes it true, for good."""
        self._is = True

    def __call__(self) -> bool:
        """Whether it was cancelled."""
        return self._is

    def __bool__(self) -> bool:
        return self._is

    def __repr__(self) -> str:
        return str(self._is)


@dataclass
class ToolContext:
    """What a tool knows of the conversation in which it runs."""

    sender_id: str = ""
    """Id of the conversation's user."""
    turn_id: str = ""
    """Id of the turn."""
    channel: Channel = field(default_factory=Channel)
    """The channel: its name and the front end's metadata."""
    call: dict[str, Any] = field(default_factory=dict)
    """Telephony or session data; empty unless the channel gives it."""
    memory: Memory = field(default_factory=Memory)
    """The conversation's memory; see :mod:`belay.memory`."""
    skill: str = ""
    """Id of the active skill; empty when none is."""
    events: list[Event] = field(default_factory=list)
    """What the user and the agent have said, the oldest first."""
    sent: list[str] = field(default_factory=list)
    """The texts that were sent."""
    is_cancelled: Cancelled = field(default_factory=Cancelled)
    """True once the tool's time is up or its turn was given up: ``if context.is_cancelled():``."""

    async def send(self, text: str) -> None:
        """Says a text to the user, before what the tool's answer leads to.

        It passes the outgoing hooks as any other text. TypeError when it is no str,
        ValueError when it is too long or too many were sent, RuntimeError when the tool
        has ended already.
        """
        if not isinstance(text, str):
            raise TypeError("context.send takes a text")
        if len(text) > _LONGEST_TEXT or len(self.sent) >= _MOST_TEXTS:
            raise ValueError(
                f"a tool sends up to {_MOST_TEXTS} texts of {_LONGEST_TEXT} characters"
            )
        self._deliver(text)
        self.sent.append(text)

    def _deliver(self, text: str) -> None:
        """In a running agent, tells the program that runs it."""


_LONGEST_TEXT = 64 << 10
_MOST_TEXTS = 100

# What tool() takes, with a test for each value and the words for it.
_OPTIONS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "description": (lambda v: v is None or isinstance(v, str), "a string"),
    "name": (lambda v: v is None or isinstance(v, str), "a string"),
    "requires_confirmation": (lambda v: isinstance(v, bool), "True or False"),
    "utter_for_confirmation": (lambda v: v is None or isinstance(v, str), "a response's name"),
    "utter_on_user_denial": (lambda v: v is None or isinstance(v, str), "a response's name"),
    "on_success": (lambda v: v is None or isinstance(v, str), "a response's name"),
    "timeout": (lambda v: v is None or _is_seconds(v), "a number of seconds above 0"),
}
# For the check: the keyword arguments, and what it says to a use without parentheses.
_OPTION_NAMES = tuple(_OPTIONS)
_HINT = 'write @tool(description="…")'
_BARE = ("bare-decorator", "@tool stands without parentheses", _HINT)


@overload
def tool(
    *,
    description: str | None = None,
    name: str | None = None,
    requires_confirmation: bool = False,
    utter_for_confirmation: str | None = None,
    utter_on_user_denial: str | None = None,
    on_success: str | None = None,
    timeout: float | None = None,
) -> Callable[[_F], _F]: ...
@overload
def tool(description: str, /) -> Callable[[_F], _F]: ...
def tool(*args: Any, **options: Any) -> Any:  # noqa: D417 (documented as its overload)
    """Makes an async function a tool.

    Args:
        description: What the tool does, for the model; the docstring's first paragraph
            when left out.
        name: Name for the model; the function's own when left out.
        requires_confirmation: Ask the user before the tool runs.
        utter_for_confirmation: Name of the response that asks.
        utter_on_user_denial: Name of the response to a no.
        on_success: Name of the response sent when the tool succeeded.
        timeout: Seconds that the tool may take; the agent's ``tool_timeout`` when left out.
    """
    if len(args) == 1 and not options and callable(args[0]):
        _registry.misuse(*_BARE)
        return args[0]
    if len(args) == 1 and isinstance(args[0], str) and "description" not in options:
        options["description"] = args[0]
    elif args:
        _registry.misuse("decorator-argument", "tool takes its arguments by name", _HINT)
    for key in list(options):
        if key not in _OPTIONS:
            known = ", ".join(_OPTIONS)
            _registry.misuse(
                "decorator-argument", f"tool takes no argument {key!r}", f"it takes {known}"
            )
            del options[key]
        elif not _OPTIONS[key][0](options[key]):
            _registry.misuse(
                "decorator-argument", f"{key} of tool is not {_OPTIONS[key][1]}", _HINT
            )
            del options[key]

    def register(fn: _F) -> _F:
        name = options.get("name") or _registry.name_of(fn)
        description = options.get("description") or _summary(fn)
        _registry.add_tool(str(name), description, fn, options)
        return fn

    return register


def _summary(fn: Callable[..., Any]) -> str:
    """The first paragraph of a function's docstring, on one line."""
    text = inspect.cleandoc(getattr(fn, "__doc__", None) or "")
    return " ".join(text.split("\n\n")[0].split())


def _is_seconds(value: object) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and value > 0
    )
