"""Cases: opening a long conversation, and one append with the view after it.

Rules:

- To open is to open the place anew and to read the whole conversation into objects: messages, where the contender
  has such, else dictionaries. The files are in the memory of the system by then. Wall clock.
- A turn is one append and what the model is given next. In memory that is a thread and a view of it, by CPU time.
  Kept, by a wall clock, it is the same with a durable append: palaver appends to its store and to the thread that it
  holds; a peer appends and reads what it needs for the next request, which is everything, as its own loop does.
- All messages are one agent's, so that the view can fill its window. After 10 messages a window of 15 is not full: what
  a full one costs more than that is in the comparison, and a row with a small window shows it without.
- Turns after 10 messages are taken each from another conversation, turns after many one behind the other.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import keepers
from appends import Begun
from keepers import AGENT, Keeper, Live
from measure import Case, Contender, Job, Row, Spread, run
from msgspec import structs

from palaver.threads.agent_view import AgentView
from palaver.threads.thread import Thread
from palaver.threads.view import ModelView

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from keepers import Opened

    from palaver import Message

SHORT = 10
TURNS = 10
"""Turns of a run that keeps, one of which may take a peer half a second."""

HELD = 100
"""Turns of a run in memory: what only the first one pays, the growth of a list, is shared by as many."""

FLAT = 1.5
WINDOW = 15
FULL = 5
"""A window that is full after ``SHORT`` messages too, so that both lengths give the model as much."""

PATIENCE = 10.0
_FILES = (keepers.SQLITE, keepers.JSONL, keepers.RAW, keepers.AGENTS, keepers.SAVER)
_SERVER = (keepers.POSTGRES, keepers.RAW_POSTGRES, keepers.POSTGRES_SAVER)
_TURNS = (keepers.SQLITE, keepers.POSTGRES, keepers.RAW, keepers.AGENTS, keepers.SAVER)


def opening(messages: Sequence[Message], rounds: int) -> list[Row]:
    """Open what was kept: the whole conversation, and its end."""
    ways: tuple[tuple[str, Callable[[Opened], int]], ...] = (
        (f"the whole thread of {len(messages):,} messages", lambda opened: opened.read("one")),
        (f"the last {WINDOW} of {len(messages):,} messages", lambda opened: opened.last("one", WINDOW)),
    )
    rows: list[Row] = []
    with ExitStack() as stack:
        for group in (_FILES, _SERVER):
            kept = {keeper.name: _Kept(keeper, messages, stack) for keeper in group}
            for name, way in ways:
                contenders = [Contender(name_, partial(each.job, way)) for name_, each in kept.items()]
                where = "a file" if group is _FILES else "a server"
                rows += run(
                    Case(f"4. Open {where} and read {name}", "ms", contenders, PATIENCE, time.perf_counter), rounds
                )
    return rows


class _Kept:
    """A contender that keeps one long conversation; closed."""

    def __init__(self, keeper: Keeper, messages: Sequence[Message], stack: ExitStack) -> None:
        self._keeper = keeper
        self._messages = messages
        self._stack = stack
        self._place: Any = None

    def job(self, way: Callable[[Opened], int]) -> Job:
        if self._place is None:
            begun = Begun(self._keeper)
            self._stack.callback(begun.place.drop)
            begun.opened.fill("one", self._keeper.form(self._messages))
            begun.opened.close()
            self._place = begun.place

        def read(opened: list[Opened]) -> int:
            opened.append(self._keeper.opened(self._place))
            return way(opened[0])

        def check(found: int) -> None:
            assert found >= min(WINDOW, len(self._messages))

        return Job(read, prepare=list[Any], check=check, finish=_close)


def _close(opened: list[Opened]) -> None:
    for each in opened:
        each.close()


# -- turns ---------------------------------------------------------------------------------------------------------


def turning(messages: Sequence[Message], rounds: int) -> list[Row]:
    """One append and the view after it, at a small and at a great length."""
    messages = [structs.replace(message, agent=AGENT) for message in messages]
    lengths = (SHORT, len(messages) - HELD)
    rows: list[Row] = []
    with ExitStack() as stack:
        for ways, name, unit, clock in (
            (_in_memory(messages), "5. In memory, an append and its view", "µs", time.process_time),
            (_kept(messages, stack), "5. Kept, an append and what the model sees", "ms", time.perf_counter),
        ):
            contenders = [
                Contender(f"{way}, after {length:,} messages", partial(job, length))
                for way, job in ways.items()
                for length in lengths
            ]
            found = run(Case(name, unit, contenders, PATIENCE, clock), rounds)
            rows += found
            title = f"{name}, after {lengths[1]:,} against {lengths[0]}"
            rows += [_against(title, way, *pair) for way, *pair in zip(ways, found[::2], found[1::2], strict=True)]
    return rows


def _against(title: str, way: str, short: Row, long: Row) -> Row:
    """Compare both lengths, within each round."""
    row = Row(title, way, "×", error=short.error or long.error, skipped=short.skipped or long.skipped)
    ours = way.startswith("palaver")
    row.target = f"≤ {FLAT:g}×" if ours else ""
    if short.value is not None and long.value is not None:
        row.value = Spread([b / a for a, b in zip(short.value.samples, long.value.samples, strict=False)])
        row.met = row.value.median <= FLAT if ours else None
    return row


def _in_memory(messages: Sequence[Message]) -> dict[str, Callable[[int], Job]]:
    def job(view: Callable[[], Any], length: int) -> Job:
        def prepare() -> list[tuple[Live, Message]]:
            lives = [_live(view(), messages[:length]) for _ in range(HELD if length == SHORT else 1)]
            return [(lives[turn % len(lives)], messages[turn - HELD]) for turn in range(HELD)]

        def turns(state: list[tuple[Live, Message]]) -> None:
            for live, message in state:
                live.thread.append(message)
                live.view(live.thread.path())

        return Job(turns, prepare, HELD)

    views: dict[str, Callable[[], Any]] = {
        "AgentView": partial(AgentView, AGENT),
        f"AgentView, keep={FULL}": partial(AgentView, AGENT, keep=FULL),
        "ModelView": ModelView,
    }
    return {f"palaver Thread, {name}": partial(job, view) for name, view in views.items()}


def _live(view: Any, messages: Sequence[Message]) -> Live:
    live = Live(Thread(), view)
    live.thread.append(*messages)
    live.view(live.thread.path())
    return live


def _kept(messages: Sequence[Message], stack: ExitStack) -> dict[str, Callable[[int], Job]]:
    def job(keeper: Keeper, length: int) -> Job:
        formed = keeper.form(messages)
        begun = Begun(keeper)
        stack.callback(begun.end)
        names = map(str, count())

        def session() -> str:
            name = next(names)
            begun.opened.fill(name, formed[:length])
            begun.opened.view(name)
            return name

        same = session() if length != SHORT else None

        def turns(sessions: list[str]) -> None:
            for session, item in zip(sessions, formed[-TURNS:], strict=True):
                begun.opened.append(session, item)
                begun.opened.view(session)

        return Job(turns, lambda: [same or session() for _ in range(TURNS)], TURNS)

    return {keeper.name: partial(job, keeper) for keeper in _TURNS}
