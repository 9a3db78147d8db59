"""The turns of a session as runs: their usage, the outcome of the last one, and the waiting calls.

Rules (ADR 17, ADR 35):

- ``last_run`` is the last turn as a ``Run``, with all agents of the turn; ``spending`` covers all turns, and questions
  without a trace.
- Waiting calls are stored in the client's thread. ``pending`` reads them, ``decide`` continues their turn. A message
  that arrives meanwhile closes them: they get results that say that they were not run.

Stability: experimental.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import structs

from palaver.core.errors import SwarmError
from palaver.core.messages import Message
from palaver.swarm.agent_turn import AgentTurn
from palaver.swarm.call import CURRENT
from palaver.swarm.commits import Commits
from palaver.swarm.log import Values
from palaver.swarm.names import TURN, NamedTurns, checked_run
from palaver.swarm.turn import Turn
from palaver.turn.approvals import (
    ApprovalRequest,
    Decision,
    DecisionError,
    checked_choices,
    checked_decisions,
    checked_edits,
    checked_mapping,
)
from palaver.turn.calls import PlannedCall, result
from palaver.turn.limits import Outcome, Spending
from palaver.turn.notes import MAY_HAVE_RUN, NOT_RUN_UNDECIDED
from palaver.turn.open_calls import OpenAnswer, open_answer, pending_at
from palaver.turn.results import CutResults
from palaver.turn.run import Run

if TYPE_CHECKING:
    from palaver.swarm.agent_session import AgentSession


def _turn_of(opened: OpenAnswer) -> str | None:
    """Return the name of the turn of an answer."""
    name = opened.message.metadata.get(TURN)
    return name if isinstance(name, str) else None


class SessionRuns(Commits):
    """The part of a session that sums up turns, and decides calls."""

    def __init__(self) -> None:
        """Start without turns."""
        self.carried: dict[str, dict[Any, Any]] = {}
        """The state of each agent's middleware, by the agent's name."""
        self.spending = Spending()
        """The usage of all turns of this session, by model."""
        self.last_run: Run[Any] | None = None
        """The last turn as a run: outcome, usage, cost, pending calls; ``None`` when it asked no model."""
        self._cut = CutResults()
        self._looked = False
        """Whether the log was checked since it was opened: before that, another process may have run its calls."""
        self.may_wait = True
        """Whether calls may wait at the end of the log: checked when it was opened, and after some did."""

    records: Values

    # -- what a session gives ----------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def agent(self) -> str:
        """The name of the active agent."""

    @property
    @abstractmethod
    def closed(self) -> bool:
        """Whether the session is over."""

    @abstractmethod
    def agent_session(self, name: str | None = None) -> AgentSession:
        """Return the active agent's session."""

    @abstractmethod
    def _check(self) -> None: ...
    @abstractmethod
    def _queued(self) -> AbstractAsyncContextManager[None]: ...
    @abstractmethod
    def _under_way(self, turn: Turn) -> AbstractAsyncContextManager[None]: ...
    @abstractmethod
    async def _answer(self, turn: Turn, begin: Callable[..., Awaitable[Any]], *arguments: Any) -> str: ...
    @abstractmethod
    async def _kept(self, turn: Turn, run: str | None, text: str, answer: str) -> str: ...

    async def rewrite(self, kept: int, messages: Sequence[Message], seen: Sequence[Message]) -> None:
        """Replace the log behind ``kept`` entries by ``messages``, in place of those that were ``seen``.

        Answers of named turns in the removed part stay known, by records. Raises ``StoreError``.
        """
        path, turn = self.log.path, self.turn
        opening = None if turn is None or turn.since is None else path[turn.since].message.id
        stays = {message.id for message in messages} | {entry.message.id for entry in path[:kept]}
        dropped = [message for message in seen if message.id not in stays]
        await self.log.rebase(kept, (*NamedTurns.records(dropped), *messages), {message.id for message in seen})
        await self.records.refresh()
        if turn is not None and opening is not None:
            places = (place for place, entry in enumerate(self.log.path) if entry.message.id == opening)
            turn.since = next(places, None)

    # -- runs --------------------------------------------------------------------------------------------------------

    async def decide(self, decisions: Mapping[str, Decision], *, run: str | None = None, close: bool = False) -> str:
        """Decide waiting calls, by their ids, and continue their turn; return its answer.

        Other calls keep waiting, and the answer is then ``""``; with ``close`` they get results that say that they
        were not run, as when a message arrives. With ``run``, calls of a turn with another name are not decided.
        Raises ``DecisionError`` for an unknown call, for a choice that is not allowed, for edited arguments that do
        not fit, and when another agent than that of the calls is active; ``SwarmError`` within a turn; and as
        ``complete``.
        """
        self._check()
        wanted = checked_run(run)
        found = checked_mapping(decisions, "decide")
        own = CURRENT.get()
        if own is not None and own is self.turn and not own.over:  # it would wait for itself
            raise SwarmError("calls cannot be decided during a turn")
        async with self._queued():
            if self.closed:
                return ""
            self._looked = True
            opened = await self._opened(found, wanted)
            name = _turn_of(opened)
            turn = Turn("tool", id=name, limit=self.swarm.nested)
            async with self._under_way(turn):
                self.publish_event("swarm", "get-agent-name", output={"activeAgent": self.agent})
                decided = partial(self.agent_session().decided, closing=close)
                answer = await self._answer(turn, decided, turn, opened, found)
                return await self._kept(turn, name, "", answer)

    async def check_decisions(self, decisions: Mapping[str, Decision], *, run: str | None = None) -> None:
        """Raise ``DecisionError`` where ``decide`` would now; decide nothing.

        ``decisions`` and ``run`` are as in ``decide``.
        """
        self._check()
        await self._opened(checked_mapping(decisions, "check_decisions"), checked_run(run))

    async def _opened(self, decisions: Mapping[str, Decision], run: str | None) -> OpenAnswer:
        """Return the answer whose calls are decided. Raises ``DecisionError``."""
        opened = open_answer(self.log.path)
        requests = () if opened is None else tuple(opened.recorded.pending.values())
        checked_decisions(decisions, requests)
        checked_choices(decisions, requests)
        if opened is None or not requests:
            raise DecisionError("nothing is pending")
        name = _turn_of(opened)
        if run is not None and name != run:
            raise DecisionError(f"the pending calls belong to the turn {name!r}, not {run!r}")
        if opened.message.agent != self.agent:
            raise DecisionError(
                f"the pending calls belong to the agent {opened.message.agent!r}, but {self.agent!r} is active"
            )
        if any(each.kind == "edit" for each in decisions.values()):
            tools = await self.agent_session().toolbox()
            checked_edits(decisions, requests, tools.find)
        return opened

    def pending(self) -> tuple[ApprovalRequest, ...]:
        """Return the calls that wait for a decision; they outlive the process."""
        return pending_at(self.log.path)

    async def close_pending(self) -> None:
        """Answer the pending calls as not run, because a new message came in place of a decision.

        Calls that were decided in a process that died before it stored their results are answered with
        ``MAY_HAVE_RUN``.
        """
        if not self.may_wait:  # so a turn reads no more of the log than necessary
            return
        first, self._looked, self.may_wait = not self._looked, True, False
        opened = open_answer(self.log.path)
        if opened is None or not opened.recorded.requests:
            return
        waits = bool(opened.recorded.pending)
        if not waits and not first:  # their tools may still be running
            return
        text = NOT_RUN_UNDECIDED if waits and not opened.recorded.may_have_run else MAY_HAVE_RUN
        for index, (call, known) in enumerate(zip(opened.calls, opened.results, strict=True)):
            if known is None:
                message = result(PlannedCall(index, call), text, is_error=True)
                await self.keep(message.replace(agent=opened.message.agent))
        await self.keep(*opened.deferred)

    async def end_parts(self, turn: Turn) -> None:
        """End the parts of agents in ``turn``, which is answered, and sum them up."""
        self.last_run = None
        runs = [await self.end_part(part, turn.outcome, turn.error, turn.pending) for part in turn.parts.values()]
        if runs:
            total = Spending()
            for part in turn.parts.values():
                total.merge(part.spending)
            self.last_run = structs.replace(
                runs[-1],
                start=min(each.start for each in runs),
                usage=total.total,
                usage_by_model=dict(total.usage),
                cost=total.cost if total.usage else None,
                iterations=sum(each.iterations for each in runs),
                seconds=max(each.seconds for each in runs),
            )

    async def end_part(
        self,
        part: AgentTurn,
        outcome: Outcome,
        error: Exception | None,
        pending: tuple[ApprovalRequest, ...] = (),
    ) -> Run[Any]:
        """End ``part``, the part of one agent in a turn, and add its usage.

        ``outcome`` and ``error`` say how the turn ended. ``pending`` are the requests that it waits for, if any.
        """
        try:
            return await part.end(outcome, error, pending)
        finally:
            self.spending.merge(part.spending)

    @property
    def reads_cut(self) -> bool:
        """Whether some text of the thread was truncated, so that tools which read it are useful."""
        return self._cut.in_thread(self.log.entries)
