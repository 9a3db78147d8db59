"""Items of the OpenAI Agents SDK (docs/spec/dialects.md#9).

Read: the result of ``to_input_list()``, as a list or one item on each line, and the state of a run
(``$schemaVersion``). Sessions in a SQLite database are read and written by ``read_sqlite`` and ``write_sqlite``; a row
is an item. Encrypted rows stay as they are. ``provider_data`` is kept.

Not represented: times, markers, branches (the requested one is written), the reasoning of other providers, and what
items of the wire cannot represent. Usage, models and other data that an item lacks are carried in ``provider_data``.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from palaver.transcripts.detection import Detection, Head
from palaver.transcripts.format import TranscriptFormat
from palaver.transcripts.openai_agents.database import read_sqlite, write_sqlite
from palaver.transcripts.openai_agents.reader import RecordReader
from palaver.transcripts.openai_agents.shapes import NAME, VERSION, is_item, is_locked, is_run
from palaver.transcripts.openai_agents.writer import RecordWriter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["FORMAT", "read_sqlite", "write_sqlite"]

_LIST: Final = 0.5
_LINES: Final = 0.7
_MORE: Final = 0.1


def detect(head: Head) -> Detection | None:
    """Detect the state of a run by its version; items by their types, if most of them are items."""
    for fields in (head.fields, head.first):
        if is_run(fields):
            version = fields[VERSION]
            return Detection(1.0, version if isinstance(version, str) else None)
    listed = isinstance(head.document, list)
    items = head.items if listed else head.lines
    told = items if head.whole else items[:-1] or items
    confidence = _confidence(told, _LIST if listed else _LINES)
    return None if confidence is None else Detection(confidence)


def _confidence(items: Sequence[Mapping[str, Any]], least: float) -> float | None:
    """Return the confidence that these are items. If the first is one of the chat wire too, the next types decide."""
    known = [each for each in items if is_item(each) or is_locked(each)]
    if not known or known[0] is not items[0] or len(known) * 2 <= len(items):
        return None
    if not any("type" in each or is_locked(each) for each in known):
        return None
    return least if "type" in items[0] else least + _MORE


FORMAT: Final = TranscriptFormat(
    name=NAME,
    title="OpenAI Agents items",
    fidelity="bytes",
    detector=detect,
    record_reader=RecordReader,
    record_writer=RecordWriter,
    layout="either",
    resumes=True,
    extension=".json",
    keeps=(
        "reasoning with proof",
        "arguments as they were written",
        "ids",
        "tools of the provider",
        "images and files",
        "usage and model (carried)",
    ),
    loses=("times", "branches", "markers", "other providers' reasoning", "audio, video"),
)
