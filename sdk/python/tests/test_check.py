"""The check: what it finds, where, and what it lets pass."""

from __future__ import annotations

import pytest

from belay._rules import RULES, finding

HEAD = "from __future__ import annotations\nfrom belay.hooks import *\n"  # a hook begins at 3


def test_a_finding_needs_a_known_rule():
    with pytest.raises(KeyError):
        finding("no-such-rule", "f", 1, "m", "h")
    assert all(rule == rule.lower() and text.endswith(".") for rule, text in RULES.items())


# --- decorators


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("@on_turn_started\nasync def f(p: TurnStartedPayload) -> None: ...", [(3, "bare-decorator")]),
        ("import belay\n@belay.hooks.on_turn_started\nasync def f(p: TurnStartedPayload) -> None: ...",
         [(4, "bare-decorator")]),
        ("from belay import hooks as h\n@h.on_turn_started\nasync def f(p: TurnStartedPayload) -> None: ...",
         [(4, "bare-decorator")]),
        ("from belay.hooks import on_turn_started as start\n@start\n"
         "async def f(p: TurnStartedPayload) -> None: ...", [(4, "bare-decorator")]),
        ("async def f(p: TurnStartedPayload) -> None: ...\non_turn_started(f)", [(4, "bare-decorator")]),
        ("async def f(p: TurnStartedPayload) -> None: ...\non_turn_started()(f)", []),
        ("for d in (on_turn_started,):\n    @d\n    async def f(p: TurnStartedPayload) -> None: ...",
         [(4, "bare-decorator")]),
    ],
)  # fmt: skip
def test_bare_decorators(agent, source, expected):
    assert agent.rules(HEAD + source) == expected


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ("timeout_ms=1", None),
        ("timeout_ms=60_000, final=True", None),
        ("final=False", None),
        ("**{'timeout_ms': 5}", None),
        ("timeout_ms=len('abc')", None),
        ("timeout_ms=0", "timeout-ms"),
        ("timeout_ms=-5", "timeout-ms"),
        ("timeout_ms=True", "timeout-ms"),
        ("timeout_ms=False", "timeout-ms"),
        ("timeout_ms=500.0", "timeout-ms"),
        ("timeout_ms='500'", "timeout-ms"),
        ("timeout_ms=None", "timeout-ms"),
        ("timeout_ms=10**12", "timeout-ms"),
        ("timeout_ms=[5]", "timeout-ms"),
        ("timeout_ms=len('')", "timeout-ms"),
        ("**{'timeout_ms': 0}", "timeout-ms"),
        ("\n  timeout_ms=0,\n", "timeout-ms"),
        ("500", "decorator-argument"),
        ("*[500]", "decorator-argument"),
        ("timeout=5", "decorator-argument"),
        ("**{'timeout': 5}", "decorator-argument"),
        ("final=1", "decorator-argument"),
        ("final=None", "decorator-argument"),
        ("order=1", "decorator-argument"),
    ],
)
def test_decorator_arguments(agent, arguments, rule):
    source = f"@on_turn_started({arguments})\nasync def f(p: TurnStartedPayload) -> None: ...\n"
    found = agent.rules(HEAD + source)
    assert [r for _, r in found] == ([rule] if rule else [])
    # Where importing fails too, the source alone tells what a literal is.
    if rule and not arguments.startswith("*") and "len(" not in arguments and "**" not in arguments:
        again = agent.rules(HEAD + source + "raise ValueError")
        assert [r for _, r in again] == [rule, "import-error"]


def test_a_modify_hook_has_no_final(agent):
    source = "@modify_outgoing_text(final=True)\nasync def f(p: OutgoingTextPayload) -> OutgoingTextPayload: ..."
    assert agent.rules(HEAD + source) == [(3, "decorator-argument")]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from belay.hooks import modify_turn_started\n"
         "@modify_turn_started()\nasync def f(p): ...\n", [1, 2]),
        ("from rasa.mantle.hooks import (\n    RetryModel,\n    on_asr_partial as asr,\n)\n"
         "@asr()\nasync def f(p): ...\n@asr\nasync def g(p): ...\n", [3, 5, 7]),
        ("import belay.hooks as h\n@h.on_turn_begin(timeout_ms=5)\nasync def f(p): ...\n", [2]),
        ("from belay import hooks\nhooks.modify_turn_finished()(print)\n", [2]),
        ("import belay.hooks\ngetattr(belay.hooks, 'on_' + 'nothing')()\n", [2]),
        ("from belay.hooks import on_turn_started\n", []),
        ("class on_asr_partial: ...\n@on_asr_partial\nclass X: ...\n", None),
    ],
)  # fmt: skip
def test_unknown_points(agent, source, expected):
    found = agent.rules(source)
    if expected is None:  # the import-time error of that class is not ours
        assert [rule for _, rule in found] == ["import-error"]
        return
    assert found == [(line, "unknown-point") for line in expected]


def test_an_unknown_point_hides_nothing_else(agent):
    assert agent.rules(
        """\
        from belay.hooks import OutgoingTextPayload, modify_outgoing_text, on_asr_partial
        @on_asr_partial()
        async def f(p): ...
        @modify_outgoing_text()
        def g(p: OutgoingTextPayload) -> OutgoingTextPayload: ...
        import nothing_at_all
        """
    ) == [(1, "unknown-point"), (2, "unknown-point"), (5, "not-async"), (6, "import-error")]


def test_hints_of_unknown_points(agent):
    agent.write("hooks.py", "import belay.hooks as h\nh.modify_turn_started\nh.on_tool_calls\n")
    first, second = agent.load().findings
    assert "use on_turn_started" in first["hint"]
    assert "did you mean on_tool_call" in second["hint"]


# --- one modify hook a point

SIGN = "from belay.hooks import *\n@modify_outgoing_text()\nasync def sign(p: OutgoingTextPayload) -> OutgoingTextPayload: return p\n"
LATER = SIGN.replace("_text", "_message").replace("TextP", "MessageP")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"hooks.py": SIGN}, []),
        ({"hooks.py": SIGN + SIGN}, ["hooks.py:5"]),
        ({"hooks.py": SIGN, "hooks/a.py": SIGN}, ["hooks/a.py:2"]),
        ({"hooks.py": SIGN, "hooks/a.py": LATER}, ["hooks/a.py:2"]),
        ({"hooks/a.py": SIGN, "hooks/b.py": SIGN, "hooks/c.py": SIGN}, ["hooks/b.py:2", "hooks/c.py:2"]),
        ({"hooks.py": "from belay.hooks import *\n@modify_outgoing_message()\n" + SIGN.partition("\n")[2]},
         ["hooks.py:3"]),
        ({"hooks.py": SIGN + "raise ValueError\n", "hooks/a.py": SIGN}, ["hooks/a.py:2", "import-error"]),
        ({"hooks.py": "raise ValueError\n" + SIGN, "hooks/a.py": SIGN}, ["hooks/a.py:2", "import-error"]),
        ({"hooks.py": "import hooks.a\n", "hooks/a.py": SIGN, "hooks/b.py": "import hooks.a\n"}, []),
        ({"lib/packed.py": SIGN, "hooks/a.py": "import lib.packed\n", "hooks/b.py": "import packed\n"}, []),
        ({"lib/packed.py": SIGN, "hooks/a.py": "import lib.packed\n", "hooks/b.py": SIGN}, ["lib/packed.py:2"]),
        ({"hooks.py": "from belay.hooks import *\nfor i in 1, 2:\n    modify_outgoing_text()(None)\n"},
         ["hooks.py:3", "not-async"]),
        # One of two branches runs, so the source alone is no proof.
        ({"hooks.py": "if True:\n  " + SIGN.strip().replace("\n", "\n  ") + "\nelse:\n  "
          + SIGN.strip().replace("\n", "\n  ") + "\n"}, []),
    ],
)  # fmt: skip
def test_double_modify_hooks(agent, files, expected):
    for file, text in files.items():
        agent.write(file, text)
    found = agent.load().findings
    double = [f"{f['file']}:{f['line']}" for f in found if f["rule"] == "double-modify"]
    others = {f["rule"] for f in found} - {"double-modify"}
    assert [*double, *sorted(others)] == expected


def test_a_double_modify_hook_names_both_places(agent):
    agent.write("hooks.py", SIGN)
    agent.write("hooks/a.py", LATER)
    (found,) = agent.load().findings
    assert "modify_outgoing_message at hooks/a.py:2" in found["message"]
    assert "hooks.py:2" in found["message"]


def test_observers_may_be_many(agent):
    look = "@on_turn_started()\nasync def look(p: TurnStartedPayload) -> None: ...\n"
    assert agent.rules(HEAD + look * 5) == []


# --- functions


@pytest.mark.parametrize(
    ("function", "rules"),
    [
        ("async def f(p: ToolCallPayload) -> ToolCallPayload: return p", []),
        ("def f(p: ToolCallPayload) -> ToolCallPayload: return p", ["not-async"]),
        ("async def f(p: ToolCallPayload) -> ToolCallPayload: yield p", ["not-async"]),
        ("async def f(p: ToolCallPayload) -> ToolCallPayload:\n    def g(): yield 1\n    return p", []),
        ("class f: ...", ["not-async", "signature"]),
        ("@staticmethod\nasync def f(p: ToolCallPayload) -> ToolCallPayload: ...", ["not-async"]),
        ("@wrap_well\nasync def f(p: ToolCallPayload) -> ToolCallPayload: ...", []),
        ("@wrap_well\nasync def f(p: ToolCallPayload) -> None: ...", ["return-annotation"]),
        ("@wrap_well\ndef f(p: ToolCallPayload) -> ToolCallPayload: ...", []),
        ("@wrap_badly\nasync def f(p: ToolCallPayload) -> ToolCallPayload: ...", ["not-async"]),
        ("async def f() -> ToolCallPayload: ...", ["signature"]),
        ("async def f(p: ToolCallPayload, q=1) -> ToolCallPayload: ...", ["signature"]),
        ("async def f(p: ToolCallPayload, *, q=1) -> ToolCallPayload: ...", ["signature"]),
        ("async def f(*p: ToolCallPayload) -> ToolCallPayload: ...", ["signature"]),
        ("async def f(**p: ToolCallPayload) -> ToolCallPayload: ...", ["signature"]),
        ("async def f(*, p: ToolCallPayload) -> ToolCallPayload: ...", ["signature"]),
        ("async def f(p: ToolCallPayload, /) -> ToolCallPayload: ...", []),
        ("async def f(p: ToolCallPayload = None) -> ToolCallPayload: ...", []),
        ("async def f(p) -> ToolCallPayload: ...", ["payload-annotation"]),
        ("async def f(p: ToolCallPayload): ...", ["return-annotation"]),
        ("async def f(p): ...", ["payload-annotation", "return-annotation"]),
        ("def f(p, q): ...", ["not-async", "signature", "return-annotation"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("future", [True, False])
def test_signatures(agent, function, rules, future):
    wrappers = (
        "import functools\n"
        "def wrap_well(f):\n"
        "    @functools.wraps(f)\n"
        "    async def g(p): return await f(p)\n"
        "    return g\n"
        "def wrap_badly(f):\n"
        "    @functools.wraps(f)\n"
        "    def g(p): return f(p)\n"
        "    return g\n"
    )
    head = HEAD if future else HEAD.partition("\n")[2]
    found = agent.rules(head + wrappers + "@modify_tool_call()\n" + function)
    assert sorted(rule for _, rule in found) == sorted(rules)


def test_a_method_is_refused(agent):
    source = (
        "class Guard:\n"
        "    @modify_tool_call()\n"
        "    async def f(self, p: ToolCallPayload) -> ToolCallPayload: ...\n"
    )
    assert agent.rules(HEAD + source) == [(5, "signature")]


PRELUDE = """\
import typing
from typing import TYPE_CHECKING, Annotated, Any, Optional, Union
import belay.hooks as h
from belay.hooks import *
from belay.hooks import ToolCallPayload as TCP
from lib.shared import Shared, SharedAlias
if TYPE_CHECKING:
    from belay.hooks import ToolCallPayload as Hidden, ModelRequestPayload as OtherHidden
    from nothing_at_all import Unknown
Alias = ToolCallPayload
class Mine(ToolCallPayload): ...
"""


@pytest.mark.parametrize(
    ("annotation", "right"),
    [
        ("ToolCallPayload", True),
        ("TCP", True),
        ("h.ToolCallPayload", True),
        ("Alias", True),
        ("SharedAlias", True),
        ("'ToolCallPayload'", True),
        ("' h.ToolCallPayload '", True),
        ("Annotated[ToolCallPayload, 'x']", True),
        ("typing.Annotated['TCP', 1]", True),
        ("Hidden", True),
        ("'Hidden'", True),
        ("OtherHidden", False),
        ("Unknown", False),
        ("ToolResultPayload", False),
        ("'ToolResultPayload'", False),
        ("Payload", False),
        ("Mine", False),
        ("Shared", False),
        ("dict", False),
        ("Any", False),
        ("typing.Any", False),
        ("object", False),
        ("Optional[ToolCallPayload]", False),
        ("ToolCallPayload | None", False),
        ("'ToolCallPayload | None'", False),
        ("Union[ToolCallPayload, None]", False),
        ("list[ToolCallPayload]", False),
        ("type[ToolCallPayload]", False),
        ("None", False),
        ("'not a type'", False),
        ("5", False),
        ("Nowhere", False),
    ],
)
@pytest.mark.parametrize("place", ["payload", "return"])
@pytest.mark.parametrize("broken", [False, True])
def test_annotations(agent, annotation, right, place, broken):
    agent.write(
        "lib/shared.py",
        "from belay.hooks import ToolCallPayload\n"
        "class Shared: ...\n"
        "SharedAlias = ToolCallPayload\n",
    )
    given = annotation if place == "payload" else "ToolCallPayload"
    returned = annotation if place == "return" else "ToolCallPayload"
    agent.write(
        "hooks.py",
        f"from __future__ import annotations\n{PRELUDE}"
        f"@modify_tool_call()\nasync def f(p: {given}) -> {returned}: ...\n"
        + ("raise ValueError\n" if broken else ""),
    )
    rules = [f["rule"] for f in agent.load().findings if f["rule"] != "import-error"]
    assert rules == ([] if right else [f"{place}-annotation"])


@pytest.mark.parametrize(
    ("annotation", "right"),
    [("None", True), ("'None'", True), ("type(None)", False), ("NoneType", True), ("bool", False),
     ("ToolCallPayload", False), ("NoReturn", False)],
)  # fmt: skip
def test_what_an_observer_returns(agent, annotation, right):
    source = (
        "from types import NoneType\nfrom typing import NoReturn\n@on_tool_call()\n"
        f"async def f(p: ToolCallPayload) -> {annotation}: ...\n"
    )
    assert agent.rules(HEAD + source) == ([] if right else [(6, "return-annotation")])


def test_annotations_without_the_future_import(agent):
    source = (
        "from belay.hooks import *\n@modify_tool_call()\n"
        "async def f(p: ToolCallPayload) -> 'ToolCallPayload': ...\n"
        "@on_tool_call()\nasync def g(p: ToolResultPayload) -> None: ...\n"
    )
    assert agent.rules(source) == [(5, "payload-annotation")]


def test_a_hook_through_a_variable_is_checked_when_it_is_registered(agent):
    source = (
        "observe = on_tool_call(timeout_ms=5)\n"
        "@observe\n"
        "async def f(p: ToolResultPayload):\n"
        "    raise RetryModel('x')\n"
    )
    assert agent.rules(HEAD + source) == [
        (4, "payload-annotation"),
        (4, "return-annotation"),
        (6, "signal-not-allowed"),
    ]


def test_the_later_names_of_outgoing_text(agent):
    source = (
        "@on_outgoing_message()\nasync def f(p: OutgoingTextPayload) -> None: ...\n"
        "@on_outgoing_text()\nasync def g(p: OutgoingMessagePayload) -> None: ...\n"
    )
    assert agent.rules(HEAD + source) == []


HOSTILE = """
import functools
class Hostile:
    def __getattr__(self, name): raise SystemExit
    __call__ = __signature__ = __wrapped__ = __code__ = property(lambda self: exit())
async def ring(p: ToolCallPayload) -> None: ...
ring.__wrapped__ = ring
async def evil(p: "exit()") -> "exit()": ...
async def signed(p: ToolCallPayload) -> None: ...
signed.__signature__ = 5
"""


@pytest.mark.parametrize(
    "value",
    ["5", "None", "Hostile()", "Hostile", "ring", "evil", "signed", "print", "'text'",
     "functools.partial(evil)", "functools.partial(print, 1)", "lambda p: p", "type('X', (), {})()"],
)  # fmt: skip
def test_whatever_is_decorated_is_reported(agent, value):
    source = (
        f"on_tool_call()({value})\nmodify_tool_call()({value})\n"
        f"from belay.tools import tool\ntool(description='x')({value})\n"
    )
    assert agent.rules(HEAD + HOSTILE + source)


@pytest.mark.parametrize("deep", [300, 900, 5000])
def test_what_is_nested_deeply(agent, deep):
    chain = "if x == 0: pass\n" + "".join(f"elif x == {i}: pass\n" for i in range(deep))
    attributes = "x" + ".real" * deep + "\n"
    sums = "x = 0" + " + 1" * deep + "\n"
    for file, text in {"a": chain, "b": attributes, "c": sums}.items():
        agent.write(f"hooks/{file}.py", "x = 5\n" + text)
        agent.write(f"hooks/{file}/__init__.py", "x = 5\n" + text)
    assert {rule for _, _, rule in agent.findings()} <= {"syntax-error"}


def test_a_wrapped_function_that_a_call_registers(agent):
    source = (
        "def wrap(f):\n    async def g(p: ToolCallPayload) -> None: ...\n    return g\n"
        "@wrap\ndef f(): ...\n"
        "on_tool_call()(f)\n"
    )
    assert agent.rules(HEAD + source) == []


# --- findings


def test_a_finding_has_all_that_a_reader_needs(agent):
    agent.write(
        "hooks/a.py", "import belay.hooks as h\n\n@h.on_turn_started\nasync def f(p): ...\n"
    )
    for found in agent.load().findings:
        assert (found["file"], found["severity"]) == ("hooks/a.py", "error")
        assert found["line"] >= 3 and found["column"] >= 1
        assert found["rule"] in RULES
        assert found["message"] and found["hint"]
        assert not found["message"].endswith(".")


def test_all_findings_come_in_one_run_and_in_order(agent):
    agent.write("hooks/a.py", "x = (")
    agent.write("hooks/b.py", "import nothing_at_all\n")
    agent.write("hooks/c.py", HEAD + "@on_tool_call\ndef f(p): ...\n")
    agent.write("hooks/d.py", SIGN + SIGN)
    agent.write("tools/e.py", "from belay.tools import tool\n@tool\ndef f(): ...\n")
    assert agent.findings() == [
        ("hooks/a.py", 1, "syntax-error"),
        ("hooks/b.py", 1, "import-error"),
        ("hooks/c.py", 3, "bare-decorator"),
        ("hooks/c.py", 4, "not-async"),
        ("hooks/c.py", 4, "return-annotation"),
        ("hooks/c.py", 4, "payload-annotation"),
        ("hooks/d.py", 5, "double-modify"),
        ("tools/e.py", 2, "bare-decorator"),
        ("tools/e.py", 3, "not-async"),
    ]


@pytest.mark.parametrize(
    ("update", "rules"),
    [
        ("{'arguments': {}}", []),
        ("{'argumnets': {}}", ["unknown-field"]),
        ("{**extra, 'arguments': {}}", []),
        ("changes", []),
    ],
)
def test_a_copy_with_an_unknown_field_is_warned_of(agent, update, rules):
    source = (
        "@modify_tool_call()\nasync def f(p: ToolCallPayload) -> ToolCallPayload:\n"
        f"    return p.model_copy(update={update})\n"
    )
    agent.write("hooks.py", HEAD + source)
    found = agent.load().findings
    assert [f["rule"] for f in found] == rules
    assert {f["severity"] for f in found} <= {"warning"}
