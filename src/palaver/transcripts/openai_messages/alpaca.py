"""Alpaca's columns: ``instruction`` and ``input``, ``output`` or two answers, ``system`` and ``history``.

Source: docs/spec/dialects.md#4.

Rules:

- The user's question is the instruction, followed by the input on a new line, if any. ``history`` has the earlier pairs
  of a question and an answer.
- ``chosen`` and ``rejected`` are texts; the rejected one is a branch.
- When written, unchanged columns keep their text. The format is text: anything else is on the receipt.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from palaver.core import jsontext, trusted
from palaver.core.messages import AssistantMessage, SystemMessage, UserMessage
from palaver.core.parts import Text
from palaver.transcripts.fields import listed, string

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palaver.core.jsontext import Fields
    from palaver.core.messages import Message
    from palaver.transcripts.openai_messages.sharegpt import Losing


def asked(fields: Fields) -> list[Message]:
    """Return the messages up to the question."""
    found: list[Message] = []
    if system := string(fields, "system"):
        found.append(trusted.SystemMessage(content=(trusted.Text(system),)))
    for raw in listed(fields, "history"):
        pair = [jsontext.text(each) for each in jsontext.items(raw)]
        found += [
            kind(content=(trusted.Text(text),))
            for kind, text in zip((UserMessage, AssistantMessage), pair, strict=False)
        ]
    question = "\n".join([each for key in ("instruction", "input") if (each := string(fields, key))])
    return [*found, trusted.UserMessage(content=(trusted.Text(question),))]


def answer(fields: Fields, key: str) -> list[Message]:
    """Return the answer in a column."""
    text = string(fields, key)
    return [] if text is None else [trusted.AssistantMessage(content=(trusted.Text(text),))]


def columns(lines: Sequence[Sequence[Message]], old: Fields, lose: Losing) -> dict[str, Any]:
    """Return the columns of messages, and a rejected answer in a second line; ``old`` is their record."""
    names = ("chosen", "rejected") if "chosen" in old else ("output",)
    main = list(lines[0])
    texts = [_text(message, place, lose) for place, message in enumerate(main)]
    found: dict[str, Any] = {}
    begin = 1 if main and isinstance(main[0], SystemMessage) else 0
    if begin or "system" in old:
        found["system"] = texts[0] if begin else ""
    end = max((at for at, each in enumerate(main) if isinstance(each, UserMessage)), default=begin)
    pairs: list[list[str]] = []
    for place in range(begin, end):
        message = main[place]
        if isinstance(message, UserMessage):
            pairs.append([texts[place]])
        elif isinstance(message, AssistantMessage) and pairs and len(pairs[-1]) == 1:
            pairs[-1].append(texts[place])
        else:
            lose("dropped", message.role, "a history holds pairs of a question and an answer", place)
    if pairs or "history" in old:
        found["history"] = [[*pair, ""][:2] for pair in pairs]
    question = texts[end] if end < len(main) and isinstance(main[end], UserMessage) else ""
    before = asked({key: old[key] for key in ("instruction", "input") if key in old})[-1].text
    if question != before:
        found |= {"instruction": question} | ({"input": ""} if "input" in old else {})
    for name, line in zip(names, (*lines, ()), strict=False):
        found[name] = "".join([_text(each, at, lose) for at, each in enumerate(line) if at > end])
    return found


def _text(message: Message, place: int, lose: Losing) -> str:
    """Return the text of a message; a column has nothing else."""
    for index, part in enumerate(message.content):
        if not isinstance(part, Text):
            lose("dropped", str(type(part).__struct_config__.tag), "a column is text", place, index)
    return "".join([part.text for part in message.content if isinstance(part, Text)])
