"""Tools of the transfer: nobody else's business."""

from __future__ import annotations

from belay.tools import ToolContext, ToolResult, tool
from lib import accounts


@tool(description="Looks at an amount before it is kept.")
async def validate_amount(amount: float, context: ToolContext) -> ToolResult:
    """Refuse what no transfer can be.

    Args:
        amount: Euros.
    """
    limit = context.memory.get("daily_limit", 0)
    if amount <= 0:
        return ToolResult(llm_response={"error": "the amount must be more than 0 euros"})
    if amount > limit:
        return ToolResult(llm_response={"error": f"one transfer can be at most {limit:g} euros"})
    return ToolResult(llm_response={"valid": True})


@tool(description="Whether the account covers a transfer, and what it costs.")
async def check_cover(amount: float, recipient: str, context: ToolContext) -> ToolResult:
    """Look at the balance.

    Args:
        amount: Euros.
        recipient: A saved recipient.
    """
    customer = context.memory.get("customer_id", "")
    fee = accounts.fee(recipient)
    covered = accounts.balance(customer) >= amount + fee
    context.memory.set("covered", covered)
    context.memory.set("fee", fee)
    return ToolResult(
        llm_response={"covered": covered, "fee": fee, "recipient": recipient, "account": accounts.number(customer)}
    )


@tool(description="Send the money. The customer is asked before it happens.")
async def make_transfer(context: ToolContext) -> ToolResult:
    """Move the money as it was collected."""
    customer = context.memory.get("customer_id", "")
    amount, recipient = context.memory.get("amount"), context.memory.get("recipient")
    if not amount or not recipient:
        return ToolResult(llm_response={"error": "amount or recipient is missing"})
    reference = accounts.send(customer, float(amount), str(recipient))
    if reference is None:
        return ToolResult(llm_response={"error": "the account does not cover it"})
    context.memory.set("reference", reference)
    return ToolResult(llm_response={"status": "sent", "reference": reference})
