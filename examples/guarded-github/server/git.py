"""A git repository as MCP functions. The repository is the one that ACME_REPOSITORY names."""

from __future__ import annotations

import os
import subprocess

from mcp.server import MCPServer
from mcp.types import ToolAnnotations

server = MCPServer("acme-git")
READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
WRITES = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)


def _git(*args: str) -> str:
    done = subprocess.run(
        ["git", "-C", os.environ["ACME_REPOSITORY"], *args], capture_output=True, text=True, timeout=30, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"git {args[0]} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.strip()


@server.tool(annotations=READS)
def log(branch: str) -> str:
    """The last commits of a branch, one a line."""
    return _git("log", "--max-count=10", "--format=%h %an <%ae> %s", branch, "--")


@server.tool(annotations=WRITES)
def merge(branch: str, into: str) -> dict:
    """Merge a branch into another one."""
    _git("checkout", "--quiet", into)
    _git("merge", "--quiet", "--no-edit", branch)
    return {"merged": branch, "into": into, "commit": _git("rev-parse", "--short", "HEAD")}


@server.tool(annotations=WRITES)
def push(branch: str) -> dict:
    """Push a branch to origin."""
    _git("push", "--quiet", "origin", branch)
    return {"pushed": branch}


if __name__ == "__main__":
    server.run()
