"""A bank in a dictionary. Each conversation begins with the same balance."""

from __future__ import annotations

from typing import Any

_BALANCE = 2_000.0
_FEES = {"Harbour Rent": 0.5}
_accounts: dict[str, dict[str, Any]] = {}


def customer(sender: str) -> dict[str, Any]:
    """The customer who talks, made when they come for the first time."""
    key = f"C-{sender}"
    _accounts.setdefault(key, {"balance": _BALANCE, "cards": ["4821", "0077"], "sent": 0})
    return {"id": key, "name": "Mira", "limit": 1500}


def balance(key: str) -> float:
    """Euros on the account."""
    return float(_accounts[key]["balance"])


def number(key: str) -> str:
    """The account's number, which nobody is to read."""
    return "DE44 5001 0517 5407 3249 31"


def fee(recipient: str) -> float:
    """Euros that a transfer costs."""
    return _FEES.get(recipient, 0.0)


def send(key: str, amount: float, recipient: str) -> str | None:
    """Move money; None when the account does not cover it."""
    account = _accounts[key]
    total = amount + fee(recipient)
    if account["balance"] < total:
        return None
    account["balance"] -= total
    account["sent"] += 1
    return f"T-{account['sent']:04d}"


def cards(key: str) -> list[str]:
    """Last four digits of the cards that work."""
    return list(_accounts[key]["cards"])


def block(key: str, card: str) -> bool:
    """Block a card; False when there is none."""
    if card not in _accounts[key]["cards"]:
        return False
    _accounts[key]["cards"].remove(card)
    return True
