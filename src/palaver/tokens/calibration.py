"""Calibration of token estimates, learned from what a provider reports.

Rules:

- ``reported = slope * estimate + fixed``: ``slope`` reflects the model's tokenizer, ``fixed`` what the provider adds to
  each prompt. Both come from one linear regression with a prior, so a single report already helps: a short prompt
  informs ``fixed``, a long one ``slope``.
- Noise grows with the size of a prompt. Older reports fade.
- Impossible reports are ignored: zero, or more than 100 tokens for each estimated one. A surprising report reduces the
  weight of all earlier ones.
- ``replay`` is the share of reported reasoning that the provider keeps in the next prompt of a turn.
- ``ratio`` is the remaining error of the last report. It holds until the next one (``carry_over``).
- A value: learning returns another one. It belongs to one model, and to prompts that all have tools or none.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite, sqrt
from typing import Any, Final

import msgspec
from msgspec import Struct, structs

from palaver.core.errors import MessageError

_SLOPE: Final = 0.9
_FIXED: Final = 10.0
_SLOPE_SPREAD: Final = 0.25
_FIXED_SPREAD: Final = 500.0
_NOISE: Final = 4.0
_NOISE_SHARE: Final = 0.06
"""Noise of a report: a number of tokens, and a share of the estimate."""

_FADING: Final = 0.95
_SURPRISED: Final = 0.5
_EDGE: Final = 4.0
"""A report is surprising beyond this many standard deviations."""

_ABSURD: Final = 100
_ABSURD_SHORT: Final = 50_000
"""The most tokens that a provider may add to a short prompt."""

_WHOLE: Final = frozenset(("reports", "replays"))
_MAX_REPORTS: Final = 1e12
"""Far above any real sum."""

_SLOPES: Final = (0.2, 5.0)
_RATIOS: Final = (0.25, 4.0)


class Calibration(Struct, frozen=True, gc=False):
    """The calibration of one model: sums of the regression, in units of the noise. ``reports`` counts the reports."""

    ee: float = 0.0
    e: float = 0.0
    n: float = 0.0
    er: float = 0.0
    r: float = 0.0
    reports: int = 0
    replay: float = 1.0
    replays: int = 0
    ratio: float = 1.0

    def learned(self, estimate: int, reported: int, *, unsure: int = 0) -> Calibration:
        """Return the calibration with one more report: a provider counted ``reported`` tokens for ``estimate``.

        ``unsure`` is the share of the estimate that is media, in tokens; the estimate of media may be wrong by its own
        size. An impossible report changes nothing. Raises ``MessageError`` for a negative estimate.
        """
        if estimate < 0:
            raise MessageError(f"estimate: {estimate} is not a number of tokens")
        if reported <= 0 or reported > _ABSURD * estimate + _ABSURD_SHORT:
            return self
        slope, fixed, spread = self._fit(estimate)
        noise = _NOISE + _NOISE_SHARE * estimate + unsure
        surprising = self.reports and abs(reported - slope * estimate - fixed) > _EDGE * (spread + unsure)
        kept = _SURPRISED if surprising else _FADING
        weight = 1 / noise**2
        return Calibration(
            self.ee * kept + weight * estimate * estimate,
            self.e * kept + weight * estimate,
            self.n * kept + weight,
            self.er * kept + weight * estimate * reported,
            self.r * kept + weight * reported,
            self.reports + 1,
            self.replay,
            self.replays,
        )

    def with_replay(self, share: float) -> Calibration:
        """Return the calibration with one more answer; ``share`` (0 to 1) of its reasoning was in the next prompt."""
        if not isfinite(share):
            return self
        share = min(max(share, 0.0), 1.0)
        known = self.replay if self.replays else share
        return Calibration(
            self.ee, self.e, self.n, self.er, self.r, self.reports, known + (share - known) / 2, self.replays + 1
        )

    def carry_over(self, estimate: int, tokens: int) -> Calibration:
        """Return the calibration for which a prompt of ``estimate`` counts ``tokens``, until the next report."""
        slope, fixed, _ = self._fit(estimate)
        expected = slope * estimate + fixed
        if expected <= 0 or tokens <= 0:
            return self
        low, high = _RATIOS
        return structs.replace(self, ratio=min(max(tokens / expected, low), high))

    @classmethod
    def from_record(cls, fields: Mapping[str, Any]) -> Calibration | None:
        """Return the calibration with these ``fields``; ``None`` for values that no reports can produce."""
        known: dict[str, float] = {}
        for name in cls.__struct_fields__:
            value = fields.get(name)
            if not isinstance(value, (int, float)) or not 0 <= value < _MAX_REPORTS:
                return None
            known[name] = int(value) if name in _WHOLE else float(value)
        found = msgspec.convert(known, cls)
        low, high = _RATIOS
        sound = found.e**2 <= found.ee * found.n * 1.001 and found.replay <= 1 and low <= found.ratio <= high
        return found if sound else None

    @property
    def scale(self) -> float:
        """Provider tokens for each estimated token, without the fixed part."""
        return self.ratio * self._fit(0)[0]

    @property
    def fixed(self) -> float:
        """Tokens that the provider adds to every prompt."""
        return self.ratio * self._fit(0)[1]

    def apply(self, estimate: int) -> int:
        """Return the tokens that the provider would count for ``estimate`` tokens; at least 1."""
        slope, fixed, _ = self._fit(estimate)
        return max(1, round(self.ratio * (slope * estimate + fixed)))

    def _fit(self, estimate: int) -> tuple[float, float, float]:
        """Slope, fixed part, and the standard deviation of what a provider would report for an estimate."""
        prior_slope, prior_fixed = 1 / _SLOPE_SPREAD**2, 1 / _FIXED_SPREAD**2
        ee, e, n = self.ee + prior_slope, self.e, self.n + prior_fixed
        er, r = self.er + prior_slope * _SLOPE, self.r + prior_fixed * _FIXED
        determinant = ee * n - e * e
        slope = (er * n - r * e) / determinant
        low, high = _SLOPES
        if not low <= slope <= high:
            slope = min(max(slope, low), high)
        fixed = (r - slope * e) / n
        variance = (n * estimate * estimate - 2 * e * estimate + ee) / determinant
        noise = _NOISE + _NOISE_SHARE * estimate
        return slope, fixed, sqrt(max(variance, 0.0) + noise * noise)
