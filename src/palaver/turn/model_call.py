"""One model call: middleware around it, deltas while it streams, its receipt, and its usage.

Rules:

- The usage of an answer counts when the answer is complete, also if a wrapper replaces it; of a broken stream, the
  usage that arrived counts. An answer without usage makes the cost of the turn unknown.
- Each loss is published once in a turn.
- An incomplete answer that middleware withholds and has not passed is stored as ``discarded``, like a blocked one.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

import anyio
from anyio.lowlevel import checkpoint, checkpoint_if_cancelled
from msgspec import structs

from palaver.core.errors import ContextOverflowError, PalaverError, StreamError
from palaver.core.events import ReasoningDelta, TextDelta
from palaver.core.messages import AssistantMessage, Message, ToolMessage
from palaver.core.parts import MalformedToolCall
from palaver.models.language_model import Answer, Notice, Prompt, Reply
from palaver.threads.view import DISCARDED
from palaver.tokens.estimate import estimate
from palaver.turn import calls, events
from palaver.turn.calls import Answered, ModelFailed
from palaver.turn.limits import Spending
from palaver.turn.middleware import Blocked, Chain, RunContext
from palaver.turn.tool_call import Eager

if TYPE_CHECKING:
    from palaver.core.request import Loss
    from palaver.core.usage import Usage
    from palaver.models.language_model import Session

_TURNS: Final = 16
"""Turns that may run before other tasks get a chance to run."""


def _as_it_came(message: AssistantMessage) -> AssistantMessage:
    return message


class ModelCalls:
    """Calls the model of one turn."""

    def __init__(
        self,
        chain: Chain,
        context: RunContext,
        spending: Spending,
        session: Session,
        *,
        stream: bool = True,
        deltas: bool = True,
        received: Callable[[AssistantMessage], AssistantMessage] = _as_it_came,
        refresh: Callable[[Prompt], Prompt] | None = None,
        eager: Eager | None = None,
    ) -> None:
        """Call the model through ``session``, with the middleware of ``chain`` around each call.

        With ``deltas`` text and reasoning are published as they arrive, where somebody watches. ``received`` returns an
        answer as it is stored in the thread; ``refresh`` changes a prompt after all middleware; ``eager`` gets the
        events of an answer as they arrive.
        """
        self._chain, self._context, self._spending, self._session = chain, context, spending, session
        self._deltas = deltas
        self._stream, self._received_as, self._refresh, self._eager = stream, received, refresh, eager
        self._ask = chain.around_model(self._ask_model, context)
        self._answer: Answer | None = None
        self._published_losses: set[Loss] = set()
        self._uncounted = False
        self._was_called = False

    async def call(
        self, number: int, prompt: Callable[[], Awaitable[Prompt]], *, final: bool = False
    ) -> Answered | ModelFailed | calls.Blocked:
        """Call the model with the result of ``prompt``, as call ``number`` of this turn; ``final``: without tools.

        Raises what ``prompt`` raises, and errors of middleware that are no ``PalaverError``.
        """
        if self._eager is not None:
            self._eager.drop()
        if self._context.watch is not None:
            self._context.emit(
                events.IterationStarted(agent=self._context.agent, run=self._context.run, number=number, final=final)
            )
        # Models and tools that never await must neither block cancellation nor, for long, other tasks.
        await (checkpoint() if number % _TURNS == 0 else checkpoint_if_cancelled())
        made = await prompt()
        event: Answered | ModelFailed | calls.Blocked
        self._was_called = False
        try:
            reply = await self._ask(made)
        except Blocked as blocked:
            event = calls.Blocked(blocked.reason, blocked.message, self._was_called)
        except StreamError as error:
            event = self._failed(error, error.response.message)
        except PalaverError as error:
            if isinstance(error, ContextOverflowError) and not self._chain.compacts:
                self._name_the_largest(made.messages)
            event = self._failed(error, self.partial())
        else:
            if self._chain.withholds:
                for delta in events.deltas(self._context.agent, self._context.run, reply.response.message):
                    self._context.emit(delta)
            event = self._answered(reply)
        self._answer = None
        return event

    def _name_the_largest(self, messages: Sequence[Message]) -> None:
        """Name the largest message of a prompt that is too long, and how to shorten it."""
        weights = [estimate(message) for message in messages]
        place = max(range(len(weights)), key=weights.__getitem__, default=None)
        if place is None or 2 * weights[place] < sum(weights):
            return
        message, weight = messages[place], weights[place]
        name: str = message.role
        way = "compact(thread, window=...) shortens it"
        if isinstance(message, ToolMessage):
            name = f"the result of call {message.tool_call_id}"
            way = "compact(thread, window=..., cut_results=True) cuts it"
        text = (
            f"the prompt is longer than the model can read, and {name} (message {message.id}, about {weight:,} tokens) "
            f"is most of it: {way}, and preserves the whole; Compactor() does so in every run"
        )
        self._context.emit(events.Warned(agent=self._context.agent, run=self._context.run, text=text))

    def _failed(self, error: Exception, partial: AssistantMessage | None) -> ModelFailed:
        self._answer = None
        if self._eager is not None:
            self._eager.drop()
        broke = partial is not None and bool(partial.content)
        if partial is not None:
            self._spent(self._context.model, partial.usage)
            partial = self._unseen(partial)
        return ModelFailed(error, anyio.current_time(), partial, broke)

    def _answered(self, reply: Reply) -> Answered:
        message = reply.response.message
        usage = message.usage
        context = 0 if usage is None else usage.total - (usage.output or 0) - (usage.reasoning or 0)
        if reply.losses and self._context.watch is not None:
            new = tuple([loss for loss in reply.losses if loss not in self._published_losses])
            if new:
                self._published_losses.update(new)
                self._context.emit(
                    events.Lost(agent=self._context.agent, run=self._context.run, model=reply.model, losses=new)
                )
        if self._context.limits.cost is not None and self._spending.cost is None and not self._uncounted:
            self._uncounted = True
            text = f"the cost limit has no effect: the price of {reply.model} is not known"
            self._context.emit(events.Warned(agent=self._context.agent, run=self._context.run, text=text))
        message = self._received(message)
        return Answered(message, anyio.current_time(), *self._spending.take(), context, reply.seconds)

    def _received(self, message: AssistantMessage) -> AssistantMessage:
        """Return the answer as it is stored in the thread; publish each refused call."""
        received = self._received_as(message)
        for before, part in zip(message.content, received.content, strict=True):
            if part is not before and isinstance(part, MalformedToolCall):
                self._context.emit(events.CallRefused(agent=self._context.agent, run=self._context.run, call=part))
        return received

    async def _ask_model(self, prompt: Prompt) -> Reply:
        self._was_called = True
        if self._refresh is not None:
            prompt = self._refresh(prompt)
        async with self._session.ask(prompt, stream=self._stream, on_notice=self._noticed) as answer:
            self._answer = answer
            shows = self._deltas and self._context.watch is not None and not self._chain.withholds
            hears = self._eager.hears() if self._eager is not None and prompt.tools else None
            if shows or hears is not None:
                async for event in answer:
                    if hears is not None:
                        hears(event)
                    if self._context.watch is None or not shows:
                        continue
                    if type(event) is TextDelta or type(event) is ReasoningDelta:
                        self._context.emit(structs.replace(event, agent=self._context.agent, run=self._context.run))
                        await self._context.watch.room()
            reply = await answer.finish()
        self._spent(reply.model, reply.response.message.usage)
        return reply

    def _spent(self, model: str, usage: Usage | None) -> None:
        """Count an answer; without usage its cost is unknown."""
        if usage is None:
            self._spending.cost = None
        else:
            self._spending.add({model: usage}, self._price(model, usage))

    def _price(self, model: str, usage: Usage) -> float | None:
        try:
            return self._context.price(model, usage)
        except Exception as error:  # noqa: BLE001 (an error in the application's prices must not lose an answer)
            text = f"prices: {type(error).__name__}: {error}"
            self._context.emit(events.Warned(agent=self._context.agent, run=self._context.run, text=text, error=error))
            return None

    def _noticed(self, notice: Notice) -> None:
        for noticed in self._chain.noticed:
            noticed(notice, self._context)
        self._context.emit(
            events.Retrying(
                agent=self._context.agent,
                run=self._context.run,
                model=notice.model,
                error=notice.error,
                attempt=notice.attempt,
                wait=notice.wait,
                fallback=notice.kind == "fallback",
            )
        )

    def partial(self) -> AssistantMessage | None:
        """The incomplete answer so far."""
        answer, self._answer = self._answer, None
        so_far = None if answer is None else answer.so_far
        return None if so_far is None else self._unseen(so_far.message)

    def _unseen(self, partial: AssistantMessage) -> AssistantMessage:
        """Mark an incomplete answer as discarded where middleware did not pass it."""
        if not self._chain.withholds or DISCARDED in partial.tags:
            return partial
        return partial.replace(tags=(*partial.tags, DISCARDED))
