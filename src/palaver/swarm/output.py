"""What becomes of an answer before anybody sees it: how it is changed, and whether it may pass.

Rules (docs/spec/agent-swarm-kit.md#3.4, #K19):

- ``transform`` gets the text of an answer once and gives the text that is shown and kept; ``validate`` gets that, and
  gives ``None``, or the reason why it must not be shown.
- An agent without either checks only that an answer is not empty. ``plain_text`` and ``no_tool_syntax`` are the
  original's defaults, for models that mix tags and calls into their text; they damage code, JSON and HTML.

Stability: experimental.
"""

from __future__ import annotations

import re
from typing import Final
from xml.etree import ElementTree as ET

EMPTY: Final = "Empty output"
TOOL_SYNTAX: Final = "Tool call in text output"

_PAIR: Final = re.compile(r"<[^>]+>[\s\S]*?</[^>]+>")
_BLANK: Final = re.compile(r"\n\s*\n+")
_TAGS: Final = frozenset(("tool_call", "toolcall", "tool"))


def not_empty(text: str) -> str | None:
    """Refuse a text that says nothing."""
    return None if text.strip() else EMPTY


def plain_text(text: str) -> str:
    """Remove every ``<tag>…</tag>`` with what it holds, and blank lines; trim."""
    return _BLANK.sub("\n", _without_pairs(text)).strip()


def no_tool_syntax(text: str) -> str | None:
    """Refuse a text that is empty, holds a brace, or is a ``tool_call`` element."""
    if not text.strip():
        return EMPTY
    if "{" in text or "}" in text or _root(text) in _TAGS:
        return TOOL_SYNTAX
    return None


def _without_pairs(text: str) -> str:
    # The expression is the specification's; without a closing tag it cannot match, and would try each opening one.
    return _PAIR.sub("", text) if "</" in text else text


def _root(text: str) -> str | None:
    start = text.lstrip()
    if not start.startswith("<") or "<!" in start:  # no document type: nothing of it may be expanded
        return None
    try:
        return ET.fromstring(start.rstrip()).tag  # noqa: S314 (no declarations get here)
    except ET.ParseError:
        return None
