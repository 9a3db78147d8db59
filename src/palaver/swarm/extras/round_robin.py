"""Several models that take turns: each question goes to the next one (docs/spec/agent-swarm-kit.md#6).

The questions of all conversations are distributed in the order in which they are asked: a, b, a. So several keys of one
provider share the load. A conversation has a session with each model that it used. A failing model is not skipped; use
``palaver.models.Fallback`` for that, alone or together with this.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from typing import final

from palaver.core.errors import MessageError
from palaver.core.type_checks import check_arguments
from palaver.models.ask import Askable
from palaver.models.catalogue import Capabilities
from palaver.models.language_model import Answer, LanguageModel, OnNotice, Prompt, Session


@final
class RoundRobin(Askable, LanguageModel):
    """Models that take turns. Raises ``MessageError`` when there is none."""

    def __init__(self, models: Iterable[LanguageModel]) -> None:
        """Use ``models`` in their order."""
        check_arguments("RoundRobin", RoundRobin.__init__, {"models": models})
        self.models = tuple(models)
        check_arguments("RoundRobin", RoundRobin.__init__, {"models": self.models})
        if not self.models:
            raise MessageError("RoundRobin needs at least one model")
        self._next = 0

    @property
    def name(self) -> str:
        """The names of all models, in order: ``openai/gpt-… | anthropic/claude-…``."""
        return " | ".join(dict.fromkeys(model.name for model in self.models))

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the first model."""
        return self.models[0].capabilities

    def session(self) -> Session:
        """Start a conversation."""
        return _Session(self)

    def next_index(self) -> int:
        """Return the index of the model whose turn it is, and advance."""
        index = self._next
        self._next = (index + 1) % len(self.models)
        return index

    def __repr__(self) -> str:
        """Show the order."""
        return f"RoundRobin({self.name})"


@final
class _Session(Session):
    def __init__(self, models: RoundRobin) -> None:
        self._models = models
        self._sessions: dict[int, Session] = {}

    def ask(
        self, prompt: Prompt, *, stream: bool = True, on_notice: OnNotice | None = None
    ) -> AbstractAsyncContextManager[Answer]:
        index = self._models.next_index()
        if index not in self._sessions:
            self._sessions[index] = self._models.models[index].session()
        return self._sessions[index].ask(prompt, stream=stream, on_notice=on_notice)
