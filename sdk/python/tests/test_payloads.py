"""Payloads through the worker: only what a hook changed comes back."""

from __future__ import annotations

import json
import time

import pytest

from belay import hooks
from belay._payloads import (
    PAYLOAD_TYPES,
    WrongReturn,
    build,
    changed_fields,
    decode,
    encode,
    snapshot,
)
from belay._points import POINTS

FIELDS = {PAYLOAD_TYPES[p.name]: [f.name for f in p.fields] for p in POINTS}


def raws(payload_type, **values):
    """The frame's fields, as another program would write them."""
    return [
        json.dumps(values[name]).encode() if name in values else None
        for name in FIELDS[payload_type]
    ]


def changes(payload_type, change, **values):
    """What comes back after change, a function that gets and gives the payload."""
    payload = build(payload_type, raws(payload_type, **values))
    before = snapshot(payload)
    changed = changed_fields(payload_type, before, change(payload))
    return {FIELDS[payload_type][index]: json.loads(raw) for index, raw in changed}


@pytest.mark.parametrize("point", POINTS, ids=lambda p: p.name)
def test_what_is_built_is_what_pydantic_would_build(point):
    payload_type = PAYLOAD_TYPES[point.name]
    values = {f.name: json.loads(f.default) for f in point.fields}
    values["channel"] = {"name": "rest", "metadata": {"a": [1]}}
    payload = build(payload_type, raws(payload_type, **values))
    assert payload.model_dump() == values == payload_type(**values).model_dump()
    assert isinstance(payload.channel, hooks.Channel)
    assert build(payload_type, [None] * len(values)).model_dump() == payload_type().model_dump()


@pytest.mark.parametrize("point", POINTS, ids=lambda p: p.name)
def test_an_untouched_payload_changes_nothing(point):
    payload_type = PAYLOAD_TYPES[point.name]
    assert changes(payload_type, lambda p: p) == {}
    assert changes(payload_type, lambda p: p.model_copy(deep=True)) == {}


def test_spaces_escapes_and_number_forms_are_no_change():
    text = b'[ {"role" : "us\\u0065r", "n": 1.50, "big": 12345678901234567890123} ]'
    payload = build(hooks.ModelRequestPayload, [text, *[None] * 6])
    assert changed_fields(hooks.ModelRequestPayload, snapshot(payload), payload) == []


def in_place(payload):
    payload.messages[0]["content"][0]["text"] = "masked"
    return payload


def in_place_then_copy(payload):
    payload.messages[0]["content"][0]["text"] = "masked"
    return payload.model_copy(update={"model_settings": {"seed": 1}})


def in_place_then_another(payload):
    payload.messages[0]["content"][0]["text"] = "masked"
    return hooks.ModelRequestPayload(messages=[{"role": "user", "content": [{"text": "card"}]}])


def test_changes_in_place_count_when_the_value_is_returned():
    messages = [{"role": "user", "content": [{"text": "card"}]}]
    masked = [{"role": "user", "content": [{"text": "masked"}]}]
    kind = hooks.ModelRequestPayload
    assert changes(kind, in_place, messages=messages) == {"messages": masked}
    assert changes(kind, in_place_then_copy, messages=messages) == {
        "messages": masked,
        "model_settings": {"seed": 1},
    }
    assert changes(kind, in_place_then_another, messages=messages) == {}


def test_read_only_fields_do_not_come_back():
    def meddle(payload):
        payload.channel = "garbage"
        return payload.model_copy(update={"sender_id": 5, "call": None, "tool_name": "x"})

    assert changes(hooks.ToolResultPayload, meddle) == {}


@pytest.mark.parametrize("number", [2**53 + 1, -(2**63), 2**64 - 1, 2**200, 0.1, 1e-300])
def test_numbers_survive(number):
    def add(payload):
        payload.arguments["other"] = 1
        return payload

    got = changes(hooks.ToolCallPayload, add, arguments={"id": number})
    assert got == {"arguments": {"id": number, "other": 1}}
    assert type(got["arguments"]["id"]) is type(number)


def test_lone_surrogates_and_deep_nesting_pass():
    deep = b"[" * 400 + b"]" * 400
    for raw in (b'"\\ud800 \\u0000"', deep):
        value = decode(raw)
        assert decode(encode(value)) == value
    assert encode("\ud800") == b'"\\ud800"'


def test_too_deep_nesting_is_a_value_error():
    with pytest.raises(ValueError, match="deeply"):
        decode(b"[" * 100_000 + b"]" * 100_000)
    nested = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(ValueError, match="deeply"):
        encode(nested)
    while nested:  # freed level by level: the interpreter frees by recursion
        nested = nested.pop()


@pytest.mark.parametrize("raw", [b"", b"nope", b"[1,]", b"NaN1"])
def test_what_is_no_json_is_a_value_error(raw):
    with pytest.raises(ValueError):
        decode(raw)


def test_the_words_nan_and_infinity_may_stand_in_a_text():
    assert encode({"a": "NaN", "b": "-Infinity"}) == b'{"a":"NaN","b":"-Infinity"}'


def test_values_with_a_usual_json_form_are_taken():
    from datetime import date
    from decimal import Decimal

    value = {"day": date(2026, 1, 2), "sum": Decimal("1.5"), "pair": (1, 2), 3: "x"}
    assert json.loads(encode(value)) == {
        "day": "2026-01-02",
        "sum": "1.5",
        "pair": [1, 2],
        "3": "x",
    }


REQUEST, RESPONSE, RESULT = (
    hooks.ModelRequestPayload,
    hooks.ModelResponsePayload,
    hooks.ToolResultPayload,
)
CALL = {"id": "a", "tool_name": "t", "tool_args": {}}
RING: list = []
RING.append(RING)


@pytest.mark.parametrize(
    ("payload_type", "update", "says"),
    [
        (hooks.OutgoingTextPayload, {"text": None}, "'text' is None, not a string"),
        (hooks.OutgoingTextPayload, {"text": b"x"}, "'text' is a bytes"),
        (hooks.KnowledgeQueryPayload, {"query": 5}, "'query' is an int"),
        (REQUEST, {"messages": "x"}, "not a list"),
        (REQUEST, {"messages": {"a": 1}}, "not a list"),
        (REQUEST, {"messages": [{}, "x"]}, "a str at 1"),
        (REQUEST, {"messages": [{"n": float("nan")}]}, "no JSON form"),
        (REQUEST, {"messages": [{"n": [float("inf")]}]}, "no JSON form"),
        (REQUEST, {"messages": [{"n": object()}]}, "no JSON form"),
        (REQUEST, {"messages": [{"n": RING}]}, "no JSON form"),
        (REQUEST, {"messages": [{"n": b"\xff"}]}, "no JSON form"),
        (REQUEST, {"model_settings": None}, "not a dict"),
        (RESPONSE, {"text": 1}, "not a string or None"),
        (RESPONSE, {"tool_calls": None}, "not a list"),
        (RESPONSE, {"tool_calls": [{**CALL, "tool_name": None}]}, "'tool_name'"),
        (RESPONSE, {"tool_calls": [{**CALL, "tool_name": ""}]}, "'tool_name'"),
        (RESPONSE, {"tool_calls": [{**CALL, "tool_args": "{}"}]}, "'tool_args'"),
        (RESPONSE, {"tool_calls": [{**CALL, "id": 5}]}, "'id'"),
        (RESPONSE, {"tool_calls": [{**CALL, "type": 5}]}, "'type'"),
        (RESPONSE, {"tool_calls": [CALL, CALL]}, "twice"),
        (RESULT, {"is_error": 1}, "not True or False"),
        (RESULT, {"is_error": None}, "not True or False"),
        (RESULT, {"arguments": []}, "not a dict"),
        (RESULT, {"value": float("nan")}, "no JSON form"),
        (hooks.KnowledgeResultsPayload, {"passages": [{"text": None}]}, "'text' at 0"),
        (hooks.KnowledgeResultsPayload, {"passages": ["x"]}, "at 0"),
    ],
)
def test_a_field_of_the_wrong_shape_is_a_wrong_return(payload_type, update, says):
    with pytest.raises(WrongReturn, match=says.replace("'", "['\"]")):
        changes(payload_type, lambda p: p.model_copy(update=update))


def test_what_is_right_in_shape_passes():
    calls = [{"tool_name": "t", "tool_args": {}}, {"tool_name": "t", "tool_args": {}, "id": None}]
    got = changes(RESPONSE, lambda p: p.model_copy(update={"tool_calls": calls, "text": ""}))
    assert got == {"tool_calls": calls, "text": ""}
    for value in (None, 1, [1], {"a": None}, "x"):
        got = changes(RESULT, lambda p, v=value: p.model_copy(update={"value": v}))
        assert got == {"value": value}


def test_a_model_setting_without_a_json_form_is_none():
    given = {"temperature": float("nan"), "seed": 1, "stop": [object()], object(): 2, ("a",): RING}
    got = changes(REQUEST, lambda p: p.model_copy(update={"model_settings": given}))
    want = {"temperature": None, "seed": 1, "stop": None, "object": 2, "tuple": None}
    assert got == {"model_settings": want}


@pytest.mark.parametrize(
    "answer",
    [
        None,
        {"text": "x"},
        "x",
        hooks.OutgoingTextPayload,
        hooks.IncomingMessagePayload(text="x"),
        hooks.RetryModel("x"),
    ],
)
def test_another_value_is_a_wrong_return(answer):
    with pytest.raises(WrongReturn, match="instead of an OutgoingTextPayload"):
        changes(hooks.OutgoingTextPayload, lambda p: answer)


def test_a_field_that_was_taken_away_is_a_wrong_return():
    def take(payload):
        del payload.__dict__["text"]
        return payload

    with pytest.raises(WrongReturn, match="without"):
        changes(hooks.OutgoingTextPayload, take)


def test_a_wrong_return_names_no_value():
    for update in ({"text": 4111}, {"text": ["4111"]}):
        with pytest.raises(WrongReturn) as raised:
            changes(hooks.OutgoingTextPayload, lambda p, u=update: p.model_copy(update=u))
        assert "4111" not in str(raised.value)


def test_200_kb_take_a_few_milliseconds_at_most():
    messages = [{"role": "user", "content": f"text number {i} " * 14} for i in range(900)]
    given = raws(REQUEST, messages=messages, model_settings={})
    best = 1.0
    for _ in range(20):
        start = time.perf_counter()
        payload = build(REQUEST, given)
        before = snapshot(payload)
        payload.messages[-1]["content"] = "x"
        answer = payload.model_copy(update={"model_settings": {"temperature": 0.1}})
        assert len(changed_fields(REQUEST, before, answer)) == 2
        best = min(best, time.perf_counter() - start)
    assert best < 0.010  # measured 0.0008; the bound only catches another order of magnitude
