"""Loads an agent's hooks and tools, with everything that is wrong with them.

:func:`load_agent` compiles and checks all files before it imports any, imports what
compiles, and looks at what the decorators registered. Agent code that is wrong is
reported as findings; it never makes the loader raise.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from belay import _check, _imports, _registry, _shims, _toolbox, hooks, tools
from belay._files import SourceFile, find_files, own_file, syntax_finding
from belay._memory_uses import Declared
from belay._payloads import PAYLOAD_TYPES
from belay._rules import Finding, finding
from belay._toolbox import ToolEntry
from belay.hooks import Payload

__all__ = ["HookEntry", "Loaded", "ToolEntry", "load_agent"]


@dataclass
class HookEntry:
    """One registered hook."""

    name: str  # "<file>:<function>", such as "hooks/mask.py:mask_cards"
    point: str
    lane: str  # "observe" or "modify"
    final: bool
    timeout_ms: int
    file: str  # relative to the agent, with slashes
    line: int  # of the decorator
    fn: Callable[..., Any]
    payload_type: type[Payload]


@dataclass
class Loaded:
    """An agent's hooks and tools. With a finding of severity "error" it must not serve."""

    hooks: list[HookEntry] = field(default_factory=list)
    tools: list[ToolEntry] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


_NOTHING = Declared()


def load_agent(
    root: Path,
    *,
    skip: Collection[str] = (),
    importing: Callable[[str], None] = lambda file: None,
    declared: Declared = _NOTHING,
) -> Loaded:
    """Loads the agent in the folder root.

    Args:
        root: The agent's folder.
        skip: Files, relative to root, that are not imported: they hung or ended the
            interpreter at an earlier try.
        importing: Called with a file's relative path before its code runs, and again
            when the code that imported another file goes on.
        declared: The memory that the agent's memory.yml files declare.
    """
    base = os.path.realpath(root)
    files = find_files(base)
    report = _check.check_files(files, declared)
    collector = _registry.Collector(base)
    announcer = _imports.Announcer(importing, skip)
    _shims.install_shims()
    _imports.install(_imports.AgentFinder(files, announcer), base)
    findings = [*files.findings, *report.findings]
    with _registry.collecting(collector):
        for source in files.authored:
            if source.tree is None or source.file in skip:
                _stand_in(source)
            else:
                findings += _import(source, base)
        tools, tool_findings = _toolbox.collect(collector, files)
    announcer.stop()
    hooks = [h for h in collector.hooks if not _toolbox.is_init(h.file)]
    findings += _foreign(report)
    findings += report.check_registered(hooks, [*collector.findings, *tool_findings])
    return Loaded(_entries(hooks), tools, _sorted(findings))


def _import(source: SourceFile, root: str) -> list[Finding]:
    try:
        import_module(source.module)
    except _imports.SkippedModule:
        return []  # the host reports the file that was skipped
    except BaseException as error:  # also SystemExit and KeyboardInterrupt of the agent's code
        _stand_in(source)
        return [_import_finding(error, source, root)]
    return []


def _stand_in(source: SourceFile) -> None:
    """Lets hooks/ or tools/ be imported although the file, its package, could not be."""
    folder = source.path[: -len(".py")]
    if source.module.rpartition(".")[2] in ("hooks", "tools") and os.path.isdir(folder):
        package = ModuleType(source.module)
        package.__path__ = [folder]
        sys.modules[source.module] = package


# Exceptions whose texts are the interpreter's own words about names in the code. The
# texts of others may hold values (a key from the environment) and are left out.
_PLAIN = (ImportError, NameError, AttributeError, SyntaxError)


def _import_finding(error: BaseException, source: SourceFile, root: str) -> Finding:
    if isinstance(error, SyntaxError) and error.filename:
        if file := own_file(root, error.filename):
            return syntax_finding(error, file)
    file, line = _innermost(error, root) or (source.file, 1)
    what = type(error).__name__
    if isinstance(error, _PLAIN) and str(error):
        what += f": {str(error).splitlines()[0]}"
    by = "" if file == source.file else f", imported by {source.file}"
    return finding(
        "import-error", file, line, f"raises while it is imported{by}: {what}", _mend(error)
    )


def _mend(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name:
        if error.name.partition(".")[0] == "rasa":
            known = ", ".join(sorted(_shims.SHIMS))
            return f"import from belay.hooks or belay.tools; stood in for are only {known}"
        return (
            f"install the package that gives {error.name} into the environment that runs "
            f"the agent, or put the module into lib/"
        )
    if isinstance(error, NameError):
        for module in (hooks, tools):
            if error.name in module.__all__:
                return f"write from {module.__name__} import {error.name}"
    if isinstance(error, SystemExit):
        return "a hook or tool file must not end the interpreter; remove the call"
    return "mend the code at this line; it runs when the agent is loaded"


def _innermost(error: BaseException, root: str) -> tuple[str, int] | None:
    """File and line of the deepest frame in the agent's own code."""
    place = None
    trace = error.__traceback__
    while trace is not None:
        if file := own_file(root, trace.tb_frame.f_code.co_filename):
            place = file, trace.tb_lineno
        trace = trace.tb_next
    return place


def _foreign(report: _check.Report) -> list[Finding]:
    """Imports that reached an installed package whose decorators Belay never sees."""
    findings = []
    for use in report.shim_imports:
        module = sys.modules.get(use.module)
        if module is None or _shims.is_ours(module):
            continue
        kind = "hooks" if use.module.endswith(".hooks") else "tools"
        place = getattr(module, "__file__", None) or "an unknown place"
        findings.append(
            finding(
                f"foreign-{kind}",
                use.file,
                use.line,
                f"{use.module} is the installed package's own ({place}); "
                f"what it decorates is never asked by Belay",
                f"import from belay.{kind}, or run the agent in an environment without "
                f"the package rasa",
                column=use.column,
            )
        )
    return findings


def _entries(hooks: list[_registry.Hook]) -> list[HookEntry]:
    entries = []
    count: dict[str, int] = {}
    for hook in hooks:
        name = f"{hook.file}:{hook.name}"
        count[name] = count.get(name, 0) + 1
        if count[name] > 1:
            name += f"#{count[name]}"
        entries.append(
            HookEntry(
                name=name,
                point=hook.point,
                lane=hook.lane,
                final=hook.final,
                timeout_ms=hook.timeout_ms,
                file=hook.file,
                line=hook.line,
                fn=hook.fn,
                payload_type=PAYLOAD_TYPES[hook.point],
            )
        )
    return entries


def _sorted(findings: list[Finding]) -> list[Finding]:
    """By place; two that say the same of one place are one."""
    unique: dict[tuple[str, int, str, str], Finding] = {}
    for f in findings:
        # Each file that imports a broken one fails at the same place, in other words.
        message = "" if f["rule"] == "import-error" else f["message"]
        unique.setdefault((f["file"], f["line"], f["rule"], message), f)
    return sorted(unique.values(), key=lambda f: (f["file"], f["line"], f["column"], f["rule"]))
