"""An agent with real tools, and providers on loopback that answer from a script, in every wire's own form."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import msgspec

import palaver as p
from palaver import wires
from palaver.agent import Agent, Output, function_tool
from palaver.core.parts import Text
from palaver.models.failures import Clock, Retry
from palaver.models.http import Timeouts
from palaver.models.http_model import Model
from palaver.stream.replay_events import replay_events
from tests.loopback import Loopback, serve
from tests.models.speaking import TYPES, body_of, endpoint

MESSAGES = {"google_generate": "contents", "openai_responses": "input"}
"""The field of a body with its messages, if it is not ``messages``."""
IMAGE = p.Image(p.Inline("iVBORw0KGgphYmM="), media_type="image/png")


class World:
    """The effects of the tools."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def tools(self) -> list[Any]:
        @function_tool(effect="read")
        async def look(at: str) -> str:
            """Look it up."""
            self.done.append(f"look {at}")
            return f"Seen: {at}"

        @function_tool
        async def note(text: str) -> Output:
            """Write it down."""
            self.done.append(f"note {text}")
            return Output(content=(Text(f"Noted: {text}"), IMAGE))

        return [look, note]


def model_at(wire: str, url: str, **more: Any) -> Model:
    """Return a provider's model at an address; its clock does not wait."""
    given = {
        "timeouts": Timeouts(connect=10, write=10, first_token=10, idle=10, whole=10),
        "retry": Retry(jitter=0.0),
        "clock": Clock(sleep=_no_sleep),
    }
    return Model(name=f"loop/{wire}", id="m", endpoint=endpoint(wire, url), **{**given, **more})


async def _no_sleep(seconds: float) -> None:
    """Do not wait."""


def kind_of(wire: str, *, stream: bool) -> str:
    """Return the content type of an answer."""
    return TYPES.get(wire, "text/event-stream") if stream else "application/json"


def say(wire: str, *parts: Any) -> p.Response:
    """Return an answer; its reasoning is bound to its wire."""
    content = [p.Reasoning(part[1:], wire=wire, signature="c2ln") if _thought(part) else part for part in parts]
    message = p.assistant(*content)
    reason = "tool_calls" if message.tool_calls else "stop"
    return p.Response(message.replace(finish_reason=reason, usage=p.Usage(input=10, output=5), model="m"))


def _thought(part: Any) -> bool:
    return isinstance(part, str) and part.startswith("~")


def as_read(wire: str, response: p.Response, *, stream: bool) -> p.AssistantMessage:
    """Return an answer as it is read, without HTTP."""
    told = body_of(wire, response, stream=stream)
    if not stream:
        return wires.get(wire).decode_response(told).message
    decoder = wires.get(wire).stream_decoder()
    decoder.feed(told)
    return decoder.finish().message


@contextlib.contextmanager
def provider(wire: str, answers: Sequence[p.Response], *, stream: bool) -> Iterator[tuple[Loopback, Model]]:
    """Start a provider with these answers, one for each request, and its model."""
    bodies = [body_of(wire, answer, stream=stream) for answer in answers]
    with serve(*bodies, content_type=kind_of(wire, stream=stream), piece=97) as server:
        yield server, model_at(wire, server.url)


def agent_of(model: Any, world: World, **more: Any) -> Agent:
    """Return an agent with the tools of a world."""
    return Agent(model, instructions="Be brief.", tools=world.tools(), **more)


def frames(wire: str, response: p.Response) -> list[bytes]:
    """Return a streamed answer, one event in each frame."""
    encoder = wires.get(wire).stream_encoder()
    told = [*(encoder.feed(event) for event in replay_events(response)), encoder.finish()]
    return [each for each in told if each]


def raw_messages(wire: str, body: bytes) -> bytes:
    """Return the list of messages in a body, as it was sent."""
    fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    return bytes(fields[MESSAGES.get(wire, "messages")])


def grows(wire: str, bodies: Sequence[bytes]) -> bool:
    """Return whether each body begins with the one before it, byte for byte."""
    for before, after in pairwise(bodies):
        said = raw_messages(wire, before)
        prefix = before[: before.index(said)] + said[:-1]
        if not after.startswith(prefix):
            return False
    return True
