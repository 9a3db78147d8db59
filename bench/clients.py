"""Peers that read a stream from bytes: the official clients, and pydantic-ai on top of them.

Rules:

- Each is the real client with its own HTTP library; only the transport is ours. It is in the process and gives
  the chunks of a stream as a connection would, so that what is measured is the CPU time of the client: no
  socket, no kernel, no waiting. Building the request is in the time; it is small beside the stream.
- "iterate" gives each event to a loop that drops it, and assembles nothing. ``.stream()`` assembles.
- No tools are named, so that no client checks arguments against a schema: that is the cheapest way through it.
- One client, and one loop for what is async, is used for all rounds.
"""

from __future__ import annotations

import asyncio
import warnings
from functools import cache
from typing import TYPE_CHECKING, Any

import deltas
import wire_streams
from assembly import same_object
from measure import Job

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from deltas import Kind

MODEL = "gpt-4o"
_HEADERS = {"content-type": "text/event-stream; charset=utf-8"}


@cache
def _transport(wire: str, kind: Kind, count: int) -> Any:
    import httpx2

    chunks = wire_streams.chunks(wire, kind, count)

    class Stream(httpx2.SyncByteStream, httpx2.AsyncByteStream):
        """Gives the chunks."""

        def __iter__(self) -> Iterator[bytes]:
            yield from chunks

        async def __aiter__(self) -> AsyncIterator[bytes]:
            for chunk in chunks:
                yield chunk

    class Transport(httpx2.BaseTransport, httpx2.AsyncBaseTransport):
        """Answers every request with the stream."""

        def handle_request(self, request: Any) -> Any:
            return httpx2.Response(200, headers=_HEADERS, stream=Stream(), request=request)

        async def handle_async_request(self, request: Any) -> Any:
            return httpx2.Response(200, headers=_HEADERS, stream=Stream(), request=request)

    return Transport()


def _client(wire: str, kind: Kind, count: int) -> Any:
    import anthropic
    import httpx2
    import openai

    made: Any = anthropic.Anthropic if wire == "anthropic_messages" else openai.OpenAI
    http = httpx2.Client(transport=_transport(wire, kind, count))
    return made(api_key="none", max_retries=0, http_client=http)


def _async_client(wire: str, kind: Kind, count: int) -> Any:
    import anthropic
    import httpx2
    import openai

    made: Any = anthropic.AsyncAnthropic if wire == "anthropic_messages" else openai.AsyncOpenAI
    http = httpx2.AsyncClient(transport=_transport(wire, kind, count))
    return made(api_key="none", max_retries=0, http_client=http)


_ASKED: list[Any] = [{"role": "user", "content": "Write the report."}]


def iterate(wire: str, kind: Kind, count: int) -> Job:
    """Read the client's typed events, and no more."""
    client = _client(wire, kind, count)
    begin: dict[str, Callable[[], Any]] = {
        "openai_chat": lambda: client.chat.completions.create(model=MODEL, messages=_ASKED, stream=True),
        "openai_responses": lambda: client.responses.create(model=MODEL, input=_ASKED, stream=True),
        "anthropic_messages": lambda: client.messages.create(model=MODEL, max_tokens=9, messages=_ASKED, stream=True),
    }

    def run(_state: object) -> int:
        number = 0
        for _ in begin[wire]():
            number += 1
        return number

    return Job(run, check=lambda number: _at_least(number, count))


def _at_least(number: int, count: int) -> None:
    if number < count:
        msg = f"{number} events came, of {count} deltas"
        raise ValueError(msg)


def stream(wire: str, kind: Kind, count: int) -> Job:
    """Read the client's ``.stream()`` to the end, and take the message that it assembled."""
    client = _client(wire, kind, count)

    def chat(_state: object) -> Any:
        with client.chat.completions.stream(model=MODEL, messages=_ASKED) as events:
            return events.get_final_completion().choices[0].message

    def responses(_state: object) -> Any:
        with client.responses.stream(model=MODEL, input=_ASKED) as events:
            return events.get_final_response().output[0]

    def anthropic(_state: object) -> Any:
        with client.messages.stream(model=MODEL, max_tokens=9, messages=_ASKED) as events:
            return events.get_final_message().content[0]

    found: dict[tuple[str, Kind], Callable[[Any], str]] = {
        ("openai_chat", "text"): lambda made: made.content,
        ("openai_chat", "arguments"): lambda made: made.tool_calls[0].function.arguments,
        ("openai_responses", "text"): lambda made: made.content[0].text,
        ("openai_responses", "arguments"): lambda made: made.arguments,
        ("anthropic_messages", "text"): lambda made: made.text,
    }
    run = {"openai_chat": chat, "openai_responses": responses, "anthropic_messages": anthropic}[wire]
    text = found.get((wire, kind))
    if text is None:
        return Job(run, check=lambda made: same_object(made.input, kind, count))
    return Job(run, check=lambda made: deltas.same(text(made), deltas.whole(kind, count)))


@cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


def pydantic_ai(wire: str, kind: Kind, count: int) -> Job:
    """Read a streamed response of pydantic-ai's model to the end, and take the response."""
    from pydantic_ai import ModelRequest
    from pydantic_ai.direct import model_request_stream

    warnings.filterwarnings("ignore", module="pydantic_ai")
    client = _async_client(wire, kind, count)
    model = _model(wire, client)

    async def read() -> Any:
        async with model_request_stream(model, [ModelRequest.user_text_prompt("Write the report.")]) as events:
            async for _ in events:
                pass
        return events.get().parts[0]

    def text(made: Any) -> str:
        return made.content if kind == "text" else made.args

    return Job(
        lambda _: _loop().run_until_complete(read()),
        check=lambda made: deltas.same(text(made), deltas.whole(kind, count)),
    )


def _model(wire: str, client: Any) -> Any:
    if wire == "anthropic_messages":
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        return AnthropicModel("claude-sonnet-4-5", provider=AnthropicProvider(anthropic_client=client))
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    made: Any = OpenAIChatModel if wire == "openai_chat" else OpenAIResponsesModel
    return made(MODEL, provider=OpenAIProvider(openai_client=client))
