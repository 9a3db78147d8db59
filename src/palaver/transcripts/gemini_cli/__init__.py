"""Chats of Gemini CLI: a log of patches, and the one document of older versions (docs/spec/dialects.md#14).

Read: the log is replayed (``reader``), and its final state is the conversation; messages that a rewind removed are a
branch. An answer and the results of its calls share a row (``shapes``). Notices (``info``, ``error``, ``warning``) are
placeholders. A sub-agent's file is in a folder named by the session of its parent. The working directory is known only
as a hash.

Not represented: system and developer messages and markers (kept in changes of the metadata, which the program
ignores), signatures and encrypted reasoning, finish reasons, branches of other programs, sources of prompts.

Stability: experimental.
"""

from __future__ import annotations

from typing import Final

from palaver.transcripts.detection import Detection, Head
from palaver.transcripts.format import TranscriptFormat
from palaver.transcripts.gemini_cli.reader import RecordReader
from palaver.transcripts.gemini_cli.shapes import NAME
from palaver.transcripts.gemini_cli.writer import RecordWriter

_LEAST: Final = 0.7


def detect(head: Head) -> Detection | None:
    """Detect metadata with a session and the hash of a project; or rows that change a list of messages."""
    for fields in (head.first, head.fields):
        if "sessionId" in fields and "projectHash" in fields:
            return Detection(1.0)
    if any("$set" in line or "$rewindTo" in line for line in head.lines):
        return Detection(0.9)
    typed = [line for line in head.lines if line.get("type") == "gemini" and "id" in line and "content" in line]
    return Detection(_LEAST) if typed else None


FORMAT: Final = TranscriptFormat(
    name=NAME,
    title="Gemini CLI chats",
    fidelity="bytes",
    detector=detect,
    record_reader=RecordReader,
    record_writer=RecordWriter,
    layout="either",
    resumes=True,
    history="model",
    keeps=(
        "rewound messages (as branches)",
        "calls with their results",
        "thoughts as summaries",
        "usage and model of each answer",
        "images, audio, video, files",
        "failed results",
    ),
    loses=(
        "system prompts, markers (kept beside)",
        "proof of reasoning",
        "branches of other programs",
        "why an answer ended",
        "malformed calls (as text)",
    ),
)
