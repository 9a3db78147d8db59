"""``palaver search``: find messages by their words, their author and their time.

Stability: experimental.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, get_args

import click
from msgspec import structs
from rich.padding import Padding
from rich.text import Text

from palaver.cli import completion, rows, stores
from palaver.cli.ranges import WholeNumber
from palaver.cli.rows import Form
from palaver.cli.suggestions import Choice
from palaver.cli.terminal import console, count, echo, parse_time, safe, when
from palaver.core.messages import Role
from palaver.store import search_text
from palaver.store.store import Hit, Query
from palaver.threads.view import COMPACTION, fingerprint

if TYPE_CHECKING:
    from palaver.store.store import Store

_WORD: Final = re.compile("(?:[^\\W_][\u0300-\u036f]*)+")


_NAMES: Final = ("thread", "entry", "role", "agent", "sent_at", "tags", "excerpt")


@click.command(name="search")
@click.argument("words", metavar="WORDS...", nargs=-1)
@click.option("--role", type=Choice(get_args(Role)), metavar="ROLE", help="user, assistant, tool, system, …")
@click.option("--agent", metavar="NAME", help="The agent that wrote the message, or that it was for.")
@click.option("--tool", metavar="NAME", help="The tool that was called or that returned a result.")
@click.option("--tag", metavar="TAG", help="A tag of the message.")
@click.option(
    "--since", callback=parse_time, metavar="TIME", help="Not before: 2026-11-20, 2026-11-20T14:30, 7d or 3h ago."
)
@click.option("--until", callback=parse_time, metavar="TIME", help="Before that time.")
@click.option("-t", "--thread", metavar="THREAD", shell_complete=completion.threads, help="In this thread only.")
@click.option(
    "-n", "--limit", type=WholeNumber(1), default=20, show_default=True, metavar="N", help="At most N messages."
)
@rows.options
@stores.option
def command(
    words: tuple[str, ...], *, thread: str | None, limit: int, location: str | None, form: Form | None, **about: Any
) -> None:
    """Search messages, the newest first.

    All WORDS must occur, in any order; case and accents do not matter. '"two words"' is a phrase, 'be*' the beginning
    of a word. Without WORDS, the options alone select.
    """
    if not words and thread is None and not any(value is not None for value in about.values()):
        raise click.UsageError("nothing to search for: give WORDS or an option")
    with stores.open_existing(location) as store:
        where = None if thread is None else stores.find_thread(store, thread).id
        query = Query(text=" ".join(words), thread=where, limit=limit + 1, **about)
        found = _without_copies(store, query)
        hits, more = found[:limit], len(found) > limit
        if form is not None:
            rows.write([_plain(hit) for hit in hits], form, _NAMES)
        elif hits:
            _draw(store, hits, query)
    if not hits:
        echo("no message matches", err=True)
    if more:
        echo(f"only the newest {count(limit, 'message')}; there are more (--limit)", err=True)


def _without_copies(store: Store, query: Query) -> list[Hit]:
    """Return the hits, each message once: a message that a compaction copied is in its thread twice."""
    wider = query
    while True:
        hits = store.search(wider)
        found: dict[tuple[str, object, object], Hit] = {}  # an edited copy of a session has its ids too
        texts: dict[tuple[str, object], bool] = {}  # whether the newest one is a copy without its original
        for hit in hits:
            message = hit.entry.message
            copied = message.source == COMPACTION
            what = (hit.thread, fingerprint(message))
            again = (copied and what in texts) or texts.get(what) is True
            texts[what] = copied and not again
            if again:
                continue
            found.setdefault((*what, message.id or hit.entry.id), hit)
        if len(hits) < wider.limit or len(found) >= query.limit:
            return list(found.values())
        wider = structs.replace(wider, limit=wider.limit * 2)


def _plain(hit: Hit) -> dict[str, Any]:
    message = hit.entry.message
    return {
        "thread": hit.thread,
        "entry": hit.entry.id,
        "role": message.role,
        "agent": message.agent,
        "sent_at": message.sent_at,
        "tags": message.tags,
        "excerpt": hit.excerpt,
    }


def _draw(store: Store, hits: list[Hit], query: Query) -> None:
    out = console()
    titles = {thread: store.info(thread).title for thread in {hit.thread for hit in hits}}
    for hit in hits:
        message = hit.entry.message
        about = [when(message.sent_at), message.role, message.agent, titles[hit.thread]]
        head = Text(safe(_address(hit)), "bold")
        head.append(" ".join(safe("".join(f" · {each}" for each in about if each)).split("\n")), "dim")
        out.print(head, soft_wrap=True)
        out.print(Padding(_marked(safe(hit.excerpt), query.text), (0, 0, 0, 2), expand=False))
        out.print()
    out.print(Text(f"palaver show {safe(_address(hits[0]))} shows the conversation up to there", "dim"), soft_wrap=True)


def _address(hit: Hit) -> str:
    return f"{stores.short(hit.thread)}@{stores.short(hit.entry.id)}"


def _marked(excerpt: str, words: str) -> Text:
    """Highlight the words of the query."""
    marked = Text(excerpt)
    needles = search_text.parse(words).needles
    whole = {word for needle in needles for word in needle.split()}
    beginnings = tuple(needle.split()[-1] for needle in needles if not needle.endswith(" "))
    for found in _WORD.finditer(excerpt):
        for start, end, word in _parts(found):
            if word in whole or (beginnings and word.startswith(beginnings)):
                marked.stylize("bold yellow", start, end)
    return marked


def _parts(found: re.Match[str]) -> list[tuple[int, int, str]]:
    """Return the word with its position. In a script without spaces, each character is a word."""
    normal = search_text.normalize(found[0])
    if " " not in normal:
        return [(found.start(), found.end(), normal)]
    return [
        (found.start() + at, found.start() + at + 1, search_text.normalize(char)) for at, char in enumerate(found[0])
    ]
