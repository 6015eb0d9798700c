"""What the names in a file mean, read from its source.

Nothing is imported: the check must judge a file whose import fails, hangs, or hides a
type under ``if TYPE_CHECKING``. A name is followed through imports, aliases
(``import … as R``, ``R = RetryModel``) and the agent's own modules to a dotted name
such as ``belay.hooks.RetryModel``.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from belay import hooks, tools
from belay._files import AgentFiles, SourceFile
from belay._shims import PACKAGES, SHIMS

Function = ast.FunctionDef | ast.AsyncFunctionDef

_OLDER = {**SHIMS, **{name: module for name, module in PACKAGES.items() if module}}
_STAR = {"belay.hooks": hooks.__all__, "belay.tools": tools.__all__}
_DEEPEST = 20  # names that stand for one another in a circle
_LONGEST = 10  # parts of a module's name; what has more is a chain of attributes


@dataclass(frozen=True)
class Import:
    """One imported module or name, and where."""

    module: str  # as written
    name: str  # "" for the module itself
    line: int
    column: int


@dataclass
class Names:
    """The names that a file binds."""

    source: SourceFile
    bound: dict[str, str] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    imports: list[Import] = field(default_factory=list)


class Project:
    """The names of all files of an agent."""

    def __init__(self, files: AgentFiles) -> None:
        """Takes the files; each is read when it is first asked for."""
        self._files = files
        self._names: dict[str, Names] = {}

    def names(self, source: SourceFile) -> Names:
        """The names of one file."""
        if source.path not in self._names:
            names = self._names[source.path] = Names(source)
            if source.tree is not None:
                _Binder(self, names).read(source.tree)
        return self._names[source.path]

    def resolve(self, names: Names, node: ast.expr) -> str | None:
        """The dotted name that a name or attribute stands for; None when it is neither bound."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in names.bound:
            return None
        return self.follow(".".join([names.bound[node.id], *reversed(parts)]))

    def follow(self, dotted: str) -> str:
        """The dotted name under which the thing itself is defined."""
        for _ in range(_DEEPEST):
            step = self._step(dotted)
            if step == dotted:
                break
            dotted = step
        return dotted

    def class_named(self, dotted: str) -> tuple[Names, ast.ClassDef] | None:
        """The agent's own class of that dotted name."""
        module, _, name = dotted.rpartition(".")
        source = self._files.module(module) if module else None
        if source is None:
            return None
        names = self.names(source)
        return (names, names.classes[name]) if name in names.classes else None

    def star(self, module: str) -> dict[str, str]:
        """What ``from module import *`` binds."""
        module = _OLDER.get(module, module)
        if module in _STAR:
            return {name: f"{module}.{name}" for name in _STAR[module]}
        source = self._files.module(module)
        if source is None:
            return {}
        return {n: to for n, to in self.names(source).bound.items() if not n.startswith("_")}

    def _step(self, dotted: str) -> str:
        parts = dotted.split(".")
        for cut in range(min(len(parts), _LONGEST), 0, -1):
            module, rest = ".".join(parts[:cut]), parts[cut:]
            if module in _OLDER:
                return ".".join([_OLDER[module], *rest])
            if not rest or module == "belay" or module.startswith("belay."):
                continue
            source = self._files.module(module)
            if source is not None:
                bound = self.names(source).bound.get(rest[0])
                return ".".join([bound, *rest[1:]]) if bound else dotted
        return dotted


class _Binder:
    """Fills the names of one file, in the order of its source."""

    def __init__(self, project: Project, names: Names) -> None:
        self._project = project
        self._names = names
        self._module = names.source.module

    def read(self, tree: ast.Module) -> None:
        for statement in tree.body:
            self._statement(statement, top=True, fallback=False)

    def _statement(self, node: ast.stmt, *, top: bool, fallback: bool) -> None:
        """Reads one statement and those in it.

        Args:
            node: The statement.
            top: It is not inside a function or class.
            fallback: It is inside an except handler, where a name that an import has
                bound keeps its meaning.
        """
        match node:
            case ast.Import():
                self._import(node)
            case ast.ImportFrom():
                self._import_from(node)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                if top and not (fallback and node.name in self._names.bound):
                    self._define(node)
                for inner in node.body:
                    self._statement(inner, top=False, fallback=fallback)
                return
            case ast.Assign(targets=targets, value=value) if top:
                for target in targets:
                    self._assign(target, value, fallback)
            case ast.AnnAssign(target=target, value=value) if top and value is not None:
                self._assign(target, value, fallback)
        for inner, handler in _blocks(node):
            self._statement(inner, top=top, fallback=fallback or handler)

    def _define(self, node: Function | ast.ClassDef) -> None:
        self._names.bound[node.name] = f"{self._module}.{node.name}"
        if isinstance(node, ast.ClassDef):
            self._names.classes[node.name] = node
        else:
            self._names.functions[node.name] = node

    def _assign(self, target: ast.expr, value: ast.expr, fallback: bool) -> None:
        if not isinstance(target, ast.Name):
            return
        bound = self._names.bound
        if fallback and target.id in bound:
            return
        bound[target.id] = self._dotted(value) or f"{self._module}.{target.id}"

    def _dotted(self, node: ast.expr) -> str | None:
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self._names.bound:
            return None
        return ".".join([self._names.bound[node.id], *reversed(parts)])

    def _import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._names.imports.append(Import(alias.name, "", alias.lineno, alias.col_offset + 1))
            if alias.asname:
                self._names.bound[alias.asname] = alias.name
            else:
                head = alias.name.partition(".")[0]
                self._names.bound[head] = head

    def _import_from(self, node: ast.ImportFrom) -> None:
        module = self._absolute(node)
        for alias in node.names:
            if alias.name == "*":
                self._names.bound.update(self._project.star(module))
                self._names.imports.append(Import(module, "", node.lineno, node.col_offset + 1))
                continue
            self._names.imports.append(
                Import(module, alias.name, alias.lineno, alias.col_offset + 1)
            )
            self._names.bound[alias.asname or alias.name] = f"{module}.{alias.name}"

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self._module.split(".")
        path = self._names.source.path
        is_package = (
            path.endswith("__init__.py") or len(parts) == 1 or os.path.isdir(path[: -len(".py")])
        )
        parts = parts[: len(parts) - node.level + is_package]
        return ".".join([*parts, node.module] if node.module else parts)


def _blocks(node: ast.stmt) -> Iterator[tuple[ast.stmt, bool]]:
    """The statements directly inside a compound one, and whether they handle an exception."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child, False
        elif isinstance(child, ast.ExceptHandler | ast.match_case):
            for inner in child.body:
                yield inner, isinstance(child, ast.ExceptHandler)
