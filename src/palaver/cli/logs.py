"""``palaver logs``: what was asked and answered lately, with the model, its tokens and their cost.

- One block for each thread, the last changed first: its prompt and its last answer. ``--thread`` shows one thread
  whole, as ``palaver show`` does; ``--response`` prints answers only, ``--extract`` their first code block.
- Tokens and cost are those of the main branch; a cost that is not known is left out.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click
from rich.padding import Padding
from rich.text import Text

from palaver.cli import code_block, files, rows, stores
from palaver.cli.rows import Form
from palaver.cli.terminal import bad_input, console, echo, safe, when
from palaver.core.messages import AssistantMessage, UserMessage
from palaver.core.usage import Usage
from palaver.models.catalogue import catalogue, cost
from palaver.store.store import Query

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from palaver.core.messages import Message
    from palaver.store.store import Store, ThreadInfo

_MAX_LINES: Final = 12
"""The number of lines of an answer that are shown, unless it is asked for alone."""


@click.command(name="logs")
@click.option(
    "-n",
    "--count",
    "number",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    metavar="N",
    help="The number of threads.",
)
@click.option("-q", "--query", metavar="WORDS", help="Only threads with a message that has these words.")
@click.option("-t", "--thread", metavar="THREAD", help="Only this thread.")
@click.option("-r", "--response", is_flag=True, help="Print only the last answer of each thread, completely.")
@click.option("-x", "--extract", is_flag=True, help="Print only the first fenced code block of the last answer.")
@rows.options
@stores.option
def command(
    *,
    number: int,
    query: str | None,
    thread: str | None,
    response: bool,
    extract: bool,
    form: Form | None,
    location: str | None,
) -> None:
    """Show what was asked and answered lately, the newest first."""
    with stores.open_existing(location) as store:
        infos = _chosen(store, number, query, thread)
        found = [
            _row(info, [each.message for each in stores.message_entries(store, stores.Address(info, None))])
            for info in infos
        ]
    if form is not None:
        rows.write(found, form)
    elif response or extract:
        _print_answers(found, extract=extract)
    else:
        for row in found:
            _draw(row)
    if not found:
        echo("nothing was asked yet", err=True)


def _chosen(store: Store, number: int, query: str | None, thread: str | None) -> Sequence[ThreadInfo]:
    if thread is not None:
        return [stores.find_thread(store, thread)]
    if query is None:
        return list(store.threads(limit=number))
    hits = store.search(Query(text=query, limit=number * 20))
    names = list(dict.fromkeys(hit.thread for hit in hits))[:number]
    return [store.info(name) for name in names]


def _row(info: ThreadInfo, messages: Sequence[Message]) -> dict[str, Any]:
    answers = [each for each in messages if isinstance(each, AssistantMessage)]
    asked = [each.text for each in messages if isinstance(each, UserMessage)]
    spoken = [each.text for each in answers if each.text]
    usage = sum((each.usage for each in answers if each.usage is not None), Usage())
    costs = list(_costs(answers))
    return {
        "thread": info.id,
        "changed": info.updated_at,
        "title": info.title,
        "model": next((each.model for each in reversed(answers) if each.model), None),
        "prompt": asked[-1] if asked else "",
        "answer": spoken[-1] if spoken else "",
        "input_tokens": (usage.input or 0) + (usage.cache_read or 0) + (usage.cache_write or 0),
        "output_tokens": (usage.output or 0) + (usage.reasoning or 0),
        "cost": None if not costs or None in costs else sum(each or 0.0 for each in costs),
    }


def _costs(answers: Sequence[AssistantMessage]) -> Iterator[float | None]:
    for answer in answers:
        if answer.usage is not None and answer.model:
            found = catalogue().find_answered(answer.model)
            yield None if found is None else cost(answer.usage, found[1].prices)


def _print_answers(found: Sequence[dict[str, Any]], *, extract: bool) -> None:
    for row in found:
        blocks = code_block.code_blocks(row["answer"]) if extract else []
        if extract and not blocks:
            bad_input(stores.short(row["thread"]), "there is no code block in the last answer")
        text = blocks[0] if extract else f"{row['answer']}\n"
        files.write(files.STDIO, text.encode("utf-8", "replace"))


def _draw(row: dict[str, Any]) -> None:
    out = console()
    about = [when(row["changed"]), row["model"]]
    if row["input_tokens"] or row["output_tokens"]:
        about.append(f"{row['input_tokens']:,} in, {row['output_tokens']:,} out")
    if row["cost"] is not None:
        about.append(f"${row['cost']:.4f}")
    head = Text(safe(stores.short(row["thread"])), "bold")
    head.append(safe("".join(f" · {each}" for each in about if each)), "dim")
    out.print(head, soft_wrap=True)
    for text, style in ((row["prompt"], "cyan"), (row["answer"], "")):
        lines = safe(text).splitlines()
        hidden = len(lines) - _MAX_LINES
        shown = lines[:_MAX_LINES] + (
            [f"… {hidden} more lines: palaver logs -r -t {stores.short(row['thread'])}"] if hidden > 0 else []
        )
        out.print(Padding(Text("\n".join(shown), style), (0, 0, 0, 2), expand=False))
    out.print()
