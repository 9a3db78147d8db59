"""Policies: which texts of and to a client may pass, and who is banned.

Rules (docs/spec/agent-swarm-kit.md#6, #K17; ASK-26):

- A ``Policy`` has validators of input and output: functions of a text and the client's id, plain or asynchronous, that
  return whether it may pass. An exception fails the call. A banned client is refused before they are called.
- A refused text is answered with the policy's message: that of ``get_ban_message(client)``, or ``ban_message`` if it
  returns ``None``. Of merged policies, the first that refuses answers, and those after it are not asked.
- With ``auto_ban``, a client whose text a validator refuses is banned.
- Bans belong to a policy and a swarm. They are stored in shared values, one for each client, so that no process loses
  another's; every check reads what others wrote. Banning a banned client changes nothing and publishes nothing.
- Bans of one policy happen one at a time, in the order of the calls; checks do not wait.

Stability: experimental.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final, TypeAlias

from palaver.swarm.events import Event
from palaver.swarm.log import Values
from palaver.swarm.state import Observer, Publish, Queue, named, observed, resolved

BAN_MESSAGE: Final = "I am not going to discuss it!"

Validator: TypeAlias = Callable[[str, str], bool | Awaitable[bool]]
"""A function of a text and the client's id that returns whether it may pass."""


@dataclass(frozen=True, eq=False, slots=True)
class Policy:
    """The rules for texts in a swarm. Observers: ``on_ban`` and ``on_unban`` (client, swarm).

    ``name`` is that of the policy, for its events and bans. ``validate_input`` and ``validate_output`` are functions of
    a text and the client's id that return whether it may pass; ``None`` accepts every text. ``auto_ban`` bans a client
    whose text did not pass. ``ban_message`` replaces a refused text; ``get_ban_message`` is a function of the client's
    id that returns another message, or ``None``.
    """

    name: str
    _: KW_ONLY
    validate_input: Validator | None = None
    validate_output: Validator | None = None
    auto_ban: bool = False
    ban_message: str = BAN_MESSAGE
    get_ban_message: Callable[[str], str | Awaitable[str | None] | None] | None = None
    on_ban: Observer | None = None
    on_unban: Observer | None = None

    def __post_init__(self) -> None:
        """Raise ``SwarmError`` without a name, and for a field of the wrong type."""
        named("policy", self)


class PolicyCell:
    """A policy in one swarm, with the bans of that swarm."""

    def __init__(self, policy: Policy, swarm: str, values: Values, publish: Publish) -> None:
        """Store the bans in values that all clients and processes share."""
        self.policy, self.swarm = policy, swarm
        self._values, self._publish = values, publish
        self._kind = f"bans:{json.dumps([swarm, policy.name])}"
        self._queue = Queue(f"policy {policy.name!r}")

    @property
    def name(self) -> str:
        """The name of the policy."""
        return self.policy.name

    async def check_input(self, text: str, client: str) -> str | None:
        """Return ``None`` when a client's text may pass, else the answer. Raises what the validator raises."""
        self._tell("validate-input", client, {"incoming": text})
        return await self._refusal(self.policy.validate_input, text, client)

    async def check_output(self, text: str, client: str) -> str | None:
        """Return ``None`` when a text to a client may pass, else its replacement. Raises what the validator raises."""
        self._tell("validate-output", client, {"outgoing": text})
        return await self._refusal(self.policy.validate_output, text, client)

    async def is_banned(self, client: str) -> bool:
        """Return whether any process has banned a client."""
        await self._values.refresh()
        return self._values.get(self._kind, client) is not None

    async def ban(self, client: str) -> bool:
        """Ban a client; return whether that changed anything. Raises ``StoreError``."""
        async with self._queue.turn():
            if await self.is_banned(client):
                return False
            await self._values.put(self._kind, client, True)  # noqa: FBT003 (the value that is kept)
            self._tell("ban-client", client)
            await observed(self.policy.on_ban, client, self.swarm)
            return True

    async def unban(self, client: str) -> bool:
        """Lift a ban; return whether that changed anything. Raises ``StoreError``."""
        async with self._queue.turn():
            if not await self.is_banned(client):
                return False
            await self._values.remove(self._kind, client)
            self._tell("unban-client", client)
            await observed(self.policy.on_unban, client, self.swarm)
            return True

    async def message(self, client: str) -> str:
        """Return the message to a refused client."""
        ask = self.policy.get_ban_message
        told = None if ask is None else await resolved(ask(client))
        return self.policy.ban_message if told is None else told

    async def _refusal(self, validate: Validator | None, text: str, client: str) -> str | None:
        if not await self.is_banned(client):
            if validate is None or await resolved(validate(text, client)):
                return None
            if self.policy.auto_ban:
                await self.ban(client)
        return await self.message(client)

    def _tell(self, type: str, client: str, input: Mapping[str, Any] | None = None) -> None:
        self._publish(
            Event(source="policy", type=type, client=client, swarm=self.swarm, name=self.name, input=input or {})
        )


class Policies:
    """The policies of a swarm as one; without policies, every text may pass."""

    def __init__(self, cells: Sequence[PolicyCell] = ()) -> None:
        """Use ``policies`` in this order."""
        self.cells = tuple(cells)

    async def check_input(self, text: str, client: str) -> str | None:
        """Return the message of the first policy that refuses the text, or ``None``."""
        for cell in self.cells:
            refusal = await cell.check_input(text, client)
            if refusal is not None:
                return refusal
        return None

    async def check_output(self, text: str, client: str) -> str | None:
        """Return the message of the first policy that refuses the text, or ``None``."""
        for cell in self.cells:
            refusal = await cell.check_output(text, client)
            if refusal is not None:
                return refusal
        return None

    async def is_banned(self, client: str) -> bool:
        """Return whether any policy has banned a client."""
        for cell in self.cells:
            if await cell.is_banned(client):
                return True
        return False

    async def ban(self, client: str) -> bool:
        """Ban a client under every policy; return whether that changed anything."""
        return any([await cell.ban(client) for cell in self.cells])

    async def unban(self, client: str) -> bool:
        """Lift the bans of every policy; return whether that changed anything."""
        return any([await cell.unban(client) for cell in self.cells])
