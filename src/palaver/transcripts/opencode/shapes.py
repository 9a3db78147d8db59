"""The tables of opencode's exports: their records, parts and keys (docs/spec/dialects.md#7).

Stability: experimental.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from palaver.core import jsontext, trusted
from palaver.core.usage import Usage
from palaver.transcripts.fields import inner, integer

if TYPE_CHECKING:
    from palaver.core.jsontext import Fields
    from palaver.core.messages import FinishReason

PROGRESS: Final = re.compile(rb"\s*Exporting session: [^\s{]*\s*(?=\{)")
"""The terminal output of `opencode export`, which precedes the document if both are redirected to one file."""

NAME: Final = "opencode"
SYNTHETIC: Final = "synthetic"
"""The ``source`` of text that a model is sent and nobody is shown."""
ASKED: Final = "What did we do so far?"
"""The text of opencode that replaces the request for a compaction."""
SUBTASK: Final = "The following tool was executed by the user"
"""The text of opencode that replaces a task that the user gave to a sub-agent."""
ABORTED: Final = "MessageAbortedError"
INVALID: Final = "invalid"
"""The tool that runs a call to an unknown one; it completes."""
UNSENT: Final = frozenset(("text/plain", "application/x-directory"))
"""Media types of files whose content is in a text beside them: shown, not sent."""

_INFO: Final = frozenset(("id", "sessionID", "role", "time", "agent"))
INFO: Final = {
    "user": _INFO | {"model", "system", "tools", "format", "summary", "variant", "fallbackModels"},
    "assistant": _INFO
    | {
        "parentID",
        "modelID",
        "providerID",
        "mode",
        "path",
        "cost",
        "tokens",
        "error",
        "summary",
        "finish",
        "system",
        "structured",
        "variant",
    },
}
_PART: Final = frozenset(("id", "sessionID", "messageID", "type"))
PARTS: Final = {
    "text": _PART | {"text", "synthetic", "ignored", "time", "metadata"},
    "reasoning": _PART | {"text", "time", "metadata"},
    "file": _PART | {"mime", "url", "filename", "source"},
    "tool": _PART | {"callID", "tool", "state", "metadata"},
    "step-start": _PART | {"snapshot"},
    "step-finish": _PART | {"reason", "cost", "tokens", "snapshot"},
    "snapshot": _PART | {"snapshot"},
    "patch": _PART | {"hash", "files"},
    "agent": _PART | {"name", "source"},
    "subtask": _PART | {"prompt", "description", "agent", "model", "command"},
    "retry": _PART | {"attempt", "error", "time"},
    "compaction": _PART | {"auto", "overflow", "tail_start_id"},
}
SAID: Final = frozenset(("text", "reasoning", "file", "tool"))
"""Parts with content; the others are of the program."""
STATUSES: Final = frozenset(("pending", "running", "completed", "error"))
STATE: Final = frozenset(
    (
        "status",
        "input",
        "raw",
        "output",
        "title",
        "metadata",
        "time",
        "attachments",
        "error",
        "structured",
        "content",
        "result",
        "outputPaths",
    )
)

_FLAT: Final = frozenset(("id", "type", "time", "metadata", "sessionID"))
FLAT: Final = {
    "user": _FLAT | {"text", "files", "agents", "skills", "references"},
    "assistant": _FLAT
    | {
        "agent",
        "model",
        "content",
        "snapshot",
        "finish",
        "rawFinish",
        "providerState",
        "cost",
        "tokens",
        "error",
        "retry",
    },
    "compaction": _FLAT
    | {"status", "reason", "summary", "recent", "model", "providerState", "providerContext", "cost", "tokens"},
    "agent-switched": _FLAT | {"agent"},
    "model-switched": _FLAT | {"model"},
    "location-switched": _FLAT | {"location"},
    "synthetic": _FLAT | {"text", "description"},
    "system": _FLAT | {"text"},
    "skill": _FLAT | {"text", "name", "skill"},
    "shell": _FLAT | {"callID", "command", "output", "shell", "status", "exit"},
    "idle": _FLAT,
}
"""Version 2: messages without parts."""
BLOCKS: Final = {
    "text": frozenset(("type", "id", "text", "providerState", "providerMetadata")),
    "reasoning": frozenset(("type", "id", "text", "time", "providerState", "providerMetadata")),
    "tool": frozenset(
        ("type", "id", "name", "executed", "provider", "providerState", "providerResultState", "state", "time")
    ),
}

FINISH: Final[dict[str, FinishReason]] = {
    "stop": "stop",
    "length": "length",
    "tool-calls": "tool_calls",
    "content-filter": "content_filter",
    "error": "error",
    "other": "other",
    "unknown": "other",
}
STOPS: Final[dict[str, str]] = {ours: theirs for theirs, ours in reversed(FINISH.items())}
PROVIDERS: Final = {
    "anthropic_messages": "anthropic",
    "openai_chat": "openai",
    "openai_responses": "openai",
    "google_generate": "google",
    "bedrock_converse": "amazon-bedrock",
    "cohere_chat": "cohere",
    "ollama_chat": "ollama",
}


def usage_of(fields: Fields) -> Usage | None:
    """Return the counters of ``tokens``, which do not overlap; the raw object also has the cost."""
    tokens = inner(fields, "tokens")
    if not tokens:
        return None
    cache = inner(tokens, "cache")
    return trusted.Usage(
        input=integer(tokens, "input"),
        cache_read=integer(cache, "read"),
        cache_write=integer(cache, "write"),
        output=integer(tokens, "output"),
        reasoning=integer(tokens, "reasoning"),
        raw_json=jsontext.raw({key: fields[key] for key in ("cost", "tokens") if key in fields}),
    )


def tokens_of(usage: Usage | None) -> dict[str, object]:
    """Return the reverse of ``usage_of``."""
    counted = usage or trusted.Usage()
    return {
        "input": counted.input or 0,
        "output": counted.output or 0,
        "reasoning": counted.reasoning or 0,
        "cache": {"read": counted.cache_read or 0, "write": counted.cache_write or 0},
    }
