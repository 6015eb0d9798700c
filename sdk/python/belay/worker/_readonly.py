"""Finds changes that count for nothing: to read-only fields, and by observers.

The host puts read-only fields back whatever the hook returns, and lets no observer
change anything; it is told of the attempt so that the trace can say so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from belay import _payloads
from belay._points import POINTS
from belay.hooks import Channel, Payload

_READ_ONLY: dict[type[Payload], list[tuple[int, str]]] = {
    _payloads.PAYLOAD_TYPES[point.name]: [
        (index, field.name) for index, field in enumerate(point.fields) if not field.mutable
    ]
    for point in POINTS
}
_FIELDS: dict[type[Payload], list[str]] = {
    _payloads.PAYLOAD_TYPES[point.name]: [field.name for field in point.fields] for point in POINTS
}
_SCALARS = (str, bool, int, float, type(None))


def attempts(
    payload_type: type[Payload], raws: Sequence[bytes | None], given: dict[str, Any], after: Payload
) -> list[tuple[int, bytes]]:
    """Index and new JSON of each read-only field of after that is not what the hook was given."""
    values = after.__dict__
    found = []
    for index, name in _READ_ONLY[payload_type]:
        value, raw = values.get(name), raws[index]
        if raw is None or _same(value, given[name], raw):
            continue
        try:
            found.append((index, _payloads.encode(value)))
        except Exception:
            found.append((index, b"null"))  # it has no JSON form; the attempt is what counts
    return found


def strayed(
    payload_type: type[Payload],
    raws: Sequence[bytes | None],
    given: dict[str, Any],
    payload: Payload,
    returned: object,
) -> list[tuple[int, bytes]]:
    """Index of each field that an observer changed on its copy, with a null for its value.

    One that returned something has strayed too: then the first field stands for it.
    """
    values = payload.__dict__
    found = [
        (index, b"null")
        for index, (field, raw) in enumerate(zip(_FIELDS[payload_type], raws, strict=True))
        if raw is not None and not _same(values.get(field), given[field], raw)
    ]
    return found or ([(0, b"null")] if returned is not None else [])


def _same(value: Any, given: Any, raw: bytes) -> bool:
    """Whether value is still what raw says; it may be changed in place."""
    if type(value) in _SCALARS:
        return value is given or (type(value) is type(given) and value == given)
    was = _payloads.decode(raw)
    if type(value) is Channel and isinstance(was, dict):
        return (value.name, value.metadata) == (was.get("name", ""), was.get("metadata", {}))
    return type(value) is type(was) and bool(value == was)
