"""Which models are asked for the name that a client sent: pure, made once for each configuration.

Stability: experimental.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from msgspec import structs

from palaver.core.errors import UnknownNameError
from palaver.gateway.config import Target
from palaver.models import Model, providers
from palaver.models.fallback import Fallback
from palaver.models.names import model

if TYPE_CHECKING:
    from palaver.gateway.client_api import ClientApi
    from palaver.gateway.config import GatewayConfig
    from palaver.models.http import Sender

FindKey: TypeAlias = "Callable[[str], str | None]"
_KNOWN: Final = 1000
"""How many names are kept with their models."""


class Chain(NamedTuple):
    """The models for a name, and the fallback that knows which of them rest, and what an error means for the others."""

    models: tuple[Model, ...]
    fallback: Fallback


class Router:
    """Finds the models for a name."""

    def __init__(self, config: GatewayConfig, find_key: FindKey, http: Sender) -> None:
        """Compile the patterns. ``find_key`` finds the key of a provider; ``http`` sends the requests of all models."""
        self._config, self._find_key, self._http = config, find_key, http
        table = {name: tuple(map(_target, to if isinstance(to, list) else [to])) for name, to in config.models.items()}
        self._exact = {name: targets for name, targets in table.items() if "*" not in name}
        patterns = sorted((name for name in table if "*" in name), key=lambda name: len(name.replace("*", "")))
        self._patterns = [(_compiled(name), table[name]) for name in reversed(patterns)]
        self._known: dict[tuple[str, str], Chain] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The names that the configuration lists, without patterns."""
        return tuple(self._exact)

    def find(self, name: str, api: ClientApi) -> Chain:
        """Return the models for a name.

        A name without a provider means that of ``api``. A provider that speaks the wire of ``api`` is asked in it.
        Raises ``UnknownNameError``.
        """
        found = self._known.get((name, api.wire))
        if found is None:
            models = tuple([self._model(each, api.wire) for each in self._targets(name, api.provider_name)])
            found = Chain(models, Fallback(models))
            if len(self._known) >= _KNOWN:
                self._known.clear()
            self._known[name, api.wire] = found
        return found

    def _targets(self, name: str, provider: str) -> tuple[Target, ...]:
        first, _, rest = name.partition("/")
        bare = rest if first in providers.PROVIDERS else name
        targets = self._exact.get(name)
        if targets is None:
            targets = next((each for pattern, each in self._patterns if pattern.fullmatch(name)), None)
        if targets is not None:
            return tuple([structs.replace(each, model=each.model.replace("*", bare)) for each in targets])
        if self._config.only_listed or not name:
            raise UnknownNameError.among(f"no model {name!r}", self.names, name)
        return (Target(model=name if bare != name else f"{provider}/{name}"),)

    def _model(self, target: Target, wire: str) -> Model:
        provider = target.model.partition("/")[0]
        chosen = target.wire or (wire if _speaks(provider, wire) else None)
        key = self._find_key(provider) if target.key is None else os.environ.get(target.key)
        made = model(target.model, key=key, url=target.url, wire=chosen, text_calls=target.text_calls)
        return structs.replace(made, http=self._http)


def _target(to: str | Target) -> Target:
    return Target(model=to) if isinstance(to, str) else to


def _speaks(provider: str, wire: str) -> bool:
    row = providers.PROVIDERS.get(provider)
    return row is not None and any(each.wire.partition(":")[0] == wire for each in row.endpoints)


def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)
