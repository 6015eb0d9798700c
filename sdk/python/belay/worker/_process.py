"""The worker proper: loads the agent, then serves calls until the host says quit or is gone."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import platform
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from belay.worker import _failure, _guard, _wire
from belay.worker._calls import Calls

if TYPE_CHECKING:
    from belay._load import HookEntry, Loaded, ToolEntry

_LAST_MOMENT = 0.5  # seconds for calls to end when the host says quit


def main() -> None:
    """Runs the worker."""
    _guard.keep_private()
    _guard.die_with_host()
    _guard.show_stuck()
    wire = _wire.Wire()
    order = json.loads(wire.wait_for(_wire.LOAD))
    root = str(order["root"])
    sys.argv = ["belay-worker"]
    describer = _failure.Describer(root)
    _log_frames_only(describer)

    from belay._load import load_agent
    from belay._memory_uses import Declared

    def importing(path: str) -> None:
        wire.send(_wire.frame(_wire.IMPORTING, 0, path.encode("utf-8", "replace")))

    declared = Declared(**order["declared"])
    loaded = load_agent(Path(root), skip=order["skip"], importing=importing, declared=declared)
    # What was imported stays: the collector need not look at it again.
    gc.collect()
    gc.freeze()
    page = _guard.shared_page()
    wire.send(_wire.frame(_wire.READY, 0, _ready(loaded)))
    _serve(wire, page, describer, loaded)


def _ready(loaded: Loaded) -> bytes:
    import pydantic

    about = {
        "python": platform.python_version(),
        "executable": sys.executable,
        "pydantic": pydantic.VERSION,
        "hooks": [_hook(entry) for entry in loaded.hooks],
        "tools": [_tool(entry) for entry in loaded.tools],
        "findings": loaded.findings,
    }
    return json.dumps(about).encode("utf-8")


def _hook(entry: HookEntry) -> dict[str, Any]:
    names = ("name", "point", "lane", "final", "timeout_ms", "file", "line")
    return {name: getattr(entry, name) for name in names}


def _tool(entry: ToolEntry) -> dict[str, Any]:
    names: Sequence[str] = (
        "name",
        "description",
        "parameters",
        "file",
        "line",
        "skill",
        "wants_context",
        "requires_confirmation",
        "utter_for_confirmation",
        "utter_on_user_denial",
        "on_success",
        "timeout_s",
    )
    return {name: getattr(entry, name) for name in names}


def _serve(
    wire: _wire.Wire, page: memoryview, describer: _failure.Describer, loaded: Loaded
) -> None:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    loop.set_exception_handler(lambda _, about: _log_stray(describer, about))
    serving = loop.create_task(_until_quit(wire, page, describer, loaded))
    while not serving.done():
        try:
            loop.run_until_complete(serving)
        except BaseException as exc:
            # A task that a hook started has raised SystemExit or its like, which
            # asyncio hands to whoever runs the loop.
            if not serving.done():
                _log_stray(describer, {"message": "a background task ended", "exception": exc})
    loop.run_until_complete(loop.shutdown_asyncgens())


async def _until_quit(
    wire: _wire.Wire, page: memoryview, describer: _failure.Describer, loaded: Loaded
) -> None:
    calls = Calls(wire, page, describer, loaded.hooks, loaded.tools)
    quitting = asyncio.Event()

    def handle(kind: int, call: int, body: memoryview) -> None:
        if kind == _wire.HOOK:
            calls.ask(call, body)
        elif kind == _wire.TOOL:
            calls.run(call, body)
        elif kind == _wire.CANCEL:
            calls.cancel(call)
        elif kind == _wire.PING:
            wire.send(_wire.frame(_wire.BEAT, 0))
        elif kind == _wire.QUIT:
            quitting.set()

    wire.run(asyncio.get_running_loop(), handle)
    await quitting.wait()
    await calls.stop(_LAST_MOMENT)


def _log_frames_only(describer: _failure.Describer) -> None:
    """Gives logging a form for the host's log, and keeps values out of stray tracebacks."""
    if logging.lastResort is not None:
        # An author's log.info is wanted too, unless the agent sets up logging itself.
        logging.lastResort.setLevel(logging.INFO)
        logging.lastResort.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
        logging.getLogger().setLevel(logging.INFO)

    def in_thread(args: threading.ExceptHookArgs) -> None:
        if args.exc_type is not SystemExit:
            name = args.thread.name if args.thread else "a thread"
            about = {"message": f"thread {name} ended", "exception": args.exc_value}
            _log_stray(describer, about)

    threading.excepthook = in_thread


def _log_stray(describer: _failure.Describer, about: dict[str, Any]) -> None:
    """Logs an exception that no call waits for: type and frames, no text."""
    lines = [f"belay: {about.get('message', 'an error that nobody handled')}"]
    if exc := about.get("exception"):
        _, _, frames = describer.where(exc.__traceback__, "", 0)
        lines[0] += f": {type(exc).__name__}"
        lines += [f"belay:   at {frame}" for frame in frames.splitlines()]
    os.write(2, ("\n".join(lines) + "\n").encode("utf-8", "replace"))
