"""What an answer cost, in counters that do not overlap.

Rules (docs/spec/wires.md#1.2):

- ``input`` counts prompt tokens neither read from nor written to a cache, ``cache_read`` and
  ``cache_write`` those that were, ``output`` generated tokens that are not reasoning, ``reasoning``
  the rest.
- ``None`` is "not reported", which is not 0. Adding ``None`` to a number gives the number.
- ``raw_json`` is the provider's own object, whole. A sum has none.
- ``passes`` are passes of other kinds or other models within one answer (compaction, an advisor),
  which the provider counts apart; ``total`` leaves them out.

Stability: stable.
"""

from __future__ import annotations

from typing import Any, final

from msgspec import UNSET, Raw, UnsetType, field

from palaver.core import jsontext
from palaver.core.type_checks import Checked
from palaver.core.value import Record

_COUNTERS = ("input", "cache_read", "cache_write", "output", "reasoning")


@final
class Usage(Record, frozen=True, kw_only=True, metaclass=Checked):
    """Disjoint token counters, and the provider's own object."""

    input: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    output: int | None = None
    reasoning: int | None = None
    passes: tuple[UsagePass, ...] = ()
    raw_json: Raw | UnsetType = field(default=UNSET, name="raw")

    @property
    def raw(self) -> Any:
        """The provider's own object, parsed and frozen; ``None`` when there is none."""
        return None if self.raw_json is UNSET else jsontext.view(self.raw_json)

    @property
    def total(self) -> int:
        """The sum of the counters that were reported."""
        return (
            (self.input or 0)
            + (self.cache_read or 0)
            + (self.cache_write or 0)
            + (self.output or 0)
            + (self.reasoning or 0)
        )

    def __add__(self, other: Usage) -> Usage:
        """Return the sum with ``other``, counter by counter. The sum has the passes of both, and no raw object."""
        if not isinstance(other, Usage):  # pyright: ignore[reportUnnecessaryIsInstance] (operators get anything)
            return NotImplemented
        return Usage(
            input=_add(self.input, other.input),
            cache_read=_add(self.cache_read, other.cache_read),
            cache_write=_add(self.cache_write, other.cache_write),
            output=_add(self.output, other.output),
            reasoning=_add(self.reasoning, other.reasoning),
            passes=self.passes + other.passes,
        )

    def __radd__(self, other: object) -> Usage:
        """Let ``sum()`` start from 0."""
        return self if other == 0 else NotImplemented

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        """Show it in a notebook."""
        from palaver.core import notebook  # noqa: PLC0415 (it renders what this module defines)

        return notebook.bundle(self, notebook.usage_html(self))

    def __repr__(self) -> str:
        """Show the counters that were reported."""
        shown = (f"{name}={getattr(self, name)}" for name in _COUNTERS if getattr(self, name) is not None)
        return f"Usage({', '.join(shown)})"


@final
class UsagePass(Record, frozen=True, kw_only=True, metaclass=Checked):
    """One pass that is counted apart.

    ``kind`` is the provider's word for it; ``model`` is set where it was another model.
    """

    kind: str
    model: str | None = None
    usage: Usage


def _add(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else one + other
