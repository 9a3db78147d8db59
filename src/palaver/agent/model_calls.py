"""The model's half of a run: what it is asked, what is shown while it answers, and what that used.

Rules:

- An answer is counted when it is whole, also one that a wrapper replaces; of one that breaks off, what it said of
  its usage. One that does not say what it used makes the cost of the run unknown.
- Each loss is told once in a run.
- What came of an answer that middleware withholds and did not pass is kept as ``discarded``, like one that is blocked.

Stability: experimental.
"""

from __future__ import annotations

from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final

import anyio
from anyio.lowlevel import checkpoint, checkpoint_if_cancelled
from msgspec import structs

from palaver.agent import events, notes, protocol
from palaver.agent.journal import Depths, ReplayView
from palaver.agent.middleware import Blocked, RunContext, Spending, hook_time
from palaver.agent.results import CutResults
from palaver.agent.tool_call import Eager
from palaver.core.errors import PalaverError, StreamError
from palaver.core.events import ReasoningDelta, TextDelta
from palaver.core.factories import system
from palaver.core.messages import AssistantMessage, SystemMessage
from palaver.core.parts import MalformedToolCall
from palaver.models.language_model import Answer, Notice, Prompt, Reply
from palaver.threads.view import DISCARDED

if TYPE_CHECKING:
    from palaver.agent.agent import Agent
    from palaver.agent.journal import Journal
    from palaver.core.request import Loss
    from palaver.core.tools import AnyTool
    from palaver.core.usage import Usage
    from palaver.models.language_model import LanguageModel

_TURNS: Final = 16
"""So many turns at most pass before others run."""


class Carry:
    """What one run hands to the next that goes on behind it: what was viewed and encoded already."""

    __slots__ = ("cut", "depths", "model", "own", "session", "view")

    def __init__(self, model: LanguageModel) -> None:
        """Begin with nothing."""
        self.model = model
        self.session = model.session()
        self.view = ReplayView()
        self.depths = Depths()
        self.cut = CutResults()
        self.own: dict[Any, Any] = {}
        """What middleware keeps for itself from run to run, by itself."""


class ModelCalls:
    """Asks the model of one run."""

    def __init__(
        self,
        agent: Agent[Any],
        journal: Journal,
        context: RunContext,
        spending: Spending,
        *,
        carry: Carry,
        eager: Eager | None,
    ) -> None:
        """Stand ready. ``eager`` hears what arrives."""
        self._agent, self._journal, self._context, self._spending = agent, journal, context, spending
        self._carry, self._eager = carry, eager
        self._chain = agent.chain
        self._ask = self._chain.around_model(self._ask_model, context)
        self._answer: Answer | None = None
        self._told: set[Loss] = set()
        self._uncounted = False
        self._asked = False

    async def call(self, number: int, *, final: bool) -> protocol.Event:
        """Ask the model, for the ``number``-th time in this run; ``final`` without tools."""
        self._journal.round = number
        if self._eager is not None:
            self._eager.drop()
        if self._context.watch is not None:
            self._context.emit(
                events.IterationStarted(agent=self._context.agent, run=self._context.run, number=number, final=final)
            )
        # A model and tools that never wait can keep others neither from cancelling nor, for long, from running.
        await (checkpoint() if number % _TURNS == 0 else checkpoint_if_cancelled())
        prompt = await self._prompt(final=final)
        event: protocol.Event
        self._asked = False
        try:
            reply = await self._ask(prompt)
        except Blocked as blocked:
            event = protocol.Blocked(blocked.reason, blocked.message, self._asked)
        except StreamError as error:
            event = self._failed(error, error.response.message)
        except PalaverError as error:
            event = self._failed(error, self.partial())
        else:
            if self._chain.withholds:
                for delta in events.deltas(self._context.agent, self._context.run, reply.response.message):
                    self._context.emit(delta)
            event = self._answered(reply)
        self._answer = None
        return event

    def _failed(self, error: Exception, partial: AssistantMessage | None) -> protocol.Event:
        self._answer = None
        if self._eager is not None:
            self._eager.drop()
        broke = partial is not None and bool(partial.content)
        if partial is not None:
            self._spent(self._agent.model.name, partial.usage)
            partial = self._unseen(partial)
        return protocol.ModelFailed(error, anyio.current_time(), partial, broke)

    def _answered(self, reply: Reply) -> protocol.Event:
        message = reply.response.message
        usage = message.usage
        context = 0 if usage is None else usage.total - (usage.output or 0) - (usage.reasoning or 0)
        self._journal.seconds = reply.seconds
        if reply.losses and self._context.watch is not None:
            new = tuple([loss for loss in reply.losses if loss not in self._told])
            if new:
                self._told.update(new)
                self._context.emit(
                    events.Lost(agent=self._context.agent, run=self._context.run, model=reply.model, losses=new)
                )
        if self._agent.limits.cost is not None and self._spending.cost is None and not self._uncounted:
            self._uncounted = True
            text = f"the limit of cost does not hold: what {reply.model} costs is not known"
            self._context.emit(events.Warned(agent=self._context.agent, run=self._context.run, text=text))
        message = self._received(message)
        return protocol.Answered(message, anyio.current_time(), *self._spending.take(), context)

    def _received(self, message: AssistantMessage) -> AssistantMessage:
        """The answer as it joins the thread; each call that was refused is shown."""
        received = self._agent.received(message)
        for before, part in zip(message.content, received.content, strict=True):
            if part is not before and isinstance(part, MalformedToolCall):
                self._context.emit(events.CallRefused(agent=self._context.agent, run=self._context.run, call=part))
        return received

    async def _prompt(self, *, final: bool) -> Prompt:
        agent = self._agent
        said = agent.system if agent.system is not None else await self._instructions()
        tools = self._offered()
        if final and tools:
            tools = ()
            said = (*said, system(notes.final_answer_instruction))
        return Prompt(
            messages=self._carry.view(self._journal.path),
            system=said,
            tools=tools,
            settings=agent.settings,
            provider=agent.provider,
            agent=agent.name,
        )

    def _offered(self) -> tuple[AnyTool, ...]:
        """The tools that are offered: those that read what was cut only when something was."""
        first, tools = self._agent.first_definitions, self._agent.definitions
        return first if len(first) < len(tools) and not self._carry.cut.in_thread(self._journal.entries) else tools

    async def _instructions(self) -> tuple[SystemMessage, ...]:
        """Instructions that a function gives, anew for each call of the model."""
        made: Any = self._agent.instructions
        made = made(self._context)
        if isawaitable(made):
            with hook_time("the function of the instructions"):
                made = await made
        sections = [str(made or ""), *(each.instructions for each in self._chain.all)]
        text = "\n\n".join(filter(None, sections))
        return (system(text),) if text else ()

    async def _ask_model(self, prompt: Prompt) -> Reply:
        self._asked = True
        if prompt.tools is self._agent.first_definitions and prompt.tools is not (tools := self._offered()):
            prompt = prompt.replace(tools=tools)  # it was compacted on the way here
        async with self._carry.session.ask(prompt, stream=self._agent.stream, on_notice=self._noticed) as answer:
            self._answer = answer
            shows = self._context.watch is not None and not self._chain.withholds
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
        """Count an answer; one that does not say what it used costs nobody knows what."""
        if usage is None:
            self._spending.cost = None
        else:
            self._spending.add({model: usage}, self._price(model, usage))

    def _price(self, model: str, usage: Usage) -> float | None:
        try:
            return self._agent.price(model, usage)
        except Exception as error:  # noqa: BLE001 (a price is no reason to lose an answer)
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
        """What came of the answer under way."""
        answer, self._answer = self._answer, None
        so_far = None if answer is None else answer.so_far
        return None if so_far is None else self._unseen(so_far.message)

    def _unseen(self, partial: AssistantMessage) -> AssistantMessage:
        """What came of an answer, for nobody where middleware did not pass it."""
        if not self._chain.withholds or DISCARDED in partial.tags:
            return partial
        return partial.replace(tags=(*partial.tags, DISCARDED))
