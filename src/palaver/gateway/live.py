"""The gateway that runs: it counts its exchanges, takes another configuration, and ends when its answers have ended.

Rules:

- An exchange keeps the gateway with which it began. ``reload`` makes another one for those that come later; a
  configuration that cannot be used changes nothing.
- A component whose settings are the same goes on. The others are replaced: the new one is entered before the first
  exchange that uses it, and the old one is left after the last of its own. For that time both run.
- Each component runs in a task of its own, so that it may hold task groups and cancel scopes.
- ``drain`` refuses what comes from then on with 503.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Generator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from typing import Final, final

import anyio
from anyio.abc import TaskGroup, TaskStatus

from palaver.core.errors import MessageError
from palaver.gateway.client import AiohttpSender
from palaver.gateway.client_api import ApiError
from palaver.gateway.component import Component
from palaver.gateway.config import GatewayConfig
from palaver.gateway.database import Database, default_location, open_database
from palaver.gateway.gateway import Gateway
from palaver.gateway.health import Health, TargetHealth

_LAST: Final = 5.0
"""Seconds that exchanges which were cancelled at the end may take to be noted."""


class Resources:
    """What all gateways of a process share: the HTTP client, and databases that are open until the end."""

    def __init__(self) -> None:
        """Open nothing yet."""
        self.client = AiohttpSender()
        self._databases: dict[str, Database] = {}

    def database(self, location: str | None) -> Database:
        """Return the database at a location, opened on first use. Raises ``StoreError``."""
        location = location or default_location()
        if location not in self._databases:
            self._databases[location] = open_database(location)
        return self._databases[location]

    def close(self) -> None:
        """Close the databases."""
        for each in self._databases.values():
            each.close()


@final
class _Running:
    """A component in its task."""

    def __init__(self, component: Component) -> None:
        self._component = component
        self._stop = anyio.Event()
        self._stopped = anyio.Event()

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        try:
            async with self._component:
                task_status.started()
                await self._stop.wait()
        finally:
            self._stopped.set()

    async def stop(self) -> None:
        self._stop.set()
        await self._stopped.wait()


@final
class _Generation:
    """A gateway, and how many exchanges it has."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.active = 0
        self._idle = anyio.Event()

    @contextmanager
    def exchange(self) -> Generator[Gateway]:
        self.active += 1
        try:
            yield self.gateway
        finally:
            self.active -= 1
            if not self.active:
                self._idle.set()

    async def wait_idle(self) -> None:
        while self.active:
            self._idle = anyio.Event()
            await self._idle.wait()


@final
class LiveGateway:
    """A gateway, and those that came before it as long as they have exchanges."""

    def __init__(self, config: GatewayConfig, find_key: Callable[[str], str | None]) -> None:
        """Make the first gateway; nothing runs yet. Raises ``PalaverError`` for what cannot be used."""
        self._find_key = find_key
        self._health = Health(config.breaker)
        self._resources = Resources()
        self._now = _Generation(Gateway(config, find_key, self._health, self._resources))
        self._generations = [self._now]
        self._running: dict[Component, _Running] = {}
        self._tasks: TaskGroup | None = None
        self._lock = anyio.Lock()
        self.draining = False
        self.failure: Exception | None = None
        """Why it could not start."""
        self.on_start: Callable[[], None] = lambda: None
        """Called when every component runs."""

    @property
    def gateway(self) -> Gateway:
        """The one that new exchanges use."""
        return self._now.gateway

    @property
    def active(self) -> int:
        """How many exchanges there are."""
        return sum(each.active for each in self._generations)

    @property
    def targets(self) -> Collection[TargetHealth]:
        """The states of the models that were asked for so far."""
        return self._health.targets

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Run the components. Raises what one raises that cannot start."""
        async with self._resources.client, anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                await self._start(self.gateway, {})
            except Exception as error:  # noqa: BLE001 (raised below, outside of the group, which would wrap it)
                self.failure = error
            else:
                self.on_start()
                try:
                    yield
                finally:
                    await self._stop()
            tasks.cancel_scope.cancel()
        self._resources.close()
        if self.failure is not None:
            raise self.failure

    async def _stop(self) -> None:
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(_LAST):
                await self.wait_idle()
            for each in reversed(list(self._running.values())):
                await each.stop()

    def exchange(self) -> AbstractContextManager[Gateway]:
        """Return a context in which an exchange uses the current gateway."""
        return self._now.exchange()

    def refusal(self) -> ApiError | None:
        """Return why no further exchange may begin; ``None`` when one may."""
        most = self.gateway.config.listen.max_concurrent
        if self.draining:
            return ApiError(503, "overloaded", "the gateway is about to stop", 1)
        if most is not None and self.active >= most:
            return ApiError(503, "overloaded", f"the gateway has {most:,} requests in progress, and takes no more", 1)
        return None

    def drain(self) -> None:
        """Refuse what comes from now on."""
        self.draining = True

    async def wait_idle(self) -> None:
        """Wait until no exchange is left."""
        while self.active:
            for each in tuple(self._generations):
                await each.wait_idle()

    async def reload(self, config: GatewayConfig) -> None:
        """Use another configuration for what comes from now on. Raises ``PalaverError``, and then changes nothing.

        Where the gateway listens, and how long it may take to stop, stay as they are.
        """
        if self._tasks is None:
            raise MessageError("a gateway that does not run cannot be reloaded")
        async with self._lock:
            old = self._now
            gateway = Gateway(config, self._find_key, self._health, self._resources, old.gateway)
            await self._start(gateway, self._running)
            self._health.use(config.breaker)
            self._now = _Generation(gateway)
            self._generations.append(self._now)
            self._tasks.start_soon(self._leave, old)

    async def _start(self, gateway: Gateway, running: dict[Component, _Running]) -> None:
        """Enter the components that do not run yet; all of them, or none."""
        assert self._tasks is not None  # noqa: S101 (``running`` has set it)
        started = dict[Component, _Running]()
        try:
            for each in gateway.components:
                if each not in running:
                    made = _Running(each)
                    await self._tasks.start(made.run)
                    started[each] = made
        except BaseException:
            with anyio.CancelScope(shield=True):
                for undone in reversed(started.values()):
                    await undone.stop()
            raise
        self._running |= started

    async def _leave(self, old: _Generation) -> None:
        """Leave the components that only an earlier gateway has, when its last exchange has ended."""
        await old.wait_idle()
        async with self._lock:
            self._generations.remove(old)
            used = {each for generation in self._generations for each in generation.gateway.components}
            for each in [each for each in self._running if each not in used]:
                await self._running.pop(each).stop()
