"""A chain of models: when one fails, the next one is asked.

Rules:

- The next model is asked only before the first event with content.
- ``HOPS`` maps classes of error to what follows. An invalid request is invalid for every model, and is raised.
- A model that failed persistently is skipped for ``rest`` seconds, or for as long as its provider asks, unless no other
  model is left.
- When no model answers, or what failed is invalid for every model, the last error is raised: its class and its fields
  say what to do. Its text is that of all ``failures``, in order, each with the name of its model.
- A conversation may change models between turns: each model has its own session, and the losses of a reply are those
  of its model. Each hop is a ``Notice`` that names the model left behind.

Stability: experimental.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast, final

from msgspec import Struct, structs

from palaver.core.errors import (
    AuthenticationError,
    CapabilityError,
    ContextOverflowError,
    DecodeError,
    MessageError,
    OverloadedError,
    PalaverError,
    ProviderError,
    RateLimitError,
    StreamError,
    TransportError,
)
from palaver.core.events import Event, ProviderEvent, Start, Update, UsageUpdate
from palaver.core.request import Response
from palaver.core.type_checks import check_arguments
from palaver.models.ask import Askable
from palaver.models.catalogue import Capabilities
from palaver.models.failures import classify
from palaver.models.language_model import Answer, LanguageModel, Notice, OnNotice, Prompt, Reply, Session
from palaver.models.names import model as named

if TYPE_CHECKING:
    from types import TracebackType

Hop: TypeAlias = Literal["rest", "next", "bigger", "stop"]
"""``rest`` asks the next model and skips this one for a while, ``next`` asks the next model, ``bigger`` the next one
whose context window may be larger. ``stop`` raises the error."""

HOPS: Final[Mapping[type[PalaverError], Hop]] = {
    TransportError: "rest",
    StreamError: "rest",
    DecodeError: "rest",
    OverloadedError: "rest",
    RateLimitError: "rest",
    AuthenticationError: "rest",
    ContextOverflowError: "bigger",
    CapabilityError: "next",
    ProviderError: "stop",
    PalaverError: "stop",
}
"""What a failure means for the chain; the nearest class of an error counts."""

NEXT_MODEL_STATUSES: Final = frozenset({402, 404, 408, 409, 410, 429})
"""Statuses of other errors that concern the account or the model, not the prompt: no credit, no such model."""

COOLDOWN: Final = 60.0
"""Seconds for which a model that failed is skipped."""

_WITHOUT_CONTENT: Final = (Start, Update, UsageUpdate, ProviderEvent)
"""Events without content."""


@final
class Fallback(Askable, LanguageModel):
    """A chain of models. Raises ``MessageError`` for an empty chain.

    ``models`` are models, or their names, in the order in which they are asked. ``rest`` is how many seconds a model
    that failed is skipped, and ``clock`` returns seconds that only grow. ``goes_on`` maps classes of error to what
    follows; it replaces the table ``HOPS``.
    """

    def __init__(
        self,
        models: Iterable[LanguageModel | str],
        *,
        rest: float = COOLDOWN,
        clock: Callable[[], float] = time.monotonic,
        goes_on: Mapping[type[PalaverError], Hop] = HOPS,
    ) -> None:
        """Make the models that are given by name; nothing is sent."""
        check_arguments("Fallback", Fallback.__init__, locals())
        self.models: tuple[LanguageModel, ...] = tuple(
            named(each) if isinstance(each, str) else each for each in models
        )
        if not self.models:
            raise MessageError("a fallback needs at least one model")
        self.clock = clock
        self._rest = rest
        self._hops = goes_on
        self._resting_until: dict[int, float] = {}

    @property
    def name(self) -> str:
        """The names of all, in order: ``openai/gpt-… > anthropic/claude-…``."""
        return " > ".join(model.name for model in self.models)

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the first model. Each model gets a prompt that fits its own."""
        return self.models[0].capabilities

    def session(self) -> Session:
        """Return a new session."""
        return _Session(self)

    def __repr__(self) -> str:
        """Show the order."""
        return f"Fallback({self.name})"

    # -- what the answers of the chain share --

    def order(self) -> list[int]:
        """Return the positions of the models in the order to ask: first those that are not skipped."""
        now = self.clock()
        return sorted(range(len(self.models)), key=lambda index: self._resting_until.get(index, now) > now)

    def hop(self, index: int, error: PalaverError) -> Hop:
        """Return what follows an error of the model at position ``index``, and skip that model for a while if due."""
        found = hop_of(error, self._hops)
        if found == "rest":
            told = error.retry_after if isinstance(error, ProviderError) else None
            self._resting_until[index] = self.clock() + max(self._rest, told or 0.0)
        return found

    def answered(self, index: int) -> None:
        """Note that the model at position ``index`` answered: it is not skipped any longer."""
        self._resting_until.pop(index, None)

    def may_hold_more(self, index: int, least: int | None) -> bool:
        """Whether the context window of the model at position ``index`` is unknown, or larger than ``least`` tokens."""
        window = self.models[index].capabilities.window
        return least is None or window is None or window > least


def hop_of(error: PalaverError, hops: Mapping[type[PalaverError], Hop] = HOPS) -> Hop:
    """Return what an error means for the models behind the one that failed, by a table such as ``HOPS``."""
    found: Hop = "stop"
    for kind in type(error).__mro__:
        if kind in hops:
            found = hops[kind]
            break
    if (
        found == "stop"
        and isinstance(error, ProviderError)
        and (error.retryable or error.status in NEXT_MODEL_STATUSES or _no_credit(error))
    ):
        return "rest"
    return found


def _no_credit(error: ProviderError) -> bool:
    """Whether an account is empty: some say so with the status of a bad request."""
    return classify(error.status, () if error.code is None else (error.code,), error.message) == "quota"


@final
class _Session(Session):
    def __init__(self, chain: Fallback) -> None:
        self._chain = chain
        self._sessions: dict[int, Session] = {}

    def ask(self, prompt: Prompt, *, stream: bool = True, on_notice: OnNotice | None = None) -> _Answer:
        return _Answer(self._chain, self._session_for, prompt, stream=stream, on_notice=on_notice)

    def _session_for(self, index: int) -> Session:
        if index not in self._sessions:
            self._sessions[index] = self._chain.models[index].session()
        return self._sessions[index]


class _Open(Struct):
    """The model that is answering."""

    index: int
    manager: AbstractAsyncContextManager[Answer]
    answer: Answer
    events: AsyncIterator[Event]
    begun: float


@final
class _Answer(Answer):
    """Asks one model after the other, until one answers."""

    def __init__(
        self,
        chain: Fallback,
        session: Callable[[int], Session],
        prompt: Prompt,
        *,
        stream: bool,
        on_notice: OnNotice | None,
    ) -> None:
        self._chain = chain
        self._session = session
        self._prompt = prompt
        self._stream = stream
        self._on_notice = on_notice
        self._started = chain.clock()
        self._remaining: Iterator[int] = iter(())
        self._min_window: int | None = None
        self._requests = 0
        self._failed: list[str] = []
        self._open: _Open | None = None
        self._buffered: deque[Event] = deque()
        self._given = False

    async def __aenter__(self) -> _Answer:
        self._started = self._chain.clock()
        self._remaining = iter(self._chain.order())
        await self._next(None)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            await _close(opened, kind, error, trace)

    # -- from one model to the next --

    async def _next(self, error: PalaverError | None) -> None:
        """Ask the next model that may do better. Raises ``error``, the last failure, when there is none."""
        while True:
            index = next((each for each in self._remaining if self._chain.may_hold_more(each, self._min_window)), None)
            if index is None:
                raise self._with_failures(error)
            try:
                await self._begin(index)
                return
            except PalaverError as failure:
                await self._give_up(index, failure)
                error = failure

    async def _begin(self, index: int) -> None:
        """Ask a model, and wait for the first event with content, or the end."""
        begun = self._chain.clock()
        self._requests += 1
        manager = self._session(index).ask(self._prompt, stream=self._stream, on_notice=self._notice)
        answer = await manager.__aenter__()
        self._open = _Open(index, manager, answer, aiter(answer), begun)
        self._buffered.clear()
        async for event in self._open.events:
            self._buffered.append(event)
            if not isinstance(event, _WITHOUT_CONTENT):
                break
        self._chain.answered(index)

    async def _give_up(self, index: int, error: PalaverError) -> None:
        """Close what failed. Raises ``error`` when no other model would do better."""
        opened, self._open = self._open, None
        if opened is not None:
            await _close(opened, type(error), error, error.__traceback__)
        model = self._chain.models[index]
        if error.failures and isinstance(model, Fallback):
            self._failed += error.failures
        else:
            error.failures = ()  # of another prompt, where a model raises the same error again
            self._failed.append(f"{model.name}: {type(error).__name__}: {error}")
        hop = self._chain.hop(index, error)
        if hop == "stop":
            raise self._with_failures(error)
        if hop == "bigger":
            self._min_window = model.capabilities.window
        if self._on_notice is not None:
            self._on_notice(Notice(kind="fallback", model=model.name, error=error, attempt=self._requests))
        self._requests -= _unsent(error)

    def _with_failures(self, error: PalaverError | None) -> PalaverError:
        """Return the last error with the text of all failures; that of a chain of one model stays as it is."""
        error = error or MessageError(f"{self._chain.name}: no model is available")
        if len(self._failed) > 1 or (self._failed and len(self._chain.models) > 1):
            error.failures = tuple(self._failed)
        return error

    def _notice(self, notice: Notice) -> None:
        self._requests += notice.kind == "retry"
        if self._on_notice is not None:
            self._on_notice(notice)

    # -- what is given out --

    def __aiter__(self) -> _Answer:
        """The events that were not given out yet."""
        return self

    async def __anext__(self) -> Event:
        """The next event."""
        events = self._entered.events
        self._given = True
        return self._buffered.popleft() if self._buffered else await anext(events)

    async def finish(self) -> Reply:
        """Read to the end. While no event was returned, a failure here leads to the next model."""
        while True:
            opened = self._entered
            try:
                reply = await opened.answer.finish()
                break
            except PalaverError as error:
                if self._given:
                    raise
                await self._give_up(opened.index, error)
                await self._next(error)
        waited = opened.begun - self._started
        first = reply.first_token_seconds
        return structs.replace(
            reply,
            attempts=max(self._requests, reply.attempts),
            seconds=reply.seconds + waited,
            first_token_seconds=None if first is None else first + waited,
        )

    @property
    def so_far(self) -> Response | None:
        """The answer so far of the model that is answering."""
        return None if self._open is None else self._open.answer.so_far

    @property
    def _entered(self) -> _Open:
        if self._open is None:
            raise MessageError("an answer can be read only inside its async with block")
        return self._open


def _unsent(error: PalaverError) -> bool:
    """Whether nothing was sent: what was asked did not fit the model, or there was no key."""
    return isinstance(error, CapabilityError) or (isinstance(error, AuthenticationError) and error.status is None)


async def _close(
    opened: _Open, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
) -> None:
    """Close the answer of a model: first its events, which may be suspended."""
    try:
        events: object = opened.events
        if isinstance(events, AsyncGenerator):
            await cast("AsyncGenerator[Event, None]", events).aclose()
    finally:
        await opened.manager.__aexit__(kind, error, trace)
