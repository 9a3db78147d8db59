"""An edit of a decoded request is in the body, nothing of the old value is, and everything else is equal."""

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, strategies as st
from msgspec import Raw, structs

import palaver as p
from palaver import wires
from tests.corpus import Exchange
from tests.wires.openai_responses.fixtures import REQUEST
from tests.wires.openai_responses.forms import normal

WIRE = wires.get("openai_responses")
NEW = "x-edited-json-x"  # which a request for JSON must say
ARGUMENTS = ("action", "arguments", "operation")
Edit = tuple[str, Callable[[], p.Request]]


def _edits(request: p.Request) -> Iterator[Edit]:
    """What can be edited, and the old value, which is unlike any other text of the body."""
    if request.model:
        yield request.model, lambda: request.replace(model=NEW)
    for index, tool in enumerate(request.tools):
        if isinstance(tool, p.Tool) and tool.description:
            tools = (*request.tools[:index], tool.replace(description=NEW), *request.tools[index + 1 :])
            yield tool.description, lambda tools=tools: request.replace(tools=tools)
    for at, message in enumerate(request.messages):
        for position, part in enumerate(message.content):
            for old, new in _edited(part):
                content: Any = (*message.content[:position], new, *message.content[position + 1 :])
                messages = (*request.messages[:at], message.replace(content=content), *request.messages[at + 1 :])
                yield old, lambda messages=messages: request.replace(messages=messages)


def _edited(part: Any) -> Iterator[tuple[str, Any]]:
    match part:
        case p.Text(text=str(old)) | p.Refusal(text=str(old)) if old:
            yield old, part.replace(text=NEW)
        case p.ToolCall(custom=False) if part.arguments_json and not part.provider_executed:
            yield part.arguments_json, part.replace(arguments_json=json.dumps({NEW: 1}))
        case p.Image(source=p.Url(url=old)):
            yield old, part.replace(source=p.Url(f"https://{NEW}.example"))
        case _:
            pass


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> dict[tuple[Any, ...], Any]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    whole = {path: value}
    found = {key: each for name, inner in pairs for key, each in _leaves(inner, (*path, name)).items()}
    return whole if path[-1:] and path[-1] in ARGUMENTS else found or whole


def _check(body: Any, old: str, edited: p.Request, *, bare: bool) -> None:
    changed = structs.replace(edited, original=None) if bare else edited
    encoded = WIRE.encode_request(changed, join_neighbors=False)
    before, after = _leaves(normal(body)), _leaves(normal(json.loads(encoded.body)))
    different = {path for path in before.keys() | after.keys() if before.get(path, ()) != after.get(path, ())}
    assert len(different) == 1, different
    (path,) = different
    assert NEW in str(after[path])
    assert old not in str(after[path])
    assert encoded.losses == ()


@pytest.mark.law(2)
@pytest.mark.parametrize("bare", [False, True])
@given(seed=st.integers(0, 2**32))
def test_one_edit_changes_one_value(bare: bool, seed: int) -> None:
    edits = list(_edits(WIRE.decode_request(REQUEST)))
    old, edit = random.Random(seed).choice(edits)
    _check(REQUEST, old, edit(), bare=bare)


@pytest.mark.law(2)
@pytest.mark.recorded("openai_responses")
def test_one_edit_of_a_recorded_request_changes_one_value(exchange: Exchange) -> None:
    if exchange.record["status"] >= 400:
        return
    body = exchange.record["request"]
    for old, edit in _edits(WIRE.decode_request(body)):
        _check(body, old, edit(), bare=False)


def test_an_edit_wins_over_a_null_beside_it() -> None:
    call = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": None}
    body = {
        "model": "m",
        "input": [{"role": "user", "content": "hi"}, call],
        "reasoning": {"effort": None, "summary": "auto"},
        "tools": [{"type": "function", "name": "f", "parameters": {}, "strict": None}],
    }
    request = WIRE.decode_request(body)
    answer = request.messages[1]
    part = answer.content[0]
    assert isinstance(part, p.ToolCall)
    tool = request.tools[0]
    assert isinstance(tool, p.Tool)
    edited = request.replace(
        messages=(request.messages[0], answer.replace(content=(part.replace(arguments_json='{"query":"q"}'),))),
        tools=(tool.replace(strict=True),),
        settings=structs.replace(request.settings, effort="low"),
    )
    found = json.loads(WIRE.encode_request(edited).body)
    assert found["input"][1]["action"] == {"query": "q"}
    assert found["tools"][0]["strict"] is True
    assert found["reasoning"] == {"effort": "low", "summary": "auto"}


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "function", "name": "f", "x": 1},
        {"type": "custom", "name": "elsewhere"},
        {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "custom", "name": "f", "x": 1}], "y": 2},
    ],
)
def test_a_tool_choice_keeps_what_stands_beside_its_meaning(choice: Any) -> None:
    body = {"input": "hi", "tools": [{"type": "function", "name": "f"}], "tool_choice": choice}
    request = WIRE.decode_request(body)
    assert request.settings.tool_choice is not None
    bare = json.loads(WIRE.encode_request(structs.replace(request, original=None)).body)
    assert bare["tool_choice"] == choice
    new = structs.replace(request.settings, tool_choice=p.ToolChoice("none"))
    assert json.loads(WIRE.encode_request(request.replace(settings=new)).body)["tool_choice"] == "none"


def test_an_unknown_field_may_be_named_none() -> None:
    """A shape without a word has no field of that name."""
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "None": 1}
    request = WIRE.decode_request({"input": [call]})
    assert request.messages[0].content[0].provider_json == Raw(b'{"openai_responses":{"None":1}}')
