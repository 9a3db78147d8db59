"""The model ``demo``: a script that answers over HTTP as a provider would, with tools of its own.

- Only the provider is simulated. The request is encoded for a wire, sent by the HTTP client, decoded by the wire,
  answered as an event stream, and decoded again. No byte leaves the process.
- The answer depends only on the conversation, so another process can continue it.
- The script asks for two readings at once, then for an action that needs approval.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import anyio

from palaver import wires
from palaver.agent.functions import function_tool
from palaver.core.errors import ToolError
from palaver.core.factories import assistant, tool_call
from palaver.core.messages import AssistantMessage, FinishReason, Message, ToolMessage, UserMessage
from palaver.core.parts import Reasoning
from palaver.core.request import Response, Settings
from palaver.core.usage import Usage
from palaver.models.http import Http
from palaver.models.http_model import Model
from palaver.models.providers.row import endpoint_for
from palaver.stream.replay_events import replay_events
from palaver.threads.ids import uuid7
from palaver.turn.tool import AgentTool

if TYPE_CHECKING:
    import httpx

NAME: Final = "demo"
PROMPT: Final = "We sail to Husum tonight. When can we enter the harbour? Keep us a berth."
_WIRE: Final = "anthropic_messages"
_TIDES: Final = {"husum": "high water at 18:42, 3.6 m", "tönning": "high water at 18:10, 3.2 m"}


@function_tool(effect="read")
async def tide(harbour: Annotated[str, "Its name."]) -> str:
    """Return the time of high water in a harbour."""
    if harbour.casefold() not in _TIDES:
        raise ToolError(f"No tide table for {harbour!r}; there are {', '.join(_TIDES)}.")
    await anyio.sleep(0.1)
    return _TIDES[harbour.casefold()]


@function_tool(effect="read")
async def wind(harbour: Annotated[str, "Its name."]) -> dict[str, object]:
    """Return the wind in a harbour."""
    await anyio.sleep(0.1)
    return {"harbour": harbour, "from": "west", "beaufort": 4}


@function_tool
def reserve_berth(harbour: str, night: Annotated[str, "Such as 2026-11-21."], metres: float) -> str:
    """Reserve a berth for one night, for a boat of so many metres. It costs 18 EUR."""
    return f"berth 7 in {harbour} is kept for a boat of {metres:g} m on {night}"


def demo_tools() -> tuple[AgentTool, ...]:
    """Return the tools that the script calls."""
    return tide, wind, reserve_berth


def demo_model(*, pause: float = 0.02) -> Model:
    """Return the model. ``pause`` is the number of seconds between two pieces of an answer."""
    import httpx

    async def respond(request: httpx.Request) -> httpx.Response:
        decoded = wires.get(_WIRE).decode_request(await request.aread())
        pieces = _pieces(_answer(decoded.messages), pause)
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=pieces)

    return Model(
        name=f"{NAME}/script",
        id="script",
        endpoint=endpoint_for(NAME, _WIRE, "http://demo.invalid/v1/messages"),
        settings=Settings(max_tokens=1024),
        http=Http(httpx.AsyncClient(transport=httpx.MockTransport(respond))),
    )


async def _pieces(message: AssistantMessage, pause: float) -> AsyncIterator[bytes]:
    encoder = wires.get(_WIRE).stream_encoder()
    usage = Usage(input=400, output=len(message.text) // 4 + 20)
    reason: FinishReason = "tool_calls" if message.tool_calls else "stop"
    answer = message.replace(model="script", usage=usage, finish_reason=reason, response_id=f"msg_{uuid7()}")
    for event in replay_events(Response(answer), size=8):
        yield encoder.feed(event)
        if pause:
            await anyio.sleep(pause)
    yield encoder.finish()


def _answer(messages: Sequence[Message]) -> AssistantMessage:
    """Return the next answer of the script."""
    prompts = [index for index, message in enumerate(messages) if isinstance(message, UserMessage)]
    since = messages[prompts[-1] :] if prompts else messages
    results = {each.tool_call_id: each for each in since if isinstance(each, ToolMessage)}
    number = len(prompts)
    berth = results.get(f"toolu_{number}_berth")
    if number > 1 and not results:
        return assistant(
            "I am a script, and have told all that I know; but your thread is kept, and a real model can go on from "
            "here: --model anthropic/…, openai/…, ollama/…"
        )
    if not results:
        return assistant(
            Reasoning("Tide and wind decide. I can ask for both at once.", wire=_WIRE, signature="ZGVtbw=="),
            "I look at the tide and the wind.",
            tool_calls=[
                tool_call("tide", {"harbour": "Husum"}, id=f"toolu_{number}_tide"),
                tool_call("wind", {"harbour": "Husum"}, id=f"toolu_{number}_wind"),
            ],
        )
    if berth is None:
        return assistant(
            "High water is at 18:42, and the wind is fair. I reserve a berth, if you agree.",
            tool_calls=[
                tool_call(
                    "reserve_berth",
                    {"harbour": "Husum", "night": "2026-11-21", "metres": 9.5},
                    id=f"toolu_{number}_berth",
                )
            ],
        )
    done = (
        f"It is done: {berth.text}."
        if "is kept" in berth.text
        else "I have reserved nothing; you can anchor off the lock."
    )
    return assistant(f"You can enter from 16:40 to 20:40, two hours on either side of high water at 18:42. {done}")
