"""Recorded conversations, played over real HTTP through a model: what is sent and what is read is what was recorded."""

from __future__ import annotations

import base64
import importlib
import json
import re
from collections import defaultdict
from typing import Any

import pytest
from msgspec import structs

import palaver as p
from palaver import wires
from palaver.models.endpoint import Endpoint
from palaver.models.failures import Retry
from palaver.models.http_model import Model
from palaver.models.language_model import Prompt
from palaver.models.playback import difference
from palaver.models.recording import Exchange, Recording
from palaver.models.replay import replay
from tests.corpus import CORPUS, spread

WIRES = [
    name if (CORPUS / "wires" / name).is_dir() else pytest.param(name, marks=pytest.mark.skip(reason="not recorded"))
    for name in wires.names()
]
PIECE = 700


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


def _recorded(record: dict[str, Any]) -> Exchange:
    if "stream_base64" in record:
        told = base64.b64decode(record["stream_base64"])
    else:
        told = record["stream"].encode() if "stream" in record else json.dumps(record["response"]).encode()
    return Exchange(
        method="POST",
        path=re.sub(r"^[^/]*", "", record["path"]),
        body=json.dumps(record["request"]).encode(),
        status=int(record["status"]),
        headers={"content-type": record["content_type"]},
        chunks=tuple(told[start : start + PIECE] for start in range(0, len(told), PIECE)),
    )


def _groups(wire: str, share: int = 1) -> list[list[dict[str, Any]]]:
    """The recordings of a wire, those of one conversation together; of one in `share` conversations.

    Long ones and short ones are two kinds of which each is shared out.
    """
    found = defaultdict(list)
    for file in sorted((CORPUS / "wires" / wire).glob("*.json")):
        stem = re.fullmatch(r"(.*)--(\d+)-[0-9a-f]+", file.stem)
        found[stem[1] if stem else file.stem].append((int(stem[2]) if stem else 0, file.name, file))
    chosen = spread(((name, str(len(group) > 1)) for name, group in found.items()), share)
    return [
        [json.loads(file.read_bytes()) for *_, file in sorted(group)] for name, group in found.items() if name in chosen
    ]


def _asked(wire: str, record: dict[str, Any]) -> tuple[Model, Prompt, bool]:
    request = wires.get(wire).decode_request(record["request"])
    endpoint = Endpoint(
        provider_name="recorded",
        wire=wire,
        url=f"http://recorded{_recorded(record).path}",
        names_model="model" in record["request"],
        stream_field="stream" in record["request"],
    )
    prompt = Prompt(
        messages=request.messages, tools=request.tools, settings=request.settings, provider=request.provider
    )
    model = Model(name=f"recorded/{request.model}", id=request.model or "m", endpoint=endpoint, retry=Retry(attempts=1))
    return model, prompt, bool(record.keys() & {"stream", "stream_base64"})


def _read(wire: str, exchange: Exchange, *, stream: bool) -> p.Response | str:
    """What reading the recorded bytes gives, without HTTP."""
    told = b"".join(exchange.chunks)
    try:
        if exchange.status != 200:
            return "ProviderError"
        if not stream:
            return wires.get(wire).decode_response(told)
        decoder = wires.get(wire).stream_decoder()
        decoder.feed(told)
        return decoder.finish()
    except p.PalaverError as error:
        return type(error).__name__


async def _answered(model: Any, prompt: Prompt, *, stream: bool) -> p.Response | str:
    try:
        async with model.session().ask(prompt, stream=stream) as answer:
            return (await answer.finish()).response
    except p.PalaverError as error:
        return "ProviderError" if isinstance(error, p.ProviderError) else type(error).__name__


@pytest.mark.anyio
@pytest.mark.law(2)
@pytest.mark.law(4)
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.share(2)
@pytest.mark.parametrize("share", [3, pytest.param(1, marks=pytest.mark.long)])
async def test_recorded_conversations_go_through_a_model_as_they_were(wire, share):
    same: list[bool] = []
    for group in _groups(wire, share):
        asked = [_asked(wire, record) for record in group]
        exchanges = [_as_sent(_recorded(record), *each, same) for record, each in zip(group, asked, strict=True)]
        async with replay(Recording(exchanges=tuple(exchanges)), asked[0][0]) as again:
            for exchange, (model, prompt, stream) in zip(exchanges, asked, strict=True):
                player = structs.replace(model, http=again._model.http)
                assert await _answered(player, prompt, stream=stream) == _read(wire, exchange, stream=stream)
            assert again.server.unplayed == ()
    # The others were edited by the provider's rules: an id that is too long, an odd tool, an empty list of content,
    # neighbours of one role, a setting that the model does not take.
    assert sum(same) >= 0.88 * len(same)


def _as_sent(recorded: Exchange, model: Model, prompt: Prompt, stream: bool, same: list[bool]) -> Exchange:
    """The recorded exchange, when our body is the one recorded; else with our body.

    A body that says the same in another spelling counts as the same.
    """
    written = model.session()._encoder
    ours = structs.replace(recorded, body=written.encode(prompt, stream=stream).body)
    exact = difference(recorded, ours) is None
    normal = importlib.import_module(f"tests.wires.{model.endpoint.wire}.forms").normal
    same.append(exact or normal(json.loads(recorded.body)) == normal(json.loads(ours.body)))
    return recorded if exact else ours
