"""A provider in the process: it plays a script over OpenAI's chat completions, and keeps every body that it was sent.

Rules:

- It is the transport of a client's own HTTP library, so a body is what that client really sends. Nobody waits.
- A body that names tools is a turn of the agent: the answer is the next call, and the last answer ends the run. One
  without tools asks for a summary, and gets ``SUMMARY``, which repeats neither the task nor the fact.
- Usage is counted with the tokeniser of OpenAI's models (``tiktoken``, from the file that litellm brings): messages and
  tools as JSON. It is nobody's estimate.
- ``look`` gives texts of 0.5 to 8 KB, evenly spread, of a seed; the same to everybody.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from functools import cache
from importlib import util
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import prose
from conversations import SEED
from measure import Skipped
from runners import FOUND, arguments, call_id, following

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

TASK = "Look at every place there is, in order, and tell me at the end which of them needs paint most. Skip none."
FACT = "Mind that the key is under the third stone: code 7319-QX-44. You will need it later."
GO = "Go on until you are through."
YES = "Understood."
SUMMARY = "## Done so far\nPlaces were looked at in order; what they hold was noted. " + "Nothing stood out yet. " * 40
MODEL = "gpt-4o"
_SMALLEST, _LARGEST = 500, 8_000


@cache
def result(number: int) -> str:
    """What ``look`` finds."""
    random = Random(SEED + number)
    return f"place {number:06}\n{prose.text(random, random.randint(_SMALLEST, _LARGEST))}"


def tool() -> Callable[..., Awaitable[str]]:
    """The tool, as a function that every contender can take."""

    async def look(place: str) -> str:
        """Look at a place."""
        return result(int(place.removeprefix("place ")))

    return look


@cache
def _encoding() -> Any:
    place_tokenisers()
    import tiktoken

    return tiktoken.get_encoding("o200k_base")


def place_tokenisers() -> None:
    """Have tiktoken read the files that litellm brings, and fetch nothing. Raises ``Skipped`` without litellm."""
    found = util.find_spec("litellm")
    if found is None or not found.submodule_search_locations:
        raise Skipped("the files of the tokeniser come with litellm, which is not installed")
    folder = Path(found.submodule_search_locations[0]) / "litellm_core_utils" / "tokenizers"
    os.environ["TIKTOKEN_CACHE_DIR"] = str(folder)


@cache
def _tokens(text: str) -> int:
    return len(_encoding().encode_ordinary(text))


@dataclass
class Provider:
    """Answers, and remembers. ``bodies`` of turns, and ``summaries``: bodies that asked for one."""

    turns: int
    bodies: list[bytes] = field(default_factory=list[bytes])
    summaries: list[bytes] = field(default_factory=list[bytes])
    tokens: int = 0
    largest: int = 0

    def answer(self, body: bytes) -> dict[str, Any]:
        """The response to a request."""
        asked = json.loads(body)
        turn = bool(asked.get("tools"))
        (self.bodies if turn else self.summaries).append(body)
        messages = asked["messages"]
        weight = sum(map(_tokens, pieces(asked)))
        self.tokens += weight
        self.largest = max(self.largest, weight)
        if not turn:
            return _response({"content": SUMMARY}, "stop", weight)
        last = next((each["tool_call_id"] for each in reversed(messages) if each["role"] == "tool"), None)
        number = following(last)
        if number >= self.turns:
            return _response({"content": FOUND}, "stop", weight)
        function = {"name": "look", "arguments": arguments(number)}
        call = {"id": call_id(number), "type": "function", "function": function}
        return _response({"content": None, "tool_calls": [call]}, "tool_calls", weight)

    def transport(self, library: Any) -> Any:
        """It, as a transport of ``httpx`` or ``httpx2``."""

        async def handle(request: Any) -> Any:
            made = self.answer(await request.aread())
            return library.Response(200, json=made, request=request)

        return library.MockTransport(handle)

    def client(self) -> Any:
        """OpenAI's client, with it as its transport."""
        import httpx2
        import openai

        http = httpx2.AsyncClient(transport=self.transport(httpx2))
        return openai.AsyncOpenAI(api_key="none", max_retries=0, http_client=http)


def pieces(body: dict[str, Any]) -> list[str]:
    """What a model reads, in its order: the tools, and each message."""
    return [json.dumps(each, ensure_ascii=False) for each in (body.get("tools") or [], *body["messages"])]


def _response(message: dict[str, Any], reason: str, prompt: int) -> dict[str, Any]:
    output = _tokens(json.dumps(message, ensure_ascii=False))
    usage = {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_735_689_600,
        "model": MODEL,
        "choices": [choice],
        "usage": usage,
    }
