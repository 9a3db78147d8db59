"""Claude Code sessions: JSON Lines, a tree of records (docs/spec/dialects.md#2).

Read: ``reader`` turns records into messages; ``links`` finds where the conversation ends and what compaction keeps;
``injected_text`` finds text that the user did not type. Provider blocks are those of ``anthropic_messages``. Texts that
a hook or the program added have a ``source``: models see them, people do not. An answer that the program wrote itself
(an error) is a placeholder. Notices, progress and snapshots stay records. A sub-agent's file is a thread of its own,
whose ``parent`` is the session's. The UI's copy of a result (``toolUseResult``) stays in its record.

Not represented: system and developer messages, discarded answers and markers other than a flush (kept in records
that the program ignores), reasoning of other providers (its proof binds it), audio, video, malformed calls (inside
an object), results that answer no call (written as text), refusals as such.

A session's file is named by its session (``file_name``), in a folder named after the working directory.
``session_store`` serves the SDK of the same vendor.

Stability: experimental.
"""

from __future__ import annotations

from typing import Any, Final

from palaver.transcripts.claude_code.reader import RecordReader
from palaver.transcripts.claude_code.shapes import KEYS, NAME, SESSION, file_name
from palaver.transcripts.claude_code.writer import RecordWriter
from palaver.transcripts.detection import Detection, Head, word
from palaver.transcripts.format import TranscriptFormat

__all__ = ["FORMAT", "detect", "file_name"]

_LEAST: Final = 0.7


def detect(head: Head) -> Detection | None:
    """Detect records of the chain, which have ``isSidechain``, or records of a session before them."""
    for line in head.lines:
        if "uuid" in line and "sessionId" in line and word(line, "type") in KEYS:
            message: Any = line.get("message")
            if isinstance(message, dict) and "parts" in message:
                return None
            version = line.get("version")
            return Detection(1.0 if "isSidechain" in line else _LEAST, version if isinstance(version, str) else None)
    first = head.first
    if word(first, "type") in SESSION and ("sessionId" in first or "leafUuid" in first or "messageId" in first):
        return Detection(_LEAST)
    return None


FORMAT: Final = TranscriptFormat(
    name=NAME,
    title="Claude Code sessions",
    fidelity="bytes",
    detector=detect,
    record_reader=RecordReader,
    record_writer=RecordWriter,
    tree=True,
    resumes=True,
    history="all",
    keeps=(
        "branches, sidechains, sub-agents",
        "reasoning with proof",
        "usage and model of each answer",
        "images, documents",
        "tool errors",
        "compactions",
    ),
    loses=(
        "system prompts, markers (kept beside)",
        "other providers' reasoning (kept beside)",
        "audio, video",
        "malformed calls (in an object)",
    ),
)
