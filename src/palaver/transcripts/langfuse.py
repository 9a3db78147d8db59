"""Traces and observations of Langfuse: lines, lists, or a page of the API (``data``). Only read.

Read: observations of models (``GENERATION``), alone, in a trace (``observations``) or beside one (``trace``), by their
times. A session, else a trace, is a conversation; each observation repeats the messages before it, so its new ones
follow the longest known beginning. ``input`` and ``output`` are messages of any wire or of LangChain, a text, or JSON
in a text. A trace without such an observation has its own input and output. Other observations keep their place as
records.

Not written: observations come from the program that they trace.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from palaver.core import jsontext
from palaver.transcripts.calls import Call, Note, calls_reading, first_record
from palaver.transcripts.conversation import Session
from palaver.transcripts.detection import Detection, Head
from palaver.transcripts.fields import either, inner, kind_of, listed, read_time, split, string, value
from palaver.transcripts.format import TranscriptFormat
from palaver.transcripts.logged_messages import answers, asked, usage_of, with_data

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from palaver.core.jsontext import Fields

NAME: Final = "langfuse"

_KINDS: Final = frozenset(
    "GENERATION SPAN EVENT AGENT TOOL CHAIN RETRIEVER EVALUATOR EMBEDDING GUARDRAIL".split()  # noqa: SIM905
)
_OF_TRACE: Final = ("htmlPath", "bookmarked", "observations", "totalCost", "public", "release")
_GIVEN: Final = ("input", "promptTokens", "inputTokens")
_MADE: Final = ("output", "completionTokens", "outputTokens")


def detect(head: Head) -> Detection | None:
    """Return an observation by its type and trace, or a trace by its fields."""
    fields, first = head.fields, first_record(head, "data")
    if isinstance(fields.get("trace"), dict) and isinstance(fields.get("observations"), list):
        return Detection(0.95)
    return Detection(0.95) if _is_observation(first) or _is_trace(first) else None


def _is_observation(record: Mapping[str, Any]) -> bool:
    return "traceId" in record and record.get("type") in _KINDS and "startTime" in record


def _is_trace(record: Mapping[str, Any]) -> bool:
    named = "timestamp" in record and "sessionId" in record and ("input" in record or "output" in record)
    return named and sum(key in record for key in _OF_TRACE) > 1


def _calls(fields: Fields, note: Note) -> Sequence[Call]:
    """Return the calls of a trace, or that of an observation."""
    if "traceId" in fields:
        return _observed(fields, None, note)
    trace = inner(fields, "trace") if kind_of(fields, "trace") == "an object" else fields
    if string(trace, "id") is None:
        note("unread", "no trace")
        return []
    found: list[Call] = []
    for raw in listed(fields, "observations") or listed(trace, "observations"):
        if either(raw, "observations", "an object", "a string") == "an object":
            found += _observed(jsontext.fields(raw), trace, note)
    return found or _told(trace, trace, note, outer=True)


def _observed(observation: Fields, trace: Fields | None, note: Note) -> Sequence[Call]:
    if string(observation, "type") != "GENERATION":
        return []
    return _told(observation, observation if trace is None else trace, note, outer=False)


def _told(fields: Fields, trace: Fields, note: Note, *, outer: bool) -> Sequence[Call]:
    """Return the call of an observation, or of a trace."""
    messages, said = asked(fields, "input", note), answers(fields, "output", note)
    if string(fields, "level") == "ERROR":
        note("unread", string(fields, "statusMessage") or "an error")
    if not messages and not said:
        return []
    named = string(trace, "sessionId") or string(fields, "traceId") or string(trace, "id")
    model = string(fields, "model") or string(fields, "providedModelName")
    counted = next((found for key in ("usageDetails", "usage") if (found := _object(fields, key))), fields)
    started = read_time(value(fields, "timestamp" if outer else "startTime"))
    return [
        Call(
            asked=messages,
            answers=with_data(said, model=model, usage=None if outer else usage_of(counted, _GIVEN, _MADE)),
            key=named,
            session=Session(file_format=NAME, id=named, model=model, started_at=started),
            title=string(trace, "name") if trace is not fields or outer else None,
            started=started,
            ended=read_time(value(fields, "endTime")),
            outer=outer,
        )
    ]


def _object(fields: Fields, key: str) -> Fields:
    raw = fields.get(key)
    return {} if raw is None else split(raw, key)


FORMAT: Final = TranscriptFormat(
    name=NAME,
    title="Langfuse traces and observations",
    fidelity="read",
    layout="either",
    detector=detect,
    record_reader=calls_reading(NAME, _calls, "data", ordered=False),
    record_writer=None,
    many=True,
    keeps=("sessions and traces", "calls and results", "branches", "usage and model of each answer", "times"),
    loses=("other observations (as records)", "settings and tools of requests", "scores", "costs"),
)
