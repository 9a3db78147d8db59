"""Codebuff message histories, as its later versions write them; the first form (SDK 0.1) is read too.

Source: docs/spec/codebuff.md#1.

A list of messages, a single one, or the state of a run (``sessionState.mainAgentState.messageHistory``). Read: fields
and parts as they are; a string for content, and a result within a ``tool-result``, as in the first form. The deprecated
keys are obeyed, reported once, and never written: ``timeToLive`` becomes a tag (``expires:…``),
``keepDuringTruncation`` and the last message of each of ``keepLastTags`` are ``verbatim``.

``providerOptions`` are options of one provider. Options of ``openaiCompatible`` are fields of the wire
``openai_chat``; the cache mark of ``anthropic`` and the proofs of reasoning become those of their wires. Other options
are in the spelling of the AI SDK, which no wire uses, and stay under the name that they have.

Not represented: ids, agents, modes, developer messages (they become system messages), markers, malformed calls (a
user message tagged ``TOOL_CALL_ERROR`` names them), refusals (as text), results that are text (as JSON), media by
URL in results, usage and model, payloads, metadata.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from palaver.transcripts.codebuff import strict
from palaver.transcripts.codebuff.shapes import (
    CLASSES,
    NAME,
    OWN_KEYS,
    PART_KEYS,
)
from palaver.transcripts.codebuff.writer import CodebuffForm
from palaver.transcripts.detection import Detection, Head, word
from palaver.transcripts.format import TranscriptFormat
from palaver.transcripts.message_list import (
    document_reading,
    empty,
    known_messages,
    list_rendering,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


def detect(head: Head) -> Detection | None:
    """Return messages whose content is a list of its parts, with the keys that only it has."""
    state = head.fields
    for key in ("sessionState", "mainAgentState", "messageHistory"):
        if key in state:
            return Detection(0.95, "v2" if "traceSessionId" in head.fields else None)
    found, most = known_messages(head, CLASSES)
    if not most:
        return empty(head)
    if any("type" in each or "agentName" in each for each in found):
        return None
    if any(OWN_KEYS & each.keys() for each in found) or any(_is_result(each) for each in found):
        return Detection(0.9, "v2" if any(isinstance(each.get("content"), list) for each in found) else None)
    if any(_is_v1(each) for each in found):
        return Detection(0.9, "v1")
    if any("id" in each or "parts" in each or "tool_calls" in each for each in found):
        return None
    parts = [part for each in found for part in _listed(each.get("content"))]
    if all(isinstance(each.get("content"), list) for each in found) and all(_is_part(part) for part in parts):
        return Detection(0.7 if any(word(part, "type") in {"tool-call", "reasoning"} for part in parts) else 0.5)
    return None


def _listed(content: Any) -> Sequence[Any]:
    return content if isinstance(content, list) else ()  # pyright: ignore[reportUnknownVariableType]


def _is_part(part: Any) -> bool:
    return isinstance(part, dict) and word(part, "type") in PART_KEYS  # pyright: ignore[reportUnknownArgumentType]


def _is_result(each: Mapping[str, Any]) -> bool:
    return each["role"] == "tool" and isinstance(each.get("toolCallId"), str) and isinstance(each.get("content"), list)


def _is_v1(each: Mapping[str, Any]) -> bool:
    content: object = each.get("content")
    kind = cast("dict[str, Any]", content).get("type") if isinstance(content, dict) else None
    return each["role"] == "tool" and kind == "tool-result"


FORMAT: Final = TranscriptFormat(
    name=NAME,
    title="Codebuff message histories",
    fidelity="bytes",
    detector=detect,
    record_reader=document_reading(CodebuffForm),
    record_writer=list_rendering(CodebuffForm),
    layout="document",
    resumes=True,
    extension=".json",
    rules=strict.check,
    keeps=("tags and times", "provider options", "reasoning with proof", "images and files", "results as JSON"),
    loses=(
        "ids",
        "developer messages (as system)",
        "malformed calls (as a note)",
        "results that are text (as JSON)",
        "media by URL in results",
        "usage and model",
        "markers",
    ),
)
