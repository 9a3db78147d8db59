"""What an answer cost, in counters that do not overlap.

Rules (wires.md 1.2):

- ``input`` counts prompt tokens neither read from nor written to a cache, ``cache_read`` and
  ``cache_write`` those that were, ``output`` generated tokens that are not reasoning, ``reasoning`` the rest.
- ``None`` is "not reported", which is not 0. Adding ``None`` to a number gives the number.
- ``raw_json`` is the provider's own object, whole. A sum has none.
- ``passes`` are passes of other kinds or other models within one answer (compaction, an advisor), which
  the provider counts apart; ``total`` leaves them out.

Stability: stable.
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Raw, Struct, UnsetType, field

from palaver.core import jsontext

_COUNTERS = ("input", "cache_read", "cache_write", "output", "reasoning")


class Usage(
    Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True, forbid_unknown_fields=True
):
    """Disjoint token counters, and the provider's own object."""

    input: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    output: int | None = None
    reasoning: int | None = None
    passes: tuple[UsagePass, ...] = ()
    raw_json: Raw | UnsetType = field(default=UNSET, name="raw")

    @property
    def raw(self) -> Any:  # noqa: ANN401 (any JSON value)
        """The provider's own object, parsed and frozen; ``None`` when there is none."""
        return None if self.raw_json is UNSET else jsontext.view(self.raw_json)

    @property
    def total(self) -> int:
        """The sum of the counters that were reported."""
        return sum(getattr(self, name) or 0 for name in _COUNTERS)

    def __add__(self, other: Usage) -> Usage:
        """Add counter by counter; the raw objects are left behind."""
        if not isinstance(other, Usage):  # pyright: ignore[reportUnnecessaryIsInstance] (operators get anything)
            return NotImplemented
        return Usage(
            **{name: _add(getattr(self, name), getattr(other, name)) for name in _COUNTERS},
            passes=self.passes + other.passes,
        )

    def __radd__(self, other: object) -> Usage:
        """Let ``sum()`` start from 0."""
        return self if other == 0 else NotImplemented

    def __eq__(self, other: object) -> bool:
        """Compare counters, passes, and the raw objects by what they say."""
        if not isinstance(other, Usage):
            return NotImplemented
        mine, theirs = self.raw_json, other.raw_json
        same_raw = mine is theirs or (
            isinstance(mine, Raw) and isinstance(theirs, Raw) and jsontext.equal(mine, theirs)
        )
        return same_raw and self._counts() == other._counts()

    def __hash__(self) -> int:
        """Hash the counters."""
        return hash(self._counts())

    def _counts(self) -> tuple[object, ...]:
        return (*(getattr(self, name) for name in _COUNTERS), self.passes)

    def __repr__(self) -> str:
        """Show the counters that were reported."""
        shown = (
            f"{name}={getattr(self, name)}" for name in _COUNTERS if getattr(self, name) is not None
        )
        return f"Usage({', '.join(shown)})"


class UsagePass(
    Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True, forbid_unknown_fields=True
):
    """One pass that is counted apart: its ``kind`` in the provider's word, and its model where it was another."""

    kind: str
    model: str | None = None
    usage: Usage


def _add(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else one + other
