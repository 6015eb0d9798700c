"""Stand-ins for the module names under which older agents import hooks and tools.

``rasa.mantle.hooks`` is :mod:`belay.hooks` itself, the tool modules are
:mod:`belay.tools`, and so on, when the real packages cannot be imported: the finder stands
at the end of ``sys.meta_path``, so that an installed package always wins. What
an installed one decorates does not reach Belay; the loader reports that.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from belay._aliases import alias_spec

#: The modules that are stood in for, and what they stand for.
SHIMS: dict[str, str] = {
    "rasa.mantle.hooks": "belay.hooks",
    "rasa.mantle.tools.decorator": "belay.tools",
    "rasa.mantle.tools.result": "belay.tools",
    "rasa.mantle.memory.manager": "belay.memory",
    "rasa.mantle.orchestration.turn_context": "belay._turn",
    "rasa.calm_v2.tools.decorator": "belay.tools",
    "rasa.calm_v2.tools.result": "belay.tools",
    "rasa.calm_v2.memory.manager": "belay.memory",
    "rasa.calm_v2.orchestration.turn_context": "belay._turn",
    "rasa.shared.core.events": "belay._events",
}

#: Their parents, each with the module whose public names it gives too.
PACKAGES: dict[str, str] = {
    "rasa": "",
    "rasa.mantle": "",
    "rasa.mantle.tools": "belay.tools",
    "rasa.mantle.memory": "belay.memory",
    "rasa.mantle.orchestration": "",
    "rasa.calm_v2": "",
    "rasa.calm_v2.tools": "belay.tools",
    "rasa.calm_v2.memory": "belay.memory",
    "rasa.calm_v2.orchestration": "",
    "rasa.shared": "",
    "rasa.shared.core": "",
}


class _PackageLoader(Loader):
    """Makes a package that holds stand-ins."""

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        module.__doc__ = "A stand-in that holds only names which Belay gives."
        if source := PACKAGES[module.__name__]:
            given = importlib.import_module(source)
            names: list[str] = given.__all__
            module.__dict__.update({name: getattr(given, name) for name in names})
            module.__dict__["__all__"] = names


class ShimFinder(MetaPathFinder):
    """Finds the stand-ins; to be asked last."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Gives a stand-in for the names in :data:`SHIMS` and :data:`PACKAGES`."""
        if fullname in SHIMS:
            return alias_spec(fullname, SHIMS[fullname])
        if fullname in PACKAGES:
            return ModuleSpec(fullname, _PackageLoader(), is_package=True)
        return None


def install_shims() -> None:
    """Makes the older names importable in this process, where nothing else gives them.

    The worker does this by itself. Call it in a ``conftest.py`` when your unit
    tests import hook files that use the older names.
    """
    if not any(isinstance(f, ShimFinder) for f in sys.meta_path):
        sys.meta_path.append(ShimFinder())


def is_ours(module: ModuleType) -> bool:
    """Whether a module imported under an older name is a stand-in."""
    loader = getattr(module.__spec__, "loader", None)
    return module.__name__.startswith("belay.") or isinstance(loader, _PackageLoader)
