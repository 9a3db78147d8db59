"""An exchange as it stands in the spool: one compact value, made of a ``Record``.

Rules:

- What both sides have in common is there once: ``sent`` is ``None`` where the model got the client's own bytes, and
  ``returned`` where the client got the model's.
- Everything is redacted before it is here. A stream of which only several events together hold what is masked is
  written anew: its bytes are then not those that went over the line.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import is_
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import msgspec
from msgspec import Struct, structs

from palaver import wires
from palaver.core.errors import DecodeError, PalaverError, StreamError
from palaver.core.parts import MalformedToolCall, Reasoning, Refusal, Text, ToolCall
from palaver.core.request import Loss
from palaver.gateway.log.redaction import logged_headers
from palaver.gateway.record import sound
from palaver.gateway.spending import estimated, input_tokens
from palaver.models.catalogue import cost, prices_of
from palaver.stream.replay_events import replay_events

if TYPE_CHECKING:
    from palaver.core.messages import AssistantMessage
    from palaver.core.parts import AssistantPart
    from palaver.core.request import Response
    from palaver.core.usage import Usage
    from palaver.gateway.log.redaction import Redaction
    from palaver.gateway.record import Record

Amount = Literal["bodies", "messages", "figures"]
"""How much of an exchange is kept."""


class LoggedAttempt(Struct, frozen=True, omit_defaults=True):
    """A model that was asked; ``error`` is why it did not answer."""

    model: str
    wire: str
    error: str | None = None


class Figures(Struct, frozen=True, omit_defaults=True):
    """Tokens of an answer, and their cost in USD; ``None`` where it is not known."""

    input: int | None = None
    output: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None
    cost: float | None = None
    estimated: bool = False
    """Whether the provider said nothing, and they are an estimate."""


class LoggedExchange(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An exchange. Fields are those of ``Record``; ``api`` and ``wire`` name wires; ``caller`` is the id of a key."""

    id: str
    at: int
    seconds: float
    first_seconds: float | None = None
    api: str
    asked: str
    stream: bool = False
    query: str = ""
    headers: dict[str, str] = {}
    caller: str | None = None
    team: str | None = None
    outcome: str
    status: int
    model: str | None = None
    wire: str | None = None
    translated: bool = False
    error: str | None = None
    attempts: list[LoggedAttempt] = []
    losses: list[Loss] = []
    figures: Figures | None = None
    """Only where the bytes are not kept; otherwise the writer reads them in the answer."""
    amount: Amount = "bodies"
    request: bytes = b""
    resolved: bytes | None = None
    """The request with what it refers to, where that is not in ``request``."""
    sent: bytes | None = None
    received: bytes = b""
    returned: bytes | None = None


_TEXTS: Final[Mapping[type, str]] = {
    Text: "text",
    Refusal: "text",
    Reasoning: "text",
    ToolCall: "arguments_json",
    MalformedToolCall: "raw",
}
"""The parts of an answer that come in pieces, and their text."""
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(LoggedExchange)


def encode(exchange: LoggedExchange) -> bytes:
    """Return the bytes of an exchange in the spool."""
    return _ENCODER.encode(exchange)


def decode(data: bytes) -> LoggedExchange:
    """Read what ``encode`` returned. Raises ``DecodeError``."""
    try:
        return _DECODER.decode(data)
    except (msgspec.MsgspecError, ValueError) as error:
        raise DecodeError(str(error), source="spool") from None


def logged(record: Record, redact: Redaction, amount: Amount) -> LoggedExchange:
    """Return what is logged of an exchange that has ended."""
    request = record.request
    caller = record.caller
    asked = redact.text(request.model)
    name = str if asked == request.model else redact.text  # of a model that the configuration does not list
    content: dict[str, Any] = {}
    if amount == "figures":
        content["figures"] = _figures(record)
    else:
        content = {"losses": [_masked_loss(each, redact) for each in record.losses], **_bodies(record, redact)}
    return LoggedExchange(
        id=record.id,
        at=record.at,
        seconds=record.seconds or 0.0,
        first_seconds=record.first_seconds,
        api=request.api.wire,
        asked=asked,
        stream=request.stream,
        query=redact.text(request.query) if amount != "figures" else "",
        headers={name: redact.text(text) for name, text in logged_headers(request.headers).items()},
        caller=None if caller is None else caller.key_id,
        team=None if caller is None else caller.team,
        outcome=record.outcome,
        status=record.status,
        model=None if record.model is None else name(record.model),
        wire=record.wire,
        translated=record.translated,
        error=_error(record.error, redact, amount),
        attempts=[
            LoggedAttempt(name(each.model), each.wire, _error(each.error, redact, amount)) for each in record.attempts
        ],
        amount=amount,
        **content,
    )


def _bodies(record: Record, redact: Redaction) -> dict[str, Any]:
    body = record.request.body
    own = body if record.own_body is None else record.own_body
    received, returned = redact(b"".join(record.received)), None
    if record.translated or record.returned != record.received:
        returned = redact(b"".join(record.returned))
    if record.request.stream and (masked := _masked_answer(record, redact)) is not None:
        received = _written(record.wire or "", masked)
        returned = _written(record.request.api.wire, masked) if record.translated else None
    client = f"{record.request.api.wire} {record.request.model} {record.request.headers.get('user-agent')}"
    sent = None if record.sent == own or not record.sent else redact.body(record.sent, f"{client} sent")
    return {
        "request": redact.body(own, client),
        "resolved": None if own is body else redact.body(body, f"{client} resolved"),
        "sent": sent,
        "received": received,
        "returned": None if returned == received else returned,
    }


def _masked_loss(loss: Loss, redact: Redaction) -> Loss:
    """Return a loss whose texts, which may quote a request, are masked."""
    what, why = redact.text(loss.what), redact.text(loss.why)
    return loss if (what, why) == (loss.what, loss.why) else structs.replace(loss, what=what, why=why)


def _masked_answer(record: Record, redact: Redaction) -> Response | None:
    """Return a streamed answer in which something is masked that no single event holds; ``None`` for any other."""
    answer = record.response()
    if answer is None:
        return None
    messages = [_masked_message(each, redact) for each in (answer.message, *answer.alternatives)]
    if messages == [answer.message, *answer.alternatives]:
        return None
    return structs.replace(answer, message=messages[0], alternatives=tuple(messages[1:]), original=None)


def _masked_message(message: AssistantMessage, redact: Redaction) -> AssistantMessage:
    content = tuple([_masked_part(each, redact) for each in message.content])
    return message if all(map(is_, content, message.content)) else message.replace(content=content)


def _masked_part(part: AssistantPart, redact: Redaction) -> AssistantPart:
    name = _TEXTS.get(type(part))
    if name is None:
        return part
    text: str = getattr(part, name)
    masked = redact.text(text)
    return part if masked == text else cast("Any", part).replace(**{name: masked})


def _written(wire: str, answer: Response) -> bytes:
    """Return the stream of an answer, anew."""
    encoder = wires.get(wire).stream_encoder()
    return b"".join([encoder.feed(each) for each in replay_events(answer)]) + encoder.finish()


def _error(error: PalaverError | None, redact: Redaction, amount: Amount) -> str | None:
    if error is None:
        return None
    if amount == "figures" or isinstance(error, StreamError):  # of which the text may quote the answer
        return type(error).__name__
    return f"{type(error).__name__}: {redact.text(str(error))}"


def needs_estimate(outcome: str, answer: Response | None) -> bool:
    """Whether a provider said nothing of what it used, though it answered, or began to."""
    usage = None if answer is None else sound(answer.usage)
    if outcome == "refused" or (usage is not None and usage.total):
        return False
    return outcome == "answered" or (answer is not None and bool(answer.message.content))


def _figures(record: Record) -> Figures:
    answer = record.response()
    if not record.sent or not needs_estimate(record.outcome, answer):
        return figures(record.model, None if answer is None else answer.usage)
    size = sum(map(len, record.received)) if record.outcome == "answered" else 0
    usage = estimated(input_tokens(record.request), answer, size)
    return structs.replace(figures(record.model, usage), estimated=True)


def figures(model: str | None, usage: Usage | None) -> Figures:
    """Return the tokens of an answer, and what they cost at the catalogue's prices of the model that answered."""
    usage = sound(usage)
    if usage is None:
        return Figures()
    price = None if model is None else cost(usage, prices_of(model))
    return Figures(usage.input, usage.output, usage.cache_read, usage.cache_write, usage.reasoning, price)
