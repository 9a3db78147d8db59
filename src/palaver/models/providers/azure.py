"""Azure OpenAI: the v1 API, and deployments under a dated version of the API.

Rules:

- The model's name is that of a deployment. The v1 API (``azure``) takes it in the body, as OpenAI does; the older one
  (``azure-deployments``) in the address, with the version that ``OPENAI_API_VERSION`` names.
- A key goes into the header ``api-key``; a token of Entra ID, in ``AZURE_OPENAI_AD_TOKEN``, into ``Authorization``.

Source: https://learn.microsoft.com/en-us/azure/ai-foundry/openai/reference;
https://learn.microsoft.com/en-us/azure/ai-foundry/openai/api-version-lifecycle

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

from palaver.core.errors import AuthenticationError
from palaver.models.endpoint import Credentials, HttpCall, first_set
from palaver.models.providers.row import AddressVariable, Provider, address, endpoint_for

_KEYS: Final = ("AZURE_OPENAI_API_KEY",)
_TOKENS: Final = ("AZURE_OPENAI_AD_TOKEN",)
_ENDPOINTS: Final = ("AZURE_OPENAI_ENDPOINT",)


@final
class AzureCredentials(Credentials):
    """A key, given or in ``AZURE_OPENAI_API_KEY``, else the token in ``AZURE_OPENAI_AD_TOKEN``."""

    def __init__(self, key: str | None = None, *, provider: str = "azure") -> None:
        """Hold the key."""
        self._key = key
        self._provider = provider

    async def headers(self, call: HttpCall, /) -> Mapping[str, str]:  # noqa: ARG002 (the same for every call)
        """The header with the key or the token. Raises ``AuthenticationError`` when there is neither."""
        key = (self._key or "").strip() or first_set(_KEYS)
        if key:
            return {"api-key": key}
        token = first_set(_TOKENS)
        if token:
            return {"Authorization": f"Bearer {token}"}
        raise AuthenticationError.no_key(self._provider, (*_KEYS, *_TOKENS))

    def __repr__(self) -> str:
        """Show where the key comes from, never the key."""
        return f"AzureCredentials({'given' if self._key else ' or '.join((*_KEYS, *_TOKENS))})"


def _credentials(provider: Provider, key: str | None) -> Credentials:
    return AzureCredentials(key, provider=provider.name)


def resource(text: str) -> str:
    """The address of a resource, however much of the path of an API was written behind it."""
    return address(address(text).removesuffix("/v1").removesuffix("/openai"))


_V1: Final = "{base}/openai/v1"
_PAGE: Final = "https://learn.microsoft.com/en-us/azure/ai-foundry/openai/reference"

ROWS: Final = (
    Provider(
        name="azure",
        base="{endpoint}",
        endpoints=(
            endpoint_for("azure", "openai_chat", f"{_V1}/chat/completions"),
            endpoint_for("azure", "openai_responses", f"{_V1}/responses"),
        ),
        keys=_KEYS,
        bases=_ENDPOINTS,
        address_variables={"endpoint": AddressVariable(_ENDPOINTS)},
        credentials=_credentials,
        clean=resource,
        page=_PAGE,
    ),
    Provider(
        name="azure-deployments",
        base="{endpoint}",
        endpoints=(
            endpoint_for(
                "azure-deployments",
                "openai_chat",
                "{base}/openai/deployments/{model}/chat/completions?api-version={version}",
            ),
        ),
        keys=_KEYS,
        bases=_ENDPOINTS,
        address_variables={
            "endpoint": AddressVariable(_ENDPOINTS),
            "version": AddressVariable(("OPENAI_API_VERSION",)),
        },
        credentials=_credentials,
        clean=resource,
        page=_PAGE,
    ),
)
