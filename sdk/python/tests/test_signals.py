"""Signals that are raised where they may not be, or returned."""

from __future__ import annotations

import pytest

from belay._points import POINTS
from belay.hooks import HookRejection, RetryModel

HEAD = """\
from __future__ import annotations
import belay.hooks
import belay.hooks as hooks
from belay.hooks import *
from belay.hooks import RetryModel as R
from rasa.mantle.hooks import HookRejection as Veto
from rasa.mantle import hooks as older
from lib.signals import Stop, Shared
class Mine(RetryModel): ...
class MineToo(Mine): ...
class RetryModelLike(Exception): ...
Short = RetryModel
"""
FIRST = HEAD.count("\n") + 1
LIB = "from belay.hooks import RetryModel as Shared\nclass Stop(Shared): ...\n"


def result_hook(body, before=""):
    """A hook of tool result, where no signal is allowed, and the line at which body begins."""
    lines = "\n".join("    " + line for line in body.splitlines())
    hook = (
        "@modify_tool_result()\n"
        "async def f(p: ToolResultPayload) -> ToolResultPayload:\n" + lines + "\n    return p\n"
    )
    return HEAD + before + hook, FIRST + before.count("\n") + 2


def rules(agent, source):
    agent.write("lib/signals.py", LIB)
    return agent.rules(source)


@pytest.mark.parametrize("signal", [HookRejection, RetryModel], ids=lambda s: s.__name__)
@pytest.mark.parametrize("point", POINTS, ids=lambda p: p.name)
@pytest.mark.parametrize("lane", ["on", "modify"])
def test_each_signal_at_each_point(agent, point, lane, signal):
    if lane == "modify" and not point.modify:
        return
    returns = "None" if lane == "on" else point.payload
    source = (
        f"@{lane}_{point.name}()\n"
        f"async def f(p: {point.payload}) -> {returns}:\n"
        f"    raise {signal.__name__}('x')\n"
    )
    allowed = lane == "modify" and signal.__name__ in point.signals
    expected = [] if allowed else [(FIRST + 2, "signal-not-allowed")]
    assert rules(agent, HEAD + source) == expected


@pytest.mark.parametrize(
    "statement",
    [
        "raise RetryModel",
        "raise RetryModel('x')",
        "raise RetryModel(feedback='x') from None",
        "raise R('x')",
        "raise R",
        "raise Short('x')",
        "raise hooks.RetryModel('x')",
        "raise hooks.RetryModel",
        "raise belay.hooks.RetryModel('x')",
        "raise older.HookRejection('x')",
        "raise Veto(reason='x')",
        "raise Mine('x')",
        "raise MineToo",
        "raise Stop('x')",
        "raise Shared('x')",
        "raise (RetryModel('x'))",
        "raise RetryModel('x') if p.is_error else ValueError('x')",
        "raise RetryModel('x').with_traceback(None)",
        "error = RetryModel('x'); raise error",
        "error: Exception = RetryModel('x'); raise error",
        "raise (error := RetryModel('x'))",
        "if p.is_error: raise RetryModel('x')",
        "for x in []: raise RetryModel('x')",
        "while p.is_error: raise RetryModel('x')",
        "async with p: raise RetryModel('x')",
        "with p: raise RetryModel('x')",
    ],
)
def test_the_forms_of_a_raise(agent, statement):
    source, line = result_hook(statement)
    assert rules(agent, source) == [(line, "signal-not-allowed")]


@pytest.mark.parametrize(
    ("body", "at"),
    [
        ("try:\n    raise R('x')\nexcept R:\n    pass", [1]),
        ("try:\n    pass\nexcept ValueError as e:\n    raise R('x') from e", [3]),
        ("try:\n    pass\nexcept R as e:\n    raise e", [3]),
        ("try:\n    pass\nexcept (ValueError, R) as e:\n    raise e", [3]),
        ("try:\n    pass\nfinally:\n    raise R", [3]),
        ("try:\n    pass\nexcept* R as e:\n    raise R", [3]),
        ("match p.value:\n    case 'a':\n        raise R\n    case _:\n        raise Veto", [2, 4]),
        ("raise R\nraise Veto", [0, 1]),
    ],
)
def test_raises_inside_statements(agent, body, at):
    source, line = result_hook(body)
    assert rules(agent, source) == [(line + offset, "signal-not-allowed") for offset in at]


@pytest.mark.parametrize(
    "statement",
    [
        "raise ValueError('RetryModel')",
        "raise RetryModelLike('x')",
        "raise",
        "raise p.RetryModel",
        "raise undefined",
        "raise hooks.Nothing",
        "x = RetryModel('x')",
        "x = lambda: RetryModel('x')",
        "def never(): raise RetryModel('x')",
        "class Never:\n    def g(self): raise RetryModel('x')",
        "isinstance(p, RetryModel)",
        "helper = p\nhelper()",
    ],
)
def test_what_raises_no_signal(agent, statement):
    source, _ = result_hook(statement)
    source = source.replace("    raise\n", "    try: pass\n    except ValueError: raise\n")
    assert rules(agent, source) == []


def test_functions_that_the_hook_calls_by_name(agent):
    helpers = """\
def check(p):
    deeper(p)
async def deeper(p):
    check(p)
    raise R('x')
def other(p):
    raise R('x')
"""
    for call in ("check(p)", "await deeper(p)", "x = [check(i) for i in []]", "print(check(p))"):
        source, _ = result_hook(call, before=helpers)
        assert rules(agent, source) == [(FIRST + 4, "signal-not-allowed")]
    for call in ("p.check(p)", "check = print; check(p)", "pass"):
        source, _ = result_hook(call, before=helpers)
        assert rules(agent, source) == []


def test_functions_below_and_inside_the_hook(agent):
    source, line = result_hook("async def inner():\n    raise R('x')\nawait inner()\nafter(p)")
    source += "def after(p):\n    raise Veto\n"
    assert rules(agent, source) == [
        (line + 1, "signal-not-allowed"),
        (line + 6, "signal-not-allowed"),
    ]


def test_a_parameter_of_that_name_is_not_the_function(agent):
    before = "def check(p):\n    raise R\ndef apply(check):\n    check(1)\n"
    source, _ = result_hook("apply(print)", before=before)
    assert rules(agent, source) == []


def test_a_helper_is_told_for_each_hook_that_may_not(agent):
    source = HEAD + (
        "def guard(p):\n    raise R('x')\n"
        "@modify_tool_call()\nasync def a(p: ToolCallPayload) -> ToolCallPayload: guard(p)\n"
        "@modify_tool_result()\nasync def b(p: ToolResultPayload) -> ToolResultPayload: guard(p)\n"
        "@on_tool_result()\nasync def c(p: ToolResultPayload) -> None: guard(p)\n"
    )
    agent.write("lib/signals.py", LIB)
    agent.write("hooks.py", source)
    found = agent.load().findings
    assert [(f["line"], f["rule"]) for f in found] == [(FIRST + 1, "signal-not-allowed")] * 2
    assert "called by b (@modify_tool_result)" in found[0]["message"]
    assert "called by c (@on_tool_result)" in found[1]["message"]


def test_a_class_of_the_same_name_is_no_signal(agent):
    source = (
        "from belay.hooks import *\n"
        "class RetryModel(Exception): ...\n"
        "@on_tool_result()\n"
        "async def f(p: ToolResultPayload) -> None:\n"
        "    raise RetryModel\n"
    )
    assert rules(agent, source) == []


def test_a_fallback_for_a_missing_import_does_not_hide_the_signal(agent):
    source = (
        "try:\n    from belay.hooks import *\nexcept ImportError:\n    RetryModel = None\n"
        "@on_tool_result()\n"
        "async def f(p: ToolResultPayload) -> None:\n"
        "    raise RetryModel\n"
    )
    assert rules(agent, source) == [(7, "signal-not-allowed")]


def test_an_import_inside_the_hook(agent):
    source, line = result_hook("from belay.hooks import RetryModel as Inner\nraise Inner('x')")
    assert rules(agent, source) == [(line + 1, "signal-not-allowed")]


def test_names_that_stand_for_one_another_in_a_circle(agent):
    agent.write("lib/signals.py", "from lib.two import Stop, Shared\n")
    agent.write("lib/two.py", "from lib.signals import Stop, Shared\n")
    source, _ = result_hook("raise Stop")
    agent.write("hooks.py", source)
    assert {f["rule"] for f in agent.load().findings} == {"import-error"}
    source = HEAD.replace("from lib.signals import Stop, Shared\n", "") + (
        "class A(B): ...\nclass B(A): ...\n@on_tool_result()\n"
        "async def f(p: ToolResultPayload) -> None: raise A\n"
    )
    agent.write("hooks.py", source)
    assert {f["rule"] for f in agent.load().findings} == {"import-error"}


@pytest.mark.parametrize(
    "statement",
    [
        "return RetryModel('x')",
        "return RetryModel",
        "return R('x')",
        "return hooks.HookRejection('x')",
        "return Mine('x')",
        "return p if p.is_error else RetryModel('x')",
        "return RetryModel('x') or p",
        "error = RetryModel('x'); return error",
    ],
)
@pytest.mark.parametrize("point", ["tool_call", "tool_result"])
def test_a_signal_that_is_returned(agent, statement, point):
    source, line = result_hook(statement)
    source = source.replace("tool_result", point)
    if point == "tool_call":
        source = source.replace("ToolResultPayload", "ToolCallPayload")
    assert rules(agent, source) == [(line, "signal-returned")]


def test_a_signal_that_an_observer_returns(agent):
    source = HEAD + (
        "@on_tool_call()\nasync def f(p: ToolCallPayload) -> None:\n    return RetryModel('x')\n"
    )
    assert rules(agent, source) == [(FIRST + 2, "signal-returned")]


def test_a_signal_that_a_function_gives_back(agent):
    before = "def make():\n    return RetryModel('x')\n"
    hook = "async def f(p: ToolCallPayload) -> ToolCallPayload:"
    raised = HEAD + before + f"@modify_tool_call()\n{hook}\n    raise make()\n"
    assert rules(agent, raised) == []
    for value in ("make()", "await make()"):
        returned = HEAD + before + f"@modify_tool_call()\n{hook}\n    return {value}\n"
        assert rules(agent, returned) == [(FIRST + 1, "signal-returned")]
