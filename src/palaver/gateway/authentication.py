"""Who sends a request: the component that finds keys, and refuses requests without a valid one.

Rules:

- A key that was found is remembered for ``REMEMBERED`` seconds, so a request costs no call of the database. A key that
  is revoked, rotated or changed in the database is treated so within that time, in each process.
- While the database cannot be reached, a key that was found before stays valid, for up to ``STALE`` seconds. No request
  waits longer than ``PATIENCE`` for a look-up of such a key.
- A key that is missing, wrong, expired or revoked is refused with 401, a model out of its scope with 403.
- When a key was last used is written each ``WRITTEN`` seconds, and at the end.

Stability: experimental.
"""

from __future__ import annotations

import logging
import re
import time
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Final, NamedTuple, Self, final

import anyio
import msgspec

from palaver.core.errors import StoreError
from palaver.gateway.client_api import RefusedError
from palaver.gateway.component import Component
from palaver.gateway.keys import GatewayKeys
from palaver.store.store import to_thread
from palaver.threads.ids import now_ms

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from anyio.abc import TaskGroup

    from palaver.gateway.credentials import Credential
    from palaver.gateway.database import Database
    from palaver.gateway.keys import Caller, VirtualKey
    from palaver.gateway.record import Record

REMEMBERED: Final = 5.0
"""Seconds within which a key that is revoked is refused."""
STALE: Final = 300.0
PATIENCE: Final = 0.5
WRITTEN: Final = 30.0
_MOST: Final = 10_000
_LOGGER: Final = logging.getLogger("palaver.gateway")
_NAME_MODELS: Final = frozenset({"models", "fallbacks", "preset"})
"""https://openrouter.ai/docs/guides/routing/model-fallbacks, and Anthropic's own ``fallbacks``."""
_FIELD: Final = re.compile(rb'"(?:models|fallbacks|preset)"|\\u00[4-7]', re.IGNORECASE)
_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_HINT: Final = "palaver gateway keys create NAME makes one"


class _Found(NamedTuple):
    """What the database said of a hash, when, and until when it is not asked again."""

    key: VirtualKey | None
    at: float
    until: float


@final
class Authentication(Component):
    """Finds the callers of requests."""

    def __init__(self, open_database: Callable[[], Database], *, required: bool) -> None:
        """Keep the arguments; the database is opened when the component is entered."""
        self._open_database = open_database
        self._required = required
        self._keys: GatewayKeys | None = None
        self._found: dict[bytes, _Found] = {}
        self._unknown: dict[bytes, _Found] = {}
        """Hashes that are no key's: apart, so that who makes them up displaces none that is."""
        self._lookup = anyio.Lock()
        self._refreshes: dict[bytes, anyio.Event] = {}
        self._tasks: TaskGroup
        self._used: dict[str, int] = {}
        self._running = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Open the keys. Raises ``StoreError``."""
        self._keys = await to_thread(lambda: GatewayKeys(self._open_database()))
        tasks = await self._running.enter_async_context(anyio.create_task_group())
        self._running.callback(tasks.cancel_scope.cancel)
        tasks.start_soon(self._write_often)
        self._tasks = tasks
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write when keys were last used."""
        await self._running.aclose()
        await self._write()

    async def caller(self, credential: Credential | None) -> Caller | None:
        """Return whose key was sent; ``None`` for a request without one that needs none. Raises ``RefusedError``."""
        if credential is None or (credential.hash is None and not self._required):
            if self._required:
                raise RefusedError("authentication", f"no key was sent; {_HINT}")
            return None
        if credential.hash is None:
            raise RefusedError("authentication", f"the key is mistyped, or none of this gateway; {_HINT}")
        key = await self._find(credential.hash)
        now = now_ms()
        if key is None:
            raise RefusedError("authentication", f"the gateway does not know this key; {_HINT}")
        if not key.is_valid(now):
            state = "expired" if key.revoked is None else "was revoked"
            raise RefusedError("authentication", f"the key {key.caller.name} {state}")
        self._used[key.caller.key_id] = now
        return key.caller

    async def admit(self, record: Record) -> None:
        """Refuse an exchange without a caller, and a model that its key may not ask for."""
        caller, model = record.caller, record.request.model
        if caller is None:
            if self._required:
                raise RefusedError("authentication", f"no key was sent; {_HINT}")
        elif not caller.may_ask(model):
            raise RefusedError("forbidden", f"the key {caller.name} may not ask for the model {model[:200]!r}")
        elif caller.models and (field := _other_models(record.request.body)) is not None:
            raise RefusedError(
                "forbidden", f"the key {caller.name} may ask for some models only, and {field} may name others"
            )

    async def _find(self, hash: bytes) -> VirtualKey | None:
        found = self._remembered(hash)
        if found is not None and time.monotonic() < found.until:
            return found.key
        if found is not None and time.monotonic() - found.at <= STALE:
            return await self._refreshed(hash, found)
        async with self._lookup:  # requests with one key wait for one look-up
            found = self._remembered(hash)
            if found is not None and time.monotonic() < found.until:
                return found.key
            return await self._look_up(hash, found)

    async def _refreshed(self, hash: bytes, known: _Found) -> VirtualKey | None:
        """Look a known key up again. Where that takes long, return it as it was, and do so until it is found."""
        ended = self._refreshes.get(hash)
        if ended is None:
            ended = self._refreshes[hash] = anyio.Event()
            self._tasks.start_soon(self._refresh, hash, known, ended)
        with anyio.move_on_after(PATIENCE):
            await ended.wait()
        if not ended.is_set():
            self._remember(hash, known._replace(until=time.monotonic() + REMEMBERED))
        return (self._remembered(hash) or known).key

    async def _refresh(self, hash: bytes, known: _Found, ended: anyio.Event) -> None:
        try:
            with suppress(RefusedError):  # it is too old now: the next request is refused
                await self._look_up(hash, known)
        finally:
            del self._refreshes[hash]
            ended.set()

    async def _look_up(self, hash: bytes, known: _Found | None) -> VirtualKey | None:
        assert self._keys is not None, "the component is not entered"  # noqa: S101 (a defect of the caller)
        try:
            key = await to_thread(self._keys.find, hash)
        except StoreError as error:
            if known is None or time.monotonic() - known.at > STALE:
                raise RefusedError("overloaded", "keys cannot be checked now", retry_after=1) from error
            _LOGGER.warning("keys cannot be checked: %s", error)
            self._remember(hash, known._replace(until=time.monotonic() + REMEMBERED))
            return known.key
        now = time.monotonic()
        self._remember(hash, _Found(key, now, now + REMEMBERED))
        return key

    def _remembered(self, hash: bytes) -> _Found | None:
        return self._found.get(hash) or self._unknown.get(hash)

    def _remember(self, hash: bytes, found: _Found) -> None:
        kept, other = (self._unknown, self._found) if found.key is None else (self._found, self._unknown)
        if len(kept) >= _MOST:
            kept.clear()
        kept[hash] = found
        other.pop(hash, None)

    async def _write_often(self) -> None:
        while True:
            await anyio.sleep(WRITTEN)
            await self._write()

    async def _write(self) -> None:
        if not self._used or self._keys is None:
            return
        used, self._used = self._used, {}
        try:
            with anyio.CancelScope(shield=True):
                await to_thread(self._keys.note_used, used)
        except StoreError as error:
            _LOGGER.warning("when keys were used cannot be written: %s", error)
            self._used = used | self._used


def _other_models(body: bytes) -> str | None:
    """Return the field of a request in which its provider looks for other models than the one it names."""
    if not _FIELD.search(body):
        return None
    return next((name for name in _FIELDS.decode(body) if name.casefold() in _NAME_MODELS), None)
