"""Write the stream of Cohere.

- Texts, thinking and calls count their indexes as the provider does: content for itself, calls for themselves. Parts
  may interleave.
- Text is sent as it comes, as content: whether a call will follow, beside which the plan stands for it, nobody knows
  yet. Text that stood in the plan goes back there.
- What an answer has beside its parts stands in the last event. An error does too, as ``error``; clients of the
  provider's raise nothing for it, and give it to whoever reads.

Source: docs/spec/wires.md#7; https://docs.cohere.com/v2/docs/streaming; cohere-python ``V2ChatStreamResponse``.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import Raw, structs

from palaver.core import jsontext
from palaver.core.errors import EncodeError
from palaver.core.jsontext import NULL, Fields
from palaver.core.parts import MalformedToolCall, Reasoning, Text, ToolCall
from palaver.stream import sse
from palaver.wires._engine.stream_encoder import Shown, StreamEncoder
from palaver.wires.cohere_chat import encode
from palaver.wires.cohere_chat.decode import is_plan
from palaver.wires.cohere_chat.shapes import WIRE

if TYPE_CHECKING:
    from palaver.core.events import Delta, Failed, ProviderEvent
    from palaver.core.parts import AssistantPart, Citation
    from palaver.core.request import Response

_KNOWN: Final = frozenset(
    {
        "message-start",
        "content-start",
        "content-delta",
        "content-end",
        "tool-plan-delta",
        "tool-call-start",
        "tool-call-delta",
        "tool-call-end",
        "citation-start",
        "citation-end",
        "message-end",
    }
)


class Encoder(StreamEncoder):
    """Writes one stream of Cohere."""

    _contents = 0
    _calls = 0
    _cited = 0
    _planned = False
    _id: str | None = None

    def begin(self, head: Response) -> None:
        """Write the first event, with the id where it is known."""
        self._indexes: dict[int, int] = {}
        self._parting: dict[int, str] = {}
        self._id = head.message.response_id
        if self._id is None and not self.context.own:
            self._id = ""
        found = {} if self._id is None else {"id": self._id}
        self._emit("message-start", {**found, "delta": {"message": {"role": encode.role(head.message)}}})

    # -- parts --

    def open(self, shown: Shown) -> None:
        """Write the start of a text, thinking or a call; the plan begins with its first words."""
        part = shown.part
        if isinstance(part, ToolCall):
            self._indexes[shown.number] = self._calls
            self._calls += 1
            self._emit_at("tool-call-start", shown, "tool_calls", encode.call(part))
        elif is_plan(part):
            self._parting[shown.number] = _BETWEEN if self._planned else ""
        else:
            self._open_content(shown, part)

    def _open_content(self, shown: Shown, part: AssistantPart) -> None:
        self._indexes[shown.number] = self._contents
        self._contents += 1
        self._emit_at("content-start", shown, "content", encode.content_part(part))

    def grow(self, shown: Shown, event: Delta) -> None:
        """Write a delta."""
        part = shown.part
        if isinstance(part, ToolCall):
            self._emit_at("tool-call-delta", shown, "tool_calls", {"function": {"arguments": event.text}})
        elif shown.number in self._parting:
            self._plan(shown, event.text)
        elif isinstance(part, Reasoning):
            self._emit_at("content-delta", shown, "content", {"thinking": event.text})
        else:
            self._emit_at("content-delta", shown, "content", {"text": event.text})

    def _plan(self, shown: Shown, text: str) -> None:
        text = self._parting[shown.number] + text if text else text
        self._parting[shown.number] = "" if text else self._parting[shown.number]
        self._planned = self._planned or bool(text)
        self._emit("tool-plan-delta", {"delta": {"message": {"tool_plan": text}}})

    def cite(self, shown: Shown, citation: Citation) -> None:  # noqa: ARG002 (it has its own range)
        """Write a citation in the provider's form."""
        self._emit_citation(_citation(citation))

    def _emit_citation(self, raw: Raw) -> None:
        self._emit("citation-start", {"index": self._cited, "delta": {"message": {"citations": raw}}})
        self._emit("citation-end", {"index": self._cited})
        self._cited += 1

    def close(self, shown: Shown, part: AssistantPart | None, /) -> None:
        """Write its late fields and its end."""
        if isinstance(shown.part, ToolCall):
            if isinstance(part, (ToolCall, MalformedToolCall)):
                self._emit_late(
                    "tool-call-delta", shown, "tool_calls", _late_fields(encode.call(shown.part), encode.call(part))
                )
            self._emit("tool-call-end", {"index": self._indexes[shown.number]})
        elif shown.number in self._parting:
            if not shown.grown:
                self._plan(shown, "")
        else:
            if isinstance(part, (Text, Reasoning)):
                before, after = (cast("dict[str, Any]", encode.content_part(each)) for each in (shown.part, part))
                late = {key: raw for key, raw in after.items() if key not in _GROWING and before.get(key) != raw}
                if late:
                    grown = "thinking" if isinstance(part, Reasoning) else "text"
                    self._emit_at("content-delta", shown, "content", {grown: "", **late})
            self._emit("content-end", {"index": self._indexes[shown.number]})

    def _emit_late(self, kind: str, shown: Shown, key: str, late: dict[str, Any]) -> None:
        if late:
            self._emit_at(kind, shown, key, late)

    def write_whole(self, shown: Shown) -> None:
        """Write a whole part of the wire, or a call that did not parse."""
        part = shown.part
        if isinstance(part, (ToolCall, MalformedToolCall)):
            self._indexes[shown.number] = self._calls
            self._calls += 1
            self._emit_at("tool-call-start", shown, "tool_calls", encode.call(part))
            self._emit("tool-call-end", {"index": self._indexes[shown.number]})
        else:
            self._open_content(shown, part)
            self._emit("content-end", {"index": self._indexes[shown.number]})

    # -- the answer --

    def finish_answer(self, answer: Response) -> None:
        """Write the last event: the answer without its parts."""
        bare = structs.replace(answer, message=structs.replace(answer.message, content=()), alternatives=())
        delta = encode.response(bare, self.context)
        message: dict[str, Any] = delta.pop("message")
        for key in ("role", "content", "tool_plan", "tool_calls"):
            message.pop(key, None)
        for raw in _citations(answer, message.pop("citations", NULL))[self._cited :]:
            self._emit_citation(raw)
        if message:
            delta["message"] = message
        found = delta.pop("id", None)
        self._emit("message-end", {**({} if found in (None, self._id) else {"id": found}), "delta": delta})
        self.write(sse.write(b"[DONE]"))

    def fail(self, failed: Failed) -> None:
        """Write the error, the provider's own where it came from here."""
        raw = failed.raw_json
        if self.context.own and failed.kind == "provider" and isinstance(raw, Raw):
            self._write(_type_of(raw), raw)
        else:
            self._emit("message-end", {"delta": {"finish_reason": "ERROR", "error": failed.reason}})

    def native(self, event: ProviderEvent) -> None:
        """Write an unknown event unchanged; its known fields are written already."""
        if event.name in _KNOWN:
            self.context.lose("dropped", event.name, "an unknown field in it, without a place in an answer")
        else:
            self._write(event.name if _type_of(event.data_json) == event.name else "", event.data_json)

    def _emit_at(self, kind: str, shown: Shown, key: str, found: object) -> None:
        self._emit(kind, {"index": self._indexes[shown.number], "delta": {"message": {key: found}}})

    def _emit(self, kind: str, fields: dict[str, Any]) -> None:
        self._write(kind, jsontext.encode({"type": kind, **fields}))

    def _write(self, kind: str, data: bytes | Raw) -> None:
        try:
            self.write(sse.write(bytes(data), sse.nameable(kind)))
        except EncodeError:  # a type that cannot be a name; it stands in the data too
            self.write(sse.write(bytes(data)))


_BETWEEN: Final = "\n\n"
_GROWING: Final = ("type", "text", "thinking")


def _citation(citation: Citation) -> Raw:
    if isinstance(citation.raw_json, Raw):
        return citation.raw_json
    span = {"start": citation.start, "end": citation.end, "text": citation.quote}
    return jsontext.raw({key: value for key, value in span.items() if value is not None})


def _citations(answer: Response, beside: Raw) -> list[Raw]:
    """List the citations of an answer, in order: those of its texts, or those that point at no text."""
    if jsontext.kind(beside) == "an array":
        return jsontext.items(beside)
    texts = [part for part in answer.message.content if isinstance(part, Text)]
    return [_citation(each) for part in texts for each in part.citations if each.wire == WIRE]


def _late_fields(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Return the new fields of a call beside its arguments."""
    inner, started = dict(after.pop("function")), before.pop("function")
    late = {key: raw for key, raw in after.items() if before.get(key) != raw}
    later = {key: raw for key, raw in inner.items() if key != "arguments" and started.get(key) != raw}
    return {**late, "function": later} if later else late


def _type_of(raw: Raw) -> str:
    found: Fields = jsontext.fields(raw)
    kind = found.get("type", NULL)
    return jsontext.text(kind) if jsontext.kind(kind) == "a string" else ""
