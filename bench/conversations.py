"""Seeded conversations, and the same data in each peer's own stored form.

Rules:

- ``generate`` gives conversations of palaver messages: a system message, questions, assistants that reason
  and call tools with nested arguments (one call, or three at once), tool results of 0.2 to 20 KB, answers;
  2 % of all messages hold an image. The same seed gives the same messages on every machine.
- Two corpora differ only in how large tool results are: in ``short`` most are small (about 25 MB of
  canonical JSON for 1,000 conversations of 40 messages), in ``long`` they are spread (about 130 MB).
- A conversation ends where a model would be asked next: with a tool result or a question.
- Every ``to_*`` function gives what that library itself would hold for the same conversation: the same
  text, reasoning, calls, results, images and usage. Nothing is added to make a peer slower.
"""

from __future__ import annotations

import json
from base64 import b64decode
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import TYPE_CHECKING, Any

import prose
from msgspec import structs

import palaver
from palaver import Image, Inline, Json, Reasoning, Text, ToolCall, Url, Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

SEED = 20250101
LENGTH = 40
_STARTED = 1_735_689_600_000
_MODEL = "claude-sonnet-4-5"
_WIRE = "anthropic_messages"


@dataclass(frozen=True)
class Shape:
    """How large tool results are: ``200 * 100 ** (u ** skew)`` characters for a uniform ``u``."""

    name: str
    skew: float


SHORT = Shape("short", 60.0)
LONG = Shape("long", 0.62)
SHAPES = {shape.name: shape for shape in (SHORT, LONG)}


def generate(
    count: int, length: int = LENGTH, *, shape: Shape = SHORT, seed: int = SEED, reasoning: bool = True
) -> list[list[palaver.Message]]:
    """Generate ``count`` conversations of ``length`` messages, which is an even number."""
    return [_Writer(Random(seed + index), shape, reasoning=reasoning).conversation(length) for index in range(count)]


def turns(count: int, *, seed: int = SEED) -> list[tuple[palaver.Message, palaver.Message]]:
    """Generate ``count`` turns to append: an assistant that calls a tool, and the result."""
    writer = _Writer(Random(seed - 1), LONG, reasoning=False)
    made: list[tuple[palaver.Message, palaver.Message]] = []
    for _ in range(count):
        call, result = writer.exchange(1)
        made.append((call, result))
    return made


def tools(count: int = 8, *, seed: int = SEED) -> tuple[palaver.Tool, ...]:
    """Define ``count`` tools."""
    random = Random(seed)
    schema = {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "Where to look."},
            "query": {"type": "string"},
            "limit": {"type": "integer", "minimum": 1},
            "where": {"type": "object", "additionalProperties": True},
        },
        "required": ["path", "query"],
    }
    names = sorted({prose.tool_name(random) for _ in range(4 * count)})[:count]
    return tuple(palaver.Tool.of(name, prose.text(random, 120), schema) for name in names)


class _Writer:
    """Writes one conversation."""

    def __init__(self, random: Random, shape: Shape, *, reasoning: bool) -> None:
        self._random = random
        self._shape = shape
        self._reasoning = reasoning
        self._clock = _STARTED + random.randrange(10**10)

    def conversation(self, length: int) -> list[palaver.Message]:
        random = self._random
        messages: list[palaver.Message] = [self._system(), self._user()]
        while len(messages) < length:
            if length - len(messages) >= 4 and random.random() < 0.08:
                messages += self.exchange(3)
            elif random.random() < 0.78:
                messages += self.exchange(1)
            else:
                answer = Text(prose.text(random, random.randint(60, 400)))
                messages += (self._assistant((answer,), "stop"), self._user())
        return messages

    def _stamp(self) -> dict[str, Any]:
        random = self._random
        self._clock += random.randint(200, 20_000)
        tail = f"{random.getrandbits(72):018x}"
        head = f"{self._clock:012x}"
        return {
            "id": f"{head[:8]}-{head[8:]}-7{tail[:3]}-8{tail[3:6]}-{tail[6:]}",
            "sent_at": self._clock,
            "agent": random.choice(("triage", "triage", "research")),
        }

    def _system(self) -> palaver.Message:
        return palaver.system(prose.text(self._random, self._random.randint(250, 700)), **self._stamp())

    def _user(self) -> palaver.Message:
        random = self._random
        content: list[Any] = [Text(prose.text(random, random.randint(20, 200)))]
        # About one message in nine is the user's, so 17 % of them make 2 % of all.
        if random.random() < 0.17:
            content.append(self._image())
        return palaver.user(*content, mode="user", **self._stamp())

    def _image(self) -> Image:
        random = self._random
        if random.random() < 0.5:
            return Image(Url(f"https://images.example/{random.getrandbits(64):016x}.png"), "image/png")
        return Image(Inline(prose.token(random, random.randint(200, 1500))), "image/png")

    def _assistant(self, content: Sequence[Any], finish: str) -> palaver.Message:
        random = self._random
        if self._reasoning and random.random() < 0.4:
            thought = prose.text(random, random.randint(40, 240))
            proof = prose.token(random, random.randint(60, 120))
            content = (Reasoning(thought, signature=proof, wire=_WIRE), *content)
        usage = Usage(
            input=random.randint(1, 3000),
            cache_read=random.randint(0, 90_000),
            cache_write=random.randint(0, 3000),
            output=random.randint(20, 900),
        )
        return palaver.assistant(
            *content,
            model=_MODEL,
            usage=usage,
            finish_reason=finish,
            response_id=f"msg_{random.getrandbits(96):024x}",
            **self._stamp(),
        )

    def exchange(self, calls: int) -> list[palaver.Message]:
        """Write an assistant with calls, and their results."""
        random = self._random
        content: list[Any] = []
        if random.random() < 0.5:
            content.append(Text(prose.text(random, random.randint(20, 120))))
        made = [
            ToolCall(
                f"toolu_{random.getrandbits(96):024x}",
                prose.tool_name(random),
                json.dumps(prose.arguments(random), ensure_ascii=False),
            )
            for _ in range(calls)
        ]
        return [self._assistant((*content, *made), "tool_calls"), *map(self._result, made)]

    def _result(self, call: ToolCall) -> palaver.Message:
        random = self._random
        size = int(200 * 100 ** (random.random() ** self._shape.skew))
        kind = random.random()
        output: Any
        if kind < 0.35:
            output = prose.code(random, size)
        elif kind < 0.6:
            output = prose.text(random, size)
        elif kind < 0.85:
            output = json.dumps(prose.rows(random, size), ensure_ascii=False)
        else:
            output = Json.of(prose.rows(random, size))
        return palaver.tool(
            output,
            tool_call_id=call.id,
            tool_name=call.name,
            is_error=random.random() < 0.03,
            **self._stamp(),
        )


def unstamped(messages: Sequence[palaver.Message]) -> list[palaver.Message]:
    """Take away the ids and times that joining a thread gives."""
    return [structs.replace(message, id=None, sent_at=None) for message in messages]


# -- the same conversation in other libraries ------------------------------------------------------


def to_pydantic_ai(messages: Sequence[palaver.Message]) -> list[Any]:
    """Give pydantic-ai's ``ModelMessage`` objects: neighbouring inputs make one request."""
    from pydantic_ai import messages as pai
    from pydantic_ai.usage import RequestUsage

    made: list[Any] = []
    for message in messages:
        when = datetime.fromtimestamp(message.sent_at / 1000, UTC)
        match message:
            case palaver.AssistantMessage(usage=usage):
                made.append(
                    pai.ModelResponse(
                        [_pydantic_ai_part(part) for part in message.content],
                        usage=RequestUsage(
                            input_tokens=usage.input + usage.cache_read + usage.cache_write,
                            cache_read_tokens=usage.cache_read,
                            cache_write_tokens=usage.cache_write,
                            output_tokens=usage.output,
                        ),
                        model_name=message.model,
                        timestamp=when,
                        provider_name="anthropic",
                        provider_response_id=message.response_id,
                        finish_reason="tool_call" if message.finish_reason == "tool_calls" else "stop",
                    )
                )
                continue
            case palaver.SystemMessage():
                part: Any = pai.SystemPromptPart(message.text, timestamp=when)
            case palaver.UserMessage():
                content = [_pydantic_ai_user(part) for part in message.content]
                part = pai.UserPromptPart(content if len(content) > 1 else content[0], timestamp=when)
            case palaver.ToolMessage():
                part = pai.ToolReturnPart(
                    message.tool_name,
                    _output(message),
                    message.tool_call_id,
                    timestamp=when,
                    outcome="failed" if message.is_error else "success",
                )
        if made and isinstance(made[-1], pai.ModelRequest):
            made[-1] = pai.ModelRequest([*made[-1].parts, part])
        else:
            made.append(pai.ModelRequest([part]))
    return made


def _pydantic_ai_part(part: Any) -> Any:
    from pydantic_ai import messages as pai

    match part:
        case Reasoning():
            return pai.ThinkingPart(part.text, signature=part.signature, provider_name="anthropic")
        case ToolCall():
            # What its Anthropic model holds: `args=cast(dict[str, Any], item.input)`.
            return pai.ToolCallPart(part.name, json.loads(part.arguments_json), part.id)
        case _:
            return pai.TextPart(part.text)


def _pydantic_ai_user(part: Any) -> Any:
    from pydantic_ai import messages as pai

    match part:
        case Image(source=Inline(data=data)):
            return pai.BinaryContent(b64decode(data), media_type=part.media_type)
        case Image(source=Url(url=url)):
            return pai.ImageUrl(url)
        case _:
            return part.text


def _output(message: palaver.ToolMessage) -> Any:
    part = message.content[0]
    return json.loads(bytes(part.value_json)) if isinstance(part, Json) else part.text


def _output_text(message: palaver.ToolMessage) -> str:
    part = message.content[0]
    return bytes(part.value_json).decode() if isinstance(part, Json) else part.text


def to_langchain(messages: Sequence[palaver.Message]) -> list[Any]:
    """Give langchain message objects."""
    from langchain_core import messages as lc

    made: list[Any] = []
    for message in messages:
        match message:
            case palaver.SystemMessage():
                made.append(lc.SystemMessage(message.text, id=message.id))
            case palaver.UserMessage():
                content = [_openai_content(part) for part in message.content]
                made.append(lc.HumanMessage(content if len(content) > 1 else message.text, id=message.id))
            case palaver.AssistantMessage(usage=usage):
                made.append(
                    lc.AIMessage(
                        _langchain_content(message),
                        id=message.id,
                        tool_calls=[
                            {"name": call.name, "args": json.loads(call.arguments_json), "id": call.id}
                            for call in message.tool_calls
                        ],
                        usage_metadata={
                            "input_tokens": usage.input + usage.cache_read + usage.cache_write,
                            "output_tokens": usage.output,
                            "total_tokens": usage.total,
                            "input_token_details": {
                                "cache_read": usage.cache_read,
                                "cache_creation": usage.cache_write,
                            },
                        },
                        response_metadata={
                            "id": message.response_id,
                            "model_name": message.model,
                            "finish_reason": message.finish_reason,
                        },
                    )
                )
            case palaver.ToolMessage():
                made.append(
                    lc.ToolMessage(
                        _output_text(message),
                        id=message.id,
                        name=message.tool_name,
                        tool_call_id=message.tool_call_id,
                        status="error" if message.is_error else "success",
                    )
                )
    return made


def _langchain_content(message: palaver.AssistantMessage) -> str | list[Any]:
    if message.reasoning is None:
        return message.text
    content: list[Any] = []
    for part in message.content:
        match part:
            case Reasoning():
                content.append({"type": "thinking", "thinking": part.text, "signature": part.signature})
            case Text():
                content.append({"type": "text", "text": part.text})
            case _:
                pass
    return content


def to_openai_chat(messages: Sequence[palaver.Message]) -> list[dict[str, Any]]:
    """Give the ``messages`` of an OpenAI chat request as plain dicts; reasoning has no place there."""
    return [_openai_message(message) for message in messages]


def _openai_message(message: palaver.Message) -> dict[str, Any]:
    match message:
        case palaver.AssistantMessage(tool_calls=()):
            return {"role": "assistant", "content": message.text}
        case palaver.AssistantMessage():
            calls = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments_json}}
                for call in message.tool_calls
            ]
            return {"role": "assistant", "content": message.text or None, "tool_calls": calls}
        case palaver.ToolMessage():
            return {"role": "tool", "tool_call_id": message.tool_call_id, "content": _output_text(message)}
        case palaver.UserMessage() if message.images:
            return {"role": "user", "content": [_openai_content(part) for part in message.content]}
        case _:
            return {"role": message.role, "content": message.text}


def _openai_content(part: Any) -> dict[str, Any]:
    if isinstance(part, Image):
        url = part.source.url if isinstance(part.source, Url) else part.data_uri
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "text", "text": part.text}


def to_openai_items(message: palaver.Message) -> list[dict[str, Any]]:
    """Give one message as items of the Responses API, as openai-agents keeps them."""
    match message:
        case palaver.ToolMessage():
            return [
                {"type": "function_call_output", "call_id": message.tool_call_id, "output": _output_text(message)},
            ]
        case palaver.AssistantMessage():
            return [_openai_item(message, part) for part in message.content]
        case palaver.UserMessage() if message.images:
            return [{"role": "user", "content": [_openai_input(part) for part in message.content]}]
        case _:
            return [{"role": message.role, "content": message.text}]


def _openai_item(message: palaver.AssistantMessage, part: Any) -> dict[str, Any]:
    match part:
        case Reasoning():
            summary = [{"type": "summary_text", "text": part.text}]
            return {"type": "reasoning", "id": message.id, "summary": summary, "encrypted_content": part.signature}
        case ToolCall():
            call = {"call_id": part.id, "name": part.name, "arguments": part.arguments_json}
            return {"type": "function_call", "id": message.id, "status": "completed", **call}
        case _:
            content = [{"type": "output_text", "text": part.text, "annotations": []}]
            whose = {"id": message.id, "role": "assistant", "status": "completed"}
            return {"type": "message", **whose, "content": content}


def _openai_input(part: Any) -> dict[str, Any]:
    if isinstance(part, Image):
        url = part.source.url if isinstance(part.source, Url) else part.data_uri
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    return {"type": "input_text", "text": part.text}


def to_openai_tools(definitions: Sequence[palaver.Tool]) -> list[dict[str, Any]]:
    """Give tool definitions as plain dicts of an OpenAI chat request."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": json.loads(bytes(tool.parameters_json)),
            },
        }
        for tool in definitions
    ]
