"""Tools in the folders of skills: where they are found, what they import, which one counts."""

from __future__ import annotations

import sys

import pytest

TOOL = 'from belay.tools import tool\n@tool(description="x")\nasync def {name}(): return "{name} of {of}"\n'


def places(loaded) -> list[tuple[str, str, str]]:
    return [(t.name, t.skill, t.file) for t in loaded.tools]


def test_tools_of_skills_stand_beside_those_of_the_project(agent):
    for file in (
        "tools.py",
        "skills/book/tools.py",
        "skills/visit/tools/a.py",
        "skills/my visit.2/tools.py",
        "skills/my_visit_2/tools.py",
    ):
        agent.write(file, TOOL.format(name="find", of=file))
    agent.write("skills/visit/tools/deep/no.py", "raise ValueError")
    agent.write("skills/visit/scripts/no.py", "raise ValueError")
    agent.write("skills/.hidden/tools.py", "raise ValueError")
    agent.write("skills/book/skill.md", "---\n---\n")
    loaded = agent.load()
    assert loaded.findings == []
    assert places(loaded) == [
        ("find", "", "tools.py"),
        ("find", "book", "skills/book/tools.py"),
        ("find", "my visit.2", "skills/my visit.2/tools.py"),
        ("find", "my_visit_2", "skills/my_visit_2/tools.py"),
        ("find", "visit", "skills/visit/tools/a.py"),
    ]
    assert agent.imported == [place[2] for place in places(loaded)]
    assert len({tool.fn.__module__ for tool in loaded.tools}) == 5


def test_tools_that_the_engine_runs_are_listed_as_any_other(agent):
    agent.write("skills/a/tools.py", TOOL.format(name="validate_day", of="a"))
    agent.write("skills/b/tools.py", TOOL.format(name="run_after_setting_day", of="b"))
    assert [t.name for t in agent.load().tools] == ["validate_day", "run_after_setting_day"]


def test_what_skill_tools_import(agent):
    agent.write("lib/database.py", "value = 1\n")
    agent.write("tools/shared.py", TOOL.format(name="shared", of="all") + "def _help(): return 2\n")
    agent.write("skills/book/tools/helper.py", "value = 3\n")
    agent.write("skills/book/prices.py", "value = 4\n")
    agent.write(
        "skills/book/tools/a.py",
        """
        from __future__ import annotations
        import sys
        from pathlib import Path
        from belay.tools import tool
        _ROOT = Path(__file__).resolve().parents[3]
        if str(_ROOT) not in sys.path:
            sys.path.insert(0, str(_ROOT))
        from lib.database import value as one
        from tools.shared import _help
        from .helper import value as three
        from skills.book.prices import value as four
        from ..prices import value as again

        @tool(description="x")
        async def sums() -> int:
            return one + _help() + three + four + again
        """,
    )
    loaded = agent.load()
    assert loaded.findings == []
    assert places(loaded) == [
        ("shared", "", "tools/shared.py"),
        ("sums", "book", "skills/book/tools/a.py"),
    ]
    with pytest.raises(StopIteration) as result:
        loaded.tools[1].fn().send(None)
    assert result.value.value == 14
    assert sys.modules["skills.book.tools.helper"].value == 3


def test_a_skills_tools_file_and_folder_go_together(agent):
    agent.write(
        "skills/book/tools.py",
        "from .more import extra\nfrom skills.book.tools.more import extra as same\n"
        + TOOL.format(name="one", of="file"),
    )
    agent.write("skills/book/tools/more.py", "extra = 1\n" + TOOL.format(name="two", of="folder"))
    loaded = agent.load()
    assert loaded.findings == []
    assert [t.name for t in loaded.tools] == ["two", "one"]


def test_the_folder_beats_the_file(agent):
    agent.write(
        "skills/book/tools.py",
        TOOL.format(name="find", of="file") + TOOL.format(name="other", of="file"),
    )
    agent.write("skills/book/tools/a.py", TOOL.format(name="find", of="folder"))
    agent.write("skills/visit/tools.py", TOOL.format(name="find", of="visit"))
    loaded = agent.load()
    (finding,) = loaded.findings
    assert (finding["file"], finding["line"], finding["rule"], finding["severity"]) == (
        "skills/book/tools.py",
        2,
        "shadowed-tool",
        "warning",
    )
    assert "skills/book/tools/a.py:2" in finding["message"]
    assert places(loaded) == [
        ("other", "book", "skills/book/tools.py"),
        ("find", "book", "skills/book/tools/a.py"),
        ("find", "visit", "skills/visit/tools.py"),
    ]


@pytest.mark.parametrize(
    "files",
    [
        ("tools.py", "tools/a.py"),
        ("tools/a.py", "tools/b.py"),
        ("skills/s/tools/a.py", "skills/s/tools/b.py"),
    ],
)
def test_two_of_one_name_in_one_scope(agent, files):
    for file in files:
        agent.write(file, TOOL.format(name="find", of=file))
    (finding,) = agent.load().findings
    assert (finding["file"], finding["rule"], finding["severity"]) == (
        files[1],
        "double-tool",
        "error",
    )
    assert f"{files[0]}:2" in finding["message"]


def test_a_tool_that_is_imported_belongs_to_that_file_too(agent):
    agent.write("lib/kit.py", TOOL.format(name="ping", of="lib"))
    agent.write("tools/shared.py", TOOL.format(name="shared", of="all"))
    agent.write("tools/more.py", "from tools.shared import shared\nfrom lib.kit import ping\n")
    agent.write(
        "skills/a/tools.py", "\nfrom lib.kit import *\nfrom tools.shared import shared as mine\n"
    )
    agent.write("skills/b/tools.py", "import tools.shared\n")
    loaded = agent.load()
    assert loaded.findings == []
    assert [(t.name, t.skill, t.file, t.line) for t in loaded.tools] == [
        ("shared", "", "tools/shared.py", 2),
        ("ping", "", "tools/more.py", 2),
        ("ping", "a", "skills/a/tools.py", 2),
        ("shared", "a", "skills/a/tools.py", 3),
    ]


def test_a_linked_skill_has_its_own_tools(agent):
    agent.write("skills/a/tools.py", TOOL.format(name="find", of="a"))
    (agent.root / "skills/b").symlink_to("a")
    loaded = agent.load()
    assert loaded.findings == []
    assert [(t.skill, t.name) for t in loaded.tools] == [("a", "find"), ("b", "find")]
    assert loaded.tools[0].fn is loaded.tools[1].fn


def test_what_is_wrong_in_a_skills_files(agent):
    agent.write("skills/a/tools.py", "def (\n")
    agent.write("skills/a/tools/good.py", TOOL.format(name="good", of="a"))
    agent.write("skills/b/tools.py", "import nowhere\n")
    agent.write("skills/b/tools/__init__.py", TOOL.format(name="lost", of="b"))
    agent.write("skills/c/tools.py", "from .helper import x\n")
    agent.write("skills/c/helper.py", "x = (\n")
    loaded = agent.load()
    assert [(f["file"], f["rule"]) for f in loaded.findings] == [
        ("skills/a/tools.py", "syntax-error"),
        ("skills/b/tools.py", "import-error"),
        ("skills/b/tools/__init__.py", "hook-in-init"),
        ("skills/c/helper.py", "syntax-error"),
    ]
    assert [t.name for t in loaded.tools] == ["good"]


def test_an_agent_loaded_later_has_its_own_skills(agent, tmp_path):
    from belay._load import load_agent

    agent.write("skills/a/tools.py", TOOL.format(name="find", of="a"))
    agent.load()
    other = tmp_path / "other"
    (other / "skills/a").mkdir(parents=True)
    (other / "skills/a/tools.py").write_text(TOOL.format(name="seek", of="a"))
    assert [t.name for t in load_agent(other).tools] == ["seek"]
