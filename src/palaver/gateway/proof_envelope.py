"""Proofs of reasoning, in an envelope that clients of another wire carry in a field for proofs of their own.

Rules:

- An envelope is base64 text of a JSON list, made of letters and digits only, without padding. So it fits where a wire
  takes any text, where it takes bytes in base64, and in both alphabets of base64.
- All envelopes begin with ``MARKER``, which is searched for in a body before it is decoded.
- An envelope is no secret and is not signed: a client can send to a provider what it likes, with or without one. Text
  that is no envelope is none, and raises nothing.

Stability: experimental.
"""

from __future__ import annotations

import binascii
import hashlib
import json
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import UNSET, Raw, Struct

from palaver.core import trusted
from palaver.core.parts import Reasoning, ToolCall

_PREFIX: Final = "palaver1:"
MARKER: Final = binascii.b2a_base64(_PREFIX.encode(), newline=False).decode()
_MARKER: Final = MARKER.encode()
"""How every envelope begins."""
_ESCAPES: Final = str.maketrans({">": "\\u003e", "?": "\\u003f", "~": "\\u007e"})
"""The characters of ASCII whose base64 holds ``+`` or ``/``."""
_PROVIDER: Final = msgspec.json.Decoder(dict[str, dict[str, Raw]])


class Sealed(Struct, frozen=True, omit_defaults=True, rename={"provider": "fields"}):
    """What an envelope holds of one part.

    ``provider`` is the JSON text of its fields. Of reasoning, ``text`` is there where the client does not get it beside
    the envelope, else ``digest``. ``call``: it belongs to the tool call behind it.
    """

    wire: str
    signature: str | None = None
    encrypted: str | None = None
    provider: str | None = None
    text: str | None = None
    digest: str | None = None
    call: bool = False

    def reasoning(self, text: str) -> Reasoning:
        """Return the reasoning as its own wire wrote it."""
        stored = UNSET if self.provider is None else Raw(self.provider.encode("utf-8", "surrogatepass"))
        return trusted.Reasoning(text, self.signature, self.encrypted, self.wire, provider_json=stored)


def holds_envelope(body: bytes) -> bool:
    """Whether an envelope may be in a body."""
    return _MARKER in body


def of_reasoning(part: Reasoning, wire: str, *, with_text: bool) -> Sealed:
    """Return what is sealed of reasoning that came in ``wire``."""
    text, digest = (part.text, None) if with_text else (None, digest_of(part.text))
    return Sealed(part.wire or wire, part.signature, part.encrypted, _fields(part), text, digest)


def of_call(part: ToolCall, wire: str) -> Sealed:
    """Return what is sealed of a tool call."""
    return Sealed(wire, provider=_fields(part), call=True)


def _fields(part: Reasoning | ToolCall) -> str | None:
    return None if part.provider_json is UNSET else bytes(part.provider_json).decode("utf-8", "surrogatepass")


def digest_of(text: str) -> str:
    """Return what tells an edited text from the one that was sent."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def seal(sealed: Sequence[Sealed]) -> str:
    """Return the envelope of some parts."""
    text = _PREFIX + json.dumps(msgspec.to_builtins(sealed), separators=(",", ":")).translate(_ESCAPES)
    return binascii.b2a_base64((text + " " * (-len(text) % 3)).encode(), newline=False).decode()


def unseal(text: str | None) -> tuple[Sealed, ...]:
    """Return what is in an envelope; nothing for any other text."""
    if text is None or not text.startswith(MARKER):
        return ()
    try:
        plain = binascii.a2b_base64(text, strict_mode=True)
        found = msgspec.convert(json.loads(plain[len(_PREFIX) :]), tuple[Sealed, ...])
        for each in found:
            _PROVIDER.decode(each.provider or "{}")
            "".join(filter(None, (each.wire, each.signature, each.encrypted, each.text))).encode()  # no half characters
    except (ValueError, RecursionError, msgspec.MsgspecError):  # of base64, of UTF-8, of JSON, of a field
        return ()
    return found
