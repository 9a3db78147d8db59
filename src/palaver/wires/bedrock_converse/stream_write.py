"""Write a ConverseStream: events in, frames of an AWS event stream out.

Rules:

- Blocks are sent one after another, numbered in their order. Only a call, a result and an image
  have a start; every block has an end.
- A block is what ``encode_parts`` writes in a whole answer, cut in two: what its start holds, and what
  comes by deltas.
- What only a whole answer can hold is dropped, with a loss: documents, videos, recordings and unknown blocks;
  fields beside a text or a reasoning.
- ``messageStop`` and ``metadata`` have the fields beside the output of a whole answer.
- An event of the service's own is sent again unless other events have its content; blocks of an unknown kind get a
  number that is free.
- Padding is not invented. A stream that failed ends in an exception, which is what the clients raise.

Source: docs/spec/wires.md#6.3; ``ConverseStreamOutput`` in botocore's ``bedrock-runtime``.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Raw, structs

from palaver.core import jsontext
from palaver.core.errors import EncodeError
from palaver.core.events import ArgumentsDelta, DataDelta, ReasoningDelta, SignatureDelta, TextDelta
from palaver.core.jsontext import EMPTY_OBJECT, NULL
from palaver.core.parts import Reasoning, Text, ToolCall
from palaver.stream import event_stream
from palaver.wires._engine.json_fields import native, notes
from palaver.wires._engine.stream_encoder import Shown, StreamEncoder
from palaver.wires.bedrock_converse.encode import ending, role
from palaver.wires.bedrock_converse.encode_parts import kind_of, written
from palaver.wires.bedrock_converse.shapes import DELTAS, EXCEPTIONS, STARTS, THOUGHTS, WIRE, choose

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from palaver.core.events import Delta, Failed, ProviderEvent
    from palaver.core.jsontext import Fields
    from palaver.core.parts import AssistantPart, Citation
    from palaver.core.request import Response

_DELTA: Final[dict[type, Callable[[str], dict[str, Any]]]] = {
    TextDelta: lambda text: {"text": text},
    ReasoningDelta: lambda text: {"reasoningContent": {"text": text}},
    SignatureDelta: lambda text: {"reasoningContent": {"signature": text}},
    DataDelta: lambda text: {"reasoningContent": {"redactedContent": text}},
    ArgumentsDelta: lambda text: {"toolUse": {"input": text}},
}

_EMPTY: Final[dict[type, dict[str, Any]]] = {
    Text: {"text": ""},
    Reasoning: {"reasoningContent": {"text": ""}},
    ToolCall: {"toolUse": {"input": "{}"}},
}
"""The delta of a part without deltas, so that there is a block, and arguments that can be parsed."""

_BY_DELTA: Final[dict[str, tuple[str, ...]]] = {"toolResult": ("content",), "image": ("source", "error")}
"""What of a block that is sent whole does not stand in its start."""

_AT_STOP: Final[tuple[str, ...]] = ("stopReason", "additionalModelResponseFields")
"""What ``messageStop`` holds of that which stands beside the output; ``metadata`` holds the rest."""

_MOST: Final = 3_000_000
"""The characters of one delta: as JSON, so many are less than a client's limit for a frame. Cuts base64 well."""

_KNOWN: Final = frozenset({"messageStart", "messageStop", "metadata"})
"""Events of which a response keeps every field."""


class Encoder(StreamEncoder):
    """One ConverseStream that is being written."""

    SERIAL_PARTS = True

    _blocks = 0
    """How many blocks have a number."""

    def begin(self, head: Response) -> None:
        """``messageStart``."""
        self._at: dict[int, int] = {}
        self._unknown: dict[bytes, int] = {}
        self._frame("messageStart", {"role": role(head.message), **native(head.message, WIRE)})

    # -- blocks --

    def open(self, shown: Shown) -> None:
        """``contentBlockStart`` of a call; a text and a reasoning have none."""
        part = shown.part
        if isinstance(part, ToolCall):
            block = written(part, self.context, 0, shown.number)
            start: dict[str, Any] = {} if block is None else dict(block.body)
            start["toolUse"] = {key: value for key, value in start["toolUse"].items() if key != "input"}
            self._start_block(shown, start)
            return
        for key in _beside(part):
            self.context.lose("dropped", key, "a field that only a whole answer can hold", 0, shown.number)
        if isinstance(part, Text) and part.text:
            self.grow(shown, TextDelta(0, part.text))
        elif isinstance(part, Reasoning):
            self._initial(shown, part)

    def _initial(self, shown: Shown, part: Reasoning) -> None:
        """Write the first content of a reasoning; most begin empty."""
        if part.text:
            self.grow(shown, ReasoningDelta(0, part.text))
        if part.signature is not None:
            self.grow(shown, SignatureDelta(0, part.signature))
        if part.encrypted is not None:
            self.grow(shown, DataDelta(0, part.encrypted))

    def grow(self, shown: Shown, event: Delta) -> None:
        """``contentBlockDelta``."""
        write = _DELTA[type(event)]
        for start in range(0, len(event.text) or 1, _MOST):
            self._add(shown, write(event.text[start : start + _MOST]))

    def cite(self, shown: Shown, citation: Citation) -> None:
        """``contentBlockDelta`` with the service's own citation."""
        self._add(shown, {"citation": citation.raw_json})

    def close(self, shown: Shown, _part: AssistantPart | None, /) -> None:
        """``contentBlockStop``."""
        if not shown.grown and (isinstance(shown.part, ToolCall) or shown.number not in self._at):
            if isinstance(shown.part, Text) and not self.context.own:
                self.context.lose("dropped", "text", "blank, which the wire refuses", 0, shown.number)
                return
            self._add(shown, _EMPTY.get(type(shown.part), _EMPTY[Text]))
        self._stop_block(shown)

    def write_whole(self, shown: Shown) -> None:
        """A block in three events: a result or an image."""
        block = written(shown.part, self.context, 0, shown.number)
        if block is None:
            return
        raw = jsontext.raw(block.body)
        kind = kind_of(raw)
        inner = _inner(raw, kind)
        if kind not in _BY_DELTA or inner is None:
            self.context.lose("dropped", kind or "opaque block", "only a whole answer can hold it", 0, shown.number)
            return
        later = {key: inner.pop(key) for key in _BY_DELTA[kind] if key in inner}
        self._start_block(shown, {**jsontext.fields(raw), kind: inner})
        if kind == "image":
            self._add(shown, {"image": later})
        elif later:
            self._add(shown, {"toolResult": later["content"]})
        self._stop_block(shown)

    # -- the end --

    def finish_answer(self, answer: Response) -> None:
        """``messageStop``, and ``metadata`` if there is any."""
        fields = ending(structs.replace(answer, alternatives=()), self.context)  # those were listed as they came
        stop = {key: fields.pop(key) for key in _AT_STOP if key in fields}
        self._frame("messageStop", stop)
        if fields:
            self._frame("metadata", fields)

    def fail(self, failed: Failed) -> None:
        """An exception, the provider's own if it was one."""
        own = failed.code in EXCEPTIONS and failed.kind == "provider"
        name = failed.code if own and failed.code else _EXCEPTION[failed.kind]
        said = failed.raw_json if own and isinstance(failed.raw_json, Raw) else None
        if failed.code is not None and not own:
            self.context.lose("approximated", "error code", f"{failed.code[:40]!r} is sent as {name!r}")
        if said is None or jsontext.kind(said) != "an object":
            said = jsontext.raw({"message": failed.reason.strip() or name})
        self._send(bytes(said), name, kind="exception")

    def native(self, event: ProviderEvent) -> None:
        """An event of the service's own, again."""
        data = event.data_json
        fields = jsontext.fields(data) if jsontext.kind(data) == "an object" else {}
        if self._is_redundant(event.name, fields):
            self.context.lose("dropped", event.name, "holds fields that no part keeps")
            return
        index = fields.get("contentBlockIndex", NULL)
        if jsontext.kind(index) != "a number":
            self._send(bytes(data), event.name)
            return
        number = self._unknown.setdefault(bytes(index), self._blocks)
        if number == self._blocks:
            self._blocks += 1
        if event.name == "contentBlockStop":
            del self._unknown[bytes(index)]
        self._frame(event.name, {**fields, "contentBlockIndex": number})

    def _is_redundant(self, name: str, fields: Fields) -> bool:
        """Whether other events have the content of an event, except unknown fields."""
        match name:
            case "contentBlockStart":
                return _kind(fields, "start", STARTS) is not None
            case "contentBlockDelta":
                kind = _kind(fields, "delta", DELTAS)
                if kind != "reasoningContent":
                    return kind is not None
                return _kind(jsontext.fields(fields["delta"]), kind, THOUGHTS) is not None
            case "contentBlockStop":
                return bytes(fields.get("contentBlockIndex", NULL)) not in self._unknown and len(fields) > 1
            case _:
                return name in _KNOWN

    # -- frames --

    def _number(self, shown: Shown) -> int:
        """The index of a block, given when it is first spoken of."""
        found = self._at.get(shown.number)
        if found is None:
            found = self._at[shown.number] = self._blocks
            self._blocks += 1
        return found

    def _start_block(self, shown: Shown, start: dict[str, Any]) -> None:
        self._frame("contentBlockStart", {"contentBlockIndex": self._number(shown), "start": start})

    def _add(self, shown: Shown, delta: dict[str, Any]) -> None:
        self._frame("contentBlockDelta", {"contentBlockIndex": self._number(shown), "delta": delta})

    def _stop_block(self, shown: Shown) -> None:
        self._frame("contentBlockStop", {"contentBlockIndex": self._number(shown)})

    def _frame(self, name: str, fields: dict[str, Any]) -> None:
        self._send(jsontext.encode(fields), name)

    def _send(self, payload: bytes, name: str, *, kind: str = "event") -> None:
        try:
            self.write(event_stream.write(payload, name, kind=kind))
        except EncodeError as error:  # too long for a frame, or for its name
            self.context.lose("dropped", name[:40], str(error))


_EXCEPTION: Final = {
    "provider": "modelStreamErrorException",
    "torn": "internalServerException",
    "corrupt": "internalServerException",
}
"""The exception that each kind of failure becomes."""


def _inner(raw: Raw, key: str) -> Fields | None:
    """The fields of an object within an object; ``None`` when it is none."""
    found = jsontext.fields(raw).get(key, NULL) if jsontext.kind(raw) == "an object" else NULL
    return jsontext.fields(found) if jsontext.kind(found) == "an object" else None


def _kind(fields: Fields, key: str, known: Container[str]) -> str | None:
    raw = fields.get(key, NULL)
    return choose(jsontext.fields(raw), known) if jsontext.kind(raw) == "an object" else None


def _beside(part: AssistantPart) -> list[str]:
    """The fields of the service's own beside a text or a reasoning."""
    beside = jsontext.fields(notes(part, WIRE).get("beside", EMPTY_OBJECT))
    return [key for key in {**native(part, WIRE), **beside} if key != "p"]
