"""Compacts a conversation because somebody says so, whatever fills the window; and takes it back.

Rules (law 9; DAS-28; docs/spec/kairo.md#3.7):

- ``compact`` brings a conversation to ``to`` tokens, by default half of what it is: stage by stage, from what costs
  nothing to a summary, until it weighs no more than that. What it was stays, as a branch ``<branch>/before-<n>``.
- An answer whose calls are open, with what is known of them, is left as it is and stands at the end: what waits for a
  decision can be decided behind a compaction as before it (I10). The record of the compaction stands behind it, for
  what that answer reports of its prompt holds no longer.
- A stage that fails changes nothing, and is told in ``failures``. A store that cannot write raises, and the branch is
  what it was. Another writer's append makes it fail with ``ConflictError``.
- ``undo`` gives the conversation as it was before its last compaction, with what was said since behind it. What it was
  with the compaction stays as a branch too, so that an undo can be taken back.
- Both write; no run may be under way on the branch.

Stability: experimental.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct, structs

from palaver.agent.given import check_log
from palaver.agent.journal import AnyThread, Journal, before_name
from palaver.agent.replay_view import ReplayView
from palaver.agent.resuming import left_open
from palaver.agent.summaries import Summariser
from palaver.context import shortening
from palaver.context.budget import capacity
from palaver.context.compaction import Compacted, Failure, compacting, without_model
from palaver.context.ledger import Ledger
from palaver.context.pipelines import DEFAULT
from palaver.context.plan import Change
from palaver.context.rewriting import record, rewritten, undone
from palaver.context.stages import Stage
from palaver.core.argument_types import check_arguments
from palaver.core.errors import MessageError, SummaryError
from palaver.core.messages import DeveloperMessage, Message, SystemMessage
from palaver.core.request import Settings
from palaver.core.tools import AnyTool
from palaver.core.usage import Usage
from palaver.models.capabilities import Capabilities
from palaver.models.catalogue import rates_of
from palaver.models.language_model import LanguageModel
from palaver.store.in_thread import in_thread
from palaver.store.stored import StoredThread
from palaver.threads.ids import now_ms
from palaver.threads.thread import MAIN, Entry
from palaver.tokens.counter import Counter

if TYPE_CHECKING:
    from palaver.store.jsonl.log import LogSink


class Compaction(Struct, frozen=True, kw_only=True):
    """What ``compact`` did; sizes are in tokens. ``kept`` is the branch that has the conversation as it was.

    ``kept`` is ``None`` where nothing was written: nothing changed, or it was a trial. ``usage`` is that of summaries.
    """

    before: int
    after: int
    goal: int
    capacity: int
    changes: tuple[Change, ...] = ()
    failures: tuple[Failure, ...] = ()
    usage: Usage = Usage()
    kept: str | None = None


async def compact(
    thread: AnyThread,
    model: LanguageModel | None = None,
    *,
    branch: str = MAIN,
    to: int | None = None,
    stages: Sequence[Stage] = DEFAULT,
    system: Sequence[SystemMessage | DeveloperMessage] = (),
    tools: Sequence[AnyTool] = (),
    window: int | None = None,
    keep_last: Iterable[str] = (),
    summariser: Summariser | None = None,
    summaries: bool = True,
    trial: bool = False,
    cut_results: bool = False,
    counter: Counter | None = None,
    log: LogSink | None = None,
) -> Compaction:
    """Compact a conversation now, to ``to`` tokens.

    ``model`` is whose window it is to fit (``window`` where that is not known), and is asked for summaries, unless
    ``summariser`` has one of its own; with ``summaries=False`` nobody is asked. ``system`` and ``tools`` are what the
    model is sent besides. ``counter`` counts tokens in place of the estimate. The branch of a ``StoredThread`` is its
    own. A ``trial`` writes nothing. ``cut_results`` cuts large results first, also those that the model has not seen.
    ``log`` is the log of the agent's runs, where it has one: what it does not get is missing from it.
    Raises ``MessageError`` for sizes that are none and for arguments of another type, and ``StoreError``.
    """
    check_arguments("compact", compact, locals())
    check_log(log)
    for name, size in (("to", to), ("window", window)):
        if size is not None and size < 1:
            raise MessageError(f"{name}: {size}: expected a number of tokens, 1 or more")
    on = thread.branch if isinstance(thread, StoredThread) else branch
    path = thread.path() if isinstance(thread, StoredThread) else thread.path(on)
    cut = _closed(path)
    head = tuple(path)[:cut]
    messages = ReplayView()(head)
    asked = None if model is None else model.name
    ledger = Ledger(asked, rates=None if asked is None else rates_of(asked), counter=counter)
    fixed = ledger.fixed(system, tools, getattr(model, "settings", Settings()).output)
    every = ReplayView()(path)
    ledger.recall(path, every, fixed=fixed)
    measured = ledger.measure(every, fixed=fixed, anchor=ledger.anchored(path, every))
    ledger.carry(measured)
    whole = ledger.plan(messages, measured, capacity=_capacity(model, window), now=now_ms(), keep_last=keep_last)
    goal = max(whole.tokens // 2, 1) if to is None else to
    asking = compacting(whole, (*([_CUT] if cut_results else []), *stages), goal=goal)
    heard = _Heard()
    if summaries:
        found = await (summariser or Summariser()).drive(asking, model, spent=heard)
    else:
        found = _unasked(without_model(asking, _NOBODY))
    change = rewritten(head, messages, found.plan)
    plan, after, kept = found.plan, measured, None
    if change is not None:
        after = ledger.measure((*plan.messages, *every[len(messages) :]), fixed=fixed)
        plan = plan.ending_at(after.tokens)
    if change is not None and not trial:
        stays = [entry.message for entry in path[cut:]]
        messages = (*change.messages[:-1], *stays, record(path, plan, learned=ledger.learned))
        onto = path[change.kept - 1].id if change.kept else None
        kept = await _rebased(thread, on, onto, messages, log)
    return Compaction(
        before=measured.tokens,
        after=after.tokens,
        goal=goal,
        capacity=whole.capacity,
        changes=plan.changes,
        failures=found.failures,
        usage=heard.usage,
        kept=kept,
    )


async def undo(thread: AnyThread, *, branch: str = MAIN, log: LogSink | None = None) -> str | None:
    """Take the last compaction of a conversation back; give the branch that has it as it was with the compaction.

    ``None`` where nothing was compacted. The branch of a ``StoredThread`` is its own. ``log`` is that of
    ``compact``. Raises ``StoreError``.
    """
    check_arguments("undo", undo, locals())
    check_log(log)
    on = thread.branch if isinstance(thread, StoredThread) else branch
    path = thread.path() if isinstance(thread, StoredThread) else thread.path(on)
    found = undone(path)
    if found is None:
        return None
    return await _rebased(thread, on, found.leaf, found.messages, log)


_LOGGER: Final = logging.getLogger("palaver.agent")
_CUT = Stage(shortening.CUT, shortening.cut_results, 1.0)
_NOBODY = SummaryError("no model may be asked")


class _Heard:
    """Adds up what answers used."""

    def __init__(self) -> None:
        self.usage = Usage()

    def __call__(self, model: str, usage: Usage | None) -> None:  # noqa: ARG002 (the signature of ``Spent``)
        if usage is not None:
            self.usage += usage


def _closed(path: Sequence[Entry]) -> int:
    """How many entries stand before an answer whose calls are open."""
    opened = left_open(path)
    if opened is None:
        return len(path)
    return next(place for place in range(len(path) - 1, -1, -1) if path[place].message is opened.message)


def _capacity(model: LanguageModel | None, window: int | None) -> int:
    """What a prompt for a model may weigh, in tokens."""
    can = Capabilities() if model is None else model.capabilities
    settings: Settings = getattr(model, "settings", Settings())
    return capacity(window or can.window, can.max_output, settings)


def _unasked(found: Compacted) -> Compacted:
    """Without what failed for the reason that nobody may be asked."""
    return structs.replace(found, failures=tuple([each for each in found.failures if each.error is not _NOBODY]))


async def _rebased(
    thread: AnyThread, branch: str, onto: str | None, messages: Sequence[Message], log: LogSink | None
) -> str:
    """Let a branch go on behind another entry, also in the log; give the branch that has what it was."""
    if isinstance(thread, StoredThread):
        keep = before_name(thread.tree, branch)
        entries = await in_thread(thread.rebase, messages, onto=onto, keep=keep)
    else:
        keep = before_name(thread, branch)
        entries = thread.rebase(messages, onto=onto, keep=keep, branch=branch)
    journal = Journal(thread, branch, log=log)
    await journal.rebased(entries, keep)
    for failure in journal.failures:
        _LOGGER.warning("the log did not take a compaction: %s", failure)
    return keep
