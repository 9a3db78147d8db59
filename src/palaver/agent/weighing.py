"""What is known of a conversation with one model: what its next prompt weighs, and what that may weigh.

Rules (D29, KAI-03; issue 6):

- The provider's report of the last prompt counts, and the estimate of what came since (``context.Ledger``). The schema
  of an answer's form is part of the prompt, like tools and system prompt; media weigh what the model's card says.
- Of a chain of models, the first is the one that is asked: its window, its settings, its reports. When a prompt was too
  long for the chain, the smallest window in it counts.
- A run that ends at ``Limits.context_tokens`` has no more room than that.
- What a provider refused as too long is remembered, in the unit in which it was weighed.

Stability: experimental.
"""

from __future__ import annotations

from typing import Final

from palaver.agent.middleware import RunContext
from palaver.context.budget import capacity
from palaver.context.ledger import Ledger, Measure
from palaver.models.capabilities import Capabilities
from palaver.models.catalogue import rates_of
from palaver.models.fallback import Fallback
from palaver.models.http_model import Model
from palaver.models.language_model import LanguageModel, Prompt
from palaver.models.written import merged
from palaver.tokens.counter import Counter

_OF_OVERFLOW: Final = 0.9
"""How much of a prompt that was too long is taken to fit."""
_LEAST: Final = 4_000
"""Tokens that are taken to be left at least: what the budget keeps free besides has room for the half of them."""


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
        self._left: int | None = None
        self._taken = 0

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
        self._left = max(round((room - measured.tokens) / ledger.calibration.scale), _LEAST)
        self._taken = 0
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

    def share(self, results: int) -> int | None:
        """Tokens, as they are estimated, that one of so many results of a turn may take; ``None``: nothing is known.

        The results of a turn together have half of what is left (KAI-17: the shares never exceed the total), and one
        alone half of that. Where their number is not known yet (reads that begin early), each has a quarter of what
        those before it left.
        """
        if self._left is None:
            return None
        if results > 1:
            return self._left // 2 // results
        return (self._left - self._taken) // 4

    def took(self, tokens: int) -> None:
        """A result of so many tokens came."""
        self._taken += tokens


def _flat(model: LanguageModel | None) -> tuple[LanguageModel, ...]:
    """The models of a chain, in the order in which they are asked."""
    if isinstance(model, Fallback):
        return tuple([each for one in model.models for each in _flat(one)])
    return () if model is None else (model,)
