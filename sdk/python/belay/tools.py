"""Tools that a model may call.

A tool is an ``async`` function in ``tools/`` of the agent's folder. Its annotations
give the parameters' JSON schema, its docstring's ``Args`` their descriptions. A
parameter named ``context`` is given by Belay and hidden from the model::

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
import json
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, overload

from belay import _registry
from belay.hooks import Channel

__all__ = ["Memory", "ToolContext", "ToolResult", "UndeclaredMemory", "tool"]

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(frozen=True)
class ToolResult:
    """What a tool gives back.

    ``llm_response`` is what the model reads: any value with a JSON form, best an object.
    """

    llm_response: Any = None


class UndeclaredMemory(LookupError):
    """A tool sets a memory value that its agent does not declare."""


class Memory:
    """The conversation's memory as one tool run sees it.

    In this version no agent can declare a memory value, so in a running agent nothing
    is found here and nothing can be set. In a unit test ``Memory({"day": "Monday"})``
    holds what it is given and takes every name.
    """

    def __init__(
        self, values: Mapping[str, Any] | None = None, *, declared: Collection[str] | None = None
    ) -> None:
        """Takes the values as they stand, and the names that may be set; None allows all."""
        self._values = dict(values or {})
        self._declared = declared
        self._writes: dict[str, Any] = {}

    def get(self, name: str, default: Any = None) -> Any:
        """The value under name, default when none is set."""
        value = self._values.get(name)
        return default if value is None else value

    def set(self, name: str, value: Any) -> None:
        """Sets a value.

        UndeclaredMemory when the agent does not declare the name, TypeError when the
        value has no JSON form.
        """
        if not isinstance(name, str):
            raise TypeError("the name of a memory value is a str")
        if self._declared is not None and name not in self._declared:
            raise UndeclaredMemory(
                f"the agent declares no memory named {name!r}; declaring it in a memory.yml "
                "comes in a later release"
            )
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            raise TypeError(f"the value for memory {name!r} has no JSON form") from None
        self._values[name] = value
        self._writes[name] = value

    @property
    def writes(self) -> dict[str, Any]:
        """What was set, in the order of first setting."""
        return dict(self._writes)


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
    """The conversation's memory; empty in this version."""


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
