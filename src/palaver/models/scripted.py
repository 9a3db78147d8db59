"""A model that plays a script: for tests, demonstrations and benchmarks.

Rules:

- The script is a list of turns; each request takes the next one, whoever asks. A function (sync or async) gets the
  prompt and returns the turn. After the last turn ``then`` answers, else ``MessageError`` is raised.
- A turn is a text, an ``AssistantMessage``, a ``Response``, an exception (raised before any content) or ``Broken`` (an
  answer that breaks off). Anything else is a ``MessageError``. ``asked`` lists the prompts.
- Answers come at once, unless ``delay`` (seconds) is set. All media are accepted, and no wire is involved.

A model that is a function: for a completion of one's own, a local program, a service that no wire speaks:

- The function gets the prompt, and gives a text, an ``AssistantMessage``, or a ``Response``. It may be asynchronous;
  one that is not runs where it is called, and must not take long.
- ``prompt.agent`` is the name of the agent that asks, ``prompt.client`` that of the client of a swarm for whom it asks
  (the identity of agent-swarm-kit's ``getCompletion``); ``None`` without one.
- An exception of the function passes through unchanged, and ends the run as ``failed``. The answer comes at once, also
  when streaming was requested.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from inspect import isawaitable
from typing import TYPE_CHECKING, Final, TypeAlias, cast, final

import anyio
from anyio.lowlevel import checkpoint
from msgspec import Struct

from palaver.core.errors import MessageError, StreamError, excerpt
from palaver.core.events import Event, Finish
from palaver.core.factories import assistant
from palaver.core.messages import AssistantMessage
from palaver.core.request import Response
from palaver.core.type_checks import check_arguments
from palaver.models.ask import Askable
from palaver.models.catalogue import Capabilities
from palaver.models.language_model import Answer, LanguageModel, OnNotice, Prompt, Reply, Session
from palaver.models.text_calls import TextCallSession
from palaver.stream import local
from palaver.stream.assembler import Assembler
from palaver.stream.replay_events import replay_events

if TYPE_CHECKING:
    from types import TracebackType


class Broken(Struct, frozen=True):
    """An answer of which only ``message`` came, before the stream broke off."""

    message: AssistantMessage
    reason: str = "the script says so"


_NOTHING: Final = Response(AssistantMessage())
Turn: TypeAlias = "str | AssistantMessage | Response | Broken | Exception"
TurnFunction: TypeAlias = "Callable[[Prompt], Turn | Awaitable[Turn]]"
Script: TypeAlias = "Iterable[Turn | TurnFunction]"


@final
class ScriptedModel(Askable, LanguageModel):
    """A model that plays a script. The attribute ``asked`` lists the prompts that it got, in order.

    ``script`` is an iterable of turns, or of functions from a prompt to a turn. ``name`` is the name of the model, and
    ``then`` answers every prompt after the last turn. ``delay`` is the time before each answer, in seconds.
    ``capabilities`` say what the model accepts. Raises ``MessageError`` for a script that is not a list of turns.
    """

    def __init__(
        self,
        script: Script,
        *,
        name: str = "scripted/model",
        then: Turn | TurnFunction | None = None,
        delay: float = 0.0,
        capabilities: Capabilities = Capabilities(),  # noqa: B008 (frozen)
    ) -> None:
        """Keep the script; nothing is taken from it yet."""
        check_arguments("ScriptedModel", ScriptedModel.__init__, locals())
        if not isinstance(cast("object", script), Iterable) or isinstance(script, str):
            raise MessageError(f"script: {excerpt(repr(script))} is not a list of turns")
        self._script = iter(script)
        self._name = name
        self._then = then
        self._capabilities = capabilities
        self.delay = delay
        self.asked: list[Prompt] = []

    @property
    def name(self) -> str:
        """Return the name."""
        return self._name

    @property
    def capabilities(self) -> Capabilities:
        """Return the capabilities; all by default."""
        return self._capabilities

    def session(self) -> Session:
        """Start a conversation; all share the same script."""
        return TurnSession(self._name, self.turn)

    async def turn(self, prompt: Prompt) -> Response | Broken | Exception:
        """Return the next turn of the script, for ``prompt``.

        Raises ``MessageError`` at its end, and for any other value.
        """
        self.asked.append(prompt)
        turn = next(self._script, self._then)
        if turn is None:
            raise MessageError(f"{self._name}: the script ended after {len(self.asked) - 1} turns")
        made = await turn_of(turn(prompt) if callable(turn) else turn, self._name)
        if self.delay:
            await anyio.sleep(self.delay)
        return made


async def turn_of(turn: Turn | Awaitable[Turn], name: str) -> Response | Broken | Exception:
    """Return the response for a turn, awaited if need be. Raises ``MessageError`` for a value that is not a turn."""
    if isawaitable(turn):
        turn = await turn
    if isinstance(turn, str):
        turn = assistant(turn)
    if isinstance(turn, AssistantMessage):
        reason = turn.finish_reason or ("tool_calls" if turn.tool_calls else "stop")
        turn = Response(turn if turn.finish_reason else turn.replace(finish_reason=reason))
    if not isinstance(cast("object", turn), Response | Broken | Exception):
        raise MessageError(
            f"{name}: {excerpt(repr(turn))} is not an answer; use a string, an AssistantMessage or a Response"
        )
    return turn


@final
class TurnSession(Session):
    """A conversation with a model whose answers come whole, by a function of the prompt."""

    def __init__(self, name: str, turn: Callable[[Prompt], Awaitable[Response | Broken | Exception]]) -> None:
        """Take the name of the model, and the function."""
        self._name, self._turn = name, turn

    def ask(self, prompt: Prompt, *, stream: bool = True, on_notice: OnNotice | None = None) -> _Answer:  # noqa: ARG002 (it never retries, and has it whole)
        """Ask the function when the answer is entered."""
        return _Answer(self._name, self._turn, prompt)


@final
class _Answer(Answer):
    """Answers a prompt. It is not a generator, for speed."""

    __slots__ = ("_assembler", "_events", "_given", "_name", "_next", "_prompt", "_turn")

    def __init__(
        self, name: str, turn: Callable[[Prompt], Awaitable[Response | Broken | Exception]], prompt: Prompt
    ) -> None:
        self._name, self._next = name, turn
        self._prompt = prompt
        self._given = False
        self._assembler: Assembler | None = None
        self._events: AsyncGenerator[Event, None] | None = None
        self._turn: Response | Broken = _NOTHING

    async def __aenter__(self) -> _Answer:
        turn = await self._next(self._prompt)
        if isinstance(turn, Exception):
            raise turn
        self._turn = turn
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close events that were not read."""
        if self._events is not None:
            await self._events.aclose()

    def __aiter__(self) -> AsyncIterator[Event]:
        if self._events is None:
            self._events = self._stream()
        return self._events

    async def _stream(self) -> AsyncGenerator[Event, None]:
        self._assembler = Assembler("")
        for event in replay_events(self._whole):
            await checkpoint()
            if not (isinstance(self._turn, Broken) and isinstance(event, Finish)):
                self._assembler.feed(event)
                yield event
        self._check()

    @property
    def _whole(self) -> Response:
        turn = self._turn
        return Response(turn.message.replace(finish_reason="error")) if isinstance(turn, Broken) else turn

    @property
    def so_far(self) -> Response | None:
        """The answer as far as it was returned."""
        if self._given:
            return self._whole
        if self._assembler is None:
            return None
        return self._whole if self._assembler.finished else self._assembler.response()

    def _check(self) -> None:
        if isinstance(self._turn, Broken):
            raise StreamError("", self._turn.reason, kind="torn", response=self._whole)

    async def finish(self) -> Reply:
        """Return the whole turn."""
        self._check()
        self._given = True
        return Reply(response=self._whole, model=self._name)


# -- function model --------------------------------------------------------------------------------


Completion: TypeAlias = "str | AssistantMessage | Response"


@final
class FunctionModel(Askable, LanguageModel):
    """Asks a function: ``FunctionModel(complete)``, with ``async def complete(prompt: Prompt) -> str``."""

    def __init__(
        self,
        function: Callable[[Prompt], Completion | Awaitable[Completion]],
        *,
        name: str = "function/model",
        capabilities: Capabilities = Capabilities(),  # noqa: B008 (frozen)
        text_calls: str | None = None,
    ) -> None:
        """Keep the ``function``. ``name`` appears in logs and errors, and ``capabilities`` say what the model accepts.

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
            raise MessageError(
                f"{self._name}: the function returned {kind}, not a string, an AssistantMessage or a Response"
            )
        return turn
