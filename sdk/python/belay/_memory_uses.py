"""Finds where tools use memory that nothing declares, by reading the source.

Memory is used through a ``ToolContext``: the parameter ``context`` of a tool, or any
parameter that is annotated with the type. Names that are not literals, and memory that
is kept in a variable first, show only when the tool runs.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from belay._files import skill_of
from belay._names import Function, Names, Project
from belay._schema import CONTEXT
from belay.memory import PROJECT, candidates, hint

_METHODS = ("get", "set", "clear")


@dataclass(frozen=True)
class Declared:
    """The names that the agent's memory.yml files declare."""

    project: Collection[str] = ()
    skills: Mapping[str, Collection[str]] = field(default_factory=dict)

    def names(self) -> set[str]:
        """The full names of all values."""
        own = {f"{PROJECT}.{name}" for name in self.project}
        return own | {f"{skill}.{name}" for skill in self.skills for name in self.skills[skill]}


@dataclass(frozen=True)
class Use:
    """A literal name in ``context.memory.<method>("name")``, and what is wrong with it."""

    call: ast.Call
    message: str
    hint: str
    severity: str


def undeclared(
    declared: Declared, project: Project, names: Names, tree: ast.Module
) -> Iterator[Use]:
    """Each use of memory in a file that is not declared for it."""
    skill, every = skill_of(names.source.file), declared.names()
    for call, method, name in _uses(project, names, tree):
        bare = name.removeprefix("session.")
        others = [s for s in declared.skills if bare in declared.skills[s]]
        shared = not skill and others  # whose tool it is shows when it runs
        if shared or any(full in every for full in candidates(bare, skill)):
            continue
        what = "asks for" if method == "get" else "sets"
        who = "the agent does not declare"
        if others:
            who = f"only the skill {others[0]} declares"
            where = f"write {others[0]}.{bare}, or declare it in skills/{skill}/memory.yml"
        else:
            place = f"skills/{skill}/memory.yml or memory.yml" if skill else "memory.yml"
            where = f"declare it in {place}{hint(bare, every, skill)}"
        raises = "" if method == "get" and others else ": it would raise"
        message = f"{what} the memory {name!r}, which {who}{raises}"
        yield Use(call, message, where, "warning" if method == "get" else "error")


def _uses(project: Project, names: Names, tree: ast.Module) -> Iterator[tuple[ast.Call, str, str]]:
    pending: list[tuple[ast.AST, frozenset[str]]] = [(tree, frozenset())]
    while pending:
        node, contexts = pending.pop()
        if isinstance(node, Function | ast.Lambda):
            contexts = _contexts(project, names, node, contexts)
        match node:
            case ast.Call(
                func=ast.Attribute(
                    value=ast.Attribute(value=ast.Name(id=context), attr="memory"), attr=method
                )
            ) if context in contexts and method in _METHODS and (name := _name(node)) is not None:
                yield node, method, name
        children = [(child, contexts) for child in ast.iter_child_nodes(node)]
        pending += reversed(children)


def _contexts(
    project: Project, names: Names, node: Function | ast.Lambda, around: frozenset[str]
) -> frozenset[str]:
    """The variables that hold a ToolContext inside a function."""
    given = node.args
    plain = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    others = [extra for extra in (given.vararg, given.kwarg) if extra is not None]
    own = {each.arg for each in plain if _is_context(project, names, each.annotation)}
    if _is_tool(project, names, node):
        own |= {each.arg for each in plain if each.arg == CONTEXT}
    return (around - {each.arg for each in [*plain, *others]}) | own


def _is_tool(project: Project, names: Names, node: Function | ast.Lambda) -> bool:
    for decorator in getattr(node, "decorator_list", []):
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        if project.resolve(names, target) == "belay.tools.tool":
            return True
    return False


def _is_context(project: Project, names: Names, annotation: ast.expr | None) -> bool:
    match annotation:
        case ast.Subscript(slice=inner):  # Optional[ToolContext]
            return _is_context(project, names, inner)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):  # ToolContext | None
            return any(_is_context(project, names, each) for each in (left, right))
        case ast.Constant(value=str(text)):
            try:
                return _is_context(project, names, ast.parse(text.strip(), mode="eval").body)
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                return False
        case ast.Name() | ast.Attribute():
            return project.resolve(names, annotation) == "belay.tools.ToolContext"
    return False


def _name(call: ast.Call) -> str | None:
    """The literal name that a call is given."""
    given = [keyword.value for keyword in call.keywords if keyword.arg == "name"]
    match [*call.args[:1], *given]:
        case [ast.Constant(value=str(name))]:
            return name
    return None
