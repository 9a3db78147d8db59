"""Vercel AI SDK ``UIMessage`` lists, versions 5 to 7; version 4 is read (docs/spec/dialects.md#10).

Read: a list of messages, an object with ``messages``, or one message on each line. One message of the assistant is a
whole run: an answer for each step, followed by the results of its calls. Provider data becomes the proof of the
package's wire. ``metadata`` is the payload; usage, model, time and finish reason are taken from its usual keys.

Not represented: developer messages (they become system messages), results before or without their calls, usage of
each step (it is that of the run), citations within a text (they become sources), results of several parts other than
texts and inline images, markers, files without a URL, the session (working directory, title). Version 5 is written, by
default the model's view, since applications send that.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from palaver.transcripts.detection import Detection, Head, word
from palaver.transcripts.format import TranscriptFormat
from palaver.transcripts.vercel_ui.reader import RecordReader
from palaver.transcripts.vercel_ui.shapes import DATA, NAME, PARTS, TOOL
from palaver.transcripts.vercel_ui.writer import RecordWriter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["FORMAT", "NAME"]

_ROLES: Final = frozenset(("system", "user", "assistant", "data"))


_HOLDS: Final = {"text": "text", "reasoning": "text", "file": "url", "reasoning-file": "url"}
"""The keys of a part by which it is distinguished from parts of the same name in other formats."""


def detect(head: Head) -> Detection | None:
    """Detect messages with ``parts`` of a known ``type``, or with the ``toolInvocations`` of version 4."""
    best = None
    for each in [*head.items, *_objects(head.fields.get("messages")), *head.lines]:
        if word(each, "role") not in _ROLES or "info" in each:
            continue
        detection = _of_message(each)
        if detection is not None and (best is None or detection.confidence > best.confidence):
            best = detection
    return best


def _of_message(message: Mapping[str, Any]) -> Detection | None:
    old = "content" in message
    if isinstance(message.get("toolInvocations"), list):
        return Detection(0.9, "4")
    if not isinstance(message.get("parts"), list):
        return Detection(0.6, "4") if old and isinstance(message.get("id"), str) and "createdAt" in message else None
    return _of_parts(_objects(message["parts"]), old=old)


def _objects(listed: object) -> list[Mapping[str, Any]]:
    found = cast("list[object]", listed) if isinstance(listed, list) else []
    return [cast("dict[str, Any]", each) for each in found if isinstance(each, dict)]


def _of_parts(parts: Iterable[Mapping[str, Any]], *, old: bool) -> Detection | None:
    for part in parts:
        kind: Any = part.get("type")
        if not isinstance(kind, str):
            continue
        if kind == "tool-invocation" and "toolInvocation" in part:
            return Detection(0.9, "4")
        known = kind in PARTS or kind.startswith((TOOL, DATA))
        if known and isinstance(part.get(_HOLDS.get(kind, "type")), str):
            return Detection(0.9, "4" if old else None)
    return None


FORMAT: Final = TranscriptFormat(
    name=NAME,
    title="Vercel AI SDK UI messages",
    fidelity="bytes",
    detector=detect,
    record_reader=RecordReader,
    record_writer=RecordWriter,
    layout="document",
    resumes=True,
    history="model",
    extension=".json",
    keeps=(
        "steps of a run",
        "reasoning with proof",
        "tool errors and denials",
        "images and files",
        "parts for the UI only",
        "metadata of the application",
    ),
    loses=(
        "developer messages (as system)",
        "results without calls",
        "usage of each step (that of the run)",
        "citations within a text (as sources)",
        "markers",
        "working directory and title",
    ),
)
