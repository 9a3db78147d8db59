"""Cases: a turn over loopback HTTP with a history of 400 messages, through ``Model`` and through the client.

Rules:

- The server is another process (``answering.py``); the clock is the CPU time of this one, sockets and TCP included. An
  answer has two calls of tools; a stream has 100 pieces of text, and is read to its end.
- A turn appends a call and its result to the history and asks. Ten turns follow one another; the time is that of one.
  palaver holds the history in a thread, and asks as its agents do, in one session; the client is given its list.
- ``httpx`` is the floor: the same bytes, posted by the library that ``Model`` stands on; nothing is encoded or read.
  It is what would be left if palaver took no time at all.
- HTTP/1.1 without TLS, one connection that is kept, in one event loop.
"""

from __future__ import annotations

import asyncio
from functools import cache
from typing import TYPE_CHECKING, Any

import answering
import conversations
from measure import Case, Contender, Job, Row, run

from palaver import wires
from palaver.core.request import Request, Settings
from palaver.models.endpoint import Endpoint
from palaver.models.http import Http
from palaver.models.http_model import Model
from palaver.models.language_model import Prompt
from palaver.threads.thread import Thread
from palaver.turn.journal import ReplayView

if TYPE_CHECKING:
    import palaver

FASTER = 20
MODEL = "gpt-5"
WIRE = "openai_chat"
TURNS = 10


@cache
def _history(size: int) -> tuple[palaver.Message, ...]:
    return tuple(conversations.generate(1, size, shape=conversations.LONG, reasoning=False)[0])


@cache
def _turns() -> list[tuple[palaver.Message, palaver.Message]]:
    return conversations.turns(TURNS)


def turns(size: int, rounds: int) -> list[Row]:
    """Measure both kinds of answers."""
    rows: list[Row] = []
    with answering.serving() as address, asyncio.Runner() as runner:
        for stream in (False, True):
            case = f"5. A turn over HTTP after {size} messages, {'streamed' if stream else 'whole'}"
            made = _Asking(address, size, runner, stream=stream)
            contenders = [
                Contender("palaver Model", made.palaver),
                Contender("openai AsyncOpenAI chat.completions.create", made.openai, FASTER),
                Contender("httpx, the same bytes and nothing else", made.httpx),
            ]
            if stream:
                contenders.insert(2, Contender("openai AsyncOpenAI chat.completions.stream", made.openai_stream))
            rows += run(Case(case, "ms", contenders), rounds)
            runner.run(made.close())
    return rows


class _Asking:
    """The contenders, against one server."""

    def __init__(self, address: str, size: int, runner: asyncio.Runner, *, stream: bool) -> None:
        self._url = f"{address}/v1/chat/completions"
        self._base, self._size, self._runner, self._stream = f"{address}/v1", size, runner, stream
        self._closing: list[Any] = []

    async def close(self) -> None:
        """Close every pool of connections."""
        for each in self._closing:
            await each()

    def _job(self, begin: Any, turn: Any) -> Job:
        def play(state: Any) -> object:
            return self._runner.run(self._each(state, turn))

        return Job(play, begin, per=TURNS)

    async def _each(self, state: Any, turn: Any) -> object:
        made: object = None
        for messages in _turns():
            made = await turn(state, messages)
        return made

    # -- palaver -----------------------------------------------------------------------------------------------------

    def palaver(self) -> Job:
        """A thread, a view of it, and a session."""
        http = self._runner.run(Http().__aenter__())
        self._closing.append(lambda: http.__aexit__(None, None, None))
        endpoint = Endpoint(provider_name="none", wire=WIRE, url=self._url)
        model = Model(name="none/gpt-5", id=MODEL, endpoint=endpoint, http=http)
        tools = conversations.tools()

        async def ask(state: Any, messages: Any) -> object:
            thread, view, session = state
            thread.append(*messages)
            prompt = Prompt(messages=view(thread.path()), tools=tools)
            async with session.ask(prompt, stream=self._stream) as answer:
                return await answer.finish()

        def begin() -> Any:
            thread = Thread()
            thread.append(*_history(self._size))
            state = thread, ReplayView(), model.session()
            self._runner.run(ask(state, ()))  # the turn before
            return state

        return self._job(begin, ask)

    # -- peers -------------------------------------------------------------------------------------------------------

    def _client(self) -> Any:
        import openai

        client = openai.AsyncOpenAI(api_key="none", base_url=self._base, max_retries=0)
        self._closing.append(client.close)
        return client

    def _listed(self) -> list[Any]:
        return conversations.to_openai_chat(_history(self._size))

    def openai(self) -> Job:
        """The client; a stream is iterated, and not assembled."""
        client = self._client()
        tools: list[Any] = conversations.to_openai_tools(conversations.tools())

        async def ask(listed: list[Any], messages: Any) -> object:
            listed += conversations.to_openai_chat(messages)
            if not self._stream:
                return await client.chat.completions.create(model=MODEL, messages=listed, tools=tools)
            stream = await client.chat.completions.create(model=MODEL, messages=listed, tools=tools, stream=True)
            return [event async for event in stream]

        return self._job(self._listed, ask)

    def openai_stream(self) -> Job:
        """The client, with its own assembly of the stream."""
        client = self._client()
        tools: list[Any] = conversations.to_openai_tools(conversations.tools())
        for tool in tools:
            tool["function"]["strict"] = True  # it takes no others here

        async def ask(listed: list[Any], messages: Any) -> object:
            listed += conversations.to_openai_chat(messages)
            async with client.chat.completions.stream(model=MODEL, messages=listed, tools=tools) as events:
                return await events.get_final_completion()

        return self._job(self._listed, ask)

    def httpx(self) -> Job:
        """The floor."""
        import httpx

        client = httpx.AsyncClient(limits=httpx.Limits(max_connections=None))
        self._closing.append(client.aclose)

        async def ask(state: Any, _messages: Any) -> object:
            response = await client.post(self._url, content=next(state), headers={"content-type": "application/json"})
            return response.content

        return self._job(lambda: iter(self._bodies()), ask)

    @cache  # noqa: B019 (it lives as long as the case)
    def _bodies(self) -> tuple[bytes, ...]:
        encoder = wires.get(WIRE).request_encoder(self._request())
        bodies: list[bytes] = []
        for messages in _turns():
            encoder.append(*messages)
            bodies.append(b"".join(encoder.chunks()))
        return tuple(bodies)

    def _request(self) -> Request:
        prompt = Prompt(messages=_history(self._size), tools=conversations.tools())
        return prompt.replace(settings=Settings(stream=self._stream)).request(MODEL)
