"""The conversation's memory: names, what may be written, and the check of the sources."""

from __future__ import annotations

import pytest

from belay._memory_uses import Declared
from belay.memory import Memory, MemoryAlreadySet, UndeclaredMemory


def running(values, **more) -> Memory:
    """A memory as a running agent has it: only what is declared is there."""
    return Memory(values, declared=values.keys(), **more)


BOOKING = {"project.customer": "c1", "project.day": None, "booking.day": "Monday", "visit.day": 1}


def test_in_a_unit_test_every_name_may_be_used():
    memory = Memory({"day": "Monday", "gone": None})
    assert (memory.get("day"), memory.get("gone", "x"), memory.get("none")) == (
        "Monday",
        "x",
        None,
    )
    memory.set("day", {"n": [1]})
    assert memory.get("day") == {"n": [1]}
    assert memory.writes == {"day": {"n": [1]}}
    assert memory.get("session.day") == {"n": [1]}
    assert Memory({"project.day": 5}).get("day") == 5
    for value in (object(), float("nan"), {1, 2}):
        with pytest.raises(TypeError, match="JSON"):
            memory.set("day", value)
    for use in (memory.get, memory.clear, lambda name: memory.set(name, "x")):
        with pytest.raises(TypeError):
            use(5)


@pytest.mark.parametrize(
    ("skill", "name", "full"),
    [
        ("booking", "day", "booking.day"),
        ("visit", "day", "visit.day"),
        ("", "day", "project.day"),
        ("greet", "day", "project.day"),
        ("booking", "customer", "project.customer"),
        ("booking", "project.day", "project.day"),
        ("booking", "visit.day", "visit.day"),
        ("booking", "session.day", "booking.day"),
        ("booking", "session.visit.day", "visit.day"),
        ("", "session.project.customer", "project.customer"),
    ],
)
def test_names(skill, name, full):
    memory = running(BOOKING, skill=skill)
    assert memory.get(name) == BOOKING[full]
    memory.set(name, "new")
    assert memory.get(full) == "new"
    assert memory.writes == {full: "new"}
    assert memory.reads == [full]
    assert name in memory
    memory.clear(name)
    assert name not in memory
    assert memory.writes == {full: None}


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("customr", "no memory.yml declares 'customr'; did you mean customer?"),
        ("project.custoner", "did you mean project.customer?"),
        ("bookin.day", "did you mean booking.day"),
        ("session.custmer", "did you mean customer?"),
        ("other", "no memory.yml declares 'other'$"),
    ],
)
def test_a_name_that_nothing_declares(name, says):
    memory = running(BOOKING | {"visit.day": "secret"}, skill="booking")
    assert name not in memory
    for use in (memory.get, memory.clear, lambda name: memory.set(name, "secret")):
        with pytest.raises(UndeclaredMemory, match=says) as raised:
            use(name)
        assert isinstance(raised.value, LookupError)
        assert "secret" not in str(raised.value)
    assert (memory.writes, memory.reads) == ({}, [])


def test_what_only_another_skill_declares_is_not_set_and_cannot_be():
    memory = running({"booking.day": "Monday"}, skill="visit")
    assert memory.get("day", "none") == "none"
    with pytest.raises(UndeclaredMemory, match=r"neither .* declares 'day'; did you mean booking"):
        memory.set("day", "Tuesday")


def test_what_is_written_once_stays():
    memory = running({"project.a": "x", "project.b": True}, closed=["project.a", "project.b"])
    memory.set("a", "x")
    assert memory.writes == {}
    for name, value in (("a", "y"), ("project.a", None), ("b", 1)):
        with pytest.raises(
            MemoryAlreadySet, match=r"^Project memory field '[ab]' is already set"
        ) as raised:
            memory.set(name, value)
        assert "'y'" not in str(raised.value)
    with pytest.raises(MemoryAlreadySet):
        memory.clear("a")
    assert memory.get("a") == "x"


def test_writes_stand_in_the_order_of_first_setting():
    memory = running({"project.a": None, "project.b": None})
    for name in ("b", "a", "b"):
        memory.set(name, name * 2)
    assert list(memory.writes.items()) == [("project.b", "bb"), ("project.a", "aa")]


# --- the check


def undeclared(agent) -> list[tuple[str, int, str]]:
    found = [f for f in agent.load().findings if f["rule"] == "undeclared-memory"]
    return [(f["file"], f["line"], f["severity"]) for f in found]


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ("context: ToolContext):\n    context.memory.set('day', 1)", [4]),
        ("context):\n    context.memory.set('day', 1)", [4]),
        ("context: 'ToolContext'):\n    context.memory.set(name='day', value=1)", [4]),
        ("context: ToolContext | None = None):\n    context.memory.set('day', 1)", [4]),
        ("a: int, context: t.ToolContext):\n    if a:\n        context.memory.set(\n            'd', 1)", [5]),
        ("context: ToolContext):\n    def inner():\n        context.memory.clear('day')", [5]),
        ("context: ToolContext):\n    def inner(context):\n        context.memory.set('day', 1)", []),
        ("context: ToolContext):\n    context.memory.set(DAY, 1)", []),
        ("a: int):\n    context.memory.set('day', 1)", []),
        ("context):\n    context.memory.set('known', 1); context.memory.get('project.known')", []),
    ],
)  # fmt: skip
def test_memory_that_a_tool_sets_must_be_declared(agent, body, lines):
    head = (
        "import belay.tools as t; from belay.tools import *\n@tool(description='x')\nasync def f("
    )
    agent.declared = Declared(["known"])
    agent.write("tools/a.py", head + body + "\ncontext = DAY = ''\n")
    assert undeclared(agent) == [("tools/a.py", line, "error") for line in lines]


def test_memory_is_found_in_what_tools_call(agent):
    agent.write(
        "lib/keep.py",
        "from typing import Optional\nfrom belay.tools import ToolContext as C\n"
        "def keep(c: C, d: Optional[C]):\n    c.memory.set('d', 1)\n    d.memory.set('e', 1)\n",
    )
    agent.write("tools/a.py", "from lib.keep import keep\n")
    assert undeclared(agent) == [("lib/keep.py", 4, "error"), ("lib/keep.py", 5, "error")]


USES = """\
from belay.tools import tool
@tool(description="x")
async def f(context):
    context.memory.{use}
"""


@pytest.mark.parametrize(
    ("file", "use", "says", "hint"),
    [
        ("tools/a.py", "set('day', 1)", None, None),
        ("tools/a.py", "set('reason', 1)", None, None),
        ("tools/a.py", "set('session.project.customer', 1)", None, None),
        ("tools/a.py", "get('visit.reason')", None, None),
        ("tools/a.py", "set('raeson', 1)", "sets the memory 'raeson'", "declare it in memory.yml; did you mean visit.reason?"),
        ("tools/a.py", "set('visit.day', 1)", "the agent does not declare: it would raise", "did you mean booking.day"),
        ("tools/a.py", "get('custumer')", "asks for the memory 'custumer'", "did you mean customer?"),
        ("skills/booking/tools.py", "set('day', 1)", None, None),
        ("skills/booking/tools.py", "set('customer', 1)", None, None),
        ("skills/booking/tools/a.py", "set('session.day', 1)", None, None),
        ("skills/booking/tools.py", "set('dya', 1)", "does not declare", "skills/booking/memory.yml or memory.yml; did you mean day?"),
        ("skills/booking/tools.py", "set('reason', 1)", "only the skill visit declares: it would raise", "write visit.reason, or declare it in skills/booking/memory.yml"),
        ("skills/booking/tools.py", "get('reason')", "only the skill visit declares", "write visit.reason"),
    ],
)  # fmt: skip
def test_names_are_looked_up_as_they_will_be(agent, file, use, says, hint):
    agent.declared = Declared(["customer"], {"booking": ["day"], "visit": ["reason"]})
    agent.write(file, USES.format(use=use))
    found = agent.load().findings
    if says is None:
        assert found == []
        return
    (finding,) = found
    assert (finding["rule"], finding["file"], finding["line"]) == ("undeclared-memory", file, 4)
    assert finding["severity"] == ("warning" if use.startswith("get") else "error")
    assert says in finding["message"]
    assert hint in finding["hint"]
