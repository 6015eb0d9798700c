"""A module under a second name: the same object, never a second copy."""

from __future__ import annotations

import importlib
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType


class AliasLoader(Loader):
    """Loads a module by handing out the one that another name stands for."""

    def __init__(self, target: str) -> None:
        """Takes the full name of the module that is handed out."""
        self.target = target
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Imports the target; the import machinery then overwrites its __spec__."""
        module = importlib.import_module(self.target)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Puts back the module's own __spec__: relative imports in it go by that."""
        module.__spec__ = self._spec


def alias_spec(fullname: str, target: str) -> ModuleSpec:
    """A spec under which fullname is the module target, which is not imported yet.

    A finder must not import it: when that import comes round to fullname again, the
    import machinery would take the target's own spec for this one, and run it twice.
    """
    return ModuleSpec(fullname, AliasLoader(target))
