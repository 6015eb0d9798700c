"""Tools of the card replacement."""

from __future__ import annotations

from belay.tools import ToolContext, ToolResult, tool
from lib import accounts


@tool(description="Block a card for good and order a new one.")
async def block_card(context: ToolContext) -> ToolResult:
    """Block the card that was chosen."""
    card = context.memory.get("card", "")
    if not accounts.block(context.memory.get("customer_id", ""), card):
        return ToolResult(llm_response={"error": "there is no such card"})
    days = 2 if context.memory.get("express") else 7
    return ToolResult(llm_response={"status": "blocked", "card": card, "new_card_in_days": days})
