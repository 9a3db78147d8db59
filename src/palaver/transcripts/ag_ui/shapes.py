"""The words of AG-UI: events, messages, parts.

Stability: experimental.
"""

from __future__ import annotations

from typing import Final

NAME: Final = "ag_ui"
VERSION: Final = "1.0"

_EVENT: Final = frozenset(("type", "timestamp", "rawEvent", "metadata", "subagentRunId"))
_TEXT: Final = _EVENT | {"messageId", "role", "name", "delta"}
_CALL: Final = _EVENT | {"toolCallId", "toolCallName", "parentMessageId", "delta"}
_INPUT: Final = frozenset(
    (
        "threadId",
        "runId",
        "protocolVersion",
        "parentRunId",
        "state",
        "messages",
        "tools",
        "context",
        "forwardedProps",
        "resume",
    )
)
EVENTS: Final = {
    "TEXT_MESSAGE_START": _TEXT,
    "TEXT_MESSAGE_CONTENT": _TEXT,
    "TEXT_MESSAGE_END": _TEXT,
    "TEXT_MESSAGE_CHUNK": _TEXT,
    "TOOL_CALL_START": _CALL,
    "TOOL_CALL_ARGS": _CALL,
    "TOOL_CALL_END": _CALL,
    "TOOL_CALL_CHUNK": _CALL,
    "TOOL_CALL_RESULT": _EVENT | {"messageId", "toolCallId", "content", "role", "error"},
    "REASONING_START": _TEXT | {"encryptedContent"},
    "REASONING_MESSAGE_START": _TEXT,
    "REASONING_MESSAGE_CONTENT": _TEXT,
    "REASONING_MESSAGE_END": _TEXT,
    "REASONING_MESSAGE_CHUNK": _TEXT,
    "REASONING_END": _TEXT,
    "REASONING_ENCRYPTED_VALUE": _EVENT | {"subtype", "entityId", "encryptedValue"},
    "THINKING_START": _EVENT | {"title"},
    "THINKING_END": _EVENT,
    "THINKING_TEXT_MESSAGE_START": _EVENT,
    "THINKING_TEXT_MESSAGE_CONTENT": _EVENT | {"delta"},
    "THINKING_TEXT_MESSAGE_END": _EVENT,
    "STATE_SNAPSHOT": _EVENT | {"snapshot"},
    "STATE_DELTA": _EVENT | {"delta"},
    "MESSAGES_SNAPSHOT": _EVENT | {"messages"},
    "ACTIVITY_SNAPSHOT": _EVENT | {"messageId", "activityType", "content", "replace"},
    "ACTIVITY_DELTA": _EVENT | {"messageId", "activityType", "patch"},
    "RUN_STARTED": _EVENT | {"threadId", "runId", "protocolVersion", "parentRunId", "input"},
    "RUN_FINISHED": _EVENT | {"threadId", "runId", "result", "outcome", "usage"},
    "RUN_ERROR": _EVENT | {"message", "code", "usage", "threadId", "runId"},
    "STEP_STARTED": _EVENT | {"stepName"},
    "STEP_FINISHED": _EVENT | {"stepName"},
    "SUBAGENT_STARTED": _EVENT | {"name", "description", "parentSubagentRunId", "parentToolCallId", "parentMessageId"},
    "SUBAGENT_FINISHED": _EVENT | {"result", "outcome"},
    "SUBAGENT_ERROR": _EVENT | {"message", "code"},
    "RAW": _EVENT | {"event", "source"},
    "CUSTOM": _EVENT | {"name", "value"},
    "": _INPUT | {"type"},
}
SPOKEN: Final = ("TEXT_MESSAGE_", "TOOL_CALL_", "REASONING_", "THINKING_")
"""How the types of events begin that a message is made of."""

_MESSAGE: Final = frozenset(("id", "role", "content", "name", "encryptedValue", "metadata", "subagentRunId"))
ROLES: Final = {
    "developer": _MESSAGE,
    "system": _MESSAGE,
    "user": _MESSAGE,
    "assistant": _MESSAGE | {"toolCalls"},
    "tool": _MESSAGE | {"toolCallId", "error"},
    "activity": _MESSAGE | {"activityType"},
    "reasoning": _MESSAGE,
}
PARTS: Final = {
    "text": frozenset(("type", "id", "text", "metadata")),
    "image": frozenset(("type", "id", "source", "metadata")),
    "audio": frozenset(("type", "id", "source", "metadata")),
    "video": frozenset(("type", "id", "source", "metadata")),
    "document": frozenset(("type", "id", "source", "metadata")),
    "binary": frozenset(("type", "mimeType", "id", "url", "data", "filename")),
}
