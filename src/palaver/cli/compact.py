"""``palaver compact``: compact a stored conversation, or undo its last compaction.

- The conversation before compaction is kept as a named branch. Nothing is removed from the store.
- Stages run from the cheapest to the most expensive until the goal is reached. A model writes a summary only when the
  other stages are not enough. When no model is available, that stage is skipped and reported.
- The model is the one of ``--model``, else that of the last answer, else ``PALAVER_MODEL``.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import anyio
import click
from rich.text import Text

from palaver.cli import agent_options, completion, key_store, stores
from palaver.cli.context import model_name
from palaver.cli.ranges import WholeNumber
from palaver.cli.show import request_without_messages
from palaver.cli.tables import Column, Listing
from palaver.cli.terminal import bad_input, console, count, echo, safe, safe_line
from palaver.models import names, providers
from palaver.threads.view import for_model
from palaver.turn import compaction

if TYPE_CHECKING:
    from rich.console import RenderableType

    from palaver.models.language_model import LanguageModel
    from palaver.store.stored_thread import StoredThread
    from palaver.turn.compaction import Compaction


@click.command(name="compact")
@click.argument("thread", metavar="THREAD[@BRANCH]", shell_complete=completion.threads)
@click.option(
    "-m",
    "--model",
    metavar="M",
    shell_complete=completion.models,
    help="provider/id: its window counts, and it writes summaries. Default: that of the last answer.",
)
@click.option(
    "--to", type=WholeNumber(1), metavar="TOKENS", help="The size to reach. Default: half of the current size."
)
@click.option("--window", type=WholeNumber(1), metavar="TOKENS", help="The model's window, when it is not known.")
@click.option("--no-model", is_flag=True, help="Do not ask a model for a summary.")
@click.option("--cut-results", is_flag=True, help="Also cut large results that the model has not seen.")
@click.option("--dry-run", is_flag=True, help="Show the result without writing it; a model may be asked.")
@click.option("--undo", is_flag=True, help="Undo the last compaction.")
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
    """Compact a conversation, so that more fits into the model's window. The original stays as a branch.

    The exit code is 1 when nothing could be compacted.
    """
    if undo and (model or to or window or no_model or cut_results or dry_run):
        raise click.UsageError("--undo takes no other option")
    with stores.open_existing(location) as store:
        found = stores.find_address(store, thread)
        if found.position_or_main not in found.info.branches:
            bad_input(safe(str(found)), "only a branch can be compacted; start one there with palaver fork")
        open_ = store.open(found.info.id, found.position_or_main)
        if undo:
            return _undo(open_, safe(str(found)))
        name = model_name(model, for_model(open_.path()), request_without_messages(found).model)
        chosen = None if name is None else _model(name, required=model is not None and not no_model)
        tools = request_without_messages(found).tools

        async def work() -> Compaction:
            return await compaction.compact(
                open_,
                chosen,
                to=to,
                window=window,
                tools=tools,
                summaries=not no_model,
                trial=dry_run,
                cut_results=cut_results,
            )

        done = anyio.run(work)
    out = console()
    for each in render_compaction(done, safe(str(found)), trial=dry_run):
        out.print(each, crop=False)
    return 0 if done.changes else 1


def _undo(thread: StoredThread, name: str) -> int:
    kept = anyio.run(compaction.undo, thread)
    if kept is None:
        bad_input(name, "no compaction to undo")
    restored = count(len(thread.path().messages), "message")
    echo(f"{name}: {restored} again; the compacted conversation is branch {safe(kept)}")
    return 0


def _model(name: str, *, required: bool) -> LanguageModel | None:
    """Return the model. Its key must be set only when the user named it and it will be asked.

    ``None`` for an unknown model that an answer names.
    """
    if required or agent_options.is_demo(name):
        return agent_options.choose_model(name)
    full, _ = agent_options.model_info(name)
    provider = full.partition("/")[0]
    return names.model(full, key=key_store.provider_key(provider)) if provider in providers.PROVIDERS else None


def render_compaction(done: Compaction, name: str, *, trial: bool = False) -> Iterator[RenderableType]:
    """Describe what a compaction did."""
    if done.changes:
        listing = Listing(Column("stage"), *(Column(name, "right") for name in ("messages", "before", "after")))
        for each in done.changes:
            listing.add(safe_line(each.stage), f"{each.messages:,}", f"{each.before:,}", f"{each.after:,}")
        yield listing
    for failure in done.failures:
        yield Text(f"{safe_line(failure.stage)}: {safe_line(str(failure.error))}", "yellow")
    yield Text(_outcome(done, name, trial=trial))


def _outcome(done: Compaction, name: str, *, trial: bool) -> str:
    if not done.changes:
        return f"{name}: nothing could be compacted; it has {done.before:,} tokens, the goal was {done.goal:,}"
    short = "" if done.after <= done.goal else f", more than the goal of {done.goal:,}"
    size = f"{done.before:,} tokens became {done.after:,}{short}"
    where = "nothing was written" if trial else f"the original is branch {safe(done.original_branch or '')}"
    return f"{name}: {size}; {where}"
