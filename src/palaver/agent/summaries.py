"""Asks a model for the summaries that a compaction wants.

Rules (I7, KAI-09, D5):

- A summary that fails in any way changes nothing: the compaction goes on without it, and says so in its ``failures``.
  So do one that takes longer than ``seconds``, and one that the breaker does not let through.
- The breaker counts compactions whose summary failed, in a row, over all runs that share it. When it is open no model
  is asked; after a while one compaction tries again.
- Every answer is spent, also one that is of no use, or that broke off.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import anyio
from msgspec import structs

from palaver.agent.patience import uncounted
from palaver.context.breaker import Breaker
from palaver.context.compaction import Compacted, Compaction
from palaver.context.stages import Summarise
from palaver.context.summary import summary_of
from palaver.core.errors import StreamError, SummaryError, TimedOutError
from palaver.core.request import Request
from palaver.core.usage import Usage
from palaver.models.language_model import LanguageModel, complete

SECONDS = 180.0

Spent: TypeAlias = Callable[[str, Usage | None], None]
"""Told what an answer of a model used; ``None`` where it did not say."""


def _unspent(model: str, usage: Usage | None) -> None:
    """Nobody counts."""


class Summariser:
    """Drives compactions, with a model for their questions. ``model`` is asked where none is given."""

    def __init__(self, model: LanguageModel | None = None, *, seconds: float = SECONDS) -> None:
        """Set who is asked, and how many seconds one summary may take."""
        self._model, self._seconds = model, seconds
        self.breaker = Breaker()

    async def drive(
        self, compaction: Compaction, model: LanguageModel | None = None, *, spent: Spent = _unspent
    ) -> Compacted:
        """Carry a compaction to its end. Raises nothing but cancellation."""
        asks = self._model or model
        asked: set[str] = set()
        try:
            question = next(compaction)
            while True:
                try:
                    if not asked:
                        self._begin(asks)
                    asked.add(question.stage)
                    text = await self._ask(asks, question, spent)
                except Exception as error:  # noqa: BLE001 (it is told in the failures of the compaction)
                    question = compaction.throw(error)
                else:
                    question = compaction.send(text)
        except StopIteration as stop:
            found: Compacted = stop.value
        except BaseException:
            if asked:
                self.breaker = self.breaker.undecided()
            raise
        if asked:
            failed = any(each.stage in asked for each in found.failures)
            self.breaker = self.breaker.failed(anyio.current_time()) if failed else self.breaker.succeeded()
        return found

    def _begin(self, model: LanguageModel | None) -> None:
        """Ask the breaker. Raises ``SummaryError`` when nobody may be asked."""
        if model is None:
            raise SummaryError("there is no model to ask for a summary")
        if not self.breaker.allows(anyio.current_time()):
            raise SummaryError("summaries failed several times in a row; the next is tried later")
        self.breaker = self.breaker.tried()

    async def _ask(self, model: LanguageModel | None, question: Summarise, spent: Spent) -> str:
        assert model is not None  # noqa: S101 (``_begin`` saw to it)
        reply = None
        try:
            with uncounted(), anyio.move_on_after(self._seconds):
                reply = await complete(model, _fitting(question.request, model), stream=True)
        except StreamError as error:
            spent(model.name, error.response.message.usage)
            raise
        if reply is None:
            raise TimedOutError(f"the summary took longer than {self._seconds:g} seconds", phase="idle")
        spent(reply.model, reply.response.message.usage)
        return summary_of(reply.response.message)


def _fitting(request: Request, model: LanguageModel) -> Request:
    """Without a temperature for models that reason: providers refuse it there."""
    if not model.capabilities.reasoning:
        return request
    return request.replace(settings=structs.replace(request.settings, temperature=None))
