"""Response items of a rollout into messages: those of ``openai_responses``, and what only Codex writes.

Rules:

- What a model made in a row is one message; any other item is one of its own. An item that the wire refuses is left to
  the caller (``DecodeError``).
- ``agent_message`` is what another agent says: a user message of that agent, with a ``source``. Older files have
  results that are an object, ``{content, success}``.
- The wire's hints on how a text was written (a text or a list of one, no annotations) are let go: the line itself is
  kept, and without them the same message from elsewhere is the same message.

Stability: experimental.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar, cast

from msgspec import UNSET, Raw, structs

from palaver import wires
from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError
from palaver.core.messages import Message, ToolMessage, UserMessage
from palaver.core.parts import AnyPart, Reasoning, Refusal, Text, ToolCall
from palaver.transcripts.codex.shapes import NAME, OTHERS, RESULTS, WIRE
from palaver.transcripts.fields import as_object, check_summary, either, listed, split, string, value
from palaver.transcripts.salvage import salvaged

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from palaver.core.jsontext import Fields

Note: TypeAlias = "Callable[[Literal['block', 'unread'], str], None]"
N = TypeVar("N", bound="Message | AnyPart")

_FORMS: Final = frozenset(("@@annotations", "@@detail", "@@content", "@@output", "@@filename"))
_PLACES: Final = frozenset(("@@item", "@@joined"))
_KEEP: Final[Callable[[DecodeError], None]] = lambda _: None  # noqa: E731 (a default)


def is_made(item: Raw) -> bool:
    """Whether a model made an item."""
    fields = as_object(item)
    kind = string(fields, "type")
    if kind == "message":
        return string(fields, "role") == "assistant"
    if kind == "tool_search_output":
        return string(fields, "execution") != "client"
    return kind not in OTHERS


def texts_of(item: Raw) -> list[str]:
    """The texts of a message; any other item has none."""
    message = as_object(item)
    if string(message, "type") != "message":
        return []
    content = [split(each) for each in listed(message, "content")]
    return [text for each in content if (text := string(each, "text")) is not None]


class Items:
    """Reads response items."""

    def __init__(self, note: Note | None = None) -> None:
        """Find the wire. ``note`` is called with what is left out of an item; without it nothing is, but raised."""
        self._note = note
        self._wire = wires.get(WIRE)

    def read(self, items: Sequence[Raw]) -> list[Message]:
        """The messages of items. Raises ``DecodeError``."""
        messages: list[Message] = []
        for made, run in groupby(items, is_made):
            if made:
                messages += self._decoded(run)
            else:
                for item in run:
                    messages += self._other(item)
        return messages

    def read_well(self, items: Sequence[Raw], failed: Callable[[DecodeError], None] = _KEEP) -> list[Message]:
        """The messages of items, without those that cannot be read."""
        try:
            return self.read(items)
        except DecodeError:
            good: list[Raw] = []
            for item in items:
                try:
                    self.read([item])
                except DecodeError as error:
                    failed(error)
                else:
                    good.append(item)
            return self.read(good)

    def _decoded(self, items: Any) -> list[Message]:
        taken = list(items)
        for each in taken:
            check_summary(as_object(each))
        body = b'{"input":[%b]}' % b",".join(map(bytes, taken))
        read = self._read(body) if self._note is None else salvaged(self._read, body, NAME, self._note)
        return [_light(each) for each in read]

    def _read(self, body: bytes) -> Sequence[Message]:
        return self._wire.decode_request(body).messages

    def _other(self, item: Raw) -> list[Message]:
        fields = as_object(item)
        kind = string(fields, "type")
        if kind == "agent_message":
            return [_said_by_agent(fields)]
        output = fields.get("output")
        if kind in RESULTS and output is not None and jsontext.kind(output) == "an object":
            inner = split(output)
            if "content" not in inner:
                either(output, "output", "a string", "an array")
            told = jsontext.raw({**fields, "output": inner.get("content", jsontext.raw(""))})
            failed = value(inner, "success") is False
            return [
                structs.replace(each, is_error=failed) if isinstance(each, ToolMessage) else each
                for each in self._decoded([told])
            ]
        return [
            structs.replace(each, source=kind) if kind == "compaction_trigger" else each
            for each in self._decoded([item])
        ]


def _said_by_agent(fields: Fields) -> UserMessage:
    content = tuple(
        [
            trusted.Opaque(WIRE, jsontext.own(each))
            if (text := string(split(each), "text")) is None
            else trusted.Text(text)
            for each in listed(fields, "content")
        ]
    )
    return trusted.UserMessage(content=content, agent=string(fields, "author"), source="agent_message")


# -- hints of the wire -------------------------------------------------------------------------------------------------


def _light(message: Message) -> Message:
    """A message without the hints that its line says as well."""
    content = cast("tuple[AnyPart, ...]", message.content)
    light: Any = tuple([_part(part, beside=_beside_text(content, place)) for place, part in enumerate(content)])
    dropped = _FORMS if isinstance(message, ToolMessage) else _FORMS | {"@@type"}
    return structs.replace(_without(message, dropped), content=light)


def _beside_text(content: Sequence[AnyPart], place: int) -> bool:
    """Whether a text stands beside another, so that only a hint says where the items part."""
    near = (*content[max(0, place - 1) : place], *content[place + 1 : place + 2])
    return any(isinstance(each, Text | Refusal) for each in near)


def _part(part: AnyPart, *, beside: bool) -> AnyPart:
    match part:
        case Reasoning():
            plain = jsontext.raw([{"type": "summary_text", "text": part.text}])
            held = _held(part)
            told = "@@summary" in held and part.text and jsontext.equal(held["@@summary"], plain)
            return _without(part, frozenset(("@@summary",))) if told and "@@content" not in held else part
        case ToolCall():
            return part
        case Text() if not beside:
            return _without(part, _FORMS | _PLACES | {"@@type"})
        case _:
            return _without(part, _FORMS)


def _held(node: Any) -> Fields:
    if node.provider_json is UNSET:
        return {}
    held = jsontext.fields(node.provider_json).get(WIRE)
    return {} if held is None else split(held)


def _without(node: N, keys: frozenset[str]) -> N:
    """A part or message without some of what it keeps for the wire."""
    held = _held(node)
    kept = {key: each for key, each in held.items() if key not in keys}
    if "item" in kept and "@@item" in keys:
        item = {key: each for key, each in split(kept["item"]).items() if key not in _FORMS and key != "@@type"}
        kept["item"] = jsontext.raw(item)
        if not item:
            del kept["item"]
    if kept == held or node.provider_json is UNSET:
        return node
    others = {name: each for name, each in jsontext.fields(node.provider_json).items() if name != WIRE}
    whole = {**others, **({WIRE: jsontext.raw(kept)} if kept else {})}
    return structs.replace(node, provider_json=jsontext.raw(whole) if whole else UNSET)
