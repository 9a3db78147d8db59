"""ShareGPT's turns: ``from`` and ``value`` only (docs/spec/dialects.md#4).

Rules:

- ``function_call`` holds JSON text, ``name`` and ``arguments``, or a list of such; ``observation`` answers the first
  call that has no answer. A call gets an id by its place, marked as ``SYNTHETIC``.
- The model's text and the calls right after it are one answer.
- A turn of the model may hold its calls as text, between ``<tool_call>`` tags, and a turn of a tool its results,
  between ``<tool_response>`` tags: they are calls and results too, and such a record is written with these tags.
- When written, a turn has the record's own word for its speaker; an unedited call has its text.

Stability: experimental.
"""

from __future__ import annotations

import re
from ast import literal_eval
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast

from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError, PalaverError
from palaver.core.messages import (
    BOOKKEEPING,
    AssistantMessage,
    DeveloperMessage,
    Message,
    SystemMessage,
    ToolMessage,
)
from palaver.core.parts import Json, MalformedToolCall, Reasoning, Refusal, Text, ToolCall
from palaver.transcripts.fields import kind_of, listed, one_line, split, string
from palaver.transcripts.openai_messages.shapes import NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from palaver.core.jsontext import Fields
    from palaver.core.parts import AnyPart
    from palaver.core.request import LossKind

SYNTHETIC: Final = {BOOKKEEPING + NAME: {"id": "synthetic"}}
"""The mark of a call whose id was made here."""

_Call: TypeAlias = ToolCall | MalformedToolCall

_TAGGED: Final = re.compile(r"<tool_call>(.*?)</tool_call>\n?", re.DOTALL)
_ANSWERED: Final = re.compile(r"<tool_response>(.*?)</tool_response>", re.DOTALL)
_LONGEST_LITERAL: Final = 1 << 16

_SPEAKERS: Final = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "model": "assistant",
    "tool": "tool",
    "observation": "tool",
    "function_response": "tool",
    "function_call": "call",
}
_WORDS: Final = {
    "system": "system",
    "user": "human",
    "assistant": "gpt",
    "tool": "observation",
    "call": "function_call",
}


class Losing(Protocol):
    """Notes the losses of a message, by its place, and of a part of it."""

    def __call__(self, kind: LossKind, what: str, why: str, place: int, part: int | None = None, /) -> None:
        """Note one loss."""
        ...


# -- reading -----------------------------------------------------------------------------------------------------------


def read(fields: Fields, unread: Callable[[str], None]) -> list[Message]:
    """Return the messages of a record; ``unread`` is called with each turn that has no known speaker."""
    group: list[Message] = []
    if system := string(fields, "system"):
        group.append(trusted.SystemMessage(content=(trusted.Text(system),)))
    pending: list[_Call] = []
    for place, raw in enumerate(listed(fields, "conversations")):
        turn = split(raw)
        speaker, text = string(turn, "from") or "", string(turn, "value") or ""
        if kind_of(turn, "value") not in {"a string", "null"}:
            continue
        match _SPEAKERS.get(speaker):
            case "system":
                group.append(trusted.SystemMessage(content=(trusted.Text(text),)))
            case "user":
                group.append(trusted.UserMessage(content=(trusted.Text(text),)))
            case "assistant":
                content = _spoken(text, f"call_{place}")
                pending += [part for part in content if isinstance(part, (ToolCall, MalformedToolCall))]
                group.append(trusted.AssistantMessage(content=content))
            case "call":
                called = _calls(text, f"call_{place}")
                pending += called
                before = group.pop().content if group and isinstance(group[-1], AssistantMessage) else ()
                group.append(trusted.AssistantMessage(content=(*cast("tuple[Text, ...]", before), *called)))
            case "tool":
                group += _results(text, pending)
            case _:
                unread(f"conversations[{place}].from: unknown speaker {speaker!r}")
    return group


def with_answer(fields: Fields, key: str) -> Fields:
    """Return a record whose turns continue with the answer in a column: a turn, several, or a text."""
    raw = fields.get(key)
    kind = "null" if raw is None else jsontext.kind(raw)
    if raw is None or kind == "null":
        return fields
    if kind == "a string":
        more = [jsontext.raw({"from": "gpt", "value": jsontext.text(raw)})]
    else:
        more = [raw] if kind == "an object" else jsontext.items(raw)
    return {**fields, "conversations": jsontext.raw([*listed(fields, "conversations"), *more])}


def answer_like(old: Any, said: list[dict[str, str]]) -> Any:
    """Return the turns of an answer, in the form that its column had: a text, one turn, or a list."""
    kind = "null" if old is None else jsontext.kind(old)
    if len(said) == 1 and kind == "a string":
        return said[0]["value"]
    return said[0] if len(said) == 1 and kind != "an array" else said


def _calls(text: str, name: str) -> list[_Call]:
    """Return the calls of a turn: one, or a list of several."""
    try:
        raw = text.encode()
        if jsontext.kind(raw) == "an array" and (items := jsontext.items(raw)):
            return [_call(bytes(each).decode(), f"{name}_{place}") for place, each in enumerate(items)]
    except (DecodeError, UnicodeEncodeError):
        pass  # it is malformed
    return [_call(text, name)]


def _call(text: str, name: str) -> _Call:
    """Return a call that is written as JSON text without an id."""
    try:
        fields = jsontext.fields(text.encode())
        named, arguments = string(fields, "name"), fields.get("arguments", jsontext.EMPTY_OBJECT)
    except (DecodeError, UnicodeEncodeError) as error:
        return trusted.MalformedToolCall(text, str(error), None, name).replace(provider=SYNTHETIC)
    if named is None:
        return trusted.MalformedToolCall(text, "it names no tool", None, name).replace(provider=SYNTHETIC)
    said = jsontext.text(arguments) if jsontext.kind(arguments) == "a string" else bytes(arguments).decode()
    return trusted.ToolCall(name, named, said).replace(provider=SYNTHETIC)


def _spoken(text: str, name: str) -> tuple[Text | _Call, ...]:
    """Return the texts and calls of a turn whose calls are between tags; one text when none of them can be read."""
    parts: list[Text | _Call] = []
    last = 0
    closed = text.rfind("</tool_call>") + len("</tool_call>\n")  # behind it, every search would read on to the end
    for number, found in enumerate(_TAGGED.finditer(text, 0, closed)):
        parts += [trusted.Text(text[last : found.start()])] if found.start() > last else []
        parts.append(_call(_as_json(found[1].strip()), f"{name}_{number}"))
        last = found.end()
    if not any(isinstance(part, ToolCall) for part in parts):
        return (trusted.Text(text),)
    return (*parts, trusted.Text(text[last:])) if last < len(text) else tuple(parts)


def _as_json(text: str) -> str:
    """Return a call as JSON, which some data sets have as a literal of Python."""
    if jsontext.is_json(text) or len(text) > _LONGEST_LITERAL:
        return text
    try:
        return jsontext.encode(literal_eval(text)).decode()
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError, PalaverError):
        return text


def _results(text: str, pending: list[_Call]) -> Iterator[Message]:
    """Yield the results of a turn: of the calls that they name, else of the first open ones."""
    closed = text.rfind("</tool_response>") + len("</tool_response>")
    tagged = [found[1].strip() for found in _ANSWERED.finditer(text, 0, closed)]
    if tagged and (_ANSWERED.sub("", text[:closed]) + text[closed:]).strip():
        tagged = []
    for result in tagged or [text]:
        named = _name_of(result) if tagged else None
        place = next((at for at, call in enumerate(pending) if call.name == named), 0)
        call = pending.pop(place) if pending else None
        answers = (None, None) if call is None else (call.id, call.name)
        yield trusted.ToolMessage(
            content=(trusted.Text(result),), tool_call_id=answers[0], tool_name=answers[1] or named
        )


def _name_of(result: str) -> str | None:
    try:
        fields = jsontext.fields(result.encode())
        return jsontext.text(fields["name"]) if jsontext.kind(fields["name"]) == "a string" else None
    except (DecodeError, UnicodeEncodeError, KeyError):
        return None


# -- writing -----------------------------------------------------------------------------------------------------------


def turns(messages: Sequence[Message], old: Fields, lose: Losing) -> dict[str, Any]:
    """Return the columns of messages; ``old`` is their record."""
    before = [split(raw) for raw in listed(old, "conversations")]
    said = [(string(turn, "from") or "", string(turn, "value") or "") for turn in before]
    words = _WORDS | {_SPEAKERS[word]: word for word, _ in reversed(said) if word in _SPEAKERS}
    known = [
        (_calls(text, f"call_{place}"), text)
        for place, (word, text) in enumerate(said)
        if _SPEAKERS.get(word) == "call"
    ]
    tags = _Tags(said)
    found: dict[str, Any] = {"system": ""} if string(old, "system") else {}
    told: list[dict[str, str]] = []
    for place, message in enumerate(messages):
        if place == 0 and found and isinstance(message, SystemMessage):
            found["system"] = message.text
            continue
        role = "system" if isinstance(message, DeveloperMessage) else message.role
        if role not in words:
            lose("dropped", role, "ShareGPT has no such turn", place)
            continue
        if role != message.role:
            lose("converted", message.role, "written as system", place)
        texts, called = _said(message, place, lose)
        if tags.used and (called or role == "tool"):
            tags.add(told, words[role], message, "".join(texts))
            continue
        if texts or not called:
            told.append({"from": words[role], "value": "".join(texts)})
        told += [{"from": words["call"], "value": text} for text in _values(called, known)]
    return {**found, "conversations": told}


class _Tags:
    """Writes calls and results between tags, if the record had calls in this form."""

    def __init__(self, said: Sequence[tuple[str, str]]) -> None:
        """Start with the speaker and the text of each turn of the record."""
        self._known = {text.strip(): text for _, text in said}
        spoken = (text for word, text in said if _SPEAKERS.get(word) == "assistant")
        self.used = any(isinstance(part, ToolCall) for text in spoken for part in _spoken(text, ""))
        self._content = {
            text: _spoken(text, f"call_{place}")
            for place, (word, text) in enumerate(said)
            if _SPEAKERS.get(word) == "assistant"
        }

    def add(self, told: list[dict[str, str]], word: str, message: Message, text: str) -> None:
        """Add the turn of a message; several results in a row are one turn."""
        if isinstance(message, ToolMessage):
            made = text if text.strip() in self._known else f"<tool_response>\n{text}\n</tool_response>"
            if told and told[-1]["from"] == word:
                made = f"{told.pop()['value'].strip()}\n{made}"
        else:
            same = (old for old, content in self._content.items() if content == message.content)
            pieces = (
                f"<tool_call>\n{_written(part)}\n</tool_call>\n"
                if isinstance(part, (ToolCall, MalformedToolCall))
                else "".join(_said(trusted.AssistantMessage(content=(part,)), 0, _unheard)[0])
                for part in message.content
            )
            made = next(same, None) or "".join(pieces)
        told.append({"from": word, "value": self._known.get(made.strip(), made)})


def _unheard(*_: object) -> None:
    """Note nothing: the losses of the message are noted already."""


def _said(message: Message, place: int, lose: Losing) -> tuple[list[str], list[_Call]]:
    """Return the texts of a message, and its calls."""
    texts: list[str] = []
    called: list[_Call] = []
    for index, part in enumerate(message.content):
        match part:
            case Text():
                texts.append(part.text)
            case Reasoning() if part.text:
                lose("converted", "reasoning", "written into the text, in <think>", place, index)
                texts.append(f"<think>{part.text}</think>")
            case MalformedToolCall():
                called.append(part)
            case ToolCall() if not part.provider_executed:
                if not SYNTHETIC.keys() <= part.provider.keys():
                    lose("dropped", "tool call id", "ShareGPT has none", place, index)
                called.append(part)
            case _:
                texts += _instead(part, place, index, lose)
    return texts, called


def _values(called: Sequence[_Call], known: Sequence[tuple[list[_Call], str]]) -> Iterator[str]:
    """Yield the text of each turn with calls: unchanged, one alone as an object, several as a list."""
    left = list(called)
    while left:
        size, text = next(((len(calls), text) for calls, text in known if left[: len(calls)] == calls), (0, ""))
        if size:
            yield text
        elif len(left) == 1 or isinstance(left[0], MalformedToolCall):
            size = 1
            yield _written(left[0])
        else:
            size = next((at for at, each in enumerate(left) if isinstance(each, MalformedToolCall)), len(left))
            yield jsontext.encode([one_line(_written(each)) for each in left[:size]]).decode()
        del left[:size]


def _written(call: _Call) -> str:
    if isinstance(call, MalformedToolCall):
        return call.raw
    return (
        '{"name": '
        + jsontext.encode(call.name).decode()
        + ', "arguments": '
        + (call.arguments_json.strip() or "{}")
        + "}"
    )


def _instead(part: AnyPart, place: int, index: int, lose: Losing) -> Iterator[str]:
    """Yield the text that replaces a part without a text."""
    match part:
        case Refusal():
            text = part.text
        case Json():
            text = bytes(part.value_json).decode()
        case _:
            lose("dropped", str(type(part).__struct_config__.tag), "ShareGPT is text", place, index)
            return
    lose("converted", str(type(part).__struct_config__.tag), "written as text", place, index)
    yield text
