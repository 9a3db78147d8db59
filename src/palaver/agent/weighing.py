"""What is known of a conversation with one model: what its next prompt weighs, and what that may weigh.

Rules (D29, KAI-03; issue 6):

- The provider's report of the last prompt counts, and the estimate of what came since (``context.Ledger``). The schema
  of an answer's form is part of the prompt, like tools and system prompt; media weigh what the model's card says.
- Of a chain of models, the first is the one that is asked: its window, its settings, its reports. When a prompt was too
  long for the chain, the smallest window in it counts.
- A run that ends at ``Limits.context_tokens`` has no more room than that.
- Of what is left, the results of a turn have a budget (``result_budget``).
- What a provider refused as too long is remembered, in the unit in which it was weighed.

Stability: experimental.
"""

from __future__ import annotations

from typing import Final

from palaver.agent.middleware import RunContext
from palaver.agent.result_budget import TurnBudget
from palaver.context.budget import capacity
from palaver.context.ledger import Ledger, Measure, prompt_of, reports
from palaver.core.messages import AssistantMessage
from palaver.models.capabilities import Capabilities
from palaver.models.catalogue import rates_of
from palaver.models.fallback import Fallback
from palaver.models.http_model import Model
from palaver.models.language_model import LanguageModel, Prompt
from palaver.models.written import merged
from palaver.tokens.counter import Counter
from palaver.tokens.estimate import estimate

_OF_OVERFLOW: Final = 0.9
"""How much of a prompt that was too long is taken to fit."""


class Weighing:
    """Weighs the prompts of one conversation, from run to run. ``window`` is what the caller says of the model."""

    def __init__(self, model: LanguageModel | None, *, window: int | None, counter: Counter | None) -> None:
        """Know nothing yet."""
        self._chain = _flat(model)
        first = self._chain[0].name if self._chain else None
        self.ledger = Ledger(first, rates=None if first is None else rates_of(first), counter=counter)
        self.fixed = 0
        self._window = window
        self._head: tuple[object, ...] | None = None
        self._most: int | None = None
        self._turn: TurnBudget | None = None

    def measure(self, prompt: Prompt, context: RunContext) -> Measure:
        """What a prompt weighs. Costs what is new in it."""
        path, messages, ledger = context.path(), prompt.messages, self.ledger
        head, before = (prompt.system, prompt.tools, prompt.settings.output), self._head
        if before is None or any(mine is not its for mine, its in zip(before, head, strict=True)):
            self._head = head
            self.fixed = ledger.fixed(*head)
        if before is None:
            ledger.recall(path, messages, fixed=self.fixed)
        measured = ledger.measure(messages, fixed=self.fixed, anchor=ledger.anchored(path, messages))
        room = self.capacity(prompt, context)
        self._turn = TurnBudget(room - measured.tokens)
        return measured

    # -- what a prompt may weigh -----------------------------------------------------------------------------------

    def capacity(self, prompt: Prompt, context: RunContext) -> int:
        """What a prompt may weigh, in tokens."""
        known = (self._of(self._chain[0] if self._chain else None, prompt), context.limits.context_tokens, self._most)
        return max(min([size for size in known if size is not None]), 1)

    def goal(self, prompt: Prompt, measured: Measure) -> int:
        """What a prompt shall weigh that was too long: half of it, or what the smallest window of the chain takes."""
        return min([measured.tokens // 2, *[self._of(each, prompt) for each in self._chain]])

    def overflowed(self, measured: Measure) -> None:
        """So much was too long."""
        self._most = max(int(measured.tokens * _OF_OVERFLOW), 1)

    def _of(self, model: LanguageModel | None, prompt: Prompt) -> int:
        can = Capabilities() if model is None else model.capabilities
        settings = merged(model.settings, prompt.settings) if isinstance(model, Model) else prompt.settings
        return capacity(self._window or can.window, can.max_output, settings)

    # -- what results may take -------------------------------------------------------------------------------------

    def answered(self, message: AssistantMessage) -> None:
        """Count the answer to the prompt that was measured last: its calls have less of the window."""
        if self._turn is not None:
            self._turn.answered(round(estimate(message) * self.ledger.calibration.scale))

    def turn(self, context: RunContext) -> TurnBudget:
        """The budget of the results that the model is sent next."""
        if self._turn is None:
            self._turn = TurnBudget(self.capacity(Prompt(messages=()), context) - self._read(context))
        return self._turn

    def _read(self, context: RunContext) -> int:
        """Tokens of the conversation, where calls are run whose answer came in an earlier run."""
        path = context.path()
        last = next((e.message for e in reversed(path) if isinstance(e.message, AssistantMessage)), None)
        if last is not None and last.usage is not None and reports(last):
            return prompt_of(last.usage) + (last.usage.output or 0)
        return round(sum(map(estimate, context.messages())) * self.ledger.calibration.scale)


def _flat(model: LanguageModel | None) -> tuple[LanguageModel, ...]:
    """The models of a chain, in the order in which they are asked."""
    if isinstance(model, Fallback):
        return tuple([each for one in model.models for each in _flat(one)])
    return () if model is None else (model,)
