"""Logs of LiteLLM: rows of its spend logs, and standard logging payloads; lines, lists or pages (``data``). Only read.

Read: ``messages`` and ``response``, of any wire, as JSON or as text with JSON in it; without ``messages``, those of
the request to the proxy. A session or trace is a conversation (``session_id``, ``trace_id``); each call repeats the
messages before it, so its new ones follow the longest known beginning. A failed call, and one whose messages were not
stored, is noted.

Not written: logs come from the proxy.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from palaver.transcripts.calls import Call, Note, calls_reading, first_record
from palaver.transcripts.conversation import Session
from palaver.transcripts.detection import Detection, Head
from palaver.transcripts.fields import as_object, kind_of, read_time, string, value
from palaver.transcripts.format import TranscriptFormat
from palaver.transcripts.logged_messages import answers, asked, usage_of, with_data

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from palaver.core.jsontext import Fields

NAME: Final = "litellm_logs"

_COSTS: Final = ("spend", "response_cost")
_KEYS: Final = ("session_id", "trace_id", "litellm_trace_id")


def detect(head: Head) -> Detection | None:
    """Return a row with the type of a call, its time, and what it cost."""
    return Detection(0.95) if _is_row(first_record(head, "data")) else None


def _is_row(record: Mapping[str, Any]) -> bool:
    return "call_type" in record and "startTime" in record and any(key in record for key in _COSTS)


def _calls(fields: Fields, note: Note) -> Sequence[Call]:
    """Return the call of a row."""
    messages = asked(fields, "messages", note) or asked(fields, "proxy_server_request", note)
    said = answers(fields, "response", note)
    failure = _failure(fields)
    if failure is not None or not (messages or said):
        note("unread", failure or "the messages of the call were not stored")
    if not messages and not said:
        return []
    key = next((found for key in _KEYS if (found := string(fields, key))), None)
    model, started = string(fields, "model") or None, read_time(value(fields, "startTime"))
    usage = usage_of(fields, ("prompt_tokens",), ("completion_tokens",))
    return [
        Call(
            asked=messages,
            answers=with_data(said, model=model, usage=usage),
            key=key,
            session=Session(
                file_format=NAME, id=key or string(fields, "request_id") or string(fields, "id"), model=model
            ),
            started=started,
            ended=read_time(value(fields, "endTime")),
        )
    ]


def _failure(fields: Fields) -> str | None:
    """Return why a call failed."""
    if kind_of(fields, "error_str") == "a string":
        return string(fields, "error_str") or None
    metadata = fields.get("metadata")
    error = as_object(metadata).get("error_information") if metadata is not None else None
    message = string(as_object(error), "error_message") if error is not None else None
    return message or ("the call failed" if string(fields, "status") == "failure" else None)


FORMAT: Final = TranscriptFormat(
    name=NAME,
    title="LiteLLM logs",
    fidelity="read",
    layout="either",
    detector=detect,
    record_reader=calls_reading(NAME, _calls, "data", ordered=False),
    record_writer=None,
    many=True,
    keeps=("sessions", "calls and results", "branches", "usage and model of each answer", "times"),
    loses=("settings and tools of requests", "costs, keys and teams", "calls whose messages were not stored"),
)
