"""The official client: a `bedrock-runtime` client of botocore's that reads a stream from a server on loopback."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator
from typing import Any

import botocore.session
from botocore.config import Config

from tests.loopback import serve
from tests.wires.bedrock_converse.streams import Event, joined

_SESSION = botocore.session.Session()
_ASKED = {"modelId": "m", "messages": [{"role": "user", "content": [{"text": "hi"}]}]}


def events(data: bytes) -> list[Event]:
    """Return the client's own events, with bytes as base64 text again. Raises the client's error."""
    with serve(data, content_type="application/vnd.amazon.eventstream") as loopback, _client(loopback.url) as client:
        body = client.converse_stream(**_ASKED)["stream"]
        with contextlib.closing(body):
            return [(name, _as_json(fields)) for event in body for name, fields in event.items()]


def assembled(data: bytes) -> dict[str, Any]:
    """Return the answer of the client's events, as the body of an unstreamed one."""
    return joined(events(data))


@contextlib.contextmanager
def _client(url: str) -> Iterator[Any]:
    client = _SESSION.create_client(
        "bedrock-runtime",
        region_name="us-east-1",
        endpoint_url=url,
        aws_access_key_id="nobody",
        aws_secret_access_key="nothing",
        config=Config(retries={"total_max_attempts": 1}, proxies={}),
    )
    with contextlib.closing(client):
        yield client


def _as_json(value: Any) -> Any:
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case dict():
            return {key: _as_json(each) for key, each in value.items()}
        case list():
            return [_as_json(each) for each in value]
        case _:
            return value
