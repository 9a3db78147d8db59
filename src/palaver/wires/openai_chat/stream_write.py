"""Write streams of Chat Completions.

Rules:

- A chunk is the head of the answer and one choice. The first delta of a choice has its role, pieces follow as they
  come, and what is said whole stands before the finish reason. Usage has a chunk without choices; ``[DONE]`` ends the
  stream. Text may follow a call: its place is its field.
- What was read from this wire goes back where it stood: reasoning in its field, items of a content list in a list, a
  call without id or type without. A foreign answer gets the fields that the official client requires.
- The official client cannot add to a list whose items have no index: annotations, and reasoning details without one,
  are gathered and said once, at the end.
- A failure is an ``error`` object, the provider's own where it was read from this wire, and no end mark.

Source: docs/spec/wires.md#1.3, #2.6, #2.9; ``openai/lib/streaming/chat/_completions.py``.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from msgspec import UNSET, Raw

from palaver.core import jsontext
from palaver.core.jsontext import NULL, Fields
from palaver.core.parts import Audio, MalformedToolCall, Opaque, Reasoning, Refusal, ToolCall
from palaver.stream import sse
from palaver.wires._engine.json_fields import hint, is_hint, native, visible
from palaver.wires._engine.stream_encoder import Shown, StreamEncoder
from palaver.wires.openai_chat import encode
from palaver.wires.openai_chat.delta_writers import Call, Detail, Dropped, Field, Item, LooseDetail, Table, Way
from palaver.wires.openai_chat.shapes import FAILED_CALL, WIRE
from palaver.wires.openai_chat.usage import write_usage
from palaver.wires.openai_chat.variants import row

if TYPE_CHECKING:
    from palaver.core.events import Delta, Failed, PartEnd, PartStart, ProviderEvent
    from palaver.core.messages import AssistantMessage
    from palaver.core.parts import AssistantPart, Citation
    from palaver.core.request import Response

_EVERYWHERE: Final = ("id", "object", "created", "model", "provider", "service_tier", "system_fingerprint")
"""Fields of the answer that every chunk has; the others stand in the first, or in the last when they came late."""
_ROLE: Final = {"role": "assistant"}
_CHOICES: Final = 128
"""The most choices that may be asked for."""
_CALL_PLACE: Final = 3
_WHOLE, _CHUNK = Raw(b'"chat.completion"'), Raw(b'"chat.completion.chunk"')


class _Said:
    """What was said of a choice."""

    __slots__ = ("annotations", "calls", "details", "fields", "last", "next_call")

    def __init__(self) -> None:
        self.annotations: list[Raw] = []
        self.calls: set[int] = set()
        self.next_call = 0
        self.details: list[Table] = []
        self.fields: set[str] = set()
        self.last = ""
        """The type of the last item of the content, where it is a list."""


class Encoder(StreamEncoder):
    """One stream of Chat Completions."""

    CHOICES: ClassVar[bool] = True
    DEFERRED: ClassVar[bool] = True

    # -- the answer --

    def begin(self, head: Response) -> None:
        """Say nothing yet but fields of the answer that chunks do not repeat."""
        self._said: dict[int, _Said] = {}
        self._ways: dict[int, Way] = {}
        self._place: tuple[int, ...] = ()
        self._head = self._fields(head)
        self._every: Table = {key: self._head[key] for key in _EVERYWHERE if key in self._head}
        self._prefix = b"data: " + jsontext.encode({**self._every, "choices": []})[:-2] + b'{"index":'
        own = self.context.own
        self._suffix = b',"finish_reason":null}]}\n\n' if own else b',"logprobs":null,"finish_reason":null}]}\n\n'
        if len(self._every) < len(self._head):
            self._chunk({**self._head, "choices": []})

    def _fields(self, answer: Response) -> Table:
        """What is said of the answer as a whole."""
        message, fields = answer.message, dict[str, Any](visible(native(answer, WIRE)))
        if message.model is not None:
            fields["model"] = message.model
        if message.response_id is not None:
            fields["id"] = message.response_id
        if not self.context.own:
            created = (message.sent_at or 0) // 1000
            fields = {"id": "chatcmpl-0", "object": _CHUNK, "created": created, "model": "", **fields}
        if fields.get("object") == _WHOLE:
            fields["object"] = _CHUNK
        return fields

    def over(self, answer: Response) -> None:
        """Say what came late, why each choice is over, and what it cost."""
        for index, message in enumerate((answer.message, *answer.alternatives)):
            self._finish(message, index)
        fields = self._fields(answer)
        late = {key: value for key, value in fields.items() if self._head.get(key, UNSET) != value}
        last: Table = {**self._every, "choices": [], **late}
        if answer.message.usage is not None:
            last["usage"] = write_usage(answer.message.usage)
        if late or "usage" in last:
            self._chunk(last)
        self.write(sse.write(b"[DONE]"))

    def _finish(self, message: AssistantMessage, index: int) -> None:
        said = self._of(index)
        rest = native(message, WIRE)
        beside, role, form = (rest.pop(key, None) for key in ("@@choice", "@@role", "@@content"))
        fields: Table = {key: raw for key, raw in visible(rest).items() if key not in said.fields}
        fields |= {} if role is None or role == NULL else {"role": role}
        fields |= {"annotations": said.annotations} if said.annotations else {}
        fields |= {"reasoning_details": said.details} if said.details else {}
        if form == hint("list") and not said.last:
            fields["content"] = []
        elif form != hint("absent") and "content" not in said.fields and not said.last:
            fields["content"] = None
        if not self.context.own and "refusal" not in said.fields:
            fields.setdefault("refusal", None)
        variant = row(self.context.variant)
        if variant.reasoning_with_calls and variant.reasoning and said.calls and not self.context.own:
            fields |= {} if variant.reasoning in said.fields else {variant.reasoning: ""}
        if fields:
            self._say(index, fields)
        choice: Table = {"index": index, "delta": {}}
        if not self.context.own:
            choice["logprobs"] = None
        elif beside is not None:
            choice |= {**jsontext.fields(beside), "index": index}
        word = encode.finish_word(message, self.context)
        choice |= {} if word is UNSET else {"finish_reason": word}
        self._chunk({**self._every, "choices": [choice]})

    def fail(self, failed: Failed) -> None:
        """Say the error, and end without the mark."""
        raw = failed.raw_json
        if self.context.own and raw is not UNSET and jsontext.kind(raw) == "an object":
            self.write(sse.write(bytes(raw)))
            return
        kind = "server_error" if failed.kind == "provider" else "stream_error"
        self._chunk({"error": {"message": failed.reason, "type": kind, "param": None, "code": failed.code}})

    def native(self, event: ProviderEvent) -> None:
        """Say an event that is no chunk."""
        data = bytes(event.data_json)
        if jsontext.kind(data) != "an object":  # no event of this wire
            return
        named = jsontext.fields(data).get("type") == jsontext.raw(event.name)
        self.write(sse.write(data, "" if named else sse.nameable(event.name)))

    # -- parts --

    def open(self, shown: Shown) -> None:
        """Find where a part goes."""
        part, said, choice = shown.part, self._of(shown.choice), shown.choice
        held = native(part, WIRE)
        if isinstance(part, ToolCall):
            call = Call(part, held, self._call_number(said))
            said.calls |= set() if is_hint(held, "field", "function_call") else {call.number}
            self._say(choice, call.first())
            self._ways[shown.number] = call
            return
        self._behind_calls(choice)
        if isinstance(part, Reasoning):
            self._ways[shown.number] = self._reasoning(held, choice)
        elif isinstance(part, Refusal):
            item = is_hint(held, "field", "part")
            self._ways[shown.number] = self._item("refusal", held, choice) if item else self._field("refusal", choice)
        elif said.last or (self.context.own and ("content" in said.fields or held)):
            self._ways[shown.number] = self._item("text", held, choice)
        else:
            if "content" in said.fields:
                why = "several texts became one; an answer has one string"
                self.context.lose("converted", "text", why, choice)
            self._ways[shown.number] = self._field("content", choice)

    def _end_held(self, event: PartEnd) -> None:
        part = self._held[event.index][0].part
        if self.context.own and isinstance(part, MalformedToolCall) and part.reason == FAILED_CALL:
            del self._held[event.index]  # it stands in the error that follows
        else:
            super()._end_held(event)

    def _open(self, event: PartStart) -> Shown | None:
        self._place = event.place if self.context.own else ()
        return super()._open(event)

    def _call_number(self, said: _Said) -> int:
        """The index of a call: the one that it had here, if that is free."""
        before, self._place = self._place, ()
        free = len(before) == _CALL_PLACE and before[2] not in said.calls
        number = before[2] if free else said.next_call
        said.next_call = max(said.next_call, number + 1)
        return number

    def _behind_calls(self, choice: int) -> None:
        if self._of(choice).calls and not self.context.own and not self._speech.interleaving:
            self.context.lose("converted", "order of parts", "all text comes before all calls", choice)

    def _field(self, name: str, choice: int, *, before: str = "", empty: str | None = "") -> Field:
        said = self._of(choice)
        said.fields.add(name)
        return Field(name, before=before, empty=empty)

    def _item(self, kind: str, held: Fields, choice: int) -> Item:
        said = self._of(choice)
        before = said.last or ("text" if "content" in said.fields else "")
        converted = kind == "thinking" and not is_hint(
            held, "field", kind
        )  # was another field's, whose fields it keeps
        item = Item(kind, {} if converted else held, before, needs_text=converted)
        said.last = kind
        return item

    def _reasoning(self, held: Fields, choice: int) -> Way:
        field = encode.reasoning_field(held, row(self.context.variant), self.context)
        said = self._of(choice)
        if field is None:
            self.context.lose("dropped", "reasoning", "no field for it here", choice)
            return Dropped()
        if field == "thinking":
            return self._item(field, held, choice)
        if field == "reasoning_details":
            loose = held.get("index", NULL) == NULL
            return LooseDetail(held, said.details) if loose else Detail(held)
        empty = None if self.context.own or is_hint(held, "field", "reasoning_details") else ""
        return self._field(field, choice, before="\n\n" if field in said.fields else "", empty=empty)

    def grow(self, shown: Shown, event: Delta) -> None:
        """Say a piece."""
        delta = self._ways[shown.number].grow(event)
        if delta is not None:
            self._say(shown.choice, delta)

    def cite(self, shown: Shown, citation: Citation) -> None:
        """Gather a citation."""
        if citation.raw_json is not UNSET:
            self._of(shown.choice).annotations.append(citation.raw_json)

    def close(self, shown: Shown, part: AssistantPart | None, /) -> None:
        """Say what ends a part."""
        way = self._ways.pop(shown.number)
        if isinstance(part, Reasoning) and isinstance(way, Field):
            held = native(part, WIRE)
            field = encode.reasoning_field(held, row(self.context.variant), self.context)
            if field == "reasoning_details":  # in the end the provider said it in another field
                self._say(shown.choice, {field: [encode.detail(part, held)]})
            elif field not in (None, way.name, "thinking"):
                self._say(shown.choice, {field: part.text})
            if field != way.name:
                return
        delta = way.end(part)
        if isinstance(way, Item) and part is not None and way.holds_more(part):
            self.context.lose("dropped", "thinking", "blocks that are no text", shown.choice)
        elif isinstance(way, Item) and way.unsaid:
            self.context.lose("dropped", "reasoning", "no field for it here", shown.choice)
        if delta is not None:
            self._say(shown.choice, delta)

    def whole(self, shown: Shown) -> None:
        """Say a recording, or an item of a content list."""
        part, said = shown.part, self._of(shown.choice)
        self._behind_calls(shown.choice)
        held = native(part, WIRE)
        if isinstance(part, Audio) and ("audio" in held or not self.context.own):
            said.fields.add("audio")
            self._say(shown.choice, {"audio": encode.audio(part, held)})
            return
        if isinstance(part, Opaque) and (part.wire != WIRE or jsontext.kind(part.raw_json) != "an object"):
            self.context.lose("dropped", "opaque block", "no item of a content list", shown.choice)
            return
        said.last = type(part).__name__
        self._say(shown.choice, {"content": [encode.content_part(part, self.context)]})

    # -- chunks --

    def _of(self, choice: int) -> _Said:
        """What was said of a choice; its first delta has its role."""
        said = self._said.get(choice)
        if said is None:
            for each in range(len(self._said), min(choice, _CHOICES)):  # the official client wants them in order
                if each not in self._said:
                    self._said[each] = _Said()
                    self._say(each, _ROLE)
            said = self._said[choice] = _Said()
            self._say(choice, _ROLE)
        return said

    def _say(self, choice: int, delta: Table) -> None:
        self.write(b'%b%d,"delta":%b%b' % (self._prefix, choice, jsontext.encode(delta), self._suffix))

    def _chunk(self, fields: Table) -> None:
        self.write(sse.write(jsontext.encode(fields)))
