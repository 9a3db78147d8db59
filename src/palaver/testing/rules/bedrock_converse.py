"""Rules of `bedrock_converse`: `POST /model/{id}/converse` and `/converse-stream` (docs/spec/wires.md#6).

- The first message is user and turns alternate (the service merges runs only on some families:
  merge first).
- All calls of a turn are answered in the next message, role user, and no more than the calls. A
  call that the service ran (`type: server_tool_use`) is answered in its own message.
- Tool blocks in the history need `toolConfig`. There is no tool choice `none`.
- No blank text, no empty content. A document stands beside text; document names are unique and of
  plain characters.
- Arguments and JSON results are objects; a result with `status: error` has content.
- At most four cache points, none first in a message.

Variants are model families (`anthropic`, `amazon`, `meta`, `mistral`, `qwen`, `writer`, …). Without
one the family is unknown: what some families take (a leading assistant) is refused, what some
refuse (S3, video) is taken.

- anthropic, qwen: a leading assistant message is taken.
- anthropic: no S3 images, no S3 documents in a message, no video, reasoning text is signed.
- amazon: no S3 video and no S3 document inside a tool result.
- writer: no `status` on results.

What recorded traffic says
- A cache point directly before a trailing document is accepted (docs/spec/wires.md#6.2.7 forbids it): no
  rule.
- Inline documents beside a tool result are accepted by Claude (docs/spec/wires.md#6.2.6 forbids them): no
  rule.
- Claude accepts an S3 document inside a tool result (and does not see it); beside one it refuses
  it.
- Nova refuses an S3 **video** inside a result like an S3 document, with the same words; it accepts
  an S3 image.
- `toolUse.type: tool_use` comes in replies although the service model lists `server_tool_use`
  alone: any string is allowed.

Against docs/spec/wires.md by measurement of others: blank text and `[]` inside a tool result are accepted (a
comment in NousResearch/hermes-agent#55092), so 6.2.3 is checked for message content and system
only. More results than calls are refused (dify-official-plugins#765, pydantic/pydantic-ai#2327),
duplicate document names too (maximhq/bifrost#7003).

Stability: experimental.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from palaver.testing.rules.bedrock_shapes import REQUEST, RESPONSE
from palaver.testing.rules.order import (
    Finding,
    Placed,
    blank,
    inside,
    objects,
    rule,
    string,
    with_next,
)
from palaver.testing.rules.violation import Body, Fields, Rule, Violation, check

MOST_CACHE_POINTS = 4


def _messages(body: Fields) -> list[Placed]:
    return [(where, m) for where, m in objects(body.get("messages"), "messages") if m.get("role") != "system"]


def _blocks(message: Placed, key: str) -> list[Placed]:
    where, fields = message
    found: list[Placed] = []
    for place, block in objects(fields.get("content"), f"{where}.content"):
        value = block.get(key)
        if isinstance(value, dict):
            found.append((f"{place}.{key}", value))
    return found


def _everywhere(body: Fields, key: str) -> list[Placed]:
    """Return the blocks of one kind in messages and inside tool results."""
    found: list[Placed] = []
    for message in _messages(body):
        found += _blocks(message, key)
        for result in _blocks(message, "toolResult"):
            found += _blocks(result, key)
    return found


def _results(body: Fields, key: str) -> list[Placed]:
    return [
        block
        for message in _messages(body)
        for result in _blocks(message, "toolResult")
        for block in _blocks(result, key)
    ]


def _client_calls(message: Placed) -> dict[str, str]:
    return {
        call_id: where
        for where, call in _blocks(message, "toolUse")
        if call.get("type") != "server_tool_use" and (call_id := string(call, "toolUseId")) is not None
    }


@rule("docs/spec/wires.md#6.2.1")
def turns_alternate(body: Fields) -> Iterator[Finding]:
    """`A conversation must alternate between user and assistant roles`.

    Seen in microsoft/semantic-kernel#10281.
    """
    for (_, message), after in with_next(_messages(body)):
        if after and after[1].get("role") == message.get("role"):
            yield f"{after[0]}.role", f"two {message.get('role')} messages in a row"


@rule("docs/spec/wires.md#6.2.1")
def first_message_is_user(body: Fields) -> Iterator[Finding]:
    """`A conversation must start with a user message`."""
    for where, message in _messages(body)[:1]:
        if message.get("role") != "user":
            yield f"{where}.role", "the first message is not user"


@rule("docs/spec/wires.md#6.2.2")
def calls_are_answered_next(body: Fields) -> Iterator[Finding]:
    """`Expected toolResult blocks at messages.N.content` (zeroclaw-labs/zeroclaw#1476)."""
    for message, after in with_next(_messages(body)):
        results: set[str | None] = set()
        if after is not None and after[1].get("role") == "user":
            results = {string(result, "toolUseId") for _, result in _blocks(after, "toolResult")}
        for call_id, where in _client_calls(message).items():
            if call_id not in results:
                yield where, f"toolUse {call_id!r} has no toolResult in the next message"


@rule("docs/spec/wires.md#6.2.2")
def results_have_calls(body: Fields) -> Iterator[Finding]:
    """More results than calls are refused (langgenius/dify-official-plugins#765)."""
    before: Placed | None = None
    for message in _messages(body):
        user = message[1].get("role") == "user"
        open_calls = _client_calls(before) if user and before else {}
        if not user:
            ids = [string(call, "toolUseId") for _, call in _blocks(message, "toolUse")]
            open_calls = {call_id: "" for call_id in ids if call_id is not None}
        for where, result in _blocks(message, "toolResult"):
            call_id = string(result, "toolUseId")
            if call_id is not None and open_calls.pop(call_id, None) is None:
                yield where, f"toolResult {call_id!r} answers no open toolUse"
        before = message


@rule("docs/spec/wires.md#6.1")
def tool_history_needs_tools(body: Fields) -> Iterator[Finding]:
    """`The toolConfig field must be defined` (langgenius/dify#17545, vxcontrol/pentagi#196)."""
    if body.get("toolConfig") is None:
        for message in _messages(body):
            for where, _block in _blocks(message, "toolUse") + _blocks(message, "toolResult"):
                yield where, "toolConfig is not defined"


@rule("docs/spec/wires.md#6.2.3")
def text_is_not_blank(body: Fields) -> Iterator[Finding]:
    """`The text field in the ContentBlock object … is blank` (aws-samples/bedrock-engineer#8)."""
    placed = objects(body.get("system"), "system")
    for where, message in _messages(body):
        placed += objects(message.get("content"), f"{where}.content")
    for where, block in placed:
        text = string(block, "text")
        if text is not None and blank(text):
            yield f"{where}.text", "blank"


@rule("docs/spec/wires.md#6.2.4")
def documents_stand_beside_text(body: Fields) -> Iterator[Finding]:
    """A document needs a text block in the same message."""
    for message in _messages(body):
        content = objects(message[1].get("content"), "")
        if not any("text" in block for _, block in content):
            for where, _document in _blocks(message, "document"):
                yield where, "no text block in the message"


@rule("docs/spec/wires.md#6.2.4")
def document_names_are_unique(body: Fields) -> Iterator[Finding]:
    """`Messages can't contain duplicate document names` (maximhq/bifrost#7003).

    Results count too.
    """
    seen: set[str] = set()
    for where, document in _everywhere(body, "document"):
        name = string(document, "name")
        if name is None:
            continue
        if name in seen:
            yield f"{where}.name", f"the name {name!r} is used twice"
        if not re.fullmatch(r"([a-zA-Z0-9()\[\]-]|\s(?!\s))*", name):
            yield f"{where}.name", "allowed are letters, digits, single spaces and -()[]"
        seen.add(name)


@rule("docs/spec/wires.md#6.2.5")
def error_results_have_content(body: Fields) -> Iterator[Finding]:
    """`status: error` needs content.

    Seen in aws-samples/sample-multi-agent-orchestration-chat-on-agentcore#15.
    """
    for message in _messages(body):
        for where, result in _blocks(message, "toolResult"):
            if result.get("status") == "error" and result.get("content") == []:
                yield f"{where}.content", "an error without content"


@rule("docs/spec/wires.md#6.2.7")
def few_cache_points(body: Fields) -> Iterator[Finding]:
    """At most four, in system, tools and messages together; none first in a message."""
    placed = objects(body.get("system"), "system") + objects(
        inside(body, "toolConfig").get("tools"), "toolConfig.tools"
    )
    for where, message in _messages(body):
        content = objects(message.get("content"), f"{where}.content")
        if content and "cachePoint" in content[0][1]:
            yield content[0][0], "a cache point first in a message"
        placed += content
    marks = [where for where, block in placed if "cachePoint" in block]
    if len(marks) > MOST_CACHE_POINTS:
        yield marks[MOST_CACHE_POINTS], f"{len(marks)} cache points"


@rule("docs/spec/wires.md#6.2.8")
def reasoning_is_signed(body: Fields) -> Iterator[Finding]:
    """Unsigned reasoning is not sent back to Anthropic models."""
    for where, block in _everywhere(body, "reasoningContent"):
        if "reasoningText" in block and not string(inside(block, "reasoningText"), "signature"):
            yield where, "reasoning text without signature"


@rule("docs/spec/wires.md#6.2.9")
def no_s3_sources(body: Fields) -> Iterator[Finding]:
    """`This model doesn't support the s3Uri field` (recorded, for images and documents)."""
    documents = [block for message in _messages(body) for block in _blocks(message, "document")]
    for where, block in _everywhere(body, "image") + documents:
        if "s3Location" in inside(block, "source"):
            yield f"{where}.source", "S3 sources are refused by this family"


@rule("docs/spec/wires.md#6.2.9")
def no_video(body: Fields) -> Iterator[Finding]:
    """`This model doesn't support the video content block` (recorded)."""
    for where, _block in _everywhere(body, "video"):
        yield where, "video is refused by this family"


@rule("docs/spec/wires.md#6.2.9")
def plain_results(body: Fields) -> Iterator[Finding]:
    """`extraneous key [toolResult] is not permitted` (recorded, for documents and videos)."""
    for kind in ("document", "video"):
        for where, block in _results(body, kind):
            if "s3Location" in inside(block, "source"):
                yield where, f"an S3 {kind} inside a tool result is refused by this family"


@rule("docs/spec/wires.md#6.2.9")
def no_status(body: Fields) -> Iterator[Finding]:
    """Palmyra refuses `status`."""
    for message in _messages(body):
        for where, result in _blocks(message, "toolResult"):
            if "status" in result:
                yield f"{where}.status", "status is refused by this family"


@rule("docs/spec/wires.md#1.2")
def usage_adds_up(body: Fields) -> Iterator[Finding]:
    """Total is input, output, read and written tokens together."""
    usage = inside(body, "usage")
    keys = ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheWriteInputTokens")
    parts = [value for key in keys if isinstance(value := usage.get(key), int)]
    total = usage.get("totalTokens")
    if isinstance(total, int) and sum(parts) != total:
        yield "usage.totalTokens", f"{total} is not the sum {sum(parts)}"


SHARED: tuple[Rule, ...] = (
    turns_alternate,
    calls_are_answered_next,
    results_have_calls,
    tool_history_needs_tools,
    text_is_not_blank,
    documents_stand_beside_text,
    document_names_are_unique,
    error_results_have_content,
    few_cache_points,
)
_OTHERS: tuple[Rule, ...] = (first_message_is_user,)
VARIANTS: dict[str, tuple[Rule, ...]] = {
    "anthropic": (reasoning_is_signed, no_s3_sources, no_video),
    "qwen": (),
    "amazon": (*_OTHERS, plain_results),
    "writer": (*_OTHERS, no_status),
}
RESPONSE_RULES: tuple[Rule, ...] = (usage_adds_up,)


def check_request(body: Body, variant: str | None = None) -> list[Violation]:
    """Return what the service would refuse in a request (docs/spec/wires.md#6.1, #6.2).

    Stability: experimental.
    """
    return check(body, REQUEST, SHARED + VARIANTS.get(variant or "", _OTHERS))


def check_response(body: Body) -> list[Violation]:
    """Return where a reply is not a Converse response (docs/spec/wires.md#6.3).

    Stability: experimental.
    """
    return check(body, RESPONSE, RESPONSE_RULES)
