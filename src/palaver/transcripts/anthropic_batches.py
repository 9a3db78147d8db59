"""Batches of Anthropic messages: the requests, and the results of a batch. Only read.

Read: lines of results (``custom_id`` and ``result``), and of requests (``custom_id`` and ``params``, or ``request`` as
Google's cloud has it), also as a list, or under ``requests``. Each is a conversation of its own; its id is the
``custom_id``. Messages are those of ``anthropic_messages``. A result without a message (errored, canceled, expired) is
noted.

Not written: results come from the provider only.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from palaver import wires
from palaver.transcripts.calls import Call, Note, calls_reading, first_record
from palaver.transcripts.conversation import Session
from palaver.transcripts.detection import Detection, Head
from palaver.transcripts.fields import inner, string
from palaver.transcripts.format import TranscriptFormat
from palaver.transcripts.salvage import salvaged

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from palaver.core.jsontext import Fields
    from palaver.core.messages import Message

NAME: Final = "anthropic_batches"
WIRE: Final = "anthropic_messages"

_OUTCOMES: Final = frozenset(("succeeded", "errored", "canceled", "expired"))
_REQUESTS: Final = ("params", "request")
_PROVEN: Final = 0.9


def detect(head: Head) -> Detection | None:
    """Return a ``custom_id`` with the result or the request of a message."""
    return Detection(_PROVEN) if _is_known(first_record(head, "requests")) else None


def _is_known(record: Mapping[str, Any]) -> bool:
    if "custom_id" not in record:
        return False
    result = record.get("result")
    if isinstance(result, dict):
        return cast("dict[str, Any]", result).get("type") in _OUTCOMES
    asked = next((record[key] for key in _REQUESTS if key in record), None)
    return isinstance(asked, dict) and isinstance(cast("dict[str, Any]", asked).get("messages"), list)


def _calls(fields: Fields, note: Note) -> Sequence[Call]:
    """Return the request, or the answer, of a line."""
    wire, session = wires.get(WIRE), Session(file_format=NAME, id=string(fields, "custom_id"))
    key = next((key for key in _REQUESTS if key in fields), None)
    if key is not None:
        asked = salvaged(lambda body: wire.decode_request(body).messages, bytes(fields[key]), NAME, note)
        return [Call(asked=asked, session=session)]
    result = inner(fields, "result")
    if "message" not in result:
        note("unread", _failure(result))
        return []

    def read(body: bytes) -> list[Message]:
        return [wire.decode_response(body).message]

    return [Call(answers=salvaged(read, bytes(result["message"]), NAME, note, outside=0), session=session)]


def _failure(result: Fields) -> str:
    """Return why a result has no message."""
    error = inner(result, "error")
    error = inner(error, "error") or error
    told = [string(result, "type"), string(error, "type"), string(error, "message")]
    return ": ".join(each for each in told if each) or ", ".join(result) or "no result"


FORMAT: Final = TranscriptFormat(
    name=NAME,
    title="Anthropic message batches",
    fidelity="read",
    layout="either",
    detector=detect,
    record_reader=calls_reading(NAME, _calls, "requests"),
    record_writer=None,
    many=True,
    keeps=("requests and answers", "custom ids", "usage, model and reasoning of each answer"),
    loses=("settings and tools of requests", "results without a message (noted)"),
)
