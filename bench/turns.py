"""Cases: the request body of one more turn, after a history of 40, 400 and 4,000 messages.

Rules:

- Tool results are spread over 0.2 to 20 KB, in the history and in the turn (corpus ``long``).
- A turn appends an assistant message that calls a tool, and the result, and makes the body of the next
  request, with tools. Ten turns follow one another; the time is that of one.
- palaver's time ends when all chunks of the body are in hand, as the transport takes them. Chunks that
  are made while somebody iterates are made within the time. A row of its own joins them to one ``bytes``.
- The client's time ends when its transport is given the request; the transport is ours and sends nothing.
- What palaver hands out is checked once: it is the body that ``encode_request`` gives for the same
  conversation, and it holds as many messages as the client sends.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import conversations
from measure import Case, Contender, Elapsed, Job, Row, Spread
from responses import FIXTURES

import palaver
from palaver import wires
from palaver.core import canonical

if TYPE_CHECKING:
    from collections.abc import Iterable

SIZES = (40, 400, 4000)
WIRE = "openai_chat"
MODEL = "gpt-5"
TURNS = 10
FLAT = 1.5
_FIRST = "palaver request_encoder, chunks handed out"


@cache
def _history(size: int) -> tuple[palaver.Message, ...]:
    return tuple(conversations.generate(1, size, shape=conversations.LONG, reasoning=False)[0])


@cache
def _turns() -> list[tuple[palaver.Message, palaver.Message]]:
    return conversations.turns(TURNS)


def _case_name(size: int) -> str:
    return f"4. One turn's body after {size:,} messages"


def cases() -> list[Case]:
    """One case for each length of history; the targets stand at 400."""
    return [Case(_case_name(size), "ms", _contenders(size)) for size in SIZES]


def _contenders(size: int) -> list[Contender]:
    at_400 = size == 400
    return [
        Contender(_FIRST, lambda: _palaver(size, joined=False)),
        Contender("palaver request_encoder, joined to one bytes", lambda: _palaver(size, joined=True)),
        Contender("palaver encode_request, nothing kept", lambda: _anew(size)),
        Contender("openai client create() to its transport", lambda: _openai(size), 200 if at_400 else None),
        Contender(
            "langchain-core convert_to_openai_messages + json.dumps", lambda: _langchain(size), 100 if at_400 else None
        ),
        Contender("langchain-openai request payload + json.dumps", lambda: _langchain_openai(size)),
    ]


def _request(messages: tuple[palaver.Message, ...]) -> palaver.Request:
    return palaver.Request(messages=messages, model=MODEL, tools=conversations.tools())


def _in_hand(chunks: Iterable[bytes]) -> Sequence[bytes]:
    return chunks if isinstance(chunks, Sequence) else list(chunks)


def _palaver(size: int, *, joined: bool) -> Job:
    wire = wires.get(WIRE)
    turns = _turns()

    def prepare() -> Any:
        encoder = wire.request_encoder(_request(_history(size)))
        _in_hand(encoder.chunks())  # the request of the turn before
        return encoder

    def run(encoder: Any) -> object:
        made: object = None
        for call, result in turns:
            encoder.append(call)
            encoder.append(result)
            made = b"".join(encoder.chunks()) if joined else _in_hand(encoder.chunks())
        return made

    _check(size, run(prepare()))
    return Job(run, prepare, per=TURNS)


def _check(size: int, made: Any) -> None:
    sent = json.loads(made if isinstance(made, bytes) else b"".join(made))
    messages = (*_history(size), *(message for turn in _turns() for message in turn))
    if sent != json.loads(wires.get(WIRE).encode_request(_request(messages)).body):
        msg = "the kept body is not the body that encode_request gives"
        raise ValueError(msg)
    if len(sent["messages"]) != len(messages):
        msg = f"the body holds {len(sent['messages'])} messages, not {len(messages)}"
        raise ValueError(msg)


def _anew(size: int) -> Job:
    wire = wires.get(WIRE)
    messages = (*_history(size), *_turns()[0])
    data = _fresh(messages)
    return Job(lambda request: wire.encode_request(request).body, lambda: _request(data()))


def _fresh(messages: tuple[palaver.Message, ...]) -> Any:
    """Give a function that makes the messages anew, so that nothing kept with them helps."""
    data = canonical.encode_many(messages)
    return lambda: tuple(canonical.decode_many(data))


def _openai(size: int) -> Job:
    import httpx2
    import openai

    answer = json.loads((FIXTURES / "openai_chat.json").read_bytes())

    class Transport(httpx2.BaseTransport):
        """Stops the clock when it is given a request."""

        stopped = 0.0

        def handle_request(self, request: httpx2.Request) -> httpx2.Response:
            self.stopped = time.process_time()
            self.sent = request
            return httpx2.Response(200, json=answer)

    transport = Transport()
    client = openai.OpenAI(api_key="none", max_retries=0, http_client=httpx2.Client(transport=transport))
    messages: list[Any] = conversations.to_openai_chat((*_history(size), *_turns()[0]))
    tools: list[Any] = conversations.to_openai_tools(conversations.tools())

    def run(_state: object) -> Elapsed:
        start = time.process_time()
        client.chat.completions.create(model=MODEL, messages=messages, tools=tools)
        return Elapsed(transport.stopped - start)

    run(None)
    if len(json.loads(transport.sent.content)["messages"]) != size + 2:
        msg = "the client sent another number of messages"
        raise ValueError(msg)
    return Job(run)


def _langchain(size: int) -> Job:
    from langchain_core.messages import convert_to_openai_messages

    messages = conversations.to_langchain((*_history(size), *_turns()[0]))
    tools = conversations.to_openai_tools(conversations.tools())

    def run(_state: object) -> object:
        body = {"model": MODEL, "messages": convert_to_openai_messages(messages), "tools": tools}
        return json.dumps(body).encode()

    return Job(run)


def _langchain_openai(size: int) -> Job:
    from langchain_openai import ChatOpenAI

    messages = conversations.to_langchain((*_history(size), *_turns()[0]))
    tools = conversations.to_openai_tools(conversations.tools())
    model = ChatOpenAI(model=MODEL, api_key="none")
    return Job(lambda _: json.dumps(model._get_request_payload(messages, tools=tools)).encode())  # noqa: SLF001


def flatness(rows: Sequence[Row]) -> Row:
    """Compare palaver's own turns: does the cost grow with the history?"""
    found = {row.case: row for row in rows if row.name == _FIRST}
    short, long = (found.get(_case_name(size)) for size in (SIZES[0], SIZES[-1]))
    row = Row(
        f"4. A turn after {SIZES[-1]:,} messages against one after {SIZES[0]}",
        _FIRST,
        "×",
        target=f"≤ {FLAT:g}×",
    )
    if short is None or long is None or short.value is None or long.value is None:
        row.error = next((each.error for each in (short, long) if each and each.error), "not measured")
        return row
    row.value = Spread([one / other for one, other in zip(long.value.samples, short.value.samples, strict=False)])
    row.met = row.value.median <= FLAT
    return row
