"""The model may claim only what the record supports."""

from __future__ import annotations

from belay.hooks import (
    KnowledgeQueryPayload,
    KnowledgeResultsPayload,
    ModelResponsePayload,
    RetryModel,
    ToolCallPayload,
    modify_knowledge_query,
    modify_knowledge_results,
    modify_model_response,
    modify_tool_call,
)
from lib.ledger import bookings

_CLAIMS = ("is booked", "have booked", "i booked", "booked you")


@modify_model_response()
async def no_false_booking(response: ModelResponsePayload) -> ModelResponsePayload:
    """A claim of a booking that no tool made is not sent: the model is asked again."""
    text = (response.text or "").lower()
    if any(claim in text for claim in _CLAIMS) and not bookings(response.sender_id):
        raise RetryModel(feedback="No appointment was booked in this conversation. Do not claim one; offer to book instead.")
    return response


@modify_tool_call()
async def known_patients_only(call: ToolCallPayload) -> ToolCallPayload:
    """The model may look up a patient only by a full patient number."""
    if call.tool_name == "lookup_patient" and not str(call.arguments.get("patient_id", "")).startswith("P-"):
        raise RetryModel(feedback="Ask for the patient number, such as P-1001, before you look up a patient.")
    if call.tool_name == "find_slots":
        return call.model_copy(update={"arguments": {**call.arguments, "day": str(call.arguments.get("day", "")).capitalize()}})
    return call


@modify_knowledge_query()
async def clean_query(payload: KnowledgeQueryPayload) -> KnowledgeQueryPayload:
    """Search for what was asked, without the question mark and the courtesies."""
    return payload.model_copy(update={"query": payload.query.replace("please", "").strip(" ?!")})


@modify_knowledge_results()
async def drop_low_scores(payload: KnowledgeResultsPayload) -> KnowledgeResultsPayload:
    """A passage that hardly fits is worse than none."""
    good = [p for p in payload.passages if float(p.get("score") or 0.0) >= 0.2]
    return payload.model_copy(update={"passages": good})
