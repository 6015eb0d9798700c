"""The authoring module: it agrees with the table, and payloads are pydantic models."""

from __future__ import annotations

import inspect
import json
import pickle

import pytest

from belay import hooks
from belay._payloads import PAYLOAD_TYPES
from belay._points import POINTS

POINT_IDS = [point.name for point in POINTS]


@pytest.mark.parametrize("point", POINTS, ids=POINT_IDS)
def test_decorators_agree_with_the_table(point):
    for name in filter(None, (point.name, point.alias)):
        for lane, there in (("on", point.observe), ("modify", point.modify)):
            decorator = vars(hooks).get(f"{lane}_{name}")
            assert (decorator is not None) == there
            if decorator is None:
                continue
            assert f"{lane}_{name}" in hooks.__all__
            assert decorator.__doc__
            parameters = inspect.signature(decorator).parameters
            limit = point.observe_limit_ms if lane == "on" else point.modify_limit_ms
            assert parameters["timeout_ms"].default == limit
            assert ("final" in parameters) == (lane == "on")
            assert point.payload in inspect.signature(decorator).return_annotation
    for signal in point.signals:
        assert signal in vars(hooks)["modify_" + point.name].__doc__


def test_no_decorator_is_outside_the_table():
    names = {name for point in POINTS for name in (point.name, point.alias) if name}
    given = {n for n in vars(hooks) if n.startswith(("on_", "modify_"))}
    assert {n.partition("_")[2] for n in given} == names


@pytest.mark.parametrize("point", POINTS, ids=POINT_IDS)
def test_payloads_agree_with_the_table(point):
    payload = PAYLOAD_TYPES[point.name]
    assert payload.__name__ == point.payload
    if point.alias_payload:
        assert getattr(hooks, point.alias_payload) is payload
    assert set(payload.model_fields) == {f.name for f in point.fields}
    given = payload().model_dump()
    assert given == {f.name: json.loads(f.default) for f in point.fields}


@pytest.mark.parametrize("payload", set(PAYLOAD_TYPES.values()), ids=lambda p: p.__name__)
def test_a_dump_has_the_fields_and_no_other(payload):
    assert set(payload(nonsense=1, sender_id="me").model_dump()) == set(payload.model_fields)
    assert payload(sender_id="me").sender_id == "me"


def test_copies_and_constructions():
    call = hooks.ToolCallPayload(tool_name="book", arguments={"day": "Monday"})
    copy = call.model_copy(update={"arguments": {"day": "Tuesday"}})
    assert (copy.tool_name, copy.arguments, call.arguments["day"]) == (
        "book",
        {"day": "Tuesday"},
        "Monday",
    )
    made = hooks.ToolCallPayload.model_construct(tool_name="book")
    assert (made.arguments, made.channel.name) == ({}, "")
    assert hooks.OutgoingMessagePayload is hooks.OutgoingTextPayload


def test_defaults_are_not_shared():
    hooks.ModelRequestPayload().messages.append({})
    assert hooks.ModelRequestPayload().messages == []


def test_the_channel_is_an_object():
    payload = hooks.TurnStartedPayload(channel={"name": "rest", "metadata": {"a": 1}})
    assert (payload.channel.name, payload.channel.metadata) == ("rest", {"a": 1})


@pytest.mark.parametrize(
    ("signal", "attribute"), [(hooks.HookRejection, "reason"), (hooks.RetryModel, "feedback")]
)
def test_signals_take_their_text_either_way(signal, attribute):
    for made in (signal("why"), signal(**{attribute: "why"})):
        assert getattr(made, attribute) == str(made) == "why"
        assert getattr(pickle.loads(pickle.dumps(made)), attribute) == "why"
    with pytest.raises(signal) as raised:
        raise signal  # a class is raised as well as an instance
    assert getattr(raised.value, attribute) == ""


async def keep(payload: hooks.OutgoingTextPayload) -> hooks.OutgoingTextPayload:
    return payload


def test_a_decorated_function_stays_what_it_was():
    assert hooks.modify_outgoing_text()(keep) is keep
    assert hooks.modify_outgoing_message(timeout_ms=2000)(keep) is keep
    assert hooks.on_outgoing_text(final=True, timeout_ms=1)(keep) is keep


@pytest.mark.parametrize("value", [0, -1, True, "500", 1.5, None, 2**31])
def test_outside_of_loading_a_wrong_time_limit_raises(value):
    with pytest.raises(TypeError, match="whole number"):
        hooks.modify_outgoing_text(timeout_ms=value)


@pytest.mark.parametrize(
    "use",
    [
        lambda: hooks.modify_outgoing_text(keep),
        lambda: hooks.modify_outgoing_text(500),
        lambda: hooks.modify_outgoing_text(final=True),
        lambda: hooks.on_outgoing_text(final=1),
        lambda: hooks.on_outgoing_text(nonsense=1),
    ],
)
def test_outside_of_loading_a_misuse_raises(use):
    with pytest.raises(TypeError):
        use()


def test_outside_of_loading_an_unknown_decorator_is_no_attribute():
    with pytest.raises(AttributeError):
        hooks.on_asr_partial  # noqa: B018
    with pytest.raises(ImportError):
        from belay.hooks import modify_turn_started  # noqa: F401
