"""People in the place of a model: questions come to a desk, and whoever sits there answers.

Rules (docs/spec/agent-swarm-kit.md#6, #K16):

- An ``Operator`` is what ``SwarmAgent(operator=…)`` takes. What is said to the agent becomes a ``Question`` in its
  inbox; the turn waits for ``answer``. Question and answer are kept in the client's log as any others are.
- Each message of a client disposes of the question before it at that agent: nobody waits for its answer any more.
- After ``timeout`` seconds without an answer, and for a question that is disposed of, the answer is ``""``.
- ``on_question`` is told each question as it comes. What it raises is the error of the turn.
- A question stands in the inbox until somebody takes it, it is answered, or nobody waits for it; each is taken once.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, Final, final

import anyio

from palaver.core.type_checks import check_arguments
from palaver.swarm.call_context import CallContext, called
from palaver.threads.ids import uuid7

TIMEOUT: Final = 90.0
"""Seconds that a person has, where nothing else is said."""


@final
class Question:
    """What a client said to a person. ``place`` says who asked, and where."""

    def __init__(self, place: CallContext, text: str) -> None:
        """Wait."""
        self.id = uuid7()
        self.place, self.text = place, text
        self._answer = ""
        self._open = True
        self._done = anyio.Event()

    @property
    def client(self) -> str:
        """Who asks."""
        return self.place.client

    @property
    def is_open(self) -> bool:
        """Whether somebody waits for the answer."""
        return self._open

    def answer(self, text: str) -> bool:
        """Answer; give whether somebody waited for it."""
        was, self._open = self._open, False
        if was:
            self._answer = text
            self._done.set()
        return was

    async def wait(self) -> str:
        """Wait for the answer; ``""`` when the question is disposed of."""
        await self._done.wait()
        return self._answer

    def __repr__(self) -> str:
        """Show who asks, and what."""
        return f"Question({self.client!r}, {self.text!r})"


@final
class Operator:
    """A desk: ``SwarmAgent("person", operator=desk)``, and somebody who reads ``desk.inbox``."""

    def __init__(
        self, *, timeout: float | None = TIMEOUT, on_question: Callable[[Question], Any] | None = None
    ) -> None:
        """Stand ready. ``timeout`` is in seconds; ``None`` waits as long as the turn does."""
        check_arguments("Operator", Operator.__init__, locals())
        self._timeout, self._on_question = timeout, on_question
        self._open: dict[tuple[str, str, str], Question] = {}
        self._waiting: dict[str, Question] = {}
        self._came: anyio.Event | None = None

    async def __call__(self, place: CallContext, text: str) -> str:
        """Ask whoever sits here. Raises what ``on_question`` raises."""
        key = (place.swarm, place.client, place.agent)
        before = self._open.get(key)
        if before is not None:
            before.answer("")
        question = self._open[key] = Question(place, text)
        self._put(question)
        try:
            if self._on_question is not None:
                await called(self._on_question, question)
            with anyio.move_on_after(self._timeout):
                return await question.wait()
            return ""
        finally:
            question.answer("")
            self._waiting.pop(question.id, None)
            if self._open.get(key) is question:
                del self._open[key]

    @property
    def inbox(self) -> AsyncIterator[Question]:
        """The questions that nobody has taken yet, and those to come; several may take from it, and it never ends."""
        return _Inbox(self)

    @property
    def waiting(self) -> tuple[Question, ...]:
        """The questions that wait for an answer, taken or not, the oldest first."""
        return tuple([each for each in self._open.values() if each.is_open])

    async def taken(self) -> Question:
        """Take the oldest question, or wait for one."""
        while True:
            while self._waiting:
                question = self._waiting.pop(next(iter(self._waiting)))
                if question.is_open:
                    return question
            if self._came is None:
                self._came = anyio.Event()
            await self._came.wait()

    def _put(self, question: Question) -> None:
        self._waiting[question.id] = question
        came, self._came = self._came, None
        if came is not None:
            came.set()


@final
class _Inbox(AsyncIterator[Question]):
    def __init__(self, operator: Operator) -> None:
        self._operator = operator

    async def __anext__(self) -> Question:
        return await self._operator.taken()
