"""Rules of `cohere_chat`: `POST /v2/chat` (docs/spec/wires.md#7).

- Messages are system, user, assistant and tool; unknown fields of the request and of its messages
  are refused.
- Beside calls an assistant says nothing: its text is `tool_plan`. An assistant has content or
  calls.
- Results follow their calls directly, one for each id. Arguments are any text, `""` and `"null"`
  included.
- `tool_choice` is `REQUIRED` or `NONE`; there is no `auto` and no name.

What recorded traffic says: nine exchanges, none of which contradicts docs/spec/wires.md. Assistant thinking
stands beside text; that is not text beside calls.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Iterator

from palaver.testing.rules.order import Finding, Placed, objects, pair_chat, rule
from palaver.testing.rules.shapes import (
    ARRAY,
    BOOLEAN,
    INTEGER,
    NUMBER,
    OBJECT,
    STRING,
    anything,
    array,
    by_kind,
    cited,
    integer,
    record,
    tagged,
    word,
)
from palaver.testing.rules.violation import Body, Fields, Rule, Violation, check

_SOURCE = "docs/spec/wires.md#7"

_TEXT = record(_SOURCE, {"text": STRING})
_PARTS = {
    "text": _TEXT,
    "thinking": record(_SOURCE, {"thinking": STRING}),
    "image_url": record(_SOURCE, {"image_url": record(_SOURCE, {"url": STRING}, {"detail": STRING})}),
    "document": record(_SOURCE, {"document": record(_SOURCE, {"data": by_kind(string=STRING, object=OBJECT)})}),
}
_CONTENT = by_kind(string=STRING, array=array(tagged(_SOURCE, _PARTS)))
_CALL = record(
    _SOURCE,
    {
        "id": STRING,
        "type": word("function"),
        "function": record(_SOURCE, {"name": STRING, "arguments": STRING}),
    },
)
_ROLE = {"role": STRING}
_MESSAGES = {
    "system": record(_SOURCE, {**_ROLE, "content": _CONTENT}, closed=True),
    "user": record(_SOURCE, {**_ROLE, "content": _CONTENT}, closed=True),
    "assistant": record(
        _SOURCE,
        _ROLE,
        {
            "content": _CONTENT,
            "tool_calls": array(_CALL),
            "tool_plan": STRING,
            "citations": array(OBJECT),
        },
        closed=True,
    ),
    "tool": record(_SOURCE, {**_ROLE, "content": _CONTENT, "tool_call_id": STRING}, closed=True),
}
_TOOL = record(
    _SOURCE,
    {
        "type": word("function"),
        "function": record(_SOURCE, {"name": STRING, "parameters": OBJECT}, {"description": STRING}),
    },
)
REQUEST = record(
    _SOURCE,
    {
        "model": STRING,
        "messages": array(tagged(_SOURCE, _MESSAGES, key="role", closed=True), least=1),
    },
    {
        "stream": BOOLEAN,
        "tools": array(_TOOL),
        "strict_tools": BOOLEAN,
        "tool_choice": cited(_SOURCE, word("REQUIRED", "NONE")),
        "documents": ARRAY,
        "citation_options": OBJECT,
        "response_format": OBJECT,
        "safety_mode": STRING,
        "thinking": record(_SOURCE, {"type": STRING}, {"token_budget": INTEGER}),
        "max_tokens": integer(1),
        "stop_sequences": array(STRING),
        "temperature": NUMBER,
        "seed": INTEGER,
        "frequency_penalty": NUMBER,
        "presence_penalty": NUMBER,
        "k": INTEGER,
        "p": NUMBER,
        "logprobs": BOOLEAN,
        "priority": INTEGER,
        "raw_prompting": anything,
    },
    closed=True,
)
_TOKENS = record(_SOURCE, optional={"input_tokens": NUMBER, "output_tokens": NUMBER})
_CITATION = record(
    _SOURCE,
    optional={
        "start": INTEGER,
        "end": INTEGER,
        "text": STRING,
        "type": STRING,
        "content_index": INTEGER,
        "sources": array(tagged(_SOURCE, {"tool": record(_SOURCE), "document": record(_SOURCE)})),
    },
)
RESPONSE = record(
    _SOURCE,
    {
        "id": STRING,
        "finish_reason": STRING,
        "message": record(
            _SOURCE,
            {"role": word("assistant")},
            {
                "content": array(tagged(_SOURCE, _PARTS)),
                "tool_calls": array(_CALL),
                "tool_plan": STRING,
                "citations": array(_CITATION),
            },
        ),
    },
    {
        "usage": record(
            "docs/spec/wires.md#1.2",
            optional={"billed_units": OBJECT, "tokens": _TOKENS, "cached_tokens": NUMBER},
        )
    },
)


def _messages(body: Fields, role: str = "") -> list[Placed]:
    found = objects(body.get("messages"), "messages")
    return [(where, m) for where, m in found if not role or m.get("role") == role]


@rule("docs/spec/wires.md#7")
def no_text_beside_calls(body: Fields) -> Iterator[Finding]:
    """`text content is not allowed when tool_calls are provided` (vercel/ai#5794)."""
    for where, message in _messages(body, "assistant"):
        content = message.get("content")
        texts = [part for _, part in objects(content, "") if part.get("type") == "text"]
        if message.get("tool_calls") and (texts or (isinstance(content, str) and content)):
            yield f"{where}.content", "text beside tool_calls"


@rule("docs/spec/wires.md#7")
def assistants_say_something(body: Fields) -> Iterator[Finding]:
    """An assistant message with neither content nor calls is refused."""
    for where, message in _messages(body, "assistant"):
        if not message.get("content") and not message.get("tool_calls"):
            yield where, "neither content nor tool_calls"


@rule("docs/spec/wires.md#7")
def calls_and_results_pair(body: Fields) -> Iterator[Finding]:
    """Results follow their calls."""
    pairing = pair_chat(_messages(body))
    yield from pairing.unanswered
    yield from pairing.orphans


_PLACES = {
    "text": {"system", "user", "assistant", "tool"},
    "image_url": {"user"},
    "thinking": {"assistant"},
    "document": {"tool"},
}


@rule("docs/spec/wires.md#7")
def parts_stand_where_they_may(body: Fields) -> Iterator[Finding]:
    """Images belong to users, thinking to assistants, documents to tools."""
    for where, message in _messages(body):
        role = str(message.get("role"))
        for place, part in objects(message.get("content"), f"{where}.content"):
            if role not in _PLACES.get(str(part.get("type")), {role}):
                yield place, f"{part.get('type')} part in a {role} message"


@rule("docs/spec/wires.md#7")
def required_choice_needs_tools(body: Fields) -> Iterator[Finding]:
    """`REQUIRED` asks for one of the tools."""
    if body.get("tool_choice") == "REQUIRED" and not body.get("tools"):
        yield "tool_choice", "there are no tools"


RULES: tuple[Rule, ...] = (
    no_text_beside_calls,
    assistants_say_something,
    calls_and_results_pair,
    parts_stand_where_they_may,
    required_choice_needs_tools,
)


def check_request(body: Body, variant: str | None = None) -> list[Violation]:
    """Return what the provider would refuse in a request.

    Wires.md 7; agno-agi/agno#3503 for unknown fields.

    Stability: experimental.
    """
    del variant
    return check(body, REQUEST, RULES)


def check_response(body: Body) -> list[Violation]:
    """Return where a reply is not a v2 chat response (docs/spec/wires.md#7).

    Stability: experimental.
    """
    return check(body, RESPONSE, ())
