"""A conversation with a model that writes its tool calls and its reasoning as text.

Rules:

- Each text of an answer is read by a format of ``palaver.stream.local``: its calls and its reasoning become parts, as
  the text arrives and in the whole answer alike. Other parts stay as they are.
- Calls get ids that no other answer has. An answer that stopped with calls has the finish reason ``tool_calls``.
- What a broken answer holds is read, too.
- Templates of Gemma fail on schemas in which a node has no single type: tools are sent with such schemas (DAS-18).

Stability: experimental.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from operator import is_
from typing import TYPE_CHECKING, Any, Final, cast, final
from uuid import uuid4

from msgspec import structs

from palaver.core.errors import StreamError
from palaver.core.events import CitationDelta, Event, Finish, PartEnd, PartStart, Start, TextDelta, Update
from palaver.core.messages import AssistantMessage
from palaver.core.parts import AssistantPart, Reasoning, Text, ToolCall
from palaver.core.request import Loss, Response
from palaver.core.tools import AnyTool, Tool
from palaver.models.language_model import Answer, OnNotice, Prompt, Reply, Session
from palaver.stream import local

if TYPE_CHECKING:
    from types import TracebackType

_NOT_TEXT: Final = -1


class _Reader:
    """Reads the texts of one answer, as events and whole, with the same ids."""

    def __init__(self, format: str, tools: tuple[AnyTool, ...]) -> None:
        self._format, self._tools = format, tools
        self._ids: dict[tuple[int, int, int], str] = {}
        self._parsers: dict[int, _Part] = {}
        self._places: dict[int, int] = {}
        self._texts: dict[int, int] = {}
        self._reasoned: set[int] = set()
        self._called: set[int] = set()
        self._next = 0

    def _parser(self, choice: int, number: int, *, reasoned: bool) -> local.Parser:
        def id_of(call: int) -> str:
            return self._ids.setdefault((choice, number, call), f"call_{uuid4().hex}")

        start = False if reasoned else None
        return local.get(self._format, id_of=id_of, tools=self._tools, start_in_think=start)

    # -- as it arrives --

    def feed(self, event: Event) -> Iterator[Event]:
        """The events that one event of the answer stands for."""
        match event:
            case PartStart(part=Text() as text):
                number = self._texts.get(event.choice, 0)
                self._texts[event.choice] = number + 1
                parser = self._parser(event.choice, number, reasoned=event.choice in self._reasoned)
                self._parsers[event.index] = made = _Part(parser, event)
                yield from self._feed_text(made, text.text)
            case PartStart():
                if isinstance(event.part, Reasoning):
                    self._reasoned.add(event.choice)
                elif isinstance(event.part, ToolCall):
                    self._called.add(event.choice)
                self._places[event.index] = self._next
                self._next += 1
                yield structs.replace(event, index=self._places[event.index])
            case TextDelta() if event.index in self._parsers:
                yield from self._feed_text(self._parsers[event.index], event.text)
            case PartEnd() if event.index in self._parsers:
                made = self._parsers.pop(event.index)
                if isinstance(event.part, Text) and not made.fed:
                    yield from self._feed_text(made, event.part.text)
                yield from self._end_part(made)
            case CitationDelta() if event.index in self._parsers:
                made = self._parsers[event.index]
                if made.text != _NOT_TEXT:
                    yield structs.replace(event, index=made.text)
            case Start() | Update():  # its parts are not those that the provider sent
                yield structs.replace(event, response=structs.replace(event.response, origin=None))
            case Finish():
                for index in [index for index, made in self._parsers.items() if made.start.choice == event.choice]:
                    yield from self._end_part(self._parsers.pop(index))
                called = event.reason == "stop" and event.choice in self._called
                yield structs.replace(event, reason="tool_calls") if called else event
            case _:
                place = self._places.get(getattr(event, "index", _NOT_TEXT))
                yield event if place is None else _with_index(event, place)

    def _feed_text(self, made: _Part, text: str) -> Iterator[Event]:
        made.fed = made.fed or bool(text)
        yield from self._forward(made, made.parser.feed(text))

    def _end_part(self, made: _Part) -> Iterator[Event]:
        yield from self._forward(made, made.parser.finish())

    def _forward(self, made: _Part, events: list[Event]) -> Iterator[Event]:
        for event in events:
            if isinstance(event, PartStart):
                made.indexes.append(self._next)
                self._next += 1
                if isinstance(event.part, ToolCall):
                    self._called.add(made.start.choice)
                index = made.indexes[event.index]
                made.text = index if isinstance(event.part, Text) else made.text
                yield structs.replace(event, index=index, choice=made.start.choice, place=made.start.place)
            else:
                yield _with_index(event, made.indexes[cast("TextDelta | PartEnd", event).index])

    # -- whole --

    def response(self, response: Response) -> Response:
        """An answer with its calls and its reasoning as parts; the same object where it has none as text."""
        message = self._message(response.message, 0)
        others = tuple([self._message(each, choice) for choice, each in enumerate(response.alternatives, 1)])
        same = message is response.message and all(map(is_, others, response.alternatives))
        return response if same else response.replace(message=message, alternatives=others)

    def _message(self, message: AssistantMessage, choice: int) -> AssistantMessage:
        content: list[AssistantPart] = []
        texts, changed, reasoned = 0, False, False
        for part in message.content:
            if not isinstance(part, Text):
                reasoned = reasoned or isinstance(part, Reasoning)
                content.append(part)
                continue
            parser = self._parser(choice, texts, reasoned=reasoned)
            texts += 1
            parts = local.parts(parser, part.text)
            same = parts == (Text(part.text),)
            content += (part,) if same else parts
            changed = changed or not same
        if not changed:
            return message
        called = message.finish_reason == "stop" and any(isinstance(part, ToolCall) for part in content)
        reason = "tool_calls" if called else message.finish_reason
        return message.replace(content=tuple(content), finish_reason=reason)


class _Part:
    """A text that is being read: where its parts stand, and the last of them that is text."""

    def __init__(self, parser: local.Parser, start: PartStart) -> None:
        self.parser, self.start = parser, start
        self.indexes: list[int] = []
        self.text = _NOT_TEXT
        self.fed = False


def _with_index(event: Any, index: int) -> Event:
    moved: Event = structs.replace(event, index=index)
    return moved


def _with_schema(tool: AnyTool, schema: Callable[[Mapping[str, Any]], dict[str, Any]]) -> AnyTool:
    """A tool with a schema that the model's template can read; the same tool where it has one."""
    given: object = tool.parameters if isinstance(tool, Tool) else None
    if not isinstance(tool, Tool) or not isinstance(given, Mapping):
        return tool
    plain = schema(cast("Mapping[str, Any]", given))
    return tool if plain == given else tool.replace(parameters=plain)


@final
class TextCallSession(Session):
    """A conversation whose answers are read by a format of ``palaver.stream.local``."""

    def __init__(self, session: Session, format: str) -> None:
        """Take the conversation, and the format's name. Raises ``UnknownNameError`` for a format that there is not."""
        local.get(format)
        self._session, self._format = session, format
        self._tools: tuple[AnyTool, ...] = ()
        self._plain: tuple[AnyTool, ...] = ()
        self._losses: tuple[Loss, ...] = ()

    def ask(
        self, prompt: Prompt, *, stream: bool = True, on_notice: OnNotice | None = None
    ) -> AbstractAsyncContextManager[Answer]:
        """Send a prompt; the answer's texts are read.

        Where the model's template reads some schemas only, tools are sent with such, and the receipt names them.
        """
        schema = local.FORMATS[self._format].schema
        if schema is not None and prompt.tools is not self._tools:
            self._tools = prompt.tools
            self._plain = tuple([_with_schema(each, schema) for each in prompt.tools])
            self._losses = tuple(
                [
                    Loss("converted", f"the schema of {plain.name}", f"rewritten for the template of {self._format}")
                    for tool, plain in zip(prompt.tools, self._plain, strict=True)
                    if isinstance(plain, Tool) and plain is not tool
                ]
            )
        sent = prompt.replace(tools=self._plain) if self._losses else prompt
        asked = self._session.ask(sent, stream=stream, on_notice=on_notice)
        return _Answer(asked, _Reader(self._format, prompt.tools), self._losses)


@final
class _Answer(Answer):
    """One answer, read as it arrives."""

    def __init__(self, asked: AbstractAsyncContextManager[Answer], reader: _Reader, losses: tuple[Loss, ...]) -> None:
        self._asked, self._reader, self._losses = asked, reader, losses
        self._answer: Answer | None = None
        self._events: deque[Event] = deque()

    async def __aenter__(self) -> _Answer:
        try:
            self._answer = await self._asked.__aenter__()
        except StreamError as error:
            error.response = self._reader.response(error.response)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._asked.__aexit__(kind, error, trace)

    @property
    def _entered(self) -> Answer:
        assert self._answer is not None  # noqa: S101 (entered)
        return self._answer

    def __aiter__(self) -> _Answer:
        return self

    async def __anext__(self) -> Event:
        while not self._events:
            try:
                event = await anext(aiter(self._entered))
            except StreamError as error:
                error.response = self._reader.response(error.response)
                raise
            self._events.extend(self._reader.feed(event))
        return self._events.popleft()

    async def finish(self) -> Reply:
        try:
            reply = await self._entered.finish()
        except StreamError as error:
            error.response = self._reader.response(error.response)
            raise
        response = self._reader.response(reply.response)
        return structs.replace(reply, response=response, losses=(*reply.losses, *self._losses))

    @property
    def so_far(self) -> Response | None:
        so_far = self._entered.so_far
        return None if so_far is None else self._reader.response(so_far)
