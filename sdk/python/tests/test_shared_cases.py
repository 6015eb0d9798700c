"""The cases that Go and Python share: see spec/cases/README.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from belay._payloads import _SHAPES

CASES = Path(__file__).parents[3] / "spec" / "cases"


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _fits(shape: str, text: str) -> bool:
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except ValueError:
        return False
    return _SHAPES[shape](value) == ""


@pytest.mark.parametrize(
    "case",
    json.loads((CASES / "shapes.json").read_text(encoding="utf-8")),
    ids=lambda case: f"{case['shape']} {case['json']}",
)
def test_a_value_fits_its_shape_as_it_does_in_go(case: dict[str, Any]) -> None:
    assert _fits(case["shape"], case["json"]) is case["fits"], case.get("why", "")


def test_every_shape_has_cases() -> None:
    cases = json.loads((CASES / "shapes.json").read_text(encoding="utf-8"))
    assert {case["shape"] for case in cases} == set(_SHAPES)
