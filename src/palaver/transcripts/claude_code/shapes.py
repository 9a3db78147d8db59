"""The record types of Claude Code and their keys, and what reader and writer both extract from a record.

Source: docs/spec/dialects.md#2.
Stability: experimental.
"""

from __future__ import annotations

import re
from typing import Final

from palaver.threads.ids import is_uuid
from palaver.transcripts.conversation import Session, Transcript, derived_id, session_of
from palaver.transcripts.extension_slot import SLOT

NAME: Final = "claude_code"
WIRE: Final = "anthropic_messages"
SYNTHETIC: Final = "<synthetic>"
"""The model of an answer that the program wrote itself: an error, a notice."""

CHAIN: Final = frozenset(
    (
        "uuid", "parentUuid", "logicalParentUuid", "sessionId", "timestamp", "type", "isSidechain", "userType", "cwd",
        "version", "gitBranch", "slug", "agentId", "teamName", "agentName", "isMeta", "sessionKind", "promptSource",
        "entrypoint", "requestId", "forkedFrom", "sourceToolAssistantUUID", "sourceToolUseID", "imagePasteIds",
        "toolUseResult", "isCompactSummary", "isVisibleInTranscriptOnly", "isApiErrorMessage", "error", "toolUseID",
        "parentToolUseID", "thinkingMetadata", "todos", "permissionMode", SLOT,
    )
)  # fmt: skip
KEYS: Final = {
    "user": CHAIN | {"message", "promptId"},
    "assistant": CHAIN | {"message"},
    "system": CHAIN
    | {
        "subtype", "content", "level", "compactMetadata", "hookCount", "hookInfos", "hookErrors", "stopReason",
        "hasOutput", "preventedContinuation", "durationMs", "cause", "retryInMs", "retryAttempt", "maxRetries",
        "messageCount", "url", "microcompactMetadata",
    },
    "attachment": CHAIN | {"attachment"},
    "progress": CHAIN | {"data"},
}  # fmt: skip
"""The keys of the records of the chain."""

SESSION: Final = frozenset(
    (
        "summary", "ai-title", "custom-title", "tag", "last-prompt", "mode", "permission-mode", "agent-name",
        "agent-setting", "pr-link", "queue-operation", "file-history-snapshot", "content-replacement",
    )
)  # fmt: skip
"""Records that are not links of the chain."""

TITLES: Final = {"custom-title": "customTitle", "ai-title": "aiTitle"}
"""The records with the title of a session, a stronger one first, and the key of the title."""

_FILE: Final = re.compile(r"(?:.*[/\\])?agent-([^/\\]+)\.jsonl")


def agent_of(name: str) -> str | None:
    """Return the sub-agent whose file this is, by its name; ``None`` for a session."""
    found = _FILE.fullmatch(name)
    return None if found is None else found[1]


def thread_of(session: str | None, name: str, agent: str | None = None) -> str:
    """Return the id of the thread of a session, or of one of its sub-agents; without a session, of the file."""
    thread = as_uuid(session) or derived_id(NAME, session or name)
    return thread if agent is None else derived_id(NAME, thread, agent)


def as_uuid(text: str | None) -> str | None:
    """Return a text that is a UUID as the program writes it, else ``None``."""
    return text if text is not None and is_uuid(text) else None


def session_id(session: Session, thread: str) -> str:
    """Return the id of the session of a thread, which is also the name of its file."""
    return as_uuid(session.id) or as_uuid(thread) or derived_id(thread)


def file_name(transcript: Transcript) -> str:
    """Return the path of the file of a conversation, relative to the folder of its project."""
    session = session_of(transcript.metadata)
    named = session_id(session, transcript.thread.id)
    if session.file_format == NAME and session.agent is not None:
        return f"{named}/subagents/agent-{session.agent}.jsonl"
    return f"{named}.jsonl"
