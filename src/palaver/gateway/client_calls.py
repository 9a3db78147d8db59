"""Tool calls between a client and a model: names and ids that both sides take.

Rules:

- A name that the model's wire does not take is spelled otherwise in tools, choice and history, and comes back in the
  answer as the client declared it. Two names never become one.
- The client gets an id for each call that no other call has: one that the codec made from the place of a call, or that
  the client's wire does not take, is replaced. The codec of the model's wire does the same for ids of the client.

Stability: experimental.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from msgspec import structs

from palaver.core.messages import AssistantMessage, ToolMessage
from palaver.core.parts import MalformedToolCall, ToolCall
from palaver.core.tools import Tool
from palaver.wires._engine import json_fields

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator

    from palaver.core.messages import Message
    from palaver.core.parts import AssistantPart
    from palaver.core.request import Request

_DIGITS: Final = 8
_LONGEST: Final = 64


def spelled_names(request: Request, pattern: re.Pattern[str]) -> dict[str, str]:
    """Return how the model's wire spells the names of a request, of those that it does not take as they are."""
    names = dict.fromkeys(_names(request))
    spelled: dict[str, str] = {}
    taken = {name for name in names if pattern.fullmatch(name)}
    for name in names:
        if name in taken:
            continue
        plain = "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in name)
        plain = plain if plain[:1].isalpha() or plain[:1] == "_" else f"_{plain}"
        if len(plain) > _LONGEST or plain in taken:
            digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
            plain = f"{plain[: _LONGEST - _DIGITS - 1]}_{digest}"
        taken.add(plain)
        spelled[name] = plain
    return spelled


def _names(request: Request) -> Iterator[str]:
    for tool in request.tools:
        if isinstance(tool, Tool):
            yield tool.name
    for message in request.messages:
        if type(message) is AssistantMessage:  # isinstance costs three times as much
            for part in message.content:
                if type(part) is ToolCall and not part.provider_executed:
                    yield part.name


def with_names(request: Request, spelled: Mapping[str, str]) -> Request:
    """Return a request with other names for its tools, in every place that names one."""
    if not spelled:
        return request
    tools = tuple(
        [
            structs.replace(tool, name=spelled[tool.name]) if isinstance(tool, Tool) and tool.name in spelled else tool
            for tool in request.tools
        ]
    )
    choice = request.settings.tool_choice
    if choice is not None and not spelled.keys().isdisjoint(choice.names):
        choice = structs.replace(choice, names=tuple([spelled.get(each, each) for each in choice.names]))
    settings = structs.replace(request.settings, tool_choice=choice)
    messages = tuple([_with_names(message, spelled) for message in request.messages])
    return request.replace(tools=tools, settings=settings, messages=messages)


def _with_names(message: Message, spelled: Mapping[str, str]) -> Message:
    if isinstance(message, ToolMessage):
        name = message.tool_name
        return message.replace(tool_name=spelled[name]) if name is not None and name in spelled else message
    if not isinstance(message, AssistantMessage):
        return message
    if not any(isinstance(part, ToolCall) and part.name in spelled for part in message.content):
        return message
    content = [
        part.replace(name=spelled[part.name])
        if isinstance(part, ToolCall) and not part.provider_executed and part.name in spelled
        else part
        for part in message.content
    ]
    return message.replace(content=tuple(content))


class ClientCalls:
    """Gives the calls of one answer the names and the ids that the client gets."""

    def __init__(
        self,
        spelled: Mapping[str, str],
        *,
        model_wire: str,
        ids: re.Pattern[str],
        notes: Mapping[str, Mapping[str, Any]] = {},
    ) -> None:
        """Keep what ``spelled_names`` returned, and which ids the client's wire takes.

        ``notes`` are those that each call gets for the client's codec, by wire.
        """
        self._notes = notes
        self._names = {there: here for here, there in spelled.items()}
        self._wire, self._ids = model_wire, ids
        self._given: dict[str, str] = {}

    def call(self, part: ToolCall) -> ToolCall:
        """Return a call as the client gets it."""
        if part.provider_executed:
            return part
        name = self._names.get(part.name, part.name)
        call_id = part.id if self._is_good(part) else self._given.setdefault(part.id, f"call_{uuid4().hex[:24]}")
        same = name == part.name and call_id == part.id
        for wire, notes in self._notes.items():
            part = json_fields.with_native(part, wire, notes)
        return part if same else part.replace(name=name, id=call_id)

    def malformed(self, part: MalformedToolCall) -> MalformedToolCall:
        """Return a call that could not be read, likewise."""
        name = self._names.get(part.name or "", part.name)
        call_id = self._given.get(part.id or "", part.id)
        return part if (name, call_id) == (part.name, part.id) else part.replace(name=name, id=call_id)

    def of_part(self, part: AssistantPart) -> AssistantPart:
        """Return a part of the answer as the client gets it, if it is a call; else the part."""
        if isinstance(part, ToolCall):
            return self.call(part)
        return self.malformed(part) if isinstance(part, MalformedToolCall) else part

    def _is_good(self, part: ToolCall) -> bool:
        made = "id" in json_fields.notes(part, self._wire)  # from the place of the call: the next answer has it again
        return not made and self._ids.fullmatch(part.id) is not None
