"""Models by name: ``model("anthropic/claude-…")``.

Rules:

- A name is ``provider/id``; the id may hold slashes. Without a name, ``PALAVER_MODEL`` is used.
- Arguments win over the environment, which wins over the provider's row. An unknown provider is any server at ``url``:
  it speaks plain Chat Completions unless ``wire`` says otherwise, and gets only a key that is passed.
- Making a model sends nothing and needs no key; the key is read for the first request.

Stability: experimental.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Final

import anyio
from msgspec import Struct, structs

from palaver import wires
from palaver.core.errors import MessageError, UnknownNameError
from palaver.core.request import Settings
from palaver.core.type_checks import check_arguments
from palaver.models import providers
from palaver.models.catalogue import Capabilities, Missing, capabilities_of, catalogue
from palaver.models.endpoint import Credentials, Endpoint, first_set
from palaver.models.failures import Retry
from palaver.models.http import Http, Timeouts, checked_url
from palaver.models.http_model import Model
from palaver.models.providers import Provider
from palaver.models.providers.compatible import PLAIN
from palaver.models.providers.row import endpoint_for, standard_wires
from palaver.stream import local

DEFAULT: Final = "PALAVER_MODEL"
"""The environment variable that names the default model."""


class ResolvedModel(Struct, frozen=True, kw_only=True):
    """The result of resolving a name. ``id`` is the provider's id of the model."""

    name: str
    provider: str
    id: str
    endpoint: Endpoint
    credentials: Credentials


def resolve(
    name: str | None = None,
    *,
    key: str | None = None,
    url: str | None = None,
    wire: str | None = None,
) -> ResolvedModel:
    """Resolve a name. Raises ``UnknownNameError`` for an unknown name, provider or wire."""
    name = name or os.environ.get(DEFAULT, "").strip()
    wire = None if wire is None else wires.full_name(wire)
    if not name:
        raise UnknownNameError(f"no model is named: pass one, such as “anthropic/claude-…”, or set {DEFAULT}")
    provider, _, model_id = name.partition("/")
    if url is None and provider not in providers.PROVIDERS and (meant := _meant(name)) is not None:
        raise UnknownNameError(f"{name!r} is not a model name; did you mean {meant}?")
    if not provider or not model_id:
        raise UnknownNameError(f"{name!r} is not a model name: the form is provider/id; {_provider_list()}")
    row = providers.find(provider) if url is None or provider in providers.PROVIDERS else _any_server(provider, wire)
    endpoint = _with_address(row, _endpoint_for(row, wire, anywhere=url is not None), url)
    return ResolvedModel(
        name=name, provider=provider, id=model_id, endpoint=endpoint, credentials=row.credentials(row, key)
    )


_PROVIDER_ALIASES: Final = {"gemini": "google", "claude": "anthropic", "gpt": "openai", "grok": "xai"}


def _meant(name: str) -> str | None:
    """Return the name that another spelling means: with a colon, in capitals, or without its provider."""
    for mark in "/:":
        first, found, model_id = name.partition(mark)
        provider = _PROVIDER_ALIASES.get(first.lower(), first.lower())
        if found and model_id and provider in providers.PROVIDERS:
            return f"{provider}/{model_id}"
    for card in catalogue().cards if "/" not in name else ():
        if name.lower().startswith(card.prefix):
            return f"{card.providers[0]}/{name.lower()}"
    return None


def _provider_list() -> str:
    return f"the providers are {', '.join(providers.names())}"


def _any_server(name: str, wire: str | None) -> Provider:
    spoken = _checked_wire(wire or f"openai_chat:{PLAIN}")
    return Provider(name=name, base="", endpoints=(endpoint_for(name, spoken),), needs_key=False)


def _checked_wire(wire: str) -> str:
    """A wire that is spoken at a usual path, with a variant that there is."""
    wires.get(wire)
    if wire.partition(":")[0] not in standard_wires():
        raise UnknownNameError(f"{wire} has no standard address; these wires have one: {', '.join(standard_wires())}")
    return wire


def _endpoint_for(row: Provider, wire: str | None, *, anywhere: bool) -> Endpoint:
    """The endpoint for a wire. Another variant of a wire that the row speaks is spoken at the same place."""
    if wire is None:
        return row.endpoints[0]
    wires.get(wire)
    base, _, variant = wire.partition(":")
    for endpoint in row.endpoints:
        if endpoint.wire.partition(":")[0] == base:
            return structs.replace(endpoint, wire=wire) if variant else endpoint
    if anywhere:
        return endpoint_for(row.name, _checked_wire(wire))
    spoken = ", ".join(endpoint.wire for endpoint in row.endpoints)
    raise UnknownNameError(f"{row.name} does not speak {wire!r}; it speaks {spoken}")


def _with_address(row: Provider, endpoint: Endpoint, url: str | None) -> Endpoint:
    """The endpoint with its address filled in."""
    told = url or first_set(row.bases)
    base = _fill_address(row, row.clean(told) if told else row.base)
    if not base.startswith(("http://", "https://")):
        raise UnknownNameError(f"{row.name}: {base!r} is not a URL that starts with http:// or https://")

    def at(address: str) -> str:
        return _fill_address(row, address).replace("{base}", base)

    counting = endpoint.counting
    return structs.replace(
        endpoint,
        url=at(endpoint.url),
        stream_url=None if endpoint.stream_url is None else at(endpoint.stream_url),
        counting=None if counting is None else structs.replace(counting, url=at(counting.url)),
        listing=None if endpoint.listing is None else at(endpoint.listing),
    )


def _fill_address(row: Provider, address: str) -> str:
    """An address with the words in it that the environment says."""
    for word, place in row.address_variables.items():
        if f"{{{word}}}" in address:
            value = first_set(place.variables) or place.default
            if value is None:
                hint = "" if f"{{{word}}}" in row.endpoints[0].url else ", or pass url="
                raise UnknownNameError(f"{row.name}: no {word}: set {' or '.join(place.variables)}{hint}")
            address = address.replace(f"{{{word}}}", place.convert(value))
    return address


def model(
    name: str | None = None,
    *,
    key: str | None = None,
    url: str | None = None,
    wire: str | None = None,
    settings: Settings | None = None,
    retry: Retry | None = None,
    timeouts: Timeouts | None = None,
    missing: Missing = "drop",
    capabilities: Capabilities | None = None,
    http: Http | None = None,
    text_calls: str | None = None,
    metadata: Collection[str] = frozenset(),
) -> Model:
    """Return the model of that name.

    ``name`` is ``provider/id``; without one the environment's ``PALAVER_MODEL`` is used. ``settings`` are defaults of
    every prompt, ``retry`` is the retry policy, ``timeouts`` limit each step, and ``missing`` says whether content that
    the model does not support is dropped (``"drop"``) or refused. ``http`` is a pool of connections of your own.
    ``key`` and ``url`` override the environment; ``wire`` chooses another wire that the provider speaks
    (``openai_chat``), or the variant of a server (``openai_chat:vllm``). ``capabilities`` are those of the catalogue,
    unless given. ``text_calls`` names the format in which a model writes its calls as text, where its server does not
    read them (``"lfm2"``; ``palaver.stream.local.names()``). ``metadata`` names the keys of the messages' metadata that
    may be sent to the provider (``{"session_id"}``). Raises ``UnknownNameError`` for an unknown name, provider, wire or
    format.
    """
    check_arguments("model", model, locals())
    if text_calls is not None:
        local.get(text_calls)
    found = resolve(name, key=key, url=url, wire=wire)
    return Model(
        name=found.name,
        id=found.id,
        endpoint=found.endpoint,
        credentials=found.credentials,
        capabilities=capabilities_of(found.name) if capabilities is None else capabilities,
        settings=settings or Settings(),
        retry=retry or Retry(),
        timeouts=timeouts or Timeouts(),
        missing=missing,
        http=http,
        text_calls=text_calls,
        metadata=metadata,
    )


# -- what there is ---------------------------------------------------------------------------------


def available() -> tuple[str, ...]:
    """Return the names of the providers for which a key is set in the environment. Sends nothing."""
    return tuple(name for name, row in providers.PROVIDERS.items() if row.needs_key and first_set(row.keys))


async def local_servers(*, seconds: float = 0.5) -> tuple[str, ...]:
    """Return the names of the providers whose server on this machine answers within ``seconds``."""
    import httpx  # noqa: PLC0415 (costs 50 ms, and is needed here only)

    answered: Mapping[str, bool] = {row.name: False for row in providers.PROVIDERS.values() if row.probe}
    found = dict(answered)

    async def probe(client: httpx.AsyncClient, row: Provider) -> None:
        told = first_set(row.bases)
        base = row.clean(told) if told else row.base
        try:
            answer = await client.get(checked_url(f"{base}{row.probe}"))
        except (httpx.HTTPError, MessageError):
            return
        found[row.name] = answer.status_code < 500  # noqa: PLR2004 (a server that asks for a key is there)

    async with httpx.AsyncClient(timeout=seconds, trust_env=False) as client, anyio.create_task_group() as tasks:
        for name in answered:
            tasks.start_soon(probe, client, providers.PROVIDERS[name])
    return tuple(name for name, there in found.items() if there)
