"""Rules of `google_generate`.

`models/{model}:generateContent` (docs/spec/wires.md#5), in camelCase and in snake_case.

- Both spellings are read; a body that holds one field in both is refused. Paths in violations are
  camelCase.
- The first content is user. Adjoining contents of one role are one turn.
- The content after a turn with function calls holds as many function responses as there were calls,
  with the same ids, or with the same names in order when ids are absent; and nothing else. A
  function response answers such a turn.
- A part has one data field. Arguments and responses are objects. Names are 1-128 of
  `[a-zA-Z0-9_.:-]`, starting with a letter or `_`.
- A calling config needs function declarations; `allowedFunctionNames` does not go with `AUTO`;
  `parameters` and `parametersJsonSchema` exclude each other; `cachedContent` replaces tools, tool
  config and system instruction.

Variant `gemini-3`: the first call of each model turn since the last user message carries a
`thoughtSignature`.

What recorded traffic says
- Calls spread over two adjoining model contents are accepted when one user content answers all of
  them: calls are counted by turn, not by content.
- A calling config without function declarations is accepted with mode `AUTO` beside
  `includeServerSideToolInvocations` and a Google tool, against docs/spec/wires.md#5.2.8: that combination is
  exempt.
- Empty `text` parts are accepted in both roles.

Not checkable from a body: whether a signature moved (5.2.4), whether a call came from elsewhere
(5.2.5), the model's generation (5.2.7). Whether thought text without a signature
(5.2.6) is refused is not said, so it is not checked.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Iterator

from palaver.testing.rules.google_shapes import (
    DATA_FIELDS,
    MARKS,
    OPAQUE,
    REQUEST,
    RESPONSE,
    SPELLINGS,
)
from palaver.testing.rules.order import Finding, Placed, Turn, inside, objects, rule, string, turns
from palaver.testing.rules.violation import Body, Fields, Json, Rule, Violation, check, parse

_SPELLED_TWICE = "docs/spec/wires.md#5"


def camel(value: Json, where: str, clashes: list[Violation]) -> Json:
    """Return a value with known fields spelled in camelCase; free-form objects are left alone.

    Stability: experimental.
    """
    if isinstance(value, list):
        return [camel(item, f"{where}[{index}]", clashes) for index, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    spelled: Fields = {}
    for key, item in value.items():
        name = SPELLINGS.get(key, key)
        place = f"{where}.{name}" if where else name
        if name in spelled:
            clashes.append(Violation(place, _SPELLED_TWICE, "the field is there in both spellings"))
        spelled[name] = item if name in OPAQUE else camel(item, place, clashes)
    return spelled


def _contents(body: Fields) -> list[Placed]:
    return objects(body.get("contents"), "contents")


def _turns(body: Fields) -> list[Turn]:
    return turns(_contents(body), "parts")


def _data(parts: list[Placed], key: str) -> list[Placed]:
    return [(where, inside(part, key)) for where, part in parts if isinstance(part.get(key), dict)]


def _parts(content: Placed) -> list[Placed]:
    return objects(content[1].get("parts"), f"{content[0]}.parts")


@rule("docs/spec/wires.md#5.1")
def parts_have_one_datum(body: Fields) -> Iterator[Finding]:
    """Exactly one data field beside the marks; a part with an unknown field may have none."""
    for content in _contents(body):
        for where, part in _parts(content):
            data = DATA_FIELDS & part.keys()
            if len(data) > 1:
                yield where, f"has {', '.join(sorted(data))}"
            elif not data and not part.keys() - MARKS:
                yield where, "has no data field"


@rule("docs/spec/wires.md#5.2.1")
def first_content_is_user(body: Fields) -> Iterator[Finding]:
    """A conversation starts with the user."""
    for where, content in _contents(body)[:1]:
        if content.get("role") == "model":
            yield f"{where}.role", "the first content is not user"


def _keys(blocks: list[Placed], field: str) -> list[str]:
    return [string(block, field) or "" for _, block in blocks]


@rule("docs/spec/wires.md#5.2.2")
def calls_are_answered_next(body: Fields) -> Iterator[Finding]:
    """As many function responses as calls, in the next content.

    Seen in google-gemini/gemini-cli#4217, #3814, #21830.
    """
    all_turns = _turns(body)
    for index, turn in enumerate(all_turns):
        calls = _data(turn.blocks, "functionCall")
        if not calls or turn.role != "model":
            continue
        after = all_turns[index + 1].messages[0] if index + 1 < len(all_turns) else None
        responses = _data(_parts(after), "functionResponse") if after else []
        call_ids, response_ids = _keys(calls, "id"), _keys(responses, "id")
        if len(responses) != len(calls):
            yield calls[0][0], f"{len(calls)} calls, {len(responses)} responses in the next content"
        elif all(call_ids) and all(response_ids):
            if sorted(call_ids) != sorted(response_ids):
                yield responses[0][0], "the ids of calls and responses differ"
        elif _keys(calls, "name") != _keys(responses, "name"):
            yield responses[0][0], "without ids, responses stand in the order of the calls"


@rule("docs/spec/wires.md#5.2.2")
def responses_have_calls(body: Fields) -> Iterator[Finding]:
    """A function response stands in the first content after a turn with calls."""
    before: Turn | None = None
    for turn in _turns(body):
        expected = before is not None and before.role == "model" and _data(before.blocks, "functionCall")
        for index, content in enumerate(turn.messages):
            for where, _response in _data(_parts(content), "functionResponse"):
                if not expected or index:
                    yield where, "no function call turn directly before"
        before = turn


@rule("docs/spec/wires.md#5.2.3")
def responses_stand_alone(body: Fields) -> Iterator[Finding]:
    """Function responses and other parts do not share a content."""
    for content in _contents(body):
        parts = _parts(content)
        responses = [part for _, part in parts if "functionResponse" in part]
        if responses and len(responses) < len(parts):
            yield content[0], "function responses beside other parts"


@rule("docs/spec/wires.md#5.2.4")
def first_calls_are_signed(body: Fields) -> Iterator[Finding]:
    """`Function call is missing a thought_signature`.

    Seen in langgenius/dify-official-plugins#2088, nearai/ironclaw#1510.
    """
    for turn in reversed(_turns(body)):
        if turn.role == "user" and any("functionResponse" not in part for _, part in turn.blocks):
            break
        calls = [(where, part) for where, part in turn.blocks if "functionCall" in part]
        if calls and not string(calls[0][1], "thoughtSignature"):
            yield calls[0][0], "the first call of a turn has no thoughtSignature"


def _declarations(body: Fields) -> list[Placed]:
    tools = body.get("tools")
    listed: list[Placed] = [("tools", tools)] if isinstance(tools, dict) else objects(tools, "tools")
    return [
        declaration
        for where, tool in listed
        for declaration in objects(tool.get("functionDeclarations"), f"{where}.functionDeclarations")
    ]


@rule("docs/spec/wires.md#5.2.8")
def config_needs_declarations(body: Fields) -> Iterator[Finding]:
    """A calling config without function declarations is refused; see the exemption above."""
    config = inside(body, "toolConfig", "functionCallingConfig")
    server_side = inside(body, "toolConfig").get("includeServerSideToolInvocations") is True
    exempt = server_side and config.get("mode") == "AUTO"
    if config and not exempt and not _declarations(body):
        yield "toolConfig.functionCallingConfig", "there are no function declarations"


@rule("docs/spec/wires.md#5.2.8")
def names_do_not_go_with_auto(body: Fields) -> Iterator[Finding]:
    """`allowedFunctionNames` goes with the modes that call."""
    config = inside(body, "toolConfig", "functionCallingConfig")
    if config.get("mode") == "AUTO" and config.get("allowedFunctionNames"):
        yield "toolConfig.functionCallingConfig.allowedFunctionNames", "does not go with AUTO"


@rule("docs/spec/wires.md#5.2.8")
def one_schema_each(body: Fields) -> Iterator[Finding]:
    """`parameters` and `parametersJsonSchema` exclude each other."""
    for where, declaration in _declarations(body):
        if declaration.get("parameters") is not None and declaration.get("parametersJsonSchema") is not None:
            yield where, "parameters beside parametersJsonSchema"


@rule("docs/spec/wires.md#5.2.9")
def cache_holds_the_setup(body: Fields) -> Iterator[Finding]:
    """With `cachedContent` there are no tools, tool config and system instruction."""
    if body.get("cachedContent") is not None:
        for key in ("tools", "toolConfig", "systemInstruction"):
            if body.get(key) is not None:
                yield key, "must be absent beside cachedContent"


@rule("docs/spec/wires.md#1.2")
def usage_adds_up(body: Fields) -> Iterator[Finding]:
    """Total is prompt, candidates, thoughts and tool use prompt together."""
    usage = inside(body, "usageMetadata")
    keys = (
        "promptTokenCount",
        "candidatesTokenCount",
        "thoughtsTokenCount",
        "toolUsePromptTokenCount",
    )
    parts = [value for key in keys if isinstance(value := usage.get(key), int)]
    total = usage.get("totalTokenCount")
    if isinstance(total, int) and sum(parts) != total:
        yield "usageMetadata.totalTokenCount", f"{total} is not the sum {sum(parts)}"


SHARED: tuple[Rule, ...] = (
    parts_have_one_datum,
    first_content_is_user,
    calls_are_answered_next,
    responses_have_calls,
    responses_stand_alone,
    config_needs_declarations,
    names_do_not_go_with_auto,
    one_schema_each,
    cache_holds_the_setup,
)
VARIANTS: dict[str, tuple[Rule, ...]] = {"gemini-3": (first_calls_are_signed,)}
RESPONSE_RULES: tuple[Rule, ...] = (usage_adds_up,)


def check_request(body: Body, variant: str | None = None) -> list[Violation]:
    """Return what the provider would refuse in a request (docs/spec/wires.md#5.1, #5.2).

    Stability: experimental.
    """
    value = parse(body)
    if not isinstance(value, dict):
        return check(body, REQUEST, ())
    clashes: list[Violation] = []
    spelled = camel(value, "", clashes)
    request = spelled if isinstance(spelled, dict) else {}
    return clashes + check(request, REQUEST, SHARED + VARIANTS.get(variant or "", ()))


def check_response(body: Body) -> list[Violation]:
    """Return where a reply is not a generate-content response (docs/spec/wires.md#5.3).

    Stability: experimental.
    """
    return check(body, RESPONSE, RESPONSE_RULES)
