"""Endpoints as data: the address of a model, its credentials, and what the address adds to its wire.

Rules:

- An endpoint is a row; no code tests a provider's name. A vendor at another address is another row in
  ``palaver.models.providers``.
- Credentials are asked for headers for each request, since tokens expire. They change nothing else of the request; a
  signature covers all of it. Their ``repr`` never shows a key.

Credentials: an API key, or none:

- A key that is passed wins. Otherwise the environment variables are read, in order, for each request: a model can be
  made before its key is set, and a new key is picked up.
- The error for a missing key names the variables to set. Neither ``repr`` nor an error shows a key. White space around
  a key is removed, since no header can hold a line break.

Stability: experimental.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, final

from msgspec import Struct

from palaver.core.errors import AuthenticationError
from palaver.core.type_checks import check_arguments
from palaver.models.redaction import shown_headers, shown_url


class HttpCall(Struct, frozen=True):
    """One request as it goes out: ``chunks`` are its body, in order."""

    method: str
    url: str
    headers: Mapping[str, str]
    chunks: Sequence[bytes]

    def __repr__(self) -> str:
        """Show the address and the names of the headers, without keys."""
        return f"HttpCall({self.method!r}, {shown_url(self.url)!r}, headers={sorted(self.headers)})"


class Credentials(Protocol):
    """Authenticates requests."""

    @abstractmethod
    async def headers(self, call: HttpCall, /) -> Mapping[str, str]:
        """Return the headers to add to ``call``. Raises ``AuthenticationError`` when there is no key."""
        ...


class Unwrap(Protocol):
    """Unwraps the bytes of an answer from the endpoint's own framing."""

    @abstractmethod
    def feed(self, data: bytes, /) -> bytes:
        """Return the bytes of the wire that ``data`` completes."""
        ...

    @abstractmethod
    def finish(self) -> bytes:
        """Return the rest, at the end of the input. Raises ``DecodeError`` when the input broke off."""
        ...


class Counting(Struct, frozen=True, kw_only=True):
    """How an address counts the tokens of a prompt without answering it (``palaver.models.token_count``).

    ``url`` as in ``Endpoint``. ``takes`` are the fields of the body that are sent; ``None`` sends all that the wire
    writes. ``adds`` are further fields that it requires, texts in which ``{model}`` stands for the model. ``inside``
    names the fields that enclose the body, the outermost first; with ``base64`` the body is base64 text. ``found`` is
    the path of the number in the answer. ``named`` makes the id of the model there. ``page`` is the page with these
    facts.
    """

    url: str
    found: tuple[str, ...]
    takes: frozenset[str] | None = None
    adds: Mapping[str, str] = {}
    inside: tuple[str, ...] = ()
    base64: bool = False
    named: Callable[[str], str] = str
    page: str = ""


class Endpoint(Struct, frozen=True, kw_only=True):
    """Where and how to ask.

    ``url`` and ``stream_url`` (``None``: the same) hold ``{model}`` where the model stands in the address, in which all
    but unreserved characters are percent-encoded. ``wire`` may name a variant (``openai_chat:groq``). ``names_model``
    says that the body names the model, ``stream_field`` that the body says whether to stream. ``provider`` are fields
    of the body that this address wants, by the wire; ``stream_provider`` those that it wants when it streams, and may
    refuse otherwise (``stream_options``).
    """

    provider_name: str
    wire: str
    url: str
    stream_url: str | None = None
    names_model: bool = True
    stream_field: bool = True
    headers: Mapping[str, str] = {}
    provider: Mapping[str, Mapping[str, Any]] = {}
    stream_provider: Mapping[str, Mapping[str, Any]] = {}
    unwrap: Callable[[], Unwrap] | None = None
    """Makes the unwrapper of a streamed answer; whole answers are never wrapped."""
    counting: Counting | None = None
    """How the endpoint counts prompts; ``None`` where it cannot, or where that is not documented."""
    metadata: bool = True
    """Whether the address takes the wire's field for metadata."""
    listing: str | None = None
    """The URL that lists the server's models; ``None`` where there is none, or where it is not known."""

    def __repr__(self) -> str:
        """Show the address and the wire, without keys."""
        headers = f", headers={shown_headers(self.headers)}" if self.headers else ""
        return f"Endpoint({self.provider_name!r}, {self.wire!r}, {shown_url(self.url)!r}{headers})"


# -- credentials -----------------------------------------------------------------------------------


def first_set(variables: Sequence[str]) -> str | None:
    """The value of the first of these environment variables that is set and not blank."""
    return next((value for name in variables if (value := os.environ.get(name, "").strip())), None)


@final
class ApiKey(Credentials):
    """A key in a header.

    ``key`` is the key; without it, the first of the environment ``variables`` that is set has it. ``provider`` is named
    in the error for a missing key. ``header`` is the header that holds the key, and ``prefix`` is written before the
    key (``"Bearer "``). With ``needed=False`` a request without a key is sent without the header.
    """

    def __init__(
        self,
        key: str | None = None,
        *,
        provider: str = "",
        variables: Sequence[str] = (),
        header: str = "Authorization",
        prefix: str = "Bearer ",
        needed: bool = True,
    ) -> None:
        """Keep the key, or the names of the variables. Raises ``MessageError`` for arguments of another type."""
        check_arguments("ApiKey", ApiKey.__init__, locals())
        self._key = key
        self._provider = provider
        self._variables = tuple(variables)
        self._header = header
        self._prefix = prefix
        self._needed = needed

    async def headers(self, call: HttpCall, /) -> Mapping[str, str]:  # noqa: ARG002 (the same for every call)
        """Return the header with the key. Raises ``AuthenticationError`` when a key is needed and there is none."""
        key = self._key.strip() if self._key is not None else first_set(self._variables)
        if key:
            return {self._header: f"{self._prefix}{key}"}
        if self._needed:
            raise AuthenticationError.no_key(self._provider, self._variables)
        return {}

    def __repr__(self) -> str:
        """Show where the key goes and where it comes from, never the key."""
        source = "given" if self._key is not None else " or ".join(self._variables) or "none"
        return f"ApiKey({self._header}: {source})"


@final
class NoKey(Credentials):
    """No credentials, for servers that need none."""

    async def headers(self, call: HttpCall, /) -> Mapping[str, str]:  # noqa: ARG002 (nothing for every call)
        """Return no headers, for any ``call``."""
        return {}

    def __repr__(self) -> str:
        """``NoKey()``."""
        return "NoKey()"
