"""What both halves of the codec share: words, and fields that have several forms, read and written side by side.

Source: docs/spec/wires.md#4.1, #4.2, #4.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import UNSET, Raw

from palaver.core import jsontext, trusted
from palaver.core.request import OutputFormat, ToolChoice
from palaver.wires._engine import json_fields, thinking
from palaver.wires._engine.json_fields import provider

if TYPE_CHECKING:
    from palaver.core.messages import FinishReason

WIRE: Final = "anthropic_messages"

FINISH: Final[dict[str, FinishReason]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "pause_turn": "pause",
    "compaction": "pause",
    "refusal": "refusal",
}
"""docs/spec/wires.md#4.4. Anything else, null and absent included, is ``other``."""

FINISH_WORD: Final[dict[FinishReason, str]] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "pause": "pause_turn",
    "refusal": "refusal",
}
"""Neutral reasons that the wire has a word for; the others are approximated by ``end_turn``."""

IMAGE_TYPES: Final = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
PDF: Final = "application/pdf"
PLAIN_TEXT: Final = "text/plain"
TEXT_TYPES: Final = frozenset(
    {PLAIN_TEXT, "text/markdown", "text/csv", "text/html", "text/css", "text/xml", "text/x-python", "application/json"}
)
"""Documents that go out as a ``text`` source, which calls all of them plain text."""

SERVER_CALLS: Final = frozenset({"server_tool_use", "mcp_tool_use"})


# -- tool choice -----------------------------------------------------------------------------------


class Choosing(NamedTuple):
    """``tool_choice`` says two things: which tools, and whether several at a time."""

    choice: ToolChoice
    parallel: bool | None


def read_tool_choice(raw: Raw) -> Choosing | None:
    """Read ``tool_choice``; ``None`` for a form that has no neutral meaning."""
    found = jsontext.value(raw)
    match found:
        case {"type": "auto" | "none" as mode}:
            choice = trusted.ToolChoice(mode)
        case {"type": "any"}:
            choice = trusted.ToolChoice("required")
        case {"type": "tool", "name": str(name)}:
            choice = trusted.ToolChoice("required", (name,))
        case _:
            return None
    disabled = found.get("disable_parallel_tool_use")
    return Choosing(choice, not disabled if isinstance(disabled, bool) else None)


def write_tool_choice(choosing: Choosing) -> dict[str, Any]:
    """Write ``tool_choice``. Several calls at a time are the default, and ``none`` does not speak of them."""
    choice, parallel = choosing
    if choice.mode == "none":
        return {"type": "none"}
    single = {"disable_parallel_tool_use": True} if parallel is False else {}
    if choice.mode == "required" and len(choice.names) == 1:
        return {"type": "tool", "name": choice.names[0], **single}
    return {"type": "any" if choice.mode == "required" else "auto", **single}


# -- thinking --------------------------------------------------------------------------------------

LEAST_BUDGET: Final = 1024

read_thinking = thinking.read_typed("budget_tokens")
write_thinking = thinking.write_typed("budget_tokens", "adaptive")


# -- output format ---------------------------------------------------------------------------------


def read_output_format(raw: Raw) -> OutputFormat | None:
    """Read ``output_config.format``; ``None`` for a form that has no neutral meaning."""
    if jsontext.kind(raw) != "an object":
        return None
    rest = jsontext.fields(raw)
    if rest.pop("type", None) != json_fields.hint("json_schema") or "schema" not in rest:
        return None
    schema = jsontext.own(rest.pop("schema"))
    return trusted.OutputFormat(kind="json_schema", schema_json=schema, provider_json=provider(WIRE, rest))


def write_output_format(output: OutputFormat) -> dict[str, Any]:
    """Write ``output_config.format``."""
    schema = jsontext.EMPTY_OBJECT if output.schema_json is UNSET else output.schema_json
    return {"type": "json_schema", "schema": schema, **json_fields.native(output, WIRE)}
