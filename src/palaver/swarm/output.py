"""What becomes of an answer before anybody sees it: how it is changed, and whether it may pass.

Rules (docs/spec/agent-swarm-kit.md#3.4, #K19):

- ``transform`` gets the text of an answer once and gives the text that is shown and kept; ``validate`` gets that, and
  gives ``None``, or the reason why it must not be shown.
- An agent without either checks only that an answer is not empty. ``plain_text`` and ``no_tool_syntax`` are the
  original's defaults, for models that mix tags and calls into their text; they damage code, JSON and HTML. They are
  ``without_tags`` and ``text_fault`` of ``palaver.agent.plain_answers``.

Stability: experimental.
"""

from __future__ import annotations

from palaver.agent.plain_answers import EMPTY, text_fault, without_tags

plain_text = without_tags
no_tool_syntax = text_fault


def not_empty(text: str) -> str | None:
    """Refuse a text that says nothing."""
    return None if text.strip() else EMPTY
