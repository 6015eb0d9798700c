"""Where decorators put what they decorate.

While an agent is loaded a :class:`Collector` is active and every decorator adds
to it; a decorator that is used wrongly adds a finding, so that one mistake does
not hide the others of its file. Outside of loading (an author's unit tests)
decorators register nothing and a wrong use raises :class:`TypeError`.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from belay._rules import Finding, finding

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


@dataclass(frozen=True)
class Hook:
    """One use of a hook's decorator, as it happened."""

    decorator: str
    point: str
    lane: str
    final: bool
    timeout_ms: int
    fn: Callable[..., Any]
    name: str
    file: str
    line: int


@dataclass(frozen=True)
class Tool:
    """One use of ``@tool``, as it happened."""

    name: str
    description: str
    fn: Callable[..., Any]
    file: str
    line: int
    options: dict[str, Any]


@dataclass
class Collector:
    """What the decorators of one agent said while it was loaded."""

    root: str
    hooks: list[Hook] = field(default_factory=list)
    tools: list[Tool] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def relative(self, path: str) -> str:
        """The path as findings and names have it: relative to the agent, with slashes."""
        prefix = self.root + os.sep
        if path.startswith(prefix):
            path = path[len(prefix) :]
        return path.replace(os.sep, "/")


_active: Collector | None = None
_loaded = False  # an agent was loaded: what registers now comes too late


@contextmanager
def collecting(collector: Collector) -> Iterator[Collector]:
    """Makes collector the one that decorators add to."""
    global _active, _loaded
    previous, _active = _active, collector
    try:
        yield collector
    finally:
        _active, _loaded = previous, True


def active() -> bool:
    """Whether an agent is being loaded."""
    return _active is not None


def caller() -> tuple[str, int]:
    """File and line of the nearest frame outside of this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def add_hook(
    decorator: str, point: str, lane: str, final: bool, timeout_ms: int, fn: Callable[..., Any]
) -> None:
    """Registers a hook with the agent that is being loaded, if one is."""
    path, line = caller()
    if _active is None:
        _too_late(decorator)
        return
    file = _active.relative(path)
    name = name_of(fn)
    _active.hooks.append(Hook(decorator, point, lane, final, timeout_ms, fn, name, file, line))


def add_tool(name: str, description: str, fn: Callable[..., Any], options: dict[str, Any]) -> None:
    """Registers a tool with the agent that is being loaded, if one is."""
    path, line = caller()
    if _active is None:
        _too_late("tool")
        return
    _active.tools.append(Tool(name, description, fn, _active.relative(path), line, options))


def name_of(fn: object) -> str:
    """The name of what was decorated, which need be no function."""
    try:
        name = fn.__name__  # type: ignore[attr-defined]
    except BaseException:  # an object of the agent's may do anything when it is asked
        name = None
    return name if isinstance(name, str) else type(fn).__name__


def misuse(rule: str, message: str, hint: str) -> None:
    """Records a wrong use of a decorator at the caller's place, or raises it."""
    if _active is None:
        raise TypeError(f"{message}: {hint}")
    path, line = caller()
    _active.findings.append(finding(rule, _active.relative(path), line, message, hint))


def _too_late(decorator: str) -> None:
    if _loaded:
        warnings.warn(
            f"{decorator} was used after the agent had been loaded and registers nothing",
            RuntimeWarning,
            stacklevel=4,
        )
