"""Answers in a form that was asked for.

Stability: experimental.
"""

from __future__ import annotations

from typing import Any

from palaver.core.request import Settings
from palaver.models.capabilities import Capabilities


class Structured:
    """A form of answers."""

    def __init__(self, output: Any, capabilities: Capabilities) -> None:
        """Hold it."""

    def asked(self, settings: Settings) -> Settings:
        """Ask for it."""
        return settings

    def read(self, text: str) -> Any:
        """Read it."""
        return text
