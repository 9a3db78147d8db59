"""Law 2 and law 6 over bodies written by hand, and everything that can be done to them."""

from __future__ import annotations

import copy
import json
import random
import re
from typing import Any

import pytest
from hypothesis import given, strategies as st
from msgspec import structs

import palaver as p
from palaver import wires
from tests.wires.google_generate.bodies import REQUEST, RESPONSE, objects, snake
from tests.wires.google_generate.forms import normal

WIRE = wires.get("google_generate")
SIDES = {"request": REQUEST, "response": RESPONSE}
SPELLINGS = {"camel": 0, "snake": 1, "every other": 2, "every third": 3}


def exact(value: Any) -> Any:
    """A form in which 1, 1.0 and true differ."""
    if isinstance(value, dict):
        return {key: exact(each) for key, each in value.items()}
    if isinstance(value, list):
        return [exact(each) for each in value]
    return (type(value).__name__, value)


def round_trip(what: str, value: Any) -> None:
    """Law 2, with the bytes and without them."""
    data = json.dumps(value).encode()
    decoded = getattr(WIRE, f"decode_{what}")(data)
    encode = getattr(WIRE, f"encode_{what}")
    encoded = encode(decoded)
    assert encoded.body == data
    assert encoded.losses == ()
    bare = encode(structs.replace(decoded, original=None))
    assert exact(normal(json.loads(bare.body))) == exact(normal(value))
    assert bare.losses == ()


@pytest.mark.law(2)
@pytest.mark.parametrize("every", SPELLINGS.values(), ids=SPELLINGS)
@pytest.mark.parametrize("what", SIDES)
def test_a_rich_body_is_written_as_it_was(what: str, every: int) -> None:
    value = snake(SIDES[what], every=every) if every else SIDES[what]
    round_trip(what, value)


def spots(value: Any) -> list[tuple[Any, Any]]:
    """Every place in the provider's own part of a body."""
    pairs: list[tuple[Any, Any]] = []
    for node in objects(value):
        pairs += [(node, key) for key in (node if isinstance(node, dict) else range(len(node)))]
    return pairs


ODD = (None, True, False, 7, 2.5, "", "odd", [], {}, [None], {"text": "odd"}, [[1]], "\ud800", 10**30)


def changed(value: Any, rng: random.Random) -> None:
    """Do one thing to a body: rename, respell, add, delete, retype, reorder."""
    node, key = rng.choice(spots(value))
    action = rng.randrange(6)
    if action == 0:
        node[key] = copy.deepcopy(rng.choice(ODD))
    elif action == 1:
        del node[key]
    elif action == 2 and isinstance(node, dict):
        node[f"{key}X"] = node.pop(key)
    elif action == 3 and isinstance(node, dict):
        node[re.sub(r"(?=[A-Z])", "_", key).lower()] = node.pop(key)
    elif action == 4 and isinstance(node, dict):
        node["unheardOf"] = {"deep": [1.0, None]}
    elif isinstance(node, list):
        node.insert(0, copy.deepcopy(rng.choice(node)))
    else:
        node[re.sub(r"(?=[A-Z])", "_", key).lower()] = copy.deepcopy(rng.choice([node[key], *ODD]))


@pytest.mark.law(2)
@pytest.mark.law(6)
@pytest.mark.parametrize("what", SIDES)
@given(seed=st.integers(0, 10**9), times=st.integers(1, 4), every=st.integers(0, 3))
def test_what_can_be_read_is_written_as_it_was(what: str, seed: int, times: int, every: int) -> None:
    """docs/spec/pains.md#9: keys and types that nobody has heard of survive, wherever they stand."""
    rng = random.Random(seed)
    value = snake(SIDES[what], every=every) if every else copy.deepcopy(SIDES[what])
    for _ in range(times):
        changed(value, rng)
    try:
        getattr(WIRE, f"decode_{what}")(json.dumps(value).encode())
    except p.DecodeError as error:
        named = error.source == "google_generate"
    except p.ProviderError:
        named = True
    else:
        round_trip(what, value)
        return
    assert named


@pytest.mark.law(6)
@given(seed=st.integers(0, 10**9), times=st.integers(1, 4))
def test_a_changed_request_can_be_edited_and_handed_over(seed: int, times: int) -> None:
    rng = random.Random(seed)
    value = copy.deepcopy(REQUEST)
    for _ in range(times):
        changed(value, rng)
    try:
        request = WIRE.decode_request(json.dumps(value).encode())
    except p.PalaverError:
        return
    for target in wires.names():
        json.loads(wires.get(target).encode_request(request.replace()).body)


# -- edits -----------------------------------------------------------------------------------------

NEW = "An edit that nobody wrote before."


def edited(request: p.Request, place: int, at: int) -> tuple[p.Request, Any, Any] | None:
    """Edit one part: the request, what the part said, and what it says now. ``None`` for a part of another kind."""
    message = request.messages[place]
    part = message.content[at]
    match part:
        case p.Text(text=before) | p.Reasoning(text=before):
            new, after = structs.replace(part, text=NEW), NEW
        case p.ToolCall(provider_executed=False):
            before, after = json.loads(part.arguments_json or "{}"), {"edited": NEW}
            new = part.replace(arguments=after)
        case p.Json(value=before):
            after = {"edited": NEW}
            new = part.replace(value=after)
        case _:
            return None
    content = (*message.content[:at], new, *message.content[at + 1 :])
    messages = (*request.messages[:place], structs.replace(message, content=content), *request.messages[place + 1 :])
    return structs.replace(request, messages=messages), before, after


def said(value: Any, before: Any, after: Any) -> tuple[Any, int]:
    """A body that says one thing instead of another, and how often it did."""
    if exact(value) == exact(before):
        return after, 1
    found: dict[Any, tuple[Any, int]] = {}
    if isinstance(value, (dict, list)):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        found = {key: said(each, before, after) for key, each in pairs}
    new = {key: each for key, (each, _) in found.items()}
    count = sum(times for _, times in found.values())
    return (new if isinstance(value, dict) else list(new.values()) if isinstance(value, list) else value), count


@pytest.mark.law(2)
@given(seed=st.integers(0, 10**9), times=st.integers(0, 3), every=st.integers(0, 3))
def test_an_edited_part_is_all_that_changes(seed: int, times: int, every: int) -> None:
    rng = random.Random(seed)
    value = snake(REQUEST, every=every) if every else copy.deepcopy(REQUEST)
    for _ in range(times):
        changed(value, rng)
    try:
        request = WIRE.decode_request(json.dumps(value))
    except p.PalaverError:
        return
    places = [(place, at) for place, message in enumerate(request.messages) for at in range(len(message.content))]
    for place, at in rng.sample(places, min(4, len(places))):
        found = edited(request, place, at)
        if found is None:
            continue
        now, before, after = found
        expected, count = said(value, before, after)
        if count == 1:
            body = WIRE.encode_request(now).body
            assert exact(normal(json.loads(body))) == exact(normal(expected))
            assert exact(normal(json.loads(WIRE.encode_request(structs.replace(now, original=None)).body))) == (
                exact(normal(expected))
            )


@pytest.mark.law(2)
@pytest.mark.parametrize("every", SPELLINGS.values(), ids=SPELLINGS)
def test_edited_settings_tools_and_models_are_all_that_changes(every: int) -> None:
    value = snake(REQUEST, every=every) if every else REQUEST
    request = WIRE.decode_request({**value, "model": "models/one"})
    tool = request.tools[1]
    assert isinstance(tool, p.Tool)
    tools = (request.tools[0], tool.replace(description=NEW), *request.tools[2:])
    settings = structs.replace(request.settings, max_tokens=77, effort="high")
    now = structs.replace(request, model="models/two", tools=tools, settings=settings)
    expected: Any = {**value, "model": "models/two"}
    for before, after in ((100, 77), ("low", "HIGH"), ("Waits.", NEW)):
        expected, count = said(expected, before, after)
        assert count == 1
    for each in (now, structs.replace(now, original=None)):
        assert exact(normal(json.loads(WIRE.encode_request(each).body))) == exact(normal(expected))
