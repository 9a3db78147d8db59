"""``palaver compact``: makes a conversation of the store shorter now, and takes that back.

Rules:

- What the conversation was stays, as a branch that is named. Nothing is removed from the store.
- Stages run from what costs nothing to what costs most, until the goal is reached. A model is asked for a summary only
  when the others did not suffice; where none can be asked that stage is passed over, and it is said.
- The model is the one that is named, else that of the last answer, else ``PALAVER_MODEL``.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import anyio
import click
from rich import box
from rich.table import Table
from rich.text import Text

from palaver.cli import agent_options, stores
from palaver.cli.context import named
from palaver.cli.show import bare_request
from palaver.cli.terminal import bad_input, console, count, echo, in_line, safe
from palaver.models import names, providers
from palaver.threads.model_view import for_model
from palaver.turn import compaction

if TYPE_CHECKING:
    from rich.console import RenderableType

    from palaver.models.language_model import LanguageModel
    from palaver.store.stored_thread import StoredThread
    from palaver.turn.compaction import Compaction


@click.command(name="compact")
@click.argument("thread", metavar="THREAD[@BRANCH]")
@click.option(
    "--model", metavar="M", help="provider/id, whose window it is, and which sums up; else the last answer's."
)
@click.option("--to", type=click.IntRange(min=1), metavar="TOKENS", help="How short; half of what it is, by default.")
@click.option(
    "--window", type=click.IntRange(min=1), metavar="TOKENS", help="The model's window, where it is not known."
)
@click.option("--no-model", is_flag=True, help="Ask no model for a summary.")
@click.option("--cut-results", is_flag=True, help="Cut large results too that the model has not seen.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and write nothing; a model may be asked.")
@click.option("--undo", is_flag=True, help="Take the last compaction back.")
@stores.option
def command(
    thread: str,
    *,
    model: str | None,
    to: int | None,
    window: int | None,
    location: str | None,
    no_model: bool,
    cut_results: bool,
    dry_run: bool,
    undo: bool,
) -> int:
    """Make a conversation shorter, so that more fits behind it; what it was stays as a branch.

    Exit code 1 when nothing could be done.
    """
    if undo and (model or to or window or no_model or cut_results or dry_run):
        raise click.UsageError("--undo takes no other option")
    with stores.opened(location) as store:
        found = stores.address(store, thread)
        if found.of not in found.info.branches:
            bad_input(safe(str(found)), "a conversation is compacted on its branch; begin one there with palaver fork")
        open_ = store.open(found.info.id, found.of)
        if undo:
            return _undone(open_, safe(str(found)))
        name = named(model, for_model(open_.path()), bare_request(found).model)
        asked = None if name is None else _model(name, given=model is not None, asks=not no_model)
        tools = bare_request(found).tools

        async def work() -> Compaction:
            return await compaction.compact(
                open_,
                asked,
                to=to,
                window=window,
                tools=tools,
                summaries=not no_model,
                trial=dry_run,
                cut_results=cut_results,
            )

        done = anyio.run(work)
    out = console()
    for each in told(done, safe(str(found)), trial=dry_run):
        out.print(each)
    return 0 if done.changes else 1


def _undone(thread: StoredThread, name: str) -> int:
    kept = anyio.run(compaction.undo, thread)
    if kept is None:
        bad_input(name, "nothing in it was compacted")
    echo(f"{name}: {count(len(thread.path()), 'message')} again; with the compaction it is branch {safe(kept)}")
    return 0


def _model(name: str, *, given: bool, asks: bool) -> LanguageModel | None:
    """The model; only one that somebody named, and that is to be asked, must have its key.

    ``None`` for one that an answer names and nobody knows.
    """
    if (given and asks) or agent_options.is_demo(name):
        return agent_options.chosen(name)
    full, _ = agent_options.sizes(name)
    return names.model(full) if full.partition("/")[0] in providers.PROVIDERS else None


def told(done: Compaction, name: str, *, trial: bool = False) -> Iterator[RenderableType]:
    """What a compaction did, for people."""
    if done.changes:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
        table.add_column("stage", no_wrap=True)
        for column in ("messages", "before", "after"):
            table.add_column(column, justify="right", no_wrap=True)
        for each in done.changes:
            table.add_row(Text(in_line(each.stage)), f"{each.messages:,}", f"{each.before:,}", f"{each.after:,}")
        yield table
    for failure in done.failures:
        yield Text(f"{in_line(failure.stage)}: {in_line(str(failure.error))}", "yellow")
    yield Text(_outcome(done, name, trial=trial))


def _outcome(done: Compaction, name: str, *, trial: bool) -> str:
    if not done.changes:
        return f"{name}: nothing could be done; it is {done.before:,} tokens, and the goal was {done.goal:,}"
    short = "" if done.after <= done.goal else f", more than the goal of {done.goal:,}"
    size = f"{done.before:,} tokens became {done.after:,}{short}"
    where = "nothing was written" if trial else f"what it was is branch {safe(done.kept or '')}"
    return f"{name}: {size}; {where}"
