"""What is wrong with a hook's function, in words, and by a look at the function itself.

The source tells most of it (see :mod:`belay._check`). A hook that another decorator
wraps, or that is registered through a variable, shows only when it is registered.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any, get_type_hints

from belay._payloads import PAYLOAD_TYPES
from belay._registry import Hook
from belay._rules import Finding, finding


def wrong_signature(name: str, point: str) -> tuple[str, str, str]:
    """The finding for parameters other than one payload."""
    payload = PAYLOAD_TYPES[point].__name__
    return (
        "signature",
        f"{name} does not take exactly one positional parameter",
        f"write async def {name}(payload: {payload})",
    )


def wrong_payload(name: str, parameter: str, given: object, wanted: str) -> tuple[str, str, str]:
    """The finding for a parameter's annotation."""
    what = "has no annotation" if given is None else f"is not annotated as {wanted}"
    return (
        "payload-annotation",
        f"parameter {parameter} of {name} {what}",
        f"write {parameter}: {wanted}",
    )


def wrong_return(name: str, given: object, wanted: str) -> tuple[str, str, str]:
    """The finding for a return annotation."""
    what = "has no return annotation" if given is None else f"is not annotated to return {wanted}"
    return "return-annotation", f"{name} {what}", f"write -> {wanted}"


def registered_findings(hook: Hook, settled: Iterable[str]) -> list[Finding]:
    """What is wrong with a registered function, but for the rules that the source settled."""
    try:
        return list(_look_at(hook, set(settled)))
    except BaseException:  # what was decorated may be any object, and its annotations any code
        message = f"what is registered as {hook.name} cannot be looked at"
        hint = "decorate an async def directly"
        return [finding("not-async", hook.file, hook.line, message, hint)]


def _look_at(hook: Hook, settled: set[str]) -> Iterator[Finding]:
    name = hook.name
    wanted = PAYLOAD_TYPES[hook.point]

    def wrong(rule: str, message: str, hint: str) -> Finding:
        return finding(rule, hook.file, hook.line, message, hint)

    if "not-async" not in settled and not inspect.iscoroutinefunction(hook.fn):
        if inspect.isasyncgenfunction(hook.fn):
            message = f"{name} is an async generator, because it has a yield"
            yield wrong("not-async", message, "return one value, and do not yield")
        else:
            message = f"what is registered as {name} is not an async function"
            yield wrong("not-async", message, "decorate an async def directly")
    try:
        parameters = list(inspect.signature(hook.fn).parameters.values())
    except (TypeError, ValueError):
        return
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if len(parameters) != 1 or parameters[0].kind not in positional:
        if "signature" not in settled:
            yield wrong(*wrong_signature(name, hook.point))
        return
    given = _annotation(hook.fn, parameters[0].name)
    if "payload-annotation" not in settled and given is not wanted:
        yield wrong(*wrong_payload(name, parameters[0].name, given, wanted.__name__))
    if "return-annotation" not in settled:
        given = _annotation(hook.fn, "return")
        result: object = wanted if hook.lane == "modify" else type(None)
        if given is not result:
            text = wanted.__name__ if hook.lane == "modify" else "None"
            yield wrong(*wrong_return(name, given, text))


def _annotation(fn: Callable[..., Any], name: str) -> object:
    """What an annotation means; None when it is missing, the text when it means nothing."""
    inner = inspect.unwrap(fn)
    annotations = getattr(inner, "__annotations__", {})
    if name not in annotations:
        return None
    try:
        meaning: object = get_type_hints(inner)[name]
    except BaseException:  # one of the others may be the one that means nothing
        meaning = annotations[name]
        if isinstance(meaning, str):
            try:
                meaning = eval(meaning, getattr(inner, "__globals__", {}))
            except BaseException:
                return annotations[name]
        if meaning is None:
            return type(None)
    return getattr(meaning, "__value__", meaning)  # of a "type X = …" statement
