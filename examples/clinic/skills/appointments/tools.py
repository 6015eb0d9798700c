"""The calendar. It is made up and lives in this process."""

from __future__ import annotations

from belay.tools import ToolContext, ToolResult, tool
from lib.ledger import note_booking

_FREE = {"Monday": ["9:00", "10:30"], "Tuesday": ["8:30", "14:00"], "Friday": ["11:00"]}


@tool(description="Free times of a doctor on a weekday.")
async def find_slots(doctor: str, day: str) -> ToolResult:
    """Look into the calendar.

    Args:
        doctor: Name of the doctor, such as Dr. Weber.
        day: Day of the week, in English.
    """
    return ToolResult(llm_response={"doctor": doctor, "day": day, "free": _FREE.get(day.capitalize(), [])})


@tool(description="Book an appointment.")
async def book_appointment(doctor: str, day: str, time: str, context: ToolContext) -> ToolResult:
    """Take a free time.

    Args:
        doctor: Name of the doctor.
        day: Day of the week.
        time: Time of day, such as 10:30.
    """
    free = _FREE.get(day.capitalize(), [])
    if time not in free:
        return ToolResult(llm_response={"status": "taken", "free": free})
    note_booking(context.sender_id)
    context.memory.set("booked", True)
    return ToolResult(llm_response={"status": "booked", "doctor": doctor, "day": day, "time": time})
