"""Amazon Bedrock: the Converse wire, and Anthropic's Messages behind ``invoke``.

Rules:

- A bearer token, given or in ``AWS_BEARER_TOKEN_BEDROCK``, wins. Else the request is signed (Signature Version 4) with
  the credentials that botocore finds: environment, profile, container, machine. They are looked up once, in a thread,
  and renewed when they expire.
- The path is signed encoded twice, as Amazon checks it: a ``:`` in a model's id is sent as ``%3A`` and signed as
  ``%253A``. Only the host, the date and a session's token are signed beside the path and the body, so that what a
  client or a proxy adds does no harm. The body is hashed over its chunks.
- The region is that in the address; behind another address, that of ``AWS_REGION`` or ``AWS_DEFAULT_REGION``.
- ``invoke`` wraps each event of a stream in a frame, ``{"bytes": base64}``. An exception frame becomes an ``error``
  event, so that the wire's decoder tells it.
- Tokens are counted for foundation models: an inference profile is asked for by the id of its model, without the
  geography in front (``eu.``, ``global.``).

Source: https://docs.aws.amazon.com/bedrock/latest/APIReference/API_Operations_Amazon_Bedrock_Runtime.html;
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html

Stability: experimental.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Mapping
from hashlib import sha256
from importlib import import_module
from threading import Lock
from typing import Any, Final, final

from anyio import to_thread
from msgspec import MsgspecError, Struct, json

from palaver.core.errors import AuthenticationError, DecodeError, excerpt, install
from palaver.models.endpoint import Counting, Credentials, Endpoint, HttpCall, Unwrap, first_set
from palaver.models.providers.row import AddressVariable, Provider
from palaver.stream import sse
from palaver.stream.event_stream import EventStreamReader
from palaver.stream.frames import Frame

_BEARER: Final = "AWS_BEARER_TOKEN_BEDROCK"
_REGIONS: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")
_GEOGRAPHIES: Final = ("us.", "us-gov.", "eu.", "apac.", "jp.", "au.", "ca.", "global.")
_REGION: Final = re.compile(r"//bedrock-runtime(?:-fips)?\.([a-z0-9-]+)\.")


# -- who asks --


@final
class AwsCredentials(Credentials):
    """A bearer token, or a signature with what botocore finds. ``token`` is the bearer token, where one is given."""

    def __init__(self, token: str | None = None, *, provider: str = "bedrock", region: str | None = None) -> None:
        """Hold the token. ``region`` is signed for instead of the one in the address."""
        self._token = token
        self._provider = provider
        self._region = region
        self._lock = Lock()
        self._found: Any = None  # botocore's, which renew themselves

    async def headers(self, call: HttpCall, /) -> Mapping[str, str]:
        """The bearer token, or a signature. Raises ``AuthenticationError`` when neither can be made."""
        token = (self._token or "").strip() or first_set((_BEARER,))
        if token:
            return {"Authorization": f"Bearer {token}"}
        return await to_thread.run_sync(self._signed, call, abandon_on_cancel=True)

    def __repr__(self) -> str:
        """Show what it signs with, never a key."""
        return f"AwsCredentials({'bearer token' if self._token else 'bearer token or signature'})"

    def _signed(self, call: HttpCall) -> dict[str, str]:
        within = _REGION.search(call.url)
        region = self._region or (within[1] if within else None) or first_set(_REGIONS)
        if region is None:
            raise AuthenticationError.unasked(
                self._provider, f"no region for the signature: set {' or '.join(_REGIONS)}"
            )
        return sign(call, self._keys(), region)

    def _keys(self) -> Any:
        """What to sign with now. Looking it up, and renewing it, may take a second or two."""
        try:
            session: Any = import_module("botocore.session")
            errors: Any = import_module("botocore.exceptions")
        except ImportError:
            reason = f"signing needs botocore, which is not installed: {install('bedrock')}; or set {_BEARER}"
            raise AuthenticationError.unasked(self._provider, reason) from None
        try:
            with self._lock:
                if self._found is None:
                    self._found = session.Session().get_credentials()
                found: Any = self._found
            if found is not None:
                return found.get_frozen_credentials()
        except errors.BotoCoreError as error:
            raise AuthenticationError.unasked(self._provider, excerpt(str(error), 200)) from None
        reason = f"no credentials: set {_BEARER}, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
        raise AuthenticationError.unasked(self._provider, reason)


def sign(call: HttpCall, keys: Any, region: str, service: str = "bedrock") -> dict[str, str]:
    """The headers that sign a call, with Signature Version 4. ``keys`` are botocore's."""
    digest = sha256()
    for chunk in call.chunks:
        digest.update(chunk)

    def payload(_: object) -> str:
        return digest.hexdigest()

    request: Any = import_module("botocore.awsrequest").AWSRequest(method=call.method, url=call.url)
    signer: Any = import_module("botocore.auth").SigV4Auth(keys, service, region)
    signer.payload = payload
    signer.add_auth(request)
    return dict(request.headers.items())


# -- what a stream is wrapped in --


class _Chunk(Struct):
    bytes: str


class _Typed(Struct):
    type: str = ""


@final
class InvokeStream(Unwrap):
    """The server-sent events in a stream of ``invoke-with-response-stream``."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._reader = EventStreamReader()

    def feed(self, data: bytes, /) -> bytes:
        """The events in the frames that these bytes complete. Raises the ``DecodeError`` that an earlier call met."""
        return b"".join(map(_event, self._reader.feed(data)))

    def finish(self) -> bytes:
        """Nothing. Raises ``DecodeError`` when the stream was damaged, or ended inside a frame."""
        return b"".join(map(_event, self._reader.finish()))


def _event(frame: Frame) -> bytes:
    if frame.kind != "event":
        return _failure(frame)
    try:
        data = b64decode(json.decode(frame.data, type=_Chunk).bytes, validate=True)
        name = json.decode(data, type=_Typed).type
    except (MsgspecError, ValueError):
        raise DecodeError("a frame without an event", path=excerpt(frame.name), source="event stream") from None
    return sse.write(data, sse.nameable(name))


def _failure(frame: Frame) -> bytes:
    """An exception as the wire's own ``error`` event: its name is the type, its text the message."""
    try:
        message = json.decode(frame.data, type=dict[str, Any]).get("message")
    except (MsgspecError, ValueError):
        message = None
    text = message if isinstance(message, str) else frame.data.decode("utf-8", "replace")
    return sse.write(json.encode({"type": "error", "error": {"type": frame.name, "message": text}}), "error")


# -- the rows --


def _credentials(provider: Provider, key: str | None) -> Credentials:
    return AwsCredentials(key, provider=provider.name)


def foundation(model_id: str) -> str:
    """The id of the model that an inference profile leads to; any other id as it is."""
    return next((model_id.removeprefix(each) for each in _GEOGRAPHIES if model_id.startswith(each)), model_id)


def _counting(inside: str, *more: str, takes: frozenset[str] | None = None) -> Counting:
    return Counting(
        url="{base}/model/{model}/count-tokens",
        inside=("input", inside, *more),
        base64=bool(more),
        takes=takes,
        named=foundation,
        found=("inputTokens",),
        page="https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_CountTokens.html",
    )


def _row(name: str, endpoint: Endpoint) -> Provider:
    return Provider(
        name=name,
        base="https://bedrock-runtime.{region}.amazonaws.com",
        endpoints=(endpoint,),
        keys=(_BEARER,),
        bases=("AWS_ENDPOINT_URL_BEDROCK_RUNTIME",),
        address_variables={"region": AddressVariable(_REGIONS)},
        credentials=_credentials,
        page="https://docs.aws.amazon.com/bedrock/latest/userguide/inference.html",
    )


ROWS: Final = (
    _row(
        "bedrock",
        Endpoint(
            provider_name="bedrock",
            wire="bedrock_converse",
            url="{base}/model/{model}/converse",
            stream_url="{base}/model/{model}/converse-stream",
            names_model=False,
            stream_field=False,
            counting=_counting(
                "converse", takes=frozenset({"messages", "system", "toolConfig", "additionalModelRequestFields"})
            ),
        ),
    ),
    _row(
        "bedrock-anthropic",
        Endpoint(
            provider_name="bedrock-anthropic",
            wire="anthropic_messages:bedrock",
            url="{base}/model/{model}/invoke",
            stream_url="{base}/model/{model}/invoke-with-response-stream",
            names_model=False,
            stream_field=False,
            provider={"anthropic_messages": {"anthropic_version": "bedrock-2023-05-31"}},
            unwrap=InvokeStream,
            counting=_counting("invokeModel", "body"),
        ),
    ),
)
