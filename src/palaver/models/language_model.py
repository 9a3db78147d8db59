"""The interface of a language model: a session takes prompts and gives answers.

Rules:

- Any number of conversations may share a ``LanguageModel``. A ``Session`` belongs to one conversation and remembers
  what it encoded: a prompt over the same growing list of messages encodes only what is new (docs/spec/performance.md).
- ``session.ask(prompt)`` is an async context manager. Entering sends; ``async for`` gives events as they arrive;
  ``finish`` reads to the end and returns the ``Reply``. Leaving early, or cancellation, closes the connection. A
  session answers one prompt at a time.
- Failures are one ``PalaverError``: ``ProviderError`` (refused by the provider), ``TransportError`` (no answer),
  ``StreamError`` (the answer broke off; it holds the content so far), ``DecodeError`` (not an answer) or
  ``CapabilityError``. Retries and fallbacks happen before the first event with content, and ``on_notice`` gets each.
- asyncio and trio are supported.

Stability: experimental.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, Protocol, TypeAlias, TypedDict, Unpack

from msgspec import Struct, structs

from palaver.core.events import Event
from palaver.core.messages import DeveloperMessage, Message, SystemMessage
from palaver.core.request import Loss, Request, Response, Settings
from palaver.core.tools import AnyTool
from palaver.core.type_checks import check_arguments
from palaver.models.catalogue import Capabilities
from palaver.wires._engine.cache_marks import CachePlan


class PromptFields(TypedDict, total=False):
    """The fields of a prompt, to be changed in a copy."""

    messages: Sequence[Message]
    system: tuple[SystemMessage | DeveloperMessage, ...]
    tools: tuple[AnyTool, ...]
    settings: Settings
    provider: Mapping[str, Mapping[str, Any]]
    cache: CachePlan | None
    agent: str | None
    client: str | None
    losses: Literal["keep", "raise"]


class Prompt(Struct, frozen=True, kw_only=True):
    """What a model is asked.

    ``system`` stands before ``messages``, and may change from one prompt to the next; ``messages`` may be a window on a
    list that only grows. ``provider`` holds fields that only one wire understands, by its name. ``cache`` says what the
    provider caches, and where the marks are: places count from the first of ``messages``. ``agent`` and ``client`` are
    the names of the agent that asks and of its client, if any; no provider gets them. ``losses="raise"`` raises
    ``LossError``, and sends nothing, when something would be dropped or converted.
    """

    messages: Sequence[Message]
    system: tuple[SystemMessage | DeveloperMessage, ...] = ()
    tools: tuple[AnyTool, ...] = ()
    settings: Settings = Settings()
    provider: Mapping[str, Mapping[str, Any]] = {}
    cache: CachePlan | None = None
    agent: str | None = None
    client: str | None = None
    losses: Literal["keep", "raise"] = "keep"

    def replace(self, **changes: Unpack[PromptFields]) -> Prompt:
        """Return a copy edited by ``changes``. Raises ``TypeError`` for a field that a prompt does not have."""
        return structs.replace(self, **changes)

    def request(self, model: str | None = None) -> Request:
        """Return the prompt as a request, whose ``model`` is the one given. Costs the length of the messages."""
        made = Request((*self.system, *self.messages), model, self.tools, self.settings)
        return made.replace(provider=self.provider) if self.provider else made


class Reply(Struct, frozen=True, kw_only=True):
    """An answer, and how it was obtained.

    ``model`` is the name under which the model that answered was asked (``anthropic/claude-…``), ``wire`` its wire.
    ``losses`` say what could not be carried to it; places count from the first of ``Prompt.messages``. ``attempts``
    counts requests sent, also to models that did not answer. Seconds count from the call of ``ask``.
    """

    response: Response
    model: str
    wire: str | None = None
    losses: tuple[Loss, ...] = ()
    attempts: int = 1
    seconds: float = 0.0
    first_token_seconds: float | None = None
    request_id: str | None = None


class Notice(Struct, frozen=True, kw_only=True):
    """Something that happened on the way to an answer.

    ``retry``: ``model`` is asked again after ``wait`` seconds, because of ``error``. ``fallback``: the next model is
    asked instead.
    """

    kind: Literal["retry", "fallback"]
    model: str
    error: Exception
    attempt: int
    wait: float = 0.0


OnNotice: TypeAlias = Callable[[Notice], None]


class Answer(Protocol):
    """An answer that is arriving."""

    @abstractmethod
    def __aiter__(self) -> AsyncIterator[Event]:
        """The events that have not been given out yet, as they arrive. Raises as the module says."""
        ...

    @abstractmethod
    async def finish(self) -> Reply:
        """Read to the end, and return the whole answer. Raises as the module says."""
        ...

    @property
    @abstractmethod
    def so_far(self) -> Response | None:
        """The answer so far; its finish reason is ``error`` until it is whole. ``None`` before anything came."""
        ...


class Session(Protocol):
    """One conversation with one model."""

    @abstractmethod
    def ask(
        self, prompt: Prompt, *, stream: bool = True, on_notice: OnNotice | None = None
    ) -> AbstractAsyncContextManager[Answer]:
        """Send ``prompt``. Without ``stream`` the answer comes at once, and its events are made from it.

        ``on_notice`` is called with each retry and each fallback.
        """
        ...


class LanguageModel(Protocol):
    """Anything that answers prompts: a ``Model`` (a provider's, over HTTP), a chain, a script, a recording."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name, as ``model("…")`` takes it: ``openai/gpt-…``."""
        ...

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """What the model can see and do."""
        ...

    @abstractmethod
    def session(self) -> Session:
        """Return a new session."""
        ...


async def complete(model: LanguageModel, request: Request, *, stream: bool = False) -> Reply:
    """Send ``request`` to ``model``, and wait for the whole answer. ``request.model`` is ignored.

    With ``stream`` the provider streams the answer, so that the timeouts limit the wait for each event instead of the
    wait for the whole answer. Raises as the module says.
    """
    check_arguments("complete", complete, locals())
    prompt = Prompt(
        messages=request.messages, tools=request.tools, settings=request.settings, provider=request.provider
    )
    async with model.session().ask(prompt, stream=stream) as answer:
        return await answer.finish()
