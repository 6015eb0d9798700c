"""Finds where tools set memory values, by reading the source.

A value is set through a ``ToolContext``: the parameter ``context`` of a tool, or any
parameter that is annotated with the type. Names that are not literals, and memory that
is kept in a variable first, show only when the tool runs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from belay._names import Function, Names, Project
from belay._schema import CONTEXT


def memory_set(project: Project, names: Names, tree: ast.Module) -> Iterator[tuple[ast.Call, str]]:
    """Each ``context.memory.set("name", …)`` of a file, and the name."""
    pending: list[tuple[ast.AST, frozenset[str]]] = [(tree, frozenset())]
    while pending:
        node, contexts = pending.pop()
        if isinstance(node, Function | ast.Lambda):
            contexts = _contexts(project, names, node, contexts)
        match node:
            case ast.Call(
                func=ast.Attribute(
                    value=ast.Attribute(value=ast.Name(id=context), attr="memory"), attr="set"
                )
            ) if context in contexts and (name := _name(node)) is not None:
                yield node, name
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
        case ast.Constant(value=str(text)):
            try:
                return _is_context(project, names, ast.parse(text.strip(), mode="eval").body)
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                return False
        case ast.Name() | ast.Attribute():
            return project.resolve(names, annotation) == "belay.tools.ToolContext"
    return False


def _name(call: ast.Call) -> str | None:
    """The literal name that a call of set is given."""
    given = [keyword.value for keyword in call.keywords if keyword.arg == "name"]
    match [*call.args[:1], *given]:
        case [ast.Constant(value=str(name))]:
            return name
    return None
