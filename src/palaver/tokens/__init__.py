"""Tokens: how many a message is, estimated from its text, or counted exactly where a counter is plugged in.

Stability: experimental.
"""

from palaver.tokens.calibration import Calibration
from palaver.tokens.counter import Counter, EstimateCounter
from palaver.tokens.estimate import (
    estimate,
    estimate_media,
    estimate_reasoning,
    estimate_text,
    estimate_tools,
    overhead,
)
from palaver.tokens.media import MediaRates, image_tokens

__all__ = [
    "Calibration",
    "Counter",
    "EstimateCounter",
    "MediaRates",
    "estimate",
    "estimate_media",
    "estimate_reasoning",
    "estimate_text",
    "estimate_tools",
    "image_tokens",
    "overhead",
]
