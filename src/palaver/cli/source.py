"""What a file holds: a request or a response, read by its wire or as Palaver's own form, or a recorded stream.

Rules:

- The wire is the one that was named, else the one that is recognised (``wires.detect``). A file that several wires may
  have written is refused with their names, unless all of them read the same conversation, or the caller is content
  with the likeliest: then that is taken.
- A recorded stream (``recording``) becomes the response that it assembles to. One that failed becomes what came of it,
  and ``failure`` says why.
- A bare list of messages becomes a request. An exchange, ``{"request": …, "response": …}`` or with a ``stream``,
  becomes a request whose last message is the answer. An answer that is an error is left out, with a note; of a stream
  that failed there is what came, with a note.
- A file of a transcript format (``spoken``) becomes what the model sees at the end of its main branch; its
  conversations come along.
- Whatever is wrong is one line that names the file, the place and the cause.

A recorded stream: the bytes of one answer as they arrived, and what becomes of them.

Rules:

- A file is a recorded stream, or it is an exchange that holds one as text (``stream``) or in base64
  (``stream_base64``).
- The wire is the one that was named, else the one that the first frames tell (``wires.detect_stream``). Where both are
  known and disagree, the file is refused.
- Events are made piece by piece, and only what is asked for is kept.

Conversations that are stored as one file for each message: the numbered files of one folder.

What a file looks like that no reader takes: for the error that says so.

A row is a name and the keys that an object has beside others; the first that fits counts. Nothing is read by it.

Stability: experimental.
"""

from __future__ import annotations

import re
from binascii import Error as Base64Error, a2b_base64
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import UNSET, Struct, structs

from palaver import transcripts, wires
from palaver.cli import files, transcript_io
from palaver.cli.terminal import bad_input
from palaver.cli.transcript_io import Spoken
from palaver.core import canonical, jsontext
from palaver.core.errors import DecodeError, PalaverError, ProviderError, StreamError, UnknownNameError, excerpt
from palaver.core.request import Request, Response
from palaver.threads.model_view import for_model
from palaver.wires import detect, detect_stream

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from palaver.core.events import Event
    from palaver.core.jsontext import Fields
    from palaver.core.messages import Message
    from palaver.core.request import Loss
    from palaver.wires._engine.stream_decoder import StreamDecoder
    from palaver.wires._engine.wire import Wire


# --- recording --------------------------------------------------------------------------------------------------------


_PIECE: Final = 64 * 1024


class Recording(Struct, frozen=True):
    """The bytes of a stream, and the wire that reads them."""

    wire: Wire
    data: bytes

    def events(self) -> Iterator[Event]:
        """Give what happened, as it happened. A failure is the last event."""
        decoder = self.wire.stream_decoder()
        for start in self._starts(decoder):
            yield from decoder.feed(self.data[start : start + _PIECE])
        yield from decoder.close()

    def answer(self) -> tuple[Response, StreamError | None]:
        """Give the answer, or what came of it and why it failed."""
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


def find(data: bytes, place: str, named: Wire | None) -> Recording | None:
    """Give the recorded stream that a file is; ``None`` when it is something else."""
    found = detect_stream.detect(data)
    if found is None:
        return None
    if found.wire is not None and named is not None and found.wire != named.name:
        bad_input(place, f"a recorded stream of {found.wire}, not of {named.name}")
    wire = named if named is not None else None if found.wire is None else wires.get(found.wire)
    if wire is None:
        bad_input(place, "a recorded stream of no known wire; say which with --from")
    return Recording(wire, data)


def inside(exchange: Fields) -> bytes | None:
    """Give the bytes of the stream that an exchange holds; ``None`` when it has none. Raises ``DecodeError``."""
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


# --- message files ----------------------------------------------------------------------------------------------------


_NUMBERED: Final = re.compile(r"[0-9]{1,18}\.json")


class Group(Struct, frozen=True):
    """Files in the order in which they are read; ``numbered``: they may be the messages of one conversation."""

    names: tuple[str, ...]
    numbered: bool = False

    @property
    def folder(self) -> str:
        """The folder that they stand in."""
        return str(Path(self.names[0]).parent)


def grouped(names: Iterable[str], named: Iterable[str]) -> Iterator[Group]:
    """The numbered files of each folder together, in the order of their numbers; every other file alone.

    ``named`` are the files that were named themselves; each of them stands alone.
    """
    alone = frozenset(named)
    for folder, found in groupby(names, key=lambda name: None if name in alone else _folder_of(name)):
        if folder is None:
            yield from (Group((name,)) for name in found)
        else:
            yield Group(tuple(sorted(found, key=lambda name: int(Path(name).stem))), numbered=True)


def _folder_of(name: str) -> str | None:
    """The folder of a numbered file; ``None`` for any other file."""
    path = Path(name)
    return str(path.parent) if _NUMBERED.fullmatch(path.name) else None


def message_in(name: str) -> bytes | None:
    """The JSON object that a file holds; ``None`` when it holds anything else. Raises ``OSError``."""
    data = files.read(name).removeprefix(b"\xef\xbb\xbf").strip()
    try:
        return data if isinstance(jsontext.value(data), dict) else None
    except (DecodeError, ValueError):
        return None


def as_list(messages: Iterable[bytes]) -> bytes:
    """Several messages as one document."""
    return b"[" + b",\n".join(messages) + b"]"


# --- likeness ---------------------------------------------------------------------------------------------------------


_EVENTS: Final = ("RUN_", "TEXT_MESSAGE_", "TOOL_CALL_", "STEP_", "STATE_", "MESSAGES_SNAPSHOT")
_ROWS: Final = (
    (frozenset(("role", "message")), "a transcript of Cursor"),
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


def of(body: bytes) -> str:
    """Describe a file: its outline, and what it looks like where that is known. It shows keys only, no text."""
    value = _value(body)
    if value is not None:
        return _described(value)
    first, _, rest = body.lstrip().partition(b"\n")
    line = _value(first)
    if line is None or not rest.strip():
        return "no JSON"
    return f"lines of JSON, the first {_described(line)}"


def is_lines(body: bytes) -> bool:
    """Whether a file is lines of JSON."""
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
    like = _like(cast("Mapping[str, Any]", first)) if isinstance(first, dict) else None
    return _outline(value) + ("" if like is None else f"; it looks like {like}")


def _outline(value: Any) -> str:
    if isinstance(value, dict):
        keys = ", ".join(cast("dict[str, Any]", value))
        return f"an object with {excerpt(keys, 60)}" if keys else "an empty object"
    if isinstance(value, list):
        return f"a list of {len(cast('Sequence[Any]', value))}"
    return jsontext.kind(jsontext.encode(value))


def _like(record: Mapping[str, Any]) -> str | None:
    kind = record.get("type")
    if isinstance(kind, str) and kind.startswith(_EVENTS):
        return "events of AG-UI, which palaver reads one to a line or as an event stream"
    return next((name for keys, name in _ROWS if keys <= record.keys()), None)


# --- source -----------------------------------------------------------------------------------------------------------


PALAVER: Final = "palaver"
"""The name of the canonical form where a wire's is asked for."""


class Source(Struct, frozen=True):
    """What was read: ``wire`` is a name, with its variant, or ``palaver``; ``maybe`` are the others it may have been.

    ``failure`` says why a recorded stream ended badly; ``value`` is what came of it.
    ``spoken`` are the conversations of a format's file; ``value`` is then what the model sees of the first.
    """

    value: Request | Response
    wire: str
    maybe: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    failure: StreamError | None = None
    spoken: Spoken | None = None
    unread: tuple[Loss, ...] = ()
    """What a wire is not told because it could not be read."""


def wire_called(name: str) -> Wire:
    """Find a wire, where the name of a transcript format would do as well. Raises ``UnknownNameError`` listing both."""
    try:
        return wires.get(name)
    except UnknownNameError:
        if ":" in name:
            raise
        known = [*wires.names(), *transcripts.names(), PALAVER]
        what = f"no wire and no transcript format is called {excerpt(name)!r}"
        raise UnknownNameError.among(what, known, name) from None


def load(path: str, wire: str | None, *, guess: bool = False) -> Source:
    """Read a file, as ``wire`` when it is named. ``guess`` takes the likeliest of several wires.

    Raises ``click.ClickException``, and ``UnknownNameError`` for the name of a wire.
    """
    named = None if wire is None or wire in {PALAVER, *transcripts.names()} else wire_called(wire)
    place = files.shown(path)
    data = _read(path, place)
    if wire != PALAVER and named is None and (found := transcript_io.read(data, path, wire)) is not None:
        return _spoken(found, place)
    if wire != PALAVER and (recorded := find(data, place, named)) is not None:
        response, failure = recorded.answer()
        return Source(response, _name(recorded.wire), failure=failure)
    try:
        body = jsontext.source(data)
        return _canonical(body) if wire == PALAVER else _source(body, place, named, guess=guess)
    except PalaverError as error:
        bad_input(place, error)


def load_stream(path: str, wire: str | None) -> Recording:
    """Find the recorded stream that a file is, or holds. Raises as ``load`` does."""
    named = None if wire is None else wires.get(wire)
    place = files.shown(path)
    data = _read(path, place)
    try:
        found = find(data, place, named)
        if found is None and (held := inside(jsontext.fields(jsontext.source(data)))) is not None:
            found = find(held, place, named)
            if found is None and named is not None:
                found = Recording(named, held)
    except PalaverError as error:
        bad_input(place, error)
    if found is None:
        bad_input(place, "this is no recorded stream, and holds none")
    return found


def _spoken(found: Spoken, place: str) -> Source:
    if not found.transcripts:
        bad_input(place, f"there is no conversation in this file of {found.file_format}")
    request = Request(messages=tuple(for_model(found.transcripts[0].thread.path())))
    return Source(request, found.file_format, spoken=found)


def _read(path: str, place: str) -> bytes:
    try:
        data = files.read(path)
    except OSError as error:
        bad_input(place, (error.strerror or str(error)).lower())
    if not data.strip():
        bad_input(place, "the file is empty")
    return data


def _source(body: bytes, place: str, named: Wire | None, *, guess: bool) -> Source:
    try:
        value = jsontext.value(body)
    except DecodeError:
        if named is None and _is_lines(body):
            return _canonical(body)
        if named is None and is_lines(body):
            bad_input(place, f"no format that is known: {of(body)}")
        raise
    known = tuple(name for name in detect.WIRES if name in wires.names())
    found = detect.detect(value, known if named is None else (named.name,))
    if found is None:
        whose = "a known wire" if named is None else named.name
        bad_input(place, f"neither a request nor a response of {whose} (it is {of(body)})")
    if found.kind == "canonical":
        return _canonical(body)
    likeliest, *others = _told(body, found)
    wire = wires.get(likeliest) if named is None else named
    try:
        source = _READERS[found.kind](body, wire)
    except ProviderError as error:
        bad_input(place, f"an error of {_either(found.wires)}: {error.message}")
    if others and not guess and any(not _reads_alike(source, found.kind, body, each) for each in others):
        bad_input(place, f"this {found.kind} may be of {_either(found.wires)}; say which with --from")
    return Source(source.value, source.wire, tuple(others), source.notes)


def _reads_alike(source: Source, kind: str, body: bytes, name: str) -> bool:
    """Whether another wire reads the same conversation in a file."""
    try:
        other = _READERS[kind](body, wires.get(name))
    except PalaverError:
        return False
    return _said(other.value) == _said(source.value)


def _said(value: Request | Response) -> tuple[object, ...]:
    """The messages and tools, without what each wire keeps beside them for itself."""
    messages = value.messages if isinstance(value, Request) else (value.message,)
    return (*map(_bare, messages), *(value.tools if isinstance(value, Request) else ()))


def _bare(message: Message) -> Message:
    content: Any = tuple([structs.replace(part, provider_json=UNSET) for part in message.content])
    return structs.replace(message, content=content, provider_json=UNSET)


def _told(body: bytes, found: detect.Detected) -> tuple[str, ...]:
    """Let the stream of an exchange decide where its request leaves it open."""
    if found.kind == "exchange" and len(found.wires) > 1:
        streamed = inside(jsontext.fields(body))
        told = None if streamed is None else detect_stream.detect(streamed)
        if told is not None and told.wire in found.wires:
            return (told.wire,)
    return found.wires


def _is_lines(body: bytes) -> bool:
    """Whether this is JSON Lines of the canonical form."""
    first, _, rest = body.lstrip().partition(b"\n")
    if not rest.strip() or not jsontext.is_json(first):
        return False
    found = detect.detect(jsontext.value(first))
    return found is not None and found.kind == "canonical"


def _either(names: tuple[str, ...]) -> str:
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last


# -- one reader for each kind --------------------------------------------------------------------------------------


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
        return Source(request, _name(wire), notes=(f"the answer is an error, which is left out: {error.message}",))
    return Source(request.append(response.message), _name(wire))


def _streamed(request: Request, exchange: Fields, wire: Wire) -> Source:
    data = inside(exchange)
    if data is None:
        return Source(request, _name(wire), notes=("there is no answer",))
    response, failure = Recording(wire, data).answer()
    if failure is None:
        return Source(request.append(response.message), _name(wire))
    if not response.message.content:
        return Source(request, _name(wire), notes=(f"the answer is left out: {failure}",))
    return Source(request.append(response.message), _name(wire), notes=(f"the answer is not whole: {failure}",))


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
