"""The tools of the clinic. The calendar is made up and lives in this process."""

from __future__ import annotations

from belay.tools import ToolContext, ToolResult, tool
from lib.ledger import note_booking

_FREE = {"Monday": ["9:00", "10:30"], "Tuesday": ["8:30", "14:00"], "Friday": ["11:00"]}
_PATIENTS = {
    "P-1001": {"name": "Ada Jones", "insurance": "Public 77-231-9", "birth_date": "1961-04-02", "last_visit": "in March"},
}


@tool(description="Free times of a doctor on a weekday.")
async def find_slots(doctor: str, day: str) -> ToolResult:
    """Look into the calendar.

    Args:
        doctor: Name of the doctor, such as Dr. Weber.
        day: Day of the week, in English.
    """
    return ToolResult(llm_response={"doctor": doctor, "day": day, "free": _FREE.get(day.capitalize(), [])})


@tool(
    description="Book an appointment.",
    requires_confirmation=True,
    utter_for_confirmation="utter_confirm_booking",
    utter_on_user_denial="utter_booking_declined",
)
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
    return ToolResult(llm_response={"status": "booked", "doctor": doctor, "day": day, "time": time})


@tool(description="What the clinic knows about a patient.")
async def lookup_patient(patient_id: str) -> ToolResult:
    """Read a patient's file.

    Args:
        patient_id: The patient's number, such as P-1001.
    """
    return ToolResult(llm_response=_PATIENTS.get(patient_id, {"status": "unknown"}))
