"""``palaver today``: the work of all agents since midnight, with tokens and cost.

- A row is a thread with a message since then; only these messages count. A message without a time has that of the one
  before it. Each answer is counted once.
- A cost that is not known is left out, and the total is a lower bound (``≥``).
- Session files that changed after they were imported are reported on standard error.

Stability: experimental.
"""

from __future__ import annotations

import os
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click
from rich.text import Text

from palaver.cli import rows, stores
from palaver.cli.logs import costs
from palaver.cli.rows import Form
from palaver.cli.session_places import PROGRAMS, is_session, session_folders
from palaver.cli.tables import Column, Listing
from palaver.cli.terminal import console, count, echo, parse_time, safe_line, when
from palaver.core.messages import AssistantMessage
from palaver.store.import_files import FILES, title_of
from palaver.threads.thread import RECORD, usage_once
from palaver.transcripts.conversation import session_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from palaver.core.messages import Message
    from palaver.store.store import Store, ThreadInfo

_NAMES: Final = ("thread", "agent", "title", "folder", "messages", "input_tokens", "output_tokens", "cost", "last_at")
_TITLES: Final = {each.file_format: each.title for each in PROGRAMS}


@click.command(name="today")
@click.option(
    "--since", callback=parse_time, metavar="TIME", help="Since a date, or a time ago such as 7d. Default: midnight."
)
@rows.options
@stores.option
def command(*, since: int | None, form: Form | None, location: str | None) -> None:
    """Show today's work of all agents: messages, tokens and cost."""
    start = _midnight() if since is None else since
    with stores.open_existing(location) as store:
        infos = [info for info in store.threads() if info.updated_at >= start]
        found = [row for info in infos if (row := _row(info, _messages_since(store, info, start))) is not None]
    found.sort(key=lambda row: row["last_at"], reverse=True)
    if form is not None:
        rows.write(found, form, _NAMES)
    elif found:
        _draw(found)
    else:
        echo(f"no message since {when(start)}", err=True)
    behind = sum(1 for _ in _not_imported(infos, start))
    if behind:
        echo(
            f"{count(behind, 'session file')} changed since the last import; palaver import --watch keeps up", err=True
        )


def _midnight() -> int:
    today = datetime.now().astimezone().replace(hour=0, minute=0, second=0, microsecond=0)
    return int(today.timestamp() * 1000)


def _messages_since(store: Store, info: ThreadInfo, start: int) -> list[tuple[int, Message]]:
    """Return the messages of all branches since a time, with their times."""
    found: list[tuple[int, Message]] = []
    at: int | None = None
    for entry in store.read(info.id):
        message = entry.message
        at = at if message.sent_at is None else message.sent_at
        if at is not None and at >= start and RECORD not in message.tags:
            found.append((at, message))
    return found


def _row(info: ThreadInfo, timed: list[tuple[int, Message]]) -> dict[str, Any] | None:
    if not timed:
        return None
    messages = [message for _, message in timed]
    answers = [each for each in messages if isinstance(each, AssistantMessage)]
    session, usage, each_cost = session_of(info.metadata), usage_once(answers), list(costs(answers))
    return {
        "thread": info.id,
        "agent": _TITLES.get(session.file_format, session.file_format or "palaver"),
        "title": info.title or title_of(messages) or "",
        "folder": session.cwd,
        "messages": len(messages),
        "input_tokens": (usage.input or 0) + (usage.cache_read or 0) + (usage.cache_write or 0),
        "output_tokens": (usage.output or 0) + (usage.reasoning or 0),
        "cost": None if not each_cost or None in each_cost else sum(each or 0.0 for each in each_cost),
        "last_at": max(at for at, _ in timed),
    }


def _not_imported(infos: Iterable[ThreadInfo], start: int) -> Iterator[Path]:
    """Yield session files that were written since a time and are not in the store as they are."""
    known: dict[str, int] = {}
    for info in infos:
        files: dict[str, dict[str, Any]] = info.metadata.get(FILES) or {}
        known.update((path, state.get("size", -1)) for path, state in files.items())
    for folder in session_folders(os.environ):
        for path in folder.rglob("*"):
            if not is_session(path.name):
                continue
            try:
                stat = path.stat()
            except OSError:
                continue  # it is gone
            if stat.st_mtime * 1000 >= start and known.get(str(path)) != stat.st_size:
                yield path


def _draw(found: list[dict[str, Any]]) -> None:
    listing = Listing(
        Column("thread"),
        Column("agent"),
        Column("messages", "right"),
        Column("in", "right"),
        Column("out", "right"),
        Column("USD", "right"),
        Column("title", narrow="cut"),
        Column("last", optional=True),
        Column("folder", narrow="cut", optional=True),
        note="in a wider terminal, or with --json",
    )
    for row in found:
        listing.add(
            Text(safe_line(stores.short(row["thread"])), "bold"),
            safe_line(row["agent"]),
            f"{row['messages']:,}",
            f"{row['input_tokens']:,}",
            f"{row['output_tokens']:,}",
            "" if row["cost"] is None else f"{row['cost']:,.4f}",
            safe_line(row["title"]),
            Text(when(row["last_at"]), "dim"),
            safe_line(row["folder"] or ""),
        )
    console().print(listing, crop=False)
    echo(_total(found))


def _total(found: list[dict[str, Any]]) -> str:
    known = [row["cost"] for row in found if row["cost"] is not None]
    bound = "" if len(known) == len(found) else "≥ "
    return (
        f"{count(len(found), 'thread')}: {count(sum(row['messages'] for row in found), 'message')},"
        f" {sum(row['input_tokens'] for row in found):,} in, {sum(row['output_tokens'] for row in found):,} out,"
        f" {bound}${sum(known):,.4f}"
    )
