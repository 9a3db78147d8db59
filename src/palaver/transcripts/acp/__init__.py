"""Logs of the Agent Client Protocol, version 1: updates, a JSON-RPC message to a line (docs/spec/dialects.md#13).

Read: ``reader`` turns updates into messages, ``shapes`` blocks and calls. The log has what a user interface received.
Lines may be notifications, their ``params`` alone, or either in an envelope; requests and responses are read if the log
has them. Tools have no names: the title is used instead, else the kind.

Not represented: names of tools (written as titles), signatures and encrypted reasoning, usage and model of an
answer, system and developer messages, markers (all carried in ``_meta``), branches, video, calls that providers ran.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from palaver.transcripts.acp.reader import RecordReader
from palaver.transcripts.acp.shapes import NAME
from palaver.transcripts.acp.writer import RecordWriter
from palaver.transcripts.detection import Detection, Head
from palaver.transcripts.format import TranscriptFormat

if TYPE_CHECKING:
    from collections.abc import Mapping


def detect(head: Head) -> Detection | None:
    """Return lines with ``sessionUpdate``, or requests of a session."""
    for line in head.lines:
        for stored in (line, *_objects(line)):
            params = _object(stored.get("params", stored))
            if "sessionUpdate" in _object(params.get("update")):
                return Detection(1.0)
            if "jsonrpc" in stored and str(stored.get("method", "")).startswith("session/"):
                return Detection(0.9)
    return None


def _objects(line: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [_object(each) for each in line.values()]


def _object(value: object) -> Mapping[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


FORMAT: Final = TranscriptFormat(
    name=NAME,
    title="ACP update logs",
    fidelity="bytes",
    detector=detect,
    record_reader=RecordReader,
    record_writer=RecordWriter,
    history="user",
    keeps=(
        "text and thoughts",
        "calls with their results",
        "images, audio, links, embedded resources",
        "kinds and places of calls",
        "why a turn ended",
    ),
    loses=(
        "names of tools (as titles)",
        "proof of reasoning, usage, model (carried)",
        "system prompts, markers (carried)",
        "branches",
        "video, calls that providers ran",
    ),
)
