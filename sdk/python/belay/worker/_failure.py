"""What the host is told about an exception: where it came from, without any values."""

from __future__ import annotations

import json
import os
from types import TracebackType
from typing import Any

_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_MAX_TEXT = 4 << 10
_MAX_FEEDBACK = 1 << 20  # a model is to read all of it
_MAX_FRAMES = 40


class Describer:
    """Describes exceptions with paths relative to the agent's folder."""

    def __init__(self, root: str) -> None:
        """Takes the agent's folder."""
        self._prefix = os.path.join(os.path.realpath(root), "")

    def where(self, tb: TracebackType | None, file: str, line: int) -> tuple[str, int, str]:
        """File and line of the agent's innermost frame, and all frames as text.

        Without a frame of the agent, file and line are the given ones.
        """
        frames: list[str] = []
        while tb is not None:
            path = tb.tb_frame.f_code.co_filename
            at = tb.tb_lineno
            if path.startswith(self._prefix) and "site-packages" not in path:
                path = path[len(self._prefix) :].replace(os.sep, "/")
                file, line = path, at or line
            if not path.startswith(_OWN):
                frames.append(f"{path}:{at} in {tb.tb_frame.f_code.co_name}")
            tb = tb.tb_next
        if len(frames) > _MAX_FRAMES:
            half = _MAX_FRAMES // 2
            frames[half:-half] = [f"… {len(frames) - _MAX_FRAMES} more frames …"]
        return file, line, "\n".join(frames)

    def report(
        self, exc: BaseException, kind: str, file: str, line: int, text: str | None = None
    ) -> dict[str, Any]:
        """The report of a failure or a signal."""
        file, line, frames = self.where(exc.__traceback__, file, line)
        if not frames and (cause := exc.__cause__ or exc.__context__):
            # Python put another exception in its place, as for a StopIteration.
            file, line, frames = self.where(cause.__traceback__, file, line)
        return {
            "text": cut(text_of(exc)) if text is None else cut(text, _MAX_FEEDBACK),
            "kind": kind,
            "type": type(exc).__name__,
            "file": file,
            "line": line,
            "traceback": frames,
        }


def text_of(exc: BaseException) -> str:
    """The exception's text; making it runs the agent's code, which may fail in any way."""
    try:
        return str(exc)
    except BaseException:
        return "(its text cannot be made)"


def cut(text: str, most: int = _MAX_TEXT) -> str:
    """Keeps a text of reasonable length, and only what can be sent as UTF-8."""
    if len(text) > most:
        text = text[:most] + "…"
    return text.encode("utf-8", "replace").decode("utf-8")


def encode(report: dict[str, Any]) -> bytes:
    """The report as JSON."""
    return json.dumps(report, ensure_ascii=False).encode("utf-8")
