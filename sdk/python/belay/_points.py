# Generated from hook/points.go by go generate ./internal/catalogue. Do not edit.
"""The table of insertion points around a turn."""

from __future__ import annotations

from typing import NamedTuple


class Field(NamedTuple):
    """One field of a payload: name, shape, whether a hook may change it, default as JSON."""

    name: str
    shape: str
    mutable: bool
    default: str
    doc: str


class Point(NamedTuple):
    """One insertion point. signals and on_failure are those of the modify lane."""

    name: str
    alias: str
    payload: str
    alias_payload: str
    observe: bool
    modify: bool
    signals: tuple[str, ...]
    on_failure: str
    observe_limit_ms: int
    modify_limit_ms: int
    fields: tuple[Field, ...]
    doc: str


POINTS: tuple[Point, ...] = (
    Point(
        name="turn_started",
        alias="",
        payload="TurnStartedPayload",
        alias_payload="",
        observe=True,
        modify=False,
        signals=(),
        on_failure="",
        observe_limit_ms=100,
        modify_limit_ms=0,
        fields=(
            Field(
                "is_voice", "bool", False, "false", "Whether the turn came from a voice channel."
            ),
            Field(
                "turn_id",
                "text",
                False,
                '""',
                "Id of the turn, the same at turn started and turn finished.",
            ),
            Field("sender_id", "text", False, '""', "Id of the conversation's user."),
            Field(
                "call",
                "object",
                False,
                "{}",
                "Telephony or session data; empty unless the channel gives it.",
            ),
            Field(
                "channel",
                "object",
                False,
                '{"name":"","metadata":{}}',
                "The channel: its name and the front end's metadata.",
            ),
        ),
        doc="Reached once, when a turn begins, before anything of its message is stored.",
    ),
    Point(
        name="incoming_message",
        alias="",
        payload="IncomingMessagePayload",
        alias_payload="",
        observe=True,
        modify=True,
        signals=("HookRejection",),
        on_failure="closed",
        observe_limit_ms=100,
        modify_limit_ms=500,
        fields=(
            Field(
                "text",
                "text",
                True,
                '""',
                "What the user wrote. The text that goes on is the only one that is stored.",
            ),
            Field("sender_id", "text", False, '""', "Id of the conversation's user."),
            Field(
                "call",
                "object",
                False,
                "{}",
                "Telephony or session data; empty unless the channel gives it.",
            ),
            Field(
                "channel",
                "object",
                False,
                '{"name":"","metadata":{}}',
                "The channel: its name and the front end's metadata.",
            ),
        ),
        doc="Reached once a message with text, before it is stored or read by a model.",
    ),
    Point(
        name="model_request",
        alias="",
        payload="ModelRequestPayload",
        alias_payload="",
        observe=True,
        modify=True,
        signals=(),
        on_failure="closed",
        observe_limit_ms=100,
        modify_limit_ms=500,
        fields=(
            Field(
                "messages",
                "objects",
                True,
                "[]",
                "The chat messages about to be sent. What a hook returns is sent as it is: roles and contents are not checked and extra keys stay.",
            ),
            Field(
                "model_settings",
                "object",
                True,
                "{}",
                "Settings for this one call; starts empty. Only temperature, top_p, presence_penalty, frequency_penalty (finite numbers), max_tokens, seed (whole numbers) and stop (a string or a list of strings) count.",
            ),
            Field(
                "tool_names", "texts", False, "[]", "Names of the tools that the request offers."
            ),
            Field(
                "iteration", "integer", False, "0", "The loop's iteration within the turn, from 0."
            ),
            Field("sender_id", "text", False, '""', "Id of the conversation's user."),
            Field(
                "call",
                "object",
                False,
                "{}",
                "Telephony or session data; empty unless the channel gives it.",
            ),
            Field(
                "channel",
                "object",
                False,
                '{"name":"","metadata":{}}',
                "The channel: its name and the front end's metadata.",
            ),
        ),
        doc="Reached once an iteration of the main loop and for each quiet call (rephrase), after the prompt was cut to its token budget, before the provider is called.",
    ),
    Point(
        name="model_response",
        alias="",
        payload="ModelResponsePayload",
        alias_payload="",
        observe=True,
        modify=True,
        signals=("RetryModel",),
        on_failure="open",
        observe_limit_ms=100,
        modify_limit_ms=500,
        fields=(
            Field("text", "text_or_null", True, "null", "The completion's text, or null."),
            Field(
                "tool_calls",
                "tool_calls",
                True,
                "[]",
                "The tool calls: objects with id, tool_name, tool_args and, when the provider gave one, type.",
            ),
            Field(
                "latency_ms",
                "number_or_null",
                False,
                "null",
                "How long the provider took, in milliseconds, when known.",
            ),
            Field("sender_id", "text", False, '""', "Id of the conversation's user."),
            Field(
                "call",
                "object",
                False,
                "{}",
                "Telephony or session data; empty unless the channel gives it.",
            ),
            Field(
                "channel",
                "object",
                False,
                '{"name":"","metadata":{}}',
                "The channel: its name and the front end's metadata.",
            ),
        ),
        doc="Reached once an iteration and for each quiet call, after the provider returned, before any text is sent or tool runs.",
    ),
    Point(
        name="tool_call",
        alias="",
        payload="ToolCallPayload",
        alias_payload="",
        observe=True,
        modify=True,
        signals=("RetryModel",),
        on_failure="closed",
        observe_limit_ms=100,
        modify_limit_ms=500,
        fields=(
            Field(
                "tool_name",
                "text",
                True,
                '""',
                "Name of the tool about to run. A name that was not offered in the request runs nothing.",
            ),
            Field("arguments", "object", True, "{}", "The call's arguments."),
            Field("headers", "object", True, "{}", "Kept in the payload; goes nowhere yet."),
            Field("sender_id", "text", False, '""', "Id of the conversation's user."),
            Field(
                "call",
                "object",
                False,
                "{}",
                "Telephony or session data; empty unless the channel gives it.",
            ),
            Field(
                "channel",
                "object",
                False,
                '{"name":"","metadata":{}}',
                "The channel: its name and the front end's metadata.",
            ),
        ),
        doc="Reached for each call of a batch, in the batch's order, before any tool of the batch runs.",
    ),
    Point(
        name="knowledge_query",
        alias="",
        payload="KnowledgeQueryPayload",
        alias_payload="",
        observe=True,
        modify=True,
        signals=(),
        on_failure="closed",
        observe_limit_ms=100,
        modify_limit_ms=500,
        fields=(
            Field("query", "text", True, '""', "What is searched. A blank query is not searched."),
            Field("sender_id", "text", False, '""', "Id of the conversation's user."),
            Field(
                "call",
                "object",
                False,
                "{}",
                "Telephony or session data; empty unless the channel gives it.",
            ),
            Field(
                "channel",
                "object",
                False,
                '{"name":"","metadata":{}}',
                "The channel: its name and the front end's metadata.",
            ),
        ),
        doc="Reached for each query that is not empty, before the index is searched.",
    ),
    Point(
        name="knowledge_results",
        alias="",
        payload="KnowledgeResultsPayload",
        alias_payload="",
        observe=True,
        modify=True,
        signals=(),
        on_failure="open",
        observe_limit_ms=100,
        modify_limit_ms=500,
        fields=(
            Field("query", "text", False, '""', "What was searched."),
            Field(
                "passages",
                "passages",
                True,
                "[]",
                "The passages found: objects with text, scope, source and, when known, score.",
            ),
            Field("sender_id", "text", False, '""', "Id of the conversation's user."),
            Field(
                "call",
                "object",
                False,
                "{}",
                "Telephony or session data; empty unless the channel gives it.",
            ),
            Field(
                "channel",
                "object",
                False,
                '{"name":"","metadata":{}}',
                "The channel: its name and the front end's metadata.",
            ),
        ),
        doc="Reached for each search that ended without error, before the passages are put into text for the model.",
    ),
    Point(
        name="tool_result",
        alias="",
        payload="ToolResultPayload",
        alias_payload="",
        observe=True,
        modify=True,
        signals=(),
        on_failure="open",
        observe_limit_ms=100,
        modify_limit_ms=500,
        fields=(
            Field("tool_name", "text", False, '""', "Name of the tool that was called."),
            Field(
                "arguments",
                "object",
                True,
                "{}",
                "The arguments as they will be recorded and replayed.",
            ),
            Field(
                "value",
                "any",
                True,
                '""',
                "The result as the model would read it: text, JSON text for an object. A value that is no text is kept as JSON text.",
            ),
            Field("is_error", "bool", True, "false", "Whether the call counts as failed."),
            Field("sender_id", "text", False, '""', "Id of the conversation's user."),
            Field(
                "call",
                "object",
                False,
                "{}",
                "Telephony or session data; empty unless the channel gives it.",
            ),
            Field(
                "channel",
                "object",
                False,
                '{"name":"","metadata":{}}',
                "The channel: its name and the front end's metadata.",
            ),
        ),
        doc="Reached after each dispatched call, before its result is recorded.",
    ),
    Point(
        name="outgoing_text",
        alias="outgoing_message",
        payload="OutgoingTextPayload",
        alias_payload="OutgoingMessagePayload",
        observe=True,
        modify=True,
        signals=("HookRejection",),
        on_failure="open",
        observe_limit_ms=100,
        modify_limit_ms=500,
        fields=(
            Field("text", "text", True, '""', "The text about to be sent, whatever its source."),
            Field("is_voice", "bool", False, "false", "Whether it goes to a voice channel."),
            Field("sender_id", "text", False, '""', "Id of the conversation's user."),
            Field(
                "call",
                "object",
                False,
                "{}",
                "Telephony or session data; empty unless the channel gives it.",
            ),
            Field(
                "channel",
                "object",
                False,
                '{"name":"","metadata":{}}',
                "The channel: its name and the front end's metadata.",
            ),
        ),
        doc="Reached once a whole text, whatever its source, before it is recorded and sent.",
    ),
    Point(
        name="turn_finished",
        alias="",
        payload="TurnFinishedPayload",
        alias_payload="",
        observe=True,
        modify=False,
        signals=(),
        on_failure="",
        observe_limit_ms=100,
        modify_limit_ms=0,
        fields=(
            Field("status", "text", False, '"completed"', "completed, cancelled or error."),
            Field(
                "turn_id",
                "text",
                False,
                '""',
                "Id of the turn, the same at turn started and turn finished.",
            ),
            Field("sender_id", "text", False, '""', "Id of the conversation's user."),
            Field(
                "call",
                "object",
                False,
                "{}",
                "Telephony or session data; empty unless the channel gives it.",
            ),
            Field(
                "channel",
                "object",
                False,
                '{"name":"","metadata":{}}',
                "The channel: its name and the front end's metadata.",
            ),
        ),
        doc="Reached once a turn that began, after its last text was sent or dropped.",
    ),
)
