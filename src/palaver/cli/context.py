"""``palaver context``: what fills a model's window, by kind.

Rules:

- A file that exists wins, as for ``show``: a request is what would be sent. Anything else is a thread of the store.
- The model is the one that is named, else that of the last answer, else that of the request, else ``PALAVER_MODEL``.
  It is not asked, but with ``--exact``, and needs no key.
- What an agent's instructions and tools weigh is not in its thread: there, the report of the provider knows of it, and
  the estimate does not. A request has them.

Stability: experimental.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

import anyio
import click
from rich.text import Text

from palaver.cli import choosing, files, filling, stores
from palaver.cli.failure import bad_input
from palaver.cli.figures import count
from palaver.cli.harmless import in_line, safe
from palaver.cli.kept_request import bare_request, whole_media
from palaver.cli.screen import console
from palaver.cli.source import load
from palaver.context.contents import contents
from palaver.context.pipelines import DEFAULT
from palaver.core.messages import AssistantMessage
from palaver.core.request import Request
from palaver.models import names, providers
from palaver.models.counting import count_tokens
from palaver.models.language_model import Prompt
from palaver.threads.ids import now_ms
from palaver.threads.model_view import for_model
from palaver.threads.thread import Thread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palaver.context.contents import Contents
    from palaver.core.messages import Message
    from palaver.threads.thread import Entry


class _Found(NamedTuple):
    """A conversation: its name for people, its path, and what it is sent with. ``sent`` has the bytes of its media."""

    name: str
    path: Sequence[Entry]
    request: Request
    sent: Sequence[Message]


@click.command(name="context")
@click.argument("what", metavar="FILE|THREAD[@PLACE]", type=click.Path(allow_dash=True))
@click.option("--model", metavar="M", help="provider/id; else that of the last answer.")
@click.option("--branch", metavar="NAME", help="Of a thread, the branch; else main.")
@click.option(
    "--window", type=click.IntRange(min=1), metavar="TOKENS", help="The model's window, where it is not known."
)
@click.option("--from", "spoken", metavar="WIRE", help="The file's own wire; recognised when not given.")
@click.option("--exact", is_flag=True, help="Ask the provider to count; it answers nothing, and needs a key.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@stores.option
def command(
    what: str,
    *,
    model: str | None,
    branch: str | None,
    window: int | None,
    spoken: str | None,
    location: str | None,
    exact: bool,
    as_json: bool,
) -> None:
    """Say what fills a model's window, by kind: in a request in FILE, or in a thread of the store.

    Without --exact it is what the provider reported last and an estimate of what came since, or an estimate alone.
    THREAD and PLACE are meant as in "palaver show".
    """
    is_file = branch is None and (what == files.STANDARD or os.path.lexists(what) or spoken is not None)
    found = _file(what, spoken) if is_file else _thread(what, branch, location)
    messages = for_model(found.path)
    name = named(model, messages, found.request.model)
    if name is None:
        bad_input(found.name, "no answer in it names a model: say which with --model provider/id")
    full, can = choosing.sizes(name)
    counted = _counted(full, found) if exact else None
    told = contents(
        found.path,
        messages,
        model=full,
        window=window or can.window,
        max_output=can.max_output,
        settings=found.request.settings,
        tools=found.request.tools,
        stages=DEFAULT,
        exact=counted,
        now=now_ms(),
    )
    if as_json:
        stores.say_json([filling.plain(told)])
    else:
        _draw(found, told)


def named(given: str | None, messages: Sequence[Message], otherwise: str | None = None) -> str | None:
    """The model that is meant, by its name or by the bare id that an answer names; ``None`` where nothing says.

    Raises ``UnknownNameError`` for a provider that there is not.
    """
    if given:
        if "/" in given and not choosing.is_demo(given):
            providers.find(given.partition("/")[0])
        return given
    for message in reversed(messages):
        if isinstance(message, AssistantMessage) and message.model:
            return message.model
    return otherwise or os.environ.get(names.DEFAULT, "").strip() or None


def _draw(found: _Found, told: Contents) -> None:
    out = console()
    pieces = [found.name, count(told.messages, "message"), in_line(told.model or "")]
    out.print(Text(" · ".join(pieces), "bold"), overflow="fold")
    for each in filling.drawn(told, out):
        out.print(each)


# -- what is meant -----------------------------------------------------------------------------------------------------


def _file(what: str, spoken: str | None) -> _Found:
    source = load(what, spoken, guess=True)
    if source.failure is not None:
        bad_input(files.shown(what), source.failure)
    value = source.value
    request = value if isinstance(value, Request) else Request((value.message,), value.model)
    thread = Thread()
    thread.append(*request.messages)
    return _Found(safe(files.shown(what)), thread.path(), request, request.messages)


def _thread(what: str, branch: str | None, location: str | None) -> _Found:
    if not stores.is_there(location):
        bad_input(safe(files.shown(what)), f"no such file, and there is no store at {stores.shown(location)}")
    with stores.opened(location) as store:
        found = stores.address(store, what)
        if branch is not None:
            found = found._replace(place=stores.place(store, found.info, branch))
        path = store.path(found.info.id, found.of)
        sent = [whole_media(store, message) for message in for_model(path)]
        return _Found(f"thread {safe(str(found))}", path, bare_request(found), sent)


def _counted(name: str, found: _Found) -> int:
    """What the provider counts. Raises ``CapabilityError`` where it has no way to."""
    request = found.request
    prompt = Prompt(messages=tuple(found.sent), tools=request.tools, settings=request.settings)
    model = choosing.chosen(name)

    async def ask() -> int:
        return await count_tokens(model, prompt)

    return anyio.run(ask)
