"""Finds and reads the Python files of an agent's folder.

Hooks stand in ``hooks.py`` and anywhere under ``hooks/``, tools in ``tools.py`` and
directly in ``tools/``, and so those of a skill in ``skills/<id>/``. ``__init__.py``,
``__pycache__`` and names that begin with a dot are passed over. A file that two names
reach through a symbolic link is taken once.
"""

from __future__ import annotations

import ast
import contextlib
import os
import re
import stat
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field

from belay._rules import Finding, finding

#: How many files of lib/ that no hook or tool imports are looked at for syntax errors.
_STRAY_FILES = 100


@dataclass
class SourceFile:
    """One file: where it is, the module it is imported as, and its syntax tree."""

    path: str  # absolute
    file: str  # relative to the agent, with slashes
    module: str
    kind: str  # "hooks", "tools" or "lib"
    tree: ast.Module | None = None  # None when it could not be read or compiled


@dataclass
class AgentFiles:
    """The files of an agent, in the order in which they are imported."""

    root: str
    authored: list[SourceFile] = field(default_factory=list)  # hooks, tools, those of skills
    linked: list[SourceFile] = field(default_factory=list)  # other names of authored files
    inits: list[SourceFile] = field(default_factory=list)  # __init__.py of hooks and tools
    library: dict[str, SourceFile | None] = field(default_factory=dict)  # by module, when asked for
    same: dict[str, str] = field(default_factory=dict)  # module -> the module it is a link to
    findings: list[Finding] = field(default_factory=list)

    def module(self, name: str) -> SourceFile | None:
        """The file that is imported under that name, read and compiled."""
        for source in self.authored:
            if source.module == name:
                return source
        if name.partition(".")[0] in sys.stdlib_module_names:
            return None
        return self.from_library(name) or self.from_library(f"lib.{name}")

    def from_library(self, name: str) -> SourceFile | None:
        """The file of lib/ or of a skill that is imported as name, read at the first call."""
        if name.partition(".")[0] not in ("lib", "skills"):
            return None
        if name not in self.library:
            self.library[name] = None
            base = os.path.join(self.root, *name.split("."))
            for path in (os.path.join(base, "__init__.py"), base + ".py"):
                if os.path.isfile(path):
                    source = SourceFile(path, _slashes(self.root, path), name, "lib")
                    self.library[name] = source
                    self._parse(source)
                    break
        return self.library.get(name)

    def strays(self) -> None:
        """Looks for syntax errors in the files of lib/ that nothing was seen to import."""
        known = {source.path for source in self.library.values() if source}
        left = _STRAY_FILES
        for path in _walk(os.path.join(self.root, "lib"), self, quiet=True):
            if path in known or not path.endswith(".py") or left == 0:
                continue
            left -= 1
            self._parse(SourceFile(path, _slashes(self.root, path), "", "lib"), "warning")

    def _parse(self, source: SourceFile, severity: str = "error") -> None:
        if text := self._read(source.path, source.file):
            try:
                source.tree = parse(text, source.path)
            except SyntaxError as error:
                self.findings.append(syntax_finding(error, source.file, severity))
            except (ValueError, RecursionError, MemoryError) as error:
                self.findings.append(
                    finding(
                        "syntax-error",
                        source.file,
                        1,
                        f"cannot be compiled: {_reason(error)}",
                        "the file must be Python source in UTF-8, not too deeply nested",
                        severity=severity,
                    )
                )
        elif text is not None:
            source.tree = ast.Module(body=[], type_ignores=[])

    def _read(self, path: str, file: str) -> bytes | None:
        try:
            if not stat.S_ISREG(os.stat(path).st_mode):
                raise OSError("it is not a regular file")
            with open(path, "rb") as opened:
                return opened.read()
        except OSError as error:
            self._unreadable(file, error)
            return None

    def _unreadable(self, file: str, error: OSError) -> None:
        self.findings.append(
            finding(
                "unreadable-file",
                file,
                0,
                f"cannot be read: {error.strerror or error}",
                "make it a readable file, or remove it",
            )
        )

    def _add(self, path: str, module: str, kind: str, seen: dict[str, str]) -> None:
        real = os.path.realpath(path)
        if real in seen:
            self.same[module] = seen[real]
            self.linked.append(SourceFile(path, _slashes(self.root, path), seen[real], kind))
            return
        seen[real] = module
        source = SourceFile(path, _slashes(self.root, path), module, kind)
        if os.path.basename(path) == "__init__.py":
            self.inits.append(source)
            text = _quietly_read(path)
            # It is passed over: when something imports a name from it, that fails aloud.
            with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
                source.tree = parse(text, path) if text else None
            return
        self._parse(source)
        self.authored.append(source)


def find_files(root: str) -> AgentFiles:
    """Finds and compiles the hook and tool files under root, an absolute path."""
    files = AgentFiles(root)
    seen: dict[str, str] = {}
    for kind in ("hooks", "tools"):
        _find(files, root, kind, kind, seen)
    taken: set[str] = set()
    for skill in _skills(files):
        package = _module_name("skills", skill + ".py", taken)
        _find(files, os.path.join(root, "skills", skill), "tools", f"{package}.tools", seen)
    return files


def skill_of(file: str) -> str:
    """The id of the skill whose folder holds the file, relative to the agent; "" for none."""
    parts = file.split("/")
    return parts[1] if len(parts) > 2 and parts[0] == "skills" else ""


def _find(files: AgentFiles, place: str, kind: str, module: str, seen: dict[str, str]) -> None:
    """Adds the file and the folder that are named kind in a place."""
    single = os.path.join(place, kind + ".py")
    if os.path.lexists(single):
        files._add(single, module, kind, seen)
    folder = os.path.join(place, kind)
    taken = {module}
    for path in _walk(folder, files):
        below = os.path.relpath(path, folder)
        if kind == "tools" and os.sep in below:
            continue
        files._add(path, _module_name(module, below, taken), kind, seen)


def _skills(files: AgentFiles) -> list[str]:
    folder = os.path.join(files.root, "skills")
    try:
        return sorted(
            entry.name
            for entry in os.scandir(folder)
            if not entry.name.startswith((".", "__")) and _is_dir(entry)
        )
    except OSError as error:
        if os.path.isdir(folder):
            files._unreadable("skills", error)
        return []


def own_file(root: str, path: str) -> str | None:
    """The path relative to the agent, with slashes; None when the file is not the agent's.

    An environment inside the agent's folder is not the agent's own code.
    """
    if not path.startswith(root + os.sep) or path.startswith(sys.prefix + os.sep) != (
        root.startswith(sys.prefix + os.sep)
    ):
        return None
    file = _slashes(root, path)
    if any(part.startswith(".") or part == "site-packages" for part in file.split("/")):
        return None
    return file


def parse(text: bytes, path: str) -> ast.Module:
    """Compiles source and gives its syntax tree.

    SyntaxError, ValueError, RecursionError or MemoryError when it cannot be.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they come again, to the log, at import
        tree = ast.parse(text, path)
        compile(tree, path, "exec", dont_inherit=True)  # finds what the parser does not
    return tree


def syntax_finding(error: SyntaxError, file: str, severity: str = "error") -> Finding:
    """The finding for a file that does not compile."""
    return finding(
        "syntax-error",
        file,
        error.lineno or 1,
        f"is no valid Python: {error.msg}",
        "mend the syntax at this place",
        column=error.offset or 0,
        severity=severity,
    )


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _quietly_read(path: str) -> bytes | None:
    try:
        if stat.S_ISREG(os.stat(path).st_mode):
            with open(path, "rb") as opened:
                return opened.read()
    except OSError:
        pass
    return None


def _walk(top: str, files: AgentFiles, *, quiet: bool = False) -> Iterator[str]:
    """The *.py files below top in order, through links to folders too, loops left out."""
    yield from _walk_below(top, files, (os.path.realpath(top),), quiet)


def _walk_below(
    folder: str, files: AgentFiles, above: tuple[str, ...], quiet: bool
) -> Iterator[str]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except FileNotFoundError:
        return
    except OSError as error:
        if not quiet and os.path.isdir(folder):
            files._unreadable(_slashes(files.root, folder), error)
        return
    folders = []
    for entry in entries:
        if entry.name.startswith(".") or entry.name == "__pycache__":
            continue
        if _is_dir(entry):
            folders.append(entry.path)
        elif entry.name.endswith(".py"):
            yield entry.path
    for path in folders:
        real = os.path.realpath(path)
        if real in above:
            if not quiet:
                files.findings.append(
                    finding(
                        "symlink-loop",
                        _slashes(files.root, path),
                        0,
                        "links back to a folder that holds it",
                        "remove the link",
                    )
                )
            continue
        yield from _walk_below(path, files, (*above, real), quiet)


def _is_dir(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _module_name(kind: str, below: str, taken: set[str]) -> str:
    """A module name for a file, unique also when its path has dots or spaces in it."""
    parts = below[: -len(".py")].split(os.sep)
    name = ".".join([kind, *(re.sub(r"[.\s]", "_", part) for part in parts)])
    unique, count = name, 1
    while unique in taken:
        count += 1
        unique = f"{name}_{count}"
    taken.add(unique)
    return unique


def _slashes(root: str, path: str) -> str:
    return os.path.relpath(path, root).replace(os.sep, "/")
