"""The check of an agent's Python files: all that is wrong, in one run.

What can be told from the source is told from the source, so that a file which cannot
be imported is still checked to its end. What was registered at import is looked at
afterwards, for hooks that the source does not show (made in a loop, by another
decorator, through a variable).
"""

from __future__ import annotations

import ast
import builtins
import inspect
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from belay import _decorate, hooks, tools
from belay._files import AgentFiles, SourceFile
from belay._handler import registered_findings, wrong_payload, wrong_return, wrong_signature
from belay._memory_uses import Declared, undeclared
from belay._names import Function, Import, Names, Project
from belay._points import POINTS
from belay._registry import Hook
from belay._rules import Finding, finding
from belay._shims import PACKAGES, SHIMS
from belay._signals import Reader, where_allowed

_HOOK_NAME = re.compile(r"belay\.hooks\.((?:on|modify)_\w+)")
_POINT_OF = {name: point for point in POINTS for name in (point.name, point.alias) if name}


@dataclass(frozen=True)
class ShimImport:
    """An import of a module that Belay stands in for."""

    module: str
    file: str
    line: int
    column: int


@dataclass
class SeenHook:
    """A hook as the source shows it."""

    decorator: str
    point: str
    lane: str
    file: str
    line: int
    certain: bool  # stands at the top of the file, so it is registered whenever that is imported
    settled: set[str] = field(default_factory=set)  # rules that need no look at the function


class Report:
    """What the check of the sources found, and what is left to look at after import."""

    def __init__(self, files: AgentFiles, declared: Declared) -> None:
        """Takes the agent's files, and the memory that they may use."""
        self.declared = declared
        self.findings: list[Finding] = []
        self.shim_imports: list[ShimImport] = []
        self._order = [source.file for source in files.authored]
        self._files = files
        self._project = Project(files)
        self._seen: dict[tuple[str, int], SeenHook] = {}
        self._spans: list[tuple[Finding, int, int]] = []

    def check_registered(self, registered: list[Hook], misused: list[Finding]) -> list[Finding]:
        """Checks what the decorators registered and adds what only running them told."""
        self.findings = []
        for hook in registered:
            seen = self._seen.get((hook.file, hook.line))
            for wrong in registered_findings(hook, seen.settled if seen else set()):
                if not self._told(wrong):
                    self.findings.append(wrong)
            if seen is None:
                self._signals_of_registered(hook)
        self.findings += [wrong for wrong in misused if not self._told(wrong)]
        self._double(registered)
        return self.findings

    def read(self, source: SourceFile) -> None:
        """Checks one file from its source."""
        if source.tree is not None:
            with self._too_deep(source):
                _FileCheck(self, self._project, source).run(source.tree)

    def read_init(self, source: SourceFile) -> None:
        """Looks for hooks and tools in an ``__init__.py``, which is passed over."""
        if source.tree is not None:
            with self._too_deep(source):
                _check_init(self, self._project, source, source.tree)

    def add(self, wrong: Finding, first: int, last: int) -> None:
        """Adds a finding about the lines from first to last."""
        self.findings.append(wrong)
        self._spans.append((wrong, first, last))

    def saw(self, hook: SeenHook) -> None:
        """Notes a hook that the source shows."""
        self._seen[hook.file, hook.line] = hook

    @contextmanager
    def _too_deep(self, source: SourceFile) -> Iterator[None]:
        try:
            yield
        except RecursionError:
            message, hint = "is nested too deeply to be checked", "split what is nested"
            self.findings.append(finding("syntax-error", source.file, 1, message, hint))

    def _told(self, wrong: Finding) -> bool:
        """Whether the source told the same already, in other words where it is not async."""
        return any(
            wrong["file"] == told["file"]
            and wrong["rule"] == told["rule"]
            and first <= wrong["line"] <= last
            and (wrong["rule"] == "not-async" or wrong["message"] == told["message"])
            for told, first, last in self._spans
        )

    def _double(self, registered: list[Hook]) -> None:
        places: dict[str, dict[tuple[str, int], str]] = {}
        for seen in self._seen.values():
            if seen.lane == "modify" and seen.certain:
                places.setdefault(seen.point, {})[seen.file, seen.line] = seen.decorator
        count: dict[tuple[str, str, int], int] = {}
        for hook in registered:
            if hook.lane == "modify":
                at = hook.file, hook.line
                places.setdefault(hook.point, {})[at] = hook.decorator
                count[hook.point, *at] = count.get((hook.point, *at), 0) + 1
        for point, found in places.items():
            ordered = sorted(found, key=self._rank)
            first = ordered[0]
            again = [first] if count.get((point, *first), 0) > 1 else []
            for file, line in [*again, *ordered[1:]]:
                self.findings.append(
                    finding(
                        "double-modify",
                        file,
                        line,
                        f"{found[file, line]} at {file}:{line} is a second modify hook of "
                        f"{point}; the first stands at {first[0]}:{first[1]}",
                        "keep one modify hook a point; let it call the other function",
                    )
                )

    def _rank(self, place: tuple[str, int]) -> tuple[int, str, int]:
        file, line = place
        return (self._order.index(file) if file in self._order else len(self._order), file, line)

    def _signals_of_registered(self, hook: Hook) -> None:
        """Looks for signals in a hook that only its registration showed."""
        try:
            code = inspect.unwrap(hook.fn).__code__
        except BaseException:  # it is no function; that has been reported
            return
        if not isinstance(code, CodeType):
            return
        for source in self._files.authored:
            if source.path != code.co_filename or source.tree is None:
                continue
            for node in ast.walk(source.tree):
                if isinstance(node, Function) and code.co_firstlineno == min(
                    [node.lineno, *(d.lineno for d in node.decorator_list)]
                ):
                    with self._too_deep(source):
                        check = _FileCheck(self, self._project, source)
                        check.signals(hook.decorator, hook.point, hook.lane, node)


def check_files(files: AgentFiles, declared: Declared) -> Report:
    """Checks all files of an agent, and those of lib/ that they import, from their sources."""
    report = Report(files, declared)
    for source in files.authored:
        report.read(source)
    for source in files.inits:
        report.read_init(source)
    checked: set[str] = set()
    while left := [s for name, s in files.library.items() if s and name not in checked]:
        for source in left:
            checked.add(source.module)
            report.read(source)
    files.strays()
    return report


def _check_init(report: Report, project: Project, source: SourceFile, tree: ast.Module) -> None:
    names = project.names(source)
    for node in ast.walk(tree):
        for decorator in getattr(node, "decorator_list", []):
            target = decorator.func if isinstance(decorator, ast.Call) else decorator
            dotted = project.resolve(names, target) or ""
            if _HOOK_NAME.fullmatch(dotted) or dotted == "belay.tools.tool":
                report.add(
                    finding(
                        "hook-in-init",
                        source.file,
                        decorator.lineno,
                        "hooks and tools in an __init__.py are not registered",
                        "move the function into a file of its own",
                        column=decorator.col_offset + 1,
                        severity="warning",
                    ),
                    decorator.lineno,
                    decorator.lineno,
                )


class _FileCheck:
    """The check of one file's source."""

    def __init__(self, report: Report, project: Project, source: SourceFile) -> None:
        self._report = report
        self._project = project
        self._source = source
        self._names: Names = project.names(source)
        self._reader = Reader(project, self._names)

    def run(self, tree: ast.Module) -> None:
        for imported in self._names.imports:
            self._imported(imported)
        top = {id(statement) for statement in tree.body}
        for node in ast.walk(tree):
            for decorator in getattr(node, "decorator_list", []):
                self._decorated(node, decorator, id(node) in top)
            if isinstance(node, ast.Call):
                self._called(node)
            elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
                self._used(node)
        for statement in tree.body:
            if isinstance(statement, ast.Expr | ast.Assign):
                self._applied(statement.value)
        for use in undeclared(self._report.declared, self._project, self._names, tree):
            where = use.call, "undeclared-memory", use.message, use.hint
            self._add(*where, severity=use.severity)

    # --- imports and names

    def _imported(self, imported: Import) -> None:
        for module in (imported.module, f"{imported.module}.{imported.name}"):
            if SHIMS.get(module, PACKAGES.get(module)) in ("belay.hooks", "belay.tools"):
                self._report.shim_imports.append(
                    ShimImport(module, self._source.file, imported.line, imported.column)
                )
        dotted = self._project.follow(f"{imported.module}.{imported.name}")
        if wrong := self._unknown(dotted):
            line = imported.line
            wrong_here = finding(
                wrong[0], self._source.file, line, *wrong[1:], column=imported.column
            )
            self._report.add(wrong_here, line, line)

    def _used(self, node: ast.Name | ast.Attribute) -> None:
        if wrong := self._unknown(self._project.resolve(self._names, node)):
            self._add(node, *wrong)

    def _unknown(self, dotted: str | None) -> tuple[str, str, str] | None:
        found = _HOOK_NAME.fullmatch(dotted or "")
        return _decorate.unknown_point(found[1]) if found and not _lane(found[1]) else None

    # --- decorators

    def _decorated(self, node: Any, decorator: ast.expr, top: bool) -> None:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        dotted = self._project.resolve(self._names, target) or ""
        if dotted == "belay.tools.tool":
            if target is decorator:
                self._add(decorator, *tools._BARE)
            self._is_async(node, decorator, "a tool")
        elif (found := _HOOK_NAME.fullmatch(dotted)) and (lane := _lane(found[1])):
            name = found[1]
            if target is decorator:
                self._add(decorator, *_decorate.bare(name))
            self._hook(name, *lane, node, decorator, top and target is not decorator)

    def _applied(self, node: ast.expr) -> None:
        """A decorator that is applied by a call: modify_x()(function)."""
        match node:
            case ast.Call(func=ast.Call(func=target), args=[ast.Name(id=name)], keywords=[]):
                found = _HOOK_NAME.fullmatch(self._project.resolve(self._names, target) or "")
                function = self._names.functions.get(name)
                if found and function and (lane := _lane(found[1])):
                    self._hook(found[1], *lane, function, node, True)

    def _called(self, call: ast.Call) -> None:
        """The arguments of a decorator, wherever it is called."""
        dotted = self._project.resolve(self._names, call.func) or ""
        found = _HOOK_NAME.fullmatch(dotted)
        if dotted == "belay.tools.tool":
            self._tool_arguments(call)
        elif found and (lane := _lane(found[1])):
            self._hook_arguments(call, found[1], lane[1])

    def _tool_arguments(self, call: ast.Call) -> None:
        for keyword in call.keywords:
            if keyword.arg and keyword.arg not in tools._OPTION_NAMES:
                message = f"tool takes no argument {keyword.arg!r}"
                hint = f"it takes {', '.join(tools._OPTION_NAMES)}"
                self._add(keyword.value, "decorator-argument", message, hint, within=call)

    def _hook_arguments(self, call: ast.Call, name: str, lane: str) -> None:
        match call:
            case ast.Call(args=[ast.Name() | ast.Attribute() | ast.Lambda()], keywords=[]):
                self._add(call, *_decorate.bare(name))
                return
        for argument in call.args:
            if not isinstance(argument, ast.Starred):
                message = f"{name} takes no positional argument"
                hint = _decorate.argument_hint(name, lane)
                self._add(argument, "decorator-argument", message, hint, within=call)
        for keyword in call.keywords:
            value = _constant(keyword.value)
            if keyword.arg and (wrong := _decorate.wrong_argument(name, lane, keyword.arg, value)):
                self._add(keyword.value, *wrong, within=call)

    # --- hook functions

    def _hook(
        self, name: str, point: str, lane: str, node: Any, decorator: ast.expr, certain: bool
    ) -> None:
        certain = certain and self._source.kind != "lib"  # that one may never be imported
        seen = SeenHook(name, point, lane, self._source.file, decorator.lineno, certain)
        self._report.saw(seen)
        if self._is_async(node, decorator, "a hook"):
            seen.settled.add("not-async")
        if not isinstance(node, Function):
            return
        if not self._wrapped(node, decorator):  # else the wrapper counts, after import
            seen.settled.add("signature")
            if not self._signature(node, point):
                seen.settled.add("payload-annotation")
            self._annotations(seen, node)
        self._copies(point, node)
        self.signals(name, point, lane, node)

    def _copies(self, point: str, node: Function) -> None:
        """Finds model_copy(update={…}) with a field that the payload does not have."""
        fields = {each.name for each in _POINT_OF[point].fields}
        for inner in ast.walk(node):
            match inner:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id=name), attr="model_copy"),
                    keywords=[ast.keyword(arg="update", value=ast.Dict(keys=keys))],
                ) if node.args.args and name == node.args.args[0].arg:
                    for key in keys:
                        if isinstance(key, ast.Constant) and key.value not in fields:
                            self._add(
                                key,
                                "unknown-field",
                                f"{_POINT_OF[point].payload} has no field {key.value!r}",
                                f"its fields: {', '.join(sorted(fields))}",
                                severity="warning",
                            )

    def _wrapped(self, node: Any, decorator: ast.expr) -> bool:
        """Whether another decorator stands between this one and the function."""
        below = decorator not in node.decorator_list  # it is applied by a call, outermost
        for each in node.decorator_list:
            target = each.func if isinstance(each, ast.Call) else each
            dotted = self._project.resolve(self._names, target) or ""
            if below and not dotted.startswith(("belay.hooks.", "belay.tools.")):
                return True
            below = below or each is decorator
        return False

    def _is_async(self, node: Any, decorator: ast.expr, what: str) -> bool:
        """Reports a function that is not async; True when that is settled."""
        if self._wrapped(node, decorator):
            return False
        if not isinstance(node, ast.AsyncFunctionDef):
            kind = "a class" if isinstance(node, ast.ClassDef) else "a plain function"
            hint = f"write async def {node.name}(…)"
            self._add(node, "not-async", f"{node.name} is {kind}, not {what}: not async", hint)
        elif _yields(node):
            message = f"{node.name} is an async generator, because it has a yield"
            self._add(node, "not-async", message, "return one value, and do not yield")
        return True

    def _signature(self, node: Function, point: str) -> bool:
        arguments = node.args
        plain = [*arguments.posonlyargs, *arguments.args]
        others = [*arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        if len(plain) == 1 and not any(others):
            return True
        self._add(node, *wrong_signature(node.name, point))
        return False

    def _annotations(self, seen: SeenHook, node: Function) -> None:
        wanted = _POINT_OF[seen.point].payload
        plain = [*node.args.posonlyargs, *node.args.args]
        if len(plain) == 1:
            parameter = plain[0]
            right = self._means(parameter.annotation, wanted)
            if right is not None:
                seen.settled.add("payload-annotation")
            if right is False:
                wrong = wrong_payload(node.name, parameter.arg, parameter.annotation, wanted)
                self._add(parameter, *wrong)
        result = wanted if seen.lane == "modify" else "None"
        right = self._means(node.returns, result)
        if right is not None:
            seen.settled.add("return-annotation")
        if right is False:
            wrong = wrong_return(node.name, node.returns, result)
            self._add(node.returns or node, *wrong)

    def _means(self, node: ast.expr | None, wanted: str) -> bool | None:
        """Whether an annotation means the wanted type; None when the source does not tell."""
        match node:
            case None:
                return False
            case ast.Constant(value=None):
                return wanted == "None"
            case ast.Constant(value=str(text)):
                try:
                    return self._means(ast.parse(text.strip(), mode="eval").body, wanted)
                except (SyntaxError, ValueError, RecursionError, MemoryError):
                    return False
            case ast.Subscript(value=value, slice=ast.Tuple(elts=[first, *_])):
                if self._project.resolve(self._names, value) in _ANNOTATED:
                    return self._means(first, wanted)
                return False
            case ast.Name() | ast.Attribute():
                return self._names_type(node, wanted)
        return False

    def _names_type(self, node: ast.Name | ast.Attribute, wanted: str) -> bool | None:
        dotted = self._project.resolve(self._names, node)
        if dotted is None:
            known = isinstance(node, ast.Name) and hasattr(builtins, node.id)
            return False if known else None
        if dotted.startswith("belay.hooks."):
            given = getattr(hooks, dotted.removeprefix("belay.hooks."), None)
            return given is not None and getattr(given, "__name__", "") == wanted
        if dotted == "types.NoneType":
            return wanted == "None"
        if dotted.startswith("typing.") or self._project.class_named(dotted):
            return False
        return None

    # --- signals

    def signals(self, decorator: str, point: str, lane: str, node: Function) -> None:
        """Reports the signals that a hook may not raise, or returns."""
        allowed = _POINT_OF[point].signals if lane == "modify" else ()
        for use in self._reader.raised(node):
            if use.signal in allowed:
                continue
            by = "" if use.function == node.name else f", called by {node.name}"
            why = (
                "an observe hook raises no signal"
                if lane == "observe"
                else f"{point} allows " + (f"only {allowed[0]}" if allowed else "no signal")
            )
            self._add(
                use.node,
                "signal-not-allowed",
                f"{use.function}{by} (@{decorator}) raises {use.signal}: {why}",
                f"it would be dropped; {use.signal} is for modify hooks of "
                f"{where_allowed(use.signal)}",
            )
        for use in self._reader.returned(node):
            self._add(
                use.node,
                "signal-returned",
                f"{use.function} (@{decorator}) returns {use.signal} instead of raising it",
                f"write raise {use.signal}(…)"
                if use.signal in allowed
                else "return the payload"
                if lane == "modify"
                else "return None",
            )

    # --- findings

    def _add(
        self,
        node: Any,
        rule: str,
        message: str,
        hint: str,
        *,
        severity: str = "error",
        within: ast.expr | None = None,
    ) -> None:
        """Adds a finding at node; the same one from running any line of within is no other."""
        file, line, column = self._source.file, node.lineno, node.col_offset + 1
        around = within or node
        decorators = [each.lineno for each in getattr(node, "decorator_list", [])]
        self._report.add(
            finding(rule, file, line, message, hint, column=column, severity=severity),
            min([around.lineno, *decorators]),
            around.end_lineno or around.lineno,
        )


_ANNOTATED = ("typing.Annotated", "typing_extensions.Annotated")


def _lane(decorator: str) -> tuple[str, str] | None:
    """Point and lane of a decorator; None when there is none of that name."""
    lane, _, name = decorator.partition("_")
    point = _POINT_OF.get(name)
    if point is None or not (point.observe if lane == "on" else point.modify):
        return None
    return point.name, "observe" if lane == "on" else "modify"


def _constant(node: ast.expr) -> object:
    """The value of a literal, _decorate.UNTOLD when the expression is none."""
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return _decorate.UNTOLD


def _yields(function: Function) -> bool:
    stack: list[ast.AST] = list(function.body)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(node, Function | ast.ClassDef | ast.Lambda):
            stack.extend(ast.iter_child_nodes(node))
    return False
