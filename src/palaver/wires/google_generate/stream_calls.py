"""Calls and candidates of a Gemini stream: arguments that arrive in pieces, and fields that are merged.

A piece of arguments (``streamFunctionCallArguments``, Vertex AI) is a scalar with its place in the arguments object,
such as ``$.recipe.ingredients[0].name``. A string may come in several pieces; all but the last have ``willContinue``.

- Pieces in document order become JSON text that grows: the new value and the brackets and names before it.
- A piece out of order stops the deltas. ``whole`` gives the arguments at the end: the later value counts, and a string
  whose last piece had ``willContinue`` goes on.
- An array place without a piece is ``null``, since empty objects and arrays have no piece. More than 100 such places in
  a row are damage. Numbers keep their text.
- Fields of a candidate are merged, the later one counts; ``null`` and empty values replace nothing.

Source: google.cloud.aiplatform.v1 ``PartialArg``; https://www.rfc-editor.org/rfc/rfc9535 for the paths, which have
only names and indexes.

Stability: experimental.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, structs

from palaver.core import jsontext
from palaver.core.errors import DecodeError
from palaver.core.jsontext import NULL, TRUE
from palaver.core.parts import ToolCall
from palaver.wires._engine.shapes import ABSENT
from palaver.wires.google_generate import decode
from palaver.wires.google_generate.field_names import camel
from palaver.wires.google_generate.parts import model_part

if TYPE_CHECKING:
    from palaver.core.jsontext import Fields
    from palaver.core.parts import AssistantPart, Reasoning, Text


Path: TypeAlias = "tuple[str | int, ...]"

_STEP: Final = re.compile(
    r"""\.([^.\[\]]+) | \[ \s*(?: (\d{1,9}) | "((?:[^"\\]|\\.)*)" | '((?:[^'\\]|\\.)*)' )\s* \]""", re.VERBOSE
)
_encode = msgspec.json.Encoder().encode
_DEEPEST: Final = 200
_WIDEST: Final = 100


def path(text: str) -> Path:
    """Read a JSON path of names and indexes. Raises ``DecodeError``."""
    steps: list[str | int] = []
    at = 1
    while at < len(text):
        found = _STEP.match(text, at)
        if found is None:
            break
        steps.append(_step(found))
        at = found.end()
    if text[:1] != "$" or at < len(text) or not steps or isinstance(steps[0], int):
        raise DecodeError("not a path to a field of the arguments", path="jsonPath")
    if len(steps) > _DEEPEST:
        raise DecodeError("nested too deeply", path="jsonPath")
    return tuple(steps)


def _step(found: re.Match[str]) -> str | int:
    name, index, double, single = found.groups()
    if index is not None:
        return int(index)
    if name is not None:
        return str(name)
    inner = double if double is not None else re.sub(r"\\(.)|(\")", _requoted, single)
    try:
        return jsontext.text(f'"{inner}"'.encode())
    except (DecodeError, UnicodeEncodeError):
        raise DecodeError("not a path to a field of the arguments", path="jsonPath") from None


def _requoted(found: re.Match[str]) -> str:
    """Write what is escaped in single quotes as it is in double ones."""
    if found[2]:
        return '\\"'
    return "'" if found[1] == "'" else found[0]


def quoted(text: str) -> str:
    """Write a text as JSON, without its quotation marks."""
    try:
        return _encode(text).decode()[1:-1]
    except UnicodeEncodeError:  # half of a surrogate pair
        return jsontext.encode(text).decode()[1:-1]


class _Open:
    """An object or array that is open in the text: where it stands, and what it holds."""

    __slots__ = ("names", "size", "step")

    def __init__(self, step: str | int, *, array: bool) -> None:
        self.step = step
        self.names: set[str] | None = None if array else set()
        self.size = 0

    def enter(self, step: str | int) -> str | None:
        """The text before the value of a step; ``None`` when the order does not allow it."""
        comma = "," if self.size else ""
        if self.names is None:
            if isinstance(step, str) or step < self.size:
                return None
            missing = _missing(step - self.size)
            self.size = step + 1
            return comma + "null," * missing
        if isinstance(step, int) or step in self.names:
            return None
        self.names.add(step)
        self.size += 1
        return f'{comma}"{quoted(step)}":'

    @property
    def end(self) -> str:
        return "]" if self.names is None else "}"


def _missing(count: int) -> int:
    if count > _WIDEST:
        raise DecodeError("too far behind the end of its array", path="jsonPath")
    return count


class PartialArguments:
    """The arguments of one call while they arrive. ``grows``: they can be emitted as text that grows."""

    def __init__(self) -> None:
        """Start empty."""
        self.grows = True
        self.string: str | None = None
        """The path of the string that goes on."""
        self._open: list[_Open] = []
        self._values: dict[Path, list[str]] = {}
        """The pieces of each value as JSON text, strings with their first mark only; in the order of arrival."""
        self._pieces: list[str] = []
        self._steps: Path = ()
        self._going_on: set[Path] = set()
        """Strings that have not ended."""

    def more(self, text: str, *, goes_on: bool) -> str:
        """Take one more piece of the string that goes on; give what it adds to the text."""
        added = quoted(text)
        self._pieces.append(added)
        if not goes_on:
            added += self._ended()
        return added if self.grows else ""

    def add(self, piece: Fields) -> str:
        """Take a piece; give what it adds to the text. Raises ``DecodeError``."""
        where = piece.pop("jsonPath", None)
        if where is None:
            raise DecodeError("missing", path="jsonPath")
        try:
            name = jsontext.text(where)
        except DecodeError as error:
            raise error.within("jsonPath") from None
        goes_on = piece.pop("willContinue", NULL) == TRUE
        value = _value(piece)
        if name == self.string and (value is None or value[:1] == '"'):
            return self.more("" if value is None else jsontext.text(value.encode()), goes_on=goes_on)
        if value is None:
            return ""
        return self._begin(name, path(name), value, goes_on=goes_on and value[:1] == '"')

    def _begin(self, name: str, steps: Path, value: str, *, goes_on: bool) -> str:
        ended = self._ended(cut=True)
        value = value[:-1] if goes_on else value
        if steps in self._going_on and value[:1] == '"':
            self.grows = False
            self._pieces = self._values[steps]
            self._pieces.append(value[1:])
        else:
            if steps in self._values:  # so that the later one stands where it came
                del self._values[steps]
            self._pieces = self._values[steps] = [value]
        (self._going_on.add if goes_on else self._going_on.discard)(steps)
        self.string = name if goes_on else None
        self._steps = steps
        if self.grows:
            before = self._before(steps)
            if before is not None:
                return ended + before + value
            self.grows = False
        return ""

    def _ended(self, *, cut: bool = False) -> str:
        """End the string that goes on. ``cut``: another piece came instead of its last."""
        if self.string is None:
            return ""
        self.string = None
        if not cut:
            self._pieces.append('"')
            self._going_on.discard(self._steps)
        return '"'

    def _before(self, steps: Path) -> str | None:
        """What stands before a value: ends of what is left, beginnings of what is entered."""
        written: list[str] = []
        opened = self._open
        if not opened:
            opened.append(_Open("$", array=False))
            written.append("{")
        depth = 1
        while depth < min(len(opened), len(steps)) and opened[depth].step == steps[depth - 1]:
            depth += 1
        while len(opened) > depth:
            written.append(opened.pop().end)
        for place in range(depth - 1, len(steps)):
            before = opened[-1].enter(steps[place])
            if before is None:
                return None
            written.append(before)
            if place + 1 < len(steps):
                array = isinstance(steps[place + 1], int)
                opened.append(_Open(steps[place], array=array))
                written.append("[" if array else "{")
        return "".join(written)

    @property
    def begun(self) -> bool:
        """Whether a piece came."""
        return bool(self._values)

    def close(self) -> str:
        """End the arguments; give what that adds to the text."""
        ended = self._ended()
        if not self.grows:
            return ""
        if not self._open:
            return "{}"
        return ended + "".join([each.end for each in reversed(self._open)])

    def whole(self) -> str:
        """The arguments, put together from all pieces. Raises ``DecodeError`` for places too far apart."""
        tree: dict[str | int, Any] = {}
        for steps, pieces in self._values.items():
            node = tree
            for step in steps[:-1]:
                inner = node.get(step)
                if not isinstance(inner, dict):
                    inner = node[step] = {}
                node = cast("dict[str | int, Any]", inner)
            text = "".join(pieces)
            node[steps[-1]] = text + '"' if steps in self._going_on else text
        return _written(tree)


def _written(node: dict[str | int, Any] | str) -> str:
    if isinstance(node, str):
        return node
    names = [step for step in node if isinstance(step, str)]
    if names or not node:
        return "{" + ",".join([f'"{quoted(name)}":{_written(node[name])}' for name in names]) + "}"
    items: list[str] = []
    for step in sorted(cast("dict[int, Any]", node)):
        items += ["null"] * _missing(step - len(items))
        items.append(_written(node[step]))
    return "[" + ",".join(items) + "]"


_VALUES: Final[dict[str, tuple[str, ...]]] = {
    "stringValue": ("a string",),
    "numberValue": ("a number",),
    "boolValue": ("true", "false"),
}


def _value(piece: Fields) -> str | None:
    """The JSON text of the value of a piece; ``None`` when there is none."""
    for name, kinds in _VALUES.items():
        raw = piece.pop(name, NULL)
        if raw != NULL:
            if jsontext.kind(raw) not in kinds:
                raise DecodeError(f"expected {kinds[0]}, got {jsontext.kind(raw)}", path=name)
            return f'"{quoted(jsontext.text(raw))}"' if name == "stringValue" else bytes(raw).decode()
    return None if piece.pop("nullValue", None) is None else "null"


# -- fields, candidates and calls ------------------------------------------------------------------


_EMPTY: Final = (NULL, Raw(b"{}"), Raw(b"[]"))


_LISTS: Final[dict[str, tuple[str, ...]]] = {
    "logprobsResult": ("chosenCandidates", "topCandidates"),
    "citationMetadata": ("citations", "citationSources"),
}
"""Fields of a candidate in which each event lists what is new."""


class Lists:
    """Lists inside one field of a candidate, joined over events; a list that begins as the one before replaces it."""

    def __init__(self) -> None:
        """Start empty."""
        self._rest: Fields = {}
        self._items: dict[str, list[Raw]] = {}

    def take(self, raw: Raw, names: tuple[str, ...]) -> None:
        """Take one event."""
        fields = camel(jsontext.fields(raw))
        for name in names:
            if jsontext.kind(fields.get(name, NULL)) == "an array":
                stored, new = self._items.setdefault(name, []), jsontext.items(fields.pop(name))
                if stored and new[: len(stored)] == stored:
                    stored.clear()
                stored += new
        merge(self._rest, fields)

    def whole(self) -> Raw:
        """The field as a whole answer holds it."""
        return jsontext.raw({**self._rest, **self._items})


def merge(stored: Fields, new: Fields) -> None:
    """Let later fields count; what is empty replaces nothing."""
    for key, raw in new.items():
        if key not in stored or raw not in _EMPTY:
            stored[key] = raw


class GrowingCall(Struct):
    """A call whose arguments arrive: what stands beside them, and beside the call."""

    number: int
    beside: Fields
    inner: Fields
    made_id: str
    run: str
    arguments: PartialArguments
    changed: bool = False
    """Whether a later event had more than arguments."""

    def learn(self, beside: Fields, inner: Fields) -> None:
        """Take the fields of a later event beside the arguments."""
        for stored, new in ((self.beside, beside), (self.inner, inner)):
            self.changed = self.changed or any(stored.get(key) != raw for key, raw in new.items())
            stored.update(new)

    def built(self, arguments: str) -> AssistantPart:
        """The call as a whole answer would hold it. Raises ``DecodeError``."""
        inner = {"args": jsontext.EMPTY_OBJECT, **self.inner}
        part = model_part({**self.beside, "functionCall": jsontext.raw(inner)}, self.made_id, self.run)
        return structs.replace(part, arguments_json=arguments) if isinstance(part, ToolCall) else part


class Choice:
    """One candidate: its fields so far, and the part that is open."""

    def __init__(self, number: int) -> None:
        """Start empty."""
        self.number = number
        self.fields: Fields = {}
        self.lists: dict[str, Lists] = {}
        self.content: Fields = {}
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
        """Take the fields of the candidate in an event; return its parts. Raises ``DecodeError``."""
        raw = beside.pop("content", NULL)
        parts: list[Fields] = []
        if raw != NULL:
            try:
                content = decode.read_content(raw)
            except DecodeError as error:
                raise error.within("content") from None
            parts = decode.parts_of(content)
            if content.role is not ABSENT:
                merge(self.content, {"role": content.role})
            merge(self.content, content.rest)
        for key in _LISTS.keys() & beside.keys():
            if jsontext.kind(beside[key]) == "an object":
                self.lists.setdefault(key, Lists()).take(beside.pop(key), _LISTS[key])
        merge(self.fields, beside)
        return parts

    def whole(self) -> Fields:
        """The candidate as a whole answer holds it, but for its parts."""
        fields = {**self.fields, **{key: lists.whole() for key, lists in self.lists.items()}}
        return {**fields, "content": jsontext.raw(self.content)} if self.content else fields

    @property
    def reason(self) -> str | UnsetType:
        """Why it ended, in the wire's word."""
        found = self.fields.get("finishReason", NULL)
        return jsontext.text(found) if jsontext.kind(found) == "a string" else UNSET
