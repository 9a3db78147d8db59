"""The answers of one agent in one session: they are transformed, checked, stored, and returned.

Rules (docs/spec/agent-swarm-kit.md#3.1 to #3.6):

- The log stores what the client sees: the text that ``transform`` returned. A late answer is stored with a tag, and no
  client sees it (K13).
- A policy decides last what is shown. The placeholder must pass the agent's own check.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from palaver.core.errors import SwarmError, TurnError
from palaver.core.messages import AssistantMessage
from palaver.swarm.batch import spoken, with_text
from palaver.swarm.call import CallContext, called, watched
from palaver.swarm.names import of_turn
from palaver.swarm.rescue import placeholder
from palaver.swarm.turn import Turn
from palaver.threads.view import DISCARDED, PLACEHOLDER

if TYPE_CHECKING:
    from palaver.swarm.agent import SwarmAgent
    from palaver.swarm.session import Session


class AgentAnswers:
    """The part of an agent's session that shows answers."""

    session: Session
    agent: SwarmAgent
    gone: bool

    async def _transformed(self, text: str) -> str:
        return text if self.agent.transform is None else str(await called(self.agent.transform, text))

    async def _refused(self, text: str) -> str | None:
        reason: str | None = await called(self.agent.validate, text)
        return reason

    def _late(self, turn: Turn) -> bool:
        return self.gone or turn.over

    async def _show(self, turn: Turn, place: CallContext, answer: AssistantMessage, text: str) -> None:
        """Store an answer that passed, and return it to the client; a policy decides last."""
        raw = answer.text
        banned = await self.session.refused_output(text)
        if self.gone or not turn.claim():
            await self._withhold(turn, answer)
            return
        try:
            if banned is not None:
                turn.banned = True
                await self._discard(turn, answer)
                await self.session.keep(of_turn(turn, spoken(place, banned, PLACEHOLDER)))
                turn.give(banned)
                return
            await self.session.keep(of_turn(turn, answer if text == raw else with_text(answer, text)))
            await self._given(turn, place, raw, text)
        except BaseException as error:
            turn.break_off(error if isinstance(error, Exception) else TurnError("the turn was interrupted"))
            raise

    async def _given(self, turn: Turn, place: CallContext, raw: str, text: str) -> None:
        hooks = self.agent.hooks
        await watched("on_output", hooks.on_output, place, text)
        await watched("on_assistant_message", hooks.on_assistant_message, place, text)
        self.session.publish_event(
            "agent", "emit-output", place.agent, input={"mode": turn.mode, "rawResult": raw}, output={"result": text}
        )
        if self.agent.structured is None and place.agent in turn.parts:
            turn.parts[place.agent].output = text
        turn.give(text)

    async def _discard(self, turn: Turn, answer: AssistantMessage) -> None:
        """Store an answer that is not shown."""
        await self.session.keep(of_turn(turn, answer.replace(tags=(*(answer.tags or ()), DISCARDED))))

    async def _withhold(self, turn: Turn, answer: AssistantMessage) -> None:
        """Store a late answer; a turn whose agent was changed from outside gets no other."""
        await self._discard(turn, answer)
        if turn.overtaken:
            turn.resolve("")

    async def _apologise(self, turn: Turn, place: CallContext) -> None:
        """Show a placeholder."""
        raw = placeholder(self.agent.placeholders)
        text = await self._transformed(raw)
        refused = await self._refused(text)
        if refused is not None:
            raise SwarmError(f"the placeholder {text!r} failed validation: {refused}")
        if turn.claim():
            try:
                await self.session.keep(of_turn(turn, spoken(place, text, PLACEHOLDER)))
                await self._given(turn, place, raw, text)
            except BaseException as error:
                turn.break_off(error if isinstance(error, Exception) else TurnError("the turn was interrupted"))
                raise
