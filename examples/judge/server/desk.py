"""A desk that takes orders. They are made up and kept nowhere."""

from __future__ import annotations

from mcp.server import MCPServer
from mcp.types import ToolAnnotations

server = MCPServer("desk")


@server.tool(annotations=ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False))
def order(item: str, amount: int) -> dict:
    """Place an order."""
    return {"ordered": item, "amount": amount}


if __name__ == "__main__":
    server.run()
