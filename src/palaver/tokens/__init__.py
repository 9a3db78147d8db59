"""Tokens: how many a message is, estimated from its text, or counted exactly where a counter is plugged in.

Stability: experimental.
"""

from palaver.tokens.counter import Counter, Estimated
from palaver.tokens.estimate import estimate, estimate_text, estimate_tools

__all__ = [
    "Counter",
    "Estimated",
    "estimate",
    "estimate_text",
    "estimate_tools",
]
