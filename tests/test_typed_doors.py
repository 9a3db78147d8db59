"""No public function takes keywords that nobody can see: an editor completes what is written, a checker checks it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

LOCK: Final = Path(__file__).resolve().parents[1] / "docs" / "reference" / "api.lock"
UNTYPED: Final = re.compile(r"[(,] ?\*\*\w+(?:: (?:typing\.)?(?:Any|object)\b|(?=[,)]))")


def untyped(lines: list[str]) -> set[str]:
    """The names of the signatures that take keywords of any type."""
    return {line.split()[1].partition("(")[0] for line in lines if not line.startswith("#") and UNTYPED.search(line)}


@pytest.mark.finding("F-01")
def test_no_public_signature_takes_untyped_keywords():
    assert untyped(LOCK.read_text().splitlines()) == set()


def test_the_check_sees_untyped_keywords():
    lines = [
        "stable        palaver.user(*content: str, **fields: Any) -> UserMessage",
        "stable        palaver.run(self, **how: object) -> Run",
        "stable        palaver.go(**how) -> Run",
        "stable        palaver.good(**changes: Unpack[Fields]) -> Run",
        "stable        palaver.power(x: int = 2**3) -> int",
    ]
    assert untyped(lines) == {"palaver.user", "palaver.run", "palaver.go"}
