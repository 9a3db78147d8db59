"""Read a file: a request or a response of a wire, the canonical form, a recorded stream, or a transcript.

- The wire is the one that the user named, else the one that is recognised (``wires.detect``). A file that fits several
  wires is refused with their names, unless all of them read the same conversation or the caller accepts the likeliest.
- A recorded stream is a file, or an exchange that holds it as text (``stream``) or in base64 (``stream_base64``). It
  becomes the response that it assembles to. A failed stream becomes what arrived, and ``failure`` gives the cause.
- A bare list of messages becomes a request. An exchange, ``{"request": …, "response": …}`` or with a ``stream``,
  becomes a request whose last message is the answer. An answer that is an error is left out, with a note.
- A transcript becomes what the model sees at the end of its main branch, with its conversations.
- An error is one line that names the file, the place and the cause. For an unknown file it describes the outline.

Stability: experimental.
"""

from __future__ import annotations

import re
from binascii import Error as Base64Error, a2b_base64
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import click
from msgspec import UNSET, Struct, structs

from palaver import transcripts, wires
from palaver.cli import files, transcript_io
from palaver.cli.terminal import bad_input
from palaver.cli.transcript_io import TranscriptFile
from palaver.core import canonical, jsontext
from palaver.core.errors import DecodeError, PalaverError, ProviderError, StreamError, UnknownNameError, excerpt
from palaver.core.request import Request, Response
from palaver.threads.view import for_model
from palaver.wires import detect, detect_stream

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from palaver.core.events import Event
    from palaver.core.jsontext import Fields
    from palaver.core.messages import Message
    from palaver.core.request import Loss
    from palaver.wires._engine.stream_decoder import StreamDecoder
    from palaver.wires._engine.wire import Wire


_PIECE: Final = 64 * 1024


class Recording(Struct, frozen=True):
    """The bytes of a stream, and the wire that reads them."""

    wire: Wire
    data: bytes

    def events(self) -> Iterator[Event]:
        """Yield the events of the stream. A failure is the last event."""
        decoder = self.wire.stream_decoder()
        for start in self._starts(decoder):
            yield from decoder.feed(self.data[start : start + _PIECE])
        yield from decoder.close()

    def answer(self) -> tuple[Response, StreamError | None]:
        """Return the answer and ``None``, or the partial answer and the error."""
        decoder = self.wire.stream_decoder()
        for start in self._starts(decoder):
            decoder.feed(self.data[start : start + _PIECE])
        try:
            return decoder.finish(), None
        except StreamError as error:
            return error.response, error

    def _starts(self, decoder: StreamDecoder) -> Iterator[int]:
        for start in range(0, len(self.data), _PIECE):
            if decoder.done:
                return
            yield start


def find_recording(data: bytes, place: str, requested: Wire | None) -> Recording | None:
    """Return the recorded stream in a file; ``None`` when it is something else."""
    found = detect_stream.detect(data)
    if found is None:
        return None
    if found.wire is not None and requested is not None and found.wire != requested.name:
        bad_input(place, f"a recorded stream of {found.wire}, not of {requested.name}")
    wire = requested if requested is not None else None if found.wire is None else wires.get(found.wire)
    if wire is None:
        bad_input(place, "a recorded stream of an unknown wire; choose one with --from")
    return Recording(wire, data)


def recorded_stream(exchange: Fields) -> bytes | None:
    """Return the bytes of the stream in an exchange; ``None`` when it has none. Raises ``DecodeError``."""
    for key, read in _KEYS.items():
        if key in exchange and jsontext.kind(exchange[key]) == "a string":
            try:
                return read(jsontext.text(exchange[key]))
            except DecodeError as error:
                raise error.within(key) from None
    return None


def _text(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _base64(text: str) -> bytes:
    try:
        return a2b_base64(text.encode("ascii", "replace"), strict_mode=True)
    except Base64Error as error:
        msg = f"not base64: {error}"
        raise DecodeError(msg) from None


_KEYS: Final = {"stream": _text, "stream_base64": _base64}


_NUMBERED: Final = re.compile(r"[0-9]{1,18}\.json")


class Group(Struct, frozen=True):
    """Files in reading order. ``numbered``: they may be the messages of one conversation."""

    names: tuple[str, ...]
    numbered: bool = False

    @property
    def folder(self) -> str:
        """The folder of the files."""
        return str(Path(self.names[0]).parent)


def group_files(names: Iterable[str], requested: Iterable[str]) -> Iterator[Group]:
    """Group the numbered files of each folder, in the order of their numbers; every other file is its own group.

    ``requested`` are the files that the user named; each of them is its own group.
    """
    alone = frozenset(requested)
    for folder, found in groupby(names, key=lambda name: None if name in alone else _folder_of(name)):
        if folder is None:
            yield from (Group((name,)) for name in found)
        else:
            yield Group(tuple(sorted(found, key=lambda name: int(Path(name).stem))), numbered=True)


def _folder_of(name: str) -> str | None:
    """Return the folder of a numbered file; ``None`` for any other file."""
    path = Path(name)
    return str(path.parent) if _NUMBERED.fullmatch(path.name) else None


def read_message(name: str) -> bytes | None:
    """Return the JSON object in a file; ``None`` for anything else. Raises ``OSError``."""
    data = files.read(name).removeprefix(b"\xef\xbb\xbf").strip()
    try:
        return data if isinstance(jsontext.value(data), dict) else None
    except (DecodeError, ValueError):
        return None


def join_messages(messages: Iterable[bytes]) -> bytes:
    """Return several messages as one JSON list."""
    return b"[" + b",\n".join(messages) + b"]"


_AG_UI_EVENTS: Final = ("RUN_", "TEXT_MESSAGE_", "TOOL_CALL_", "STEP_", "STATE_", "MESSAGES_SNAPSHOT")
_OUTLINES: Final = (
    (
        frozenset(("sessionID", "role", "id")),
        "a message of opencode out of its storage; `opencode export` writes sessions",
    ),
    (
        frozenset(("sessionID", "messageID", "type")),
        "a part of opencode out of its storage; `opencode export` writes sessions",
    ),
    (frozenset(("observations", "name")), "a trace of Langfuse"),
    (frozenset(("traceId", "observations")), "a trace of Langfuse"),
    (frozenset(("projectId", "timestamp", "input")), "a trace of Langfuse"),
)


def describe(body: bytes) -> str:
    """Describe a file by its outline, and name the format that it resembles. Only keys are shown, no text."""
    value = _value(body)
    if value is not None:
        return _described(value)
    first, _, rest = body.lstrip().partition(b"\n")
    line = _value(first)
    if line is None or not rest.strip():
        return "not JSON"
    return f"lines of JSON, the first {_described(line)}"


def is_lines(body: bytes) -> bool:
    """Return whether a file is lines of JSON."""
    first, _, rest = body.lstrip().partition(b"\n")
    return bool(rest.strip()) and _value(first) is not None


def _value(data: bytes) -> Any:
    try:
        return jsontext.value(data.strip())
    except PalaverError:
        return None


def _described(value: Any) -> str:
    first: object = value
    if isinstance(value, list) and value:
        first = cast("Sequence[object]", value)[0]
    resembles = _resembles(cast("Mapping[str, Any]", first)) if isinstance(first, dict) else None
    return _outline(value) + ("" if resembles is None else f"; it looks like {resembles}")


def _outline(value: Any) -> str:
    if isinstance(value, dict):
        keys = ", ".join(cast("dict[str, Any]", value))
        return f"an object with {excerpt(keys, 60)}" if keys else "an empty object"
    if isinstance(value, list):
        return f"a list of {len(cast('Sequence[Any]', value))}"
    return jsontext.kind(jsontext.encode(value))


def _resembles(record: Mapping[str, Any]) -> str | None:
    kind = record.get("type")
    if isinstance(kind, str) and kind.startswith(_AG_UI_EVENTS):
        return "events of AG-UI, which palaver reads one to a line or as an event stream"
    return next((name for keys, name in _OUTLINES if keys <= record.keys()), None)


PALAVER: Final = "palaver"
"""The name of the canonical form, where the name of a wire is expected."""


class Source(Struct, frozen=True):
    """A file's content. ``wire`` is a name with its variant, or ``palaver``; ``alternatives`` are other wires that fit.

    ``failure`` is the error of a recorded stream; ``value`` is then the partial answer. ``transcript_file`` holds the
    conversations of a transcript; ``value`` is then what the model sees of the first.
    """

    value: Request | Response
    wire: str
    alternatives: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    failure: StreamError | None = None
    transcript_file: TranscriptFile | None = None
    unread: tuple[Loss, ...] = ()
    """Losses of parts that could not be read."""


def form_name(_context: click.Context, _option: click.Parameter, name: str | None) -> str | None:
    """Return the full name of a wire or a transcript format, which may be an alias: a callback of options."""
    if name is None or name == PALAVER:
        return name
    known = transcripts.full_name(name)
    return known if known in transcripts.names() else wires.full_name(name)


def find_wire(name: str) -> Wire:
    """Find a wire by its name. Raises ``UnknownNameError``, which also lists the transcript formats."""
    try:
        return wires.get(name)
    except UnknownNameError:
        if ":" in name:
            raise
        names = [*wires.names(), *transcripts.names(), PALAVER]
        cause = f"no wire or transcript format is named {excerpt(name)!r}"
        aliases = [*wires.ALIASES, *transcripts.ALIASES]
        raise UnknownNameError.among(cause, names, name, aliases=aliases) from None


def load(path: str, wire: str | None, *, guess: bool = False) -> Source:
    """Read a file, as ``wire`` when given. ``guess`` accepts the likeliest of several wires.

    Raises ``click.ClickException``, and ``UnknownNameError`` for an unknown wire.
    """
    requested = None if wire is None or wire in {PALAVER, *transcripts.names()} else find_wire(wire)
    place = files.display_name(path)
    data = _read(path, place)
    if wire != PALAVER and requested is None and (found := transcript_io.read(data, path, wire)) is not None:
        return _from_transcript(found, place)
    if wire != PALAVER and (recorded := find_recording(data, place, requested)) is not None:
        response, failure = recorded.answer()
        return Source(response, _name(recorded.wire), failure=failure)
    try:
        body = jsontext.source(data)
        return _canonical(body) if wire == PALAVER else _source(body, place, requested, guess=guess)
    except PalaverError as error:
        bad_input(place, error)


def load_stream(path: str, wire: str | None) -> Recording:
    """Return the recorded stream in a file. Raises as ``load`` does."""
    requested = None if wire is None else wires.get(wire)
    place = files.display_name(path)
    data = _read(path, place)
    try:
        found = find_recording(data, place, requested)
        if found is None and (stream := recorded_stream(jsontext.fields(jsontext.source(data)))) is not None:
            found = find_recording(stream, place, requested)
            if found is None and requested is not None:
                found = Recording(requested, stream)
    except PalaverError as error:
        bad_input(place, error)
    if found is None:
        bad_input(place, "there is no recorded stream in it")
    return found


def _from_transcript(found: TranscriptFile, place: str) -> Source:
    if not found.transcripts:
        bad_input(place, f"there is no conversation in this file of {found.file_format}")
    request = Request(messages=tuple(for_model(found.transcripts[0].thread.path())))
    return Source(request, found.file_format, transcript_file=found)


def _read(path: str, place: str) -> bytes:
    try:
        data = files.read(path)
    except OSError as error:
        bad_input(place, (error.strerror or str(error)).lower())
    if not data.strip():
        bad_input(place, "the file is empty")
    return data


def _source(body: bytes, place: str, requested: Wire | None, *, guess: bool) -> Source:
    try:
        value = jsontext.value(body)
    except DecodeError:
        if requested is None and _is_lines(body):
            return _canonical(body)
        if requested is None and is_lines(body):
            bad_input(place, f"unknown format: {describe(body)}")
        raise
    names = tuple(name for name in detect.WIRES if name in wires.names())
    found = detect.detect(value, names if requested is None else (requested.name,))
    if found is None:
        whose = "a known wire" if requested is None else requested.name
        bad_input(place, f"neither a request nor a response of {whose} (it is {describe(body)})")
    if found.kind == "canonical":
        return _canonical(body)
    likeliest, *others = _narrow_by_stream(body, found)
    wire = wires.get(likeliest) if requested is None else requested
    try:
        source = _READERS[found.kind](body, wire)
    except ProviderError as error:
        bad_input(place, f"an error of {_either(found.wires)}: {error.message}")
    if others and not guess and any(not _same_conversation(source, found.kind, body, each) for each in others):
        bad_input(place, f"this {found.kind} may be {_either(found.wires)}; choose one with --from")
    return Source(source.value, source.wire, tuple(others), source.notes)


def _same_conversation(source: Source, kind: str, body: bytes, name: str) -> bool:
    """Return whether another wire reads the same conversation in a file."""
    try:
        other = _READERS[kind](body, wires.get(name))
    except PalaverError:
        return False
    return _neutral_content(other.value) == _neutral_content(source.value)


def _neutral_content(value: Request | Response) -> tuple[object, ...]:
    """Return the messages and tools, without the wires' own fields."""
    messages = value.messages if isinstance(value, Request) else (value.message,)
    return (*map(_without_provider_fields, messages), *(value.tools if isinstance(value, Request) else ()))


def _without_provider_fields(message: Message) -> Message:
    content: Any = tuple([structs.replace(part, provider_json=UNSET) for part in message.content])
    return structs.replace(message, content=content, provider_json=UNSET)


def _narrow_by_stream(body: bytes, found: detect.Detected) -> tuple[str, ...]:
    """Return the candidate wires. The stream of an exchange decides between those of its request."""
    if found.kind == "exchange" and len(found.wires) > 1:
        streamed = recorded_stream(jsontext.fields(body))
        detected = None if streamed is None else detect_stream.detect(streamed)
        if detected is not None and detected.wire in found.wires:
            return (detected.wire,)
    return found.wires


def _is_lines(body: bytes) -> bool:
    """Return whether a body is JSON Lines of the canonical form."""
    first, _, rest = body.lstrip().partition(b"\n")
    if not rest.strip() or not jsontext.is_json(first):
        return False
    found = detect.detect(jsontext.value(first))
    return found is not None and found.kind == "canonical"


def _either(names: tuple[str, ...]) -> str:
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last


def _canonical(body: bytes) -> Source:
    head = body.lstrip()
    if head.startswith(b"{") and b"\n" not in head.strip():
        tag = jsontext.value(head).get("type")
        if tag == "request":
            return Source(canonical.decode(body, Request), PALAVER)
        if tag == "response":
            return Source(canonical.decode(body, Response), PALAVER)
    return Source(canonical.load_conversation(body), PALAVER)


def _request(body: bytes, wire: Wire) -> Source:
    return Source(wire.decode_request(body), _name(wire))


def _response(body: bytes, wire: Wire) -> Source:
    return Source(wire.decode_response(body), _name(wire))


def _conversation(body: bytes, wire: Wire) -> Source:
    key = detect.LIST_KEYS[wire.name]
    return _request(b'{"%s":%s}' % (key.encode(), body), wire)


def _exchange(body: bytes, wire: Wire) -> Source:
    fields = jsontext.fields(body)
    request = _within("request", wire.decode_request, fields["request"])
    answer = fields.get("response")
    if answer is None or jsontext.is_null(answer):
        return _streamed(request, fields, wire)
    try:
        response = _within("response", wire.decode_response, answer)
    except ProviderError as error:
        return Source(request, _name(wire), notes=(f"the answer is an error and is left out: {error.message}",))
    return Source(request.append(response.message), _name(wire))


def _streamed(request: Request, exchange: Fields, wire: Wire) -> Source:
    data = recorded_stream(exchange)
    if data is None:
        return Source(request, _name(wire), notes=("there is no answer",))
    response, failure = Recording(wire, data).answer()
    if failure is None:
        return Source(request.append(response.message), _name(wire))
    if not response.message.content:
        return Source(request, _name(wire), notes=(f"the answer is left out: {failure}",))
    return Source(request.append(response.message), _name(wire), notes=(f"the answer is incomplete: {failure}",))


def _within(key: str, decode: Any, body: Any) -> Any:
    try:
        return decode(bytes(body))
    except DecodeError as error:
        raise error.within(key) from None


def _name(wire: Wire) -> str:
    return wire.name if wire.variant is None else f"{wire.name}:{wire.variant}"


_READERS: Final = {
    "request": _request,
    "response": _response,
    "conversation": _conversation,
    "exchange": _exchange,
}
