"""Google Vertex AI: Gemini, and Anthropic's Messages behind ``rawPredict``.

Rules:

- Who asks is shown by a token that google-auth gets: from the file that ``GOOGLE_APPLICATION_CREDENTIALS`` names, from
  ``gcloud``, or from the machine. It is got in a thread, and another one before it expires. A token that was given is
  sent as it is.
- Project and location stand in the address. ``global`` and the multi-regions have hosts of their own.

Source: https://cloud.google.com/vertex-ai/generative-ai/docs/learn/locations;
https://cloud.google.com/vertex-ai/generative-ai/docs/partner-models/claude/use-claude

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from threading import Lock
from typing import Any, Final, final

from anyio import to_thread

from palaver.core.errors import AuthenticationError, TransportError, excerpt, install
from palaver.models.endpoint import Counting, Credentials, Endpoint, HttpCall
from palaver.models.providers.row import AddressVariable, Provider

_SCOPES: Final = ("https://www.googleapis.com/auth/cloud-platform",)
_LOCATIONS: Final = ("GOOGLE_CLOUD_LOCATION", "GOOGLE_CLOUD_REGION", "CLOUD_ML_REGION")
_HOSTS: Final = {
    "global": "aiplatform.googleapis.com",
    "us": "aiplatform.us.rep.googleapis.com",
    "eu": "aiplatform.eu.rep.googleapis.com",
}


# -- who asks --


@final
class GoogleCredentials(Credentials):
    """A token of google-auth. ``token`` is sent instead, where one is given."""

    def __init__(self, token: str | None = None, *, provider: str = "vertex") -> None:
        """Hold the token."""
        self._token = token
        self._provider = provider
        self._lock = Lock()
        self._found: Any = None

    async def headers(self, call: HttpCall, /) -> Mapping[str, str]:  # noqa: ARG002 (the same for every call)
        """The token, and the project that is to pay, where the credentials name one.

        Raises ``AuthenticationError`` when there are no credentials or they are refused, and ``TransportError`` when
        nobody answers who could give a token.
        """
        if self._token is not None and self._token.strip():
            return {"Authorization": f"Bearer {self._token.strip()}"}
        return await to_thread.run_sync(self._fetched, abandon_on_cancel=True)

    def __repr__(self) -> str:
        """Show where the token comes from, never the token."""
        return f"GoogleCredentials({'given' if self._token else 'google-auth'})"

    def _fetched(self) -> dict[str, str]:
        try:
            auth: Any = import_module("google.auth")
            errors: Any = import_module("google.auth.exceptions")
            transport: Any = import_module("google.auth.transport.requests")
        except ImportError:
            reason = f"a token needs google-auth, which is not installed: {install('google')}"
            raise AuthenticationError.unasked(self._provider, reason) from None
        try:
            with self._lock:
                if self._found is None:
                    self._found, _ = auth.default(scopes=_SCOPES)
                if self._found.token_state.name != "FRESH":  # a few minutes before it expires
                    request = transport.Request()
                    try:
                        self._found.refresh(request)
                    finally:
                        request.session.close()
                return _headers(self._found)
        except errors.TransportError as error:
            raise TransportError(f"{self._provider}: no token: {excerpt(str(error), 200)}") from None
        except errors.GoogleAuthError as error:
            raise AuthenticationError.unasked(self._provider, f"no token: {excerpt(str(error), 200)}") from None


def _headers(found: Any) -> dict[str, str]:
    made = {"Authorization": f"Bearer {found.token}"}
    payer = getattr(found, "quota_project_id", None)
    return {**made, "x-goog-user-project": str(payer)} if payer else made


# -- the rows --


def _host(location: str) -> str:
    return _HOSTS.get(location, f"{location}-aiplatform.googleapis.com")


def _credentials(provider: Provider, key: str | None) -> Credentials:
    return GoogleCredentials(key, provider=provider.name)


def _models(publisher: str) -> str:
    return f"{{base}}/v1/projects/{{project}}/locations/{{location}}/publishers/{publisher}/models"


def _row(name: str, wire: str, publisher: str, verbs: tuple[str, str], **more: Any) -> Provider:
    path = f"{_models(publisher)}/{{model}}:"
    endpoint = Endpoint(
        provider_name=name,
        wire=wire,
        url=path + verbs[0],
        stream_url=path + verbs[1],
        names_model=False,
        **more,
    )
    return Provider(
        name=name,
        base="https://{host}",
        endpoints=(endpoint,),
        bases=("GOOGLE_VERTEX_BASE_URL",),
        address_variables={
            "host": AddressVariable(_LOCATIONS, "global", _host),
            "location": AddressVariable(_LOCATIONS, "global"),
            "project": AddressVariable(("GOOGLE_CLOUD_PROJECT", "ANTHROPIC_VERTEX_PROJECT_ID")),
        },
        credentials=_credentials,
        page="https://cloud.google.com/vertex-ai/docs/reference/rest",
    )


ROWS: Final = (
    _row(
        "vertex",
        "google_generate",
        "google",
        ("generateContent", "streamGenerateContent?alt=sse"),
        counting=Counting(
            url=f"{_models('google')}/{{model}}:countTokens",
            takes=frozenset({"contents", "systemInstruction", "tools", "generationConfig"}),
            found=("totalTokens",),
            page="https://cloud.google.com/vertex-ai/generative-ai/docs/model-reference/count-tokens",
        ),
        stream_field=False,
    ),
    _row(
        "vertex-anthropic",
        "anthropic_messages:vertex",
        "anthropic",
        ("rawPredict", "streamRawPredict"),
        counting=Counting(
            url=f"{_models('anthropic')}/count-tokens:rawPredict",
            takes=frozenset(
                {
                    "anthropic_version",
                    "messages",
                    "output_config",
                    "system",
                    "thinking",
                    "tool_choice",
                    "tools",
                }
            ),
            adds={"model": "{model}"},
            found=("input_tokens",),
            page="https://cloud.google.com/vertex-ai/generative-ai/docs/partner-models/claude/count-tokens",
        ),
        provider={"anthropic_messages": {"anthropic_version": "vertex-2023-10-16"}},
    ),
)
