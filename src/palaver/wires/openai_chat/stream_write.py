"""Write streams of Chat Completions.

- A chunk is the head of the answer and one choice. The first delta of a choice has its role. Whole parts stand before
  the finish reason. Usage has a chunk without choices, and ``[DONE]`` ends the stream.
- Parts that were read from this wire keep their place: reasoning in its field, items of a content list in a list, a
  call without id without. A foreign answer gets the fields that the official client requires.
- The official client cannot add to a list whose items have no index, so annotations, and reasoning details without one,
  are collected and sent once, at the end.
- A delta writer begins a part, adds its pieces and ends it. A last delta has the fields that only the end of a part
  brought.
- A failure is an ``error`` object, without an end mark; one read from this wire goes back unchanged.

Source: docs/spec/wires.md#1.3, #2.6, #2.9; ``openai/lib/streaming/chat/_completions.py``.

Stability: experimental.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from msgspec import UNSET, Raw

from palaver.core import jsontext
from palaver.core.events import DataDelta, SignatureDelta
from palaver.core.jsontext import NULL, Fields
from palaver.core.parts import Audio, MalformedToolCall, Opaque, Reasoning, Refusal, ToolCall
from palaver.stream import sse
from palaver.wires._engine.json_fields import native, notes
from palaver.wires._engine.stream_encoder import Shown, StreamEncoder
from palaver.wires.openai_chat import encode
from palaver.wires.openai_chat.shapes import DETAILS, FAILED_CALL, WIRE, write_usage
from palaver.wires.openai_chat.variants import row

if TYPE_CHECKING:
    from palaver.core.events import Delta, Failed, PartEnd, PartStart, ProviderEvent
    from palaver.core.messages import AssistantMessage
    from palaver.core.parts import AssistantPart, Citation
    from palaver.core.request import Response


# -- delta writers ---------------------------------------------------------------------------------


Table = dict[str, Any]
_PROOFS: Final[dict[type, str]] = {SignatureDelta: "signature", DataDelta: "data"}
_CUT: Final = re.compile(r"(?<!\\)(?:\\\\)*\\(?:u[0-9a-fA-F]{0,3})?\Z")
"""Where an escape was cut: an odd number of backslashes, with the beginning of a number or without, at the end."""
_END: Final = re.compile(r'(?<!\\)(?:\\\\)*"\Z')
"""A mark that no backslash escapes, at the end: that of the string."""


class DeltaWriter(Protocol):
    """How one part goes."""

    def grow(self, event: Delta, /) -> Table | None:
        """The delta of a piece."""
        ...

    def end(self, part: AssistantPart | None, /) -> Table | None:
        """The delta that ends it; ``part`` is the provider's last word on it."""
        ...


class Field:
    """Text in a field of the message. ``empty`` is written for a text that never came."""

    def __init__(self, name: str, *, before: str = "", empty: str | None = "") -> None:
        """Start empty; ``before`` parts the text from the one before it."""
        self.name = name
        self.before = before
        self.empty = empty

    def grow(self, event: Delta) -> Table | None:
        """A piece of it; a proof has no place here."""
        if type(event) in _PROOFS:
            return None
        text, self.before, self.empty = self.before + event.text, "", None
        return {self.name: text}

    def end(self, _part: AssistantPart | None) -> Table | None:
        """Nothing, or that it was empty."""
        return None if self.empty is None else {self.name: self.empty}


class Dropped:
    """Has no place on this wire."""

    def grow(self, _event: Delta) -> Table | None:
        """Nothing."""
        return None

    def end(self, _part: AssistantPart | None) -> Table | None:
        """Nothing."""
        return None


class Item:
    """An item of a content list: text, a refusal, or thinking.

    ``before`` is the type of the item before it: where it is the same, an empty piece of that one comes first, so that
    this one is distinguished. An item that ``needs_text`` is not written without.
    """

    def __init__(self, kind: str, stored: Fields, before: str, *, needs_text: bool = False) -> None:
        """Start empty."""
        self.kind = kind
        self._extra = stored
        self._apart = [self._piece("")] if before == kind else []
        self._started = False
        self._needs_text = needs_text

    def _piece(self, text: str) -> Table:
        thinking: Any = [{"type": "text", "text": text}] if text else []
        return {"type": self.kind, self.kind: thinking if self.kind == "thinking" else text}

    def _said(self, text: str) -> Table:
        if self._started:
            return {"content": [self._piece(text)]}
        self._started = True
        extras = {key: raw for key, raw in self._extra.items() if key not in ("type", self.kind)}
        return {"content": [*self._apart, {**self._piece(text), **extras}]}

    def grow(self, event: Delta) -> Table | None:
        """A piece of it; a proof has no place here."""
        return None if type(event) in _PROOFS else self._said(event.text)

    def holds_more(self, part: AssistantPart) -> bool:
        """Whether thinking has blocks beside its text, which was written alone."""
        raw = native(part, WIRE).get("thinking") if self.kind == "thinking" else None
        match None if raw is None else jsontext.value(raw):
            case None | [] | [{"type": "text", "text": str()}]:
                return False
            case _:
                return True

    def end(self, part: AssistantPart | None) -> Table | None:
        """What came late."""
        late = {} if part is None else _late(self._extra, native(part, WIRE))
        late.pop(self.kind, None)
        if late and self._started:
            return {"content": [{**self._piece(""), **late}]}
        self._extra |= late
        return None if self._started or self._needs_text else self._said("")

    @property
    def is_empty(self) -> bool:
        """Whether nothing of it was written."""
        return not self._started


class Detail:
    """An item of ``reasoning_details`` with an index."""

    def __init__(self, part: Reasoning) -> None:
        """Start empty."""
        self._extra = native(part, WIRE)
        self._field = encode.text_field(part)
        self._base: Table = self._extra
        self._started = False

    def grow(self, event: Delta) -> Table | None:
        """A piece of its text, or of its proof."""
        return self._said({_PROOFS.get(type(event), self._field): event.text})

    def end(self, part: AssistantPart | None) -> Table | None:
        """All of it, where it had no text; and what came late."""
        late = {} if part is None else _late(self._extra, native(part, WIRE))
        return self._said(late) if late or not self._started else None

    def _said(self, fields: Table) -> Table:
        base, self._started = self._base, True
        self._base = {key: raw for key, raw in self._extra.items() if key in ("type", "index")}
        return {"reasoning_details": [{**base, **fields}]}


class UnindexedDetail(Detail):
    """An item of ``reasoning_details`` without an index, which is written at once."""

    def __init__(self, part: Reasoning, gathered: list[Table]) -> None:
        """Start empty; it goes to ``gathered``."""
        super().__init__(part)
        self._texts: dict[str, list[str]] = {}
        self._gathered = gathered

    def grow(self, event: Delta) -> Table | None:
        """Wait."""
        self._texts.setdefault(_PROOFS.get(type(event), self._field), []).append(event.text)
        return None

    def end(self, part: AssistantPart | None) -> Table | None:
        """Put it with the others."""
        late = {} if part is None else _late(self._extra, native(part, WIRE))
        self._gathered.append({**self._base, **late, **{key: "".join(each) for key, each in self._texts.items()}})
        return None


class Call:
    """A tool call. ``number`` is its index in the stream."""

    def __init__(self, part: ToolCall, number: int) -> None:
        """Start empty."""
        self._old = encode.has_field(part, "function_call")
        self._custom = part.custom
        self._key = "custom" if part.custom else "function"
        self.number = number
        self._part = part
        self._extra = native(part, WIRE)
        self._noted = notes(part, WIRE)
        self._whole: list[str] | None = [] if "arguments" in self._noted and not part.custom else None
        self._open = ""
        self._started = False

    def _inner(self, stored: Fields) -> Fields:
        return stored if self._old else jsontext.fields(stored.get(self._key, jsontext.EMPTY_OBJECT))

    def first(self) -> Table:
        """The delta that begins it: its id and name, and arguments that are empty."""
        inner: Table = {"name": self._part.name}
        if self._custom:
            inner["input"] = ""
        elif self._whole is None:
            inner["arguments"] = ""
        inner |= self._inner(self._extra)
        if self._old:
            return {"function_call": inner}
        call: Table = {"index": self.number}
        if "id" not in self._noted:
            call["id"] = self._part.id
        call["type"] = self._key
        extras = {key: raw for key, raw in self._extra.items() if key not in (self._key, "index")}
        return {"tool_calls": [{**call, self._key: inner, **extras}]}

    def _more(self, inner: Table, extras: Table | None = None) -> Table:
        if self._old:
            return {"function_call": inner}
        return {"tool_calls": [{"index": self.number, self._key: inner, **(extras or {})}]}

    def grow(self, event: Delta) -> Table | None:
        """A piece of its arguments."""
        if self._whole is not None:
            self._whole.append(event.text)
            return None
        if not self._custom:
            return self._more({"arguments": event.text}) if event.text else None
        text = self._open + event.text
        if not self._started:
            self._started = bool(text)
            text = text.removeprefix('"')
        cut = _CUT.search(text)
        at = len(text) if cut is None else cut.start()
        text, self._open = text[:at], text[at:]
        text = text[:-1] if _END.search(text) else text
        return self._more({"input": _raw_string(text)}) if text else None

    def end(self, part: AssistantPart | None) -> Table | None:
        """Arguments that are sent whole, and what came late."""
        stored = self._extra if part is None else native(part, WIRE)
        inner: Table = {
            key: raw for key, raw in self._inner(stored).items() if self._inner(self._extra).get(key) != raw
        }
        if self._whole is not None:
            text = "".join(self._whole)
            inner["arguments"] = Raw(text.encode()) if jsontext.is_json(text) else text
        elif self._open:
            inner["input"] = self._open
        late = {} if self._old else _late(self._extra, stored)
        late = {key: raw for key, raw in late.items() if key not in (self._key, "index")}
        return self._more(inner, late) if inner or late else None


def _raw_string(text: str) -> Any:
    """The inside of a JSON string, as that string; text that is none is sent as it is."""
    quoted = f'"{text}"'
    return Raw(quoted.encode()) if jsontext.is_json(quoted) else text


def _late(before: Fields, stored: Fields) -> Table:
    return {key: raw for key, raw in stored.items() if before.get(key, NULL) != raw}


_EVERYWHERE: Final = ("id", "object", "created", "model", "provider", "service_tier", "system_fingerprint")
"""Fields of the answer that every chunk has; the others stand in the first, or in the last when they came late."""
_ROLE: Final = {"role": "assistant"}
_CHOICES: Final = 128
"""The most choices that may be asked for."""
_CALL_PLACE: Final = 3
_WHOLE, _CHUNK = Raw(b'"chat.completion"'), Raw(b'"chat.completion.chunk"')


class _ChoiceState:
    """What was written of a choice."""

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
        """Write only the fields of the answer that chunks do not repeat."""
        self._said: dict[int, _ChoiceState] = {}
        self._writers: dict[int, DeltaWriter] = {}
        self._place: tuple[int, ...] = ()
        self._head = self._fields(head)
        self._every: Table = {key: self._head[key] for key in _EVERYWHERE if key in self._head}
        self._prefix = b"data: " + jsontext.encode({**self._every, "choices": []})[:-2] + b'{"index":'
        own = self.context.own
        self._suffix = b',"finish_reason":null}]}\n\n' if own else b',"logprobs":null,"finish_reason":null}]}\n\n'
        if own and len(self._every) < len(self._head):
            self._chunk({**self._head, "choices": []})

    def _fields(self, answer: Response) -> Table:
        """The fields of the whole answer."""
        message, fields = answer.message, dict[str, Any](native(answer, WIRE))
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

    def finish_answer(self, answer: Response) -> None:
        """Write late fields, the finish reason of each choice, and the usage."""
        fields = self._fields(answer)
        before = self._head if self.context.own else self._every
        late = {key: value for key, value in fields.items() if before.get(key, UNSET) != value}
        if not self.context.own:  # a plain loop over the chunks reads the first choice of each
            self._every |= late
            late = {}
        for index, message in enumerate((answer.message, *answer.alternatives)):
            self._finish(message, index)
        last: Table = {**self._every, "choices": [], **late}
        if answer.message.usage is not None:
            last["usage"] = write_usage(answer.message.usage)
        if late or "usage" in last:
            self._chunk(last)
        self.write(sse.write(b"[DONE]"))

    def _finish(self, message: AssistantMessage, index: int) -> None:
        emitted = self._of(index)
        rest, noted = native(message, WIRE), notes(message, WIRE)
        fields: Table = {key: raw for key, raw in rest.items() if key not in emitted.fields}
        fields |= {"role": noted["role"]} if "role" in noted else {}
        fields |= {"annotations": emitted.annotations} if emitted.annotations else {}
        fields |= {"reasoning_details": emitted.details} if emitted.details else {}
        if not self.context.own and "content" not in emitted.fields and not emitted.last:
            fields["content"] = None
        if not self.context.own and "refusal" not in emitted.fields:
            fields.setdefault("refusal", None)
        variant = row(self.context.variant)
        if variant.reasoning_with_calls and variant.reasoning and emitted.calls and not self.context.own:
            fields |= {} if variant.reasoning in emitted.fields else {variant.reasoning: ""}
        if fields:
            self._emit(index, fields)
        choice: Table = {"index": index, "delta": {}}
        if not self.context.own:
            choice["logprobs"] = None
        elif "choice" in noted:
            choice |= {**jsontext.fields(noted["choice"]), "index": index}
        word = encode.finish_word(message, self.context)
        choice |= {} if word is UNSET else {"finish_reason": word}
        self._chunk({**self._every, "choices": [choice]})

    def fail(self, failed: Failed) -> None:
        """Write the error, and end without the mark."""
        raw = failed.raw_json
        if self.context.own and raw is not UNSET and jsontext.kind(raw) == "an object":
            self.write(sse.write(bytes(raw)))
            return
        kind = "server_error" if failed.kind == "provider" else "stream_error"
        self._chunk({"error": {"message": failed.reason, "type": kind, "param": None, "code": failed.code}})

    def native(self, event: ProviderEvent) -> None:
        """Write an event that is no chunk."""
        data = bytes(event.data_json)
        if jsontext.kind(data) != "an object":  # no event of this wire
            return
        named = jsontext.fields(data).get("type") == jsontext.raw(event.name)
        self.write(sse.write(data, "" if named else sse.nameable(event.name)))

    # -- parts --

    def open(self, shown: Shown) -> None:
        """Find where a part goes."""
        part, emitted, choice = shown.part, self._of(shown.choice), shown.choice
        stored = native(part, WIRE)
        if isinstance(part, ToolCall):
            call = Call(part, self._call_number(emitted))
            emitted.calls |= set() if encode.has_field(part, "function_call") else {call.number}
            self._emit(choice, call.first())
            self._writers[shown.number] = call
            return
        self._behind_calls(choice)
        if isinstance(part, Reasoning):
            self._writers[shown.number] = self._reasoning(part, choice)
        elif isinstance(part, Refusal):
            item = encode.has_field(part, "part")
            self._writers[shown.number] = (
                self._item("refusal", part, choice) if item else self._field("refusal", choice)
            )
        elif emitted.last or (self.context.own and ("content" in emitted.fields or stored)):
            self._writers[shown.number] = self._item("text", part, choice)
        else:
            if "content" in emitted.fields:
                why = "several texts became one; an answer has one string"
                self.context.lose("converted", "text", why, choice)
            self._writers[shown.number] = self._field("content", choice)

    def _end_pending(self, event: PartEnd) -> None:
        part = self._pending[event.index][0].part
        if self.context.own and isinstance(part, MalformedToolCall) and part.reason == FAILED_CALL:
            del self._pending[event.index]  # it stands in the error that follows
        else:
            super()._end_pending(event)

    def _open(self, event: PartStart) -> Shown | None:
        self._place = event.place if self.context.own else ()
        return super()._open(event)

    def _call_number(self, emitted: _ChoiceState) -> int:
        """The index of a call: the one that it had here, if that is free."""
        before, self._place = self._place, ()
        free = len(before) == _CALL_PLACE and before[2] not in emitted.calls
        number = before[2] if free else emitted.next_call
        emitted.next_call = max(emitted.next_call, number + 1)
        return number

    def _behind_calls(self, choice: int) -> None:
        if self._of(choice).calls and not self.context.own and not self._capabilities.interleaving:
            self.context.lose("converted", "order of parts", "all text comes before all calls", choice)

    def _field(self, name: str, choice: int, *, before: str = "", empty: str | None = "") -> Field:
        emitted = self._of(choice)
        emitted.fields.add(name)
        return Field(name, before=before, empty=empty)

    def _item(self, kind: str, part: AssistantPart, choice: int) -> Item:
        emitted = self._of(choice)
        before = emitted.last or ("text" if "content" in emitted.fields else "")
        converted = kind == "thinking" and not encode.has_field(
            part, kind
        )  # was another field's, whose fields it keeps
        item = Item(kind, {} if converted else native(part, WIRE), before, needs_text=converted)
        emitted.last = kind
        return item

    def _reasoning(self, part: Reasoning, choice: int) -> DeltaWriter:
        field = encode.reasoning_field(part, row(self.context.variant), self.context)
        emitted = self._of(choice)
        if field is None:
            self.context.lose("dropped", "reasoning", "no field for it here", choice)
            return Dropped()
        if field == "thinking":
            return self._item(field, part, choice)
        if field == DETAILS:
            unindexed = native(part, WIRE).get("index", NULL) == NULL
            return UnindexedDetail(part, emitted.details) if unindexed else Detail(part)
        empty = None if self.context.own or encode.has_field(part, DETAILS) else ""
        return self._field(field, choice, before="\n\n" if field in emitted.fields else "", empty=empty)

    def grow(self, shown: Shown, event: Delta) -> None:
        """Write a piece."""
        delta = self._writers[shown.number].grow(event)
        if delta is not None:
            self._emit(shown.choice, delta)

    def cite(self, shown: Shown, citation: Citation) -> None:
        """Gather a citation."""
        if citation.raw_json is not UNSET:
            self._of(shown.choice).annotations.append(citation.raw_json)

    def close(self, shown: Shown, part: AssistantPart | None, /) -> None:
        """Write the end of a part."""
        writer = self._writers.pop(shown.number)
        if isinstance(part, Reasoning) and isinstance(writer, Field):
            field = encode.reasoning_field(part, row(self.context.variant), self.context)
            if field == DETAILS:  # the final answer has it in another field
                self._emit(shown.choice, {field: [encode.detail(part)]})
            elif field not in (None, writer.name, "thinking"):
                self._emit(shown.choice, {field: part.text})
            if field != writer.name:
                return
        delta = writer.end(part)
        if isinstance(writer, Item) and part is not None and writer.holds_more(part):
            self.context.lose("dropped", "thinking", "blocks that are no text", shown.choice)
        elif isinstance(writer, Item) and writer.is_empty:
            self.context.lose("dropped", "reasoning", "no field for it here", shown.choice)
        if delta is not None:
            self._emit(shown.choice, delta)

    def write_whole(self, shown: Shown) -> None:
        """Write audio, or an item of a content list."""
        part, emitted = shown.part, self._of(shown.choice)
        self._behind_calls(shown.choice)
        stored = native(part, WIRE)
        if isinstance(part, Audio) and ("audio" in stored or not self.context.own):
            emitted.fields.add("audio")
            self._emit(shown.choice, {"audio": encode.audio(part)})
            return
        if isinstance(part, Opaque) and (part.wire != WIRE or jsontext.kind(part.raw_json) != "an object"):
            self.context.lose("dropped", "opaque block", "not an item of a content list", shown.choice)
            return
        emitted.last = type(part).__name__
        self._emit(shown.choice, {"content": [encode.content_part(part, self.context)]})

    # -- chunks --

    def _of(self, choice: int) -> _ChoiceState:
        """The state of a choice; its first delta has its role."""
        emitted = self._said.get(choice)
        if emitted is None:
            for each in range(len(self._said), min(choice, _CHOICES)):  # the official client wants them in order
                if each not in self._said:
                    self._said[each] = _ChoiceState()
                    self._emit(each, _ROLE)
            emitted = self._said[choice] = _ChoiceState()
            self._emit(choice, _ROLE)
        return emitted

    def _emit(self, choice: int, delta: Table) -> None:
        self.write(b'%b%d,"delta":%b%b' % (self._prefix, choice, jsontext.encode(delta), self._suffix))

    def _chunk(self, fields: Table) -> None:
        self.write(sse.write(jsontext.encode(fields)))
