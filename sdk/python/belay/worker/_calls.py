"""Runs hooks and tools as tasks of the event loop."""

from __future__ import annotations

import asyncio
import json
import logging
import struct
from collections.abc import Callable, Coroutine, Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from belay import _events, _payloads, _turn
from belay.hooks import Channel, HookRejection, RetryModel
from belay.memory import InvalidMemoryValue, Memory, MemoryAlreadySet
from belay.tools import ToolContext, ToolResult
from belay.worker import _failure, _guard, _readonly, _wire

if TYPE_CHECKING:
    from belay._load import HookEntry, ToolEntry

REJECT, GO_ON, RETRY, FAILED = b"\0", b"\1", b"\2", b"\4"
MAX_ANSWER = 16 << 20

_LENGTH = struct.Struct(">I")
_HANDLE = struct.Struct(">H")
_MISSING = 0xFFFFFFFF
_BEGUN = struct.Struct(">IBI")
_ANSWER = struct.Struct(">IBII")  # a frame's head and the microseconds that the call ran
_MOST_MICROSECONDS = 0xFFFFFFFF


class Step(Coroutine[Any, Any, None]):
    """A call's coroutine that tells the host whenever it holds the interpreter."""

    __slots__ = ("_call", "_coroutine", "_page", "_send")

    def __init__(self, call: int, coroutine: Coroutine[Any, Any, None], page: memoryview) -> None:
        """Wraps the coroutine of a call."""
        self._call, self._coroutine, self._page = call, coroutine, page
        self._send = coroutine.send

    def send(self, value: Any) -> Any:
        """Takes one step."""
        self._page[0] = self._call
        try:
            return self._send(value)
        finally:
            _guard.leave_if_child()
            self._page[0] = 0

    def throw(self, *exc: Any) -> Any:
        """Takes one step that begins with an exception."""
        self._page[0] = self._call
        try:
            return self._coroutine.throw(*exc)
        finally:
            _guard.leave_if_child()
            self._page[0] = 0

    def close(self) -> None:
        """Ends the coroutine."""
        self._coroutine.close()

    def __await__(self) -> Any:
        """Not needed by tasks; a Coroutine has it."""
        return self._coroutine.__await__()

    def __getattr__(self, name: str) -> Any:
        """Shows the coroutine's own cr_… attributes to those who look at tasks."""
        return getattr(self._coroutine, name)


class Calls:
    """The calls under way."""

    def __init__(
        self,
        wire: _wire.Wire,
        page: memoryview,
        describer: _failure.Describer,
        hooks: Sequence[HookEntry],
        tools: Sequence[ToolEntry],
    ) -> None:
        """Takes what was loaded and how to answer."""
        self._wire, self._page, self._describer = wire, page, describer
        self._hooks, self._tools = hooks, tools
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._cancelled: set[int] = set()
        self._contexts: dict[int, _Context] = {}  # of the tools that run
        self._new_task: Callable[..., asyncio.Task[None]] = asyncio.Task
        self._loop = asyncio.get_running_loop()

    def ask(self, call: int, body: memoryview) -> None:
        """Starts a hook."""
        entry = self._hooks[_HANDLE.unpack_from(body)[0]]
        raws: list[bytes | None] = []
        at = 3
        for _ in range(body[2]):
            (size,) = _LENGTH.unpack_from(body, at)
            at += 4
            if size == _MISSING:
                raws.append(None)
                continue
            raws.append(bytes(body[at : at + size]))
            at += size
        self._start(call, self._hook(call, entry, raws))

    def run(self, call: int, body: memoryview) -> None:
        """Starts a tool."""
        entry = self._tools[_HANDLE.unpack_from(body)[0]]
        self._start(call, self._tool(call, entry, bytes(body[2:])))

    def _start(self, call: int, coroutine: Coroutine[Any, Any, None]) -> None:
        self._tasks[call] = self._new_task(Step(call, coroutine, self._page), loop=self._loop)

    def cancel(self, call: int) -> None:
        """Cancels a call. One that is not there any more has ended meanwhile."""
        if task := self._tasks.get(call):
            self._cancelled.add(call)
            if context := self._contexts.get(call):
                context.is_cancelled.cancel()
            task.cancel()
            task.add_done_callback(lambda _: self._forget(call))  # it may never have begun

    async def stop(self, patience: float) -> None:
        """Cancels what still runs and gives it a moment to end."""
        for task in list(self._tasks.values()):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()), timeout=patience)

    def _forget(self, call: int) -> None:
        self._tasks.pop(call, None)
        self._cancelled.discard(call)
        self._contexts.pop(call, None)

    def _answer(self, call: int, kind: int, began: int, body: bytes) -> None:
        # Code that freezes or turns back all clocks must not keep its answer from leaving.
        ran = min(max((perf_counter_ns() - began) // 1000, 0), _MOST_MICROSECONDS)
        self._wire.send(_ANSWER.pack(9 + len(body), kind, call, ran) + body)
        self._forget(call)

    async def _hook(self, call: int, entry: HookEntry, raws: list[bytes | None]) -> None:
        began = perf_counter_ns()
        self._wire.send(_BEGUN.pack(5, _wire.BEGUN, call))
        try:
            body = await self._outcome(entry, raws)
        except HookRejection as signal:
            body = self._report(REJECT, signal, entry, text=_failure.cut(_text(signal.reason)))
        except RetryModel as signal:
            body = self._report(RETRY, signal, entry, text=_text(signal.feedback))
        except _payloads.WrongReturn as wrong:
            body = self._report(FAILED, wrong, entry, kind="wrong_return")
        except asyncio.CancelledError as cancelled:
            kind = "cancelled" if call in self._cancelled else "crash"
            body = self._report(FAILED, cancelled, entry, kind=kind)
        except BaseException as exc:  # SystemExit and its like must not end the worker
            body = self._report(FAILED, exc, entry, kind="crash")
        self._answer(call, _wire.HOOK_ANSWER, began, body)

    async def _outcome(self, entry: HookEntry, raws: list[bytes | None]) -> bytes:
        payload = _payloads.build(entry.payload_type, raws)
        _turn.running.set(payload)
        given = dict(payload.__dict__)
        if entry.lane == "observe":
            returned = await entry.fn(payload)
            return _go_on(_readonly.strayed(entry.payload_type, raws, given, payload, returned))
        before = _payloads.snapshot(payload)
        returned = await entry.fn(payload)
        changes = _payloads.changed_fields(entry.payload_type, before, returned)
        changes += _readonly.attempts(entry.payload_type, raws, given, returned)
        size = sum(len(raw) for _, raw in changes)
        if size > MAX_ANSWER:
            raise _payloads.WrongReturn(f"returned {size} bytes, more than {MAX_ANSWER}")
        return _go_on(changes)

    def _report(
        self,
        outcome: bytes,
        exc: BaseException,
        entry: HookEntry,
        *,
        kind: str = "",
        text: str | None = None,
    ) -> bytes:
        report = self._describer.report(exc, kind, entry.file, entry.line, text)
        exc.__traceback__ = None  # its frames hold the payload
        return outcome + _failure.encode(report)

    async def _tool(self, call: int, entry: ToolEntry, body: bytes) -> None:
        began = perf_counter_ns()
        self._wire.send(_BEGUN.pack(5, _wire.BEGUN, call))
        try:
            answer = await self._result(call, entry, json.loads(body))
        except (InvalidMemoryValue, MemoryAlreadySet) as exc:
            answer = self._failed_tool(exc, entry, text=_failure.text_of(exc))
        except BaseException as exc:
            answer = self._failed_tool(exc, entry)
        self._answer(call, _wire.TOOL_ANSWER, began, answer)

    async def _result(self, call: int, entry: ToolEntry, request: dict[str, Any]) -> bytes:
        context = self._contexts[call] = _context(request, lambda *told: self._tell(call, *told))
        _turn.running.set(context)
        try:
            arguments = entry.coerce(request["arguments"])
        except ValueError as wrong:
            return self._failed_tool(wrong, entry, text=str(wrong))
        if entry.wants_context:
            arguments["context"] = context
        result = await entry.fn(**arguments)
        value = result
        if isinstance(result, ToolResult):
            value = result.llm_response
            if result.next:
                _warn_of_next(entry)
        answer = b'{"outcome":"ok","value":%b,"reads":%b}' % (
            _payloads.encode(value),
            _payloads.encode(context.memory.reads),
        )
        if len(answer) > MAX_ANSWER:
            raise ValueError(f"the result has {len(answer)} bytes, more than {MAX_ANSWER}")
        return answer

    def _tell(self, call: int, kind: int, body: bytes) -> None:
        """Tells the host at once what a tool did: its time may be up before it answers."""
        if call not in self._contexts:
            raise RuntimeError("the tool has ended; it can send and set nothing more")
        if len(body) > MAX_ANSWER:
            raise ValueError(f"a value of {len(body)} bytes, more than {MAX_ANSWER}")
        self._wire.send(_wire.frame(kind, call, body))

    def _failed_tool(self, exc: BaseException, entry: ToolEntry, text: str = "") -> bytes:
        report = self._describer.report(exc, "", entry.file, entry.line)
        exc.__traceback__ = None
        del report["kind"]
        report["message"], report["text"] = report["text"], _failure.cut(text)
        return _failure.encode({"outcome": "error", **report})


_Tell = Callable[[int, bytes], None]


class _Context(ToolContext):
    """A context whose texts reach the host."""

    tell: _Tell

    def _deliver(self, text: str) -> None:
        self.tell(_wire.SAID, text.encode("utf-8", "replace"))


class _Memory(Memory):
    """A memory whose writes reach the host."""

    tell: _Tell

    def _wrote(self, full: str, value: Any) -> None:
        self.tell(_wire.WROTE, _payloads.encode({"name": full, "value": value}))


def _context(request: dict[str, Any], tell: _Tell) -> _Context:
    given, channel = request["memory"], request["channel"]
    values, skill = given["values"], given["skill"]
    memory = _Memory(values, declared=values.keys(), skill=skill, closed=given["closed"])
    context = _Context(
        sender_id=request["sender_id"],
        turn_id=request["turn_id"],
        channel=Channel.model_construct(
            name=channel.get("name", ""), metadata=channel.get("metadata", {})
        ),
        call=request["call"],
        memory=memory,
        skill=skill,
        events=_events.read(request["events"]),
    )
    memory.tell = context.tell = tell
    return context


_warned: set[str] = set()


def _warn_of_next(entry: ToolEntry) -> None:
    """Says once a tool that what it wants to be done next is not done."""
    if entry.name not in _warned:
        _warned.add(entry.name)
        logging.getLogger("belay").warning(
            "tool %s at %s:%d: next of its ToolResult is not acted on",
            entry.name,
            entry.file,
            entry.line,
        )


def _go_on(changes: Sequence[tuple[int, bytes]]) -> bytes:
    if not changes:
        return b"\1\0"
    pieces = [GO_ON, bytes((len(changes),))]
    for index, raw in changes:
        pieces += (bytes((index,)), _LENGTH.pack(len(raw)), raw)
    return b"".join(pieces)


def _text(value: Any) -> str:
    """A signal's text; agents have put other things there."""
    return value if isinstance(value, str) else _failure.text_of(value)
