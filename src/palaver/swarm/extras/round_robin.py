"""Several models that take turns: each question goes to the next one.

Rules (docs/spec/agent-swarm-kit.md#6):

- The questions of all conversations are dealt out in the order in which they are asked: a, b, a. Keys of one provider
  share a load so.
- A conversation has a session with each model that it came to. A model that fails is not gone past: that is what
  ``palaver.models.Fallback`` is for, and the two can be put together.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from typing import final

from palaver.core.errors import MessageError
from palaver.core.type_checks import check_arguments
from palaver.models.capabilities import Capabilities
from palaver.models.language_model import Answer, LanguageModel, OnNotice, Prompt, Session


@final
class RoundRobin(LanguageModel):
    """Models that take turns. Raises ``MessageError`` when there is none."""

    def __init__(self, models: Iterable[LanguageModel]) -> None:
        """Hold the models, in their order."""
        check_arguments("RoundRobin", RoundRobin.__init__, {"models": models})
        self.models = tuple(models)
        check_arguments("RoundRobin", RoundRobin.__init__, {"models": self.models})
        if not self.models:
            raise MessageError("models that take turns: there must be one at least")
        self._next = 0

    @property
    def name(self) -> str:
        """The names of all, in order: ``openai/gpt-… | anthropic/claude-…``."""
        return " | ".join(dict.fromkeys(model.name for model in self.models))

    @property
    def capabilities(self) -> Capabilities:
        """Those of the first model."""
        return self.models[0].capabilities

    def session(self) -> Session:
        """Begin a conversation."""
        return _Session(self)

    def taken(self) -> int:
        """Whose turn it is, by position; the next one is somebody else's."""
        taken = self._next
        self._next = (taken + 1) % len(self.models)
        return taken

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
        index = self._models.taken()
        if index not in self._sessions:
            self._sessions[index] = self._models.models[index].session()
        return self._sessions[index].ask(prompt, stream=stream, on_notice=on_notice)
