"""Hooks around a conversational turn: decorators, payload types and signals.

A hook is an ``async`` function with one typed parameter. Observe hooks (``on_…``)
look at a copy and return None; the turn does not wait for them. The one modify
hook of a point (``modify_…``) returns the payload that goes on, or raises a
signal where the point allows one::

    from belay.hooks import HookRejection, IncomingMessagePayload, modify_incoming_message

    @modify_incoming_message(timeout_ms=200)
    async def drop_spam(message: IncomingMessagePayload) -> IncomingMessagePayload:
        if "spam" in message.text.lower():
            raise HookRejection(reason="spam")
        return message.model_copy(update={"text": message.text.strip()})

Decorators need their parentheses, also empty ones. A decorated function stays the
function it was, so a unit test awaits it directly; every field of a payload has a
default, so a test names only those it cares about.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from belay import _registry
from belay._decorate import MODIFY_MS, OBSERVE_MS, hook_decorator, unknown_point

__all__ = [
    "Channel",
    "HookRejection",
    "IncomingMessagePayload",
    "KnowledgeQueryPayload",
    "KnowledgeResultsPayload",
    "ModelRequestPayload",
    "ModelResponsePayload",
    "OutgoingMessagePayload",
    "OutgoingTextPayload",
    "Payload",
    "RetryModel",
    "ToolCallPayload",
    "ToolResultPayload",
    "TurnFinishedPayload",
    "TurnStartedPayload",
    "modify_incoming_message",
    "modify_knowledge_query",
    "modify_knowledge_results",
    "modify_model_request",
    "modify_model_response",
    "modify_outgoing_message",
    "modify_outgoing_text",
    "modify_tool_call",
    "modify_tool_result",
    "on_incoming_message",
    "on_knowledge_query",
    "on_knowledge_results",
    "on_model_request",
    "on_model_response",
    "on_outgoing_message",
    "on_outgoing_text",
    "on_tool_call",
    "on_tool_result",
    "on_turn_finished",
    "on_turn_started",
]

# --- signals -----------------------------------------------------------------


class HookRejection(Exception):
    """Vetoes the message. Raise it in a modify hook of incoming message or outgoing text.

    The text is not processed or sent, and the user gets the point's fallback
    response. The reason goes to the log and the trace, never to the user or a model.
    """

    def __init__(self, reason: str = "") -> None:
        """Takes why the message is refused."""
        super().__init__(reason)
        self.reason = reason


class RetryModel(Exception):
    """Discards the model's response, or the whole batch of tool calls, and asks again.

    Raise it in a modify hook of model response or tool call. The feedback is a note
    for the next model request of the same turn: it is not kept in the history and
    never sent to the user.
    """

    def __init__(self, feedback: str = "") -> None:
        """Takes what the model is told for its next try."""
        super().__init__(feedback)
        self.feedback = feedback


# --- payloads ----------------------------------------------------------------


class Channel(BaseModel):
    """Where the conversation takes place."""

    model_config = ConfigDict(extra="ignore")

    name: str = ""
    """Name of the channel, such as ``rest``."""
    metadata: dict[str, Any] = Field(default_factory=dict)
    """What the front end sent along."""


class Payload(BaseModel):
    """What every payload carries. These fields are read-only: changes to them are dropped."""

    # "model_settings" is a field, so pydantic's "model_" namespace is given up.
    model_config = ConfigDict(extra="ignore", protected_namespaces=())

    sender_id: str = ""
    """Id of the conversation's user."""
    call: dict[str, Any] = Field(default_factory=dict)
    """Telephony or session data; empty unless the channel gives it."""
    channel: Channel = Field(default_factory=Channel)
    """The channel: its name and the front end's metadata."""


class TurnStartedPayload(Payload):
    """A turn begins. Nothing here can be changed."""

    is_voice: bool = False
    """Whether the turn came from a voice channel."""
    turn_id: str = ""
    """Id of the turn, the same at turn started and turn finished."""


class TurnFinishedPayload(Payload):
    """A turn has ended. Nothing here can be changed."""

    status: str = "completed"
    """``completed``, ``cancelled`` or ``error``."""
    turn_id: str = ""
    """Id of the turn, the same at turn started and turn finished."""


class IncomingMessagePayload(Payload):
    """A message of the user, before it is stored or read by a model."""

    text: str = ""
    """What the user wrote; may be changed. The text that goes on is the only one stored."""


class ModelRequestPayload(Payload):
    """A request to the model, before it is sent."""

    messages: list[dict[str, Any]] = Field(default_factory=list)
    """The chat messages; may be changed. They are sent as they are returned."""
    model_settings: dict[str, Any] = Field(default_factory=dict)
    """Settings for this one call; may be changed, starts empty. ``temperature``, ``top_p``,
    ``presence_penalty``, ``frequency_penalty``, ``max_tokens``, ``seed`` and ``stop`` count."""
    tool_names: list[str] = Field(default_factory=list)
    """Names of the tools that the request offers; read-only."""
    iteration: int = 0
    """The loop's iteration within the turn, from 0; read-only."""


class ModelResponsePayload(Payload):
    """What the model answered, before any text is sent or tool runs."""

    text: str | None = None
    """The completion's text, or None; may be changed."""
    tool_calls: list[dict[str, Any]] = Field(default_factory=list)
    """The tool calls; may be changed. Each has ``id``, ``tool_name``, ``tool_args`` and, when
    the provider gave one, ``type``."""
    latency_ms: float | None = None
    """How long the provider took, in milliseconds, when known; read-only."""


class ToolCallPayload(Payload):
    """One call of the model's batch, before any tool of the batch runs."""

    tool_name: str = ""
    """Name of the tool about to run; may be changed to another that was offered."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """The call's arguments; may be changed."""
    headers: dict[str, Any] = Field(default_factory=dict)
    """May be changed; goes nowhere yet."""


class ToolResultPayload(Payload):
    """The result of a call, before it is recorded and read by the model."""

    tool_name: str = ""
    """Name of the tool that was called; read-only."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """The arguments as they will be recorded and replayed; may be changed."""
    value: Any = ""
    """The result as the model would read it, JSON text for an object; may be changed."""
    is_error: bool = False
    """Whether the call counts as failed; may be changed."""


class KnowledgeQueryPayload(Payload):
    """A search in the agent's references, before it is made."""

    query: str = ""
    """What is searched; may be changed."""


class KnowledgeResultsPayload(Payload):
    """What a search found, before the model reads it."""

    query: str = ""
    """What was searched; read-only."""
    passages: list[dict[str, Any]] = Field(default_factory=list)
    """The passages; may be changed. Each has ``text``, ``scope``, ``source`` and, when known,
    ``score``."""


class OutgoingTextPayload(Payload):
    """A text about to be sent to the user, whatever its source."""

    text: str = ""
    """The text; may be changed."""
    is_voice: bool = False
    """Whether it goes to a voice channel; read-only."""


OutgoingMessagePayload = OutgoingTextPayload
"""The same type under its later name."""

# --- decorators --------------------------------------------------------------

P = TypeVar("P", bound=Payload)
ObserveHook: TypeAlias = Callable[[P], Coroutine[Any, Any, None]]
ModifyHook: TypeAlias = Callable[[P], Coroutine[Any, Any, P]]
ObserveDecorator: TypeAlias = Callable[[ObserveHook[P]], ObserveHook[P]]
ModifyDecorator: TypeAlias = Callable[[ModifyHook[P]], ModifyHook[P]]


@hook_decorator
def on_turn_started(
    *, timeout_ms: int = OBSERVE_MS, final: bool = False
) -> ObserveDecorator[TurnStartedPayload]:
    """Looks on when a turn begins, before anything of its message is stored."""
    raise NotImplementedError


@hook_decorator
def on_incoming_message(
    *, timeout_ms: int = OBSERVE_MS, final: bool = False
) -> ObserveDecorator[IncomingMessagePayload]:
    """Looks on when a message has come, before it is stored or read by a model."""
    raise NotImplementedError


@hook_decorator
def modify_incoming_message(
    *, timeout_ms: int = MODIFY_MS
) -> ModifyDecorator[IncomingMessagePayload]:
    """Decides what goes on when a message has come, before it is stored or read by a model.

    May raise HookRejection to veto the text. When it fails, the message is not processed.
    """
    raise NotImplementedError


@hook_decorator
def on_model_request(
    *, timeout_ms: int = OBSERVE_MS, final: bool = False
) -> ObserveDecorator[ModelRequestPayload]:
    """Looks on when a request is about to be sent to the model."""
    raise NotImplementedError


@hook_decorator
def modify_model_request(*, timeout_ms: int = MODIFY_MS) -> ModifyDecorator[ModelRequestPayload]:
    """Decides what goes on when a request is about to be sent to the model.

    No signal is allowed here. When it fails, the request is not sent.
    """
    raise NotImplementedError


@hook_decorator
def on_model_response(
    *, timeout_ms: int = OBSERVE_MS, final: bool = False
) -> ObserveDecorator[ModelResponsePayload]:
    """Looks on when the model has answered, before any text is sent or tool runs."""
    raise NotImplementedError


@hook_decorator
def modify_model_response(*, timeout_ms: int = MODIFY_MS) -> ModifyDecorator[ModelResponsePayload]:
    """Decides what goes on when the model has answered, before any text is sent or tool runs.

    May raise RetryModel to ask the model again. When it fails, the response goes on as it was.
    """
    raise NotImplementedError


@hook_decorator
def on_tool_call(
    *, timeout_ms: int = OBSERVE_MS, final: bool = False
) -> ObserveDecorator[ToolCallPayload]:
    """Looks on when the model has called a tool, before any tool of the batch runs."""
    raise NotImplementedError


@hook_decorator
def modify_tool_call(*, timeout_ms: int = MODIFY_MS) -> ModifyDecorator[ToolCallPayload]:
    """Decides what goes on when the model has called a tool, before any tool of the batch runs.

    May raise RetryModel to ask the model again. When it fails, no tool of the batch runs.
    """
    raise NotImplementedError


@hook_decorator
def on_knowledge_query(
    *, timeout_ms: int = OBSERVE_MS, final: bool = False
) -> ObserveDecorator[KnowledgeQueryPayload]:
    """Looks on when the references are about to be searched."""
    raise NotImplementedError


@hook_decorator
def modify_knowledge_query(
    *, timeout_ms: int = MODIFY_MS
) -> ModifyDecorator[KnowledgeQueryPayload]:
    """Decides what goes on when the references are about to be searched.

    No signal is allowed here. When it fails, nothing is searched.
    """
    raise NotImplementedError


@hook_decorator
def on_knowledge_results(
    *, timeout_ms: int = OBSERVE_MS, final: bool = False
) -> ObserveDecorator[KnowledgeResultsPayload]:
    """Looks on when a search has ended, before the model reads the passages."""
    raise NotImplementedError


@hook_decorator
def modify_knowledge_results(
    *, timeout_ms: int = MODIFY_MS
) -> ModifyDecorator[KnowledgeResultsPayload]:
    """Decides what goes on when a search has ended, before the model reads the passages.

    No signal is allowed here. When it fails, the passages go on as they were.
    """
    raise NotImplementedError


@hook_decorator
def on_tool_result(
    *, timeout_ms: int = OBSERVE_MS, final: bool = False
) -> ObserveDecorator[ToolResultPayload]:
    """Looks on when a call of the model's has a result, before it is recorded."""
    raise NotImplementedError


@hook_decorator
def modify_tool_result(*, timeout_ms: int = MODIFY_MS) -> ModifyDecorator[ToolResultPayload]:
    """Decides what goes on when a call of the model's has a result, before it is recorded.

    No signal is allowed here. When it fails, the result goes on as it was.
    """
    raise NotImplementedError


@hook_decorator
def on_outgoing_text(
    *, timeout_ms: int = OBSERVE_MS, final: bool = False
) -> ObserveDecorator[OutgoingTextPayload]:
    """Looks on when a text is about to be sent, whatever its source."""
    raise NotImplementedError


@hook_decorator
def modify_outgoing_text(*, timeout_ms: int = MODIFY_MS) -> ModifyDecorator[OutgoingTextPayload]:
    """Decides what goes on when a text is about to be sent, whatever its source.

    May raise HookRejection to veto the text. When it fails, the text is sent as it was.
    """
    raise NotImplementedError


@hook_decorator
def on_outgoing_message(
    *, timeout_ms: int = OBSERVE_MS, final: bool = False
) -> ObserveDecorator[OutgoingTextPayload]:
    """Looks on when a text is about to be sent, whatever its source.

    The later name of :func:`on_outgoing_text`.
    """
    raise NotImplementedError


@hook_decorator
def modify_outgoing_message(*, timeout_ms: int = MODIFY_MS) -> ModifyDecorator[OutgoingTextPayload]:
    """Decides what goes on when a text is about to be sent, whatever its source.

    The later name of :func:`modify_outgoing_text`; the two are one point.
    """
    raise NotImplementedError


@hook_decorator
def on_turn_finished(
    *, timeout_ms: int = OBSERVE_MS, final: bool = False
) -> ObserveDecorator[TurnFinishedPayload]:
    """Looks on when a turn has ended, after its last text was sent or dropped."""
    raise NotImplementedError


def __getattr__(name: str) -> Any:
    """Stands in for a decorator that does not exist while an agent is loaded.

    The check names the wrong decorator with its line. The stand-in lets the rest of
    the file be imported, so that its other mistakes are found in the same run.
    """
    if not _registry.active() or not re.fullmatch(r"(on|modify)_\w+", name):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def unknown(*args: Any, **_: Any) -> Any:
        _registry.misuse(*unknown_point(name))
        return args[0] if len(args) == 1 and callable(args[0]) else lambda fn: fn

    return unknown
