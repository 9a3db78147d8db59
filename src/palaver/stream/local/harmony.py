"""Harmony, the format of gpt-oss: messages in channels.

::

    <|channel|>analysis<|message|>They ask for the weather.<|end|>
    <|start|>assistant<|channel|>commentary to=functions.get_time <|constrain|>json<|message|>{"city":"Paris"}<|call|>
    <|start|>assistant<|channel|>final<|message|>It rains.<|return|>

Rules:

- A recipient makes a message a call, in whatever channel and part of the header it stands; ``functions.`` is not part
  of the name. ``to=assistant`` is the answer of a tool, and text here.
- ``analysis`` is reasoning. ``final``, ``commentary`` (a preamble, meant to be seen) and channels that the format does
  not know are text.
- The built-in ``python`` tool takes code, not JSON: a free-text call.
- Models write headers that are none. One that does not reach ``<|message|>`` within 1,024 characters, or before
  another message, is text; one with words that the format does not know is text, and announces what it does. Text
  outside any message is text.

Source: openai/harmony, ``docs/format.md``; headers gone wrong: openai/harmony#56, #114, ggml-org/llama.cpp#27720.

Stability: experimental.
"""

from __future__ import annotations

import re
from typing import Final

from palaver.core import trusted
from palaver.core.parts import Reasoning, Text, ToolCall
from palaver.stream.local.format import Block, Format, Head

_TO: Final = re.compile(r"(?:^|[\s>])to=([^\s<]+)")
_TAGS: Final = re.compile(r"<\|(?:start|channel|constrain)\|>")
_WORDS: Final = frozenset({"assistant", "analysis", "commentary", "final", "json", "code"})
_FREE_TEXT: Final = frozenset({"python"})


def head(text: str) -> tuple[Text | Reasoning | ToolCall, ...]:
    """The part that a header announces, behind the header itself when it holds words of its own."""
    recipient = _TO.search(text)
    name = recipient[1].removeprefix("functions.") if recipient else ""
    words = _TAGS.sub(" ", _TO.sub(" ", text, count=1)).split()
    if name and name != "assistant":
        part: Text | Reasoning | ToolCall = trusted.ToolCall("", name, custom=name in _FREE_TEXT)
    else:
        part = trusted.Reasoning() if "analysis" in words else trusted.Text("")
    return (part,) if _WORDS.issuperset(words) else (trusted.Text(text), part)


_START: Final = "<|start|>"
_CHANNELS: Final = "<|channel|>"
_ENDS: Final = ("<|end|>", "<|call|>", "<|return|>")
_HEAD: Final = Head("<|message|>", head, yields_to=(_CHANNELS,))

FORMAT: Final = Format(
    blocks=tuple([Block(tag, ends=_ENDS, yields_to=(_START,), head=_HEAD) for tag in (_START, _CHANNELS)]),
    marks=_ENDS,
)
