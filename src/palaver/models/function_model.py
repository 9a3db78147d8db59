"""A model that is a function: for a completion of one's own, a local program, a service that no wire speaks.

Rules:

- The function gets the prompt, and gives a text, an ``AssistantMessage``, or a ``Response``. It may be asynchronous;
  one that is not runs where it is called, and must not take long.
- ``prompt.agent`` is the name of the agent that asks, ``prompt.client`` that of the client of a swarm for whom it asks
  (the identity of agent-swarm-kit's ``getCompletion``); ``None`` where nobody said.
- What the function raises goes through as it is, and ends the run as ``failed``. Its answer comes at once, also where
  it was asked to stream.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias, final

from palaver.core.errors import MessageError
from palaver.core.messages import AssistantMessage
from palaver.core.request import Response
from palaver.core.type_checks import check_arguments
from palaver.models.catalogue import Capabilities
from palaver.models.language_model import LanguageModel, Prompt, Session
from palaver.models.scripted import TurnSession, turn_of
from palaver.models.text_calls import TextCallSession
from palaver.stream import local

Completion: TypeAlias = "str | AssistantMessage | Response"


@final
class FunctionModel(LanguageModel):
    """Asks a function: ``FunctionModel(complete)``, with ``async def complete(prompt: Prompt) -> str``."""

    def __init__(
        self,
        function: Callable[[Prompt], Completion | Awaitable[Completion]],
        *,
        name: str = "function/model",
        capabilities: Capabilities = Capabilities(),  # noqa: B008 (frozen)
        text_calls: str | None = None,
    ) -> None:
        """Take the function, a name for people, and what the model can do.

        ``text_calls`` names the format in which its texts hold calls and reasoning (``palaver.stream.local``). Raises
        ``MessageError`` for no function, and ``UnknownNameError`` for a format that there is not.
        """
        check_arguments("FunctionModel", FunctionModel.__init__, locals())
        if text_calls is not None:
            local.get(text_calls)
        self._function, self._name, self._capabilities = function, name, capabilities
        self._text_calls = text_calls

    @property
    def name(self) -> str:
        """Return the name."""
        return self._name

    @property
    def capabilities(self) -> Capabilities:
        """Return the capabilities; all by default."""
        return self._capabilities

    def session(self) -> Session:
        """Return a new session."""
        session = TurnSession(self._name, self._turn)
        return session if self._text_calls is None else TextCallSession(session, self._text_calls)

    async def _turn(self, prompt: Prompt) -> Response:
        turn = await turn_of(self._function(prompt), self._name)
        if not isinstance(turn, Response):
            kind = type(turn).__name__
            raise MessageError(f"{self._name}: the function gave {kind}, and not a text, a message or a Response")
        return turn
