"""Codex rollouts: JSON Lines, also compressed with Zstandard (docs/spec/dialects.md#3).

Read: ``reader`` turns lines into messages. Items are those of ``openai_responses``. The files are linear: rolled back
turns stay as branches. Both histories are kept: text that the program added for the model has a ``source``, text that
only people were shown is a placeholder. ``base_instructions`` are the system message.

Not represented: branches (the requested one is written), files, audio, video, refusals as such, reasoning
and server tools of other providers (their proof binds them), error flags, and markers that hide only a part of the
earlier messages. These losses are carried in the line, under ``palaver``: the program's types ignore unknown keys.

A rollout is named ``rollout-<time>-<id>.jsonl``, in a folder for each day.

Stability: experimental.
"""

from __future__ import annotations

import re
from typing import Any, Final

from palaver.transcripts.codex.reader import RecordReader
from palaver.transcripts.codex.shapes import ITEMS, NAME, TYPES
from palaver.transcripts.codex.writer import RecordWriter
from palaver.transcripts.detection import Detection, Head, word
from palaver.transcripts.format import TranscriptFormat

_NAME: Final = re.compile(r"(?:.*[/\\])?rollout-\d{4}-\d{2}-\d{2}T[\d-]+-[0-9a-f-]{36}\.jsonl(?:\.zst)?")


def detect(head: Head) -> Detection | None:
    """Detect a first line ``session_meta`` with a payload; lines with time, type and payload; or the file's name."""
    first = head.first
    if first.get("type") == "session_meta" and isinstance(first.get("payload"), dict):
        mode: Any = first["payload"].get("history_mode")
        return Detection(1.0, mode if isinstance(mode, str) else "legacy")
    if word(first, "type") in TYPES and "payload" in first and "timestamp" in first:
        return Detection(0.9)
    bare = "type" not in first and "id" in first and "timestamp" in first and "instructions" in first
    if _NAME.fullmatch(head.name) and (bare or word(first, "type") in {*TYPES, *ITEMS}):
        return Detection(0.9)
    return Detection(0.7) if bare and all(word(line, "type") in ITEMS for line in head.lines[1:4]) else None


FORMAT: Final = TranscriptFormat(
    name=NAME,
    title="Codex rollouts",
    fidelity="bytes",
    detector=detect,
    record_reader=RecordReader,
    record_writer=RecordWriter,
    resumes=True,
    history="all",
    keeps=(
        "rolled back turns",
        "what the model and what people saw",
        "reasoning with proof",
        "usage of each call, model of each turn",
        "images",
        "arguments as they were written",
        "compactions",
    ),
    loses=(
        "branches",
        "files, audio, video",
        "other providers' reasoning and server tools (kept beside)",
        "error flags (kept beside)",
        "markers that hide a part (kept beside)",
    ),
)
