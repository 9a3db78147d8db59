"""A wire: one name, four directions, and a row of data with its capabilities.

Rules:

- A wire is a value found by name in the table of ``palaver.wires``; nothing registers itself.
- ``decode_*`` takes bytes, text, a parsed object or an object of an official client, and gives a value or raises one
  ``PalaverError`` that names the wire and the path (law 6).
- ``encode_*`` never changes what it is given. What ``decode_*`` of the same wire made, unedited, is written as the very
  bytes it came from; when those are gone, from its fields, without repairs (law 2). Any other value is fitted to the
  wire first (``fit``), and what could not be carried is in ``losses`` (law 5). Of an edited one, what was not edited
  keeps its spelling (``core.overlay``). ``losses="raise"`` makes any loss an error.
- A variant is a row too: a vendor that speaks the wire with other limits.

Objects of the official clients are bodies too (``client_objects``); ``client_arguments`` is the way back: the keyword
arguments of the client's call (``client_call``).

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module
from operator import eq
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar

from msgspec import UNSET, Raw, structs

from palaver.core import jsontext, trusted
from palaver.core.errors import DecodeError, LossError, MessageError, PalaverError, UnknownNameError
from palaver.core.messages import AssistantMessage
from palaver.core.overlay import laid_over
from palaver.core.pairs import Placed
from palaver.core.parts import AssistantPart, MalformedToolCall
from palaver.core.request import Encoded, Original, Request, Response
from palaver.core.type_checks import check_arguments
from palaver.wires._engine import cache_marks, json_fields, metadata, vendors
from palaver.wires._engine.capabilities import MediaKind
from palaver.wires._engine.client_call import ClientCall, call_arguments
from palaver.wires._engine.client_objects import ClientObject, source
from palaver.wires._engine.encode_state import Context, Options
from palaver.wires._engine.encoder import RequestEncoder, Writer, renumber
from palaver.wires._engine.fit import fit
from palaver.wires._engine.list_memory import ListMemory, RequestReader

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from palaver.core.parts import AnyPart
    from palaver.core.request import Loss
    from palaver.core.usage import Usage
    from palaver.wires._engine.cache_marks import CachePlan
    from palaver.wires._engine.capabilities import WireCapabilities
    from palaver.wires._engine.stream_decoder import StreamDecoder
    from palaver.wires._engine.stream_encoder import StreamEncoder


# -- wire ------------------------------------------------------------------------------------------


Body: TypeAlias = "bytes | bytearray | memoryview | str | Mapping[str, Any] | ClientObject"
T = TypeVar("T", Request, Response)
OnLoss: TypeAlias = Literal["report", "raise"]


class Codec(Writer, Protocol):
    """A wire's ``encode`` module: requests (see ``Writer``) and responses."""

    @property
    def CAPABILITIES(self) -> WireCapabilities:  # noqa: N802 (a constant of the module)
        """The wire's row of data."""
        ...

    def response(self, response: Response, context: Context, /) -> dict[str, Any]:
        """Write a response; the message of a foreign one is already fitted."""
        ...


class Decoder(Protocol):
    """A wire's ``decode`` module."""

    def request(self, body: bytes, /) -> Request:
        """Read a request. Raises ``DecodeError`` with a path."""
        ...

    def response(self, body: bytes, /) -> Response:
        """Read a response. Raises ``DecodeError``, or ``ProviderError`` for the provider's own error."""
        ...


class Wire:
    """One provider format. ``name`` is the wire's, ``variant`` the vendor's row where one was chosen."""

    def __init__(
        self,
        name: str,
        decoder: Decoder,
        codec: Codec,
        *,
        streams: str = "",
        call: ClientCall | None = None,
        capabilities: WireCapabilities | None = None,
        variant: str | None = None,
    ) -> None:
        """Join the two halves of a codec.

        ``streams`` names the module of the third, which is loaded on first use; ``""`` for a wire without streams.
        ``call`` is the call of the official client; ``None`` for a wire without one.
        """
        self.name = name
        self.variant = variant
        self.capabilities = codec.CAPABILITIES if capabilities is None else capabilities
        self._origin = name if variant is None else f"{name}:{variant}"
        self._decoder = decoder
        self._codec = codec
        self._streams = streams
        self._call = call

    def __repr__(self) -> str:
        """Show the name, and the variant where there is one."""
        return f"Wire({self.name!r})" if self.variant is None else f"Wire({self.name!r}, variant={self.variant!r})"

    # -- in --

    def decode_request(self, body: Body) -> Request:
        """Read a request body. Raises ``DecodeError`` naming wire and path."""
        return self._decoded(self._request, body)

    def decode_response(self, body: Body) -> Response:
        """Read a response body. Raises ``DecodeError``, or ``ProviderError`` when it is the provider's error."""
        return self._decoded(self._response, body)

    def request_reader(self) -> RequestReader:
        """Return a reader for the requests of one conversation, which costs what is new where the wire can tell."""

        def whole(data: bytes, _: ListMemory) -> Request:
            return self._request(data)

        resume: Callable[[bytes, ListMemory], Request] = getattr(self._decoder, "resume", whole)

        def read(body: bytes, memory: ListMemory) -> Request:
            _, found = self._guarded(lambda data: resume(data, memory), body)
            return structs.replace(found, origin=self._origin)

        return RequestReader(read)

    def _decoded(self, decode: Callable[[bytes], T], body: Body) -> T:
        data, found = self._guarded(decode, body)
        return structs.replace(found, origin=self._origin, original=trusted.Original(self._origin, Raw(data)))

    def _guarded(self, decode: Callable[[bytes], T], body: Body) -> tuple[bytes, T]:
        """Return a body as bytes, and what it says. Every error names the wire."""
        try:
            data = source(body)
            return data, decode(data)
        except DecodeError as error:
            error.source = self.name
            raise
        except MessageError as error:  # not a number, or a value that is nested too deeply
            raise DecodeError(str(error), source=self.name) from None

    def _request(self, data: bytes) -> Request:
        return self._decoder.request(data)

    def _response(self, data: bytes) -> Response:
        decoded = self._decoder.response(data)
        if self.variant is not None and self.capabilities.answer_fields is not None:
            return vendors.signed(decoded, self.name, self.variant)
        return decoded

    def _body(self, value: Request | Response) -> bytes | None:
        """Return the body that a value was decoded from by this wire, whether or not it was edited since."""
        original = value.original
        named = isinstance(original, Original) and original.wire == self._origin
        return bytes(original.body_json) if original is not None and named else None

    def _again(self, decode: Callable[[bytes], T], body: bytes) -> T | None:
        """Return what a body says, as it was decoded, without the body; ``None`` when it says nothing."""
        try:
            return structs.replace(decode(body), origin=self._origin)
        except PalaverError:
            return None

    # -- out --

    def request_encoder(
        self,
        request: Request,
        *,
        takes: Collection[MediaKind] | None = None,
        reasoning_as_text: bool = False,
        metadata: Collection[str] = (),
        join_neighbors: bool = True,
        model: str | None = None,
    ) -> RequestEncoder:
        """Encode a request that will grow: append messages to what this gives, and pay for what is new.

        ``model`` is the id of the model that is asked, where the body does not name it (Gemini, Bedrock, clouds).
        Raises ``MessageError`` for an argument of another type.
        """
        if isinstance(metadata, str):
            raise MessageError(f"metadata: expected a collection of keys, got the text {metadata!r}")
        check_arguments(self.name, Wire.request_encoder, locals())
        options = Options(
            takes=None if takes is None else frozenset(takes),
            reasoning_as_text=reasoning_as_text,
            metadata=frozenset(metadata),
            join_neighbors=join_neighbors,
            model=model,
        )
        body = self._body(request)
        again = None if body is None else self._again(self._request, body)
        original = None if body is None or again is None else (body, again)
        return self._encoder(request, options, original)

    def _encoder(self, request: Request, options: Options, original: tuple[bytes, Request] | None) -> RequestEncoder:
        return RequestEncoder(
            self._codec,
            request,
            self.name,
            self.capabilities,
            variant=self.variant,
            options=options,
            original=original,
        )

    def encode_request(
        self,
        request: Request,
        *,
        losses: OnLoss = "report",
        takes: Collection[MediaKind] | None = None,
        reasoning_as_text: bool = False,
        metadata: Collection[str] = (),
        join_neighbors: bool = True,
    ) -> Encoded:
        """Write a request body, and the receipt for what was lost.

        ``takes`` names the media the model takes, where those are fewer than the wire's.
        ``reasoning_as_text`` sends other wires' reasoning as plain text instead of dropping it. ``metadata`` names the
        keys of the messages' metadata that may leave, where the wire has a field for them; no other key is sent.
        ``join_neighbors=False`` keeps messages of one role apart where some chat templates want them joined.
        Raises ``LossError`` when ``losses="raise"`` and there is one, ``MessageError`` for an argument of another type.
        """
        check_arguments(self.name, Wire.encode_request, {"losses": losses})
        encoder = self.request_encoder(
            request,
            takes=takes,
            reasoning_as_text=reasoning_as_text,
            metadata=metadata,
            join_neighbors=join_neighbors,
        )
        return self._checked(encoder.encoded(), losses)

    def client_arguments(self, request: Request, *, losses: OnLoss = "report") -> dict[str, Any]:
        """The keyword arguments with which the provider's official client sends a request.

        They are for ``chat.completions.create`` and ``responses.create`` of openai, ``messages.create`` of anthropic,
        ``models.generate_content`` of google-genai, ``ClientV2.chat`` of cohere, ``chat`` of ollama and ``converse`` of
        boto3, and for their streaming twins. Fields that the call has no argument for stand where the client takes
        further ones (``extra_body``). ``losses`` is as in ``encode_request``, which gives the receipt. Raises
        ``LossError`` when ``losses="raise"`` and there is one, ``MessageError`` for a wire without an official client.
        """
        if self._call is None:
            raise MessageError(f"{self.name}: there is no official client for this wire")
        return call_arguments(self._call, self.encode_request(request, losses=losses).fields, request.model)

    def encode_response(self, response: Response, *, losses: OnLoss = "report") -> Encoded:
        """Write a response body, and the receipt for what was lost. Raises as above."""
        check_arguments(self.name, Wire.encode_response, {"response": response, "losses": losses})
        body = self._body(response)
        again = None if body is None else self._again(self._response, body)
        if body is not None and again == response and response.origin == self._origin:
            return Encoded((body,))
        if body is None or again is None:
            return self._checked(self._encoded(response), losses)
        return self._checked(self._edited(response, body, again), losses)

    def _edited(self, response: Response, body: bytes, read: Response) -> Encoded:
        """Write an answer that was edited since ``body``, which says ``read``.

        Both are written with what the answers of others need, so that the same stands in both and none of it is added.
        """
        known = [
            part
            for each in _answers(read)
            for part in each.content
            if not (self.capabilities.object_arguments and isinstance(part, MalformedToolCall))
        ]
        before, after = (
            self._encoded(structs.replace(each, origin=None, original=None), known) for each in (read, response)
        )
        over = laid_over(body, before.body, after.body)
        return Encoded((over,), self._real(after.losses, response, over))

    def _real(self, losses: tuple[Loss, ...], response: Response, body: bytes) -> tuple[Loss, ...]:
        """Leave out the losses of what stands in the body after all, because the original does."""
        said = self._again(self._response, body) if losses else None
        if said is None:
            return losses
        if structs.replace(said, origin=response.origin) == response:
            return ()
        whole = [at for at, pair in enumerate(zip(_answers(said), _answers(response), strict=False)) if eq(*pair)]
        return tuple(loss for loss in losses if loss.message not in whole)

    def _encoded(self, response: Response, known: Sequence[AnyPart] | None = None) -> Encoded:
        own = response.origin == self._origin
        context = Context(self.name, self.capabilities, own=own, variant=self.variant, options=Options())
        context.known, context.whole = known, "response"
        if not own:
            response = metadata.with_time(response) if self.capabilities.has_time else response
            metadata.lose_fields(response, context)
            choices = (response.message, *(response.alternatives if self.capabilities.choices else ()))
            own_usage = [with_own_usage(each, response.origin, self.name) for each in choices]
            answers = [fit_answer(each, i, context) for i, each in enumerate(own_usage)]
            for index, each in enumerate(choices):
                list_lost_usage(each, context, index)
            others = tuple(answers[1:]) if self.capabilities.choices else response.alternatives
            response = response.replace(message=answers[0], alternatives=others)
        elif self.capabilities.object_arguments and response.message.malformed_tool_calls:
            response = structs.replace(response, message=_with_objects(response.message, context))
        return Encoded((jsontext.encode(self._codec.response(response, context)),), context.losses)

    # -- cache marks --

    def marked(self, request: Request, plan: CachePlan) -> Request:
        """A request with the cache marks of a plan, in the form of this wire; unchanged where it has none.

        Pure, and meant for the request that is sent: messages that are kept have no marks.
        """
        return cache_marks.marked(request, self.capabilities.marking, self.capabilities.cache_key, self.name, plan)

    def unmarked(self, request: Request) -> Request:
        """A request without cache marks. What was given to ``marked`` comes back, if it had none.

        A ``provider`` that was empty comes back as none at all, which no body shows.
        """
        return cache_marks.unmarked(request, self.capabilities.marking, self.capabilities.cache_key, self.name)

    # -- streams --

    @property
    def streams(self) -> bool:
        """Whether the wire has streams; a model of one that has none answers whole."""
        return bool(self._streams)

    def stream_decoder(self) -> StreamDecoder:
        """Read one stream: ``feed(bytes)`` gives events, ``finish()`` the answer.

        Raises ``UnknownNameError`` for a wire without streams.
        """
        self._need_streams()
        decoder: StreamDecoder = import_module(self._streams).Decoder(self._origin)
        return decoder

    def stream_encoder(self) -> StreamEncoder:
        """Write one stream: ``feed(event)`` and ``finish()`` give bytes, ``losses`` the receipt. Raises as above."""
        self._need_streams()
        encoder: StreamEncoder = import_module(self._streams).Encoder(
            self.name, self.capabilities, variant=self.variant
        )
        return encoder

    def _need_streams(self) -> None:
        if not self._streams:
            raise UnknownNameError(f"{self.name} has no streams")

    def _checked(self, encoded: Encoded, losses: OnLoss) -> Encoded:
        if losses == "raise" and encoded.losses:
            raise LossError(self.name, encoded.losses)
        return encoded


def _answers(response: Response) -> tuple[AssistantMessage, ...]:
    return (response.message, *response.alternatives)


def with_own_usage(message: AssistantMessage, origin: str | None, wire: str) -> AssistantMessage:
    """Leave behind a usage object of another provider; the counters stay."""
    foreign = origin is not None and origin.partition(":")[0] != wire
    usage = message.usage
    if usage is None or usage.raw_json is UNSET or not (foreign or usage == trusted.Usage(raw_json=usage.raw_json)):
        return message
    return message.replace(usage=structs.replace(usage, raw_json=UNSET))


def list_lost_usage(message: AssistantMessage, context: Context, index: int | None) -> None:
    """Put on the receipt the counters that the wire does not have, and the zeros that it needs (``list_zeros``)."""
    usage = message.usage
    list_zeros(usage, context, index)
    if usage is None:
        return
    if usage.passes and not context.capabilities.usage_passes:
        context.lose("dropped", "usage passes", "the wire has one set of counters", index)
    if usage.extra is not UNSET:
        for key in jsontext.fields(usage.extra.json):
            context.lose("dropped", f"usage {key}", "a field that a newer version wrote", index)


def list_zeros(usage: Usage | None, context: Context, index: int | None) -> None:
    """Put on the receipt what was not reported, and stands in the body as 0, since the wire needs a number."""
    capabilities = context.capabilities
    if usage is None and not capabilities.needs_usage:
        return
    missing = [
        each[0] for each in capabilities.needed_counters if all(getattr(usage, name, None) is None for name in each)
    ]
    if missing:
        names = " and ".join(", ".join(missing).rsplit(", ", 1))
        context.lose("approximated", "usage", f"{names} not reported; 0 was sent", index)


def _with_objects(message: AssistantMessage, context: Context) -> AssistantMessage:
    """Put the arguments of a call that did not parse, which only a stream of this wire can hold, into an object.

    Those that stood in a whole answer as text, which a note says, can go back as text.
    """
    content: list[AssistantPart] = list(message.content)
    for position, part in enumerate(content):
        if isinstance(part, MalformedToolCall) and "arguments" not in json_fields.notes(part, context.wire):
            context.lose("converted", "arguments", "not JSON; sent inside a JSON object", 0, position)
            text = jsontext.encode({"INVALID_JSON": part.raw}).decode()
            name, stored = part.name or "unknown", part.provider_json
            content[position] = trusted.ToolCall(part.id or f"call_0_{position}", name, text, provider_json=stored)
    return message.replace(content=tuple(content))


def fit_answer(
    message: AssistantMessage, index: int, context: Context, *, position: int = 0, taken: set[str] | None = None
) -> AssistantMessage:
    """Fit one answer. In an answer a malformed call stays a call: whoever asked must see what the model wrote.

    ``position`` is that of the first part, ``taken`` the ids of earlier calls, for an answer that is fitted in
    pieces.
    """
    calls = tuple(
        trusted.ToolCall(
            part.id or f"call_{index}_{place}",
            part.name or "unknown",
            part.raw,
            provider_json=part.provider_json,
            extra=part.extra,
        )
        if isinstance(part, MalformedToolCall) and part not in (context.known or ())
        else part
        for place, part in enumerate(message.content, position)
    )
    placed = fit(Placed(index, message.replace(content=calls)), context, leading=False)
    renamed = renumber([item for item in placed if isinstance(item.message, AssistantMessage)], context, taken=taken)
    found = renamed[0].message if renamed else None
    return found if isinstance(found, AssistantMessage) else message.replace(content=())
