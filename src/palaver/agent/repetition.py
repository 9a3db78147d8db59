"""When a model calls again what it called just now.

Rules (DAS-07, DAS-23):

- The signature of a call is its tool and its arguments as canonical JSON: ``"1"`` is not ``1``, the order of keys and
  the spelling of the text do not matter. Arguments that are no JSON are signed by their bytes. No arguments are ``{}``.
- A round is the calls of one answer; their order does not matter. A round that equals the one before is not run: the
  first time its calls are answered (``told``), the second time in a row the final answer is asked for.
- Tools that are meant to be called again and again (polling) are left out by the caller. A round of which nothing is
  left is a round all the same: after it, nothing is called again.
- Pure; a turn costs its calls, not the history.

Stability: experimental.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, Literal, TypeAlias

from msgspec import Struct, structs

from palaver.core import jsontext
from palaver.core.errors import DecodeError
from palaver.core.parts import MalformedToolCall, ToolCall

Repeated: TypeAlias = Literal["", "answer", "final"]

_NO_ARGUMENTS: Final = b"{}"
_SHORT: Final = 1000
"""Characters of arguments whose signature is remembered for a while."""


class Repetition(Struct, frozen=True):
    """The round before: its signature, how often in a row it came again, and whether all its calls failed."""

    key: bytes = b""
    times: int = 0
    failed: bool = False


def signature(call: ToolCall | MalformedToolCall) -> bytes:
    """16 bytes that calls share when they call the same tool with the same arguments."""
    if isinstance(call, MalformedToolCall):
        return _signed(call.name or "", b"malformed", _bytes(call.raw))
    if len(call.arguments_json) <= _SHORT:
        return _short(call.name, call.arguments_json)
    return _signed(call.name, b"call", _canonical(call.arguments_json))


@lru_cache(maxsize=64)
def _short(name: str, arguments: str) -> bytes:
    """The signature of a short call is asked for twice, before and after it is run."""
    return _signed(name, b"call", _canonical(arguments))


def _signed(name: str, kind: bytes, arguments: bytes) -> bytes:
    head = _bytes(name)
    return hashlib.blake2b(b"%b %d %b%b" % (kind, len(head), head, arguments), digest_size=16).digest()


def _canonical(text: str) -> bytes:
    if not text or text.isspace():
        return _NO_ARGUMENTS
    data = _bytes(text)
    try:
        return jsontext.normal(data)
    except DecodeError:
        return data


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def round_key(signatures: Iterable[bytes]) -> bytes:
    """What rounds of the same calls share, in whatever order; ``b""`` for a round of none."""
    return b"".join(sorted(signatures))


def repeated(before: Repetition, calls: Iterable[ToolCall | MalformedToolCall]) -> tuple[Repetition, Repeated]:
    """Whether a round, before it is run, equals the one before, and what is to be done: ``""`` is to run it."""
    key = round_key(map(signature, calls))
    if not key or key != before.key:
        return Repetition(key), ""
    again = structs.replace(before, times=before.times + 1)
    return again, "answer" if again.times == 1 else "final"


def ran(round_: Repetition, *, failed: bool) -> Repetition:
    """The round was run; ``failed`` when all of its calls failed."""
    return structs.replace(round_, failed=failed)


def told(name: str, *, failed: bool) -> str:
    """What the model is told in place of running a call again."""
    if failed:
        return (
            f"You already called {name} with the same arguments and it failed - its error is in the conversation "
            "above. Call it with other arguments, use another tool, or give the final answer."
        )
    return (
        f"You already called {name} with the same arguments - its result is in the conversation above. Use that "
        "result, or call with other arguments."
    )
