"""The ``uuid`` of records, and the link of each to the record before it, in formats with a tree of records.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from palaver.core import jsontext
from palaver.threads.ids import is_uuid
from palaver.transcripts import original_bytes
from palaver.transcripts.conversation import derived_id
from palaver.transcripts.documents import lead_of
from palaver.transcripts.fields import string

if TYPE_CHECKING:
    from palaver.threads.thread import Entry
    from palaver.transcripts.writer import WriteState


class UuidLinks:
    """The ids of one written file."""

    def __init__(self, writing: WriteState) -> None:
        """Start without records."""
        self._writing = writing
        self._uuids: dict[str, str] = {}

    def uuid(self, entry: Entry) -> str:
        """Return the ``uuid`` of an entry's last record."""
        known = self._uuids.get(entry.id)
        if known is None:
            made = entry.id if is_uuid(entry.id) else derived_id(entry.id)
            known = self._uuids[entry.id] = self._recorded(entry) or made
        return known

    def parent(self, entry: Entry) -> str | None:
        """Return the ``uuid`` of the parent record: that of the nearest ancestor that has one, and is written."""
        parent = entry.parent
        while parent is not None:
            before = self._writing.thread.entry(parent)
            if self._writing.is_native(parent):
                found = self._recorded(before)
                if found is not None:
                    return found
            elif parent in self._uuids:
                return self._uuids[parent]
            parent = before.parent
        return None

    def _recorded(self, entry: Entry) -> str | None:
        """Return the ``uuid`` of an entry in its file: its own, if the last of its records has it."""
        if not self._writing.is_native(entry.id):
            return None
        pieces = original_bytes.records_of(self._writing.file_format, [entry.message])
        if not pieces:
            return entry.id if is_uuid(entry.id) else None
        raw = pieces[-1].raw.removeprefix(b"\xef\xbb\xbf")
        body = raw[len(lead_of(raw)) :].strip()
        return string(jsontext.fields(body), "uuid") if body.startswith(b"{") and jsontext.is_json(body) else None
