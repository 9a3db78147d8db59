"""How a part goes into deltas: what begins it, what each piece of it says, what ends it.

Rules:

- A way gives deltas, and ``None`` where there is nothing to say. Who asks it puts them into chunks.
- What the provider said of a part at its end, beyond what was known when it began, is said in a last delta.

Source: docs/spec/wires.md#2.6, #2.9.

Stability: experimental.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import Raw

from palaver.core import jsontext
from palaver.core.events import DataDelta, SignatureDelta
from palaver.core.jsontext import NULL, Fields
from palaver.wires._engine.json_fields import hint, is_hint, native, visible
from palaver.wires.openai_chat.shapes import WIRE

if TYPE_CHECKING:
    from palaver.core.events import Delta
    from palaver.core.parts import AssistantPart, ToolCall

Table = dict[str, Any]
_PROOFS: Final[dict[type, str]] = {SignatureDelta: "signature", DataDelta: "data"}
_CUT: Final = re.compile(r"(?<!\\)(?:\\\\)*\\(?:u[0-9a-fA-F]{0,3})?\Z")
"""Where an escape was cut: an odd number of backslashes, with the beginning of a number or without, at the end."""
_END: Final = re.compile(r'(?<!\\)(?:\\\\)*"\Z')
"""A mark that no backslash escapes, at the end: that of the string."""


class Way(Protocol):
    """How one part goes."""

    def grow(self, event: Delta, /) -> Table | None:
        """The delta that says a piece."""
        ...

    def end(self, part: AssistantPart | None, /) -> Table | None:
        """The delta that ends it; ``part`` is the provider's last word on it."""
        ...


class Field:
    """Text in a field of the message. ``empty`` is said of a text that never came."""

    def __init__(self, name: str, *, before: str = "", empty: str | None = "") -> None:
        """Begin with nothing said; ``before`` parts the text from the one before it."""
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
    this one is told apart. Of an item that ``needs_text`` nothing is said without.
    """

    def __init__(self, kind: str, held: Fields, before: str, *, needs_text: bool = False) -> None:
        """Begin with nothing said."""
        self.kind = kind
        self._held = held
        self._apart = [self._piece("")] if before == kind else []
        self._begun = False
        self._needs_text = needs_text

    def _piece(self, text: str) -> Table:
        thinking: Any = [{"type": "text", "text": text}] if text else []
        return {"type": self.kind, self.kind: thinking if self.kind == "thinking" else text}

    def _said(self, text: str) -> Table:
        if self._begun:
            return {"content": [self._piece(text)]}
        self._begun = True
        extras = {key: raw for key, raw in visible(self._held).items() if key not in ("type", self.kind)}
        return {"content": [*self._apart, {**self._piece(text), **extras}]}

    def grow(self, event: Delta) -> Table | None:
        """A piece of it; a proof has no place here."""
        return None if type(event) in _PROOFS else self._said(event.text)

    def holds_more(self, part: AssistantPart) -> bool:
        """Whether thinking holds blocks beside its text, which was said alone."""
        raw = native(part, WIRE).get("thinking") if self.kind == "thinking" else None
        match None if raw is None else jsontext.value(raw):
            case None | [] | [{"type": "text", "text": str()}]:
                return False
            case _:
                return True

    def end(self, part: AssistantPart | None) -> Table | None:
        """What came late."""
        late = {} if part is None else _late(self._held, native(part, WIRE))
        late.pop(self.kind, None)
        if late and self._begun:
            return {"content": [{**self._piece(""), **late}]}
        self._held |= late
        return None if self._begun or self._needs_text else self._said("")

    @property
    def unsaid(self) -> bool:
        """Whether nothing was said of it."""
        return not self._begun


class Detail:
    """An item of ``reasoning_details`` with an index."""

    def __init__(self, held: Fields) -> None:
        """Begin with nothing said."""
        self._held = held
        self._field = "summary" if is_hint(held, "text", "summary") else "text"
        self._base: Table = visible(held)
        self._begun = False
        if not is_hint(held, "text", "absent"):
            self._base = {**self._base, self._field: ""}

    def grow(self, event: Delta) -> Table | None:
        """A piece of its text, or of its proof."""
        return self._said({_PROOFS.get(type(event), self._field): event.text})

    def end(self, part: AssistantPart | None) -> Table | None:
        """All of it, where it had no text; and what came late."""
        late = {} if part is None else _late(self._held, native(part, WIRE))
        return self._said(late) if late or not self._begun else None

    def _said(self, fields: Table) -> Table:
        base, self._begun = self._base, True
        self._base = {key: raw for key, raw in self._held.items() if key in ("type", "index")}
        return {"reasoning_details": [{**base, **fields}]}


class LooseDetail(Detail):
    """An item of ``reasoning_details`` without an index: told from others by being said at once."""

    def __init__(self, held: Fields, gathered: list[Table]) -> None:
        """Begin with nothing said; it goes to ``gathered``."""
        super().__init__(held)
        self._texts: dict[str, list[str]] = {}
        self._gathered = gathered

    def grow(self, event: Delta) -> Table | None:
        """Wait."""
        self._texts.setdefault(_PROOFS.get(type(event), self._field), []).append(event.text)
        return None

    def end(self, part: AssistantPart | None) -> Table | None:
        """Put it with the others."""
        late = {} if part is None else _late(self._held, native(part, WIRE))
        self._gathered.append({**self._base, **late, **{key: "".join(each) for key, each in self._texts.items()}})
        return None


class Call:
    """A tool call. ``number`` is its index in the stream."""

    def __init__(self, part: ToolCall, held: Fields, number: int) -> None:
        """Begin with nothing said."""
        self._old = is_hint(held, "field", "function_call")
        self._custom = part.custom
        self._key = "custom" if part.custom else "function"
        self.number = number
        self._part = part
        self._held = held
        self._form = held.get("@@arguments")
        self._whole: list[str] | None = [] if self._form == hint("object") and not part.custom else None
        self._open = ""
        self._begun = False

    def _inner(self, held: Fields) -> Fields:
        return visible(held) if self._old else jsontext.fields(held.get(self._key, jsontext.EMPTY_OBJECT))

    def first(self) -> Table:
        """The delta that begins it: its id and name, and arguments that are empty."""
        inner: Table = {"name": self._part.name}
        if self._custom:
            inner["input"] = ""
        elif self._form is None:
            inner["arguments"] = ""
        elif self._form == hint("null"):
            inner["arguments"] = None
        inner |= self._inner(self._held)
        if self._old:
            return {"function_call": inner}
        call: Table = {"index": self.number}
        if not is_hint(self._held, "id", "absent"):
            call["id"] = self._part.id
        if not is_hint(self._held, "type", "absent"):
            call["type"] = self._key
        extras = {key: raw for key, raw in visible(self._held).items() if key not in (self._key, "index")}
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
        if not self._begun:
            self._begun = bool(text)
            text = text.removeprefix('"')
        cut = _CUT.search(text)
        at = len(text) if cut is None else cut.start()
        text, self._open = text[:at], text[at:]
        text = text[:-1] if _END.search(text) else text
        return self._more({"input": _raw_string(text)}) if text else None

    def end(self, part: AssistantPart | None) -> Table | None:
        """Arguments that go out whole, and what came late."""
        held = self._held if part is None else native(part, WIRE)
        inner: Table = {key: raw for key, raw in self._inner(held).items() if self._inner(self._held).get(key) != raw}
        if self._whole is not None:
            text = "".join(self._whole)
            inner["arguments"] = Raw(text.encode()) if jsontext.is_json(text) else text
        elif self._open:
            inner["input"] = self._open
        late = {} if self._old else _late(self._held, held)
        late = {key: raw for key, raw in late.items() if key not in (self._key, "index")}
        return self._more(inner, late) if inner or late else None


def _raw_string(text: str) -> Any:
    """The inside of a JSON string, as that string; text that is none goes out as it is."""
    quoted = f'"{text}"'
    return Raw(quoted.encode()) if jsontext.is_json(quoted) else text


def _late(before: Fields, held: Fields) -> Table:
    return {key: raw for key, raw in visible(held).items() if before.get(key, NULL) != raw}
