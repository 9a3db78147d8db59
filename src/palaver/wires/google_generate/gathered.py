"""What is known of a streamed answer of Gemini: fields that come again and again, candidates, calls that grow.

Rules:

- Fields are merged; the later one counts. ``null`` and what is empty replace nothing.
- A candidate is kept as a whole answer would hold it, but for its parts, which are said as they come.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Raw, Struct, structs

from palaver.core import jsontext
from palaver.core.jsontext import NULL
from palaver.core.parts import ToolCall
from palaver.wires.google_generate import decode, field_names
from palaver.wires.google_generate.parts import model_part

if TYPE_CHECKING:
    from palaver.core.jsontext import Fields
    from palaver.core.parts import AssistantPart, Reasoning, Text
    from palaver.wires.google_generate.partial_args import PartialArguments

_EMPTY: Final = (NULL, Raw(b"{}"), Raw(b"[]"))
_NO_PARTS: Final = Raw(b"[]")
_LONE_PART: Final = Raw(b'{"text":""}')


_LISTS: Final[dict[str, tuple[str, ...]]] = {
    "logprobsResult": ("chosenCandidates", "topCandidates"),
    "logprobs_result": ("chosen_candidates", "top_candidates"),
    "citationMetadata": ("citations", "citationSources"),
    "citation_metadata": ("citations", "citation_sources"),
}
"""Fields of a candidate in which each event lists what is new."""


class Lists:
    """Lists inside one field of a candidate, joined over events; a list that begins as the one before replaces it."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._rest: Fields = {}
        self._items: dict[str, list[Raw]] = {}

    def take(self, raw: Raw, names: tuple[str, ...]) -> None:
        """Take what one event says."""
        fields = jsontext.fields(raw)
        for name in names:
            if jsontext.kind(fields.get(name, NULL)) == "an array":
                held, new = self._items.setdefault(name, []), jsontext.items(fields.pop(name))
                if held and new[: len(held)] == held:
                    held.clear()
                held += new
        merge(self._rest, fields)

    def whole(self) -> Raw:
        """The field as a whole answer holds it."""
        return jsontext.raw({**self._rest, **self._items})


def merge(held: Fields, new: Fields) -> None:
    """Let later fields count; what is empty replaces nothing."""
    for key, raw in new.items():
        if key not in held or raw not in _EMPTY:
            held[key] = raw


class GrowingCall(Struct):
    """A call whose arguments arrive: what stands beside them, and beside the call."""

    number: int
    beside: Fields
    inner: Fields
    made_id: str
    run: str
    arguments: PartialArguments
    changed: bool = False
    """A later event told more than arguments."""

    def learn(self, beside: Fields, inner: Fields) -> None:
        """Take what a later event says beside the arguments."""
        for held, new in ((self.beside, beside), (self.inner, inner)):
            self.changed = self.changed or any(held.get(key) != raw for key, raw in new.items())
            held.update(new)

    def built(self, arguments: str) -> AssistantPart:
        """The call as a whole answer would hold it. Raises ``DecodeError``."""
        inner = {"args": jsontext.EMPTY_OBJECT, **self.inner}
        part = model_part({**self.beside, "functionCall": jsontext.raw(inner)}, self.made_id, self.run)
        return structs.replace(part, arguments_json=arguments) if isinstance(part, ToolCall) else part


class Choice:
    """One candidate: its fields so far, and the part that is open."""

    def __init__(self, number: int) -> None:
        """Begin with nothing."""
        self.number = number
        self.fields: Fields = {}
        self.lists: dict[str, Lists] = {}
        self.content: Fields | None = None
        self.parts: Raw | None = None
        """How the parts were written: a list, or a single part; ``None`` when there was no such field."""
        self.count = 0
        self.run = ""
        """The id of the code or tool that Google ran last."""
        self.open = 0
        self.kind: type[Text | Reasoning] | None = None
        """What the part of that number is, if it is a text or thought that goes on."""
        self.call: GrowingCall | None = None
        self.after_call = False
        """The last part was a call whose arguments came in pieces, and it ended."""

    def take(self, beside: Fields) -> list[Fields]:
        """Take what an event says of the candidate; give its parts. Raises ``DecodeError``."""
        raw = beside.get("content", NULL)
        parts: list[Fields] = []
        if raw != NULL:
            del beside["content"]
            content = jsontext.fields(raw)
            form = jsontext.kind(content.get("parts", NULL))
            parts = decode.take_parts(content)
            content.pop("@@parts", None)
            if form != "null":
                self.parts = _LONE_PART if form == "an object" and self.parts is None else _NO_PARTS
            self.content = {} if self.content is None else self.content
            merge(self.content, content)
        for key in _LISTS.keys() & beside.keys():
            if jsontext.kind(beside[key]) == "an object":
                self.lists.setdefault(key, Lists()).take(beside.pop(key), _LISTS[key])
        merge(self.fields, beside)
        return parts

    def whole(self) -> Fields:
        """The candidate as a whole answer holds it, but for its parts."""
        fields = {**self.fields, **{key: lists.whole() for key, lists in self.lists.items()}}
        if self.content is None:
            return fields
        parts = {} if self.parts is None else {"parts": self.parts}
        return {**fields, "content": jsontext.raw({**self.content, **parts})}

    @property
    def word(self) -> str | None:
        """Why it ended, in the wire's word."""
        return field_names.word(dict(self.fields), "finishReason")
