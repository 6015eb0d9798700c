"""How an agent's own modules are imported.

``hooks``, ``tools``, ``skills`` and ``lib`` are packages of the agent, whatever else of
these names is installed; the tools of a skill are ``skills.<id>.tools``. ``lib/x.py`` is
one module under its two names, ``lib.x`` and ``x``, so that what tools and hooks keep in
it is shared; the short name hides nothing that is installed, so ``lib/redis.py`` may
itself import the package redis. Code is compiled from the source each time: a cached
file whose age is known to the second would run the hook as it was before a quick edit.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Collection, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import find_spec, spec_from_file_location
from types import CodeType, ModuleType
from typing import Any

from belay._aliases import alias_spec
from belay._files import AgentFiles, own_file

_OWN = ("hooks", "tools", "skills", "lib")


class SkippedModule(ImportError):
    """The module was left out because importing it hung or ended the interpreter."""


class Announcer:
    """Says which file is being imported, so that a hang can be told from its neighbour's."""

    def __init__(self, say: Callable[[str], None], skip: Collection[str]) -> None:
        self._say = say
        self._skip = frozenset(skip)
        self._open: list[str] = []
        self._failed: dict[str, BaseException] = {}

    def enter(self, file: str) -> None:
        """A file's code is about to run; SkippedModule when it must not."""
        if file in self._skip:
            raise SkippedModule(f"{file} is left out because it could not be imported before")
        if file in self._failed:  # not run again: what it registered would stand there twice
            raise self._failed[file]
        self._open.append(file)
        self._say(file)

    def leave(self, error: BaseException | None) -> None:
        """The file's code has ended; the one that imported it goes on."""
        file = self._open.pop()
        if error is not None:
            self._failed[file] = error
        if self._open:
            self._say(self._open[-1])

    def stop(self) -> None:
        """Loading is over: later imports are the agent's own affair."""
        self._say = lambda file: None
        self._failed.clear()


class _AuthoredLoader(SourceFileLoader):
    """Runs a file of the agent from its source."""

    def __init__(self, fullname: str, path: str, root: str, announcer: Announcer) -> None:
        super().__init__(fullname, path)
        self._file = os.path.relpath(path, root).replace(os.sep, "/")
        self._announcer = announcer

    def get_code(self, fullname: str) -> CodeType:
        """Compiles the source, without a cache."""
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code

    def exec_module(self, module: ModuleType) -> None:
        """Runs the file, announced."""
        self._announcer.enter(self._file)
        error: BaseException | None = None
        try:
            super().exec_module(module)
        except BaseException as raised:
            error = raised
            raise
        finally:
            self._announcer.leave(error)


class _FolderLoader(Loader):
    """Makes a package such as ``hooks`` or ``tools`` without running its ``__init__.py``.

    That file is passed over, but some other file may import a name from it: then it
    is run, once.
    """

    def __init__(self, init: _AuthoredLoader | None) -> None:
        self._init = init

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        if self._init is None:
            return
        pending = [self._init]

        def missing(name: str) -> Any:
            submodule = f"{module.__name__}.{name}"
            if pending and not name.startswith("__") and not find_spec(submodule):
                pending.pop().exec_module(module)
                if name in module.__dict__:
                    return module.__dict__[name]
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

        module.__dict__["__getattr__"] = missing


class AgentFinder(MetaPathFinder):
    """Finds the modules of one agent; to be asked first."""

    def __init__(self, files: AgentFiles, announcer: Announcer) -> None:
        self._root = files.root
        self._same = files.same
        self._paths = {source.module: source.path for source in files.authored}
        self._real = {os.path.realpath(path): name for name, path in self._paths.items()}
        self._folders: dict[str, str] = {}
        for name, path in self._paths.items():
            while "." in name:
                name, path = name.rpartition(".")[0], os.path.dirname(path)
                self._folders.setdefault(name, path)
        self._announcer = announcer

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Gives the spec of a module that is the agent's, None for any other."""
        head = fullname.partition(".")[0]
        if head in ("hooks", "tools", "skills"):
            return self._authored(fullname, path)
        if head == "lib":
            return self._library(fullname, path)
        if head in sys.stdlib_module_names or head == "belay":
            return None
        if self._is_library(fullname, path, head):
            return alias_spec(fullname, f"lib.{fullname}")
        return None

    def _authored(self, fullname: str, path: Sequence[str] | None) -> ModuleSpec | None:
        if fullname in self._same:
            return alias_spec(fullname, self._same[fullname])
        tail = fullname.rpartition(".")[2]
        for place in (self._root,) if path is None else path:
            folder = self._folders.get(fullname) or os.path.join(place, tail)
            inside = [folder] if os.path.isdir(folder) else None
            file = self._paths.get(fullname) or folder + ".py"
            if os.path.isfile(file):
                return spec_from_file_location(
                    fullname,
                    file,
                    loader=self._loader(fullname, file),
                    submodule_search_locations=inside,
                )
            if inside:
                init = os.path.join(folder, "__init__.py")
                loader = self._loader(fullname, init) if os.path.isfile(init) else None
                spec = ModuleSpec(fullname, _FolderLoader(loader), is_package=True)
                spec.submodule_search_locations = inside
                return spec
        return None

    def _library(self, fullname: str, path: Sequence[str] | None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, [self._root] if path is None else list(path))
        if spec is not None and type(spec.loader) is SourceFileLoader and spec.origin:
            if hook_module := self._real.get(os.path.realpath(spec.origin)):
                return alias_spec(fullname, hook_module)
            spec.loader = self._loader(fullname, spec.origin)
            spec.cached = None
        return spec

    def _is_library(self, fullname: str, path: Sequence[str] | None, head: str) -> bool:
        """Whether lib/ gives the module under its short name."""
        lib = os.path.join(self._root, "lib")
        if path is not None:  # a submodule: when its package came from lib/, it does too
            parent = sys.modules.get(fullname.rpartition(".")[0])
            return parent is not None and parent is sys.modules.get(
                f"lib.{fullname.rpartition('.')[0]}"
            )
        if PathFinder.find_spec(head, [lib]) is None:
            return False
        installed = PathFinder.find_spec(head)
        return installed is None or installed.loader is None  # a mere folder of that name

    def _loader(self, fullname: str, path: str) -> _AuthoredLoader:
        return _AuthoredLoader(fullname, path, self._root, self._announcer)


def install(finder: AgentFinder, root: str) -> None:
    """Makes an agent's modules importable and forgets those of an agent loaded before."""
    uninstall()
    for name in [m for m in sys.modules if m.partition(".")[0] in _OWN]:
        del sys.modules[name]
    sys.meta_path.insert(0, finder)
    if root not in sys.path:
        sys.path.append(root)  # last: a file at the root hides nothing that is installed
    importlib.invalidate_caches()


def uninstall() -> None:
    """Takes the finder of the agent loaded before away, with what it found."""
    for finder in [f for f in sys.meta_path if isinstance(f, AgentFinder)]:
        sys.meta_path.remove(finder)
        root = finder._root
        if root in sys.path:
            sys.path.remove(root)
        for name, module in list(sys.modules.items()):
            origin = getattr(module, "__file__", None)
            mine = isinstance(origin, str) and own_file(root, origin) is not None
            if mine or name.partition(".")[0] in _OWN:
                del sys.modules[name]
