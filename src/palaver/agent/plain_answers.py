"""Presets for agents that speak to people in plain text: markup is removed, and calls written as text are refused.

Rules (docs/spec/agent-swarm-kit.md#3.4, ASK-16):

- ``without_tags`` removes every pair of tags with what is between them, folds blank lines, and trims. ``text_fault``
  refuses an empty text, one with braces, and one that is a tool call in tags.
- They damage ordinary answers: code, JSON, HTML. No agent has them unless it is given them, as policies of a guardrail:
  ``Guardrail(after_model=[transforming(without_tags), validating(text_fault)])``. The transformation runs once an
  answer, and validation sees what it gave. Answers that call tools are let alone.
- Both take time in proportion to the text, whatever is in it.

Stability: experimental.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from palaver.agent.guardrails import AnswerPolicy, Verdict, deny, modify
from palaver.agent.middleware import RunContext
from palaver.core.messages import AssistantMessage
from palaver.core.parts import Text

EMPTY: Final = "Empty output"
TOOL_SYNTAX: Final = "Tool call in text output"

_BLANK: Final = re.compile(r"\n\s*\n")
_CALL: Final = re.compile(r"<(tool_call|toolcall|tool)[\s/>]")


def without_tags(text: str) -> str:
    """Remove pairs of tags with their content, fold blank lines, and trim."""
    kept: list[str] = []
    place = 0
    while (opening := _tag(text, place, "<")) is not None:
        closing = _tag(text, opening[1], "</")
        if closing is None:
            break
        kept.append(text[place : opening[0]])
        place = closing[1]
    kept.append(text[place:])
    return _BLANK.sub("\n", "".join(kept)).strip()


def text_fault(text: str) -> str | None:
    """What is wrong with an answer; ``None`` when nothing is."""
    text = text.strip()
    if not text:
        return EMPTY
    called = _CALL.match(text)
    if "{" in text or "}" in text or (called and text.endswith((f"</{called[1]}>", "/>"))):
        return TOOL_SYNTAX
    return None


def transforming(transform: Callable[[str], str]) -> AnswerPolicy:
    """A policy that puts another text in the place of an answer's."""

    def policy(message: AssistantMessage, context: RunContext) -> Verdict | None:  # noqa: ARG001 (a policy)
        if message.tool_calls:
            return None
        others = [part for part in message.content if not isinstance(part, Text)]
        return modify(message.replace(content=(*others, Text(transform(message.text)))))

    return policy


def validating(fault: Callable[[str], str | None]) -> AnswerPolicy:
    """A policy that denies an answer for what is wrong with its text."""

    def policy(message: AssistantMessage, context: RunContext) -> Verdict | None:  # noqa: ARG001 (a policy)
        found = None if message.tool_calls else fault(message.text)
        return None if found is None else deny(found)

    return policy


def _tag(text: str, place: int, opening: str) -> tuple[int, int] | None:
    """The next tag: where it begins, and where it is over. At least one letter stands in it."""
    while (begin := text.find(opening, place)) >= 0:
        inside = begin + len(opening)
        end = text.find(">", inside)
        if end < 0:
            return None
        if end > inside:
            return begin, end + 1
        place = begin + 1
    return None
