"""The lines of a Codex rollout and their keys (dialects.md 3).

Stability: experimental.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from palaver.core import jsontext
from palaver.core.usage import Usage
from palaver.dialects.carrying import SLOT
from palaver.dialects.fields import integer, split

if TYPE_CHECKING:
    from msgspec import Raw

NAME: Final = "codex"
WIRE: Final = "openai_responses"

LINE: Final = frozenset(("timestamp", "ordinal", "type", "payload", "metadata", SLOT))
TYPES: Final = frozenset(
    (
        "session_meta", "response_item", "event_msg", "turn_context", "compacted", "world_state",
        "inter_agent_communication", "inter_agent_communication_metadata", "token_usage_record", "retained_context",
        "security_risk_score", "realtime_item",
    )
)  # fmt: skip
MADE: Final = frozenset(
    (
        "reasoning", "function_call", "custom_tool_call", "local_shell_call", "tool_search_call", "web_search_call",
        "image_generation_call",
    )
)  # fmt: skip
"""Items that a model makes, beside its messages."""
RESULTS: Final = frozenset(("function_call_output", "custom_tool_call_output", "tool_search_output"))
ITEMS: Final = (
    MADE | RESULTS | {"message", "agent_message", "compaction", "context_compaction", "compaction_trigger", "other"}
)
EVENTS: Final = frozenset(
    (
        "user_message", "agent_message", "agent_reasoning", "agent_reasoning_raw_content", "token_count",
        "task_started",
        "task_complete", "turn_started", "turn_complete", "turn_aborted", "thread_rolled_back", "thread_name_updated",
        "context_compacted", "item_completed", "exec_command_end", "patch_apply_end",
        "mcp_tool_call_end",
        "sub_agent_activity", "collab_agent_spawn_end", "error", "warning", "entered_review_mode", "exited_review_mode",
        "web_search_end", "view_image_tool_call", "undo_completed", "background_event", "stream_error", "plan_update",
    )
)  # fmt: skip

INJECTED: Final = re.compile(
    r"\s*(?:<(environment_context|user_instructions|permissions instructions|turn_aborted|user_shell_command|skill|"
    r"INSTRUCTIONS|model_switch|collaboration_mode|personality_spec|apps_instructions|subagent_notification)>|"
    r"(# AGENTS\.md instructions))"
)
"""How a text begins that the program put in, and no user typed."""


def read_usage(raw: Raw) -> Usage:
    """What one call cost; the counters of the file hold each other."""
    counts = split(raw)
    cached = integer(counts, "cached_input_tokens")
    written = integer(counts, "cache_write_input_tokens")
    reasoning = integer(counts, "reasoning_output_tokens")
    given, made = integer(counts, "input_tokens"), integer(counts, "output_tokens")
    return Usage(
        input=None if given is None else max(given - (cached or 0) - (written or 0), 0),
        cache_read=cached,
        cache_write=written,
        output=None if made is None else max(made - (reasoning or 0), 0),
        reasoning=reasoning,
        raw_json=jsontext.own(raw),
    )


def write_usage(usage: Usage) -> dict[str, Any]:
    """The counters of the file."""
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
