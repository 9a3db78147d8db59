"""How much of a request is the beginning of the next one, and what a provider's cache makes of it.

Rules:

- A conversation is asked about wherever an answer follows; ``bodies`` gives the bodies of these requests as one session
  sends them, without the brackets that close the list.
- ``shared`` counts bytes: of each body, those with which the next one begins. 1.0 is the most there can be.
- ``price`` is a model of a cache and no measurement of one: a request reads the longest beginning that an earlier one
  kept, if it ends at a mark or at most ``LOOKBACK`` blocks before one; up to its last mark the rest is written. Tokens
  are estimates. Prices are those that providers with marks publish: a tenth to read, a quarter more to write
  (https://platform.claude.com/docs/en/build-with-claude/prompt-caching).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from palaver import wires
from palaver.core.messages import AssistantMessage, DeveloperMessage, Message, SystemMessage
from palaver.core.request import Settings
from palaver.models.catalogue import Capabilities
from palaver.models.encoded_prompt import PromptEncoder
from palaver.models.endpoint import Endpoint
from palaver.models.language_model import Prompt
from palaver.threads.thread import ListPrefix
from palaver.tokens import estimate
from palaver.wires._engine.cache_marks import CachePlan

MODELS = {
    "bedrock_converse": "us.anthropic.claude-sonnet-4-5-v1:0",
    "openai_chat:openrouter": "anthropic/claude-sonnet-4.5",
}
"""Models that take marks, where not all of a wire do."""
LOOKBACK = 20
READ, WRITE = 0.1, 1.25


class Shared(NamedTuple):
    """Bytes of all bodies but the last, those with which the next one begins; and bodies that are whole in the next."""

    sent: int
    shared: int
    bodies: int
    whole: int

    @property
    def share(self) -> float:
        """The part that is shared."""
        return self.shared / self.sent if self.sent else 1.0


def ends(messages: Sequence[Message]) -> list[int]:
    """How many messages each request holds: those before an answer, and all, where the last is no answer."""
    found = [place for place in range(1, len(messages)) if _answered(messages, place)]
    return found if not messages or isinstance(messages[-1], AssistantMessage) else [*found, len(messages)]


def _answered(messages: Sequence[Message], place: int) -> bool:
    return isinstance(messages[place], AssistantMessage) and not isinstance(messages[place - 1], AssistantMessage)


def bodies(name: str, messages: Sequence[Message], plan: CachePlan | None = None, **fields: Any) -> Iterator[bytes]:
    """The bodies of a conversation's requests on one wire, or a variant of it; ``fields`` are those of ``Prompt``."""
    system = tuple([each for each in messages if isinstance(each, SystemMessage | DeveloperMessage)])
    said = [each for each in messages if not isinstance(each, SystemMessage | DeveloperMessage)]
    endpoint = Endpoint(provider_name="none", wire=name, url="")
    model = MODELS.get(name, "a-model")
    wire = wires.get(name)
    written = PromptEncoder(wire, endpoint, id=model, settings=Settings(max_tokens=1000), capabilities=Capabilities())
    for end in ends(said):
        prompt = Prompt(messages=ListPrefix(said, end), system=system, cache=plan, **fields)
        yield b"".join(written.encode(prompt, stream=True).chunks).removesuffix(b"]}")


def common(one: bytes, other: bytes) -> int:
    """How many bytes two bodies have in common at their beginning."""
    least, most = 0, min(len(one), len(other))
    while least < most:
        middle = (least + most + 1) // 2
        if one[least:middle] == other[least:middle]:
            least = middle
        else:
            most = middle - 1
    return least


def shared(found: Iterable[bytes]) -> Shared:
    """Count what consecutive bodies share."""
    sent = alike = count = whole = 0
    before: bytes | None = None
    for body in found:
        if before is not None:
            both = common(before, body)
            sent, alike, count, whole = sent + len(before), alike + both, count + 1, whole + (both == len(before))
        before = body
    return Shared(sent, alike, count, whole)


def price(messages: Sequence[Message], marks: Iterable[Sequence[int]], sizes: Sequence[int]) -> float:
    """What a cache leaves to pay for, as a part of what all requests weigh. ``sizes`` are those of ``ends``."""
    tokens, blocks = [0], [0]
    for message in messages:
        tokens.append(tokens[-1] + estimate(message))
        blocks.append(blocks[-1] + len(message.content))
    kept = {0}
    paid = total = 0.0
    for size, places in zip(sizes, marks, strict=True):
        at = [place + 1 for place in places]
        read = max(end for end in kept if end == 0 or any(_near(end, mark, blocks) for mark in at))
        last = max([*at, read])
        paid += READ * tokens[read] + WRITE * (tokens[last] - tokens[read]) + tokens[size] - tokens[last]
        total += tokens[size]
        kept.update(at)
    return paid / total


def _near(end: int, mark: int, blocks: Sequence[int]) -> bool:
    return end <= mark and (end == mark or blocks[mark] - blocks[end] < LOOKBACK)
