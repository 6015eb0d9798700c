"""The patients' files. They are made up."""

from __future__ import annotations

from belay.tools import ToolResult, tool

_PATIENTS = {
    "P-1001": {"name": "Ada Jones", "insurance": "Public 77-231-9", "birth_date": "1961-04-02", "last_visit": "in March"},
}


@tool(description="What the clinic knows about a patient.")
async def lookup_patient(patient_id: str) -> ToolResult:
    """Read a patient's file.

    Args:
        patient_id: The patient's number, such as P-1001.
    """
    return ToolResult(llm_response=_PATIENTS.get(patient_id, {"status": "unknown"}))
