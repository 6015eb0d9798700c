"""Starts the worker. Old interpreters can read this file, to say that they are too old."""

import json
import os
import struct
import sys

OUT = 4


def cannot(problem, detail, managed=False):
    """Tells the host why this interpreter cannot run hooks, and ends."""
    version = ".".join(str(n) for n in sys.version_info[:3])
    about = {"problem": problem, "python": version, "detail": detail, "managed": managed}
    body = json.dumps(about).encode("utf-8")
    os.write(OUT, struct.pack(">IBI", 5 + len(body), ord("X"), 0) + body)
    os._exit(0)


def check_pydantic():
    """Makes sure that a pydantic is there that payload types can be made with."""
    try:
        import pydantic
    except ImportError as e:
        missing = getattr(e, "name", None) in ("pydantic", None)
        lacks = "no pydantic" if missing else "a pydantic that lacks " + str(e.name)
        cannot("pydantic", lacks, is_managed())
    if not str(pydantic.VERSION).startswith("2."):
        cannot("pydantic", "pydantic " + str(pydantic.VERSION) + ", but hooks need 2", is_managed())


def is_managed():
    """Whether the system looks after this interpreter's packages, so that pip refuses to."""
    import sysconfig

    mark = os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")
    return sys.prefix == sys.base_prefix and os.path.exists(mark)


def main():
    """Checks the interpreter and hands over to the worker proper."""
    if sys.version_info < (3, 11):
        cannot("version", "")
    # The package that belay brings goes before any other copy of it. This
    # folder itself is not a place to import from.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    check_pydantic()
    from belay.worker import _process

    _process.main()


if __name__ == "__main__":
    main()
