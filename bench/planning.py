"""Cases: planning a compaction of 10,000 messages, and what a turn costs where there is nothing to compact.

Rules:

- Planning is what ``Compactor`` does between the size of the prompt and the thread: ``plan_of`` and
  ``compaction_flow``, with the estimates that its ledger has. Whatever a model is asked is answered at once. The note
  says which stages changed something, and what is left of the tokens. A row of its own adds what makes changes of the
  plan.
- The conversation is one of ``conversations.py`` (``short``), in a window that it overflows by a twentieth. Peers bring
  it to 60 % of that: by trimming, or by a summary that is answered at once.
- What is idle is a run of ``turns`` calls, whose results have 0.5 to 8 KB, with a window that is never full, against
  the same without: the time of a turn. The model answers at once, as in ``rounds.py``.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import conversations
import provider
import runners
from measure import Case, Contender, Job, Row, Spread, run
from rounds import answered, loop

from palaver.context.compaction import DEFAULT, SUMMARY_ONLY, compaction_flow, without_model
from palaver.context.ledger import Ledger
from palaver.context.plan import plan_of
from palaver.context.rewrite import plan_rewrite
from palaver.core.errors import SummaryError
from palaver.threads.thread import Thread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import palaver
    from palaver.context.compaction import Compacted
    from palaver.context.plan import Plan, Stage

AT_MOST_MS = 20
PATIENCE = 20.0
_OVER = 1.05
_DOWN_TO = 0.6
_NEWEST = 20


# -- planning ----------------------------------------------------------------------------------------------------------


@cache
def _entries(size: int) -> Sequence[Any]:
    thread = Thread()
    thread.append(*[message.replace(id=None) for message in conversations.generate(1, size + 1)[0][1:]])
    return list(thread.path())


@cache
def _messages(size: int) -> tuple[palaver.Message, ...]:
    return tuple([entry.message for entry in _entries(size)])


@cache
def _estimates(size: int) -> tuple[int, ...]:
    ledger = Ledger()
    ledger.follow(_messages(size))
    return tuple(ledger.estimates)


def _room(size: int) -> int:
    return int(sum(_estimates(size)) / _OVER)


def _plan(size: int) -> Plan:
    return plan_of(_messages(size), capacity=_room(size), tokens=_estimates(size))


def answering(plan: Plan, stages: Sequence[Stage], goal: int | None = None) -> Compacted:
    """Compact, with a model that answers at once."""
    compaction = compaction_flow(plan, stages, goal=goal)
    try:
        next(compaction)
        while True:
            compaction.send(provider.SUMMARY)
    except StopIteration as stop:
        found: Compacted = stop.value
        return found


def _alone(plan: Plan) -> Compacted:
    return without_model(compaction_flow(plan, DEFAULT), SummaryError("nobody is asked"))


_OURS: tuple[tuple[str, Callable[[Plan], Any]], ...] = (
    ("palaver DEFAULT, until it fits", lambda plan: answering(plan, DEFAULT)),
    ("palaver DEFAULT, without a model", _alone),
    ("palaver SUMMARISE alone", lambda plan: answering(plan, (SUMMARY_ONLY,))),
    ("palaver DEFAULT, every stage forced", lambda plan: answering(plan, DEFAULT, goal=1)),
)


def planning(size: int, rounds: int) -> list[Row]:
    """All of them in one case."""
    contenders = [Contender(name, _planner(size, work)) for name, work in _OURS]
    contenders += [
        Contender("palaver DEFAULT, until it fits, and the changes for a thread", lambda: _rewriting(size)),
        Contender("palaver plan_of alone", lambda: Job(lambda _: _plan(size))),
        Contender("langchain-core trim_messages, approximate", lambda: _trimming(size)),
        Contender("langchain SummarizationMiddleware", lambda: _summarising(size, 4_000)),
        Contender("langchain SummarizationMiddleware, trim_tokens_to_summarize=None", lambda: _summarising(size, None)),
        Contender("pydantic-ai history processor: messages[-n:]", lambda: _newest(size)),
    ]
    rows = run(Case(f"2. Planning a compaction of {size:,} messages", "ms", contenders, PATIENCE), rounds)
    for row in rows[: len(_OURS)]:
        row.target = f"≤ {AT_MOST_MS} ms"
        row.met = None if row.value is None else row.value.median <= AT_MOST_MS
    return rows


def _planner(size: int, work: Callable[[Plan], Compacted]) -> Callable[[], Job]:
    def setup() -> Job:
        plan = _plan(size)
        found = work(plan)
        stages = ", ".join(change.stage for change in found.plan.changes)
        failed = "".join(f", {each.stage} failed" for each in found.failures)
        note = f"{stages or 'nothing'}{failed}: {found.plan.tokens / plan.tokens:.0%} of the tokens are left"
        return Job(lambda _: work(_plan(size)), note=note)

    return setup


def _rewriting(size: int) -> Job:
    entries, messages = _entries(size), _messages(size)

    def work(_state: object) -> object:
        return plan_rewrite(entries, messages, answering(_plan(size), DEFAULT).plan)

    return Job(work)


@cache
def _langchain_messages(size: int) -> list[Any]:
    return conversations.to_langchain(_messages(size))


def _trimming(size: int) -> Job:
    from langchain_core.messages import trim_messages
    from langchain_core.messages.utils import count_tokens_approximately

    messages = _langchain_messages(size)
    most = int(_DOWN_TO * count_tokens_approximately(messages) / _OVER)

    def work(_state: object) -> Any:
        return trim_messages(
            messages,
            strategy="last",
            token_counter="approximate",  # noqa: S106 (no password)
            max_tokens=most,
            start_on=("human", "ai"),
        )

    return Job(work, check=_is_less(size), note="drops what is old, the task too")


def _summarising(size: int, most: int | None) -> Job:
    from langchain.agents.middleware import SummarizationMiddleware
    from langchain_core.language_models import FakeListChatModel
    from langchain_core.messages.utils import count_tokens_approximately

    messages = _langchain_messages(size)
    tokens = count_tokens_approximately(messages) / _OVER
    made: Any = SummarizationMiddleware(
        FakeListChatModel(responses=[provider.SUMMARY]),
        trigger=("tokens", int(tokens)),
        keep=("tokens", int(_DOWN_TO * tokens)),
        trim_tokens_to_summarize=most,
    )
    return Job(lambda _: made.before_model({"messages": messages}, None)["messages"], check=_is_less(size))


def _newest(size: int) -> Job:
    messages = conversations.to_pydantic_ai(_messages(size))
    note = f"the last {_NEWEST}; no size is looked at, the task goes, and pairs are cut where it falls"
    return Job(lambda _: messages[-_NEWEST:], note=note)


def _is_less(size: int) -> Callable[[Any], None]:
    def check(made: Any) -> None:
        if not 0 < len(made) < size:
            msg = f"{len(made)} messages are left of {size}"
            raise ValueError(msg)

    return check


# -- idle --------------------------------------------------------------------------------------------------------------


def _found(place: str) -> str:
    return provider.result(int(place.removeprefix("place ")))


def idle(turns: int, rounds: int) -> list[Row]:
    """Each without and with what keeps its window."""
    contenders = [Contender(each.name, _idle(each, turns)) for each in runners.WITH_COMPACTION]
    case = f"4. A turn of {turns} where nothing is to be compacted"
    rows = run(Case(case, "ms", contenders, PATIENCE), rounds)
    return rows + [_added(case, *pair) for pair in zip(rows[::2], rows[1::2], strict=True)]


def _added(case: str, without: Row, row: Row) -> Row:
    """What the one of a pair adds, round by round."""
    made = Row(f"{case}: what that adds", row.name, "µs", error=row.error or without.error)
    if row.value is not None and without.value is not None:
        pairs = zip(row.value.samples, without.value.samples, strict=False)
        made.value = Spread([(after - before) * 1e3 for after, before in pairs])
    return made


def _idle(runner: runners.Runner, turns: int) -> Callable[[], Job]:
    def setup() -> Job:
        play = runner.play(runners.Script(turns, found=_found))

        def check(made: Any) -> None:
            answered([runner.answer(made)], 1)

        return Job(lambda _: loop().run_until_complete(play()), per=turns + 1, check=check)

    return setup
