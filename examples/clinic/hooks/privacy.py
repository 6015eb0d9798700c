"""What must not be stored, and what must not be said."""

from __future__ import annotations

import json

from belay.hooks import (
    HookRejection,
    IncomingMessagePayload,
    ModelRequestPayload,
    OutgoingTextPayload,
    ToolResultPayload,
    modify_incoming_message,
    modify_model_request,
    modify_outgoing_text,
    modify_tool_result,
)
from lib.masking import mask

_PRIVATE = ("insurance", "birth_date")


@modify_incoming_message()
async def mask_numbers(message: IncomingMessagePayload) -> IncomingMessagePayload:
    """Card and phone numbers are masked before anything is stored or sent to a model."""
    if "<script" in message.text.lower():
        raise HookRejection(reason="markup in a message")
    return message.model_copy(update={"text": mask(message.text)})


@modify_model_request()
async def steady(request: ModelRequestPayload) -> ModelRequestPayload:
    """Answers about appointments should not be creative."""
    return request.model_copy(update={"model_settings": {"temperature": 0.2}})


@modify_tool_result()
async def redact_patient(result: ToolResultPayload) -> ToolResultPayload:
    """Insurance numbers and birth dates leave neither the tool nor the clinic."""
    if result.tool_name != "lookup_patient" or result.is_error:
        return result
    patient = {key: value for key, value in json.loads(result.value).items() if key not in _PRIVATE}
    return result.model_copy(update={"value": json.dumps(patient)})


@modify_outgoing_text()
async def no_dosage(message: OutgoingTextPayload) -> OutgoingTextPayload:
    """Nora gives no medical advice, whatever the model says."""
    if " mg" in message.text:
        raise HookRejection(reason="the text names a dose")
    return message
