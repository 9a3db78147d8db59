"""A provider as one row of data.

Rules:

- A row has the provider's address, its endpoints (the first is the default), and the environment variables for the key
  and for another address, in order.
- ``{base}`` in an endpoint stands for the provider's address, which may hold further words in braces:
  ``address_variables`` defines them. ``{model}`` is filled in by the sender.
- ``endpoint_for`` knows the usual path of each wire. Whether tokens can be counted is part of each row, since not all
  servers of a wire count.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from msgspec import Struct, structs

from palaver.models.endpoint import ApiKey, Counting, Credentials, Endpoint


class AddressVariable(Struct, frozen=True):
    """A word in the address of a provider: the variables that hold it, and what it is where none is set.

    ``convert`` makes the word that stands in the address from what was set, where that is another one.
    """

    variables: tuple[str, ...]
    default: str | None = None
    convert: Callable[[str], str] = str


def address(text: str) -> str:
    """An address as it was set, without the slash at its end."""
    return text.rstrip("/")


def _api_key(provider: Provider, key: str | None) -> Credentials:
    return ApiKey(key, provider=provider.name, variables=provider.keys, needed=provider.needs_key)


def key_in(header: str, prefix: str = "") -> Credential:
    """Credentials that put the key into another header."""

    def made(provider: Provider, key: str | None) -> Credentials:
        return ApiKey(
            key,
            provider=provider.name,
            variables=provider.keys,
            header=header,
            prefix=prefix,
            needed=provider.needs_key,
        )

    return made


class Provider(Struct, frozen=True, kw_only=True):
    """One provider.

    ``keys`` and ``bases`` are environment variables for the key and for another address, the first that is set counts.
    ``credentials`` makes what shows who asks, from the row and the key that was given (``None``: none was). ``probe``
    is a path that a server on one's own machine answers. ``page`` is where the facts of the row were read.
    """

    name: str
    base: str
    endpoints: tuple[Endpoint, ...]
    keys: tuple[str, ...] = ()
    bases: tuple[str, ...] = ()
    address_variables: Mapping[str, AddressVariable] = {}
    needs_key: bool = True
    credentials: Callable[[Provider, str | None], Credentials] = _api_key
    clean: Callable[[str], str] = address
    """Completes an address as people write it in the variables."""
    probe: str | None = None
    page: str = ""


Credential: TypeAlias = Callable[[Provider, str | None], Credentials]

_PATHS: Final[dict[str, Endpoint]] = {
    "openai_chat": Endpoint(
        provider_name="",
        wire="",
        url="{base}/chat/completions",
        stream_provider={"openai_chat": {"stream_options": {"include_usage": True}}},
        listing="{base}/models",
    ),
    "openai_responses": Endpoint(provider_name="", wire="", url="{base}/responses", listing="{base}/models"),
    "anthropic_messages": Endpoint(
        provider_name="",
        wire="",
        url="{base}/v1/messages",
        headers={"anthropic-version": "2023-06-01"},
        listing="{base}/v1/models?limit=1000",
    ),
    "google_generate": Endpoint(
        provider_name="",
        wire="",
        url="{base}/v1beta/models/{model}:generateContent",
        stream_url="{base}/v1beta/models/{model}:streamGenerateContent?alt=sse",
        names_model=False,
        stream_field=False,
        listing="{base}/v1beta/models?pageSize=1000",
    ),
    "cohere_chat": Endpoint(
        provider_name="", wire="", url="{base}/v2/chat", listing="{base}/v1/models?endpoint=chat&page_size=1000"
    ),
    "ollama_chat": Endpoint(provider_name="", wire="", url="{base}/api/chat", listing="{base}/api/tags"),
}
"""Where each wire is spoken, behind the address of a provider; one that stands elsewhere says so in its row."""


def endpoint_for(
    provider: str, wire: str, url: str | None = None, *, counting: Counting | None = None, metadata: bool = True
) -> Endpoint:
    """The endpoint of a wire, at its usual path or at ``url``. Raises ``KeyError`` for a wire without a usual path."""
    standard_wires = _PATHS[wire.partition(":")[0]]
    return structs.replace(
        standard_wires,
        provider_name=provider,
        wire=wire,
        url=url or standard_wires.url,
        counting=counting,
        metadata=metadata,
        listing=standard_wires.listing if url is None else None,
    )


def standard_wires() -> tuple[str, ...]:
    """The wires that are spoken at a usual path."""
    return tuple(_PATHS)
