"""ShareGPT's turns: ``from`` and ``value``, and nothing beside (docs/spec/dialects.md#4).

Rules:

- ``function_call`` holds JSON text, ``name`` and ``arguments``, or a list of such; ``observation`` answers the first
  call that has no answer. A call gets an id by its place, marked as ``SYNTHETIC``.
- What the model says and the calls right behind it are one answer.
- Written, a turn has the word for its speaker that the record used before; a call that was not edited has its text.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast

from palaver.core import jsontext
from palaver.core.errors import DecodeError
from palaver.core.messages import (
    BOOKKEEPING,
    AssistantMessage,
    DeveloperMessage,
    Message,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from palaver.core.parts import Json, MalformedToolCall, Reasoning, Refusal, Text, ToolCall
from palaver.dialects.fields import listed, one_line, split, string
from palaver.dialects.openai_messages.shapes import NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from palaver.core.jsontext import Fields
    from palaver.core.parts import AnyPart
    from palaver.core.request import LossKind

SYNTHETIC: Final = {BOOKKEEPING + NAME: {"id": "synthetic"}}
"""What a call keeps whose id was made here."""

_Call: TypeAlias = ToolCall | MalformedToolCall

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
    """Notes what a message, by its place, and a part of it, could not say."""

    def __call__(self, kind: LossKind, what: str, why: str, place: int, part: int | None = None, /) -> None:
        """Note one thing."""
        ...


# -- reading -----------------------------------------------------------------------------------------------------------


def read(fields: Fields, unread: Callable[[str], None]) -> list[Message]:
    """The messages of a record; ``unread`` is called with each turn that has no known speaker or no text."""
    group: list[Message] = []
    if "system" in fields and jsontext.kind(fields["system"]) not in {"a string", "null"}:
        unread(f"system is {jsontext.kind(fields['system'])}, not a string")
    if system := string(fields, "system"):
        group.append(SystemMessage(content=(Text(system),)))
    pending: list[_Call] = []
    for place, raw in enumerate(listed(fields, "conversations")):
        turn = split(raw)
        speaker, text = string(turn, "from") or "", string(turn, "value") or ""
        if "value" in turn and jsontext.kind(turn["value"]) not in {"a string", "null"}:
            unread(f"conversations[{place}].value is {jsontext.kind(turn['value'])}, not a string")
            continue
        match _SPEAKERS.get(speaker):
            case "system":
                group.append(SystemMessage(content=(Text(text),)))
            case "user":
                group.append(UserMessage(content=(Text(text),)))
            case "assistant":
                group.append(AssistantMessage(content=(Text(text),)))
            case "call":
                called = _calls(text, f"call_{place}")
                pending += called
                before = group.pop().content if group and isinstance(group[-1], AssistantMessage) else ()
                group.append(AssistantMessage(content=(*cast("tuple[Text, ...]", before), *called)))
            case "tool":
                call = pending.pop(0) if pending else None
                answers = (None, None) if call is None else (call.id, call.name)
                group.append(ToolMessage(content=(Text(text),), tool_call_id=answers[0], tool_name=answers[1]))
            case _:
                unread(f"conversations[{place}].from: nobody is called {speaker!r}")
    return group


def _calls(text: str, name: str) -> list[_Call]:
    """The calls of a turn: one, or a list of several."""
    try:
        raw = text.encode()
        if jsontext.kind(raw) == "an array" and (items := jsontext.items(raw)):
            return [_call(bytes(each).decode(), f"{name}_{place}") for place, each in enumerate(items)]
    except (DecodeError, UnicodeEncodeError):
        pass  # it is one that is malformed
    return [_call(text, name)]


def _call(text: str, name: str) -> _Call:
    """A call that is written as JSON text without an id."""
    try:
        fields = jsontext.fields(text.encode())
        named, arguments = string(fields, "name"), fields.get("arguments", jsontext.EMPTY_OBJECT)
    except (DecodeError, UnicodeEncodeError) as error:
        return MalformedToolCall(text, str(error), None, name).replace(provider=SYNTHETIC)
    if named is None:
        return MalformedToolCall(text, "it names no tool", None, name).replace(provider=SYNTHETIC)
    said = jsontext.text(arguments) if jsontext.kind(arguments) == "a string" else bytes(arguments).decode()
    return ToolCall(name, named, said).replace(provider=SYNTHETIC)


# -- writing -----------------------------------------------------------------------------------------------------------


def turns(messages: Sequence[Message], old: Fields, lose: Losing) -> dict[str, Any]:
    """The columns that say some messages; ``old`` is the record they stood in."""
    before = [split(raw) for raw in listed(old, "conversations")]
    said = [(string(turn, "from") or "", string(turn, "value") or "") for turn in before]
    words = _WORDS | {_SPEAKERS[word]: word for word, _ in reversed(said) if word in _SPEAKERS}
    known = [
        (_calls(text, f"call_{place}"), text)
        for place, (word, text) in enumerate(said)
        if _SPEAKERS.get(word) == "call"
    ]
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
        if texts or not called:
            told.append({"from": words[role], "value": "".join(texts)})
        told += [{"from": words["call"], "value": text} for text in _values(called, known)]
    return {**found, "conversations": told}


def _said(message: Message, place: int, lose: Losing) -> tuple[list[str], list[_Call]]:
    """The texts of a message, and its calls."""
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
    """The text of each turn that says some calls: as it was, one alone as an object, several as a list."""
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
    """The text that stands for a part that is none."""
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
