"""What the model of a run is asked: system prompt, view of the thread, and the tools that are offered.

Rules:

- A function of instructions is asked anew for each call of the model.
- Tools that read what was cut are offered as soon as something was cut, and from then on (``turn.results``).
- The last call that the limits allow is made without tools.

Stability: experimental.
"""

from __future__ import annotations

from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from palaver.core.factories import system
from palaver.core.messages import SystemMessage
from palaver.models.language_model import Prompt
from palaver.turn import notes
from palaver.turn.journal import Depths, ReplayView
from palaver.turn.middleware import RunContext, hook_time
from palaver.turn.results import CutResults

if TYPE_CHECKING:
    from palaver.agent.agent import Agent
    from palaver.core.tools import AnyTool
    from palaver.models.language_model import LanguageModel
    from palaver.turn.journal import Journal


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


class Prompts:
    """Builds the prompts of one run."""

    def __init__(self, agent: Agent[Any], journal: Journal, context: RunContext, carry: Carry) -> None:
        """Build for an agent, from the conversation that the journal writes."""
        self._agent, self._journal, self._context, self._carry = agent, journal, context, carry

    async def build(self, *, final: bool) -> Prompt:
        """Return the next prompt; ``final``: without tools."""
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

    def refresh(self, prompt: Prompt) -> Prompt:
        """Return a prompt with the tools of now: middleware may have compacted the conversation on the way."""
        if prompt.tools is self._agent.first_definitions and prompt.tools is not (tools := self._offered()):
            return prompt.replace(tools=tools)
        return prompt

    def _offered(self) -> tuple[AnyTool, ...]:
        """Return the tools to offer: those that read what was cut only when something was."""
        first, tools = self._agent.first_definitions, self._agent.definitions
        return first if len(first) < len(tools) and not self._carry.cut.in_thread(self._journal.entries) else tools

    async def _instructions(self) -> tuple[SystemMessage, ...]:
        """Return the instructions that a function gives."""
        made: Any = self._agent.instructions
        made = made(self._context)
        if isawaitable(made):
            with hook_time("the function of the instructions"):
                made = await made
        sections = [str(made or ""), *(each.instructions for each in self._agent.chain.all)]
        text = "\n\n".join(filter(None, sections))
        return (system(text),) if text else ()
