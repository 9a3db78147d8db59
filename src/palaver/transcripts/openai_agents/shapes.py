"""Items of the OpenAI Agents SDK, and their containers (docs/spec/dialects.md#9).

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from palaver.core.usage import Usage
from palaver.transcripts.detection import word
from palaver.transcripts.fields import inner, integer, listed, split, string, usage_of_totals

if TYPE_CHECKING:
    from collections.abc import Mapping

    from msgspec import Raw

    from palaver.core.jsontext import Fields

NAME: Final = "openai_agents"
WIRE: Final = "openai_responses"

TYPES: Final = frozenset(
    (
        "message", "reasoning", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output",
        "file_search_call", "web_search_call", "computer_call", "computer_call_output", "image_generation_call",
        "code_interpreter_call", "local_shell_call", "local_shell_call_output", "shell_call", "shell_call_output",
        "apply_patch_call", "apply_patch_call_output", "mcp_list_tools", "mcp_call", "mcp_approval_request",
        "mcp_approval_response", "tool_search_call", "tool_search_output", "item_reference", "compaction",
        "compaction_summary",
    )
)  # fmt: skip
ROLES: Final = frozenset(("user", "assistant", "system", "developer"))
NEEDED: Final = {
    "message": ("role", "content"),
    "reasoning": ("summary",),
    "function_call": ("call_id", "name"),
    "function_call_output": ("output",),
}
"""Required keys of items of these types, so that a foreign record is not taken for one."""
EASY: Final = frozenset(("role", "content", "phase", "provider_data"))

LOCKED: Final = "__enc__"
FAKE_ID: Final = "__fake_id__"
"""The id that the SDK gives to items that no server made, and removes before it sends them."""
HELD: Final = "provider_data"
AT: Final = "at"
ITEMS: Final = "items"
"""Keys of carried data: the place of the item in its message, and the message's number of items."""
VERSION: Final = "$schemaVersion"
GENERATED: Final = "generated_items"
ORIGINAL: Final = "original_input"
RUN: Final = "run_state"
RUN_ITEMS: Final = {
    "message": "message_output_item",
    "reasoning": "reasoning_item",
    "function_call": "tool_call_item",
    "compaction": "compaction_item",
    "mcp_approval_request": "mcp_approval_request_item",
    "mcp_approval_response": "mcp_approval_response_item",
    "mcp_list_tools": "mcp_list_tools_item",
    "tool_search_call": "tool_search_call_item",
    "tool_search_output": "tool_search_output_item",
}
"""The SDK's names of items in a run, by type; outputs and other calls are recognized by the end of their types."""


def is_item(fields: Mapping[str, Any]) -> bool:
    """Return whether an object is an item, by its keys."""
    kind = fields.get("type")
    if kind is None:
        return word(fields, "role") in ROLES and "content" in fields and fields.keys() <= EASY
    if word(fields, "type") not in TYPES or "payload" in fields:
        return False
    return all(key in fields for key in NEEDED.get(kind, ()))


def is_locked(fields: Mapping[str, Any]) -> bool:
    """Return whether a row is encrypted."""
    return LOCKED in fields and "payload" in fields


def is_run(fields: Mapping[str, Any]) -> bool:
    """Return whether an object is the state of a run."""
    return VERSION in fields and (GENERATED in fields or ORIGINAL in fields)


def item_ids(item: Fields) -> tuple[str, ...]:
    """Return the ids by which an item is known: its own, and that of its call."""
    found = (string(item, key) for key in ("id", "call_id"))
    return tuple([each for each in found if each and each != FAKE_ID])


def read_usage(raw: Raw) -> Usage:
    """Return the usage of a response, or a turn. Its counters include each other; details are an object, or a list."""
    counts = split(raw)
    cached = integer(_details(counts, "input_tokens_details"), "cached_tokens")
    written = integer(_details(counts, "input_tokens_details"), "cache_write_tokens")
    reasoning = integer(_details(counts, "output_tokens_details"), "reasoning_tokens")
    given, made = integer(counts, "input_tokens"), integer(counts, "output_tokens")
    return usage_of_totals(given, made, cached=cached, written=written, reasoning=reasoning, raw=raw)


def write_usage(usage: Usage | None) -> dict[str, Any] | None:
    """Return the counters of a response, as a run keeps them."""
    if usage is None:
        return None
    given = (usage.input or 0) + (usage.cache_read or 0) + (usage.cache_write or 0)
    made = (usage.output or 0) + (usage.reasoning or 0)
    cached: dict[str, int | None] = {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write}
    details: dict[str, Any] = {
        "input_tokens_details": [{key: each for key, each in cached.items() if each is not None}],
        "output_tokens_details": [{} if usage.reasoning is None else {"reasoning_tokens": usage.reasoning}],
    }
    counts: dict[str, Any] = {"input_tokens": given, "output_tokens": made, "total_tokens": given + made}
    return {**counts, **details}


def _details(counts: Fields, key: str) -> Fields:
    several = listed(counts, key)
    return split(several[0]) if several else inner(counts, key)
