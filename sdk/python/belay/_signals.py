"""Finds signals that are raised where they may not be, and signals that are returned.

A hook's body is read together with the functions of the same file that it calls by
name, and those that they call. A raise inside ``try`` is reported too: that some
handler catches it is no reason to use a signal where it means nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from belay._names import Function, Names, Project
from belay._points import POINTS

SIGNALS = ("HookRejection", "RetryModel")


@dataclass(frozen=True)
class Use:
    """A signal that a hook raises or returns: which, and where."""

    signal: str
    node: ast.stmt
    function: str  # the one in whose body it stands


def where_allowed(signal: str) -> str:
    """The points whose modify hooks may raise the signal, in words."""
    return " and ".join(point.name for point in POINTS if signal in point.signals)


class Reader:
    """Reads the signals of one file's functions."""

    def __init__(self, project: Project, names: Names) -> None:
        """Takes the file's names."""
        self._project = project
        self._names = names

    def raised(self, hook: Function) -> list[Use]:
        """The signals that the hook raises, itself or through functions it calls by name."""
        uses: list[Use] = []
        for function, body in self._reached(hook):
            known = self._variables(body)
            for node in body:
                if isinstance(node, ast.Raise) and node.exc is not None:
                    for signal in sorted(self._signals(node.exc, known)):
                        uses.append(Use(signal, node, function.name))
        return uses

    def returned(self, hook: Function) -> list[Use]:
        """The signals that the hook returns, itself or as what a function gave back."""
        uses: list[Use] = []
        seen: set[int] = set()
        pending: list[Function] = [hook]
        while pending:
            function = pending.pop()
            if id(function) in seen:
                continue
            seen.add(id(function))
            body = list(_own_nodes(function))
            known = self._variables(body)
            for node in body:
                if not isinstance(node, ast.Return) or node.value is None:
                    continue
                for signal in sorted(self._signals(node.value, known)):
                    uses.append(Use(signal, node, function.name))
                value = node.value.value if isinstance(node.value, ast.Await) else node.value
                if isinstance(value, ast.Call):
                    pending += self._called(value, function, body)
        return uses

    def _reached(self, hook: Function) -> Iterator[tuple[Function, list[ast.AST]]]:
        seen: set[int] = set()
        pending: list[Function] = [hook]
        while pending:
            function = pending.pop()
            if id(function) in seen:
                continue
            seen.add(id(function))
            body = list(_own_nodes(function))
            yield function, body
            for node in body:
                if isinstance(node, ast.Call):
                    pending += self._called(node, function, body)

    def _called(self, call: ast.Call, function: Function, body: list[ast.AST]) -> list[Function]:
        """The function of this file that a call names."""
        if not isinstance(call.func, ast.Name):
            return []
        name = call.func.id
        nested = [n for n in body if isinstance(n, Function) and n.name == name]
        if nested:
            return nested
        if name in _locals(function, body):
            return []
        found = self._names.functions.get(name)
        return [found] if found is not None else []

    def _variables(self, body: list[ast.AST]) -> dict[str, set[str]]:
        """The local variables that hold a signal."""
        known: dict[str, set[str]] = {}
        for node in body:
            if isinstance(node, ast.ExceptHandler) and node.name and node.type is not None:
                types = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
                for each in types:
                    known.setdefault(node.name, set()).update(self._signals(each, {}))
            target, value = _assignment(node)
            if target is not None and value is not None:
                known.setdefault(target, set()).update(self._signals(value, known))
        return known

    def _signals(self, node: ast.expr, known: dict[str, set[str]]) -> set[str]:
        """The signals that an expression may be."""
        match node:
            case ast.IfExp(body=body, orelse=orelse):
                return self._signals(body, known) | self._signals(orelse, known)
            case ast.BoolOp(values=values):
                return set().union(*(self._signals(value, known) for value in values))
            case ast.NamedExpr(value=value):
                return self._signals(value, known)
            case ast.Call(func=ast.Attribute(value=inner, attr="with_traceback")):
                return self._signals(inner, known)
            case ast.Call(func=function):
                return self._class(function, known)
            case _:
                return self._class(node, known)

    def _class(self, node: ast.expr, known: dict[str, set[str]]) -> set[str]:
        if isinstance(node, ast.Name) and node.id in known:
            return known[node.id]
        dotted = self._project.resolve(self._names, node)
        return self._signal_of(dotted, ()) if dotted else set()

    def _signal_of(self, dotted: str, below: tuple[str, ...]) -> set[str]:
        """The signal that a dotted name is, or that the class of that name inherits from."""
        module, _, name = dotted.rpartition(".")
        if module == "belay.hooks":
            return {name} & set(SIGNALS)
        found = None if dotted in below else self._project.class_named(dotted)
        signals: set[str] = set()
        if found is not None:
            names, definition = found
            for base in definition.bases:
                base_name = self._project.resolve(names, base)
                if base_name:
                    signals |= self._signal_of(base_name, (*below, dotted))
        return signals


def _own_nodes(function: Function) -> Iterator[ast.AST]:
    """The nodes of a function's body in order, without the bodies of what it defines."""
    stack: list[ast.AST] = list(reversed(function.body))
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, Function | ast.ClassDef | ast.Lambda):
            stack.extend(reversed(list(ast.iter_child_nodes(node))))


def _assignment(node: ast.AST) -> tuple[str | None, ast.expr | None]:
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return name, value
        case ast.AnnAssign(target=ast.Name(id=name), value=value):
            return name, value
        case ast.NamedExpr(target=ast.Name(id=name), value=value):
            return name, value
    return None, None


def _locals(function: Function, body: list[ast.AST]) -> set[str]:
    """Names that are the function's own: its parameters and what it assigns."""
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    every += [extra for extra in (arguments.vararg, arguments.kwarg) if extra is not None]
    names = {argument.arg for argument in every}
    for node in body:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names
