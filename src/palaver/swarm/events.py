"""The events of a swarm: source, type, client, input and output.

Rules (docs/spec/agent-swarm-kit.md#4):

- ``source`` names the part that publishes, ``type`` what happened. The nine sources of ``SOURCES`` are the swarm's own;
  an application publishes under topics of its own.
- ``client`` names the client of the conversation; events of shared values have the client ``shared``, a reserved name.
- ``input`` and ``output`` hold JSON values, and our messages under ``message``, in the canonical form. Their texts may
  contain lone surrogates, which models produce; names may not.
- An event has an id (UUID version 7), which identifies a second delivery. A bus that stores events sets ``place``,
  which grows with each event.

The events that a session publishes.

The events that a client sees, with one filter for every server:

- Events of ``agent``, ``execution``, ``session`` and ``swarm`` are shown, and those under topics of the application;
  states, storages, policies and the history are not.
- Of an event of the swarm's own, only the fields of ``_FIELDS`` are shown: the answer, and the active agent. Errors,
  original answers, arguments, results and prompts are for operators, who listen to the bus itself.
- A delta is shown if the agent's text is the answer as it is. If ``map``, ``transform``, ``validate`` or a policy may
  change or refuse it, the delta is marked (``UNCHECKED``), and clients do not get it.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct, structs

from palaver.core import canonical, jsontext
from palaver.core.errors import DecodeError, EncodeError, SwarmError
from palaver.core.messages import MESSAGE_CLASSES
from palaver.swarm.rescue import not_empty
from palaver.threads.ids import now_ms, uuid7

if TYPE_CHECKING:
    from palaver.swarm.agent import SwarmAgent
    from palaver.swarm.log import Log
    from palaver.swarm.swarm import LiveSwarm, Swarm
    from palaver.swarm.turn import Turn


# --- events -----------------------------------------------------------------------------------------------------------


SOURCES: Final = (
    "agent",
    "compute",
    "execution",
    "history",
    "policy",
    "session",
    "state",
    "storage",
    "swarm",
)
"""The reserved sources of a swarm's own events."""

SHARED: Final = "shared"
"""The client of shared values."""

_MESSAGE: Final = "message"


class Event(Struct, frozen=True, kw_only=True):
    """One event.

    ``name`` is that of a state, storage, policy or compute; ``run`` is the turn. ``sent_at`` is Unix milliseconds.
    """

    source: str
    type: str
    client: str
    swarm: str | None = None
    agent: str | None = None
    name: str | None = None
    thread: str | None = None
    run: str | None = None
    input: Mapping[str, Any] = {}
    output: Mapping[str, Any] = {}
    id: str = msgspec.field(default_factory=uuid7)
    sent_at: int = msgspec.field(default_factory=now_ms)
    place: int | None = None

    def at(self, place: int) -> Event:
        """Return the same event at ``place``, its number in a bus."""
        return structs.replace(self, place=place)

    def __str__(self) -> str:
        """``agent emit-output client=ann agent=sales``."""
        named = ("client", "swarm", "agent", "name")
        told = [f"{each}={getattr(self, each)}" for each in named if getattr(self, each) is not None]
        return " ".join([self.source, self.type, *told])


def encode(event: Event) -> bytes:
    """Return the event as one JSON object, without its place. Raises ``SwarmError`` for values that are not JSON."""
    try:
        bare = structs.replace(event, place=None, input=_plain(event.input), output=_plain(event.output))
        try:
            return _ENCODER.encode(bare)
        except UnicodeEncodeError:  # a lone surrogate, which JSON writes as an escape
            names_of(event).encode()
            return jsontext.encode(msgspec.to_builtins(bare))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError, EncodeError) as error:
        raise SwarmError(f"event {event.source} {event.type}: {error}") from error


def decode(data: bytes) -> Event:
    """Read an event. Raises ``DecodeError``."""
    try:
        try:
            event = _DECODER.decode(data)
        except msgspec.DecodeError:
            event = msgspec.convert(jsontext.value(data), Event)
        return structs.replace(event, input=_rich(event.input), output=_rich(event.output))
    except (msgspec.MsgspecError, ValueError) as error:
        raise DecodeError(str(error), source="event") from error


def names_of(event: Event) -> str:
    """Return all names of the event, as one text."""
    e = event
    return f"{e.source}{e.type}{e.client}{e.swarm}{e.agent}{e.name}{e.thread}{e.run}{e.id}"


def _plain(values: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(values.get(_MESSAGE), MESSAGE_CLASSES):
        return values
    return {**values, _MESSAGE: {"@message": canonical.encode(values[_MESSAGE]).decode()}}


def _rich(values: Mapping[str, Any]) -> Mapping[str, Any]:
    match values.get(_MESSAGE):
        case {"@message": str(written), **rest} if not rest:
            return {**values, _MESSAGE: canonical.decode(written.encode())}
        case _:
            return values


_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(Event)


# --- session events ---------------------------------------------------------------------------------------------------


class SessionEvents:
    """The part of a session that publishes events."""

    client: str
    live: LiveSwarm
    swarm: Swarm
    log: Log
    turn: Turn | None

    def publish_event(
        self,
        source: str,
        type: str,
        agent: str | None = None,
        *,
        input: Mapping[str, Any] | None = None,
        output: Mapping[str, Any] | None = None,
    ) -> None:
        """Publish an event of this session. Costs almost nothing without listeners, and never raises.

        ``source`` names the part that publishes, ``type`` what happened. ``input`` and ``output`` hold JSON values, by
        name.
        """
        turn = self.turn
        self.live.publish(
            Event(
                source=source,
                type=type,
                client=self.client,
                swarm=self.swarm.name,
                agent=agent,
                thread=self.log.id,
                run=None if turn is None else turn.id,
                input=input or {},
                output=output or {},
            )
        )


# --- shown ------------------------------------------------------------------------------------------------------------


SHOWN: Final = frozenset({"agent", "execution", "session", "swarm"})
"""The sources of the swarm's own events that are shown."""
UNCHECKED: Final = "unchecked"
"""The field that marks a delta whose answer may still be changed or refused."""
REMOTE: Final = "a2a"
"""The topic of a remote agent's data beside its text, which no check has seen."""

_FIELDS: Final[Mapping[tuple[str, str], tuple[Collection[str], Collection[str]]]] = {
    ("agent", "delta"): ((), ("text",)),
    ("agent", "emit-output"): (("mode",), ("result",)),
    ("agent", "tool-progress"): (("value",), ()),
    ("session", "answer"): ((), ("result",)),
    ("session", "emit"): (("message",), ()),
    ("session", "execute"): (("mode",), ("result",)),
    ("swarm", "get-agent"): ((), ("agentName", "result")),
    ("swarm", "get-agent-name"): ((), ("activeAgent",)),
    ("swarm", "set-agent-name"): (("agentName",), ()),
    ("swarm", "set-agent-ref"): (("agentName",), ()),
    ("swarm", "wait-for-output"): ((), ("result",)),
}
"""The fields of ``input`` and ``output`` that are shown, by source and type; none of other types."""


def is_public(event: Event) -> bool:
    """Return whether a client sees an event."""
    if event.source not in SOURCES:
        return event.source != REMOTE
    return event.source in SHOWN and not event.input.get(UNCHECKED)


def for_client(event: Event) -> Event:
    """Return a visible event as a client sees it."""
    if event.source not in SOURCES:
        return event
    given, made = _FIELDS.get((event.source, event.type), ((), ()))
    return structs.replace(event, input=_only(event.input, given), output=_only(event.output, made))


def delta_input(swarm: Swarm, agent: SwarmAgent) -> Mapping[str, Any]:
    """Return the ``input`` of a delta: marked when the answer of the agent may still be changed or refused."""
    plain = agent.map is None and agent.transform is None and agent.validate is not_empty
    if plain and not any(policy.validate_output for policy in swarm.policies):
        return {}
    return {UNCHECKED: True}


def _only(values: Mapping[str, Any], names: Collection[str]) -> Mapping[str, Any]:
    return {name: values[name] for name in names if name in values}
