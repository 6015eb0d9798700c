"""Tools that several skills use."""

from __future__ import annotations

from belay.tools import ToolContext, ToolResult, tool
from lib import accounts


@tool(description="Load who is talking.")
async def load_customer(context: ToolContext) -> ToolResult:
    """Look the customer up by the id of the conversation."""
    customer = accounts.customer(context.sender_id)
    context.memory.set("customer_id", customer["id"])
    context.memory.set("customer_name", customer["name"])
    context.memory.set("daily_limit", customer["limit"])
    return ToolResult(llm_response={"status": "loaded"})


@tool(description="The customer's cards, by their last four digits.")
async def list_cards(context: ToolContext) -> ToolResult:
    """List cards that are not blocked."""
    return ToolResult(llm_response={"cards": accounts.cards(context.memory.get("customer_id", ""))})
