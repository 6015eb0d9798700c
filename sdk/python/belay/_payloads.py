"""Payloads on their way through the worker: decoded fast, and compared after the hook.

A field comes as raw JSON and leaves as raw JSON. Nothing is validated on the way in,
because the engine made it. On the way out only the mutable fields whose serialised
form changed are given back, so that an untouched field keeps the bytes it came in
(64-bit ids, number formats) and a chat history of 200 KB costs no more than it must::

    payload = build(ModelRequestPayload, raws)
    before = snapshot(payload)
    answer = await hook(payload)
    changes = changed_fields(ModelRequestPayload, before, answer)
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pydantic_core
from pydantic_core import PydanticSerializationError, to_jsonable_python

from belay import hooks
from belay._points import POINTS, Field, Point

# Before pydantic 2.5 there is no from_json, and to_json writes NaN as null in silence.
_FAST = hasattr(pydantic_core, "from_json")

P = TypeVar("P", bound=hooks.Payload)


class WrongReturn(Exception):
    """What a modify hook returned is not the payload that it should be."""


#: The payload type of each point, by the point's name.
PAYLOAD_TYPES: dict[str, type[hooks.Payload]] = {
    point.name: getattr(hooks, point.payload) for point in POINTS
}
_POINTS_BY_TYPE: dict[type[hooks.Payload], Point] = {
    PAYLOAD_TYPES[point.name]: point for point in POINTS
}


def build(payload_type: type[P], raws: Sequence[bytes | None]) -> P:
    """Makes a payload from the JSON of its point's fields, in the table's order.

    None leaves a field at its default. ValueError when a field is no JSON.
    """
    values: dict[str, Any] = {}
    for field, raw in zip(_POINTS_BY_TYPE[payload_type].fields, raws, strict=True):
        if raw is not None:
            values[field.name] = decode(raw)
    channel = values.get("channel")
    if isinstance(channel, dict):
        values["channel"] = hooks.Channel.model_construct(
            name=channel.get("name", ""), metadata=channel.get("metadata", {})
        )
    return payload_type.model_construct(**values)


def snapshot(payload: hooks.Payload) -> list[bytes | None]:
    """The JSON of each field as the hook gets it; None for fields it cannot change."""
    values = payload.__dict__
    return [
        _write(values[field.name]) if field.mutable else None
        for field in _POINTS_BY_TYPE[type(payload)].fields
    ]


def changed_fields(
    payload_type: type[hooks.Payload], before: Sequence[bytes | None], after: object
) -> list[tuple[int, bytes]]:
    """The mutable fields that differ from the snapshot, as index and JSON.

    Changes made in place count, nested ones too. Read-only fields are not looked at.
    WrongReturn when after is not a payload of that type or a field has another shape
    than the table says; its message names types and fields, never values.
    """
    if not isinstance(after, payload_type):
        given = "the class itself" if after is payload_type else _kind(after)
        raise WrongReturn(f"returned {given} instead of {_a(payload_type.__name__)}")
    values = after.__dict__
    changes: list[tuple[int, bytes]] = []
    for index, field in enumerate(_POINTS_BY_TYPE[payload_type].fields):
        if not field.mutable:
            continue
        if field.name not in values:
            raise WrongReturn(f"returned {_a(payload_type.__name__)} without {field.name!r}")
        value = values[field.name]
        if wrong := _SHAPES[field.shape](value):
            raise WrongReturn(f"field {field.name!r} {wrong}")
        raw = _encode_field(field, value, before[index])
        if raw is not None:
            changes.append((index, raw))
    return changes


def decode(raw: bytes) -> Any:
    """Reads JSON; ValueError when it is none."""
    if _FAST:
        try:
            return pydantic_core.from_json(raw, allow_inf_nan=False)
        except ValueError:
            pass  # lone surrogates and deep nesting: the json module reads those
    try:
        return json.loads(raw)
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error


def encode(value: Any) -> bytes:
    """Writes JSON; ValueError or TypeError when the value has no JSON form."""
    raw = _write(value)
    return _encode_slowly(value) if _may_hold_nan(raw) else raw


def _write(value: Any) -> bytes:
    """Writes what is JSON but for NaN and Infinity, which to_json lets pass."""
    if not _FAST:
        return _encode_slowly(value)
    try:
        return pydantic_core.to_json(value)
    except (PydanticSerializationError, ValueError, RecursionError):
        return _encode_slowly(value)  # lone surrogates, deep nesting, or no JSON at all


def _may_hold_nan(raw: bytes) -> bool:
    """Whether NaN or Infinity stands in raw, as a value or in a text."""
    return b"NaN" in raw or b"Infinity" in raw


def _encode_slowly(value: Any) -> bytes:
    try:
        return json.dumps(
            value, allow_nan=False, separators=(",", ":"), default=to_jsonable_python
        ).encode("ascii")
    except RecursionError as error:
        raise ValueError("the value is nested too deeply") from error


def _encode_field(field: Field, value: Any, before: bytes | None) -> bytes | None:
    """The field's JSON, None when it is as before.

    The search for NaN costs as much as the writing; what did not change goes without.
    """
    try:
        raw = _write(value)
        if raw == before:
            return None
        return _encode_slowly(value) if _may_hold_nan(raw) else raw
    except _NO_JSON_FORM as error:
        if field.name == "model_settings":
            return _encode_settings(value)
        raise WrongReturn(f"field {field.name!r} has no JSON form") from error


_NO_JSON_FORM = (PydanticSerializationError, ValueError, TypeError)


def _encode_settings(settings: dict[Any, Any]) -> bytes:
    """Each setting is judged alone: one without a JSON form becomes null, which never counts."""
    forms: dict[str, Any] = {}
    for key, value in settings.items():
        name = key if isinstance(key, str) else type(key).__name__
        try:
            encode(value)
            forms[name] = value
        except _NO_JSON_FORM:
            forms[name] = None
    return encode(forms)


def _text(value: Any) -> str:
    return "" if isinstance(value, str) else f"is {_kind(value)}, not a string"


def _text_or_null(value: Any) -> str:
    if value is None or isinstance(value, str):
        return ""
    return f"is {_kind(value)}, not a string or None"


def _bool(value: Any) -> str:
    return "" if isinstance(value, bool) else f"is {_kind(value)}, not True or False"


def _integer(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return ""
    return f"is {_kind(value)}, not a whole number"


def _number_or_null(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return ""
    return f"is {_kind(value)}, not a finite number or None"


def _object(value: Any) -> str:
    return "" if isinstance(value, dict) else f"is {_kind(value)}, not a dict"


def _objects(value: Any) -> str:
    if not isinstance(value, list | tuple):
        return f"is {_kind(value)}, not a list of dicts"
    for index, item in enumerate(value):
        if not isinstance(item, dict):
            return f"holds {_kind(item)} at {index}, not a dict"
    return ""


def _texts(value: Any) -> str:
    if not isinstance(value, list | tuple):
        return f"is {_kind(value)}, not a list of strings"
    for index, item in enumerate(value):
        if not isinstance(item, str):
            return f"holds {_kind(item)} at {index}, not a string"
    return ""


def _passages(value: Any) -> str:
    if wrong := _objects(value):
        return wrong
    for index, item in enumerate(value):
        if not isinstance(item.get("text"), str):
            return f"has no text under 'text' at {index}"
    return ""


def _tool_calls(value: Any) -> str:
    if wrong := _objects(value):
        return wrong
    seen = set()
    for index, call in enumerate(value):
        if not isinstance(call.get("tool_name"), str) or not call["tool_name"]:
            return f"has no 'tool_name' at {index}"
        if not isinstance(call.get("tool_args"), dict):
            return f"has 'tool_args' that are no dict at {index}"
        call_id = call.get("id")
        if call_id is not None and not isinstance(call_id, str):
            return f"has an 'id' that is no string at {index}"
        if not isinstance(call.get("type"), str | None):
            return f"has a 'type' that is no string at {index}"
        if call_id and call_id in seen:
            return f"has the same 'id' twice, at {index}"
        seen.add(call_id)
    return ""


def _any(_: Any) -> str:
    return ""


# For each shape of the table: what is wrong with a value, "" when nothing is.
_SHAPES: dict[str, Callable[[Any], str]] = {
    "text": _text,
    "text_or_null": _text_or_null,
    "bool": _bool,
    "integer": _integer,
    "number_or_null": _number_or_null,
    "object": _object,
    "objects": _objects,
    "texts": _texts,
    "passages": _passages,
    "tool_calls": _tool_calls,
    "any": _any,
}


def _kind(value: Any) -> str:
    return "None" if value is None else _a(type(value).__name__)


def _a(name: str) -> str:
    """The name with its article; a type's name in U is mostly spoken as in "a UUID"."""
    return f"{'an' if name[:1] in 'AEIOaeio' else 'a'} {name}"
