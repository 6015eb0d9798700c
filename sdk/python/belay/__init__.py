"""Hooks and tools for Belay agents.

A hook is an ``async`` function that Belay asks at a point of a conversational
turn. Put it into ``hooks.py`` or ``hooks/`` of the agent's folder::

    from belay.hooks import OutgoingTextPayload, modify_outgoing_text

    @modify_outgoing_text()
    async def sign(payload: OutgoingTextPayload) -> OutgoingTextPayload:
        return payload.model_copy(update={"text": payload.text + " – Your clinic"})

Tools stand in ``tools/``; see :mod:`belay.tools`. ``belay check DIR`` tells
what is wrong with an agent before it serves.
"""

from __future__ import annotations

from belay._shims import install_shims

__all__ = ["__version__", "install_shims"]

__version__ = "0.1.0"
