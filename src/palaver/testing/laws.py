"""The laws of the model as plain functions, for your own values and any test framework.

Each raises ``AssertionError`` with the encoded value. Laws that need a wire are in the modules of their wires.

Stability: experimental.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Sequence

from palaver.core import canonical
from palaver.core.errors import DecodeError, excerpt
from palaver.core.messages import MESSAGE_CLASSES, Message
from palaver.core.request import Request
from palaver.core.value import Record


def assert_law_1_storage(value: Record) -> None:
    """Law 1: what is written and read is the same value; it is one line, and stays that line."""
    text = canonical.encode(value)
    again = canonical.decode(text) if isinstance(value, MESSAGE_CLASSES) else canonical.decode(text, type(value))
    if again != value:
        raise AssertionError(f"read back as another value: {_excerpt(text)}")
    if isinstance(value, MESSAGE_CLASSES) and canonical.encode(again) != text:
        raise AssertionError(f"written differently the second time: {_excerpt(text)}")
    if b"\n" in text:
        raise AssertionError(f"not on one line: {_excerpt(text)}")


def assert_law_1_many(messages: Sequence[Message]) -> None:
    """Law 1 for JSON Lines: one message a line, in order."""
    text = canonical.encode_many(messages)
    if canonical.decode_many(text) != list(messages) or text.count(b"\n") != len(messages):
        raise AssertionError(f"read back as other messages: {_excerpt(text)}")


def assert_law_1_conversation(request: Request) -> None:
    """Law 1 for a whole conversation."""
    text = canonical.dump_conversation(request)
    if canonical.load_conversation(text) != request:
        raise AssertionError(f"read back as another conversation: {_excerpt(text)}")


def assert_law_1_copies(value: Record) -> None:
    """Law 1 for what Python itself copies with: pickle and ``copy``."""
    if pickle.loads(pickle.dumps(value)) != value:  # noqa: S301 (a law about pickle)
        raise AssertionError(f"pickled to another value: {value!r}")
    if copy.deepcopy(value) != value or copy.copy(value) != value:
        raise AssertionError(f"copied to another value: {value!r}")


def assert_law_6_totality(data: bytes) -> None:
    """Law 6: any bytes give a value or one ``DecodeError`` that names the format."""
    for read in (canonical.decode, canonical.decode_many, canonical.load_conversation):
        try:
            read(data)
        except DecodeError as error:
            if error.source != "palaver":
                raise AssertionError(f"the error does not say what was read: {error}") from error


def assert_equal_content_equal_hash(one: Message, other: Message) -> None:
    """Messages that are equal have the same content hash."""
    if one == other and canonical.content_hash(one) != canonical.content_hash(other):
        raise AssertionError(f"equal, with different hashes: {one!r}")


def _excerpt(text: bytes) -> str:
    return excerpt(text.decode(errors="replace"), 500)
