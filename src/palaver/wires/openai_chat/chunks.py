"""The chunks of which a stream is made: the common shape, read in one step.

Rule: a chunk that differs from an earlier one in nothing but a piece of text adds to the same part. So the earlier one
is kept without its piece, and compared whole. Any other chunk is read field by field (``choice``), with the same
result: a test compares the two.

Stability: experimental.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Struct, UnsetType, field

_Null: TypeAlias = UnsetType | None
_Word: TypeAlias = str | UnsetType | None


class _Function(Struct, gc=False, forbid_unknown_fields=True):
    arguments: str
    name: Literal[""] | _Null = UNSET


class _Call(Struct, gc=False, forbid_unknown_fields=True):
    index: int
    function: _Function
    type: Literal["function"] | _Null = UNSET
    id: Literal[""] | _Null = UNSET


class _Delta(Struct, gc=False, forbid_unknown_fields=True):
    content: _Word = UNSET
    reasoning_content: _Word = UNSET
    reasoning: _Word = UNSET
    tool_calls: tuple[_Call] | _Null = UNSET
    role: Literal["assistant"] | _Null = UNSET
    refusal: _Null = UNSET
    channel: str | UnsetType = UNSET


class _Choice(Struct, gc=False, forbid_unknown_fields=True):
    index: int
    delta: _Delta
    finish_reason: _Null = UNSET
    logprobs: _Null = UNSET
    native_finish_reason: _Null = UNSET
    token_ids: _Null = UNSET


class Chunk(Struct, gc=False, forbid_unknown_fields=True):
    """A chunk with one choice, whose delta holds one piece of text."""

    choices: tuple[_Choice]
    id: _Word = UNSET
    kind: _Word = field(default=UNSET, name="object")
    created: int | UnsetType = UNSET
    model: _Word = UNSET
    system_fingerprint: _Word = UNSET
    service_tier: _Word = UNSET
    provider: _Word = UNSET
    usage: _Null = UNSET
    obfuscation: _Word = UNSET
    p: _Word = UNSET

    @property
    def head(self) -> tuple[object, ...]:
        """What is said of the answer, and of the message as a whole."""
        channel = self.choices[0].delta.channel
        return (self.id, self.kind, self.model, self.system_fingerprint, self.service_tier, self.provider, channel)


NOISE: Final = ("obfuscation", "p")
"""Padding of OpenAI's, and of Mistral's."""

decode = msgspec.json.Decoder(Chunk).decode


def taken(chunk: Chunk) -> tuple[str | int, str] | None:
    """Take the one piece out of a chunk: whose it is, and the piece; ``None`` when there is not exactly one."""
    delta = chunk.choices[0].delta
    content, thought, reasoning, calls = delta.content, delta.reasoning_content, delta.reasoning, delta.tool_calls
    found: tuple[str | int, str]
    if content:
        if thought or reasoning or calls:
            return None
        delta.content = ""
        found = ("content", content)
    elif calls:
        if thought or reasoning:
            return None
        (call,) = calls
        function = call.function
        found = (call.index, function.arguments)
        if call.type is UNSET and call.id is UNSET and function.name is UNSET:
            delta.tool_calls = None  # all of it was taken, and nothing is faster to compare
        else:
            function.arguments = ""
    elif thought:
        if reasoning:
            return None
        delta.reasoning_content = ""
        found = ("reasoning_content", thought)
    elif reasoning:
        delta.reasoning = ""
        found = ("reasoning", reasoning)
    else:
        return None
    chunk.created = 0
    chunk.obfuscation = chunk.p = None
    return found
