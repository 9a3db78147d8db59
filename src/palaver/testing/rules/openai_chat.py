"""Rules of `openai_chat`.

`POST /v1/chat/completions` (docs/spec/wires.md#2), and of its variants (docs/spec/wires.md#2.9).

Every variant
- The shapes of messages, parts, tools and choices; parts stand where docs/spec/wires.md#2.2 allows them.
- An assistant's calls are answered by `tool` messages directly after it, one for each id; no result
  without a call.
- A `tool` message holds text or images, nothing else. An assistant message holds content, calls, a
  refusal or audio.
- Names match `[a-zA-Z0-9_-]{1,64}`.

By variant (`variant=None` is OpenAI itself; a variant without a row has only the rules above)
- OpenAI, Azure: ids of 40 characters; calls and tools have a `type`; no empty `tool_calls` and
  `tools`; no `tool_choice` without tools; file data and images in the documented forms; no sampling
  parameters beside a reasoning effort.
- Mistral: ids of nine letters and digits; no `user` directly after `tool`; the last message is
  user, tool, or an assistant with `prefix: true`, and only the last one has it; no assistant
  message without content and calls.
- DeepSeek: in thinking mode every turn with calls carries `reasoning_content`, also `""`.
- Ollama: arguments are the JSON text of an object. Moonshot: no `required`. No `developer` role at
  DeepSeek, xAI, Cerebras and z.ai.

Arguments text is not parsed elsewhere: OpenAI takes any string (docs/spec/wires.md#2.3).

What recorded traffic says
- Mistral takes assistant messages with `tool_calls: []`, and tools without `type`; OpenRouter takes
  ids of 50 characters; the Hugging Face router takes `tools: []`. So these are OpenAI's rules, not
  the wire's.
- DeepSeek takes `reasoning_content` of earlier turns from `deepseek-reasoner`, which docs/spec/wires.md#2.9
  forbids for R1: the model name now stands for a thinking mode that demands it. No rule forbids it
  here.
- The six refusals that docs/spec/wires.md#2.4.3 cites (`expected to be either text or image_url type`) are
  about audio in a **user** message to a model without audio input; the tool messages beside them
  hold plain text. Models differ there, so audio in a user message is not flagged; that tool
  messages hold text or images rests on the documented types.
- docs/spec/wires.md#2.4.4 (one system message only) names no provider, so no variant has it.

Stability: experimental.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from palaver.testing.rules.chat_shapes import REQUEST, RESPONSE
from palaver.testing.rules.order import (
    Finding,
    Placed,
    inside,
    objects,
    pair_chat,
    rule,
    string,
    with_next,
)
from palaver.testing.rules.violation import Body, Fields, Rule, Violation, check

HOME = "openai"
LONGEST_ID = 40


def _messages(body: Fields, role: str = "") -> list[Placed]:
    found = objects(body.get("messages"), "messages")
    return [(where, m) for where, m in found if not role or m.get("role") == role]


def _calls(body: Fields) -> list[Placed]:
    return [
        call
        for where, message in _messages(body, "assistant")
        for call in objects(message.get("tool_calls"), f"{where}.tool_calls")
    ]


def _parts(body: Fields, kind: str) -> list[Placed]:
    return [
        part
        for where, message in _messages(body)
        for part in objects(message.get("content"), f"{where}.content")
        if part[1].get("type") == kind
    ]


@rule("docs/spec/wires.md#2.4.1")
def calls_are_answered(body: Fields) -> Iterator[Finding]:
    """Each call has one `tool` message directly after its turn.

    Seen in langgenius/dify#32222, agno-agi/agno#3105.
    """
    yield from pair_chat(_messages(body)).unanswered


@rule("docs/spec/wires.md#2.4.2")
def results_have_calls(body: Fields) -> Iterator[Finding]:
    """A `tool` message answers a call of the turn directly before it."""
    yield from pair_chat(_messages(body)).orphans


# Where each known part may stand. A type that is not listed here is unknown, and allowed.
_PLACES = {
    "text": {"system", "developer", "user", "assistant", "tool"},
    "image_url": {"user", "tool"},
    "input_audio": {"user"},
    "file": {"user"},
    "refusal": {"assistant"},
}


def _misplaced_parts(body: Fields, *, in_tools: bool) -> Iterator[Finding]:
    for where, message in _messages(body):
        role = string(message, "role") or ""
        if (role == "tool") != in_tools:
            continue
        for place, part in objects(message.get("content"), f"{where}.content"):
            kind = string(part, "type") or ""
            if role not in _PLACES.get(kind, {role}):
                yield place, f"{kind} part in a {role} message"


@rule("docs/spec/wires.md#2.2")
def parts_stand_where_they_may(body: Fields) -> Iterator[Finding]:
    """System messages hold text, assistants text and refusals, users everything but refusals."""
    yield from _misplaced_parts(body, in_tools=False)


@rule("docs/spec/wires.md#2.4.3")
def tool_messages_hold_text_or_images(body: Fields) -> Iterator[Finding]:
    """A tool message holds no audio, file or refusal; media go into a following user message."""
    yield from _misplaced_parts(body, in_tools=True)


@rule("docs/spec/wires.md#2.1")
def assistants_say_something(body: Fields) -> Iterator[Finding]:
    """Content may be `null` or absent only beside calls, a refusal or audio."""
    for where, message in _messages(body, "assistant"):
        if message.get("content") is None and not any(
            message.get(key) for key in ("tool_calls", "refusal", "audio", "function_call")
        ):
            yield where, "neither content nor tool_calls"


@rule("docs/spec/wires.md#2.2")
def files_are_complete(body: Fields) -> Iterator[Finding]:
    """A file is a `file_id`, or `file_data` with its `filename`."""
    for where, part in _parts(body, "file"):
        file = inside(part, "file")
        if file and file.get("file_id") is None and (file.get("file_data") is None or file.get("filename") is None):
            yield where, "needs file_id, or file_data and filename"


@rule("docs/spec/wires.md#1.4")
def short_call_ids(body: Fields) -> Iterator[Finding]:
    """At most 40 characters (vercel/ai#5171, camel-ai/camel#2215, microsoft/autogen#6377)."""
    for where, call in _calls(body):
        if len(string(call, "id") or "") > LONGEST_ID:
            yield f"{where}.id", f"longer than {LONGEST_ID} characters"


@rule("docs/spec/wires.md#2.3")
def calls_and_tools_are_typed(body: Fields) -> Iterator[Finding]:
    """OpenAI requires `type`, and the field of that name; Mistral's own clients leave it out."""
    for where, item in _calls(body) + objects(body.get("tools"), "tools"):
        kind = string(item, "type")
        if kind is None:
            yield where, "has no type"
        elif kind in ("function", "custom") and not isinstance(item.get(kind), dict):
            yield where, f"type is {kind} but there is no {kind}"


@rule("openai/openai-python#2061")
def lists_are_not_empty(body: Fields) -> Iterator[Finding]:
    """`Invalid 'messages[1].tool_calls'.

    Empty array` (also home-assistant/core#118577); the same for `tools`.
    """
    for where, message in _messages(body, "assistant"):
        if message.get("tool_calls") == []:
            yield f"{where}.tool_calls", "empty array"
    if body.get("tools") == []:
        yield "tools", "empty array"


@rule("anomalyco/opencode#48857")
def choice_needs_tools(body: Fields) -> Iterator[Finding]:
    """`'tool_choice' is only allowed when 'tools' are specified` (also dapr/dapr-agents#248)."""
    if body.get("tool_choice") is not None and not body.get("tools"):
        yield "tool_choice", "there are no tools"


@rule("docs/spec/wires.md#2.3")
def choice_is_not_any(body: Fields) -> Iterator[Finding]:
    """`any` is Mistral's word for `required`."""
    if body.get("tool_choice") == "any":
        yield "tool_choice", "expected auto | none | required, found 'any'"


@rule("docs/spec/wires.md#2.2")
def media_have_openai_forms(body: Fields) -> Iterator[Finding]:
    """Images are http or data URLs, file data is a data URL, audio is wav or mp3."""
    for where, part in _parts(body, "image_url"):
        url = string(inside(part, "image_url"), "url")
        if url is None or not re.match(r"https?://|data:", url):
            yield where, "expected image_url.url to be an http or data URL"
    for where, part in _parts(body, "file"):
        data = string(inside(part, "file"), "file_data")
        if data is not None and not data.startswith("data:"):
            yield f"{where}.file.file_data", "expected a data URL"
    for where, part in _parts(body, "input_audio"):
        if inside(part, "input_audio").get("format") not in ("wav", "mp3"):
            yield f"{where}.input_audio.format", "expected wav | mp3"


_SAMPLING = (
    "temperature",
    "top_p",
    "frequency_penalty",
    "presence_penalty",
    "logit_bias",
    "logprobs",
    "top_logprobs",
)


@rule("docs/spec/wires.md#2.4.5")
def no_sampling_while_reasoning(body: Fields) -> Iterator[Finding]:
    """Sampling parameters do not go with a reasoning effort other than `none`.

    The rule is about reasoning models; the body shows one only by its effort.
    """
    if string(body, "reasoning_effort") not in (None, "none"):
        for key in _SAMPLING:
            if body.get(key) is not None:
                yield key, "refused beside reasoning_effort"


@rule("docs/spec/wires.md#2.9")
def no_file_parts(body: Fields) -> Iterator[Finding]:
    """Azure takes no `file` parts."""
    for where, _part in _parts(body, "file"):
        yield where, "file parts are refused"


@rule("docs/spec/wires.md#2.10")
def no_developer(body: Fields) -> Iterator[Finding]:
    """Some servers do not know the role: send `system`."""
    for where, _message in _messages(body, "developer"):
        yield f"{where}.role", "the developer role is refused"


@rule("docs/spec/wires.md#1.4")
def mistral_call_ids(body: Fields) -> Iterator[Finding]:
    """`must be a-z, A-Z, 0-9, with a length of 9`.

    Seen in anomalyco/opencode#1680, nearai/ironclaw#1241.
    """
    results = [(where, string(message, "tool_call_id")) for where, message in _messages(body, "tool")]
    calls = [(where, string(call, "id")) for where, call in _calls(body)]
    for where, call_id in calls + results:
        if call_id is not None and not re.fullmatch(r"[a-zA-Z0-9]{9}", call_id):
            yield where, f"the id {call_id!r} is not nine letters and digits"


@rule("docs/spec/wires.md#2.9")
def mistral_turns(body: Fields) -> Iterator[Finding]:
    """Mistral's order of roles.

    datapizza-labs/datapizza-ai#98, charmbracelet/crush#279 (user after tool), 0xPlaygrounds/rig#708
    (last message).
    """
    messages = _messages(body)
    for (_, message), after in with_next(messages):
        if after and message.get("role") == "tool" and after[1].get("role") == "user":
            yield after[0], "user directly after tool"
        if after and message.get("prefix") is True:
            yield after[0], "a message after the one with prefix: true"
    for where, message in messages[-1:]:
        if message.get("role") not in ("user", "tool") and message.get("prefix") is not True:
            yield where, "the last message is neither user, tool, nor an assistant prefix"


@rule("docs/spec/wires.md#2.9")
def mistral_assistants_say_something(body: Fields) -> Iterator[Finding]:
    """An assistant message with neither content nor calls is refused; `""` and `[]` are nothing."""
    for where, message in _messages(body, "assistant"):
        if message.get("content") in ("", []) and not message.get("tool_calls"):
            yield where, "neither content nor tool_calls"


@rule("docs/spec/wires.md#2.9")
def deepseek_passes_reasoning_back(body: Fields) -> Iterator[Finding]:
    """`The reasoning_content in the thinking mode must be passed back`.

    Seen in anomalyco/opencode#24135.
    """
    mode = string(inside(body, "thinking"), "type")
    if mode != "enabled" and (mode == "disabled" or body.get("model") != "deepseek-reasoner"):
        return
    for where, message in _messages(body, "assistant"):
        if message.get("tool_calls") and string(message, "reasoning_content") is None:
            yield where, "a turn with calls has no reasoning_content"


@rule("docs/spec/wires.md#2.9")
def arguments_are_objects(body: Fields) -> Iterator[Finding]:
    """Ollama's `/v1` parses the history's arguments and takes objects only."""
    for where, call in _calls(body):
        arguments = string(inside(call, "function"), "arguments")
        try:
            value: object = {} if arguments is None else json.loads(arguments)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            yield f"{where}.function.arguments", "expected the JSON text of an object"


@rule("docs/spec/wires.md#2.9")
def no_required_choice(body: Fields) -> Iterator[Finding]:
    """Moonshot does not take `required`."""
    if body.get("tool_choice") == "required":
        yield "tool_choice", "required is refused"


@rule("docs/spec/wires.md#1.2")
def usage_adds_up(body: Fields) -> Iterator[Finding]:
    """Total is prompt and completion; at xAI reasoning stands beside the completion."""
    usage = inside(body, "usage")
    prompt, completion, total = (usage.get(f"{key}_tokens") for key in ("prompt", "completion", "total"))
    reasoning = inside(usage, "completion_tokens_details").get("reasoning_tokens")
    if isinstance(prompt, int) and isinstance(completion, int) and isinstance(total, int):
        extra = reasoning if isinstance(reasoning, int) else 0
        if total not in (prompt + completion, prompt + completion + extra):
            yield "usage.total_tokens", f"{total} is not {prompt} + {completion}"


SHARED: tuple[Rule, ...] = (
    calls_are_answered,
    results_have_calls,
    parts_stand_where_they_may,
    tool_messages_hold_text_or_images,
    assistants_say_something,
    files_are_complete,
)
_OPENAI: tuple[Rule, ...] = (
    short_call_ids,
    calls_and_tools_are_typed,
    lists_are_not_empty,
    choice_needs_tools,
    choice_is_not_any,
    media_have_openai_forms,
    no_sampling_while_reasoning,
)
VARIANTS: dict[str, tuple[Rule, ...]] = {
    "openai": _OPENAI,
    "azure": (*_OPENAI, no_file_parts),
    "mistral": (mistral_call_ids, mistral_turns, mistral_assistants_say_something),
    "deepseek": (no_developer, deepseek_passes_reasoning_back),
    "xai": (no_developer,),
    "cerebras": (no_developer,),
    "zai": (no_developer,),
    "moonshot": (no_required_choice,),
    "ollama": (arguments_are_objects,),
}
RESPONSE_RULES: tuple[Rule, ...] = (usage_adds_up,)


def check_request(body: Body, variant: str | None = None) -> list[Violation]:
    """Return what the provider would refuse in a request (docs/spec/wires.md#2.1-2.4, 2.9).

    Stability: experimental.
    """
    return check(body, REQUEST, SHARED + VARIANTS.get(variant or HOME, ()))


def check_response(body: Body) -> list[Violation]:
    """Return where a reply is not a chat completion (docs/spec/wires.md#2.5).

    Stability: experimental.
    """
    return check(body, RESPONSE, RESPONSE_RULES)
