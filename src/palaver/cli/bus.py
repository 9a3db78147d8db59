"""``palaver bus``: show the events of swarms live, from a bus over NATS.

- Each event is one line: time, client, source and type, agent, input and output, cut to the terminal's width. With
  ``--json`` it is one complete JSON object, with its place in the bus.
- Without ``--since`` only new events are shown.
- Ctrl-C ends the command and prints the number of events.

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
from palaver.cli.ranges import WholeNumber
from palaver.cli.terminal import console, count, echo, parse_time, safe_line
from palaver.core import jsontext
from palaver.core.errors import excerpt
from palaver.core.messages import MESSAGE_CLASSES, AssistantMessage, Message
from palaver.swarm.bus import Since, Where
from palaver.swarm.events import encode

if TYPE_CHECKING:
    from rich.console import Console

    from palaver.serve.nats import NatsBus
    from palaver.swarm.events import Event

_DEFAULT_URL: Final = "nats://127.0.0.1:4222"
_SCHEMES: Final = re.compile(r"(nats|tls|ws|wss)://[^/]")
_INTERRUPTED: Final = 130
_BUFFER: Final = 65_536
"""The number of events that wait for the terminal before some are dropped."""
_MAX_VALUE: Final = 400
"""The number of characters of one value that are shown at most."""
_MAX_NAME: Final = 24


def _check_url(_context: click.Context, _option: click.Parameter, url: str) -> str:
    if not all(_SCHEMES.match(each.strip()) for each in url.split(",")):
        raise click.BadParameter(f"{excerpt(url)!r} is not the URL of a bus, such as {_DEFAULT_URL}")
    return url


def _parse_since(context: click.Context, option: click.Parameter, text: str | None) -> Since | None:
    if text is None:
        return None
    if text == "all":
        return Since()
    if text.isascii() and text.isdigit():
        return Since(place=int(text[:18]))
    return Since(time=parse_time(context, option, text))


@click.command(name="bus")
@click.option(
    "--bus",
    "url",
    metavar="URL",
    default=_DEFAULT_URL,
    envvar="PALAVER_BUS",
    callback=_check_url,
    help=f"The NATS server. Default: PALAVER_BUS, else {_DEFAULT_URL}.",
)
@click.option("--client", metavar="X", help="Only events of this client.")
@click.option("--source", metavar="S", help="Only events of this source: agent, session, history, …")
@click.option("--type", "kind", metavar="T", help="Only events of this type: emit-output, push, …")
@click.option("--agent", metavar="A", help="Only events of this agent.")
@click.option("--swarm", metavar="S", help="Only events of this swarm.")
@click.option(
    "--since",
    metavar="all|PLACE|TIME",
    callback=_parse_since,
    help="Start with past events: all, those after a place (in --json), or those since a time such as 10m ago.",
)
@click.option("--count", "most", type=WholeNumber(1), metavar="N", help="Stop after N events.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.option("--stream", metavar="NAME", help="The JetStream stream of the events, when it is not the default.")
@click.option("--prefix", metavar="TEXT", help="The prefix of the NATS subjects, when it is not the default.")
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
    """Show the events of swarms live."""
    from palaver.serve.nats import PREFIX, STREAM, NatsBus

    bus = NatsBus(url, stream=stream or STREAM, prefix=prefix or PREFIX)
    where = Where(client=client, source=source, type=kind, agent=agent, swarm=swarm)
    printer = _EventPrinter(bus, where, since, as_json=as_json)
    try:
        anyio.run(printer.watch, most, backend="asyncio")
    except KeyboardInterrupt:
        echo(printer.summary, err=True)
        return _INTERRUPTED
    if printer.dropped:
        echo(printer.summary, err=True)
    return 0


class _EventPrinter:
    def __init__(self, bus: NatsBus, where: Where, since: Since | None, *, as_json: bool) -> None:
        self._bus, self._where, self._since = bus, where, since
        self._out: Console | None = None if as_json else console()
        self._shown = 0
        self.dropped = 0

    @property
    def summary(self) -> str:
        """``12 events``, and how many were dropped."""
        dropped = f"; {self.dropped:,} more came too fast and were dropped" if self.dropped else ""
        return f"{count(self._shown, 'event')}{dropped}"

    async def watch(self, most: int | None) -> None:
        """Show events, at most ``most`` of them."""
        async with self._bus, self._bus.subscribe(self._where, since=self._since, size=_BUFFER) as events:
            async for event in events:
                self._show(event)
                self._shown += 1
                self.dropped = events.dropped
                if self._shown == most:
                    return

    def _show(self, event: Event) -> None:
        if self._out is None:
            stores.print_json([jsontext.value(encode(event)) | {"place": event.place}])
        else:
            self._out.print(render_event(event), no_wrap=True, overflow="ellipsis")


def render_event(event: Event) -> Text:
    """Render an event as one line."""
    line = Text(_clock(event.sent_at), "dim")
    line.append(f"  {_name(event.client)}", "bold")
    line.append(f"  {_name(event.source)} {_name(event.type)}", "blue")
    if event.agent is not None:
        line.append(f"  {_name(event.agent)}", "green")
    if event.name is not None:
        line.append(f"  {_name(event.name)}", "cyan")
    values = " → ".join(piece for piece in (_values(event.input), _values(event.output)) if piece)
    line.append(f"  {values}" if values else "")
    return line


def _clock(at: int) -> str:
    try:
        return datetime.fromtimestamp(at / 1000).astimezone().strftime("%H:%M:%S.%f")[:-3]
    except (OverflowError, ValueError, OSError):  # an event may hold any number
        return excerpt(str(at), 12)


def _name(text: str) -> str:
    return safe_line(excerpt(text, _MAX_NAME)) or '""'


def _values(values: Mapping[str, Any]) -> str:
    """Return the input or output values on one line."""
    return safe_line("  ".join(_value(name, value) for name, value in values.items()))


def _value(name: str, value: object) -> str:
    if isinstance(value, MESSAGE_CLASSES):
        return _message_text(value)
    text = value if isinstance(value, str) else jsontext.encode(value).decode()
    return f"{excerpt(name, _MAX_NAME)}={excerpt(text, _MAX_VALUE)}"


def _message_text(message: Message) -> str:
    """``assistant: It rains. [forecast {"city":"Husum"}]``."""
    calls = message.tool_calls if isinstance(message, AssistantMessage) else ()
    pieces = [
        excerpt(message.text, _MAX_VALUE),
        *(f"[{call.name} {excerpt(call.arguments_json, 80)}]" for call in calls),
    ]
    return f"{message.role}: {' '.join(piece for piece in pieces if piece)}"
