"""Record provider exchanges, and replay them from a local server or as a model.

Rules:

- ``Recorder(file)`` records the exchanges of the models that ``recorder.model(...)`` returns, over their own
  connections, and writes the file on exit. Each answered request is recorded once, retries included.
- ``serve(recording)`` answers each request with the recorded bytes, chunk by chunk, over HTTP/1.1. Method, path and
  body (compared as JSON) identify a request; each exchange answers once, equal ones in order. An unknown request gets
  404 and the first difference.
- ``replay(recording)`` is the recorded model; it asks such a server, which starts with the first request.
- All three are sync and async context managers.

Stability: experimental.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, final
from urllib.parse import urlsplit

from msgspec import structs

from palaver.core.errors import MessageError
from palaver.models import http, providers
from palaver.models.ask import Askable
from palaver.models.endpoint import Credentials, Endpoint, HttpCall
from palaver.models.http import HttpResponse, Sender, Timeouts
from palaver.models.http_model import Model
from palaver.models.language_model import LanguageModel, Session
from palaver.models.playback import Server
from palaver.models.recording import Exchange, FilePath, RecordedModel, Recording, recorded_headers
from palaver.models.redaction import bare_path, secrets_of

if TYPE_CHECKING:
    from types import TracebackType

    from palaver.models.catalogue import Capabilities

__all__ = ["Exchange", "Recorder", "Recording", "Replay", "Server", "replay", "serve"]


class _SyncAsyncContext:
    """A context manager for ``with`` and ``async with``, whose exit is fast enough not to be async."""

    def open(self) -> None:
        """Begin."""

    def close(self) -> None:
        """End; a second time does nothing."""

    def __enter__(self) -> Self:
        """Begin."""
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End."""
        self.close()

    async def __aenter__(self) -> Self:
        """Begin."""
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End."""
        self.close()


# -- recording --


@final
class Recorder(_SyncAsyncContext):
    """Records the exchanges of models, and writes them on exit, also after an error.

    ``file`` is where to write; in a folder, the next ``recording-0001.json`` that is free. ``secrets`` are values to
    mask besides the credentials that were shown.
    """

    def __init__(self, file: FilePath, *, secrets: tuple[str, ...] = ()) -> None:
        """Keep the path; nothing is written yet."""
        self.file = _next(Path(file))
        self._secrets = dict.fromkeys(secrets)
        self._calls: list[_Call] = []
        self._recorded: RecordedModel | None = None

    def model(self, model: Model) -> Model:
        """Return ``model``, recorded. The recording has the settings of the first one."""
        if self._recorded is None:
            self._recorded = recorded_model(model)
        credentials = None if model.credentials is None else _RecordingCredentials(model.credentials, self)
        return structs.replace(model, credentials=credentials, http=_RecordingSender(model.http, self))

    def note(self, url: str, headers: Mapping[str, str], *, shown: bool = False) -> None:
        """Add the secrets of a request, so that they are masked everywhere."""
        self._secrets.update(dict.fromkeys(secrets_of(url, headers, shown=shown)))

    def begin(self, call: HttpCall) -> _Call:
        """Record a request that is about to be sent."""
        heard = _Call(call)
        self._calls.append(heard)
        return heard

    @property
    def recording(self) -> Recording:
        """The exchanges so far. Secrets are masked when it is written, not here."""
        exchanges = tuple(heard.exchange for heard in self._calls if heard.exchange.status)
        return Recording(exchanges=exchanges, model=self._recorded)

    def close(self) -> None:
        """Write the file. Raises ``OSError``."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.recording.write(self.file, self._secrets)


def _next(path: Path) -> Path:
    if not path.is_dir():
        return path
    number = 1
    while (free := path / f"recording-{number:04}.json").exists():
        number += 1
    return free


@final
class _Call:
    """One exchange that is going on. Its status is 0 until an answer came."""

    def __init__(self, call: HttpCall) -> None:
        self._chunks: list[bytes] = []
        self._exchange = Exchange(
            method=call.method,
            path=bare_path(call.url),
            request_headers=recorded_headers(call.headers),
            body=b"".join(call.chunks),
            status=0,
        )

    def answered(self, status: int, headers: Mapping[str, str]) -> None:
        self._exchange = structs.replace(self._exchange, status=status, headers=recorded_headers(headers))

    def chunk(self, data: bytes | None) -> None:
        if data:
            self._chunks.append(data)
        elif data is None:
            self._exchange = structs.replace(self._exchange, broken=True)

    @property
    def exchange(self) -> Exchange:
        return structs.replace(self._exchange, chunks=tuple(self._chunks))


@final
class _RecordingSender(Sender):
    """Sends as before, and records the exchange."""

    def __init__(self, sender: Sender | None, recorder: Recorder) -> None:
        self._sender = sender
        self._recorder = recorder

    async def send(self, call: HttpCall, timeouts: Timeouts, /) -> HttpResponse:
        self._recorder.note(call.url, call.headers)
        heard = self._recorder.begin(call)
        arriving = await http.send(self._sender, call, timeouts)
        heard.answered(arriving.status, arriving.headers)
        arriving.tap = heard.chunk
        return arriving


@final
class _RecordingCredentials(Credentials):
    """Returns the headers of other credentials, and registers them as secrets."""

    def __init__(self, credentials: Credentials, recorder: Recorder) -> None:
        self._credentials = credentials
        self._recorder = recorder

    async def headers(self, call: HttpCall, /) -> Mapping[str, str]:
        shown = await self._credentials.headers(call)
        self._recorder.note(call.url, shown, shown=True)
        return shown

    def __repr__(self) -> str:
        return repr(self._credentials)


def recorded_model(model: Model) -> RecordedModel:
    """How a model is asked, as a recording keeps it."""
    endpoint = model.endpoint
    return RecordedModel(
        name=model.name,
        id=model.id,
        provider_name=endpoint.provider_name,
        wire=endpoint.wire,
        url=bare_path(endpoint.url),
        stream_url=None if endpoint.stream_url is None else bare_path(endpoint.stream_url),
        names_model=endpoint.names_model,
        stream_field=endpoint.stream_field,
        headers=recorded_headers(endpoint.headers),
        provider={wire: dict(fields) for wire, fields in endpoint.provider.items()},
        stream_provider={wire: dict(fields) for wire, fields in endpoint.stream_provider.items()},
        capabilities=model.capabilities,
        settings=model.settings,
        missing=model.missing,
        metadata=tuple(sorted(model.metadata)) if endpoint.metadata else (),
    )


# -- playing --


def serve(recording: Recording | FilePath) -> ReplayServer:
    """Return a server that plays a recording while it is entered. Raises as ``Recording.read``."""
    return ReplayServer(recording if isinstance(recording, Recording) else Recording.read(recording))


@final
class ReplayServer(_SyncAsyncContext):
    """A server on loopback, between entering and leaving. ``url`` is its address, without a slash at its end."""

    def __init__(self, recording: Recording) -> None:
        """Hold the recording; the server starts when this is entered."""
        self.recording = recording
        self._server: Server | None = None

    @property
    def url(self) -> str:
        """The URL at which it listens. Raises ``MessageError`` when it does not listen."""
        if self._server is None:
            raise MessageError("a recording is served only inside its with block")
        return self._server.url

    @property
    def running(self) -> bool:
        """Whether it listens."""
        return self._server is not None

    @property
    def unplayed(self) -> tuple[Exchange, ...]:
        """The exchanges that no request has used yet."""
        return self.recording.exchanges if self._server is None else self._server.unplayed

    def open(self) -> None:
        """Start."""
        if self._server is None:
            self._server = Server(self.recording.exchanges)
            weakref.finalize(self, self._server.stop)

    def close(self) -> None:
        """Stop, and close what is open."""
        server, self._server = self._server, None
        if server is not None:
            server.stop()


def replay(recording: Recording | FilePath, model: Model | None = None) -> Replay:
    """Return the model of a recording. ``model`` supplies the settings when the recording has none.

    Raises as ``Recording.read``, and ``MessageError`` when neither has them.
    """
    serving = serve(recording)
    if model is None:
        if serving.recording.model is None:
            raise MessageError("the recording does not name its model: pass model=")
        model = _model(serving.recording.model)
    return Replay(serving, model)


@final
class Replay(_SyncAsyncContext, Askable, LanguageModel):
    """A recorded model; ``server`` is the server that it asks. ``with`` is needed only to stop that at once."""

    def __init__(self, serving: ReplayServer, model: Model) -> None:
        """Keep both; nothing is started yet."""
        self.server = serving
        self._model = structs.replace(model, credentials=None, http=_ReplaySender(serving))

    @property
    def name(self) -> str:
        """The name of the model that was recorded."""
        return self._model.name

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the recorded model."""
        return self._model.capabilities

    def session(self) -> Session:
        """Start a conversation; all share the same recording."""
        return self._model.session()

    def open(self) -> None:
        """Start the server."""
        self.server.open()

    def close(self) -> None:
        """Stop the server."""
        self.server.close()


@final
class _ReplaySender(Sender):
    """Sends to a server of ours what was meant for a provider."""

    def __init__(self, serving: ReplayServer) -> None:
        self._server = serving

    async def send(self, call: HttpCall, timeouts: Timeouts, /) -> HttpResponse:
        self._server.open()
        parts = urlsplit(call.url)
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        return await http.send(None, structs.replace(call, url=self._server.url + path), timeouts)


_ANYWHERE: Final = "http://recorded"


def _model(asked: RecordedModel) -> Model:
    endpoint = Endpoint(
        provider_name=asked.provider_name,
        wire=asked.wire,
        url=_ANYWHERE + asked.url,
        stream_url=None if asked.stream_url is None else _ANYWHERE + asked.stream_url,
        names_model=asked.names_model,
        stream_field=asked.stream_field,
        headers=asked.headers,
        provider=asked.provider,
        stream_provider=asked.stream_provider,
    )
    row = providers.PROVIDERS.get(asked.provider_name)
    for known in row.endpoints if row else ():
        if known.wire == asked.wire:
            endpoint = structs.replace(endpoint, unwrap=known.unwrap)
    return Model(
        name=asked.name,
        id=asked.id,
        endpoint=endpoint,
        capabilities=asked.capabilities,
        settings=asked.settings,
        missing=asked.missing,
        metadata=asked.metadata,
    )
