"""How hook decorators behave: what they take, what they register, what is wrong with a use."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable
from typing import Any, TypeVar

from belay import _registry
from belay._points import POINTS

OBSERVE_MS = 100
"""Time limit of an observe hook that sets none, in milliseconds."""
MODIFY_MS = 500
"""Time limit of a modify hook that sets none, in milliseconds."""
LONGEST_MS = 2**31 - 1
"""The longest time limit that can be set, in milliseconds."""

ARGUMENTS = {"observe": ("timeout_ms", "final"), "modify": ("timeout_ms",)}
"""What the decorators of each lane take."""

_F = TypeVar("_F", bound=Callable[..., Any])
_POINT_OF = {name: point.name for point in POINTS for name in (point.name, point.alias) if name}


#: The decorators' names.
DECORATORS = [
    f"{lane}_{name}"
    for point in POINTS
    for name in (point.name, point.alias)
    for lane, there in (("on", point.observe), ("modify", point.modify))
    if name and there
]


def hook_decorator(factory: _F) -> _F:
    """Gives a decorator its behaviour.

    The body under it is never run; it gives editors and type checkers the signature.

    Arguments are looked at here and not left to Python, because a TypeError would end
    the import of the author's file and hide whatever else is wrong with it.
    """
    name = factory.__name__
    lane, _, point = name.partition("_")
    lane = "observe" if lane == "on" else "modify"

    @functools.wraps(factory)
    def decorator(*args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and callable(args[0]) and not kwargs:
            _registry.misuse(*bare(name))
            return args[0]
        if args:
            message = f"{name} takes no positional argument"
            _registry.misuse("decorator-argument", message, argument_hint(name, lane))
        for key, value in list(kwargs.items()):
            if wrong := wrong_argument(name, lane, key, value):
                _registry.misuse(*wrong)
                del kwargs[key]
        timeout_ms = kwargs.get("timeout_ms", OBSERVE_MS if lane == "observe" else MODIFY_MS)
        final = kwargs.get("final", False)

        def register(fn: _F) -> _F:
            _registry.add_hook(name, _POINT_OF[point], lane, final, timeout_ms, fn)
            return fn

        return register

    return decorator  # type: ignore[return-value]


def bare(name: str) -> tuple[str, str, str]:
    """Rule, message and hint for a decorator without parentheses."""
    return "bare-decorator", f"@{name} stands without parentheses", f"write @{name}()"


def argument_hint(name: str, lane: str) -> str:
    """How a decorator of that name is written."""
    written = [f"@{name}({key}=…)" for key in ARGUMENTS[lane]]
    return f"write @{name}() or " + " or ".join(written)


UNTOLD = object()
"""Stands for an argument whose value the source does not tell."""


def wrong_argument(name: str, lane: str, key: str, value: object) -> tuple[str, str, str] | None:
    """Rule, message and hint for a decorator's argument; None when nothing is wrong with it."""
    hint = argument_hint(name, lane)
    if key not in ARGUMENTS[lane]:
        return "decorator-argument", f"{name} takes no argument {key!r}", hint
    if value is UNTOLD:
        return None
    if key == "final" and not isinstance(value, bool):
        return "decorator-argument", f"final of {name} is neither True nor False", hint
    if key == "timeout_ms" and not _is_timeout(value):
        message = f"timeout_ms of {name} is not a whole number from 1"
        hint = f"give milliseconds as an int from 1 to {LONGEST_MS}, such as timeout_ms=2000"
        return "timeout-ms", message, hint
    return None


def _is_timeout(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= LONGEST_MS


def unknown_point(name: str) -> tuple[str, str, str]:
    """Rule, message and hint for a decorator name that does not exist."""
    lane, _, point = name.partition("_")
    if lane == "modify" and point in _POINT_OF:
        hint = f"nothing can be changed at this point; use on_{point} to look on"
    else:
        near = difflib.get_close_matches(name, DECORATORS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(DECORATORS)}"
    return "unknown-point", f"there is no hook decorator {name}", hint
