"""Finds card and phone numbers in text."""

from __future__ import annotations

import re

_CARD = re.compile(r"\b\d(?:[ -]?\d){12,18}\b")
_PHONE = re.compile(r"(?<![\w/])\+?\d(?:[ /-]?\d){6,11}\b")


def _luhn(digits: str) -> bool:
    total = 0
    for place, digit in enumerate(reversed(digits)):
        value = int(digit)
        if place % 2:
            value = value * 2 - 9 if value > 4 else value * 2
        total += value
    return total % 10 == 0


def mask(text: str) -> str:
    """Replace card numbers (checked by their last digit) and phone numbers by what they are."""

    def card(match: re.Match[str]) -> str:
        digits = re.sub(r"\D", "", match[0])
        return f"[card ending {digits[-4:]}]" if _luhn(digits) else match[0]

    return _PHONE.sub("[phone number]", _CARD.sub(card, text))
