"""One turn: from a message to the next output of any agent of the swarm.

Rules:

- A turn is answered once: with a text (an agent's output, an emitted text, or ``""`` when it was cancelled, disposed
  of, or overtaken by a change of agent), or with an error. Later answers are late, and answer nothing (K2, K3).
- To answer, code claims the turn first, stores the answer in the log, and then gives it: so the log has all answers.
- An execution from inside a turn joins it: it gets the same answer.
- ``steps`` counts model calls; at ``limit`` the next one raises, so an endless loop makes exactly that many.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import anyio

from palaver.core.errors import TurnError
from palaver.threads.ids import uuid7

if TYPE_CHECKING:
    from palaver.swarm.agent_turn import AgentTurn
    from palaver.swarm.call import Call
    from palaver.turn.approvals import ApprovalRequest
    from palaver.turn.limits import Outcome

UNSHOWN: Final = "unshown"
"""The tag of an answer that its model must repeat: the model sees it, and the client does not."""

NESTED: Final = 20
"""The default limit of model calls in a turn."""


class Turn:
    """A message that waits for its answer.

    ``id`` identifies it in every event; ``named`` says that the caller chose the id.
    """

    __slots__ = (
        "__weakref__",
        "_claimed",
        "_done",
        "answer",
        "banned",
        "error",
        "executions",
        "id",
        "limit",
        "mode",
        "named",
        "outcome",
        "overtaken",
        "parts",
        "payload",
        "pending",
        "running",
        "scopes",
        "since",
        "steps",
        "told",
    )

    def __init__(self, mode: str, payload: Any = None, *, id: str | None = None, limit: int = NESTED) -> None:
        """Start a turn that has no answer yet."""
        self.id = uuid7() if id is None else id
        self.named = id is not None
        self.mode, self.payload, self.limit = mode, payload, limit
        self.answer = ""
        self.banned = False
        """Whether a policy answered in the agent's place."""
        self.told = False
        """Whether its answer was published."""
        self.error: Exception | None = None
        self.steps = 0
        self.since: int | None = None
        """The place of its message in the client's thread; ``None`` before the message is stored."""
        self.executions: list[tuple[str, str | None, str]] = []
        """Text, agent and mode of each execution that joined it."""
        self.overtaken = False
        """Whether the agent was changed from outside it."""
        self.running: dict[Call, str] = {}
        """Names of the tools that have not returned, or defer."""
        self.scopes: set[anyio.CancelScope] = set()
        """The scopes of everything that runs for it."""
        self.outcome: Outcome = "completed"
        """Its outcome, for the parts of agents in it."""
        self.pending: tuple[ApprovalRequest, ...] = ()
        """The decisions that it needs, if it ended as ``waiting``."""
        self.parts: dict[str, AgentTurn] = {}
        """The part of each agent, by name."""
        self._claimed = False
        self._done = anyio.Event()

    @property
    def over(self) -> bool:
        """Whether it is answered, or about to be."""
        return self._claimed

    def claim(self) -> bool:
        """Claim the right to answer; ``False`` when another caller has it."""
        claimed, self._claimed = self._claimed, True
        return not claimed

    def give(self, answer: str) -> None:
        """Give the answer of a claimed turn; does nothing when it has ended already."""
        if not self._done.is_set():
            self.answer = answer
            self._done.set()

    def break_off(self, error: Exception) -> None:
        """End a claimed turn with an error; does nothing when it has ended already."""
        if not self._done.is_set():
            self.error = error
            self._done.set()

    def resolve(self, answer: str) -> bool:
        """Answer the turn, if it is not answered; return whether this call did."""
        claimed = self.claim()
        if claimed:
            self.give(answer)
        return claimed

    def fail(self, error: Exception) -> bool:
        """End the turn with an error, if it is not answered; return whether this call did."""
        claimed = self.claim()
        if claimed:
            self.break_off(error)
        return claimed

    def step(self) -> None:
        """Count a model call. Raises ``TurnError`` when there were too many."""
        if self.steps >= self.limit:
            raise TurnError(f"recursive execution prevented: {self.limit} model calls in one turn")
        self.steps += 1

    async def wait(self) -> str:
        """Wait for the answer. Raises the error that the turn ended with."""
        await self._done.wait()
        if self.error is not None:
            raise self.error
        return self.answer

    @property
    def blamed(self) -> str | None:
        """The tool that should continue the turn, and has not."""
        return next((name for call, name in self.running.items() if not call.continued), None)

    def overdue(self, deadline: float) -> TurnError:
        """Return the error of a turn that has no answer within ``deadline`` seconds."""
        which = f": the tool {self.blamed!r} did not continue the turn" if self.blamed else ""
        return TurnError(f"no answer within {deadline:g} seconds{which}", tool=self.blamed)

    def abort(self) -> None:
        """Cancel everything that runs for it."""
        for scope in tuple(self.scopes):
            scope.cancel()
