"""Names and keys of the Agent Trajectory Interchange Format, versions 1.0 to 1.8.

Stability: experimental.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME: Final = "atif"
PREFIX: Final = "ATIF-v"

Version: TypeAlias = tuple[int, int]

NEWEST: Final[Version] = (1, 8)
USUAL: Final[Version] = (1, 7)
"""The version of a new file that needs no newer one."""

PARTS_SINCE: Final = (1, 6)
EXTRA_SINCE: Final = (1, 7)
"""The first version with ``extra`` in calls and results."""
AUDIO_SINCE: Final = (1, 8)

_VERSION: Final = re.compile(rf"{PREFIX}(\d+)\.(\d+)")

KEYS: Final[Mapping[str, frozenset[str]]] = {
    "trajectory": frozenset(
        (
            "schema_version",
            "session_id",
            "trajectory_id",
            "agent",
            "steps",
            "notes",
            "final_metrics",
            "continued_trajectory_ref",
            "subagent_trajectories",
            "extra",
        )
    ),
    "agent": frozenset(("name", "version", "model_name", "tool_definitions", "extra")),
    "step": frozenset(
        (
            "step_id",
            "timestamp",
            "source",
            "message",
            "observation",
            "is_copied_context",
            "llm_call_count",
            "model_name",
            "reasoning_effort",
            "reasoning_content",
            "tool_calls",
            "metrics",
            "extra",
        )
    ),
    "tool_call": frozenset(("tool_call_id", "function_name", "arguments", "extra")),
    "observation": frozenset(("results",)),
    "result": frozenset(("source_call_id", "content", "subagent_trajectory_ref", "extra")),
    "part": frozenset(("type", "text", "source")),
    "source": frozenset(("media_type", "path", "duration_sec")),
    "metrics": frozenset(
        (
            "prompt_tokens",
            "completion_tokens",
            "cached_tokens",
            "cost_usd",
            "prompt_token_ids",
            "completion_token_ids",
            "logprobs",
            "extra",
        )
    ),
}
"""The keys of each object. Every object forbids others, from 1.0 on."""

IMAGES: Final[Mapping[str, str]] = {
    "image/jpeg": "jpg",
    "image/png": "png",
    "image/gif": "gif",
    "image/webp": "webp",
}
"""The image types of a content part, and their file extensions."""

AUDIO: Final[Mapping[str, str]] = {
    "audio/wav": "wav",
    "audio/mpeg": "mp3",
    "audio/mp4": "m4a",
    "audio/aac": "aac",
    "audio/ogg": "ogg",
    "audio/flac": "flac",
    "audio/webm": "webm",
    "audio/aiff": "aiff",
}

NAMED: Final[Mapping[str, Mapping[str, str]]] = {"image": IMAGES, "audio": AUDIO}

ALIASES: Final[Mapping[str, str]] = {
    "audio/mp3": "audio/mpeg",
    "audio/mpga": "audio/mpeg",
    "audio/x-mpeg": "audio/mpeg",
    "audio/x-wav": "audio/wav",
    "audio/wave": "audio/wav",
    "audio/vnd.wave": "audio/wav",
    "audio/x-m4a": "audio/mp4",
    "audio/m4a": "audio/mp4",
    "audio/x-aac": "audio/aac",
    "audio/x-flac": "audio/flac",
    "audio/x-aiff": "audio/aiff",
}
"""Spellings that the format accepts for one of those."""

RAW_ARGUMENTS: Final = "raw_arguments"
IS_ERROR: Final = "is_error"
TIMESTAMP: Final = "timestamp"
"""Keys in the ``extra`` of a call or a result: arguments that are not an object, a failure, its own time."""

FAILED: Final = (IS_ERROR, "tool_result_is_error")
"""The marks of a failed result: ours, and that of Harbor for a Claude Code session."""

CACHE_WRITE: Final = ("cache_creation_input_tokens",)
REASONING: Final = ("reasoning_output_tokens", "reasoning_tokens")
"""Counters in the ``extra`` of metrics, under the names of Harbor's converters; the first one is written."""

COPIED: Final = "is_copied_context"
REFS: Final = "subagent_trajectory_ref"
"""Keys of a message's metadata: the step repeats one of an earlier trajectory; the agent of a delegating call."""


def version_of(text: str | None) -> Version | None:
    """``(1, 7)`` of ``ATIF-v1.7``; ``None`` for any other text."""
    found = None if text is None else _VERSION.fullmatch(text)
    return None if found is None else (int(found[1]), int(found[2]))


def media_type(text: str | None) -> str | None:
    """Return a media type as the format spells it."""
    plain = None if text is None else text.strip().lower()
    return ALIASES.get(plain or "", plain)
