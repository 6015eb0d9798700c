"""The conversation's memory, as tools see it.

What an agent remembers is declared: for all skills in ``memory.yml``, where a value's
full name is ``project.<name>``, and for one skill in ``skills/<id>/memory.yml``, where it
is ``<id>.<name>``. A tool may leave the part before the dot out::

    context.memory.set("day", "Monday")  # the active skill's day, else the project's
    context.memory.get("project.customer")
    context.memory.get("booking.day")  # what the skill booking keeps

``session.`` may stand before either form. In a unit test ``Memory({"day": "Monday"})``
holds what it is given and takes every name.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Mapping
from typing import Any

__all__ = ["InvalidMemoryValue", "Memory", "MemoryAlreadySet", "UndeclaredMemory"]

PROJECT = "project"
"""What stands before the dot in the name of a value that all skills share."""


class UndeclaredMemory(LookupError):
    """A tool uses a memory value that it cannot have: nothing declares the name."""


class MemoryAlreadySet(ValueError):
    """A tool sets a value that is written once in a conversation, and has been."""


class InvalidMemoryValue(ValueError):
    """A tool refuses a value that was set. The model may read the message."""


ProjectMemoryAlreadySetError = MemoryAlreadySet  # under this name older agents catch it


class Memory:
    """The conversation's memory as one run of a tool sees it."""

    def __init__(
        self,
        values: Mapping[str, Any] | None = None,
        *,
        declared: Collection[str] | None = None,
        skill: str = "",
        closed: Collection[str] = (),
    ) -> None:
        """Takes the values as they stand.

        Args:
            values: The values; None for one that is not set.
            declared: The full names that may be used; None allows all names.
            skill: The id of the active skill, whose values go by their bare names.
            closed: The full names of values that may not be written again.
        """
        self._values = dict(values or {})
        self._declared = declared
        self._skill = skill
        self._closed = frozenset(closed)
        self._writes: dict[str, Any] = {}
        self._reads: dict[str, None] = {}

    def get(self, name: str, default: Any = None) -> Any:
        """The value under name, default when none is set.

        UndeclaredMemory when no memory.yml declares the name. A bare name that only
        other skills declare is not set.
        """
        full = self._find(name)
        if full is None:
            if not self._known(name):
                raise self._undeclared(name)
            return default
        self._reads[full] = None
        value = self._values.get(full)
        return default if value is None else value

    def set(self, name: str, value: Any) -> None:
        """Sets a value; None clears it.

        UndeclaredMemory when neither the active skill nor the project declares the name,
        MemoryAlreadySet when another value stands there for good, TypeError when the
        value has no JSON form.
        """
        full = self._find(name)
        if full is None:
            raise self._undeclared(name)
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            raise TypeError(f"the value for memory {name!r} has no JSON form") from None
        if full in self._closed:
            if _same(self._values.get(full), value):
                return
            raise MemoryAlreadySet(
                f"Project memory field {full.removeprefix('project.')!r} is already set "
                "and cannot be overwritten."
            )
        self._wrote(full, value)
        self._values[full] = value
        self._writes[full] = value

    def clear(self, name: str) -> None:
        """Takes a value away, as setting None does."""
        self.set(name, None)

    def __contains__(self, name: object) -> bool:
        """Whether a value is set under name."""
        full = self._find(name) if isinstance(name, str) else None
        if full is None:
            return False
        self._reads[full] = None
        return self._values.get(full) is not None

    @property
    def writes(self) -> dict[str, Any]:
        """What was set, by full names, in the order of first setting."""
        return dict(self._writes)

    @property
    def reads(self) -> list[str]:
        """The full names of what was asked for, in the order of first asking."""
        return list(self._reads)

    def _wrote(self, full: str, value: Any) -> None:
        """In a running agent, tells the program that runs it."""

    def _find(self, name: str) -> str | None:
        """The full name of a value; None when the tool cannot have it."""
        if not isinstance(name, str):
            raise TypeError("the name of a memory value is a str")
        name = name.removeprefix("session.")
        names: Collection[str] = self._values if self._declared is None else self._declared
        for full in candidates(name, self._skill):
            if full in names:
                return full
        return name if self._declared is None else None

    def _known(self, name: str) -> bool:
        """Whether some skill declares a bare name."""
        bare = name.removeprefix("session.")
        return any(_bare(full) == bare for full in self._declared or ())

    def _undeclared(self, name: str) -> UndeclaredMemory:
        who = "neither the active skill nor the project" if self._known(name) else "no memory.yml"
        near = hint(name, self._declared or (), self._skill)
        return UndeclaredMemory(f"{who} declares {name!r}{near}")


def candidates(name: str, skill: str) -> list[str]:
    """The full names that a name without ``session.`` may stand for, the first one first."""
    scopes = [skill, PROJECT] if skill else [PROJECT]
    return [name, *(f"{scope}.{name}" for scope in scopes)]


def hint(name: str, declared: Collection[str], skill: str) -> str:
    """Which names a wrong one may be meant for, to go behind a message; may be ""."""
    bare = name.removeprefix("session.")
    spelt = {full: full for full in declared}
    for full in sorted(declared, key=lambda full: _scope(full) not in (skill, PROJECT)):
        spelt.setdefault(_bare(full), _bare(full) if _scope(full) in (skill, PROJECT) else full)
    near = difflib.get_close_matches(bare, sorted(spelt), n=2, cutoff=0.6)
    if "." in bare:  # the right name may stand behind the wrong skill
        near = [full for full in sorted(declared) if _bare(full) == _bare(bare)][:2] + near
    meant = list(dict.fromkeys(spelt[each] for each in near))
    return f"; did you mean {' or '.join(meant)}?" if meant else ""


def _scope(full: str) -> str:
    return full.partition(".")[0]


def _bare(full: str) -> str:
    return full.partition(".")[2]


def _same(one: Any, other: Any) -> bool:
    """Whether two JSON values are the same; True is not 1."""
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)
