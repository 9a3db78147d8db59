"""Transcript formats: readers and writers of the conversation files of agents.

``get(name)`` returns one, ``names()`` lists them, ``detect(data, name)`` returns the likely formats of a file. ::

    from palaver import transcripts

    (found, *_) = transcripts.detect(data, "session.jsonl")
    (transcript,) = transcripts.get(found.file_format).read(data)
    transcript.thread.path().messages
    written = transcripts.get("codex").write(transcript)
    written.body, written.losses

The module of a transcript format is imported on first use.

Stability: experimental.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

from palaver.core.errors import UnknownNameError
from palaver.core.type_checks import check_arguments
from palaver.transcripts.conversation import Began, Ended, Joined, Noted, Step, Transcript
from palaver.transcripts.detection import MARGIN, Detected, Detection, Head, candidates
from palaver.transcripts.format import Origin, Reader, TranscriptFormat
from palaver.transcripts.unknown_fields import UnknownFields
from palaver.transcripts.writer import Written

__all__ = [
    "Began",
    "Detected",
    "Detection",
    "Ended",
    "Head",
    "Joined",
    "Noted",
    "Origin",
    "Reader",
    "Step",
    "Transcript",
    "TranscriptFormat",
    "UnknownFields",
    "Written",
    "detect",
    "get",
    "names",
]

_FORMATS: Final = {
    "agent_swarm_kit": "palaver.transcripts.agent_swarm_kit",
    "kairo": "palaver.transcripts.kairo",
    "kairo_a2a": "palaver.transcripts.kairo_a2a",
    "codebuff": "palaver.transcripts.codebuff",
    "deepagents": "palaver.transcripts.deepagents",
    "deepagents_log": "palaver.transcripts.deepagents_log",
    "claude_code": "palaver.transcripts.claude_code",
    "codex": "palaver.transcripts.codex",
    "openai_messages": "palaver.transcripts.openai_messages",
    "pi": "palaver.transcripts.pi",
    "atif": "palaver.transcripts.atif",
    "openai_agents": "palaver.transcripts.openai_agents",
    "vercel_ui": "palaver.transcripts.vercel_ui",
    "langchain": "palaver.transcripts.langchain",
    "otel_genai": "palaver.transcripts.otel_genai",
    "opencode": "palaver.transcripts.opencode",
    "gemini_cli": "palaver.transcripts.gemini_cli",
    "qwen_code": "palaver.transcripts.qwen_code",
    "inspect": "palaver.transcripts.inspect_log",
    "ag_ui": "palaver.transcripts.ag_ui",
    "acp": "palaver.transcripts.acp",
    "hf_sts": "palaver.transcripts.hf_sts",
    "chatgpt": "palaver.transcripts.chatgpt",
    "claude_ai": "palaver.transcripts.claude_ai",
    "aider": "palaver.transcripts.aider",
    "specstory": "palaver.transcripts.specstory",
    "anthropic_batches": "palaver.transcripts.anthropic_batches",
    "swe_agent": "palaver.transcripts.swe_agent",
    "mini_swe_agent": "palaver.transcripts.mini_swe_agent",
    "openhands": "palaver.transcripts.openhands",
    "langsmith": "palaver.transcripts.langsmith",
    "langfuse": "palaver.transcripts.langfuse",
    "litellm_logs": "palaver.transcripts.litellm_logs",
    "cline": "palaver.transcripts.cline",
    "copilot_cli": "palaver.transcripts.copilot_cli",
    "vscode_chat": "palaver.transcripts.vscode_chat",
    "cursor": "palaver.transcripts.cursor",
    "goose": "palaver.transcripts.goose",
    "amp": "palaver.transcripts.amp",
    "droid": "palaver.transcripts.droid",
}

ALIASES: Final = {
    "claude": "claude_code",
    "qwen": "qwen_code",
    "ai_sdk": "vercel_ui",
    "vercel": "vercel_ui",
    "sharegpt": "openai_messages",
    "otel": "otel_genai",
    "roo_code": "cline",
}
"""Short names, and the formats that they stand for. ``gemini`` is a wire (``palaver.wires.ALIASES``)."""


def full_name(name: str) -> str:
    """Return the full name of a format for ``name``, which may be an alias or have hyphens.

    An unknown name is returned as it is.
    """
    plain = name.replace("-", "_")
    known = ALIASES.get(plain, plain)
    return known if known in _FORMATS else name


def names() -> tuple[str, ...]:
    """Return the names of all transcript formats."""
    return tuple(_FORMATS)


def get(name: str) -> TranscriptFormat:
    """Return a transcript format.

    ``name`` is a name of ``names()`` or ``ALIASES``. Raises ``UnknownNameError`` listing those that exist.
    """
    name = full_name(name)
    if name not in _FORMATS:
        raise UnknownNameError.among(f"no transcript format {name!r}", _FORMATS, name, aliases=ALIASES)
    file_format: TranscriptFormat = import_module(_FORMATS[name]).FORMAT
    return file_format


def detect(data: bytes, name: str = "") -> tuple[Detected, ...]:
    """Return the transcript formats that a file may have, the likeliest first; empty when there are none.

    ``data`` are its first bytes (64 KiB are examined), ``name`` is its name, if any. Several are returned when they are
    about equally likely. Raises ``MessageError`` for anything but bytes.
    """
    check_arguments("detect", detect, {"data": data, "name": name})
    head = Head(data, name)
    # A format is imported only when the file has the features of one (``signatures``).
    found = [
        Detected(each, detection.version, detection.confidence)
        for each in candidates(head, _FORMATS)
        if (detection := get(each).detector(head)) is not None
    ]
    found.sort(key=lambda each: -each.confidence)
    return tuple([each for each in found if each.confidence >= found[0].confidence - MARGIN])
