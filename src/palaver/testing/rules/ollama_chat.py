"""Rules of `ollama_chat`: `POST /api/chat` (docs/spec/wires.md#8).

- `content` is one string; images are bare base64 (no data URL); arguments are an object in both
  directions.
- A result belongs to a call of the turn before it: by `tool_call_id`, else by `tool_name`, else by
  order. A turn's calls have one result each.
- There is no `tool_choice`: sending one has hung servers.
- `format` is `"json"` or a schema, `think` a boolean or a level.

There is no recorded traffic; the shapes follow `api/types.go` of ollama/ollama. `null` content is
read as absent there, so it is allowed. The server itself does not check pairs: a template renders
whatever comes; an unpaired history is a broken prompt rather than a refusal.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Iterator

from palaver.testing.rules.order import Finding, Placed, inside, objects, rule, string
from palaver.testing.rules.shapes import (
    BOOLEAN,
    INTEGER,
    NUMBER,
    OBJECT,
    STRING,
    array,
    base64_text,
    by_kind,
    integer,
    record,
    tagged,
    word,
)
from palaver.testing.rules.violation import Body, Fields, Rule, Violation, check

_SOURCE = "docs/spec/wires.md#8"

_CALL = record(
    _SOURCE,
    {"function": record(_SOURCE, {"name": STRING, "arguments": OBJECT}, {"index": INTEGER})},
    {"id": STRING},
)
_FIELDS = {
    "content": STRING,
    "thinking": STRING,
    "images": array(base64_text),
    "tool_calls": array(_CALL),
    "tool_name": STRING,
    "tool_call_id": STRING,
}
_MESSAGE = record(_SOURCE, {"role": STRING}, _FIELDS)
_TOOL = record(
    _SOURCE,
    {"function": record(_SOURCE, {"name": STRING}, {"description": STRING, "parameters": OBJECT})},
    {"type": STRING},
)
_OPTIONS = record(
    _SOURCE,
    optional={
        "num_predict": INTEGER,
        "num_ctx": INTEGER,
        "seed": INTEGER,
        "top_k": INTEGER,
        "temperature": NUMBER,
        "top_p": NUMBER,
        "stop": array(STRING),
    },
)
REQUEST = record(
    _SOURCE,
    {
        "model": STRING,
        "messages": array(
            tagged(
                _SOURCE,
                dict.fromkeys(("system", "user", "assistant", "tool"), _MESSAGE),
                key="role",
                closed=True,
            )
        ),
    },
    {
        "stream": BOOLEAN,
        "tools": array(_TOOL),
        "format": by_kind(string=word("json", ""), object=OBJECT),
        "options": _OPTIONS,
        "think": by_kind(boolean=BOOLEAN, string=word("low", "medium", "high", "max")),
        "keep_alive": by_kind(string=STRING, integer=INTEGER, number=NUMBER),
        "truncate": BOOLEAN,
        "shift": BOOLEAN,
        "logprobs": BOOLEAN,
        "top_logprobs": INTEGER,
    },
)
_COUNTERS = (
    "total_duration",
    "load_duration",
    "prompt_eval_count",
    "prompt_eval_duration",
    "eval_count",
    "eval_duration",
)
RESPONSE = record(
    _SOURCE,
    {
        "model": STRING,
        "created_at": STRING,
        "message": record(_SOURCE, {"role": word("assistant")}, _FIELDS),
        "done": BOOLEAN,
    },
    {
        "done_reason": STRING,
        "remote_model": STRING,
        "remote_host": STRING,
        **dict.fromkeys(_COUNTERS, integer(0)),
    },
)


def _messages(body: Fields) -> list[Placed]:
    return objects(body.get("messages"), "messages")


def _take(open_calls: list[Placed], message: Fields) -> bool:
    """Take from the open calls the one that a result answers; tell whether there was one."""
    call_id, name = string(message, "tool_call_id"), string(message, "tool_name")
    for index, (_, call) in enumerate(open_calls):
        named = string(inside(call, "function"), "name")
        known = string(call, "id")
        fits = call_id == known if call_id and known else not name or name == named
        if fits:
            del open_calls[index]
            return True
    return False


@rule("docs/spec/wires.md#8")
def calls_and_results_pair(body: Fields) -> Iterator[Finding]:
    """Results match by `tool_call_id`, else `tool_name`, else order."""
    open_calls: list[Placed] = []
    for where, message in _messages(body):
        if message.get("role") == "tool":
            if not _take(open_calls, message):
                yield where, "answers no open call of the turn before it"
            continue
        for place, _call in open_calls:
            yield place, "call has no result directly after its turn"
        open_calls = objects(message.get("tool_calls"), f"{where}.tool_calls")
    for place, _call in open_calls:
        yield place, "call has no result directly after its turn"


@rule("docs/spec/wires.md#8")
def fields_stand_where_they_may(body: Fields) -> Iterator[Finding]:
    """Calls and thinking belong to assistants, `tool_call_id` and `tool_name` to tools."""
    places = {
        "tool_calls": "assistant",
        "thinking": "assistant",
        "tool_name": "tool",
        "tool_call_id": "tool",
    }
    for where, message in _messages(body):
        for key, role in places.items():
            if message.get(key) and message.get("role") != role:
                yield f"{where}.{key}", f"belongs to a message of role {role}"


@rule("docs/spec/wires.md#8")
def no_tool_choice(body: Fields) -> Iterator[Finding]:
    """A tool choice has hung servers."""
    if "tool_choice" in body:
        yield "tool_choice", "there is no tool choice on this wire"


RULES: tuple[Rule, ...] = (calls_and_results_pair, fields_stand_where_they_may, no_tool_choice)


def check_request(body: Body, variant: str | None = None) -> list[Violation]:
    """Return what the server would refuse or misread in a request (docs/spec/wires.md#8).

    Stability: experimental.
    """
    del variant
    return check(body, REQUEST, RULES)


def check_response(body: Body) -> list[Violation]:
    """Return where a reply is not a chat response; `{"error": …}` is none (docs/spec/wires.md#8).

    Stability: experimental.
    """
    return check(body, RESPONSE, ())
