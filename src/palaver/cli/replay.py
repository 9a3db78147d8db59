"""``palaver replay``: send the request of a logged exchange to another model, and compare the answers.

- NAME is an exchange of a gateway's log, or a thread of the store, of which the last exchange is meant.
- MODEL is a name of ``--config``, or ``provider/id``.
- The messages, tools and settings of the request are sent in the wire of that model. What it cannot be told is counted.
- ``--save`` adds the new answer to the thread, on a branch ``replay-…`` beside the old one.

Stability: experimental.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import anyio
import click
from msgspec import structs
from rich.text import Text

from palaver import wires
from palaver.cli import gateway_database, key_store, stores
from palaver.cli.tables import table
from palaver.cli.terminal import bad_input, console, echo, safe
from palaver.core.errors import NotFoundError
from palaver.models.catalogue import cost, prices_of
from palaver.threads.ids import now_ms, uuid7
from palaver.threads.thread import Entry, stamped

if TYPE_CHECKING:
    from palaver.core.messages import AssistantMessage
    from palaver.core.request import Loss, Request
    from palaver.gateway.log.exchanges import Exchanges, StoredExchange
    from palaver.models import Model
    from palaver.store.store import Store

_ROWS: Final = ("model", "text", "calls", "finish_reason", "input_tokens", "output_tokens", "cost", "seconds", "losses")


class _Answer(NamedTuple):
    """An answer, and how it came."""

    message: AssistantMessage
    model: str
    seconds: float | None
    losses: tuple[Loss, ...]

    def row(self) -> dict[str, Any]:
        """Return the answer as JSON values."""
        usage = self.message.usage
        calls = [{"name": each.name, "arguments": each.arguments_json} for each in self.message.tool_calls]
        return {
            "model": self.model,
            "text": self.message.text,
            "calls": calls,
            "finish_reason": self.message.finish_reason,
            "input_tokens": None
            if usage is None
            else sum([each or 0 for each in (usage.input, usage.cache_read, usage.cache_write)]),
            "output_tokens": None if usage is None else (usage.output or 0) + (usage.reasoning or 0),
            "cost": cost(usage, prices_of(self.model)),
            "seconds": self.seconds,
            "losses": [str(each) for each in self.losses],
        }


@click.command(name="replay")
@click.argument("name")
@click.option("--to", required=True, metavar="MODEL", help="The model that is asked.")
@click.option("--save", is_flag=True, help="Add the new answer to the thread, as a branch.")
@click.option("--json", "as_json", is_flag=True, help="Print both answers as one JSON object.")
@gateway_database.options
@stores.option
def command(
    name: str,
    *,
    to: str,
    save: bool,
    as_json: bool,
    config: str | None,
    database: str | None,
    location: str | None,
) -> None:
    """Send the request of an exchange to another model, and compare the answers."""
    with gateway_database.opened(config, database) as opened:
        from palaver.gateway.log.exchanges import Exchanges

        found = _find(Exchanges(opened), name, location)
    request, old = _request(found), _old_answer(found)
    new = anyio.run(_ask, _model(to, found.summary.api, config), request)
    branch = _save(found, new, location) if save else None
    answers = ([] if old is None else [old]) + [new]
    if as_json:
        shown = {"exchange": found.summary.id, "thread": found.summary.thread, "branch": branch}
        stores.print_json([{**shown, "answers": [each.row() for each in answers]}])
        return
    _draw(answers)
    if branch is not None:
        echo(f"saved as {stores.short(found.summary.thread or '')}@{branch}")


def _find(exchanges: Exchanges, name: str, location: str | None) -> StoredExchange:
    try:
        return exchanges.read(name)
    except NotFoundError:
        if not stores.exists(location):
            raise
    with stores.open_existing(location) as store:
        thread = stores.find_thread(store, name).id
    answered = next((each for each in exchanges.recent(100, thread=thread) if each.outcome == "answered"), None)
    if answered is None:
        bad_input(name, "the log has no answered exchange of that thread")
    return exchanges.read(answered.id)


def _request(found: StoredExchange) -> Request:
    if found.bodies is None:
        bad_input(found.summary.id, "the log keeps no bodies of it")
    return wires.get(found.summary.api).decode_request(found.bodies.request)


def _old_answer(found: StoredExchange) -> _Answer | None:
    from palaver.gateway.record import decode_answer

    summary, receipt = found.summary, found.receipt
    if receipt.wire is None or found.bodies is None:
        return None
    answer = decode_answer(receipt.wire, found.bodies.received, stream=receipt.stream)
    if answer is None:
        return None
    return _Answer(answer.message, summary.model or summary.asked, summary.seconds, tuple(receipt.losses))


def _model(name: str, api: str, config: str | None) -> Model:
    from palaver.gateway.apis import APIS
    from palaver.gateway.config import GatewayConfig, read_config
    from palaver.gateway.health import Health
    from palaver.gateway.router import Router

    chosen = GatewayConfig() if config is None else read_config(config)
    router = Router(chosen, key_store.provider_key, Health(chosen.breaker))
    return router.find(name, next(each for each in APIS if each.wire == api)).places[0][0].model


async def _ask(model: Model, request: Request) -> _Answer:
    from palaver.models.language_model import Prompt

    settings = structs.replace(request.settings, stream=None)
    prompt = Prompt(messages=request.messages, tools=request.tools, settings=settings, provider=request.provider)
    began = time.perf_counter()
    async with model.session().ask(prompt, stream=False) as answer:
        reply = await answer.finish()
    return _Answer(reply.response.message, model.name, time.perf_counter() - began, reply.losses)


def _save(found: StoredExchange, new: _Answer, location: str | None) -> str:
    summary = found.summary
    if summary.thread is None or summary.entry is None:
        bad_input(summary.id, "it has no answer in a thread")
    with stores.open_existing(location) as store:
        return _add(store, summary.thread, summary.entry, new, summary.id)


def _add(store: Store, thread: str, entry: str, new: _Answer, exchange: str) -> str:
    parent = store.path(thread, entry, last=1)[0].parent
    metadata = {**new.message.metadata, "replay_of": exchange}
    new_id, branch = uuid7(), f"replay-{uuid7()[-12:]}"
    message = stamped(new.message.replace(metadata=metadata, model=new.message.model or new.model), new_id, now_ms())
    store.add(thread, [Entry(new_id, parent, message)], branches={branch: new_id})
    return branch


def _draw(answers: list[_Answer]) -> None:
    shown = [each.row() for each in answers]
    drawn = table(2)
    for title in ("", *(["logged"] if len(answers) > 1 else []), "replayed"):
        drawn.add_column(title, style="dim" if not title else None, overflow="fold")
    for name in _ROWS:
        cells = [_cell(name, each[name]) for each in shown]
        if any(cells):
            drawn.add_row(name.replace("_", " "), *map(Text, cells))
    console().print(drawn)


def _cell(name: str, value: Any) -> str:
    match name, value:
        case _, None:
            return ""
        case "calls", _:
            return safe("\n".join(f"{each['name']} {each['arguments']}" for each in value))
        case "losses", _:
            return str(len(value)) if value else ""
        case "cost", _:
            return f"${value:.4f}"
        case "seconds", _:
            return f"{value:.1f}"
        case _:
            return safe(str(value))
