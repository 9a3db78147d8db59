"""pi sessions, versions 1 to 3 (docs/spec/dialects.md#6).

Read: an entry with a message is a message; ``bashExecution`` is reported as run by the user, ``custom`` messages and
summaries of branches are user messages with a ``source``. A ``compaction`` hides the messages before it: its summary
and the entries that it kept follow with ``source="compaction"``. ``thinkingSignature`` and ``thoughtSignature`` are the
proof of the wire that ``api`` names. Aborted turns stay as they are. The messages since the last compaction are in
memory while a file is read, because the next one may repeat them.

Not represented: system and developer messages (pi writes its own prompt; they are kept in ``custom`` entries, which pi
never sends), audio, video and files, citations, refusals as such, markers, arguments that are not a JSON object (they
become text). pi reads version 3, which is written, with all branches. A file without its header is read too.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from palaver.transcripts.detection import Detection, Head, word
from palaver.transcripts.format import TranscriptFormat
from palaver.transcripts.pi.reader import RecordReader
from palaver.transcripts.pi.shapes import KEYS, NAME, ROLES
from palaver.transcripts.pi.writer import RecordWriter

if TYPE_CHECKING:
    from collections.abc import Mapping

_PLACED: Final = KEYS.keys() - {"session", "message"}


def detect(head: Head) -> Detection | None:
    """Detect a ``session`` header with ``id`` and ``cwd``, not ``harness`` (HF STS), or entries without a header."""
    first = head.first
    if _is_entry(first):
        return Detection(0.7)
    if first.get("type") != "session" or "harness" in first or "id" not in first:
        return None
    version = first.get("version", 1)
    return Detection(1.0 if "cwd" in first else 0.7, str(version))


def _is_entry(record: Mapping[str, Any]) -> bool:
    """Return whether a record is an entry with a place in the tree: of a file without its header."""
    if not {"id", "parentId", "timestamp"} <= record.keys():
        return False
    message: object = record.get("message")
    said = word(cast("dict[str, Any]", message), "role") if isinstance(message, dict) else ""
    return said in ROLES if record.get("type") == "message" else word(record, "type") in _PLACED


FORMAT: Final = TranscriptFormat(
    name=NAME,
    title="pi sessions",
    fidelity="bytes",
    detector=detect,
    record_reader=RecordReader,
    record_writer=RecordWriter,
    tree=True,
    resumes=True,
    history="all",
    keeps=(
        "branches",
        "reasoning with proof",
        "usage and model of each answer",
        "images",
        "tool errors",
        "compactions",
    ),
    loses=("system prompts (kept beside)", "audio, video, files", "citations", "malformed calls (as text)", "markers"),
)
