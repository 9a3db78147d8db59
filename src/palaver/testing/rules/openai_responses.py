"""Rules of `openai_responses`: `POST /v1/responses` (docs/spec/wires.md#3).

- Items and parts have their fields; user, system and developer messages hold input parts,
  assistants output parts.
- Each function or custom call has one output with its `call_id` later in the input; an output has a
  call before it, unless `previous_response_id` or `conversation` keeps the call on the server.
- A reasoning item is followed by what it produced: never by the end, an input message or an output
  item.
- `input` is not empty; `json_object` needs the word JSON in it; function calls are sent in full,
  not as references.
- Files have documented forms; audio and video are no files here.

By variant (`variant=None` is OpenAI itself)
- OpenAI: item ids carry their prefix (`fc_`, `rs_`, `msg_`); sampling parameters do not go with a
  reasoning effort; a forced choice needs tools.
- DeepSeek: no item of an assistant stands between the calls of a turn.

What recorded traffic says
- A reasoning item may be followed by another one, by a server-run call (`mcp_call`,
  `tool_search_call`) or by an easy assistant message: only what cannot be its product is refused.
- A `tool_search_call` without output is accepted (the service ran it): only function and custom
  calls must pair.
- Easy messages with `content: ""` are accepted.

Not checkable from a body: whether a call's own reasoning item is missing (second half of 3.3.2),
whether items are already on the server (3.3.4), whether a namespace was lost (3.3.6), and which
reasoning the server still has (3.3.3).

Stability: experimental.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from palaver.testing.rules.order import Finding, Placed, inside, objects, rule, string, with_next
from palaver.testing.rules.responses_shapes import REQUEST, RESPONSE
from palaver.testing.rules.violation import Body, Fields, Rule, Violation, check

HOME = "openai"
_CALLS = ("function_call", "custom_tool_call")
_OUTPUTS = ("function_call_output", "custom_tool_call_output")


def _items(body: Fields, *kinds: str) -> list[Placed]:
    found = objects(body.get("input"), "input")
    return [(where, item) for where, item in found if not kinds or _kind(item) in kinds]


def _kind(item: Fields) -> str:
    return string(item, "type") or "message"


def _parts(body: Fields) -> list[Placed]:
    return [
        part
        for where, item in _items(body)
        for key in ("content", "output")
        for part in objects(item.get(key), f"{where}.{key}")
    ]


@rule("docs/spec/wires.md#3.3.1")
def calls_have_outputs(body: Fields) -> Iterator[Finding]:
    """`No tool output found for function call`: one output for each call, after it."""
    waiting: dict[str, str] = {}
    for where, item in _items(body, *_CALLS, *_OUTPUTS):
        call_id = string(item, "call_id")
        if call_id is None:
            continue
        if _kind(item) in _OUTPUTS:
            waiting.pop(call_id, None)
        elif call_id in waiting:
            yield where, f"the call_id {call_id!r} is open already"
        else:
            waiting[call_id] = where
    for call_id, where in waiting.items():
        yield where, f"call {call_id!r} has no output later in the input"


@rule("docs/spec/wires.md#3.3.1")
def outputs_have_calls(body: Fields) -> Iterator[Finding]:
    """`No tool call found for function call output with call_id`; one output for each call."""
    on_server = body.get("previous_response_id") is not None or body.get("conversation") is not None
    open_calls: set[str | None] = set()
    for where, item in _items(body, *_CALLS, *_OUTPUTS):
        call_id = string(item, "call_id")
        if _kind(item) in _CALLS:
            open_calls.add(call_id)
        elif call_id in open_calls:
            open_calls.remove(call_id)
        elif call_id is not None and not on_server:
            yield where, f"output {call_id!r} has no open call before it"


@rule("docs/spec/wires.md#3.3.2")
def reasoning_is_followed(body: Fields) -> Iterator[Finding]:
    """`provided without its required following item` (vercel/ai#7099)."""
    for (where, item), after in with_next(_items(body)):
        if _kind(item) != "reasoning":
            continue
        kind, role = (_kind(after[1]), after[1].get("role")) if after else ("", None)
        if not after or kind.endswith("_output") or (kind == "message" and role != "assistant"):
            yield where, "reasoning is not followed by an item it produced"


@rule("docs/spec/wires.md#3.3.5")
def calls_are_no_references(body: Fields) -> Iterator[Finding]:
    """Function calls are sent in full."""
    for where, item in _items(body, "item_reference"):
        if (string(item, "id") or "").startswith("fc_"):
            yield where, "a function call as item_reference"


@rule("docs/spec/wires.md#3.3.7")
def input_is_not_empty(body: Fields) -> Iterator[Finding]:
    """`input` may not be empty even with instructions.

    A stored prompt or chain may stand for it.
    """
    elsewhere = any(body.get(key) is not None for key in ("prompt", "previous_response_id", "conversation"))
    if body.get("input") in ("", []) or (body.get("input") is None and not elsewhere):
        yield "input", "empty"


@rule("docs/spec/wires.md#3.3.7")
def json_object_is_asked_for(body: Fields) -> Iterator[Finding]:
    """`json_object` needs the word JSON in the input, not only in the instructions."""
    if inside(body, "text", "format").get("type") != "json_object":
        return
    texts = [body.get("input"), *(part.get("text") for _, part in _parts(body))]
    texts += [item.get("content") for _, item in _items(body)]
    if not any(isinstance(text, str) and "json" in text.lower() for text in texts):
        yield "text.format", "the input does not say JSON"


_SOUND = re.compile(r"data:(audio|video)/|https?://[^?#]*\.(mp3|wav|ogg|flac|m4a|aac|mp4|mov|webm|mkv|avi)([?#]|$)")


@rule("docs/spec/wires.md#3.3.10")
def files_are_readable(body: Fields) -> Iterator[Finding]:
    """`unsupported_file`, `unsupported MIME type 'audio/mpeg'` (recorded); data is a data URL."""
    for where, part in _parts(body):
        if part.get("type") != "input_file":
            continue
        data, url = string(part, "file_data"), string(part, "file_url")
        if data is not None and not data.startswith("data:"):
            yield f"{where}.file_data", "expected a data URL"
        if any(source and _SOUND.match(source) for source in (data, url)):
            yield where, "audio and video files are refused"


_INPUT_PARTS: tuple[str, ...] = ("input_text", "input_image", "input_file")
_OUTPUT_PARTS: tuple[str, ...] = ("output_text", "refusal")


@rule("docs/spec/wires.md#3.1")
def parts_stand_where_they_may(body: Fields) -> Iterator[Finding]:
    """`Supported values are: 'output_text' and 'refusal'` (jeremychone/rust-genai#119)."""
    for where, item in _items(body):
        if item.get("role") == "assistant":
            wrong = _INPUT_PARTS
        elif item.get("role") in ("user", "system", "developer") or _kind(item) in _OUTPUTS:
            wrong = _OUTPUT_PARTS
        else:
            continue
        for key in ("content", "output"):
            for place, part in objects(item.get(key), f"{where}.{key}"):
                if part.get("type") in wrong:
                    yield place, f"{part.get('type')} does not belong here"


_PREFIXES = {"function_call": "fc_", "reasoning": "rs_", "message": "msg_"}


@rule("docs/spec/wires.md#1.4")
def item_ids_have_prefixes(body: Fields) -> Iterator[Finding]:
    """An item's own `id` is not its `call_id`: `fc_…`, `rs_…`, `msg_…`."""
    for where, item in _items(body, *_PREFIXES):
        item_id = string(item, "id")
        if item_id is not None and not item_id.startswith(_PREFIXES[_kind(item)]):
            yield f"{where}.id", f"expected {_PREFIXES[_kind(item)]}…"


@rule("docs/spec/wires.md#3.3.9")
def no_sampling_while_reasoning(body: Fields) -> Iterator[Finding]:
    """Sampling parameters do not go with a reasoning effort other than `none`.

    The body shows a model only by that.
    """
    if string(inside(body, "reasoning"), "effort") not in (None, "none"):
        for key in ("temperature", "top_p", "top_logprobs"):
            if body.get(key) is not None:
                yield key, "refused beside reasoning.effort"


@rule("anomalyco/opencode#48857")
def forced_choice_needs_tools(body: Fields) -> Iterator[Finding]:
    """`Tool choice 'required' must be specified with 'tools' parameter`."""
    choice = body.get("tool_choice")
    if (choice == "required" or isinstance(choice, dict)) and not body.get("tools"):
        yield "tool_choice", "there are no tools"


@rule("docs/spec/wires.md#3.3.8")
def calls_stand_together(body: Fields) -> Iterator[Finding]:
    """DeepSeek refuses an assistant item between two calls of a turn (recorded)."""
    seen_call = between = False
    for where, item in _items(body):
        kind = _kind(item)
        if kind in _CALLS:
            if seen_call and between:
                yield where, "another item stands between this call and the one before it"
            seen_call, between = True, False
        elif kind == "reasoning" or item.get("role") == "assistant":
            between = True
        else:
            seen_call = between = False


@rule("docs/spec/wires.md#1.2")
def usage_adds_up(body: Fields) -> Iterator[Finding]:
    """Total is input and output."""
    usage = inside(body, "usage")
    parts = [value for key in ("input_tokens", "output_tokens") if isinstance(value := usage.get(key), int)]
    total = usage.get("total_tokens")
    if isinstance(total, int) and sum(parts) != total:
        yield "usage.total_tokens", f"{total} is not the sum {sum(parts)}"


SHARED: tuple[Rule, ...] = (
    calls_have_outputs,
    outputs_have_calls,
    reasoning_is_followed,
    calls_are_no_references,
    input_is_not_empty,
    json_object_is_asked_for,
    files_are_readable,
    parts_stand_where_they_may,
)
VARIANTS: dict[str, tuple[Rule, ...]] = {
    "openai": (item_ids_have_prefixes, no_sampling_while_reasoning, forced_choice_needs_tools),
    "deepseek": (calls_stand_together,),
}
RESPONSE_RULES: tuple[Rule, ...] = (usage_adds_up,)


def check_request(body: Body, variant: str | None = None) -> list[Violation]:
    """Return what the provider would refuse in a request (docs/spec/wires.md#3.1-3.3).

    Stability: experimental.
    """
    return check(body, REQUEST, SHARED + VARIANTS.get(variant or HOME, ()))


def check_response(body: Body) -> list[Violation]:
    """Return where a reply is not a response object (docs/spec/wires.md#3.4).

    Stability: experimental.
    """
    return check(body, RESPONSE, RESPONSE_RULES)
