"""What tools really did in each conversation, shared by tools and hooks of this process."""

from __future__ import annotations

booked: dict[str, int] = {}


def note_booking(sender_id: str) -> None:
    """Count a booking that was really made."""
    booked[sender_id] = booked.get(sender_id, 0) + 1


def bookings(sender_id: str) -> int:
    """How many bookings were made in the conversation."""
    return booked.get(sender_id, 0)
