"""Detect by its structure which wire a JSON value was written for.

Rules:

- A table row is a feature, a path with what stands there, and the wires that may say it. Every other wire is
  contradicted by it. What no row names counts for nothing, so that a vendor's own field does no harm.
- A wire needs some features; one that lacks them is out. What a complete body always has, though a saved piece may
  not, is a contradiction where it is missing.
- What one wire alone may say weighs three times as much as what several may.
- The wires with the fewest contradictions are what the value may be. When there are several, the name of the model
  decides among them where it names one of them (``gpt-…``, ``claude-…``, ``command-…``, ``name:tag``). What then is
  left is ambiguous, and is given as it is: nothing is guessed.
- A bare list of messages is read as the list in a body of its own. Palaver's own canonical form is detected first.

The value is only looked at, as deep as the tables go.

Stability: experimental.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast, get_args

from msgspec import Struct, structs

from palaver.core.messages import MESSAGE_CLASSES
from palaver.core.parts import AnyPart

if TYPE_CHECKING:
    from collections.abc import Sequence

Kind: TypeAlias = Literal["request", "response", "conversation", "exchange", "canonical"]
"""``conversation`` is a bare list of messages, ``exchange`` an object with a request and its response."""

_CHAT: Final = "openai_chat"
_RESPONSES: Final = "openai_responses"
_ANTHROPIC: Final = "anthropic_messages"
_GOOGLE: Final = "google_generate"
_BEDROCK: Final = "bedrock_converse"
_COHERE: Final = "cohere_chat"
_OLLAMA: Final = "ollama_chat"

WIRES: Final = (_CHAT, _RESPONSES, _ANTHROPIC, _GOOGLE, _BEDROCK, _COHERE, _OLLAMA)
"""The wires that are distinguished, the commonest first."""
LIST_KEYS: Final = dict.fromkeys(WIRES, "messages") | {_RESPONSES: "input", _GOOGLE: "contents"}
"""The field of a request that holds the list of messages."""

_OPENAI: Final = (_CHAT, _RESPONSES)
_ROLES: Final = (_CHAT, _COHERE, _OLLAMA)
_MESSAGES: Final = (_CHAT, _ANTHROPIC, _BEDROCK, _COHERE, _OLLAMA)


class Detected(Struct, frozen=True):
    """What a value is, and the wires it may belong to: the first is as good a guess as any, one alone is sure."""

    kind: Kind
    wires: tuple[str, ...] = ()


class _Table(Struct, frozen=True):
    """``features`` by wires. ``needs``: sets of features, one of them required. ``usual``: see above."""

    features: dict[str, tuple[str, ...]]
    needs: dict[str, tuple[tuple[str, ...], ...]]
    usual: dict[str, tuple[str, ...]] = {}


def _rows(*rows: tuple[tuple[str, ...] | str, str]) -> dict[str, tuple[str, ...]]:
    """Spread rows of wires and their features, parted by spaces."""
    return {
        feature: (wires,) if isinstance(wires, str) else wires
        for wires, features in rows
        for feature in features.split()
    }


# -- the tables: `key.key`, `[]` each item, `=text`, `:kind`, `{key}` an object with that key only ---------------------

_REQUEST: Final = _Table(
    features=_rows(
        # top level
        (_MESSAGES, "messages"),
        ((_CHAT, _RESPONSES, _ANTHROPIC, _COHERE, _OLLAMA), "model stream"),
        ((_CHAT, _ANTHROPIC, _COHERE), "max_tokens thinking:object"),
        ((_CHAT, _RESPONSES, _ANTHROPIC, _COHERE), "temperature"),
        ((_CHAT, _RESPONSES, _ANTHROPIC), "top_p metadata service_tier tool_choice:object"),
        ((_CHAT, _RESPONSES, _OLLAMA), "top_logprobs"),
        ((_CHAT, _RESPONSES, _COHERE), "tool_choice:string"),
        (_OPENAI, "store parallel_tool_calls prompt_cache_key safety_identifier user tool_choice.type=function"),
        (_OPENAI, "tool_choice=auto tool_choice=none tool_choice=required prompt_cache_options moderation"),
        ((_CHAT, _COHERE), "response_format frequency_penalty presence_penalty seed"),
        ((_CHAT, _COHERE, _OLLAMA), "logprobs"),
        ((_CHAT, _ANTHROPIC), "top_k"),
        ((_ANTHROPIC, _COHERE), "stop_sequences"),
        (
            _CHAT,
            "n stop stream_options max_completion_tokens logit_bias modalities audio prediction functions verbosity",
        ),
        (_CHAT, "function_call reasoning_effort web_search_options tool_choice.function tool_choice=any"),
        (_CHAT, "response_format.json_schema:object response_format.type=json_schema"),
        (_RESPONSES, "input instructions include previous_response_id conversation text max_output_tokens background"),
        (_RESPONSES, "max_tool_calls truncation prompt"),
        ((_CHAT, _RESPONSES), "reasoning"),
        (_ANTHROPIC, "system:string system[].type output_config container:string container:object mcp_servers"),
        (_ANTHROPIC, "thinking.budget_tokens thinking.type=adaptive anthropic_version"),
        (_ANTHROPIC, "tool_choice.type=auto tool_choice.type=any tool_choice.type=tool tool_choice.type=none"),
        ((_CHAT, _ANTHROPIC), "cache_control"),
        ((_RESPONSES, _ANTHROPIC), "context_management"),
        ((_ANTHROPIC, _BEDROCK), "system"),
        (
            _BEDROCK,
            "modelId inferenceConfig additionalModelRequestFields additionalModelResponseFieldPaths outputConfig",
        ),
        (_BEDROCK, "guardrailConfig performanceConfig requestMetadata promptVariables toolConfig.tools system[]{text}"),
        ((_GOOGLE, _BEDROCK), "toolConfig"),
        (_GOOGLE, "contents generationConfig systemInstruction safetySettings cachedContent system_instruction"),
        (_GOOGLE, "toolConfig.functionCallingConfig"),
        (_COHERE, "p k documents citation_options safety_mode strict_tools thinking.token_budget"),
        (_COHERE, "tool_choice=REQUIRED tool_choice=NONE"),
        (_OLLAMA, "options keep_alive format think truncate shift"),
        # tools
        (_ROLES, "tools[].function"),
        ((_RESPONSES, _ANTHROPIC), "tools[].name"),
        (_RESPONSES, "tools[].parameters"),
        (_ANTHROPIC, "tools[].input_schema"),
        (_GOOGLE, "tools[].functionDeclarations tools[].function_declarations"),
        # messages
        ((), "messages[].type messages[].parts"),
        (_ROLES, "messages[].role=system messages[].role=tool messages[].tool_calls messages[].tool_call_id"),
        (
            _CHAT,
            "messages[].role=developer messages[].role=function messages[].name messages[].refusal messages[].audio",
        ),
        (_CHAT, "messages[].function_call messages[].reasoning_content messages[].reasoning messages[].annotations"),
        (_CHAT, "messages[].reasoning_details"),
        ((_CHAT, _COHERE), "messages[].content:null messages[].tool_calls[].type"),
        ((_CHAT, _COHERE), "messages[].tool_calls[].function.arguments:string"),
        (_OLLAMA, "messages[].tool_calls[].function.arguments:object messages[].images messages[].tool_name"),
        (_OLLAMA, "messages[].thinking"),
        (_COHERE, "messages[].tool_plan messages[].citations"),
        ((_CHAT, _ANTHROPIC, _COHERE, _OLLAMA), "messages[].content:string"),
        ((_CHAT, _ANTHROPIC, _BEDROCK, _COHERE), "messages[].content:array"),
        # content blocks
        ((_CHAT, _ANTHROPIC, _COHERE), "messages[].content[].type messages[].content[].type=thinking"),
        ((_CHAT, _COHERE), "messages[].content[].type=image_url"),
        (
            _CHAT,
            "messages[].content[].type=input_audio messages[].content[].type=file messages[].content[].type=refusal",
        ),
        (_CHAT, "messages[].content[].type=video_url messages[].content[].type=document_url"),
        ((_CHAT, _ANTHROPIC), "messages[].content[].cache_control"),
        ((_ANTHROPIC, _COHERE), "messages[].content[].type=document"),
        (
            _ANTHROPIC,
            "messages[].content[].type=image messages[].content[].type=tool_use messages[].content[].signature",
        ),
        (_ANTHROPIC, "messages[].content[].type=tool_result messages[].content[].type=server_tool_use"),
        (_ANTHROPIC, "messages[].content[].type=redacted_thinking messages[].content[].type=web_search_tool_result"),
        (_ANTHROPIC, "messages[].content[].type=mcp_tool_use messages[].content[].type=container_upload"),
        (_ANTHROPIC, "messages[].content[].type=search_result messages[].content[].type=compaction"),
        (_BEDROCK, "messages[].content[]{text} messages[].content[].toolUse messages[].content[].toolResult"),
        (_BEDROCK, "messages[].content[]{image} messages[].content[]{document} messages[].content[]{video}"),
        (_BEDROCK, "messages[].content[]{reasoningContent} messages[].content[]{cachePoint}"),
        (_BEDROCK, "messages[].content[]{guardContent}"),
    ),
    needs={
        **dict.fromkeys(_MESSAGES, (("messages:array",),)),
        _RESPONSES: (("input:array",), ("input:string",)),
        _GOOGLE: (("contents:array",),),
    },
    usual={
        **dict.fromkeys((_CHAT, _RESPONSES, _COHERE, _OLLAMA), ("model",)),
        _ANTHROPIC: ("model", "max_tokens"),
        _BEDROCK: ("messages[].content[]",),
    },
)

_RESPONSE: Final = _Table(
    features=_rows(
        ((_CHAT, _RESPONSES, _ANTHROPIC, _COHERE), "id"),
        ((_CHAT, _RESPONSES, _ANTHROPIC, _OLLAMA), "model"),
        ((_CHAT, _RESPONSES, _ANTHROPIC, _BEDROCK, _COHERE), "usage"),
        (_OPENAI, "object service_tier"),
        (_CHAT, "choices created object=chat.completion object=error"),
        (_RESPONSES, "output:array object=response created_at:number status:string"),
        (_ANTHROPIC, "type=message content stop_reason stop_sequence role type=error"),
        (_GOOGLE, "candidates promptFeedback usageMetadata modelVersion responseId error.status"),
        (_BEDROCK, "output:object stopReason metrics usage.inputTokens"),
        ((_COHERE, _OLLAMA), "message:object"),
        (_COHERE, "finish_reason usage.billed_units message.tool_plan"),
        (_OLLAMA, "done created_at:string done_reason eval_count error:string"),
        # errors
        ((_CHAT, _RESPONSES, _ANTHROPIC, _GOOGLE), "error:object"),
        ((_CHAT, _RESPONSES, _ANTHROPIC), "error.type"),
        ((_CHAT, _GOOGLE), "error.code:number"),
        (_OPENAI, "error.param error.code:string error.code:null"),
        ((_BEDROCK, _COHERE), "message:string"),
    ),
    needs={
        _CHAT: (("choices:array",), ("error:object",), ("object=error",)),
        _RESPONSES: (("output:array",), ("object=response",), ("error:object",)),
        _ANTHROPIC: (("content:array", "role"), ("type=error",)),
        _GOOGLE: (("candidates:array",), ("promptFeedback",), ("usageMetadata", "modelVersion"), ("error.status",)),
        _BEDROCK: (("output:object", "stopReason"), ("message:string",)),
        _COHERE: (("message:object", "finish_reason"), ("message:object", "usage.billed_units"), ("message:string",)),
        _OLLAMA: (("message:object", "done"), ("message:object", "created_at:string"), ("error:string",)),
    },
)

_ITEMS: Final = (
    "message", "reasoning", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output",
    "web_search_call", "file_search_call", "computer_call", "computer_call_output", "code_interpreter_call",
    "image_generation_call", "local_shell_call", "local_shell_call_output", "shell_call", "shell_call_output",
    "apply_patch_call", "apply_patch_call_output", "mcp_call", "mcp_list_tools", "mcp_approval_request",
    "mcp_approval_response", "tool_search_call", "tool_search_output", "compaction", "item_reference",
)  # fmt: skip

# A bare list may be any of these; the features prove that it is one.
_BARE: Final = {
    "messages": ("messages[].role", "messages[].content"),
    "contents": ("contents[].parts",),
    "input": tuple(f"input[].type={kind}" for kind in _ITEMS),
}

_MODELS: Final = (  # compiled when they are asked
    (_CHAT, r"(ft:)?(gpt-|chatgpt-|o[134]\b)|(grok|deepseek|glm)-|\w+tral-[\w-]+-latest$|[\w.-]+/[\w.-]+$"),
    (_ANTHROPIC, r"claude-"),
    (_COHERE, r"(command|c4ai|embed)-"),
    (_OLLAMA, r"[\w.-]+:[\w.-]+$"),
)

_MARK: Final = 3
"""A feature of one wire contradicts the others more than a feature of several contradicts the rest."""

_CANONICAL_TAGS: Final = ("request", "response")
_ROLE_NAMES: Final = ("system", "developer", "user", "assistant", "tool", "rescue", "flush")
_CANONICAL_KEYS: Final = frozenset(
    ("role", *(field.encode_name for each in MESSAGE_CLASSES for field in structs.fields(each)))
)
_CANONICAL_PARTS: Final = frozenset(each.__struct_config__.tag for each in get_args(AnyPart))

# -- looking --------------------------------------------------------------------------------------------------------

_KINDS: Final[dict[type, str]] = {
    dict: ":object", list: ":array", str: ":string", bool: ":boolean", int: ":number", float: ":number",
    type(None): ":null",
}  # fmt: skip


class _Node:
    """One step of the features, joined where they begin alike."""

    __slots__ = ("feature", "steps")

    def __init__(self) -> None:
        self.feature: str | None = None
        self.steps: dict[str, _Node] = {}


@cache
def _tree(which: Literal["request", "response"]) -> _Node:
    table = _REQUEST if which == "request" else _RESPONSE
    needed = [feature for ways in table.needs.values() for required in ways for feature in required]
    usual = [feature for features in table.usual.values() for feature in features]
    bare = [feature for features in _BARE.values() for feature in features]
    root = _Node()
    for feature in (*table.features, *needed, *usual, *bare):
        node = root
        for step in _steps(feature):
            node = node.steps.setdefault(step, _Node())
        node.feature = feature
    return root


def _steps(feature: str) -> list[str]:
    """Part a feature; the step to a key begins with a point, every other with its own sign."""
    path, equals, word = feature.partition("=")
    parted = path.replace("[]", ".[]").replace(":", ".:").replace("{", ".{").split(".")
    steps = [step if step[0] in "[:{" else f".{step}" for step in parted]
    return [*steps, f"={word}"] if equals else steps


def _look(node: _Node, value: object, seen: set[str]) -> None:
    """Gather the features that are there."""
    if node.feature is not None:
        seen.add(node.feature)
    steps = node.steps
    if not steps:
        return
    if (mark := steps.get(_KINDS.get(type(value), ":number"))) is not None and mark.feature is not None:
        seen.add(mark.feature)
    if isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        for key, item in table.items():
            if (child := steps.get(f".{key}")) is not None:
                _look(child, item, seen)
        if len(table) == 1 and (child := steps.get(f"{{{next(iter(table))}}}")) is not None:
            _look(child, None, seen)
    elif isinstance(value, list):
        if (child := steps.get("[]")) is not None:
            for item in cast("Sequence[Any]", value):
                _look(child, item, seen)
    elif isinstance(value, str) and (child := steps.get(f"={value}")) is not None:
        _look(child, None, seen)


# -- judging --------------------------------------------------------------------------------------------------------


def _judge(table: _Table, seen: set[str], among: tuple[str, ...], *, whole: bool = True) -> dict[str, int]:
    """Count the contradictions of each wire that is not out."""
    weights = [(wires, _MARK if len(wires) == 1 else 1) for wires in map(table.features.get, seen) if wires is not None]
    scores: dict[str, int] = {}
    for wire in among:
        if any(seen.issuperset(required) for required in table.needs[wire]):
            missing = sum(feature not in seen for feature in table.usual.get(wire, ())) if whole else 0
            scores[wire] = missing + sum(weight for wires, weight in weights if wire not in wires)
    return scores


def _fewest(scores: dict[str, int], model: object) -> tuple[str, ...]:
    best = tuple(wire for wire in WIRES if scores.get(wire) == min(scores.values(), default=0))
    if len(best) > 1 and isinstance(model, str):
        for wire, pattern in _MODELS:
            if wire in best and re.match(pattern, model):
                return (wire,)
    return best


def request(body: dict[str, Any], among: tuple[str, ...] = WIRES) -> tuple[str, ...]:
    """Return the wires whose request this may be."""
    seen: set[str] = set()
    _look(_tree("request"), body, seen)
    return _fewest(_judge(_REQUEST, seen, among), body.get("model"))


def response(body: dict[str, Any], among: tuple[str, ...] = WIRES) -> tuple[str, ...]:
    """Return the wires whose response, or error, this may be."""
    seen: set[str] = set()
    _look(_tree("response"), body, seen)
    return _fewest(_judge(_RESPONSE, seen, among), body.get("model"))


def conversation(items: Sequence[Any], among: tuple[str, ...] = WIRES) -> tuple[str, ...]:
    """Return the wires whose list of messages this may be."""
    scores: dict[str, int] = {}
    for key, proofs in _BARE.items():
        if key == "messages" and not _mostly_with_roles(items):
            continue
        seen: set[str] = set()
        _look(_tree("request"), {key: items}, seen)
        if any(proof in seen for proof in proofs):
            scores |= _judge(_REQUEST, seen, among, whole=False)
    return _fewest(scores, None)


def _mostly_with_roles(items: Sequence[Any]) -> bool:
    """Whether more than half of a list has the field that every message has: events have it now and then."""
    return 2 * sum(isinstance(item, dict) and "role" in item for item in items) > len(items)


def detect(value: Any, among: tuple[str, ...] = WIRES) -> Detected | None:
    """Detect what a parsed JSON value is, among these wires; ``None`` when it belongs to none.

    Of an exchange, the wires are those of its request.
    """
    if isinstance(value, list):
        wires = conversation(cast("Sequence[Any]", value), among)
        return Detected("conversation", wires) if wires else None
    if not isinstance(value, dict):
        return None
    body = cast("dict[str, Any]", value)
    if _is_canonical(body):
        return Detected("canonical")
    if isinstance(body.get("request"), dict):
        wires = _of_exchange(body, among)
        return Detected("exchange", wires) if wires else None
    if wires := request(body, among):
        return Detected("request", wires)
    if wires := response(body, among):
        return Detected("response", wires)
    return None


def _is_canonical(body: dict[str, Any]) -> bool:
    tag = body.get("type")
    return (
        "palaver" in body
        or (tag in _CANONICAL_TAGS and ("messages" in body or "message" in body))
        or (tag is None and body.get("role") in _ROLE_NAMES and _is_message(body))
    )


def _is_message(body: dict[str, Any]) -> bool:
    """Whether an object has fields and parts of the canonical form only; a newer one has a header that says so."""
    content: object = body.get("content", "")
    if not _CANONICAL_KEYS.issuperset(body) or not isinstance(content, (str, list)):
        return False
    parts = cast("list[object]", content) if isinstance(content, list) else []
    tags = [cast("dict[str, Any]", part).get("type") if isinstance(part, dict) else None for part in parts]
    return all(tag in _CANONICAL_PARTS for tag in tags)


def _of_exchange(body: dict[str, Any], among: tuple[str, ...]) -> tuple[str, ...]:
    """Let the response decide where the request leaves it open; a recording may also name its wire."""
    wires = request(body["request"], among)
    if body.get("wire") in wires:
        return (body["wire"],)
    if isinstance(body.get("response"), dict):
        agreed = tuple(wire for wire in response(body["response"], among) if wire in wires)
        return agreed or wires
    return wires
