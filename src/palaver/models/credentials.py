"""Credentials: an API key, or none.

Rules:

- A key that is passed wins. Otherwise the environment variables are read, in order, for each request: a model can be
  made before its key is set, and a new key is picked up.
- The error for a missing key names the variables to set. Neither ``repr`` nor an error shows a key. White space around
  a key is removed, since no header can hold a line break.

Stability: experimental.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import final

from palaver.core.errors import AuthenticationError
from palaver.core.type_checks import check_arguments
from palaver.models.endpoint import Credentials, HttpCall


def first_set(variables: Sequence[str]) -> str | None:
    """The value of the first of these environment variables that is set and not blank."""
    return next((value for name in variables if (value := os.environ.get(name, "").strip())), None)


@final
class ApiKey(Credentials):
    """A key in a header. ``variables`` name where it is looked up, where none is given."""

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
        """Hold the key, or where to look for it. ``provider`` is named when it is missing."""
        check_arguments("ApiKey", ApiKey.__init__, locals())
        self._key = key
        self._provider = provider
        self._variables = tuple(variables)
        self._header = header
        self._prefix = prefix
        self._needed = needed

    async def headers(self, call: HttpCall, /) -> Mapping[str, str]:  # noqa: ARG002 (the same for every call)
        """The header with the key. Raises ``AuthenticationError`` when a key is needed and there is none."""
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
    """Shows nothing: for servers that ask for nothing."""

    async def headers(self, call: HttpCall, /) -> Mapping[str, str]:  # noqa: ARG002 (nothing for every call)
        """No headers."""
        return {}

    def __repr__(self) -> str:
        """``NoKey()``."""
        return "NoKey()"
