"""Files of text, read a line at a time: the common part of transcript formats in Markdown.

A line is a record without fields; those of a message, with the blank ones around it, are one group.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from palaver.transcripts.record import Record


def line_of(record: Record) -> str:
    """Return the text of a line, without its line break and a byte order mark."""
    return record.raw.decode("utf-8", "replace").removeprefix("\ufeff").rstrip("\r\n")


def text_of(lines: Iterable[str]) -> str:
    """Return the text of lines, without blank ones at the ends."""
    return "\n".join(lines).strip("\n")


class TextLines:
    """A reader of records for which every line is part of the format."""

    def expects(self, record: Record) -> bool:  # noqa: ARG002 (any line is expected)
        """Return whether a line is part of the format, though it is not an object."""
        return True
