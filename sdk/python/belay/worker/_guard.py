"""What keeps a worker from outliving its host, and its children from disturbing it."""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import mmap
import os
import signal
import sys
import threading

IN, OUT, LIFELINE, PAGE = 3, 4, 5, 6

_pid = os.getpid()


def leave_if_child() -> None:
    """Ends a child that a hook forked, once it comes back into the worker's own code."""
    if os.getpid() != _pid:
        os._exit(0)


def keep_private() -> None:
    """Keeps the worker's descriptors from programs and children that hooks start."""
    for fd in (IN, OUT, LIFELINE, PAGE):
        os.set_inheritable(fd, False)
    os.register_at_fork(after_in_child=_leave)


def _leave() -> None:
    for fd in (IN, OUT, LIFELINE):
        with contextlib.suppress(OSError):
            os.close(fd)


def die_with_host() -> None:
    """Ends the worker and its children as soon as the host is gone.

    The lifeline closes when the host ends, however it ends. On Linux the kernel
    then kills the process group, which works even while C code keeps the
    interpreter; elsewhere a thread waits for it.
    """
    if sys.platform == "linux":
        try:
            fcntl.fcntl(LIFELINE, fcntl.F_SETOWN, -os.getpgrp())
            fcntl.fcntl(LIFELINE, fcntl.F_SETSIG, signal.SIGKILL)
            flags = fcntl.fcntl(LIFELINE, fcntl.F_GETFL)
            fcntl.fcntl(LIFELINE, fcntl.F_SETFL, flags | os.O_ASYNC | os.O_NONBLOCK)
        except OSError:
            os.set_blocking(LIFELINE, True)
        else:
            with contextlib.suppress(BlockingIOError):
                if os.read(LIFELINE, 1) == b"":  # it closed before the kernel was told
                    _end()
            return
    threading.Thread(target=_watch, name="belay-lifeline", daemon=True).start()


def _watch() -> None:
    while os.read(LIFELINE, 1) != b"":
        pass
    _end()


def _end() -> None:
    os.killpg(os.getpgrp(), signal.SIGKILL)


def show_stuck() -> None:
    """Lets the host ask, before it kills a stuck worker, where it is stuck.

    The stack goes to standard error and so to the host's log. This needs no
    running interpreter; crashes of native code are shown in the same way.
    """
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR2, all_threads=True)


def shared_page() -> memoryview:
    """The page that tells the host which call's step runs; its first item is the call's id."""
    return memoryview(mmap.mmap(PAGE, mmap.PAGESIZE)).cast("I")
