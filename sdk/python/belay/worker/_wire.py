"""Frames between host and worker; see the package comment of internal/pyhost."""

from __future__ import annotations

import os
import struct
from asyncio import AbstractEventLoop
from collections.abc import Callable

from belay.worker import _guard

HEAD = struct.Struct(">IBI")
"""Length of the rest, type, call id."""

LOAD, HOOK, TOOL, CANCEL, PING, QUIT = b"LHTCPQ"
IMPORTING, READY, BEGUN, BEAT, SAID, WROTE, HOOK_ANSWER, TOOL_ANSWER = b"IRBbswAt"

_CHUNK = 64 << 10
_ORPHANED = 71  # exit status of a worker that has lost its pipes


def frame(kind: int, call: int, body: bytes = b"") -> bytes:
    """A whole frame."""
    return HEAD.pack(5 + len(body), kind, call) + body


class Wire:
    """Both pipes. Before run, writing blocks; afterwards it never does."""

    def __init__(self) -> None:
        """Begins with blocking pipes and no loop."""
        self._loop: AbstractEventLoop | None = None
        self._unsent = bytearray()
        self._chunk = memoryview(bytearray(_CHUNK))
        self._have = 0  # bytes of the chunk that hold the beginning of a frame
        self._large: memoryview | None = None  # a frame that does not fit the chunk
        self._filled = 0
        self._handle: Callable[[int, int, memoryview], None] = _nobody

    def wait_for(self, kind: int) -> bytes:
        """Blocks until the first frame has come, which must be of that kind."""
        head = self._read_all(HEAD.size)
        length, got, _ = HEAD.unpack(head)
        if got != kind:
            os._exit(_ORPHANED)
        return self._read_all(length - 5)

    def _read_all(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = os.read(_guard.IN, size - len(data))
            if not piece:
                os._exit(_ORPHANED)  # the host is gone
            data += piece
        return data

    def run(self, loop: AbstractEventLoop, handle: Callable[[int, int, memoryview], None]) -> None:
        """Has handle called in the loop for each frame: kind, call id, body.

        The body is only valid during the call.
        """
        self._loop, self._handle = loop, handle
        os.set_blocking(_guard.IN, False)
        os.set_blocking(_guard.OUT, False)
        loop.add_reader(_guard.IN, self._readable)

    def send(self, data: bytes) -> None:
        """Writes a whole frame, or keeps what the pipe does not take for later."""
        _guard.leave_if_child()
        if self._unsent:
            self._unsent += data
            return
        try:
            sent = os.write(_guard.OUT, data)
        except BlockingIOError:
            sent = 0
        except OSError:
            os._exit(_ORPHANED)
        if sent == len(data):
            return
        if self._loop is None:
            self.send(data[sent:])
            return
        self._unsent += memoryview(data)[sent:]
        self._loop.add_writer(_guard.OUT, self._writable)

    def _writable(self) -> None:
        assert self._loop is not None
        try:
            sent = os.write(_guard.OUT, self._unsent)
        except BlockingIOError:
            return
        except OSError:
            os._exit(_ORPHANED)
        del self._unsent[:sent]
        if not self._unsent:
            self._loop.remove_writer(_guard.OUT)

    def _readable(self) -> None:
        _guard.leave_if_child()
        if self._large is not None:
            self._more()
            return
        got = self._read(self._chunk[self._have :])
        end, at = self._have + got, 0
        chunk, handle = self._chunk, self._handle
        while end - at >= 9:
            length, kind, call = HEAD.unpack_from(chunk, at)
            after = at + 4 + length
            if after > end:
                if 4 + length > _CHUNK:
                    self._large = memoryview(bytearray(4 + length))
                    self._large[: end - at] = chunk[at:end]
                    self._filled = end - at
                    self._have = 0
                    self._more()
                    return
                break
            handle(kind, call, chunk[at + 9 : after])
            at = after
        if at and end > at:
            chunk[: end - at] = bytes(chunk[at:end])
        self._have = end - at

    def _more(self) -> None:
        """Reads on into a large frame."""
        large = self._large
        assert large is not None
        while self._filled < len(large):
            got = self._read(large[self._filled :])
            if not got:
                return
            self._filled += got
        self._large = None
        _, kind, call = HEAD.unpack_from(large, 0)
        self._handle(kind, call, large[9:])

    def _read(self, into: memoryview) -> int:
        try:
            got = os.readv(_guard.IN, [into])
        except BlockingIOError:
            return 0
        except OSError:
            os._exit(_ORPHANED)
        if not got:
            os._exit(_ORPHANED)  # the host is gone
        return got


def _nobody(kind: int, call: int, body: memoryview) -> None:
    del kind, call, body
