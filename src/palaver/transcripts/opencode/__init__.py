"""opencode exports, versions 1 and 2 (docs/spec/dialects.md#7); its relatives (Kilo, MiMo Code) write the same.

Read: ``{info, messages}``. A tool part is a call and its result. A finished compaction hides the messages before it:
its summary and the messages from ``tail_start_id`` on follow with ``source="compaction"``. Synthetic texts are sent and
not shown, ignored ones shown and not sent. ``revert`` ends the main branch. A session with ``parentID`` is a
sub-agent's.

Not represented: system and developer messages (opencode writes its own prompt; they are ignored texts), results of
several texts or of JSON (one text), citations, arguments that are not an object, results without calls, markers.
Version 1 is written, as ``opencode import`` takes it; by default the model's view. A file of version 2 is continued in
version 2.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from palaver.transcripts.detection import Detection, Head
from palaver.transcripts.format import TranscriptFormat
from palaver.transcripts.opencode.reader import RecordReader
from palaver.transcripts.opencode.shapes import NAME, PROGRESS
from palaver.transcripts.opencode.writer import RecordWriter

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FORMAT", "NAME"]


def detect(head: Head) -> Detection | None:
    """Detect an ``info`` whose ``id`` is that of a session, and a list of messages."""
    if found := PROGRESS.match(head.data):
        head = Head(head.data[found.end() :], head.name)
    info: Any = head.fields.get("info")
    if not isinstance(info, dict):
        return None
    told = cast("Mapping[str, Any]", info)
    if not str(told.get("id", "")).startswith("ses"):
        return None
    listed = isinstance(head.fields.get("messages"), list)
    return Detection(1.0 if listed else 0.7, "2" if "location" in told else "1")


FORMAT: Final = TranscriptFormat(
    name=NAME,
    title="opencode exports",
    fidelity="bytes",
    detector=detect,
    record_reader=RecordReader,
    record_writer=RecordWriter,
    layout="document",
    resumes=True,
    history="model",
    extension=".json",
    keeps=(
        "reasoning with proof",
        "usage and model of each answer",
        "compactions and their tails",
        "what is shown and what is sent",
        "tool errors",
        "images and files",
        "reverts",
        "parents of sub-agents",
    ),
    loses=(
        "system prompts (as ignored texts)",
        "structured results (as text)",
        "citations",
        "arguments that are not an object",
        "results without calls",
        "markers",
    ),
)
