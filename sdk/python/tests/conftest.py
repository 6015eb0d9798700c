from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from belay import _imports, _registry
from belay._load import Loaded, load_agent
from belay._memory_uses import Declared


class Agent:
    """An agent's folder that a test fills and loads."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.imported: list[str] = []
        self.declared = Declared()

    def write(self, file: str, text: str | bytes) -> Path:
        path = self.root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else dedent(text).encode())
        return path

    def load(self, skip: tuple[str, ...] = ()) -> Loaded:
        return load_agent(
            self.root, skip=skip, importing=self.imported.append, declared=self.declared
        )

    def findings(self, text: str | None = None) -> list[tuple[str, int, str]]:
        """File, line and rule of each finding; text becomes hooks.py."""
        if text is not None:
            self.write("hooks.py", text)
        return [(f["file"], f["line"], f["rule"]) for f in self.load().findings]

    def rules(self, text: str) -> list[tuple[int, str]]:
        """Line and rule of each finding in hooks.py."""
        return [(line, rule) for _, line, rule in self.findings(text)]


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    root = tmp_path / "my agent"
    root.mkdir()
    before = sys.path.copy()
    yield Agent(root)
    _imports.uninstall()
    _registry._loaded = False
    sys.path[:] = before
    for name in [n for n in sys.modules if n.partition(".")[0] == "rasa"]:
        del sys.modules[name]


@pytest.fixture
def package(tmp_path: Path, agent: Agent) -> Callable[[str, str], None]:
    """Writes a file of an installed package."""
    site = tmp_path / "installed"
    site.mkdir()
    sys.path.insert(0, str(site))

    def write(file: str, text: str) -> None:
        path = site / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))

    return write
