"""The lines of a Codex rollout and their keys (docs/spec/dialects.md#3).

Stability: experimental.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET

from palaver.core import jsontext, trusted
from palaver.core.usage import Usage
from palaver.transcripts.extension_slot import SLOT
from palaver.transcripts.fields import integer, split

if TYPE_CHECKING:
    from msgspec import Raw

NAME: Final = "codex"
WIRE: Final = "openai_responses"

UNKNOWN: Final = "unknown"
"""The model of a turn that nobody told us: a ``turn_context`` names one."""

LINE: Final = frozenset(("timestamp", "ordinal", "type", "payload", "metadata", SLOT))
TYPES: Final = frozenset(
    (
        "session_meta", "response_item", "event_msg", "turn_context", "compacted", "world_state",
        "inter_agent_communication", "inter_agent_communication_metadata", "token_usage_record", "retained_context",
        "security_risk_score", "realtime_item",
    )
)  # fmt: skip
PAYLOADS: Final = {
    "session_meta": frozenset(
        (
            "id", "session_id", "timestamp", "cwd", "originator", "cli_version", "source", "model_provider",
            "history_mode", "history_base", "forked_from_id", "parent_thread_id", "thread_source", "base_instructions",
            "dynamic_tools", "subagent_history_start_ordinal", "git", "instructions", "agent_nickname", "agent_role",
            "agent_path", "memory_mode", "context_window", "multi_agent_version",
        )
    ),
    "compacted": frozenset(
        (
            "message", "replacement_history", "replacement_history_metadata", "compaction_response_id",
            "window_number", "first_window_id", "previous_window_id", "window_id", "mcp_resource_origins",
        )
    ),
}  # fmt: skip
"""Keys of a payload, where they say something of the conversation."""

_ITEM: Final = frozenset(("type", "id", "status", "metadata", "internal_chat_message_metadata_passthrough"))
ITEMS: Final = {
    "message": _ITEM | {"role", "content", "phase", "end_turn"},
    "agent_message": _ITEM | {"author", "recipient", "source_call_id", "content"},
    "reasoning": _ITEM | {"summary", "content", "encrypted_content"},
    "function_call": _ITEM | {"name", "namespace", "arguments", "call_id"},
    "function_call_output": _ITEM | {"call_id", "output"},
    "custom_tool_call": _ITEM | {"call_id", "name", "namespace", "input"},
    "custom_tool_call_output": _ITEM | {"call_id", "name", "output"},
    "local_shell_call": _ITEM | {"call_id", "action"},
    "tool_search_call": _ITEM | {"call_id", "execution", "arguments"},
    "tool_search_output": _ITEM | {"call_id", "execution", "tools"},
    "web_search_call": _ITEM | {"action"},
    "image_generation_call": _ITEM | {"revised_prompt", "result"},
    "compaction": _ITEM | {"encrypted_content"},
    "compaction_summary": _ITEM | {"encrypted_content"},
    "context_compaction": _ITEM | {"encrypted_content"},
    "compaction_trigger": _ITEM,
    "ghost_snapshot": _ITEM | {"ghost_commit"},
    "other": _ITEM,
}
"""Response items and their keys; the program passes over any other."""
RESULTS: Final = frozenset(("function_call_output", "custom_tool_call_output"))
UNSAID: Final = frozenset(("ghost_snapshot", "other"))
"""Items that the program keeps for itself."""
OTHERS: Final = RESULTS | {"agent_message", "compaction_trigger"} | UNSAID
"""Items that no model makes, beside messages."""
CONTENT: Final = frozenset(("input_text", "input_image", "output_text"))
"""Parts of messages that the program reads."""

EVENTS: Final = frozenset(
    (
        "user_message", "agent_message", "agent_reasoning", "agent_reasoning_raw_content", "token_count",
        "task_started", "task_complete", "turn_started", "turn_complete", "turn_aborted", "thread_rolled_back",
        "thread_name_updated", "context_compacted", "item_completed", "exec_command_end", "patch_apply_end",
        "mcp_tool_call_end", "sub_agent_activity", "collab_agent_spawn_end", "collab_agent_interaction_end",
        "collab_close_end", "collab_waiting_end", "error", "warning", "entered_review_mode", "exited_review_mode",
        "web_search_end", "image_generation_end", "view_image_tool_call", "dynamic_tool_call_response",
        "undo_completed", "background_event", "stream_error", "plan_update", "model_reroute",
    )
)  # fmt: skip
ENDS: Final = frozenset(("task_complete", "turn_complete", "turn_aborted"))
"""Events that end a turn."""

_TAGS: Final = (
    "environment_context|user_instructions|permissions instructions|turn_aborted|user_shell_command|skill|INSTRUCTIONS"
    "|model_switch|collaboration_mode|personality_spec|apps_instructions|subagent_notification|subagents|hook_prompt"
)
INJECTED: Final = re.compile(rf"\s*(?:<({_TAGS})[\s>]|(# AGENTS\.md instructions))", re.IGNORECASE)
"""How a text begins that the program put in, and no user typed."""


def injected(texts: list[str]) -> str | None:
    """Where a prompt comes from, when the program put all of it in."""
    found = [INJECTED.match(text) for text in texts]
    if not found or not all(found) or found[0] is None:
        return None
    return (found[0][1] or "user_instructions").lower()


_COUNTERS: Final = frozenset(
    ("input_tokens", "cached_input_tokens", "output_tokens", "reasoning_output_tokens", "total_tokens")
)


def read_usage(raw: Raw) -> Usage:
    """What one call cost; the counters of the file hold each other."""
    counts = split(raw)
    cached = integer(counts, "cached_input_tokens")
    written = integer(counts, "cache_write_input_tokens")
    reasoning = integer(counts, "reasoning_output_tokens")
    given, made = integer(counts, "input_tokens"), integer(counts, "output_tokens")
    return trusted.Usage(
        input=None if given is None else max(given - (cached or 0) - (written or 0), 0),
        cache_read=cached,
        cache_write=written,
        output=None if made is None else max(made - (reasoning or 0), 0),
        reasoning=reasoning,
        raw_json=jsontext.own(raw),
    )


def write_usage(usage: Usage) -> Any:
    """The counters of the file: the object they came in, where it still says the same."""
    raw = usage.raw_json
    if raw is not UNSET and split(raw).keys() >= _COUNTERS and read_usage(raw) == usage:
        return raw
    given = (usage.input or 0) + (usage.cache_read or 0) + (usage.cache_write or 0)
    made = (usage.output or 0) + (usage.reasoning or 0)
    return {
        "input_tokens": given,
        "cached_input_tokens": usage.cache_read or 0,
        **({} if usage.cache_write is None else {"cache_write_input_tokens": usage.cache_write}),
        "output_tokens": made,
        "reasoning_output_tokens": usage.reasoning or 0,
        "total_tokens": given + made,
    }
