"""Where files are found, how they are imported, and that nothing is lost on the way."""

from __future__ import annotations

import asyncio
import os
import sys
import warnings

import pytest

from belay._load import load_agent
from belay.hooks import OutgoingTextPayload

OBSERVER = """
from belay.hooks import TurnStartedPayload, on_turn_started
@on_turn_started()
async def look(payload: TurnStartedPayload) -> None: ...
"""
TOOL = """
from belay.tools import tool
@tool(description="x")
async def {name}(): ...
"""


def names(loaded):
    assert loaded.findings == []
    return [hook.name for hook in loaded.hooks]


# --- finding files


def test_both_layouts_and_nested_folders(agent):
    for file in ("hooks.py", "hooks/b.py", "hooks/a.py", "hooks/deep/er/c.py"):
        agent.write(file, OBSERVER)
    assert names(agent.load()) == [
        "hooks.py:look",
        "hooks/a.py:look",
        "hooks/b.py:look",
        "hooks/deep/er/c.py:look",
    ]
    assert agent.imported == ["hooks.py", "hooks/a.py", "hooks/b.py", "hooks/deep/er/c.py"]


def test_what_is_passed_over(agent):
    agent.write("hooks/__init__.py", "this is no Python, and nobody reads it")
    for file in ("hooks/__pycache__/a.py", "hooks/.hidden/a.py", "hooks/.a.py", "other/hooks.py"):
        agent.write(file, OBSERVER)
    agent.write("hooks/a.pyc", b"\0")
    agent.write("hooks/a.txt", "nothing")
    assert names(agent.load()) == []


def test_an_agent_without_python_files(agent):
    loaded = agent.load()
    assert (loaded.hooks, loaded.tools, loaded.findings) == ([], [], [])


def test_a_folder_that_is_not_there(tmp_path):
    assert load_agent(tmp_path / "none").findings == []


def test_tools_stand_at_the_top_of_their_folder(agent):
    agent.write("tools.py", TOOL.format(name="a"))
    agent.write("tools/b.py", TOOL.format(name="b"))
    agent.write("tools/more/c.py", TOOL.format(name="c"))
    assert [tool.name for tool in agent.load().tools] == ["a", "b"]


def test_file_names_that_are_no_identifiers(agent):
    for file in ("hooks/my-hook.py", "hooks/v1.2/x y.py", "hooks/v1_2/x.y.py", "hooks/json.py"):
        agent.write(file, OBSERVER)
    assert len(names(agent.load())) == 4


def test_a_file_under_two_names_is_taken_once(agent):
    agent.write("hooks/a.py", OBSERVER)
    (agent.root / "hooks/b.py").symlink_to("a.py")
    (agent.root / "lib").mkdir()
    (agent.root / "lib/again.py").symlink_to("../hooks/a.py")
    agent.write(
        "hooks/c.py",
        "import hooks.a, hooks.b, lib.again\nassert hooks.a is hooks.b is lib.again\n",
    )
    assert names(agent.load()) == ["hooks/a.py:look"]


def test_links_to_folders_are_followed(agent, tmp_path):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared/a.py").write_text(OBSERVER)
    (agent.root / "hooks").mkdir()
    (agent.root / "hooks/shared").symlink_to(tmp_path / "shared")
    assert names(agent.load()) == ["hooks/shared/a.py:look"]


def test_links_that_lead_nowhere_or_back(agent):
    agent.write("hooks/a.py", OBSERVER)
    (agent.root / "hooks/loop").symlink_to("../hooks")
    (agent.root / "hooks/self.py").symlink_to("self.py")
    (agent.root / "hooks/gone.py").symlink_to("nowhere.py")
    os.mkfifo(agent.root / "hooks/pipe.py")
    assert agent.findings() == [
        ("hooks/gone.py", 0, "unreadable-file"),
        ("hooks/loop", 0, "symlink-loop"),
        ("hooks/pipe.py", 0, "unreadable-file"),
        ("hooks/self.py", 0, "unreadable-file"),
    ]


@pytest.mark.parametrize(
    ("source", "line"),
    [
        (b"x = (", 1),
        (b"\n\nif:\n", 3),
        (b"return 1", 1),
        (b"async def f(): ...\nawait f()", 2),
        (b"x = '\xff'", 1),
        (b"x = 1\0", 1),
        (b"# coding: nonsense\n", 1),
        ("x = 'é'".encode("utf-16"), 1),
        (b"(" * 5000, 1),
        (b"-" * 50_000 + b"1", 1),
        (b"x" + b".a" * 20_000, 1),
    ],
)
def test_what_does_not_compile(agent, source, line):
    agent.write("hooks/a.py", source)
    agent.write("hooks/b.py", OBSERVER)
    loaded = agent.load()
    (finding,) = loaded.findings
    assert (finding["file"], finding["rule"]) == ("hooks/a.py", "syntax-error")
    assert finding["line"] in (line, 1)
    assert len(loaded.hooks) == 1
    assert agent.imported == ["hooks/b.py"]


def test_other_encodings_are_read(agent):
    agent.write(
        "hooks.py", "# coding: latin-1\nname = 'é'\nassert len(name) == 1".encode("latin-1")
    )
    agent.write("hooks/bom.py", b"\xef\xbb\xbf" + OBSERVER.encode())
    assert names(agent.load()) == ["hooks/bom.py:look"]


# --- importing


def test_lib_is_one_module_under_both_names(agent):
    agent.write(
        "lib/state.py",
        "seen = []\nfrom . import other\nimport other as short\nassert other is short\n",
    )
    agent.write("lib/other.py", "import sys, state\nassert state is sys.modules['lib.state']\n")
    agent.write("lib/pack/__init__.py", "from .sub import VALUE\n")
    agent.write("lib/pack/sub.py", "VALUE = object()\n")
    agent.write(
        "hooks.py",
        """
        import state
        from lib import state as long
        from lib.pack import VALUE
        from pack.sub import VALUE as again
        import pack, pack.sub, lib.pack.sub
        assert state is long and VALUE is again
        assert pack.sub is lib.pack.sub
        assert state.__name__ == "lib.state" and state.__spec__.name == "lib.state"
        state.seen.append("hooks")
        """,
    )
    agent.write("tools/t.py", "from lib.state import seen\nassert seen == ['hooks']\n")
    assert names(agent.load()) == []


def test_lib_hides_nothing_of_the_standard_library(agent):
    agent.write("lib/json.py", "mine = True\n")
    agent.write("hooks.py", "import json, lib.json\nassert json.dumps and lib.json.mine\n")
    assert names(agent.load()) == []


def test_the_short_name_hides_nothing_that_is_installed(agent, package):
    package("redis.py", "where = 'installed'")
    agent.write("lib/redis.py", "import redis\nwhere = 'lib, over ' + redis.where\n")
    agent.write(
        "hooks.py",
        """
        import redis, lib.redis
        assert redis.where == "installed"
        assert lib.redis.where == "lib, over installed"
        """,
    )
    assert names(agent.load()) == []


def test_a_mere_folder_does_not_hide_the_short_name(agent):
    agent.write("data/readme.txt", "")
    agent.write("lib/data.py", "where = 'lib'")
    agent.write("hooks.py", "import data\nassert data.where == 'lib'\n")
    assert names(agent.load()) == []


def test_the_agents_packages_go_before_installed_ones(agent, package):
    for name in ("hooks", "tools", "lib"):
        package(f"{name}/__init__.py", "raise AssertionError('the installed one')")
    agent.write("lib/a.py", "")
    agent.write("tools/a.py", "")
    agent.write("hooks/a.py", "import lib.a, tools.a")
    assert names(agent.load()) == []


def test_hook_modules_import_one_another(agent):
    agent.write("hooks.py", "TOP = 1\n")
    agent.write("hooks/z.py", "from hooks import TOP\nfrom . import deep\nVALUE = [TOP]\n")
    agent.write(
        "hooks/deep/a.py",
        "from ..z import VALUE\nfrom hooks.z import VALUE as again\n"
        "from .b import OTHER\nassert VALUE is again\n",
    )
    agent.write("hooks/deep/b.py", "OTHER = 1\n")
    assert names(agent.load()) == []
    assert sorted(set(agent.imported)) == [
        "hooks.py", "hooks/deep/a.py", "hooks/deep/b.py", "hooks/z.py",
    ]  # fmt: skip


def test_an_init_is_run_only_when_a_name_of_it_is_wanted(agent):
    agent.write("hooks/__init__.py", OBSERVER + "LIMIT = 5\n")
    agent.write("hooks/a.py", "from . import b\n")
    agent.write("hooks/b.py", "")
    loaded = agent.load()
    assert "hooks/__init__.py" not in agent.imported
    assert [(f["rule"], f["severity"]) for f in loaded.findings] == [("hook-in-init", "warning")]
    agent.write("hooks/b.py", "from hooks import LIMIT\nassert LIMIT == 5\n")
    loaded = agent.load()
    assert "hooks/__init__.py" in agent.imported
    assert loaded.hooks == []
    assert [f["rule"] for f in loaded.findings] == ["hook-in-init"]


def test_other_files_at_the_root_can_be_imported(agent):
    agent.write("my_settings.py", "LIMIT = 5\n")
    agent.write("hooks.py", "import my_settings\n")
    assert names(agent.load()) == []


def test_an_edit_within_the_same_second_counts(agent):
    path = agent.write("lib/a.py", "VALUE = 1\n")
    agent.write("hooks.py", "import a\nassert a.VALUE == 1\n")
    assert names(agent.load()) == []
    time = path.stat().st_mtime_ns
    path.write_text("VALUE = 2\n")
    os.utime(path, ns=(time, time))
    agent.write("hooks.py", "import a\nassert a.VALUE == 2\n")
    assert names(agent.load()) == []
    assert not list(agent.root.rglob("__pycache__"))


def test_an_import_inside_a_hook_at_run_time(agent):
    agent.write("lib/late.py", "VALUE = 'late'\n")
    agent.write(
        "hooks.py",
        """
        from belay.hooks import OutgoingTextPayload, modify_outgoing_text
        @modify_outgoing_text()
        async def late(p: OutgoingTextPayload) -> OutgoingTextPayload:
            from lib.late import VALUE
            return p.model_copy(update={"text": VALUE})
        """,
    )
    (hook,) = agent.load().hooks
    before = list(agent.imported)
    assert asyncio.run(hook.fn(OutgoingTextPayload())).text == "late"
    assert agent.imported == before


def test_what_registers_after_loading_is_warned_of(agent):
    agent.load()
    from belay import hooks

    with pytest.warns(RuntimeWarning, match="after the agent had been loaded"):
        hooks.on_turn_started()(lambda p: None)


def test_the_importing_file_is_named_again_when_it_goes_on(agent):
    agent.write("lib/a.py", "")
    agent.write("hooks.py", "import lib.a\nx = 1\n")
    agent.write("hooks/b.py", "import lib.a, hooks.c\n")
    agent.write("hooks/c.py", "")
    agent.load()
    assert agent.imported == [
        "hooks.py", "lib/a.py", "hooks.py", "hooks/b.py", "hooks/c.py", "hooks/b.py",
    ]  # fmt: skip


def test_skipped_files_are_not_run_and_those_that_need_them_are_not_blamed(agent):
    agent.write("lib/hangs.py", "raise AssertionError")
    agent.write("hooks/a.py", "import lib.hangs")
    agent.write("hooks/b.py", OBSERVER)
    agent.write("hooks/c.py", "raise AssertionError")
    loaded = agent.load(skip=("lib/hangs.py", "hooks/c.py"))
    assert names(loaded) == ["hooks/b.py:look"]
    assert "lib/hangs.py" not in agent.imported


def test_a_skipped_hooks_py_does_not_keep_the_folder_from_loading(agent):
    agent.write("hooks.py", "raise AssertionError")
    agent.write("hooks/a.py", OBSERVER)
    assert names(agent.load(skip=("hooks.py",))) == ["hooks/a.py:look"]


@pytest.mark.parametrize("source", ["raise ValueError('x')", "x = (", "import nothing_at_all"])
def test_a_broken_hooks_py_does_not_keep_the_folder_from_loading(agent, source):
    agent.write("hooks.py", source)
    agent.write("hooks/a.py", OBSERVER)
    agent.write("hooks/deep/b.py", OBSERVER)
    loaded = agent.load()
    assert [hook.name for hook in loaded.hooks] == ["hooks/a.py:look", "hooks/deep/b.py:look"]
    assert [f["file"] for f in loaded.findings] == ["hooks.py"]


# --- import errors


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("\nimport nothing_at_all\n", "No module named 'nothing_at_all'"),
        ("\nfrom json import nothing\n", "cannot import name 'nothing'"),
        ("\nundefined\n", "NameError: name 'undefined'"),
        ("\nraise ValueError('a secret')\n", "ValueError"),
        ("\nraise SystemExit(3)\n", "SystemExit"),
        ("\nraise KeyboardInterrupt\n", "KeyboardInterrupt"),
        ("\nraise BaseException\n", "BaseException"),
        ("\n(lambda f: f(f))(lambda f: f(f))\n", "RecursionError"),
        ("\nfrom rasa.mantle.nothing import x\n", "No module named 'rasa.mantle.nothing'"),
        ("\nfrom belay.hooks import Nothing\n", "cannot import name 'Nothing'"),
        ("\nimport belay.hooks as h; h.before_tool()\n", "no attribute 'before_tool'"),
    ],
)
def test_an_import_error_names_the_line(agent, source, says):
    agent.write("hooks/a.py", source)
    agent.write("hooks/b.py", OBSERVER)
    loaded = agent.load()
    (finding,) = loaded.findings
    assert (finding["file"], finding["line"], finding["rule"]) == (
        "hooks/a.py", 2, "import-error",
    )  # fmt: skip
    assert says in finding["message"]
    assert "secret" not in finding["message"]
    assert finding["hint"]
    assert len(loaded.hooks) == 1


def test_an_import_error_in_lib_is_told_once_at_its_own_place(agent):
    agent.write("lib/a.py", "\n\nraise ValueError\n")
    agent.write("hooks/a.py", "import lib.a")
    agent.write("hooks/b.py", "from a import x")
    agent.write("tools/c.py", "import lib.a")
    assert agent.findings() == [("lib/a.py", 3, "import-error")]
    assert agent.imported.count("lib/a.py") == 1


def test_a_failing_file_is_run_once(agent):
    agent.write("lib/count.py", "runs = []\n")
    agent.write("hooks/a.py", "import hooks.b\n")
    agent.write("hooks/b.py", OBSERVER + "import count\ncount.runs.append(1)\nraise ValueError\n")
    agent.write("hooks/c.py", "import count\nassert count.runs == [1], count.runs\n")
    loaded = agent.load()
    assert [(f["file"], f["rule"]) for f in loaded.findings] == [("hooks/b.py", "import-error")]
    assert len(loaded.hooks) == 1


def test_a_syntax_error_in_lib(agent):
    agent.write("lib/a.py", "x = (")
    agent.write("hooks.py", "import lib.a")
    agent.write("lib/unused.py", "x = (")
    loaded = agent.load()
    assert [(f["file"], f["rule"], f["severity"]) for f in loaded.findings] == [
        ("lib/a.py", "syntax-error", "error"),
        ("lib/unused.py", "syntax-error", "warning"),
    ]


def test_an_error_in_an_environment_inside_the_agent_is_told_at_the_import(agent, monkeypatch):
    agent.write(".venv/lib/python3/site-packages/broken.py", "raise ValueError")
    monkeypatch.syspath_prepend(str(agent.root / ".venv/lib/python3/site-packages"))
    agent.write("hooks.py", "\nimport broken\n")
    assert agent.findings() == [("hooks.py", 2, "import-error")]


# --- names and shims


def test_names_of_hooks_are_unique(agent):
    agent.write("hooks.py", OBSERVER + OBSERVER + OBSERVER.replace("look", "other"))
    assert names(agent.load()) == ["hooks.py:look", "hooks.py:look#2", "hooks.py:other"]


def test_an_entry_has_what_the_engine_needs(agent):
    agent.write(
        "hooks.py",
        """
        from belay.hooks import *
        @modify_outgoing_message(timeout_ms=2000)
        async def sign(p: OutgoingMessagePayload) -> OutgoingMessagePayload: return p
        @on_outgoing_text(final=True)
        async def look(p: OutgoingTextPayload) -> None: ...
        """,
    )
    sign, look = agent.load().hooks
    assert (sign.point, sign.lane, sign.final, sign.timeout_ms, sign.line) == (
        "outgoing_text", "modify", False, 2000, 3,
    )  # fmt: skip
    assert (look.lane, look.final, look.timeout_ms, look.line) == ("observe", True, 100, 5)
    assert sign.payload_type is OutgoingTextPayload


OLDER = """
from __future__ import annotations
from rasa.mantle.hooks import RetryModel, ToolCallPayload, modify_tool_call
import rasa.mantle.hooks as hooks
import belay.hooks
assert hooks is belay.hooks
@modify_tool_call()
async def steer(call: ToolCallPayload) -> ToolCallPayload:
    raise RetryModel(feedback="x")
"""


def test_the_older_names(agent):
    agent.write("hooks.py", OLDER)
    for number, package in enumerate(("rasa.mantle", "rasa.calm_v2")):
        agent.write(
            f"tools/t{number}.py",
            f"""
            from {package}.tools.decorator import ToolContext, tool
            from {package}.tools.result import ToolResult
            from {package}.tools import tool as again
            from {package} import tools
            import belay.tools
            assert tool is again is tools.tool is belay.tools.tool
            @tool(description="x")
            async def t{number}(name: str, context: ToolContext) -> ToolResult:
                return ToolResult(llm_response={{}})
            """,
        )
    loaded = agent.load()
    assert names(loaded) == ["hooks.py:steer"]
    assert [tool.wants_context for tool in loaded.tools] == [True, True]


@pytest.mark.parametrize("package", ["rasa.mantle", "rasa.calm_v2"])
def test_the_older_names_of_what_tools_use(agent, package):
    agent.write(
        "skills/s/tools.py",
        f"""
        from {package}.tools.decorator import ToolContext, tool
        from {package}.tools.result import ToolResult
        from {package}.tools import InvalidMemoryValue
        from {package}.memory.manager import ProjectMemoryAlreadySetError
        from {package}.memory import MemoryAlreadySet
        from {package}.orchestration.turn_context import current_turn_context
        from {package}.orchestration import turn_context
        from rasa.shared.core.events import BotUttered, UserUttered
        import belay.tools as ours

        @tool(description="x")
        async def act(context: ToolContext = None) -> ToolResult:
            return ToolResult(llm_response={{}}, next=[])

        assert turn_context.UTTER_ACTION_METADATA_KEY == "utter_action"
        assert ProjectMemoryAlreadySetError is MemoryAlreadySet is ours.MemoryAlreadySet
        assert InvalidMemoryValue is ours.InvalidMemoryValue
        assert current_turn_context is ours.current_turn_context
        assert isinstance(UserUttered("hi"), UserUttered) and BotUttered("hi").metadata == {{}}
        try:
            current_turn_context()
        except LookupError:
            pass
        else:
            raise AssertionError
        """,
    )
    loaded = agent.load()
    assert loaded.findings == []
    assert [tool.name for tool in loaded.tools] == ["act"]


def test_an_installed_package_that_gives_no_decorators_is_no_finding(agent, package):
    package("rasa/__init__.py", "")
    package("rasa/shared/__init__.py", "")
    package("rasa/shared/core/__init__.py", "")
    package("rasa/shared/core/events.py", "class UserUttered: own = True")
    agent.write(
        "tools/t.py", "from rasa.shared.core.events import UserUttered\nassert UserUttered.own\n"
    )
    assert agent.load().findings == []


def test_an_installed_package_wins_and_is_reported(agent, package):
    package("rasa/__init__.py", "")
    package("rasa/mantle/__init__.py", "")
    package(
        "rasa/mantle/hooks.py",
        """
        from belay.hooks import RetryModel, ToolCallPayload
        def modify_tool_call(**_): return lambda fn: fn
        """,
    )
    package("rasa/mantle/tools/__init__.py", "")
    package("rasa/mantle/tools/decorator.py", "def tool(**_): return lambda fn: fn")
    agent.write("hooks.py", OLDER.replace("assert hooks is belay.hooks", ""))
    agent.write("tools/t.py", "from rasa.mantle.tools.decorator import tool\n")
    loaded = agent.load()
    assert (loaded.hooks, loaded.tools) == ([], [])
    assert [(f["file"], f["line"], f["rule"]) for f in loaded.findings] == [
        ("hooks.py", 3, "foreign-hooks"),
        ("hooks.py", 4, "foreign-hooks"),
        ("tools/t.py", 1, "foreign-tools"),
    ]
    assert "belay.hooks" in loaded.findings[0]["hint"]


def test_an_installed_package_without_the_modules_is_filled_in(agent, package):
    package("rasa/__init__.py", "version = 3")
    agent.write("hooks.py", OLDER + "import rasa\nassert rasa.version == 3\n")
    assert names(agent.load()) == ["hooks.py:steer"]


def test_shims_for_unit_tests():
    import belay

    belay.install_shims()
    belay.install_shims()
    from rasa.mantle.hooks import HookRejection

    from belay.hooks import HookRejection as ours

    assert HookRejection is ours
    assert [type(f).__name__ for f in sys.meta_path].count("ShimFinder") == 1


def test_one_agent_after_another(agent, tmp_path):
    agent.write("lib/state.py", "VALUE = 'first'\n")
    agent.write("hooks.py", "from lib.state import VALUE\nassert VALUE == 'first'\n")
    names(agent.load())
    other = tmp_path / "other"
    (other / "lib").mkdir(parents=True)
    (other / "lib/state.py").write_text("VALUE = 'second'\n")
    (other / "hooks.py").write_text("from state import VALUE\nassert VALUE == 'second'\n")
    assert load_agent(other).findings == []


def test_loading_warns_of_nothing(agent):
    agent.write("hooks.py", "pattern = '\\d'\n" + OBSERVER)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        names(agent.load())
    assert {str(w.category.__name__) for w in seen} <= {"SyntaxWarning", "DeprecationWarning"}
    assert len(seen) == 1  # the import's own; the check repeats nothing
