"""Rules of `anthropic_messages`: `POST /v1/messages` (docs/spec/wires.md#4).

- `model`, `max_tokens` and `messages` are required; every known block has its fields and stands in
  its role.
- A run of messages of one role is one turn (the server merges it). The calls of an assistant turn
  are answered in the very next turn, role user, one result for each id, results before anything
  else; no result without such a call.
- With `thinking: enabled` the assistant turn of an open tool loop starts with thinking, and no tool
  choice is forced. Thinking without a signature is refused.
- No empty or white text; no user message and no assistant message but a last one without content; a
  last assistant message does not end in white space.
- At most four cache marks, the top-level one included; none on thinking.
- A `system` message stands after a user turn (or an assistant turn that ends in a server tool's
  result) and before an assistant turn or the end. Tools that it adds or removes, and tool
  references, are declared; not every tool is deferred.
- Server tool calls and results pair; a call may stay open in the last turn, or when only tool
  results follow.

Variant `claude-3`: the first message is user (docs/spec/wires.md#4.3.13, unverified for current models and so
no shared rule; older reports are lobehub/lobehub#1601 and langchain4j/langchain4j#1197).

What recorded traffic says
- Calls spread over two adjoining assistant messages are accepted when one user message answers all
  of them.
- Two `system` messages in a row, after two `user` messages, are accepted: position is a matter of
  turns.
- An `mcp_tool_use` without result is accepted before a message of tool results only (4.3.11 holds
  for it too).
- 4.3.5 is stricter than a public probe of the API: white text beside other blocks, and
  `tool_result.content: []`, were measured as accepted (experientiallabs/experiential#804). No
  recorded request holds either, so the specification stands; text inside a tool result is not
  checked, as the specification does not speak of it.
- Not checkable from a body: 4.3.3 (unmodified thinking), 4.3.6 (models without prefill), 4.3.12 (a
  matter of cost).

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Iterator

from palaver.testing.rules.anthropic_shapes import PLACES, REQUEST, RESPONSE, SERVER_CALLS
from palaver.testing.rules.order import (
    Finding,
    Placed,
    Turn,
    blank,
    inside,
    objects,
    rule,
    string,
    turns,
)
from palaver.testing.rules.violation import Body, Fields, Json, Rule, Violation, check

_THINKING = ("thinking", "redacted_thinking")
MOST_MARKS = 4


def _messages(body: Fields) -> list[Placed]:
    return objects(body.get("messages"), "messages")


def _turns(body: Fields) -> list[Turn]:
    return turns(_messages(body), "content")


def _of(turn: Turn, kind: str) -> list[Placed]:
    return [(where, block) for where, block in turn.blocks if block.get("type") == kind]


def _ids(blocks: list[Placed], key: str) -> dict[str, str]:
    return {found: where for where, block in blocks if (found := string(block, key)) is not None}


@rule("docs/spec/wires.md#4.1")
def blocks_stand_where_they_may(body: Fields) -> Iterator[Finding]:
    """Calls, thinking and server blocks belong to assistants, results and media to users."""
    for where, message in _messages(body):
        role = string(message, "role") or ""
        for place, block in objects(message.get("content"), f"{where}.content"):
            kind = string(block, "type") or ""
            if role not in PLACES.get(kind, {role}):
                yield place, f"{kind} in a {role} message"


@rule("docs/spec/wires.md#4.3.1")
def calls_are_answered_next(body: Fields) -> Iterator[Finding]:
    """The next turn has one result for each call (anthropics/claude-code#1686, #5375)."""
    all_turns = _turns(body)
    for index, turn in enumerate(all_turns):
        calls = _of(turn, "tool_use")
        after = all_turns[index + 1] if index + 1 < len(all_turns) else None
        results = _ids(_of(after, "tool_result"), "tool_use_id") if after and after.role == "user" else {}
        for call_id, where in _ids(calls, "id").items():
            if call_id not in results:
                yield where, f"tool_use {call_id!r} has no tool_result in the next turn"
        if len(_ids(calls, "id")) < len(calls):
            yield turn.where, "two tool_use blocks share an id"


@rule("docs/spec/wires.md#4.3.1")
def results_have_calls(body: Fields) -> Iterator[Finding]:
    """`unexpected tool_use_id found in tool_result blocks`; one result for each id."""
    before: Turn | None = None
    for turn in _turns(body):
        calls = _ids(_of(before, "tool_use"), "id") if before else {}
        for where, result in _of(turn, "tool_result"):
            call_id = string(result, "tool_use_id")
            if call_id is not None and calls.pop(call_id, None) is None:
                yield where, f"tool_result {call_id!r} answers no open tool_use of the turn before"
        before = turn


@rule("docs/spec/wires.md#4.3.1")
def results_come_first(body: Fields) -> Iterator[Finding]:
    """Results stand before text and media of their turn."""
    for turn in _turns(body):
        seen_other = False
        for where, block in turn.blocks:
            if block.get("type") != "tool_result":
                seen_other = True
            elif seen_other:
                yield where, "tool_result after another block"


@rule("docs/spec/wires.md#1.5")
def thinking_is_signed(body: Fields) -> Iterator[Finding]:
    """An empty signature, as an interrupted stream leaves it, is not valid on replay."""
    for turn in _turns(body):
        for where, block in _of(turn, "thinking"):
            if block.get("signature") == "":
                yield f"{where}.signature", "empty"


@rule("docs/spec/wires.md#4.3.4")
def tool_loop_starts_with_thinking(body: Fields) -> Iterator[Finding]:
    """`Expected thinking or redacted_thinking, but found tool_use`.

    Seen in pydantic/pydantic-ai#2075, n8n-io/n8n#22550.
    """
    if inside(body, "thinking").get("type") != "enabled":
        return
    loop: list[Turn] = []
    for turn in reversed([turn for turn in _turns(body) if turn.role != "system"]):
        if turn.role == "user" and not _of(turn, "tool_result"):
            break
        loop.append(turn)
    assistants = [turn for turn in reversed(loop) if turn.role == "assistant"]
    in_loop = bool(loop) and loop[0].role == "user"
    if in_loop and assistants and assistants[0].blocks:
        where, first = assistants[0].blocks[0]
        if first.get("type") not in _THINKING:
            yield where, f"the turn of an open tool loop starts with {first.get('type')}"


@rule("docs/spec/wires.md#4.3.5")
def text_is_not_blank(body: Fields) -> Iterator[Finding]:
    """`text content blocks must be non-empty`.

    Seen in anthropics/anthropic-sdk-python#461, anthropics/claude-code#59812.
    """
    placed = objects(body.get("system"), "system")
    for where, message in _messages(body):
        placed += objects(message.get("content"), f"{where}.content")
    for where, block in placed:
        text = string(block, "text")
        if block.get("type") == "text" and text is not None and blank(text):
            yield f"{where}.text", "blank"


@rule("docs/spec/wires.md#4.3.5")
def messages_are_not_empty(body: Fields) -> Iterator[Finding]:
    """A message without content is refused, but for a last assistant message.

    An empty result is `""`, not `[]`.
    """
    messages = _messages(body)
    for index, (where, message) in enumerate(messages):
        content = message.get("content")
        last_word = message.get("role") == "assistant" and index == len(messages) - 1
        if not last_word and (content == [] or (isinstance(content, str) and blank(content))):
            yield f"{where}.content", "empty"
        for place, block in objects(content, f"{where}.content"):
            if block.get("type") == "tool_result" and block.get("content") == []:
                yield f"{place}.content", "empty array; leave it out or send an empty string"


@rule("docs/spec/wires.md#4.3.6")
def prefill_does_not_end_in_space(body: Fields) -> Iterator[Finding]:
    """A final assistant message must not end in white space."""
    for where, message in _messages(body)[-1:]:
        content = message.get("content")
        blocks = objects(content, f"{where}.content")
        last = content if isinstance(content, str) else string(blocks[-1][1], "text") if blocks else None
        if message.get("role") == "assistant" and last and not blank(last) and last != last.rstrip():
            yield f"{where}.content", "the final assistant text ends in white space"


def _marks(value: Json, where: str) -> Iterator[Finding]:
    for place, item in objects(value, where):
        if item.get("cache_control") is not None:
            yield place, str(item.get("type"))
        yield from _marks(item.get("content"), f"{place}.content")


@rule("docs/spec/wires.md#4.3.7")
def few_cache_marks(body: Fields) -> Iterator[Finding]:
    """At most four marks, three with the top-level one; none on thinking."""
    marks: list[Finding] = [("cache_control", "top level")] if body.get("cache_control") is not None else []
    for key in ("tools", "system", "messages"):
        marks += _marks(body.get(key), key)
    if len(marks) > MOST_MARKS:
        yield marks[MOST_MARKS][0], f"{len(marks)} cache marks"
    for where, kind in marks:
        if kind in _THINKING:
            yield where, f"cache mark on {kind}"


@rule("docs/spec/wires.md#4.3.8")
def no_forced_choice_while_thinking(body: Fields) -> Iterator[Finding]:
    """`any` and `tool` do not go with `thinking: enabled`."""
    if inside(body, "thinking").get("type") == "enabled" and inside(body, "tool_choice").get("type") in ("any", "tool"):
        yield "tool_choice", "forced while thinking is enabled"


@rule("docs/spec/wires.md#4.3.9")
def system_messages_stand_between(body: Fields) -> Iterator[Finding]:
    """After a user turn or a server result, and before an assistant turn or the end."""
    all_turns = _turns(body)
    for index, turn in enumerate(all_turns):
        if turn.role != "system":
            continue
        before = all_turns[index - 1] if index else None
        served = before and before.role == "assistant" and before.blocks and _is_server_result(before.blocks[-1][1])
        if before is None or (before.role != "user" and not served):
            yield turn.where, "system message not after a user turn"
        if index + 1 < len(all_turns) and all_turns[index + 1].role != "assistant":
            yield turn.where, "system message not before an assistant turn or the end"


def _references(value: Json, where: str) -> Iterator[tuple[str, str]]:
    for place, block in objects(value, where):
        kind = block.get("type")
        name = string(block, "tool_name") if kind == "tool_reference" else string(inside(block, "tool"), "name")
        if kind in ("tool_reference", "tool_addition", "tool_removal") and name is not None:
            yield place, name
        content = block.get("content")
        yield from _references(content, f"{place}.content")
        if isinstance(content, dict):
            yield from _references(content.get("tool_references"), f"{place}.content.tool_references")


@rule("docs/spec/wires.md#4.3.10")
def referenced_tools_are_declared(body: Fields) -> Iterator[Finding]:
    """`references unknown tool`; a toolset declares tools that the body does not name."""
    tools = [tool for _, tool in objects(body.get("tools"), "tools")]
    if any("toolset" in (string(tool, "type") or "") for tool in tools) or body.get("mcp_servers"):
        return
    names = {string(tool, "name") for tool in tools}
    for where, name in _references(body.get("messages"), "messages"):
        if name not in names:
            yield where, f"references unknown tool {name!r}"


@rule("docs/spec/wires.md#4.3.10")
def not_every_tool_is_deferred(body: Fields) -> Iterator[Finding]:
    """At least one tool is loaded from the start."""
    tools = objects(body.get("tools"), "tools")
    if tools and all(tool.get("defer_loading") is True for _, tool in tools):
        yield "tools", "every tool has defer_loading"


def _is_server_result(block: Fields) -> bool:
    kind = string(block, "type") or ""
    return kind.endswith("_tool_result") and kind != "tool_result"


@rule("docs/spec/wires.md#4.3.11")
def server_calls_pair(body: Fields) -> Iterator[Finding]:
    """A call is answered in its own or a later assistant turn, and no result lacks a call.

    A paused call, in the last turn, may stay open; so may one before a turn of tool results only.
    """
    all_turns = _turns(body)
    results = [
        (index, string(block, "tool_use_id"))
        for index, turn in enumerate(all_turns)
        for _, block in turn.blocks
        if turn.role == "assistant" and _is_server_result(block)
    ]
    calls: set[str | None] = set()
    for index, turn in enumerate(all_turns):
        for where, block in turn.blocks:
            call_id = string(block, "id" if block.get("type") in SERVER_CALLS else "tool_use_id")
            if block.get("type") in SERVER_CALLS:
                calls.add(call_id)
                after = all_turns[index + 1].blocks if index + 1 < len(all_turns) else []
                waits = all(later.get("type") == "tool_result" for _, later in after)
                if not waits and not any(at >= index and found == call_id for at, found in results):
                    yield where, f"server call {call_id!r} has no result"
            elif _is_server_result(block) and call_id not in calls:
                yield where, f"server result {call_id!r} has no call"


@rule("docs/spec/wires.md#4.3.11")
def advisor_is_declared(body: Fields) -> Iterator[Finding]:
    """Advisor blocks in history need the advisor tool."""
    tools = objects(body.get("tools"), "tools")
    if any((string(tool, "type") or "").startswith("advisor_") for _, tool in tools):
        return
    for turn in _turns(body):
        for where, block in turn.blocks:
            called = block.get("type") == "server_tool_use" and block.get("name") == "advisor"
            if called or block.get("type") == "advisor_tool_result":
                yield where, "the advisor tool is not declared"


@rule("docs/spec/wires.md#4.3.13")
def first_message_is_user(body: Fields) -> Iterator[Finding]:
    """`messages: first message must use the "user" role` (older models)."""
    for where, message in _messages(body)[:1]:
        if message.get("role") != "user":
            yield f"{where}.role", "the first message is not user"


SHARED: tuple[Rule, ...] = (
    blocks_stand_where_they_may,
    calls_are_answered_next,
    results_have_calls,
    results_come_first,
    thinking_is_signed,
    tool_loop_starts_with_thinking,
    text_is_not_blank,
    messages_are_not_empty,
    prefill_does_not_end_in_space,
    few_cache_marks,
    no_forced_choice_while_thinking,
    system_messages_stand_between,
    referenced_tools_are_declared,
    not_every_tool_is_deferred,
    server_calls_pair,
    advisor_is_declared,
)
VARIANTS: dict[str, tuple[Rule, ...]] = {"claude-3": (first_message_is_user,)}


def check_request(body: Body, variant: str | None = None) -> list[Violation]:
    """Return what the provider would refuse in a request (docs/spec/wires.md#4.1-4.3).

    Stability: experimental.
    """
    return check(body, REQUEST, SHARED + VARIANTS.get(variant or "", ()))


def check_response(body: Body) -> list[Violation]:
    """Return where a reply is not a message (docs/spec/wires.md#4.1, #4.4).

    Stability: experimental.
    """
    return check(body, RESPONSE, ())
