"""An answer over HTTP: the request, its retries, and the events of the answer.

Rules:

- Entering sends, and returns at the first event with content. Until then any failure may be retried (``Retry``);
  afterwards none is.
- An answer that breaks off later raises ``StreamError`` with the content received so far; its cause is the
  ``TransportError`` or ``TimedOutError``. A finished answer is complete, however its connection ends.
- A stream is read to its end mark, or to its end. The wire's decoder judges damaged frames and provider errors; an
  error inside a 200 gets the class of the matching status.
- Secrets are masked in every error, in its text and its body.
- A JSON object in place of a stream is a whole answer, or an error. A page of HTML is neither.

A provider's model, over HTTP: a wire, an endpoint, credentials and capabilities. Data; there is no class per vendor.

Stability: experimental.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection
from typing import TYPE_CHECKING, Final, final
from urllib.parse import quote

import anyio
from msgspec import Struct, structs

from palaver import wires
from palaver.core.errors import (
    ContextOverflowError,
    DecodeError,
    MessageError,
    PalaverError,
    ProviderError,
    StreamError,
    TimedOutError,
)
from palaver.core.events import Event, Failed, PartEnd, PartStart, ProviderEvent, Start, Update, UsageUpdate
from palaver.core.parts import Reasoning, Refusal, Text
from palaver.core.request import Encoded, Response, Settings
from palaver.core.type_checks import check_arguments
from palaver.models import http
from palaver.models.ask import Askable
from palaver.models.catalogue import Capabilities, Missing
from palaver.models.encoded_prompt import PromptEncoder
from palaver.models.endpoint import Credentials, Endpoint
from palaver.models.failures import Clock, Retry, inner_failure, request_id
from palaver.models.http import Sender, Timeouts, build_call, raise_error, with_retries
from palaver.models.language_model import Answer, OnNotice, Prompt, Reply, Session
from palaver.models.redaction import without_secrets
from palaver.models.text_calls import TextCallSession
from palaver.stream.frames import LIMIT
from palaver.stream.replay_events import replay_events

if TYPE_CHECKING:
    from types import TracebackType

    from palaver.models.endpoint import Unwrap
    from palaver.wires._engine.stream_decoder import StreamDecoder


_PINGS: Final = frozenset({"ping", "keepalive", "keep-alive", "heartbeat"})
"""Events of providers that only keep a connection open."""
_WITHOUT_CONTENT: Final = (Start, Update, UsageUpdate, ProviderEvent, PartEnd, Failed)
"""Events without content: they are held back until content arrives, since a failure before it may be retried."""
_GRACE: Final = 0.05
"""Seconds that the body of an answer may continue after its end mark, before its connection is closed."""
_DOUBTFUL: Final = frozenset({"", "text/plain", "application/json"})
"""Media types that servers give to streams, and also to what is no stream."""
_STREAM_START: Final = re.compile(rb"\s*(?:\xef\xbb\xbf)?(?:[\[{:]|data|event|id|retry)")
_START: Final = (b"{", b"[", b":")
_START_LENGTH: Final = len("retry:")
_UNCOMPRESSED: Final = {"accept-encoding": "identity"}
"""A gateway that compresses a stream holds tokens back."""


@final
class HttpAnswer(Answer):
    """One call of a model. An async context manager; iterate over it, or ``finish`` it."""

    def __init__(
        self, model: Model, written: PromptEncoder, prompt: Prompt, *, stream: bool, on_notice: OnNotice | None
    ) -> None:
        """Keep the arguments; nothing is sent before it is entered."""
        self._model = model
        self._encoder = written
        self._prompt = prompt
        self._stream = stream and model.capabilities.streaming and wires.get(model.endpoint.wire).streams
        self._on_notice = on_notice
        self._wire = wires.get(model.endpoint.wire)
        self._attempts = 0
        self._began = self._first = self._ended = 0.0
        self._encoded = Encoded(())
        self._secrets: list[str] = []
        self._reset()

    def _reset(self) -> None:
        """Begin an attempt."""
        self._response: http.HttpResponse | None = None
        self._reading: StreamDecoder | None = None
        self._unwrap: Unwrap | None = None
        self._whole: Response | None = None
        self._events: deque[Event] = deque()
        self._content = False
        self._error: PalaverError | None = None
        self._waited = 0.0
        self._alive = False
        self._request_id: str | None = None

    @property
    def _decoder(self) -> StreamDecoder:
        """The decoder of the stream; made for the first bytes, since a wire may have no streams."""
        if self._reading is None:
            self._reading = self._wire.stream_decoder()
        return self._reading

    # -- sending --

    async def __aenter__(self) -> HttpAnswer:
        """Send, as often as the policy allows, until an answer begins."""
        self._began = self._model.clock.now()
        self._encoded = self._encoder.encode(self._prompt, stream=self._stream)
        await with_retries(self._model, self._try_once, self._on_notice)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connection."""
        await self._close()

    async def _try_once(self) -> None:
        """Send once. A failure leaves nothing open, and its error holds no secret."""
        self._attempts += 1
        try:
            await self._attempt()
        except PalaverError as error:
            without_secrets(error, self._secrets)
            await self._close()
            raise
        except BaseException:
            await self._close()
            raise

    async def _attempt(self) -> None:
        """Send once, and read until there is content. Raises ``PalaverError``."""
        self._reset()
        model, endpoint = self._model, self._model.endpoint
        patience = model.timeouts.first_token if self._stream else model.timeouts.whole
        address = endpoint.stream_url if self._stream and endpoint.stream_url is not None else endpoint.url
        self._secrets = []
        call = await build_call(
            model,
            address.replace("{model}", quote(model.id, safe="")),
            self._encoded.chunks,
            secrets=self._secrets,
            headers=_UNCOMPRESSED if self._stream else {},
        )
        with anyio.move_on_after(patience) as scope:
            self._response = await http.send(model.http, call, model.timeouts)
            self._request_id = request_id(self._response.headers)
            if not 200 <= self._response.status < 300:  # noqa: PLR2004 (success)
                await raise_error(model, self._wire.name, self._response)
            if self._stream:
                await self._begin(self._response)
            else:
                await self._read_whole(self._response)
        if scope.cancelled_caught:
            raise TimedOutError(f"{model.name}: no answer within {patience:g} s", phase="first_token")

    # -- reading --

    async def _read_whole(self, response: http.HttpResponse, begun: bytes = b"") -> None:
        """Read an answer that is not streamed."""
        rest, ended = await response.read(LIMIT)
        if not ended:
            raise DecodeError(f"an answer of more than {LIMIT} bytes", source=self._wire.name)
        body = begun + rest
        try:
            self._whole = self._wire.decode_response(body)
        except ProviderError as error:
            raise inner_failure(error, response.headers) from None
        except DecodeError:
            if not self._stream:
                raise
            events = [*self._decoder.feed(body), *self._decoder.close()]  # lines of JSON look like an object, too
            if all(type(each) is Failed for each in events):
                raise
            self._add_events(events)
            self._conclude()
            return
        self._events.extend(replay_events(self._whole))
        self._content = True
        self._first = self._ended = self._model.clock.now()

    async def _begin(self, response: http.HttpResponse) -> None:
        """Read a stream up to its first content, or the whole answer that came in its place."""
        media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media_type == "text/html":
            raise DecodeError("an HTML page instead of a stream", source=self._wire.name)
        if media_type in _DOUBTFUL and self._model.endpoint.unwrap is None:
            begun = b""
            while len(begun.strip()) < _START_LENGTH and (data := await response.chunk()):
                begun = begun.lstrip() + data  # what only keeps the connection open is forgotten
                if begun.lstrip()[:1] in _START:
                    break
            if begun.lstrip()[:1] == b"{" and media_type == "application/json":
                await self._read_whole(response, begun)
                return
            if begun.strip() and not _STREAM_START.match(begun):
                raise DecodeError(f"{media_type or 'a body'} instead of a stream", source=self._wire.name)
            self._add_events(self._decoder.feed(begun))
        elif self._model.endpoint.unwrap is not None:
            self._unwrap = self._model.endpoint.unwrap()
        while not self._content and not self._over:
            await self._read()
        if self._error is not None and not self._content:
            raise self._error

    @property
    def _over(self) -> bool:
        return self._whole is not None or self._error is not None

    async def _read(self) -> None:
        """Read the next bytes of a stream. A failure is kept in ``_error``."""
        assert self._response is not None  # noqa: S101 (entered)
        try:
            data = await self._response.chunk()
            plain = data if self._unwrap is None else self._unwrap.feed(data) if data else self._unwrap.finish()
        except PalaverError as error:
            self._break_off(error)
            return
        self._add_events(self._decoder.feed(plain))
        if not data or self._decoder.done:
            self._add_events(self._decoder.close())
            self._conclude()

    def _add_events(self, events: list[Event]) -> None:
        """Take new events in."""
        if not events:
            return
        self._events.extend(event for event in events if type(event) is not Failed)
        if not self._content and any(map(has_content, events)):
            self._content = True
            self._first = self._model.clock.now()
        self._alive = self._alive or not all(map(_is_ping, events))

    def _conclude(self) -> None:
        """The stream is over: find out whether the answer is whole."""
        try:
            self._whole = self._decoder.finish()
        except StreamError as error:
            told = ProviderError(self._wire.name, error.reason, code=error.code, body=error.body)
            judged = inner_failure(told, self._response.headers if self._response else None)
            said = error.kind == "provider"
            error.retryable = judged.retryable or not said
            if said and isinstance(judged, ContextOverflowError):
                error.__cause__ = judged
            self._error = judged if said and not self._content else error
        else:
            self._content = True
            self._ended = self._model.clock.now()
            self._first = self._first or self._ended

    async def _close(self) -> None:
        response, self._response = self._response, None
        if response is not None:
            await response.aclose(grace=_GRACE if self._whole is not None else 0.0)

    # -- giving --

    def __aiter__(self) -> HttpAnswer:
        """The events that were not given out yet."""
        return self

    async def __anext__(self) -> Event:
        """The next event. Raises as ``language_model`` says."""
        while not self._events:
            if self._error is not None:
                without_secrets(self._error, self._secrets)
                raise self._error
            if self._whole is not None:
                raise StopAsyncIteration
            if self._response is None:
                raise MessageError("an answer can be read only inside its async with block")
            await self._wait()
        return self._events.popleft()

    async def _wait(self) -> None:
        """Read on. The time that the caller spends elsewhere does not count."""
        idle, began = self._model.timeouts.idle, anyio.current_time()
        self._alive = False
        with anyio.CancelScope(deadline=began + idle - self._waited) as scope:
            await self._read()
        self._waited = 0.0 if self._alive else self._waited + anyio.current_time() - began
        if scope.cancelled_caught:
            error = TimedOutError(f"{self._model.name}: no data for {idle:g} s", phase="idle")
            self._break_off(error)

    def _break_off(self, error: PalaverError) -> None:
        """End the stream early. A finished answer is complete; of any other, the received part is kept."""
        self._add_events(self._decoder.close())
        if self._decoder.assembler.finished and not self._decoder.assembler.failure:
            self._conclude()
        elif self._content:
            broken = StreamError(self._wire.name, str(error), kind="torn", response=self._decoder.response)
            broken.__cause__ = error
            broken.retryable = error.retryable
            self._error = broken
        else:
            self._error = error

    async def finish(self) -> Reply:
        """Read to the end; events that were not read yet can still be read."""
        kept = [event async for event in self]
        self._events.extend(kept)
        whole = self._whole
        if whole is None:
            raise MessageError("an answer can be read only inside its async with block")
        return Reply(
            response=whole,
            model=self._model.name,
            wire=self._wire.name,
            losses=self._encoded.losses,
            attempts=self._attempts,
            seconds=self._ended - self._began,
            first_token_seconds=self._first - self._began,
            request_id=self._request_id,
        )

    @property
    def so_far(self) -> Response | None:
        """The answer so far, also after it broke off."""
        if self._whole is not None or self._reading is None:
            return self._whole
        return self._decoder.response if self._decoder.assembler.state != "idle" else None


def has_content(event: Event) -> bool:
    """Whether an event holds something of an answer that a reader may see: then it cannot be asked for again."""
    if not isinstance(event, PartStart):
        return not isinstance(event, _WITHOUT_CONTENT)
    part = event.part
    if isinstance(part, Text | Refusal):
        return bool(part.text)
    return not isinstance(part, Reasoning) or bool(part.text or part.signature or part.encrypted)


def _is_ping(event: Event) -> bool:
    return isinstance(event, ProviderEvent) and event.name in _PINGS


# -- http model ------------------------------------------------------------------------------------


class Model(Askable, Struct, frozen=True, kw_only=True):
    """A provider's model: its id, endpoint, credentials and timeouts; a ``LanguageModel``.

    ``name`` is what people call it (``openai/gpt-…``), ``id`` what is sent. ``settings`` are the defaults for the
    fields that a prompt leaves open. ``missing`` says whether content that the model does not support is dropped or
    refused. Without ``http`` it shares the connections of the event loop. ``text_calls`` names the format in which the
    model writes calls and reasoning as text (``palaver.stream.local.names()``), where its server does not read them.
    ``metadata`` names the keys of the messages' metadata that may be sent to the provider; what is not named stays
    here.
    """

    name: str
    id: str
    endpoint: Endpoint
    credentials: Credentials | None = None
    capabilities: Capabilities = Capabilities()
    settings: Settings = Settings()
    retry: Retry = Retry()
    timeouts: Timeouts = Timeouts()
    missing: Missing = "drop"
    http: Sender | None = None
    clock: Clock = Clock()
    text_calls: str | None = None
    metadata: Collection[str] = frozenset()

    def __post_init__(self) -> None:
        """Refuse values of another type. Raises ``MessageError``, which names the field."""
        check_arguments("Model", Model, structs.asdict(self))

    def session(self) -> Session:
        """Begin a conversation. Raises ``UnknownNameError`` for a wire or a format that there is not."""
        session = _Session(self)
        return session if self.text_calls is None else TextCallSession(session, self.text_calls)


def prompt_encoder(model: Model) -> PromptEncoder:
    """What encodes the prompts of one conversation. Raises ``UnknownNameError`` as ``Model.session`` does."""
    return PromptEncoder(
        wires.get(model.endpoint.wire),
        model.endpoint,
        id=model.id,
        settings=model.settings,
        capabilities=model.capabilities,
        missing=model.missing,
        metadata=model.metadata if model.endpoint.metadata else (),
    )


@final
class _Session(Session):
    """One conversation: remembers what it encoded."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._encoder = prompt_encoder(model)

    def ask(self, prompt: Prompt, *, stream: bool = True, on_notice: OnNotice | None = None) -> HttpAnswer:
        return HttpAnswer(self._model, self._encoder, prompt, stream=stream, on_notice=on_notice)
