"""``palaver logs``: what was asked and answered lately, with the model, its tokens and their cost.

- One block for each thread, the last changed first: its last prompt and answer, and the tokens and cost of its main
  branch. ``--thread`` and ``--continue`` show one thread whole: a block for each prompt, the oldest first, with the
  tokens and cost of its answers.
- ``--response`` prints the last answer of the thread that changed last, ``--extract`` and ``--extract-last`` a code
  block of it; ``--count`` asks for more threads.
- A cost that is not known is left out.

Stability: experimental.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import click
from rich.padding import Padding
from rich.text import Text

from palaver.cli import code_block, completion, files, rows, stores
from palaver.cli.code_block import Which
from palaver.cli.ranges import WholeNumber
from palaver.cli.rows import Form
from palaver.cli.terminal import bad_input, console, count, echo, safe, when
from palaver.core.messages import AssistantMessage, UserMessage
from palaver.models.catalogue import catalogue, cost
from palaver.store.store import Query
from palaver.threads.thread import usage_once
from palaver.threads.view import COMPACTION, without_copies

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from palaver.core.messages import Message
    from palaver.store.store import Store, ThreadInfo

_NAMES: Final = ("thread", "changed", "title", "model", "prompt", "answer", "input_tokens", "output_tokens", "cost")
_MAX_LINES: Final = 12
"""The number of lines of an answer that are shown, unless it is asked for alone."""


@click.command(name="logs")
@click.option(
    "-n",
    "--count",
    "number",
    type=WholeNumber(1),
    metavar="N",
    help="The number of threads. Default: 3, and 1 with --response and --extract.",
)
@click.option("-q", "--query", metavar="WORDS", help="Only threads with a message that has these words.")
@click.option(
    "-t",
    "--thread",
    metavar="THREAD",
    shell_complete=completion.threads,
    help="Only this thread, with every prompt and answer.",
)
@click.option("-c", "--continue", "last", is_flag=True, help="Only the thread that changed last, as --thread shows it.")
@click.option("-r", "--response", is_flag=True, help="Print only the last answer, completely.")
@code_block.options
@rows.options
@stores.option
def command(
    *,
    number: int | None,
    query: str | None,
    thread: str | None,
    last: bool,
    response: bool,
    extract: Which | None,
    form: Form | None,
    location: str | None,
) -> None:
    """Show what was asked and answered lately, the newest first."""
    if (thread is not None) + last + (query is not None) > 1:
        raise click.UsageError("--thread, --continue and --query exclude each other")
    if response + (extract is not None) + (form is not None) > 1:
        raise click.UsageError("--response, --extract, --json and --csv exclude each other")
    alone = response or extract is not None
    number = number or (1 if alone else 3)
    whole = (thread is not None or last) and not alone
    with stores.open_existing(location) as store:
        infos = _chosen(store, 1 if last else number, query, thread)
        found = [row for info in infos for row in _rows(info, _messages(store, info), whole=whole)]
    if form is not None:
        rows.write(found, form, _NAMES)
    elif alone:
        _print_answers(found, extract)
    else:
        for row in found:
            _draw(row, whole=whole)
    if not found:
        echo("nothing was asked yet" if query is None else "no message matches", err=True)


def _chosen(store: Store, number: int, query: str | None, thread: str | None) -> Sequence[ThreadInfo]:
    if thread is not None:
        return [stores.find_thread(store, thread)]
    if query is None:
        return list(store.threads(limit=number))
    limit = number
    while True:  # a thread may have many of the newest hits
        hits = store.search(Query(text=query, limit=limit))
        names = list(dict.fromkeys(hit.thread for hit in hits))[:number]
        if len(names) == number or len(hits) < limit:
            return [store.info(name) for name in names]
        limit *= 4


def _messages(store: Store, info: ThreadInfo) -> list[Message]:
    return [each.message for each in without_copies(stores.message_entries(store, stores.Address(info, None)))]


def _rows(info: ThreadInfo, messages: Sequence[Message], *, whole: bool) -> Iterator[dict[str, Any]]:
    """Yield a row for the thread, or, with ``whole``, for each of its prompts."""
    if not whole:
        yield _row(info, messages)
        return
    starts = [place for place, each in enumerate(messages) if _is_prompt(each)]
    for start, end in pairwise([*starts, len(messages)]):
        yield _row(info, messages[start:end])


def _is_prompt(message: Message) -> bool:
    return isinstance(message, UserMessage) and message.mode != "tool" and message.source != COMPACTION


def _row(info: ThreadInfo, messages: Sequence[Message]) -> dict[str, Any]:
    answers = [each for each in messages if isinstance(each, AssistantMessage)]
    prompts = [each.text for each in messages if _is_prompt(each)]
    texts = [each.text for each in answers if each.text]
    usage = usage_once(answers)
    found = list(costs(answers))
    return {
        "thread": info.id,
        "changed": info.updated_at,
        "title": info.title,
        "model": next((each.model for each in reversed(answers) if each.model), None),
        "prompt": prompts[-1] if prompts else "",
        "answer": texts[-1] if texts else "",
        "input_tokens": (usage.input or 0) + (usage.cache_read or 0) + (usage.cache_write or 0),
        "output_tokens": (usage.output or 0) + (usage.reasoning or 0),
        "cost": None if not found or None in found else sum(each or 0.0 for each in found),
    }


def costs(answers: Sequence[AssistantMessage]) -> Iterator[float | None]:
    """Yield the cost of each answer with usage; an answer that several messages share has the last one's."""
    responses = {each.response_id or each.id or place: each for place, each in enumerate(answers) if each.usage}
    for answer in responses.values():
        found = None if answer.model is None else catalogue().find_answered(answer.model)
        yield None if found is None else cost(answer.usage, found[1].prices)


def _print_answers(found: Sequence[dict[str, Any]], extract: Which | None) -> None:
    texts = [
        f"{row['answer']}\n" if extract is None else code_block.code_block(row["answer"], extract) for row in found
    ]
    if found and not any(text is not None for text in texts):
        bad_input(stores.short(found[0]["thread"]), "there is no code block in the last answer")
    for text in texts:
        files.write(files.STDIO, (text or "").encode("utf-8", "replace"))


def _draw(row: dict[str, Any], *, whole: bool) -> None:
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
        hidden = 0 if whole else len(lines) - _MAX_LINES
        shown = lines[:_MAX_LINES] if hidden > 0 else lines
        out.print(Padding(Text("\n".join(shown), style), (0, 0, 0, 2), expand=False))
        if hidden > 0:
            more = f"  … {count(hidden, 'more line')}: palaver logs -t {stores.short(row['thread'])}"
            out.print(Text(more, "dim"), soft_wrap=True)
    out.print()
