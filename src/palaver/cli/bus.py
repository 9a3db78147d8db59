"""``palaver bus``: what happens in swarms, live, from a bus over NATS.

Rules:

- An event is a line: when it was sent, whose it is, what happened, at which agent, and what went in and came out,
  shortened to the width of the terminal. With ``--json`` it is one JSON object, whole, with its place in the bus.
- Without ``--since`` only what is published from now on is shown.
- Ctrl-C ends it, as it ends everything else, and says how many there were.

Stability: experimental.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import anyio
import click
from rich.text import Text

from palaver.cli import stores
from palaver.cli.terminal import console, count, echo, in_line, moment
from palaver.core import jsontext
from palaver.core.errors import excerpt
from palaver.core.messages import MESSAGE_CLASSES, AssistantMessage, Message
from palaver.swarm.bus import Since, Where
from palaver.swarm.events import encode

if TYPE_CHECKING:
    from rich.console import Console

    from palaver.serve.nats import NatsBus
    from palaver.swarm.events import Event

_HERE: Final = "nats://127.0.0.1:4222"
_SCHEMES: Final = re.compile(r"(nats|tls|ws|wss)://[^/]")
_INTERRUPTED: Final = 130
_WAITING: Final = 65_536
"""So many events wait for the terminal before some are left out."""
_LONGEST: Final = 400
"""Characters of one value that are looked at."""
_NAMES: Final = 24


def _known(_context: click.Context, _option: click.Parameter, url: str) -> str:
    if not all(_SCHEMES.match(each.strip()) for each in url.split(",")):
        raise click.BadParameter(f"{excerpt(url)!r} is no bus such as {_HERE}")
    return url


def _begin(context: click.Context, option: click.Parameter, text: str | None) -> Since | None:
    if text is None:
        return None
    if text == "all":
        return Since()
    if text.isascii() and text.isdigit():
        return Since(place=int(text[:18]))
    return Since(time=moment(context, option, text))


@click.command(name="bus")
@click.option("--bus", "url", metavar="URL", default=_HERE, envvar="PALAVER_BUS", show_default=True, callback=_known)
@click.option("--client", metavar="X", help="Only what happens to this client.")
@click.option("--source", metavar="S", help="Only what this part says: agent, session, history, …")
@click.option("--type", "kind", metavar="T", help="Only events of this type: emit-output, push, …")
@click.option("--agent", metavar="A", help="Only what happens at this agent.")
@click.option("--swarm", metavar="S", help="Only what happens in this swarm.")
@click.option(
    "--since", metavar="all|PLACE|TIME", callback=_begin, help="Begin with what was: all, behind a place, or 10m ago."
)
@click.option("--count", "most", type=click.IntRange(min=1), metavar="N", help="End after so many.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.option("--stream", metavar="NAME", help="The stream of the bus, where it is not the usual one.")
@click.option("--prefix", metavar="WORDS", help="The prefix of its subjects, likewise.")
def command(
    *,
    url: str,
    client: str | None,
    source: str | None,
    kind: str | None,
    agent: str | None,
    swarm: str | None,
    since: Since | None,
    most: int | None,
    stream: str | None,
    prefix: str | None,
    as_json: bool,
) -> int:
    """Show what happens in swarms, as it happens."""
    from palaver.serve.nats import PREFIX, STREAM, NatsBus

    bus = NatsBus(url, stream=stream or STREAM, prefix=prefix or PREFIX)
    where = Where(client=client, source=source, type=kind, agent=agent, swarm=swarm)
    watching = _Watching(bus, where, since, as_json=as_json)
    try:
        anyio.run(watching.watch, most, backend="asyncio")
    except KeyboardInterrupt:
        echo(watching.summary, err=True)
        return _INTERRUPTED
    if watching.lost:
        echo(watching.summary, err=True)
    return 0


class _Watching:
    def __init__(self, bus: NatsBus, where: Where, since: Since | None, *, as_json: bool) -> None:
        self._bus, self._where, self._since = bus, where, since
        self._out: Console | None = None if as_json else console()
        self._shown = 0
        self.lost = 0

    @property
    def summary(self) -> str:
        """``12 events``, and how many were lost."""
        lost = f"; {self.lost:,} more came too fast to be shown" if self.lost else ""
        return f"{count(self._shown, 'event')}{lost}"

    async def watch(self, most: int | None) -> None:
        """Show events until there were as many as asked for."""
        async with self._bus, self._bus.subscribe(self._where, since=self._since, size=_WAITING) as events:
            async for event in events:
                self._show(event)
                self._shown += 1
                self.lost = events.dropped
                if self._shown == most:
                    return

    def _show(self, event: Event) -> None:
        if self._out is None:
            stores.say_json([jsontext.value(encode(event)) | {"place": event.place}])
        else:
            self._out.print(drawn(event), no_wrap=True, overflow="ellipsis")


def drawn(event: Event) -> Text:
    """An event as a line."""
    line = Text(_clock(event.sent_at), "dim")
    line.append(f"  {_name(event.client)}", "bold")
    line.append(f"  {_name(event.source)} {_name(event.type)}", "blue")
    if event.agent is not None:
        line.append(f"  {_name(event.agent)}", "green")
    if event.name is not None:
        line.append(f"  {_name(event.name)}", "cyan")
    told = " → ".join(piece for piece in (_told(event.input), _told(event.output)) if piece)
    line.append(f"  {told}" if told else "")
    return line


def _clock(at: int) -> str:
    try:
        return datetime.fromtimestamp(at / 1000).astimezone().strftime("%H:%M:%S.%f")[:-3]
    except (OverflowError, ValueError, OSError):  # an event may say any number
        return excerpt(str(at), 12)


def _name(text: str) -> str:
    return in_line(excerpt(text, _NAMES)) or '""'


def _told(values: Mapping[str, Any]) -> str:
    """The essential of what went in, or came out."""
    return in_line("  ".join(_value(name, value) for name, value in values.items()))


def _value(name: str, value: object) -> str:
    if isinstance(value, MESSAGE_CLASSES):
        return _spoken(value)
    text = value if isinstance(value, str) else jsontext.encode(value).decode()
    return f"{excerpt(name, _NAMES)}={excerpt(text, _LONGEST)}"


def _spoken(message: Message) -> str:
    """``assistant: It rains. [forecast {"city":"Husum"}]``."""
    calls = message.tool_calls if isinstance(message, AssistantMessage) else ()
    pieces = [excerpt(message.text, _LONGEST), *(f"[{call.name} {excerpt(call.arguments_json, 80)}]" for call in calls)]
    return f"{message.role}: {' '.join(piece for piece in pieces if piece)}"
