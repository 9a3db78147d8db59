"""Convert the return value or exception of a tool to the content that the model gets, and limit its length.

Rules (docs/spec/codebuff.md#1.3, #5; docs/spec/kairo.md#D27):

- A string becomes a text part. Numbers, booleans, lists, dictionaries, dataclasses, structs and models become one JSON
  part. Parts, and lists that contain one, stay as they are.
- Bytes become media by their first bytes, else text if they are UTF-8, else a file.
- ``None`` and blank text become ``(no output)``: models take an empty result for a failure, and some providers refuse
  blank text (docs/spec/wires.md#6).
- A value that JSON cannot express (NaN, bytes inside a value, a cycle, an object of another class) becomes an error
  result with its path, without its ``repr``. A ``Path`` is refused too, since only the tool knows whether it means the
  name or the content.
- The model gets the text of a ``ToolError``, and the type and shortened text of any other exception, without a
  traceback. An exception without a text is an ``Unknown error``.
- ``limit`` cuts the text of a result at a number of characters (grapheme clusters) and adds a note in the words of
  DAS-24. Text and JSON share the limit, in their order; a JSON value that is cut becomes text. Media and opaque parts
  stay. The full text is returned too; ``Limited.with_handle`` adds how to read the rest.
- ``compress`` folds runs of more than three equal lines into one, then cuts the middle out of a long text.

Characters are extended grapheme clusters (Unicode Standard Annex 29), as ``regex`` finds them.

Stability: experimental.
"""

from __future__ import annotations

import dataclasses
import enum
import pathlib
from collections.abc import Iterator, Mapping, Set as AbstractSet
from itertools import groupby
from typing import Any, Final, cast

import msgspec
import regex
from msgspec import UNSET, Struct

from palaver.core import jsontext, media_types
from palaver.core.errors import MessageError, PalaverError, ToolError, excerpt
from palaver.core.messages import ToolMessage
from palaver.core.parts import Audio, File, Image, Json, Media, Opaque, Part, Text, ToolPart, Video
from palaver.turn.tool import Output

# --- outputs ----------------------------------------------------------------------------------------------------------


NO_OUTPUT: Final = "(no output)"
UNKNOWN_ERROR: Final = "Unknown error"

_EXCEPTION: Final = 1000
"""Characters of an exception's text that the model gets; errors of compilers are long and useful."""
_PARTS: Final = (Text, Json, Image, Audio, Video, File, Opaque)
_MEDIA: Final[dict[str, type[Media]]] = {"image": Image, "audio": Audio, "video": Video}


# -- results -----------------------------------------------------------------------------------------------------------


RESULT_LIMIT: Final = 6000
"""The default limit of a result, in characters (DAS-24)."""


def output_of(value: object) -> Output:
    """Convert ``value``, which a tool returned: an ``Output``, a text, bytes, parts, or what JSON can express.

    ``None`` and a blank text become ``(no output)``. A value that cannot be sent becomes an error output.
    """
    try:
        match value:
            case Output():
                return _whole(value)
            case ToolMessage():
                return Output(content=value.content or (Text(NO_OUTPUT),), is_error=value.is_error)
            case _:
                return Output(content=_content(value))
    except MessageError as error:
        return error_output(ToolError(f"The tool returned a value that cannot be sent: {error}"))


def _whole(output: Output) -> Output:
    """Check an output that a tool made itself."""
    jsontext.checked(dict(output.metadata), "metadata")
    content = cast("object", output.content or NO_OUTPUT)
    items = cast("list[object]", content if isinstance(content, (list, tuple)) else [content])
    if all(isinstance(item, _PARTS) for item in items):
        return output
    made = tuple(_part(item, f"content[{index}]") for index, item in enumerate(items))
    return msgspec.structs.replace(output, content=made)


def _content(value: object) -> tuple[ToolPart, ...]:
    if not isinstance(value, (list, tuple)):
        return (_part(value, "value"),)
    items = cast("list[object]", value)
    if not any(isinstance(item, (Part, bytes)) for item in items):
        return (_part(items, "value"),)
    return tuple(_part(item, f"value[{index}]") for index, item in enumerate(items))


def _part(value: object, where: str) -> ToolPart:
    match value:
        case None:
            return Text(NO_OUTPUT)
        case str() if not isinstance(value, enum.Enum):
            return Text(value if value and not value.isspace() else NO_OUTPUT)
        case bytes() | bytearray() | memoryview():
            return of_bytes(bytes(cast("bytes", value)))
        case Part():
            if not isinstance(value, _PARTS):
                raise MessageError(f"{where}: {type(value).__name__} cannot be part of a tool result")
            return value
        case _:
            return Json(jsontext.checked(plain(value, where), where))


def of_bytes(data: bytes, media_type: str | None = None) -> ToolPart:
    """Make a part of bytes: media by ``media_type`` or their first bytes, else text, else a file."""
    found = media_type or media_types.of_bytes(data)
    if found is None:
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text = "\0"
        if "\0" not in text:
            return Text(text if text and not text.isspace() else NO_OUTPUT)
    return media_of(found).from_bytes(data, found or "application/octet-stream")


def media_of(media_type: str | None) -> type[Image | Audio | Video | File]:
    """Return the class of part for a media type; ``File`` unless it is an image, audio or video."""
    return cast("type[Image]", _MEDIA.get((media_type or "").partition("/")[0].lower(), File))


# -- values ------------------------------------------------------------------------------------------------------------


def plain(value: object, where: str = "value") -> Any:
    """Convert a value to JSON types: dictionaries, lists, text, numbers, booleans and ``None``.

    Raises ``MessageError`` with the path of a value that JSON cannot express.
    """
    try:
        return _plain(value, where, ())
    except RecursionError:
        raise MessageError(f"{excerpt(where)}: nested too deeply") from None


def _plain(value: object, where: str, above: tuple[int, ...]) -> Any:
    if isinstance(value, enum.Enum):
        return _plain(cast("object", value.value), where, above)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if id(value) in above:
        raise MessageError(f"{excerpt(where)}: the value contains itself")
    inside = (*above, id(value))
    if isinstance(value, (list, tuple)):
        items = cast("list[object]", value)
        return [_plain(item, f"{where}[{index}]", inside) for index, item in enumerate(items)]
    if isinstance(value, AbstractSet):
        return [_plain(item, f"{where}[…]", inside) for item in _ordered(cast("AbstractSet[object]", value))]
    fields = _fields(value)
    if fields is not None:
        return {
            _key(key, where): _plain(item, f"{where}.{excerpt(str(key), 40)}", inside)
            for key, item in fields
            if item is not UNSET
        }
    return _leaf(value, where)


def _ordered(items: AbstractSet[object]) -> list[object]:
    """A set in a stable order, where its elements have one."""
    try:
        return sorted(cast("AbstractSet[Any]", items))
    except TypeError:
        return list(items)


def _key(key: object, where: str) -> str:
    key = cast("object", key.value) if isinstance(key, enum.Enum) else key
    if isinstance(key, str):
        return key
    raise MessageError(f"{excerpt(where)}: the key {excerpt(repr(key), 40)} is not a string")


def _fields(value: object) -> Iterator[tuple[object, object]] | None:
    """The fields of a value that becomes an object; ``None`` for anything else."""
    cls = type(value)
    if isinstance(value, Mapping):
        return iter(cast("Mapping[object, object]", value).items())
    if isinstance(value, Part):
        return None
    if isinstance(value, Struct):
        return _struct(value)
    if dataclasses.is_dataclass(value):
        return ((each.name, getattr(value, each.name)) for each in dataclasses.fields(value))
    if hasattr(cls, "__attrs_attrs__"):
        return ((each.name, getattr(value, each.name)) for each in cast("Any", cls).__attrs_attrs__)
    if hasattr(cls, "__pydantic_validator__"):
        return iter(_dumped(cast("Any", value)).items())
    return None


def _dumped(model: Any) -> dict[object, object]:
    try:
        dumped = model.model_dump(mode="json")
    except Exception as error:  # noqa: BLE001 (whatever a serializer of the model raises)
        raise MessageError(f"{type(model).__name__}: {excerpt(str(error), 200)}") from None
    return cast("dict[object, object]", dumped if isinstance(dumped, dict) else {"value": dumped})


def _struct(value: Struct) -> Iterator[tuple[object, object]]:
    config = value.__struct_config__
    if config.tag_field is not None:
        yield config.tag_field, config.tag
    for each in msgspec.structs.fields(value):
        yield each.encode_name, getattr(value, each.name)


def _leaf(value: object, where: str) -> Any:
    """A date, a UUID and the like, as text."""
    if isinstance(value, pathlib.PurePath):
        raise MessageError(
            f"{excerpt(where)}: a path cannot be a result; return str(path), its text, or File.from_path(path)"
        )
    if isinstance(value, (bytes, bytearray, memoryview)):
        raise MessageError(f"{excerpt(where)}: bytes are not JSON; return an Image, a File, or a list of parts")
    if isinstance(value, Part):
        raise MessageError(
            f"{excerpt(where)}: a part can be a result or an element of a list of parts, not inside a value"
        )
    try:
        return msgspec.to_builtins(value, enc_hook=_refused)
    except (TypeError, NotImplementedError, ValueError):
        raise MessageError(f"{excerpt(where)}: {type(value).__name__} is not a JSON value") from None


def _refused(value: object) -> object:
    raise NotImplementedError(type(value).__name__)


# -- errors ------------------------------------------------------------------------------------------------------------


def error_output(error: BaseException | str) -> Output:
    """Return the error output for an exception or a text. The metadata have the kind of error, for the application."""
    if isinstance(error, str):
        error = ToolError(error)
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseException", error.exceptions[0])
    code = error.error_code if isinstance(error, PalaverError) else "tool_execution_failed"
    metadata = {"error_code": code, "error_type": type(error).__name__}
    return Output(content=(Text(_error_text(error)),), is_error=True, metadata=metadata)


def _error_text(error: BaseException) -> str:
    try:
        text = str(error).strip()
    except Exception:  # noqa: BLE001 (the application's exception may raise in `__str__`)
        text = ""
    if not text:
        return UNKNOWN_ERROR
    return text if isinstance(error, ToolError) else excerpt(f"{type(error).__name__}: {text}", _EXCEPTION)


# --- graphemes --------------------------------------------------------------------------------------------------------


_ALONE: Final = r"\p{GCB=Other}\p{GCB=Control}\p{GCB=LF}"
# Single code points are matched in runs, which is 10 to 20 times faster. Flags are matched in pairs: `\X`
# looks back to where a run of flags begins, each time, and takes quadratic time.
_CHARACTERS: Final = regex.compile(rf"([{_ALONE}]+(?![^{_ALONE}\r]))|\p{{RI}}{{2}}(?=\p{{RI}})|\X")


def count(text: str) -> int:
    """Return the number of characters of ``text``."""
    return sum(len(found[1] or ".") for found in _CHARACTERS.finditer(text))


def cut(text: str, start: int, characters: int) -> tuple[str, int]:
    """Return a range of ``text``, and its total length; ``start`` and ``characters`` count as ``count`` does."""
    total, begin, end = 0, len(text), len(text)
    for found in _CHARACTERS.finditer(text):
        following = total + len(found[1] or ".")
        if total <= start < following:
            begin = found.start() + start - total
        if total <= start + characters < following:
            end = found.start() + start + characters - total
        total = following
    return text[begin:end], total


# --- limiting ---------------------------------------------------------------------------------------------------------


CHARACTERS: Final = 6000
"""The default limit of a result, in characters (DAS-24)."""
READ_RESULT: Final = "read_result"
"""The tool that reads a shortened result."""


# -- one result ------------------------------------------------------------------------------------------------------


class Limited(Struct, frozen=True):
    """A result within the limit. ``whole`` is the full text if something was cut, else ``None``.

    ``whole`` joins the texts of several parts with line breaks. ``at`` is the index of the note in ``content``,
    ``shown`` the number of characters before it.
    """

    content: tuple[ToolPart, ...]
    whole: str | None = None
    at: int = 0
    shown: int = 0

    def with_handle(self, handle: str) -> tuple[ToolPart, ...]:
        """Return the content with a line in the note about how to read the rest; ``handle`` names the full result."""
        noted = self.content[self.at] if self.whole is not None else None
        if not isinstance(noted, Text):
            return self.content
        line = f'\n[To read on, call {READ_RESULT} with {{"handle": "{handle}", "start": {self.shown}}}.]'
        return (*self.content[: self.at], Text(noted.text + line), *self.content[self.at + 1 :])


def limit(content: tuple[ToolPart, ...], characters: int = CHARACTERS) -> Limited:
    """Cut the text of a result at ``characters``. A result within the limit stays as it is."""
    texts = [text_of(part) for part in content]
    known_texts = [text for text in texts if text is not None]
    if sum(map(len, known_texts)) <= characters:  # a character has at least one code point
        return Limited(content)
    total = sum(map(count, known_texts))
    if total <= characters:
        return Limited(content)
    note = f"\n[Result truncated: showing the first {characters} of {total} characters.]"
    parts: list[ToolPart] = []
    left, at = characters, None
    for part, text in zip(content, texts, strict=True):
        if text is None:
            parts.append(part)
            continue
        if at is not None:
            continue
        piece, size = cut(text, 0, left)
        if size <= left:
            parts.append(part)
            left -= size
        else:
            at = len(parts)
            parts.append(Text(piece + note))
    return Limited(tuple(parts), "\n".join(known_texts), at or 0, characters)


def stretch(whole: str, start: int, characters: int = CHARACTERS) -> str:
    """The result of ``read_result``: a range of a full result, with a note when more follows."""
    piece, total = cut(whole, max(start, 0), characters)
    end = max(start, 0) + characters
    more = f'\n[Characters {start} to {end} of {total}. Read on with "start": {end}.]'
    return piece + more if end < total else piece


def text_of(part: ToolPart) -> str | None:
    """The text of a part that counts and may be cut; ``None`` for media and opaque parts."""
    if isinstance(part, Text):
        return part.text
    return bytes(part.value_json).decode() if isinstance(part, Json) else None


# -- one text --------------------------------------------------------------------------------------------------------

_RUN: Final = 3
"""Equal lines in a row that are not folded."""


def compress(text: str, most: int = 20_000, head: int = 2000, tail: int = 3000) -> str:
    """Fold runs of more than three equal lines; keep head and tail of what is still above ``most`` code points."""
    lines: list[str] = []
    for line, run in groupby(text.split("\n")):
        times = sum(1 for _ in run)
        lines += [line] * times if times <= _RUN else [line, f"[repeated {times - 1} more time(s)]"]
    folded = "\n".join(lines)
    if len(folded) <= most:
        return folded
    omitted = len(folded) - head - tail
    return f"{folded[:head]}\n[... {omitted} chars omitted (middle) ...]\n{folded[len(folded) - tail :]}"
