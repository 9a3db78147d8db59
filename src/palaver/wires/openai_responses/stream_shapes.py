"""Names, fields and common shapes of the events of Responses streams.

Source: docs/spec/wires.md#3.5; https://platform.openai.com/docs/api-reference/responses-streaming.

Stability: experimental.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta, Raw, Struct

# -- the common event ---------------------------------------------------------


class _Plain(Struct, gc=False, forbid_unknown_fields=True):
    type: str
    delta: str
    output_index: int
    content_index: int = 0
    summary_index: int = 0
    item_id: str = ""
    sequence_number: int = 0
    logprobs: Annotated[tuple[Raw, ...], Meta(max_length=0)] = ()
    obfuscation: str = ""


class _Escaped(Struct, gc=False, forbid_unknown_fields=True):
    """The same for text that stands inside a JSON string; the delta keeps its escapes."""

    type: str
    delta: Raw
    output_index: int
    item_id: str = ""
    sequence_number: int = 0
    obfuscation: str = ""


plain = msgspec.json.Decoder(_Plain).decode
escaped = msgspec.json.Decoder(_Escaped).decode
ODD: Final = (KeyError, msgspec.DecodeError, UnicodeDecodeError, RecursionError)

# -- names -----------------------------------------------------------------------------------------

NONE: Final = Raw(b"[]")
EMPTY: Final = Raw(b'""')
DELTA: Final = ".delta"
DONE: Final = ".done"
TEXT: Final = "response.output_text"
REFUSAL: Final = "response.refusal"
SUMMARY: Final = "response.reasoning_summary_text"
CONTENT: Final = "response.reasoning_text"
CUSTOM: Final = "response.custom_tool_call_input"

ARGUMENTS: Final[dict[str, tuple[str, str, str, str]]] = {
    "function_call": ("response.function_call_arguments", "arguments", "", ""),
    "mcp_call": ("response.mcp_call_arguments", "arguments", "", ""),
    "custom_tool_call": (CUSTOM, "input", '"', '"'),
    "code_interpreter_call": ("response.code_interpreter_call_code", "code", '{"code":"', '"}'),
}
"""Items whose arguments stream: the events, the field, and what stands around a text that is a JSON string."""
BY_EVENT: Final = {name: (field, head, tail) for name, field, head, tail in ARGUMENTS.values()}
QUOTED: Final = frozenset(name + DELTA for name, (_, head, _) in BY_EVENT.items() if head)
BLANK: Final[dict[str, tuple[str, Raw]]] = {
    "function_call": ("arguments", EMPTY),
    "mcp_call": ("arguments", EMPTY),
    "custom_tool_call": ("input", EMPTY),
    "reasoning": ("summary", NONE),
}
"""What an item that begins may leave out."""
TEXT_FIELDS: Final = {"output_text": "text", "refusal": "refusal"}
KNOWN: Final = frozenset(
    {
        "annotation",
        "annotation_index",
        "arguments",
        "code",
        "content_index",
        "delta",
        "input",
        "item",
        "item_id",
        "logprobs",
        "name",
        "obfuscation",
        "output_index",
        "part",
        "refusal",
        "response",
        "sequence_number",
        "summary_index",
        "text",
        "type",
    }
)
"""Fields of events that are read, that repeat others, or that have no meaning here."""
ENDS: Final = frozenset(["response.completed", "response.incomplete", "response.cancelled", "response.failed", "error"])


def both(*names: str) -> list[str]:
    """The delta and the end of each."""
    return [name + word for name in names for word in (DELTA, DONE)]


REDUNDANT: Final = frozenset(
    [
        *ENDS,
        *both(TEXT, REFUSAL, SUMMARY, CONTENT, *BY_EVENT),
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.output_item.done",
        "response.content_part.added",
        "response.content_part.done",
        "response.output_text.annotation.added",
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_part.done",
    ]
)
"""Events whose content other events have."""
