"""Lines of a batch: a request, or its response, under a ``custom_id`` (docs/spec/dialects.md#4).

Rules:

- ``body`` is a request of ``openai_chat`` or ``openai_responses``; ``response.body`` is a response of these. Early
  versions of vLLM have the response without ``status_code`` and ``body`` around it.
- The first answer has the time at which it was ``created``. Further choices are branches.
- A request to another endpoint, an error, and an answer that is not a message give no message, and are noted.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import structs

from palaver import wires
from palaver.core import jsontext
from palaver.transcripts.fields import inner, listed, read_time, split, string, value
from palaver.transcripts.openai_messages.shapes import RESPONSES, WIRE

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

    from palaver.core.jsontext import Fields
    from palaver.core.messages import Message
    from palaver.core.request import Response

TEXTS: Final = ("reasoning_content", "refusal")
"""The texts that the wire skips when they have another type."""
_ELSEWHERE: Final = ("embeddings", "moderations", "completions", "generations", "edits", "score", "rerank", "videos")
"""The last words of the endpoints whose requests have an ``input``, but no messages."""


def wire_of_request(fields: Fields) -> str | None:
    """Return the wire of a request; ``None`` without messages."""
    body, endpoint = inner(fields, "body"), string(fields, "url") or ""
    if "messages" in body:
        return WIRE
    return RESPONSES if "input" in body and not endpoint.endswith(_ELSEWHERE) else None


def answered(fields: Fields) -> tuple[str, Fields]:
    """Return the wire and the body of a response; an empty body without one."""
    response = inner(fields, "response")
    plain = "choices" in response or "output" in response
    body = response if plain else inner(response, "body")
    return RESPONSES if "output" in body else WIRE, body


def with_body(fields: Fields, body: Fields) -> Fields:
    """Return the response with another body, at the place of the old one."""
    response = inner(fields, "response")
    return {**response, "body": jsontext.raw(body)} if "body" in response else body


def answers(fields: Fields, note: Callable[[Literal["block", "unread"], str], None]) -> list[Message]:
    """Return the answers of a response: several, if several choices were asked for. Raises as the wire does."""
    wire, body = answered(fields)
    if not body:
        note("unread", _failure(fields))
        return []
    for choice in map(split, listed(body, "choices")):
        for key in TEXTS:
            string(inner(choice, "message"), key)
    response = answer_of(wire, body)
    first = structs.replace(response.message, sent_at=read_time(value(body, _made_key(body))))
    return [first, *response.alternatives]


def answer_of(wire: str, body: Fields) -> Response:
    """Return a response as its wire reads it."""
    return wires.get(wire).decode_response(jsontext.encode(body))


def dated(body: Fields, at: int | None) -> Fields:
    """Return the time of a response, in seconds, if it differs from that in its body."""
    key = _made_key(body)
    return {} if at == read_time(value(body, key)) else {key: jsontext.raw((at or 0) // 1000)}


def _made_key(body: Fields) -> str:
    return "created_at" if "output" in body else "created"


def _failure(fields: Fields) -> str:
    """Return why a line has no answer."""
    endpoint, error = string(fields, "url"), inner(fields, "error")
    if "body" in fields:
        return f"a request to {endpoint or 'an unknown endpoint'}"
    told = [said for key in ("code", "message") if (said := string(error, key))]
    return ": ".join(told) or "no response"
