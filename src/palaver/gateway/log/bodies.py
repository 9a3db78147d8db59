"""The bytes and the receipt of an exchange, as their difference from those of another one: pure.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from msgspec import Struct, structs

from palaver.core.errors import DecodeError
from palaver.core.request import Loss
from palaver.gateway.log import delta
from palaver.gateway.log.delta import Delta
from palaver.gateway.log.logged import LoggedAttempt

if TYPE_CHECKING:
    from palaver.gateway.log.logged import LoggedExchange


class Bodies(Struct, frozen=True, kw_only=True):
    """The bytes of both sides. Without a translation ``sent`` differs from ``request`` at most in the model's name."""

    request: bytes = b""
    sent: bytes = b""
    received: bytes = b""
    returned: bytes = b""


class Receipt(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What else is known of an exchange. ``wire`` is the model's, with its variant."""

    wire: str | None = None
    stream: bool = False
    translated: bool = False
    first_seconds: float | None = None
    query: str = ""
    headers: dict[str, str] = {}
    attempts: list[LoggedAttempt] = []
    losses: list[Loss] = []


class PackedExchange(Struct, frozen=True, array_like=True, omit_defaults=True):
    """The stored bytes. ``None``: the same as ``request``, or as ``received``."""

    receipt: Delta
    request: Delta | None = None
    sent: Delta | None = None
    """A difference from the ``request``, or, when ``translated``, from what was sent before."""
    translated: bool = False
    received: Delta | None = None
    returned: Delta | None = None


class WholeExchange(NamedTuple):
    """An exchange that others are compared with, and how many differences lead to it."""

    id: str
    depth: int
    receipt: bytes
    bodies: Bodies

    @property
    def size(self) -> int:
        """The size of all of it."""
        return sum(map(len, structs.astuple(self.bodies))) + len(self.receipt)


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(PackedExchange)
_RECEIPT: Final = msgspec.msgpack.Decoder(Receipt)
NOTHING: Final = WholeExchange("", -1, b"", Bodies())


def encode_receipt(receipt: Receipt) -> bytes:
    """Return the bytes of a receipt."""
    return _ENCODER.encode(receipt)


def decode_receipt(data: bytes) -> Receipt:
    """Read what ``encode_receipt`` returned. Raises ``DecodeError``."""
    try:
        return _RECEIPT.decode(data)
    except (msgspec.MsgspecError, ValueError) as error:
        raise DecodeError(str(error), source="log_exchanges") from None


def receipt_of(exchange: LoggedExchange) -> Receipt:
    """Return what else is known of an exchange, for the log."""
    return Receipt(
        wire=exchange.wire,
        stream=exchange.stream,
        translated=exchange.translated,
        first_seconds=exchange.first_seconds,
        query=exchange.query,
        headers=exchange.headers,
        attempts=exchange.attempts,
        losses=exchange.losses,
    )


def bodies_of(exchange: LoggedExchange) -> Bodies:
    """Return the bytes of both sides of an exchange."""
    return Bodies(
        request=exchange.request,
        sent=exchange.request if exchange.sent is None else exchange.sent,
        received=exchange.received,
        returned=exchange.received if exchange.returned is None else exchange.returned,
    )


def pack(made: WholeExchange, base: WholeExchange, *, empty: bool, translated: bool) -> bytes:
    """Return an exchange as its difference from ``base``. ``empty``: without the bytes of both sides."""
    receipt = delta.pack(made.receipt, base.receipt)
    if empty:
        return _ENCODER.encode(PackedExchange(receipt))
    new, old = made.bodies, base.bodies
    return _ENCODER.encode(
        PackedExchange(
            receipt,
            delta.pack(new.request, old.request),
            None if new.sent == new.request else delta.pack(new.sent, old.sent if translated else new.request),
            translated,
            delta.pack(new.received, old.received),
            None if new.returned == new.received else delta.pack(new.returned, old.returned),
        )
    )


def unpack(packed: PackedExchange, base: WholeExchange) -> tuple[bytes, Bodies]:
    """Undo ``pack``: return receipt and bytes. Raises ``DamageError``."""
    receipt = delta.apply(packed.receipt, base.receipt)
    if packed.request is None or packed.received is None:
        return receipt, Bodies()
    old = base.bodies
    request = delta.apply(packed.request, old.request)
    received = delta.apply(packed.received, old.received)
    return receipt, Bodies(
        request=request,
        sent=request if packed.sent is None else delta.apply(packed.sent, old.sent if packed.translated else request),
        received=received,
        returned=received if packed.returned is None else delta.apply(packed.returned, old.returned),
    )


def decode(data: bytes) -> PackedExchange:
    """Read what ``pack`` returned. Raises ``DecodeError``."""
    try:
        return _DECODER.decode(data)
    except (msgspec.MsgspecError, ValueError) as error:
        raise DecodeError(str(error), source="log_exchanges") from None
