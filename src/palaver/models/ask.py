"""Ask a model directly: a prompt in, a response out.

Rules:

- ``ask`` waits for the whole answer; ``stream`` returns its events as they arrive. ``model.sync`` has both without
  ``await``.
- A prompt is whatever ``PromptInput`` allows, or a ``Request``, whose messages, tools, settings and provider fields are
  used; its model is not.
- A receipt lists what the model's wire cannot express. ``losses`` says what follows when something was dropped or
  converted: one ``LossWarning``, nothing, or a ``LossError`` before anything is sent. An approximation (such as a token
  limit that a provider requires) has none of these effects. ``palaver.models.complete`` returns the whole receipt.
- Each call is a conversation of its own. ``model.session()`` encodes a growing conversation only once.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Final, Literal, Self, TypeAlias

from palaver.core.errors import LossWarning, MessageError
from palaver.core.events import Event, PartStart, TextDelta
from palaver.core.factories import system
from palaver.core.messages import DeveloperMessage, SystemMessage, UserMessage
from palaver.core.parts import Text
from palaver.core.prompt_input import PromptInput, prompt_messages
from palaver.core.request import Request, Response, Settings
from palaver.core.tools import AnyTool
from palaver.core.type_checks import check_arguments
from palaver.models.encoded_prompt import merge_settings
from palaver.models.language_model import Answer, LanguageModel, Prompt, Reply
from palaver.models.sync import SyncFacade, SyncStream, sync_method, sync_stream, warn_caller

if TYPE_CHECKING:
    from types import TracebackType

OnLosses: TypeAlias = Literal["warn", "ignore", "raise"]

_SHOWN: Final = 3
"""The most losses that a warning names."""
_USER: Final = UserMessage(mode="user")


async def ask(
    model: LanguageModel,
    prompt: PromptInput | Request,
    *,
    instructions: str | SystemMessage | DeveloperMessage | None = None,
    tools: Sequence[AnyTool] = (),
    settings: Settings | None = None,
    losses: OnLosses = "warn",
) -> Response:
    """Send ``prompt``, and return the whole answer.

    ``prompt`` is a text, parts, messages or a ``Request``. ``instructions`` are the system prompt, before the
    messages. ``tools`` may be called by the model; the answer holds the calls, and ``palaver.agent`` runs them.
    ``settings`` override the model's own. ``losses`` says what becomes of what the wire drops or converts: ``"warn"``
    issues a ``LossWarning``, ``"ignore"`` says nothing, ``"raise"`` raises ``LossError`` and sends nothing. Raises
    ``MessageError`` for arguments of another type, and as ``palaver.models.language_model`` says.
    """
    made = _prompt("ask", prompt, instructions=instructions, tools=tools, settings=settings, losses=losses)
    async with model.session().ask(made, stream=False) as answer:
        return _response(await answer.finish(), losses)


def stream(
    model: LanguageModel,
    prompt: PromptInput | Request,
    *,
    instructions: str | SystemMessage | DeveloperMessage | None = None,
    tools: Sequence[AnyTool] = (),
    settings: Settings | None = None,
    losses: OnLosses = "warn",
) -> ResponseStream:
    """Send ``prompt``, and return the events of the answer as they arrive; the parameters are those of ``ask``.

    ``async for event in model.stream("…")`` reads to the end. With ``async with model.stream("…") as stream`` the
    connection is closed even when the stream is not read to its end. Raises ``MessageError`` for arguments of another
    type.
    """
    made = _prompt("stream", prompt, instructions=instructions, tools=tools, settings=settings, losses=losses)
    return ResponseStream(model.session().ask(made), losses)


class Askable:
    """The methods that every model has besides those of ``LanguageModel``; they are made from those."""

    __slots__ = ()

    ask = ask
    stream = stream

    @property
    def sync(self: LanguageModel) -> SyncModel:
        """The same model without ``await``: ``model("…").sync.ask("…")``."""
        return SyncModel(self)


class ResponseStream:
    """The events of one answer, as they arrive. An async context manager, and an async iterator of ``Event``."""

    def __init__(self, entering: AbstractAsyncContextManager[Answer], losses: OnLosses) -> None:
        """Keep what sends the prompt when it is entered; nothing is sent before.

        ``entering`` is the context manager that a session's ``ask`` returns. ``losses`` is ``"warn"``, ``"ignore"`` or
        ``"raise"``, as in ``ask``.
        """
        self._entering = entering
        self._losses: OnLosses = losses
        self._answer: Answer | None = None
        self._events: AsyncIterator[Event] | None = None
        self._response: Response | None = None
        self._alone = False

    def __repr__(self) -> str:
        """Return the state, not the answer."""
        if self._answer is None:
            return "ResponseStream(not started)"
        return f"ResponseStream({'reading' if self._response is None else 'finished'})"

    async def __aenter__(self) -> Self:
        """Send, and return at the first event with content. Raises as ``ask`` does."""
        if self._answer is not None:
            raise MessageError("a stream can be read only once")
        self._answer = await self._entering.__aenter__()
        self._events = aiter(self._answer)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connection."""
        self._events = None
        await self._entering.__aexit__(kind, error, trace)

    def __aiter__(self) -> AsyncIterator[Event]:
        """Return the stream itself."""
        return self

    async def __anext__(self) -> Event:
        """Return the next event. Raises as ``ask`` does, and ``StreamError`` when the answer breaks off."""
        if self._answer is None:
            await self.__aenter__()
            self._alone = True
        if self._events is None:
            raise StopAsyncIteration
        try:
            return await anext(self._events)
        except BaseException as error:
            if isinstance(error, StopAsyncIteration):
                await self._finish()
            if self._alone:
                await self.__aexit__(None, None, None)
            raise

    async def _finish(self) -> None:
        if self._response is None and self._answer is not None:
            self._response = _response(await self._answer.finish(), self._losses)

    @property
    def text_stream(self) -> AsyncIterator[str]:
        """The text of the answer as it arrives, without reasoning and tool calls."""
        return self._texts()

    async def _texts(self) -> AsyncGenerator[str]:
        texts: set[int] = set()
        async for event in self:
            text = ""
            if isinstance(event, PartStart) and isinstance(event.part, Text) and event.choice == 0:
                texts.add(event.index)
                text = event.part.text
            elif isinstance(event, TextDelta) and event.index in texts:
                text = event.text
            if text:
                yield text

    async def finish(self) -> Response:
        """Read the rest, and return the whole answer. Raises as reading does."""
        async for _ in self:
            pass
        return self.response

    @property
    def response(self) -> Response:
        """The whole answer, once the stream was read to its end. Raises ``MessageError`` before."""
        if self._response is None:
            raise MessageError("the answer is incomplete: read its stream to the end")
        return self._response


class SyncResponseStream(SyncStream[ResponseStream, Event]):
    """The events of one answer, as they arrive. A context manager, and an iterator of ``Event``."""

    finish = sync_method(ResponseStream.finish)

    @property
    def text_stream(self) -> Iterator[str]:
        """The text of the answer as it arrives, without reasoning and tool calls."""
        return SyncStream[AsyncIterator[str], str](self.wrapped.text_stream)

    @property
    def response(self) -> Response:
        """The whole answer, once the stream was read to its end. Raises ``MessageError`` before."""
        return self.wrapped.response


class SyncModel(SyncFacade[LanguageModel]):
    """A model whose methods are called without ``await``, also where an event loop runs. Made by ``model.sync``."""

    @property
    def name(self) -> str:
        """The name of the model."""
        return self.wrapped.name

    ask = sync_method(ask)
    stream = sync_stream(stream, SyncResponseStream)


def _prompt(
    name: str,
    prompt: PromptInput | Request,
    *,
    instructions: str | SystemMessage | DeveloperMessage | None,
    tools: Sequence[AnyTool],
    settings: Settings | None,
    losses: OnLosses,
) -> Prompt:
    given = {"instructions": instructions, "tools": tools, "settings": settings, "losses": losses}
    check_arguments(name, ask, given)
    request = prompt if isinstance(prompt, Request) else Request(prompt_messages(prompt, template=_USER))
    head = (system(instructions),) if isinstance(instructions, str) else () if instructions is None else (instructions,)
    return Prompt(
        messages=request.messages,
        system=head,
        tools=(*request.tools, *tools),
        settings=request.settings if settings is None else merge_settings(request.settings, settings),
        provider=request.provider,
        losses="raise" if losses == "raise" else "keep",
    )


def _response(reply: Reply, losses: OnLosses) -> Response:
    lost = [each for each in reply.losses if each.kind != "approximated"]
    if lost and losses == "warn":
        shown = "; ".join(map(str, lost[:_SHOWN]))
        more = f"; and {len(lost) - _SHOWN} more" if len(lost) > _SHOWN else ""
        warn_caller(f"not everything was sent to {reply.model}: {shown}{more}", LossWarning)
    return reply.response
