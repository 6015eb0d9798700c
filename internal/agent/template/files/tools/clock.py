"""A tool that the model may call."""

from __future__ import annotations

from datetime import datetime

from belay.tools import ToolResult, tool


@tool(description="The time and the day of the week at the shop.")
async def current_time() -> ToolResult:
    """Read the clock."""
    now = datetime.now().astimezone()
    return ToolResult(llm_response={"time": now.strftime("%H:%M"), "day": now.strftime("%A")})
