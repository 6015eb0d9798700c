"""The package as others see it: its README, its types, its parts."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import belay
from belay._points import POINTS
from belay._rules import RULES

HERE = Path(__file__).parent.parent


def test_versions_agree():
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    assert project["version"] == belay.__version__


def test_the_readme_lists_every_rule_and_point():
    readme = (HERE / "README.md").read_text()
    rows = re.findall(r"^\| `([a-z-]+)` \| (.*) \|$", readme, re.M)
    assert dict(rows) == RULES
    for point in POINTS:
        assert f"`on_{point.name}`" in readme
        assert (f"`modify_{point.name}`" in readme) == point.modify


def test_the_readmes_code_passes_the_check_and_its_test(agent):
    blocks = re.findall(r"```python\n(.*?)```", (HERE / "README.md").read_text(), re.S)
    for block in blocks:
        if file := re.match(r"# (\S+)\n", block):
            agent.write(file[1], block)
    loaded = agent.load()
    assert loaded.findings == []
    assert ([len(loaded.hooks), len(loaded.tools)]) == [1, 1]
    (test,) = [block for block in blocks if "def test_" in block]
    namespace: dict = {}
    exec(test, namespace)
    namespace["test_spaces_are_cut"]()


TYPED = """
from belay.hooks import *
from belay.tools import ToolContext, ToolResult, tool

@modify_outgoing_text(timeout_ms=5)
async def good(p: OutgoingTextPayload) -> OutgoingTextPayload:
    return p.model_copy(update={"text": p.text.strip()})

@on_outgoing_message(final=True)
async def look(p: OutgoingMessagePayload) -> None: ...

@tool(description="x")
async def act(day: str, context: ToolContext) -> ToolResult:
    return ToolResult(llm_response=context.memory.get("a"))

async def use() -> str:
    return (await good(OutgoingTextPayload(text="x"))).text
"""


@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="mypy is not installed")
@pytest.mark.parametrize(
    ("more", "right"),
    [
        ("", True),
        ("@on_tool_call\nasync def f(p: ToolCallPayload) -> None: ...", False),
        ("@on_tool_call()\nasync def f(p: ToolResultPayload) -> None: ...", False),
        ("@modify_tool_call()\nasync def f(p: ToolCallPayload) -> None: ...", False),
        ("@modify_tool_call()\ndef f(p: ToolCallPayload) -> ToolCallPayload: return p", False),
        ("@modify_tool_call(final=True)\nasync def f(p: ToolCallPayload) -> ToolCallPayload: ...", False),
        ("@tool(description=5)\nasync def f() -> None: ...", False),
    ],
)  # fmt: skip
def test_type_checkers_see_what_the_check_sees(tmp_path, more, right):
    (tmp_path / "hooks_file.py").write_text(TYPED + more)
    run = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", HERE / ".mypy_cache",
         "--config-file", "/dev/null", "hooks_file.py"],
        cwd=tmp_path, env={"MYPYPATH": str(HERE), "PATH": ""}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert (run.returncode == 0) == right, run.stdout + run.stderr
