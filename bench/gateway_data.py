"""What the benchmark of gateways sends and what is answered: requests and answers of two wires, made by the codecs."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import TYPE_CHECKING

import conversations
import msgspec

from palaver import Request, Response, Usage, assistant, system, user, wires
from palaver.core.events import Finish, PartStart, Start, TextDelta
from palaver.core.parts import Text
from palaver.core.request import Settings

if TYPE_CHECKING:
    from palaver.core.events import Event
    from palaver.core.messages import Message

TOKENS = 200
"""Pieces of a stream."""
CHAT = "openai_chat"
MESSAGES = "anthropic_messages"
PATHS = {CHAT: "/v1/chat/completions", MESSAGES: "/v1/messages"}
UNIQUE = "I am UNIQUE."
"""Part of what the user says first, which no other connection says."""
ANSWER = "It is calm."
_BEGUN = 300
_TURNS = 50
_SMALL: tuple[Message, ...] = (system("You are brief."), user(f"{UNIQUE} Is the harbour calm today?"))
_TYPES = {False: "application/json", True: "text/event-stream"}


def requests(wire: str, *, agent: bool, stream: bool, headers: str = "") -> str:
    """Return a request in pieces, as ``gateway_load`` reads them: its head, and what stands around its messages.

    An agent's has 400 messages, of which a connection sends 300 first; any other has two. What is behind them is what
    was answered, and the next question.
    """
    messages = _agent_messages() if agent else _SMALL
    asked = Request(messages, "m", (), Settings(max_tokens=1000, stream=stream or None))
    body = wires.get(wire).encode_request(asked).body
    items = [bytes(each) for each in msgspec.json.decode(body, type=_Body).messages]
    first = len(items) - (_TURNS * 2 if agent else 0)
    before, _, after = body.partition(b",".join(items))
    key = "x-api-key: any\r\nanthropic-version: 2023-06-01" if wire == MESSAGES else "authorization: Bearer any"
    head = f"POST {PATHS[wire]} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n{key}\r\n{headers}"
    pieces = {"head": head, "before": before.decode(), "items": [each.decode() for each in items]}
    return json.dumps({**pieces, "after": after.decode(), "first": first})


def _agent_messages() -> tuple[Message, ...]:
    begun = tuple(conversations.generate(1, _BEGUN, reasoning=False)[0])
    turns = [(assistant(ANSWER), user(f"And on day {day}?")) for day in range(_TURNS)]
    return (
        system("You are an agent."),
        user(UNIQUE),
        *begun[2:-1],
        user("Is the harbour calm today?"),
        *(each for turn in turns for each in turn),
    )


class _Body(msgspec.Struct):
    messages: list[msgspec.Raw]


def answers() -> str:
    """Return what ``gateway_upstream`` answers, as JSON."""
    made: dict[str, object] = {}
    for wire, path in PATHS.items():
        whole = Response(
            assistant(ANSWER, model="m", usage=Usage(input=20, output=5), finish_reason="stop"),
        )
        pieces = {False: [wires.get(wire).encode_response(whole).body], True: _stream(wire)}
        for stream, each in pieces.items():
            encoded = [b64encode(piece).decode() for piece in each]
            made[f"{path} stream" if stream else path] = {"type": _TYPES[stream], "pieces": encoded}
    return json.dumps(made)


def _stream(wire: str) -> list[bytes]:
    encoder = wires.get(wire).stream_encoder()
    events: list[Event] = [Start(Response(assistant(model="m"))), PartStart(0, Text(""))]
    events += [TextDelta(0, f"word{number} ") for number in range(TOKENS)]
    pieces = [encoder.feed(each) for each in events]
    return [each for each in [*pieces, encoder.feed(Finish("stop")) + encoder.finish()] if each]
