"""Case: what it costs to know the size of the prompt, after each message that joins a conversation.

Rules:

- Conversations are those of ``conversations.py`` (``short``), as a thread holds them; ``APPENDS`` messages join one
  after the other, and the size of the prompt is told after each. The time is that of one.
- palaver's is what ``Compactor`` does before each turn: find the anchor, estimate what is new, and measure. What was
  there before was told before.
- Peers are asked for the same: their function for it gets the list. langchain's middleware is asked with a trigger that
  is never reached. pydantic-ai has no such function: it sums up what providers reported, after each answer.
"""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any

import conversations
import provider
from measure import Case, Contender, Job, Row, Skipped, Spread, run

from palaver.context.ledger import Ledger
from palaver.threads.thread import Entry, ListPrefix, Thread

if TYPE_CHECKING:
    from collections.abc import Sequence

    import palaver

SIZES = (100, 1_000, 10_000, 100_000)
APPENDS = 50
FLAT = 1.5
PATIENCE = 10.0
FIXED = 1_000
_FIRST = "palaver Ledger, anchored and measured"
_WHOLE = 10_000
"""A conversation of this many messages is said again, until there are enough."""


@cache
def _said(count: int) -> tuple[palaver.Message, ...]:
    """So many messages, with what joins them."""
    one = conversations.generate(1, min(_WHOLE, count + APPENDS))[0][1:]
    made: list[palaver.Message] = []
    while len(made) < count + APPENDS:
        made += [message.replace(id=None) for message in one[: count + APPENDS - len(made)]]
    return tuple(made)


@cache
def _entries(count: int) -> Sequence[Entry]:
    thread = Thread()
    thread.append(*_said(count))
    return list(thread.path())


def _case_name(size: int) -> str:
    return f"1. The size of the prompt after one append to {size:,} messages"


def cases(sizes: Sequence[int], rounds: int) -> list[Row]:
    """One case for each size, and whether palaver's time grows."""
    rows: list[Row] = []
    for size in sizes:
        rows += run(Case(_case_name(size), "ms", _contenders(size), PATIENCE), rounds)
    return [*rows, *flatness(rows, sizes)]


def _contenders(size: int) -> list[Contender]:
    return [
        Contender(_FIRST, partial(_palaver, size)),
        Contender("palaver Ledger, from nothing (the first time)", partial(_anew, size)),
        Contender("langchain-core count_tokens_approximately", partial(_approximately, size)),
        Contender("langchain SummarizationMiddleware.before_model", partial(_middleware, size)),
        Contender("langchain-openai get_num_tokens_from_messages", partial(_tokenised, size)),
        Contender("pydantic-ai", _pydantic_ai),
    ]


def _palaver(size: int) -> Job:
    entries = _entries(size)
    messages = [entry.message for entry in entries]
    steps = [(ListPrefix(entries, end), ListPrefix(messages, end)) for end in range(size, size + APPENDS + 1)]
    ledger = Ledger()

    def measured(step: Any) -> object:
        path, prompt = step
        return ledger.measure(prompt, fixed=FIXED, anchor=ledger.anchored(path, prompt))

    def check(made: Any) -> None:
        other = Ledger()
        path, prompt = steps[-1]
        if made != other.measure(prompt, fixed=FIXED, anchor=other.anchored(path, prompt)):
            msg = "what was told step by step is not what is told at once"
            raise ValueError(msg)

    def tell(_state: object) -> object:
        made: object = None
        for step in steps[1:]:
            made = measured(step)
        return made

    return Job(tell, lambda: measured(steps[0]), per=APPENDS, check=check)


def _anew(size: int) -> Job:
    entries = _entries(size)
    messages = tuple([entry.message for entry in entries[:size]])
    return Job(lambda _: Ledger().measure(messages, fixed=FIXED))


@cache
def _langchain_messages(size: int) -> list[Any]:
    return conversations.to_langchain([entry.message for entry in _entries(size)[:size]])


def _approximately(size: int) -> Job:
    from langchain_core.messages.utils import count_tokens_approximately

    messages = _langchain_messages(size)
    return Job(lambda _: count_tokens_approximately(messages))


def _model() -> Any:
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(model=provider.MODEL, api_key="none")  # type: ignore[arg-type]


def _middleware(size: int) -> Job:
    from langchain.agents.middleware import SummarizationMiddleware

    made: Any = SummarizationMiddleware(_model(), trigger=("tokens", 10**12))
    state = {"messages": _langchain_messages(size)}
    return Job(lambda _: made.before_model(state, None))


def _tokenised(size: int) -> Job:
    provider.place_tokenisers()
    model = _model()
    messages = [message for message in _langchain_messages(size) if isinstance(message.content, str)]
    return Job(lambda _: model.get_num_tokens_from_messages(messages), note="without messages that have images")


def _pydantic_ai() -> Job:
    raise Skipped("it counts nothing before a request, unless the provider is asked to")


def flatness(rows: Sequence[Row], sizes: Sequence[int]) -> list[Row]:
    """Each size against the smallest."""
    found = {row.case: row.value for row in rows if row.name == _FIRST}
    base = found[_case_name(sizes[0])]
    made: list[Row] = []
    for size in sizes[1:]:
        row = Row(f"1. An append to {size:,} messages against one to {sizes[0]}", _FIRST, "×", target=f"≤ {FLAT:g}×")
        value = found[_case_name(size)]
        if value is not None and base is not None:
            row.value = Spread([one / other for one, other in zip(value.samples, base.samples, strict=False)])
            row.met = row.value.median <= FLAT
        made.append(row)
    return made
