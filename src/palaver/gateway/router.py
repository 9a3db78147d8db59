"""Which models are asked for the name that a client sent: pure, made once for each configuration.

Rules:

- Models are asked in the order of their places. Of those that share a place by ``weight``, rendezvous hashing of the
  session chooses the first and orders the rest: no state, the same choice in every process, and a model that is added
  or left out moves only its own share of the sessions.
- Models that do not answer (``Health``) are asked last.

Stability: experimental.
"""

from __future__ import annotations

import hashlib
import math
import os
import random
import re
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from msgspec import structs

from palaver.core.errors import DecodeError, PalaverError, UnknownNameError
from palaver.gateway.config import Target
from palaver.gateway.patterns import LONGEST_NAME, match_pieces
from palaver.models import Model, Retry, Timeouts, providers
from palaver.models.names import model

if TYPE_CHECKING:
    from palaver.gateway.client_api import ClientApi
    from palaver.gateway.config import GatewayConfig
    from palaver.gateway.health import Health, TargetHealth
    from palaver.models.http import Sender

FindKey: TypeAlias = "Callable[[str], str | None]"
_WORD: Final = re.compile(r"[A-Za-z0-9._-]+")
"""What may be the name of a provider."""
_VARIABLE: Final = re.compile(r"[A-Z_][A-Z0-9_]{0,63}")
_KNOWN: Final = 1000
"""How many names are kept with their models."""
_LONGEST_WAIT: Final = 10.0
"""Seconds. A client that is asked to wait for longer does that itself."""
_RETRIES: Final = 2
"""For a model that stands alone."""


class Candidate(NamedTuple):
    """A model that may be asked.

    ``identity`` tells it from others in each process. ``label`` is what the configuration calls it; ``None`` where it
    does not.
    """

    model: Model
    health: TargetHealth
    identity: str = ""
    label: str | None = None
    weight: float = 1.0


class Chain(NamedTuple):
    """The models for a name, place by place. ``route`` is the name or the pattern that led to them."""

    places: tuple[tuple[Candidate, ...], ...]
    route: str | None = None

    def order(self, session: Callable[[], str | None]) -> list[Candidate]:
        """Return the models in the order to ask. ``session`` is called when a choice is to be made."""
        ordered = list[Candidate]()
        for place in self.places:
            ordered += place if len(place) == 1 else _by_weight(place, session())
        if len(ordered) > 1:
            ordered.sort(key=lambda each: not each.health.available)
        return ordered


class GatewayRetry(Retry, frozen=True, kw_only=True):
    """A policy that does not wait where the provider asks for more than ``longest`` seconds: the client is told."""

    def wait(self, attempt: int, error: PalaverError, chance: float) -> float | None:
        """Return the seconds to wait, or ``None`` to give up."""
        asked: object = getattr(error, "retry_after", None)
        if isinstance(asked, int | float) and asked > self.longest:
            return None
        return Retry.wait(self, attempt, error, chance)


class Router:
    """Finds the models for a name."""

    def __init__(self, config: GatewayConfig, find_key: FindKey, health: Health, http: Sender | None = None) -> None:
        """Compile the patterns. ``find_key`` finds the key of a provider; ``http`` sends the requests of all models."""
        self._config, self._find_key, self._health, self._http = config, find_key, health, http
        table = {name: tuple(map(_target, to if isinstance(to, list) else [to])) for name, to in config.models.items()}
        self._exact = {name: targets for name, targets in table.items() if "*" not in name}
        patterns = sorted((name for name in table if "*" in name), key=lambda name: len(name.replace("*", "")))
        self._patterns = [(name.split("*"), name, table[name]) for name in reversed(patterns)]
        self._known: dict[tuple[str, str], Chain] = {}

    def check(self) -> None:
        """Raise ``DecodeError`` for an entry of the configuration that can never answer, which it names."""
        for name, targets in (*self._exact.items(), *((written, each) for _, written, each in self._patterns)):
            path = f"models.{name}"
            if not targets:
                raise DecodeError("it names no model", path=path)
            for each in targets:
                if each.model.count("*") > name.count("*"):
                    raise DecodeError(f"{each.model!r} has more * than the name", path=path)
                if each.key is not None and each.key not in os.environ:
                    raise DecodeError(_unset(each.key), path=path)
                try:
                    if "*" not in each.model:
                        self._model(each, each.wire or "", alone=True)
                except PalaverError as error:
                    raise DecodeError(str(error), path=path) from None

    @property
    def names(self) -> tuple[str, ...]:
        """The names that the configuration lists, without patterns."""
        return tuple(self._exact)

    def find(self, name: str, api: ClientApi) -> Chain:
        """Return the models for a name.

        A name without a provider means that of ``api``. A provider that speaks the wire of ``api`` is asked in it.
        Raises ``UnknownNameError``.
        """
        if len(name) > LONGEST_NAME:
            raise UnknownNameError(f"a name has up to {LONGEST_NAME} characters")
        found = self._known.get((name, api.wire))
        if found is None:
            found = self._chain(name, api)
            if len(self._known) >= _KNOWN:
                self._known.clear()
            self._known[name, api.wire] = found
        return found

    def counted_name(self, name: str, api: ClientApi) -> str:
        """Return the name under which a limit counts what is asked for by a name.

        Names that lead to one model of the configuration are counted together: those of a pattern as the pattern.
        """
        try:
            route, targets, _ = self._targets(name, api.provider_name)
        except UnknownNameError:
            return name
        if route is None:
            return targets[0].model
        return name if all("*" in each.model for each in targets) else route

    def _chain(self, name: str, api: ClientApi) -> Chain:
        route, targets, stars = self._targets(name, api.provider_name)
        alone = len(targets) == 1
        places = list[tuple[Candidate, ...]]()
        for _, place in groupby(enumerate(targets), key=_place_of):
            made = list[Candidate]()
            for _, each in place:
                target = structs.replace(each, model=_filled(each.model, stars))
                label = None if route is None else each.model
                asked = self._model(target, api.wire, alone=alone)
                identity = "\0".join([target.model, target.url or "", target.wire or "", target.key or ""])
                health = self._health.find(target)
                health.label = label or health.label
                made.append(Candidate(asked, health, identity, label, target.weight or 1.0))
            places.append(tuple(made))
        return Chain(tuple(places), route)

    def _targets(self, name: str, provider: str) -> tuple[str | None, tuple[Target, ...], tuple[str, ...]]:
        """Return the name or the pattern of the configuration, what stands there, and what each ``*`` matched."""
        if (targets := self._exact.get(name)) is not None:
            return name, targets, ()
        for pieces, written, each in self._patterns:
            if (stars := match_pieces(pieces, name)) is not None:
                return written, each, stars
        if self._config.only_listed or not name:
            raise UnknownNameError.among(f"no model {name!r}", self.names, name)
        first, slash, _ = name.partition("/")
        if first in providers.PROVIDERS:
            return None, (Target(model=name),), ()
        if slash and _WORD.fullmatch(first):  # a wrong name must not send a conversation to somebody else
            raise UnknownNameError.among(f"no provider {first!r}", providers.PROVIDERS, first)
        return None, (Target(model=f"{provider}/{name}"),), ()

    def _model(self, target: Target, wire: str, *, alone: bool) -> Model:
        provider = target.model.partition("/")[0]
        chosen = target.wire or (wire if _speaks(provider, wire) else None)
        key = self._find_key(provider) if target.key is None else os.environ.get(target.key)
        times = {name: value for name, value in structs.asdict(target.timeout).items() if value is not None}
        retries = target.retries if target.retries is not None else _RETRIES if alone else 0
        made = model(
            target.model,
            key=key,
            url=target.url,
            wire=chosen,
            text_calls=target.text_calls,
            timeouts=Timeouts(**times),
            retry=GatewayRetry(attempts=retries + 1, first=0.25, cap=_LONGEST_WAIT, longest=_LONGEST_WAIT),
        )
        return structs.replace(made, http=self._http)


def _place_of(numbered: tuple[int, Target]) -> tuple[int | None, int]:
    """Return what is the same for neighbours that share a place."""
    number, target = numbered
    return (None, target.order) if target.weight is not None else (number, target.order)


def _by_weight(place: Sequence[Candidate], session: str | None) -> list[Candidate]:
    """Return weighted models in the order of a session, or in an order by chance.

    Source: weighted rendezvous hashing, https://datatracker.ietf.org/doc/html/draft-ietf-bess-weighted-hrw.
    """
    return sorted(place, key=lambda each: each.weight / -math.log(_share(each.identity, session)), reverse=True)


def _share(identity: str, session: str | None) -> float:
    """Return a number between 0 and 1, without both."""
    if session is None:
        return random.random() or 0.5  # noqa: S311 (a choice, no secret)
    digest = hashlib.blake2b(f"{identity}\0{session}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return ((int.from_bytes(digest) >> 11) + 0.5) / (1 << 53)


def _unset(variable: str) -> str:
    """Say that a variable is not set; what is not written as one may be a key, and is not repeated."""
    if _VARIABLE.fullmatch(variable):
        return f"the variable {variable} is not set"
    return "key is the name of a variable that holds the key, in capitals as OWN_KEY; no such variable is set"


def _target(to: str | Target) -> Target:
    return Target(model=to) if isinstance(to, str) else to


def _speaks(provider: str, wire: str) -> bool:
    row = providers.PROVIDERS.get(provider)
    return row is not None and any(each.wire.partition(":")[0] == wire for each in row.endpoints)


def _filled(model: str, stars: tuple[str, ...]) -> str:
    """Return the name of a model with each ``*`` replaced by what the one in its place matched."""
    first, *rest = model.split("*")
    return first + "".join([star + text for star, text in zip(stars, rest, strict=False)])
