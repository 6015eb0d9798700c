"""The tools of an agent: where each may be used, and what is wrong with them.

A tool in ``tools.py`` or ``tools/`` is the project's, one in ``skills/<id>/`` that skill's.
Tools of one name in different skills, or in a skill and the project, are told apart by
their files. A file that imports a tool from elsewhere gives it too, as if it stood there.
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from belay._files import AgentFiles, SourceFile, skill_of
from belay._registry import Collector, Tool
from belay._rules import Finding, finding
from belay._schema import NoSchema, Signature, read_signature


@dataclass
class ToolEntry:
    """One tool at one place."""

    name: str
    description: str
    parameters: dict[str, Any]  # JSON schema
    file: str  # the one that gives it; the skill is in its path
    line: int  # of the decorator, or of the import that brings it into file
    fn: Callable[..., Any]
    wants_context: bool
    requires_confirmation: bool
    utter_for_confirmation: str | None
    utter_on_user_denial: str | None
    on_success: str | None
    timeout_s: float | None
    coerce: Callable[[Mapping[str, Any]], dict[str, Any]]  # ValueError names the parameter

    @property
    def skill(self) -> str:
        """The id of the skill whose tool it is; "" for one of the project."""
        return skill_of(self.file)


def collect(collector: Collector, files: AgentFiles) -> tuple[list[ToolEntry], list[Finding]]:
    """The tools that the decorators registered, each at its places."""
    entries: list[ToolEntry] = []
    findings: list[Finding] = []
    signatures: dict[int, Signature] = {}
    for tool in _registered(collector):
        findings += _wrong(tool)
        try:
            signatures[id(tool)] = read_signature(tool.fn)
        except NoSchema as error:
            hint = "annotate each parameter with a type that pydantic knows, and give it a name"
            findings.append(
                finding("tool-signature", tool.file, tool.line, f"{tool.name}: {error}", hint)
            )
    places: dict[tuple[str, str], tuple[str, int]] = {}  # skill and name -> file and line
    for tool, file, line in _unshadowed(list(_places(collector, files)), findings):
        first = places.setdefault((skill_of(file), tool.name), (file, line))
        if first != (file, line):
            findings.append(
                finding(
                    "double-tool",
                    file,
                    line,
                    f"a tool {tool.name} stands already at {first[0]}:{first[1]}",
                    "rename one of the two, or remove it",
                )
            )
        if signature := signatures.get(id(tool)):
            entries.append(_entry(tool, file, line, signature))
    return entries, findings


def is_init(file: str) -> bool:
    """Whether the file is an ``__init__.py`` that is passed over."""
    head = file.partition("/")[0]
    return os.path.basename(file) == "__init__.py" and head in ("hooks", "tools", "skills")


_Place = tuple[Tool, str, int]  # a tool, and the file and line that give it


def _registered(collector: Collector) -> list[Tool]:
    return [tool for tool in collector.tools if not is_init(tool.file)]


def _places(collector: Collector, files: AgentFiles) -> Iterator[_Place]:
    """Each tool where it stands, then where it is imported."""
    registered = _registered(collector)
    sources = [s for s in [*files.authored, *files.linked] if s.kind == "tools"]
    given = {source.file for source in sources}
    elsewhere: list[_Place] = []
    seen = {(skill_of(tool.file), id(tool.fn)) for tool in registered if tool.file in given}
    by_function = {id(tool.fn): tool for tool in registered}
    for source in sources:
        module = sys.modules.get(source.module)
        for name, value in list(getattr(module, "__dict__", {}).items()):
            tool = by_function.get(id(value))
            if tool and (skill_of(source.file), id(value)) not in seen:
                seen.add((skill_of(source.file), id(value)))
                elsewhere.append((tool, source.file, _line(source, name) or tool.line))
    imported = {id(tool) for tool, _, _ in elsewhere}
    for tool in registered:
        if tool.file in given or id(tool) not in imported:
            yield tool, tool.file, tool.line
    yield from elsewhere


def _line(source: SourceFile, name: str) -> int:
    """The line on which a file imports a name; 0 when it is not seen to."""
    for node in ast.walk(source.tree) if source.tree else ():
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if name in (alias.asname or alias.name, "*"):
                    return alias.lineno
    return 0


def _unshadowed(places: list[_Place], findings: list[Finding]) -> Iterator[_Place]:
    """Leaves out what stands in a skill's tools.py although its folder tools/ has it."""
    inside = {
        (skill_of(file), tool.name): f"{file}:{line}"
        for tool, file, line in reversed(places)
        if re.match("skills/[^/]+/tools/", file)
    }
    for tool, file, line in places:
        other = inside.get((skill_of(file), tool.name))
        if other is None or not re.fullmatch(r"skills/[^/]+/tools\.py", file):
            yield tool, file, line
            continue
        findings.append(
            finding(
                "shadowed-tool",
                file,
                line,
                f"the tool {tool.name} is never used: the one at {other} stands before it",
                "remove one of the two, or rename it",
                severity="warning",
            )
        )


def _entry(tool: Tool, file: str, line: int, signature: Signature) -> ToolEntry:
    options = tool.options
    return ToolEntry(
        name=tool.name,
        description=tool.description,
        parameters=signature.parameters,
        file=file,
        line=line,
        fn=tool.fn,
        wants_context=signature.wants_context,
        requires_confirmation=options.get("requires_confirmation", False),
        utter_for_confirmation=options.get("utter_for_confirmation"),
        utter_on_user_denial=options.get("utter_on_user_denial"),
        on_success=options.get("on_success"),
        timeout_s=options.get("timeout"),
        coerce=signature.coerce,
    )


def _wrong(tool: Tool) -> Iterator[Finding]:
    def wrong(rule: str, message: str, hint: str) -> Finding:
        return finding(rule, tool.file, tool.line, message, hint)

    if not _is_async(tool.fn):
        yield wrong(
            "not-async", f"the tool {tool.name} is not an async function", "write async def"
        )
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", tool.name):
        message = f"{tool.name!r} is no name for a tool"
        yield wrong("tool-name", message, "use up to 64 letters, digits, _ and -")
    if not tool.description:
        message = f"the tool {tool.name} has no description"
        yield wrong("tool-description", message, 'write @tool(description="…")')


def _is_async(fn: object) -> bool:
    try:
        return inspect.iscoroutinefunction(fn)
    except BaseException:  # an object of the agent's may do anything when it is asked
        return False
