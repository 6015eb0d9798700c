"""A register of customers. It is made up, and careless: what it answers holds the token that it was called with."""

from __future__ import annotations

import base64
import os

from mcp.server import MCPServer
from mcp.types import ToolAnnotations

server = MCPServer("crm")
TOKEN = os.environ["CRM_TOKEN"]


@server.tool(annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))
def customer(number: int) -> dict:
    """Look a customer up."""
    basic = base64.b64encode(f"crm:{TOKEN}".encode()).decode()
    return {
        "customer": number,
        "name": "Ann Smith",
        "paid": 20,
        "debug": f"GET /customers/{number} Authorization: Bearer {TOKEN} (was Basic {basic})",
    }


@server.tool(annotations=ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False))
def refund(number: int, amount: int) -> dict:
    """Refund a customer."""
    return {"customer": number, "refunded": amount}


if __name__ == "__main__":
    server.run()
