"""People in the place of a model: questions go to an inbox, and whoever reads it answers.

- ``SwarmAgent(operator=…)`` takes an ``Operator``. A message to that agent becomes a ``Question`` in its inbox, and the
  turn waits for ``answer``. Question and answer are in the client's log.
- A new message of the client discards the earlier question to that agent.
- After ``timeout`` seconds, and for a discarded question, the answer is ``""``.
- ``on_question`` gets each question. An exception that it raises is the error of the turn.
- A question stays in the inbox until somebody takes it, it is answered, or the turn ends. Each is taken once.

See docs/spec/agent-swarm-kit.md#6, #K16.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, Final, final

import anyio

from palaver.core.type_checks import check_arguments
from palaver.swarm.call import CallContext, called
from palaver.threads.ids import uuid7

TIMEOUT: Final = 90.0
"""The default number of seconds that a person has to answer."""


@final
class Question:
    """A client's message to a person. ``place`` is the call: its client, agent and swarm; ``text`` is the message."""

    def __init__(self, place: CallContext, text: str) -> None:
        """Start without an answer."""
        self.id = uuid7()
        self.place, self.text = place, text
        self._answer = ""
        self._open = True
        self._done = anyio.Event()

    @property
    def client(self) -> str:
        """The client that asks."""
        return self.place.client

    @property
    def is_open(self) -> bool:
        """Whether the turn still waits for the answer."""
        return self._open

    def answer(self, text: str) -> bool:
        """Answer the question with ``text``. Return whether the turn still waited for it."""
        was_open, self._open = self._open, False
        if was_open:
            self._answer = text
            self._done.set()
        return was_open

    async def wait(self) -> str:
        """Wait for the answer; ``""`` when the question is discarded."""
        await self._done.wait()
        return self._answer

    def __repr__(self) -> str:
        """Show the client and the text."""
        return f"Question({self.client!r}, {self.text!r})"


@final
class Operator:
    """Answers for an agent: ``SwarmAgent("person", operator=operator)``; a person reads ``operator.inbox``."""

    def __init__(
        self, *, timeout: float | None = TIMEOUT, on_question: Callable[[Question], Any] | None = None
    ) -> None:
        """Create an empty inbox. ``timeout`` is in seconds; ``None`` waits as long as the turn does.

        ``on_question`` is called with each ``Question``; what it raises is the error of the turn.
        """
        check_arguments("Operator", Operator.__init__, locals())
        self._timeout, self._on_question = timeout, on_question
        self._open: dict[tuple[str, str, str], Question] = {}
        self._inbox_questions: dict[str, Question] = {}
        self._arrival: anyio.Event | None = None

    async def __call__(self, place: CallContext, text: str) -> str:
        """Put ``text`` into the inbox as a question, and wait for its answer: ``""`` when there is none.

        ``place`` says whose message it is, and to which agent. Raises what ``on_question`` raises.
        """
        key = (place.swarm, place.client, place.agent)
        previous = self._open.get(key)
        if previous is not None:
            previous.answer("")
        question = self._open[key] = Question(place, text)
        self._add(question)
        try:
            if self._on_question is not None:
                await called(self._on_question, question)
            with anyio.move_on_after(self._timeout):
                return await question.wait()
            return ""
        finally:
            question.answer("")
            self._inbox_questions.pop(question.id, None)
            if self._open.get(key) is question:
                del self._open[key]

    @property
    def inbox(self) -> AsyncIterator[Question]:
        """Iterate over the questions that nobody has taken yet, without an end. Several readers may share it."""
        return _Inbox(self)

    @property
    def pending(self) -> tuple[Question, ...]:
        """The questions that wait for an answer, taken or not, the oldest first."""
        return tuple([each for each in self._open.values() if each.is_open])

    async def take(self) -> Question:
        """Take the oldest question, or wait for one."""
        while True:
            while self._inbox_questions:
                question = self._inbox_questions.pop(next(iter(self._inbox_questions)))
                if question.is_open:
                    return question
            if self._arrival is None:
                self._arrival = anyio.Event()
            await self._arrival.wait()

    def _add(self, question: Question) -> None:
        self._inbox_questions[question.id] = question
        arrival, self._arrival = self._arrival, None
        if arrival is not None:
            arrival.set()


@final
class _Inbox(AsyncIterator[Question]):
    def __init__(self, operator: Operator) -> None:
        self._operator = operator

    async def __anext__(self) -> Question:
        return await self._operator.take()
