"""The lines of a Codex rollout, their keys, and the response items in them (docs/spec/dialects.md#3).

Rules:

- The items that a model made in a row are one message; any other item is one of its own. An item that the wire refuses
  raises ``DecodeError``; the caller keeps it.
- ``agent_message`` is a user message of another agent, with a ``source``. Older files have results that are an object,
  ``{content, success}``.
- An item has a text for each of its parts, and all of them joined; an event repeats one of these. Items and events
  match as a multiset: texts without a partner stay apart. Spaces do not count, nor does a character that was cut.

Stability: experimental.
"""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from msgspec import UNSET, Raw, structs

from palaver import wires
from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError
from palaver.core.messages import BOOKKEEPING, AssistantMessage, Message, ToolMessage, UserMessage
from palaver.core.parts import AnyPart, Text
from palaver.core.usage import Usage
from palaver.threads.view import PLACEHOLDER
from palaver.transcripts.extension_slot import SLOT
from palaver.transcripts.fields import (
    as_object,
    check_summary,
    either,
    inner,
    integer,
    listed,
    read_time,
    split,
    string,
    usage_of_totals,
    value,
)
from palaver.transcripts.salvage import salvaged

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from msgspec import Raw

    from palaver.core.jsontext import Fields
    from palaver.transcripts.record import Record

NAME: Final = "codex"
WIRE: Final = "openai_responses"
NOTES: Final = BOOKKEEPING + WIRE

UNKNOWN: Final = "unknown"
"""The model of a turn without a ``turn_context``."""

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
"""Keys of a payload with data of the conversation."""

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
"""Response items and their keys; the program ignores any other."""
RESULTS: Final = frozenset(("function_call_output", "custom_tool_call_output"))
UNSUPPORTED: Final = frozenset(("ghost_snapshot", "other"))
"""Items for the program's own use."""
OTHERS: Final = RESULTS | {"agent_message", "compaction_trigger"} | UNSUPPORTED
"""Items that no model makes, in addition to messages."""
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
"""The prefixes of texts that the program added, and no user typed."""


def injected(texts: list[str]) -> str | None:
    """Return the source of a prompt that the program added as a whole."""
    found = [INJECTED.match(text) for text in texts]
    if not found or not all(found) or found[0] is None:
        return None
    return (found[0][1] or "user_instructions").lower()


_COUNTERS: Final = frozenset(
    ("input_tokens", "cached_input_tokens", "output_tokens", "reasoning_output_tokens", "total_tokens")
)


def read_usage(raw: Raw) -> Usage:
    """Return the usage of one call; the counters of the file include each other."""
    counts = split(raw)
    cached = integer(counts, "cached_input_tokens")
    written = integer(counts, "cache_write_input_tokens")
    reasoning = integer(counts, "reasoning_output_tokens")
    given, made = integer(counts, "input_tokens"), integer(counts, "output_tokens")
    return usage_of_totals(given, made, cached=cached, written=written, reasoning=reasoning, raw=raw)


def write_usage(usage: Usage) -> Any:
    """Return the counters of the file: the original object, if it still matches."""
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


Note: TypeAlias = "Callable[[Literal['block', 'unread'], str], None]"
_KEEP: Final[Callable[[DecodeError], None]] = lambda _: None  # noqa: E731 (a default)


def is_made(item: Raw) -> bool:
    """Return whether a model made an item."""
    fields = as_object(item)
    kind = string(fields, "type")
    if kind == "message":
        return string(fields, "role") == "assistant"
    if kind == "tool_search_output":
        return string(fields, "execution") != "client"
    return kind not in OTHERS


def texts_of(item: Raw) -> list[str]:
    """Return the texts of a message; any other item has none."""
    message = as_object(item)
    if string(message, "type") != "message":
        return []
    content = [split(each) for each in listed(message, "content")]
    return [text for each in content if (text := string(each, "text")) is not None]


class Items:
    """Reads response items."""

    def __init__(self, note: Note | None = None) -> None:
        """Find the wire. ``note`` is called with omitted parts of an item; without it, they raise."""
        self._note = note
        self._wire = wires.get(WIRE)

    def read(self, items: Sequence[Raw]) -> list[Message]:
        """Return the messages of items. Raises ``DecodeError``."""
        messages: list[Message] = []
        for made, run in groupby(items, is_made):
            if made:
                messages += self._decoded(run)
            else:
                for item in run:
                    messages += self._other(item)
        return messages

    def read_well(self, items: Sequence[Raw], failed: Callable[[DecodeError], None] = _KEEP) -> list[Message]:
        """Return the messages of items, without unreadable ones."""
        try:
            return self.read(items)
        except DecodeError:
            good: list[Raw] = []
            for item in items:
                try:
                    self.read([item])
                except DecodeError as error:
                    failed(error)
                else:
                    good.append(item)
            return self.read(good)

    def _decoded(self, items: Any) -> list[Message]:
        taken = list(items)
        for each in taken:
            check_summary(as_object(each))
        body = b'{"input":[%b]}' % b",".join(map(bytes, taken))
        read = self._read(body) if self._note is None else salvaged(self._read, body, NAME, self._note)
        return list(read)

    def _read(self, body: bytes) -> Sequence[Message]:
        return self._wire.decode_request(body).messages

    def _other(self, item: Raw) -> list[Message]:
        fields = as_object(item)
        kind = string(fields, "type")
        if kind == "agent_message":
            return [_agent_message(fields)]
        output = fields.get("output")
        if kind in RESULTS and output is not None and jsontext.kind(output) == "an object":
            inner = split(output)
            if "content" not in inner:
                either(output, "output", "a string", "an array")
            told = jsontext.raw({**fields, "output": inner.get("content", jsontext.raw(""))})
            failed = value(inner, "success") is False
            return [
                structs.replace(each, is_error=failed) if isinstance(each, ToolMessage) else each
                for each in self._decoded([told])
            ]
        return [
            structs.replace(each, source=kind) if kind == "compaction_trigger" else each
            for each in self._decoded([item])
        ]


def _agent_message(fields: Fields) -> UserMessage:
    content = tuple(
        [
            trusted.Opaque(WIRE, jsontext.own(each))
            if (text := string(split(each), "text")) is None
            else trusted.Text(text)
            for each in listed(fields, "content")
        ]
    )
    return trusted.UserMessage(content=content, agent=string(fields, "author"), source="agent_message")


def native_type(node: Message | AnyPart) -> str | None:
    """Return the original item type of a call or a result, unless it was that of a function."""
    found = node.provider.get(NOTES, {}).get("type")
    return found if isinstance(found, str) else None


class Open:
    """A message that may not have ended, and the lines after it. ``claims`` are its texts without an event."""

    def __init__(self, role: str, model: str | None = None) -> None:
        """Start without items. ``model`` is that of the turn."""
        self.role = role
        self.model = model
        self.items: list[tuple[Record, Raw]] = []
        self.beside: list[Record] = []  # lines with data that its items lack
        self.waiting: list[Record] = []
        self.claims: list[frozenset[str]] = []
        self.told = False
        self.ended = False
        self.usage: Raw | None = None
        self.response: str | None = None
        self.aborted: str | None = None

    def add(self, record: Record, item: Raw) -> None:
        """Add one of its items."""
        self.items.append((record, item))
        self.claims += _claims(self.role, item)

    def claim(self, text: str) -> bool:
        """Return whether an event repeats one of its texts, each once."""
        found = claimed(self.claims, text)
        self.told = self.told or found
        return found


def _plain(text: str) -> str:
    """Return a text without spaces, and without the rest of a character that was cut."""
    return "".join(text.encode("utf-8", "ignore").decode().split())


def _claims(role: str, item: Raw) -> list[frozenset[str]]:
    texts = [_plain(text) for text in texts_of(item)]
    whole = "".join(texts)
    if role == "user":
        return [frozenset((*texts, whole))]
    return [frozenset((text, whole)) if place == 0 else frozenset((text,)) for place, text in enumerate(texts)]


def claimed(claims: list[frozenset[str]], text: str) -> bool:
    """Return whether a text is among these, and remove it."""
    plain = _plain(text)
    for place, each in enumerate(claims):
        if plain in each:
            del claims[place]
            return True
    return False


def shown(role: str, text: str, *, failed: bool = False) -> Message:
    """Return a message that people were shown, and no model sees."""
    content = (trusted.Text(text),)
    if role == "user":
        return trusted.UserMessage(content=content, tags=(PLACEHOLDER,))
    return trusted.AssistantMessage(content=content, tags=(PLACEHOLDER,), finish_reason="error" if failed else None)


def kind_and_payload(fields: Fields) -> tuple[str | None, Fields]:
    """Return the kind of a line and its payload; the oldest files have items, and a head without a type, directly."""
    kind = string(fields, "type")
    if "payload" in fields:
        return kind, inner(fields, "payload")
    if kind in ITEMS:
        return "response_item", fields
    return ("session_meta" if kind is None and "id" in fields and "timestamp" in fields else kind), fields


def timed(group: list[Any], fields: Fields) -> list[Any]:
    """Return messages, with the time of their line if they have none."""
    sent_at = read_time(value(fields, "timestamp"))
    return [structs.replace(each, sent_at=sent_at) if each.sent_at is None else each for each in group]


def answered(message: Message, model: str | None, usage: Any, opened: Open) -> Message:
    """Return an answer with the data of the lines around it."""
    if not isinstance(message, AssistantMessage):
        return message
    told = structs.replace(message, model=model, usage=usage, response_id=opened.response)
    if opened.aborted is None:
        return told
    return structs.replace(told, finish_reason="other", finish_reason_raw=opened.aborted)


def is_unsaid(item: Raw) -> bool:
    """Return whether an item has no content for a model."""
    return string(as_object(item), "type") in UNSUPPORTED


def begins_turn(message: UserMessage, source: str | None = None) -> bool:
    """Return whether a rollback counts a prompt: it was typed, or is from another agent."""
    if message.source == "agent_message":
        return True
    texts = [part.text for part in message.content if isinstance(part, Text)]
    return message.source == source and (source is None or injected(texts) is None)


def event_text(fields: Fields) -> str:
    """Return the text of an event, or of the item in a completion event."""
    message = string(fields, "message")
    if message is not None:
        return message
    return "".join(filter(None, [string(split(each), "text") for each in listed(fields, "content")]))
