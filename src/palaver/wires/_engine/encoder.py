"""One encoder for all wires: it keeps what it wrote, so that a turn costs what is new in it.

Rules:

- The body is a head (model, tools, settings), the messages, and a tail of closing brackets; the messages come last, so
  that a longer conversation begins with the same bytes (docs/spec/pains.md#10).
- Messages are written turn by turn. A turn begins with a run of assistant messages and goes on to the next one.
  All turns but the last are sealed: nothing that is appended changes them, and their bytes are kept.
- One thing opens the sealed turns again, and then everything is written anew: a tool result for a call of a
  sealed turn.
- A request that goes back to its own wire unedited is the body it came from. Any other is fitted (``fit``), its
  pairs are made whole (``core.pairs``), and its ids rewritten where the wire refuses them.

Stability: experimental.
"""

from __future__ import annotations

from operator import is_
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from msgspec import UNSET, structs

from palaver.core import jsontext, trusted
from palaver.core.jsontext import sayable_json
from palaver.core.messages import (
    AssistantMessage,
    DeveloperMessage,
    FlushMarker,
    RescueMarker,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from palaver.core.pairs import REPAIR, TIED, Placed, client_calls, complete, names_no_call, settle, tied, whole
from palaver.core.parts import Text, ToolCall
from palaver.core.request import Encoded
from palaver.wires._engine import json_fields, metadata
from palaver.wires._engine.cache_marks import carried_tools
from palaver.wires._engine.encode_state import Context, Options
from palaver.wires._engine.fit import HALVES, fit, fit_settings, lose_fields
from palaver.wires._engine.original_body import OriginalBody
from palaver.wires._engine.vendors import other_vendor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palaver.core.messages import Message
    from palaver.core.request import Loss, Request
    from palaver.wires._engine.capabilities import WireCapabilities

_CHUNK: Final = 16_384
"""Sealed turns are gathered into chunks of at least so many bytes; joining them costs less than handing out each."""

UNNAMED: Final = "unspecified"
"""Stands for the model where a body must name one and the request does not."""

BEGIN = "(The conversation begins.)"
CONTINUE = "Continue."
NONE_TO_SEND = "none to send; a fixed user text was added"
EMPTY = "it has no content"
"""Why a message without content is left out, such as an answer that was cancelled before its first word."""


class Writer(Protocol):
    """The half of a codec that writes requests: the functions of a wire's ``encode`` module."""

    @property
    def LIST(self) -> str:  # noqa: N802 (a constant of the module)
        """Name of the list of messages in the body."""
        ...

    def hoists(self, message: SystemMessage, context: Context, /) -> bool:
        """Whether a leading system message goes into the head."""
        ...

    def head(self, request: Request, system: Sequence[SystemMessage], context: Context, /) -> dict[str, Any]:
        """All fields but the list. When the list is among them, nothing else is written for it.

        ``system`` are the leading system messages that were hoisted; ``context.called`` the tools called so far,
        ``context.state`` what the last turn left behind.
        """
        ...

    def turn(self, messages: Sequence[Placed], context: Context, /) -> list[Any]:
        """Write one turn as wire messages."""
        ...


class RequestEncoder:
    """Encodes a growing request: ``append`` what is new, then take ``chunks()``, or ``encoded()`` with the receipt."""

    def __init__(
        self,
        writer: Writer,
        request: Request,
        wire: str,
        capabilities: WireCapabilities,
        *,
        variant: str | None = None,
        options: Options = Options(),  # noqa: B008 (frozen)
        original: tuple[bytes, Request] | None = None,
    ) -> None:
        """Encode ``request``, to which messages may be appended.

        ``original`` is the body it was decoded from, and what that body says.
        """
        self._writer = writer
        self._wire, self._capabilities, self._variant, self._options = wire, capabilities, variant, options
        self._request = request
        self._own = request.origin == (wire if variant is None else f"{wire}:{variant}") and options.takes is None
        self._source: list[Message] = list(request.messages)
        self._open: list[Placed] = []
        self._tail: bytes | None = None
        self._run, self._unmatched = 0, False  # where the last turn begins, and whether a result there names no call
        self._ties: dict[int, str] = {}
        self._body_metadata: dict[str, Any] = {}  # metadata of the request itself, which another wire's body held
        self._original = (
            None if original is None else OriginalBody(*original, writer.LIST, lambda: self._rewritten(original[1]))
        )
        self._unedited = self._own and self._original is not None and self._original.says == request
        if not self._unedited:
            self._rebuild()

    # -- growing --

    def append(self, *messages: Message) -> None:
        """Add messages at the end. The request is then an edited one, and is repaired like any other."""
        if not messages:
            return
        start = len(self._source)
        self._source += messages
        self._unedited = False
        if self._own or not self._chunks or self._reopens(messages) or self._reties(start):
            self._own = False
            self._rebuild()
            return
        placed = self._fitted(start)
        if self._tail is not None:
            if placed and _begins(placed[0]) and self._tail_stays and self._complete():
                self._seal(self._tail)
            else:
                self._context.rollback(self._mark)
            self._tail = None
        self._grow(placed)

    def _seal(self, chunk: bytes) -> None:
        """Close the open turn: ``chunk`` are its bytes for good."""
        self._sealed_calls.update(call.id for item in self._open for call in client_calls(item.message))
        self._sealed_items += self._turn_items
        if self._chunks and len(self._chunks[-1]) < _CHUNK:
            self._chunks[-1] += chunk
        elif chunk:
            self._chunks.append(chunk)
        self._open = []
        self._mark = self._context.mark()

    def _reopens(self, messages: Sequence[Message]) -> bool:
        """Whether a result comes for a call of a sealed turn, and for none behind it."""
        sealed: set[str | None] = set()
        open_calls: set[str | None] = {call.id for item in self._open for call in client_calls(item.message)}
        before = self._open[-1].message if self._open else None
        for message in messages:
            if isinstance(message, AssistantMessage) and not isinstance(before, AssistantMessage):
                sealed |= open_calls
                open_calls = set()
            open_calls.update(call.id for call in client_calls(message))
            answers = message.tool_call_id if isinstance(message, ToolMessage) else None
            if (answers in sealed or answers in self._sealed_calls) and answers not in open_calls:
                return True
            before = message
        return False

    def _reties(self, start: int) -> bool:
        """Find the calls that results without an id answer; whether that changes for one that stood before ``start``.

        It costs nothing where the last turn has no such result, else the length of that turn.
        """
        self._unmatched = self._unmatched or any(map(names_no_call, self._source[start:]))
        ties: dict[int, str] = {}
        if self._unmatched:
            window = self._source[self._run :]
            ties = {self._run + place: call_id for place, call_id in tied(window).items()}
        known = {place: call_id for place, call_id in self._ties.items() if place >= self._run}
        changed = known != {place: call_id for place, call_id in ties.items() if place < start}
        self._ties = ties
        for index in range(max(start, 1), len(self._source)):
            if isinstance(self._source[index], AssistantMessage):
                if not isinstance(self._source[index - 1], AssistantMessage):
                    self._run = index
                    self._unmatched = False
            elif names_no_call(self._source[index]):
                self._unmatched = True
        return changed

    def _new_context(self) -> Context:
        context = Context(self._wire, self._capabilities, own=self._own, variant=self._variant, options=self._options)
        context.request, context.system = self._request, self._system
        return context

    def _rebuild(self) -> None:
        self._request = structs.replace(self._request, messages=tuple(self._source))  # the head may look at them
        self._system: list[SystemMessage] = []
        self._base_context = self._new_context()
        self._request = carried_tools(self._request, self._base_context)
        if not self._own:
            own = other_vendor(self._request, self._wire, self._variant) is None
            self._request, asked = metadata.of_request(self._request, self._wire if own else None)
            self._body_metadata |= asked
        self._base_context.request = self._request
        self._context = self._new_context()
        self._context.before = self._base_context.kept
        self._chunks: list[bytes] = []
        self._open = []
        self._sealed_calls: set[str] = set()
        self._sealed_items = self._turn_items = 0
        self._leading = True
        self._tail = None
        self._tail_stays = False
        self._head: tuple[object, bytes, Context] | None = None
        self._run, self._unmatched, self._ties = 0, False, {}
        self._metadata: dict[str, Any] = {}
        if not self._own:
            self._reties(0)
        placed = self._fitted(0)
        if not self._own:
            placed, losses = settle(placed, runs=self._capabilities.answers_run)
            for loss in losses:
                self._base_context.add(loss)
        self._mark = self._context.mark()
        self._grow(placed)

    def _fitted(self, start: int) -> list[Placed]:
        if not self._own and metadata.gather(self._source[start:], self._metadata):
            self._head = None
        placed: list[Placed] = []
        for index in range(start, len(self._source)):
            message = self._source[index]
            if self._leading and not isinstance(message, _BEFORE_ALL):
                self._leading = False
            if index in self._ties:
                message = cast("ToolMessage", message).replace(tool_call_id=self._ties[index])
                self._base_context.lose("converted", "tool result", TIED, index)
            item = Placed(index, message)
            fitted = [item] if self._own else fit(item, self._base_context, leading=self._leading)
            if not fitted and not message.content and not isinstance(message, (RescueMarker, FlushMarker)):
                self._base_context.lose("dropped", f"{message.role} message", EMPTY, index)
            if self._leading and len(fitted) == 1 and isinstance(fitted[0].message, SystemMessage) and not placed:
                system = fitted[0].message
                if self._writer.hoists(system, self._base_context):
                    if not self._own and system.provider_json is not UNSET:
                        self._lose_fields(system, index)
                    self._system.append(system)
                    continue
            placed += fitted
        return placed

    def _lose_fields(self, system: SystemMessage, index: int) -> None:
        """Name the fields of a hoisted message that have no place in the head."""
        wire, taken = self._context.wire, self._capabilities.head_fields
        stored = [key for each in self._system for key in json_fields.native(each, wire)]
        left = {key: raw for key, raw in json_fields.native(system, wire).items() if not taken or key in stored}
        lose_fields(left, "a field of a message, which the system prompt is not", self._base_context, index)

    def _grow(self, placed: Sequence[Placed]) -> None:
        """Take fitted messages in; seal every turn that a later one follows."""
        for item in placed:
            if self._open and _begins(item) and self._complete():
                self._seal(self._turn(self._open, final=False))
            self._open.append(item)

    def _written_tail(self) -> bytes:
        """The bytes of the open turn, written on first use."""
        if self._tail is None:
            self._tail = self._turn(self._open, final=True)
        return self._tail

    def _complete(self) -> bool:
        """Whether the open turn ends with the other side, also when its results stand where they belong."""
        if _begins(self._open[-1]) or self._own or whole(self._open):
            return not _begins(self._open[-1])
        return not _begins(settle(self._open)[0][-1])

    # -- one turn --

    def _turn(self, placed: Sequence[Placed], *, final: bool) -> bytes:
        if not self._own:
            if not whole(placed):
                runs = self._capabilities.answers_run
                stored_elsewhere = self._context.names(self._capabilities.continues)
                settled, moved = settle(placed, runs=runs)
                placed, losses = complete(settled, runs=runs, stored_elsewhere=stored_elsewhere)
                for loss in (*moved, *losses):
                    self._context.add(loss)
            ended = self._ended(placed, final=final)
            self._tail_stays = len(ended) == len(placed) and all(map(is_, ended, placed))
            placed = renumber(ended, self._context)
        written = self._writer.turn(placed, self._context)
        if not written and final and self._needs_message():
            self._context.lose("converted", "messages", NONE_TO_SEND)
            written = self._writer.turn([Placed(0, _fixed(BEGIN))], self._context)
            self._tail_stays = False
        self._turn_items = len(written)
        if not written:
            return b""
        items = [jsontext.encode(message) for message in written]
        if self._original is not None:
            items = [self._original.item(place, each) for place, each in enumerate(items, self._sealed_items)]
        joined = b",".join(items)
        return b"," + joined if self._chunks else joined

    def _needs_message(self) -> bool:
        """Whether the wire refuses a request that has no messages, as this one is about to."""
        if self._own or self._chunks:
            return False
        return not (self._capabilities.empty or self._context.names(self._capabilities.elsewhere))

    def _ended(self, placed: Sequence[Placed], *, final: bool) -> Sequence[Placed]:
        """Meet the rules on the first and the last message (docs/spec/wires.md#9, repair 6)."""
        capabilities, lose = self._capabilities, self._context.lose
        if not self._chunks and capabilities.first_user and placed and _begins(placed[0]):
            lose(
                "converted",
                "first message",
                "must be the user's; a fixed text was put before it",
                placed[0].index,
            )
            placed = [Placed(placed[0].index, _fixed(BEGIN)), *placed]
        if not final:
            return placed
        if not placed:
            return placed
        index, message = placed[-1].index, placed[-1].message
        if capabilities.last_user and not isinstance(message, (UserMessage, ToolMessage)):
            why = "must be the user's or a tool's; a fixed user text was added"
            lose("converted", "last message", why, index)
            return [*placed, Placed(index, _fixed(CONTINUE))]
        if isinstance(message, AssistantMessage):
            last = message.content[-1] if message.content else None
            if not capabilities.blank_end and isinstance(last, Text) and last.text != last.text.rstrip():
                lose("converted", "text", "white space at the end of a last assistant message", index)
                stripped = message.replace(content=(*message.content[:-1], last.replace(text=last.text.rstrip())))
                return [*placed[:-1], Placed(index, stripped)]
        return placed

    # -- giving --

    def _written_head(self) -> tuple[bytes, Context]:
        """All that stands before the first message; when the list is among the fields, the whole body."""
        self._written_tail()  # tells which tools were called
        called = tuple(self._context.called) if self._capabilities.declares_called else ()
        key = (called, self._context.state)
        if self._head is None or self._head[0] != key:
            context = self._new_context()
            context.called, context.left = self._context.called, self._context.left
            self._head = (key, self._write_head(context), context)
        return self._head[1], self._head[2]

    def _write_head(self, context: Context) -> bytes:
        request, name = self._request, self._writer.LIST
        if not self._own:
            request = structs.replace(request, settings=fit_settings(request.settings, context))
        fields = self._writer.head(request, self._system, context)
        if self._capabilities.names_model and not self._own and "model" not in fields:
            context.lose(
                "approximated", "model", f"no model was named, but the wire requires one; {UNNAMED!r} was sent"
            )
            fields = {"model": UNNAMED, **fields}
        if self._body_metadata or self._metadata:
            found = {**self._body_metadata, **self._metadata, **self._body_metadata}
            fields = metadata.write(fields, found, context)
        if name in fields:
            return jsontext.encode({key: value for key, value in fields.items() if value is not ABSENT})
        written = jsontext.encode(fields)
        if not self._own and b"\\u" in written:
            clean = sayable_json(written.decode()).encode()
            if clean != written:
                context.lose("converted", "request", HALVES)
            written = clean
        return written[:-1] + (b"," if fields else b"") + b'"' + name.encode() + b'":['

    def chunks(self) -> Sequence[bytes]:
        """Hand out the body in pieces; what was sealed is neither written nor copied again."""
        original = self._original
        if original is not None and self._unedited:
            return (original.body,)
        head, _ = self._written_head()
        if not head.endswith(b"["):
            return (head if original is None else original.whole(head),)
        if original is not None and not original.pairs:
            return (original.whole(b"".join((head, *self._chunks, self._written_tail(), b"]}"))),)
        return (head if original is None else original.head(head), *self._chunks, self._written_tail(), b"]}")

    def _rewritten(self, says: Request) -> bytes:
        """The body that is written for the request as it was read."""
        encoder = RequestEncoder(self._writer, says, self._wire, self._capabilities, variant=self._variant)
        return encoder.encoded().body

    @property
    def losses(self) -> tuple[Loss, ...]:
        """The receipt for all that was encoded so far."""
        if self._unedited:
            return ()
        found = dict.fromkeys((*self._written_head()[1].losses, *self._base_context.losses, *self._context.losses))
        return tuple(sorted(found, key=_place))

    def encoded(self) -> Encoded:
        """Return the body and its receipt."""
        return Encoded(self.chunks(), self.losses)


_BEFORE_ALL: Final = (SystemMessage, DeveloperMessage, RescueMarker, FlushMarker)
"""Messages that leave a system message behind them a leading one; markers are never sent."""


class _Absent:
    """The list of messages is not written at all."""


ABSENT = _Absent()


def _place(loss: Loss) -> tuple[int, int]:
    return (-1 if loss.message is None else loss.message, -1 if loss.part is None else loss.part)


def _begins(item: Placed) -> bool:
    return isinstance(item.message, AssistantMessage)


def _fixed(text: str) -> UserMessage:
    return trusted.UserMessage(content=(trusted.Text(text),), source=REPAIR)


def renumber(placed: Sequence[Placed], context: Context, *, taken: set[str] | None = None) -> list[Placed]:
    """Set ids that the wire takes on calls and their results, both alike (docs/spec/wires.md#1.4).

    Results get the name of their tool. ``taken`` are ids given before, for a turn that comes in pieces.
    """
    out: list[Placed] = []
    given: dict[str, list[tuple[str, str]]] = {}
    taken = set() if taken is None else taken
    for item in placed:
        message = item.message
        if isinstance(message, AssistantMessage):
            message = _with_ids(message, given, taken, context)
        elif isinstance(message, ToolMessage) and message.tool_call_id in given:
            call_id, name = given[message.tool_call_id].pop(0)
            if call_id != message.tool_call_id or message.tool_name is None:
                message = structs.replace(message, tool_call_id=call_id, tool_name=message.tool_name or name)
        out.append(item if message is item.message else Placed(item.index, message, item.note))
    return out


def _with_ids(
    message: AssistantMessage, given: dict[str, list[tuple[str, str]]], taken: set[str], context: Context
) -> AssistantMessage:
    content = list(message.content)
    for position, part in enumerate(message.content):
        if not isinstance(part, ToolCall):
            continue
        context.called[part.name] = None
        if part.provider_executed:
            continue
        new = context.call_id(part.id, context.capabilities.call_id, taken=taken)
        taken.add(new)
        given.setdefault(part.id, []).append((new, part.name))
        if new != part.id:
            content[position] = part.replace(id=new)
    return message if all(map(is_, content, message.content)) else message.replace(content=tuple(content))
