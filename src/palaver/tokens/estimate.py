"""Token estimates from the length of text, without a tokenizer.

Rules (docs/spec/kairo.md#1.6, KAI-03; golden ``token_estimate``):

- Text and reasoning: ``max(1, n * 2 // 7)``; a tool result ``max(1, n * 2 // 9)``; a tool call ``max(1, n // 5)`` of
  its arguments. ``n`` is UTF-8 bytes, since a token of a non-ASCII script covers fewer characters.
- A message is the sum of its parts; without parts it is 0. Media (``tokens.media``), system messages and tool
  definitions count (D29).
- A reasoning proof that the provider wants back stands for the whole reasoning: one token for every 8 characters, where
  that exceeds the text. Other parts may carry such a proof in ``provider``; short fields are none. Citations are 0.
- ``overhead`` is what surrounds the parts: role marks, names and ids of calls. It is added when a whole prompt is
  measured (``context.Ledger``).
- An estimate is computed once for each message, and kept beside it.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from msgspec import UNSET, UnsetType

from palaver.core.messages import Message, ToolMessage
from palaver.core.parts import (
    Json,
    MalformedToolCall,
    Opaque,
    Reasoning,
    Refusal,
    ServerToolResult,
    Text,
    ToolCall,
)
from palaver.core.request import OutputFormat
from palaver.core.tools import AnyTool, Tool
from palaver.tokens.media import MediaRates, media_tokens

_PROOF: Final = 8
"""Characters of a proof that stand for a token: 5 to 10 on the recorded traffic, by provider."""

_SHORT: Final = 200
"""``provider`` fields up to this many bytes hold no proof."""

_MESSAGE: Final = 4
_RESULT_MESSAGE: Final = 10
_CALL: Final = 15
_TOOL: Final = 8


def estimate_media(message: Message, rates: MediaRates | None = None) -> int:
    """Return the tokens of the images, audio, video and documents of ``message``.

    ``rates`` are those of the model that reads them; without them, averages of the large providers.
    """
    return sum([media_tokens(part, rates) for part in message.content if type(part) not in _TEXT_BY_PART])


def estimate_text(text: str) -> int:
    """Return the tokens of ``text`` as a part of a message; at least 1."""
    return max(1, _bytes(text) * 2 // 7)


def estimate(message: Message, rates: MediaRates | None = None) -> int:
    """Return the tokens of ``message``: the sum of its parts.

    ``rates`` are those of the model that reads its media; without them, averages of the large providers.
    """
    table = _RESULT if type(message) is ToolMessage else _TEXT_BY_PART
    total = 0
    for part in message.content:
        weigh = table.get(type(part))
        total += media_tokens(part, rates) if weigh is None else weigh(part)
    return total


def overhead(message: Message) -> int:
    """Return the tokens of ``message`` besides its parts: role marks, names and ids of calls."""
    total = _RESULT_MESSAGE if type(message) is ToolMessage else _MESSAGE
    for part in message.content:
        if type(part) is ToolCall:
            total += _CALL
    return total


def estimate_reasoning(message: Message) -> int:
    """Return how much of the estimate of ``message`` is reasoning, with the proofs that other parts carry."""
    total = 0
    for part in message.content:
        if type(part) is Reasoning:
            total += _reasoning(part)
        elif type(part) in _CARRIERS and part.provider_json is not UNSET:
            total += _proof(part)
    return total


def has_proof(message: Message) -> bool:
    """Whether a message carries reasoning with a proof, which its provider takes back."""
    for part in message.content:
        if type(part) is Reasoning:
            if part.signature is not None or part.encrypted is not None:
                return True
        elif type(part) in _CARRIERS and part.provider_json is not UNSET and _proof(part):
            return True
    return False


def estimate_tools(tools: Iterable[AnyTool], output: OutputFormat | None = None) -> int:
    """Return the tokens of the definitions of ``tools``, and of the schema of ``output``, if any."""
    total = sum([_TOOL + _definition(tool) for tool in tools])
    if output is not None and not isinstance(output.schema_json, UnsetType):
        total += len(bytes(output.schema_json)) // 5
    return total


def _definition(tool: AnyTool) -> int:
    if isinstance(tool, Tool):
        schema = 0 if isinstance(tool.parameters_json, UnsetType) else len(bytes(tool.parameters_json))
        return (_bytes(tool.name) + _bytes(tool.description or "")) * 2 // 9 + schema // 5
    return len(bytes(tool.raw_json)) // 5


# -- parts -------------------------------------------------------------------------------------------------------------


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _proof(part: Any) -> int:
    size = len(bytes(part.provider_json))
    return size // _PROOF if size > _SHORT else 0


def _text(part: Any) -> int:
    size = _bytes(part.text) * 2 // 7
    return (size or 1) if part.provider_json is UNSET else max(1, size + _proof(part))


def _result(part: Any) -> int:
    return max(1, _bytes(part.text) * 2 // 9)


def _reasoning(part: Any) -> int:
    size = _bytes(part.text) * 2 // 7
    if part.signature is not None or part.encrypted is not None:
        size = max(size, (len(part.signature or "") + len(part.encrypted or "")) // _PROOF)
    return size or 1


def _call(part: Any) -> int:
    size = _bytes(part.arguments_json) // 5
    return (size or 1) if part.provider_json is UNSET else max(1, size + _proof(part))


def _malformed(part: Any) -> int:
    return max(1, _bytes(part.raw) // 5)


def _json(part: Any) -> int:
    return max(1, len(bytes(part.value_json)) * 2 // 9)


def _opaque(part: Any) -> int:
    return max(1, len(bytes(part.raw_json)) * 2 // 9)


def _server(part: Any) -> int:
    return max(1, len(bytes(part.output_json)) * 2 // 9)


_TEXT_BY_PART: Final[dict[type, Callable[[Any], int]]] = {
    Text: _text,
    Refusal: _text,
    Reasoning: _reasoning,
    ToolCall: _call,
    MalformedToolCall: _malformed,
    ServerToolResult: _server,
    Json: _json,
    Opaque: _opaque,
}
_CARRIERS: Final = frozenset((Text, Refusal, ToolCall))
_RESULT: Final = {**_TEXT_BY_PART, Text: _result}
