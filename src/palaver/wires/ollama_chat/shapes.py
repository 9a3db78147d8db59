"""What both halves of the Ollama codec share: words, options, and the two-way fields ``format`` and ``think``.

Source: docs/spec/wires.md#8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Raw

from palaver.core import jsontext, trusted
from palaver.core.request import OutputFormat

if TYPE_CHECKING:
    from palaver.core.messages import FinishReason

WIRE: Final = "ollama_chat"

ASSISTANT: Final = Raw(b'"assistant"')

FINISH: Final[dict[str, FinishReason]] = {"stop": "stop", "length": "length"}
"""``done_reason``; every other word, ``load``, ``unload``, ``""`` and absent included, is ``other``."""

FINISH_WORD: Final[dict[FinishReason, str]] = {
    "stop": "stop",
    "tool_calls": "stop",
    "length": "length",
}
"""Neutral reasons that the wire has a word for; the others are approximated by ``stop``."""

OPTIONS: Final = {
    "max_tokens": "num_predict",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "seed": "seed",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
}
"""Neutral settings that stand in ``options``, and their names there."""

INTEGERS: Final = frozenset({"max_tokens", "top_k", "seed"})


def read_format(raw: Raw) -> OutputFormat | None:
    """Read ``format``: the word ``json``, or a JSON Schema; ``None`` for anything else."""
    if raw == Raw(b'"json"'):
        return trusted.OutputFormat(kind="json")
    if jsontext.kind(raw) == "an object":
        return trusted.OutputFormat(kind="json_schema", schema_json=jsontext.own(raw))
    return None


def write_format(output: OutputFormat) -> object:
    """Write ``format``; ``None`` where there is nothing to write."""
    if output.kind == "json_schema" and isinstance(output.schema_json, Raw):
        return output.schema_json
    return None if output.kind == "text" else "json"
