"""The section ``[log]`` of a gateway's configuration.

Stability: experimental.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from palaver.core.errors import MessageError


class LogOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where exchanges are logged, and how much of them. Sizes are in bytes."""

    store: str | None = None
    """A location of ``palaver.store``. Without it, ``PALAVER_STORE``, or the user's own store."""
    spool: str | None = None
    """The folder of the spool, of this log alone. Without it, one in the user's data folder for database and store."""
    max_spool: int = 1 << 30
    """The size of the spool, above which ``when_full`` says what happens."""
    when_full: Literal["refuse", "drop"] = "refuse"
    """``refuse``: clients get 503. ``drop``: exchanges are answered, and not logged."""
    sync: bool = False
    """Whether a client sees the end of its answer only when the exchange is on the disk. Without it, an exchange
    survives the death of the process, but not that of the machine."""
    bodies: bool = True
    """Whether the bytes of both sides are kept. Without them there are the messages, the receipt and the figures."""
    content: bool = True
    """Whether anything of what was said is kept. Without it there are only figures."""
    redact: list[str] = []
    """Patterns (RE2) of text that is masked before anything is written."""
    redact_keys: bool = True
    """Whether text that looks like a key of a known kind is masked, too."""
    keep_days: float | None = None
    """Exchanges and threads that are older are deleted. Without it, never."""

    def __post_init__(self) -> None:
        """Refuse sizes and times below zero. Raises ``MessageError``."""
        if self.max_spool < 0:
            raise MessageError(f"max_spool: {self.max_spool} is below zero")
        if self.keep_days is not None and not self.keep_days >= 0:  # NaN is refused too
            raise MessageError(f"keep_days: {self.keep_days} is below zero")
