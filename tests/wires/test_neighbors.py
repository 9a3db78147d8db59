"""Neighbouring messages of one role: which are joined, and what is left of them.

Source: docs/spec/codebuff.md#2.2, docs/adr/0030-where-neighbours-are-joined.md.
"""

# pyright: basic, reportCallIssue=false

from __future__ import annotations

import json
from typing import Any

import pytest

import palaver as p
from palaver import wires
from palaver.threads.view import EXPIRES_AGENT_STEP

LIST = {"openai_responses": "input", "google_generate": "contents"}
JOINS = ("openai_chat", "openai_responses", "cohere_chat", "ollama_chat")
"""Wires that join messages that are alike. Bedrock joins all, Anthropic and Google none: their services do."""
PICTURE = p.Image(p.Inline("aGk="), "image/png")


def sent(wire: str, *messages: p.Message, **fields: Any) -> list[dict[str, Any]]:
    encoded = wires.get(wire).encode_request(p.Request(messages=messages, model="m", **fields))
    assert [loss for loss in encoded.losses if loss.message is not None] == []
    items: list[dict[str, Any]] = json.loads(bytes(encoded.body))[LIST.get(wire, "messages")]
    return items


def texts(item: dict[str, Any]) -> list[str]:
    content = item["parts"] if "parts" in item else item["content"]
    return [content] if isinstance(content, str) else [part["text"] for part in content]


ALIKE = {
    "plain": ({}, {}),
    "ids and times": ({"id": "a", "sent_at": 1}, {"id": "b", "sent_at": 2}),
    "tags": ({"tags": ("t",)}, {"tags": ("t",)}),
    "lifetime": ({"tags": (EXPIRES_AGENT_STEP,)}, {"tags": (EXPIRES_AGENT_STEP,)}),
    "metadata": ({"metadata": {"a": 1}}, {}),
    "payload": ({"payload": 1}, {}),
    "mode": ({"mode": "user"}, {"mode": "tool"}),
    "source": ({"source": "a"}, {"source": "b"}),
    "verbatim": ({"verbatim": True}, {}),
    "bookkeeping": ({"provider": {"@store": {"a": 1}}}, {}),
}
UNLIKE = {
    "tags": ({"tags": ("t",)}, {}),
    "order of tags": ({"tags": ("t", "u")}, {"tags": ("u", "t")}),
    "lifetime": ({"tags": (EXPIRES_AGENT_STEP,)}, {}),
    "agent": ({"agent": "a"}, {"agent": "b"}),
    "provider": (lambda wire: {"provider": {wire: {"name": "Ann"}}}, {}),
}


def pair(case: tuple[Any, Any], wire: str) -> tuple[p.Message, p.Message]:
    first, second = (fields(wire) if callable(fields) else fields for fields in case)
    return p.user("one").replace(**first), p.user("two").replace(**second)


@pytest.mark.finding("F-35")
@pytest.mark.row("CBF-11")
@pytest.mark.parametrize("wire", wires.names())
@pytest.mark.parametrize("case", ALIKE)
def test_neighbours_that_are_alike_become_one_message_with_a_part_each(wire: str, case: str) -> None:
    items = sent(wire, *pair(ALIKE[case], wire))
    if wire in {"anthropic_messages", "google_generate"}:
        assert [texts(item) for item in items] == [["one"], ["two"]]
    elif wire == "ollama_chat":
        assert [texts(item) for item in items] == [["one\n\ntwo"]]
    else:
        assert [texts(item) for item in items] == [["one", "two"]]


@pytest.mark.finding("F-35")
@pytest.mark.row("CBF-11")
@pytest.mark.parametrize("wire", [name for name in wires.names() if name != "bedrock_converse"])
@pytest.mark.parametrize("case", UNLIKE)
def test_neighbours_that_differ_in_one_field_stay_apart(wire: str, case: str) -> None:
    assert [texts(item) for item in sent(wire, *pair(UNLIKE[case], wire))] == [["one"], ["two"]]


@pytest.mark.row("CBF-11")
@pytest.mark.parametrize("case", UNLIKE)
def test_a_wire_that_demands_alternation_joins_all(case: str) -> None:
    items = sent("bedrock_converse", *pair(UNLIKE[case], "bedrock_converse"))
    assert [texts(item) for item in items] == [["one", "two"]]


@pytest.mark.finding("F-35")
@pytest.mark.row("CBF-11")
@pytest.mark.parametrize("wire", wires.names())
def test_leading_system_texts_are_joined_by_a_blank_line_or_stand_as_blocks_of_the_head(wire: str) -> None:
    request = p.Request(messages=(p.system("one"), p.system("two"), p.user("hi")), model="m")
    body = json.loads(bytes(wires.get(wire).encode_request(request).body))
    items = body[LIST.get(wire, "messages")]
    if wire in JOINS:
        assert [(item["role"], texts(item)) for item in items] == [("system", ["one\n\ntwo"]), ("user", ["hi"])]
    else:
        head = body["systemInstruction"]["parts"] if wire == "google_generate" else body["system"]
        assert [block["text"] for block in head] == ["one", "two"]
        assert [texts(item) for item in items] == [["hi"]]


@pytest.mark.row("CBF-11")
@pytest.mark.parametrize("wire", wires.names())
def test_users_around_an_answer_stay_apart(wire: str) -> None:
    items = sent(wire, p.user("one"), p.assistant("so"), p.user("two"))
    assert [texts(item) for item in items] == [["one"], ["so"], ["two"]]


@pytest.mark.row("CBF-11")
@pytest.mark.parametrize("wire", wires.names())
def test_results_of_different_calls_stay_apart(wire: str) -> None:
    calls = [p.tool_call("f", {}, id=each) for each in ("call_1", "call_2")]
    results = [p.tool({"r": word}, tool_call_id=each) for each, word in (("call_1", "first"), ("call_2", "second"))]
    request = p.Request(messages=(p.user("go"), p.assistant(tool_calls=calls), *results), model="m")
    body = json.loads(bytes(wires.get(wire).encode_request(request).body))
    holders = [each for each in _objects(body) if _said(each) & {"first", "second"}]
    assert [_said(each) & {"first", "second"} for each in holders] == [{"first"}, {"second"}]


def _objects(value: Any) -> list[dict[str, Any]]:
    """Every result of a tool in a body, in whatever form the wire has."""
    if isinstance(value, list):
        return [found for each in value for found in _objects(each)]
    if not isinstance(value, dict):
        return []
    if value.get("role") == "tool" or not value.keys().isdisjoint({"tool_use_id", "toolUseId", "output", "response"}):
        return [value]
    return [found for each in value.values() for found in _objects(each)]


def _said(value: dict[str, Any]) -> set[str]:
    return {word for word in ("first", "second") if word in json.dumps(value)}


@pytest.mark.finding("F-35")
@pytest.mark.row("CBF-11")
@pytest.mark.parametrize("wire", JOINS)
def test_parts_keep_their_fields_and_media_when_messages_are_joined(wire: str) -> None:
    marked = p.user(p.Text("one").replace(provider={wire: {"cache_control": {"type": "ephemeral"}}}))
    if wire == "ollama_chat":  # a text is no object there
        marked = p.user("one")
    items = sent(wire, marked, p.user("two", PICTURE))
    if wire == "ollama_chat":
        assert items == [{"role": "user", "content": "one"}, {"role": "user", "content": "two", "images": ["aGk="]}]
        return
    (item,) = items
    assert item["content"][0]["cache_control"] == {"type": "ephemeral"}
    assert [part["text"] for part in item["content"][:2]] == ["one", "two"]
    assert "image" in item["content"][2]["type"]


@pytest.mark.finding("F-35")
@pytest.mark.parametrize("variant", ["deepseek", "cerebras"])
def test_a_vendor_that_takes_text_alone_gets_a_string(variant: str) -> None:
    encoded = wires.get(f"openai_chat:{variant}").encode_request(
        p.Request(messages=(p.user("one"), p.user("two")), model="m")
    )
    assert json.loads(bytes(encoded.body))["messages"] == [{"role": "user", "content": "one\n\ntwo"}]


@pytest.mark.finding("F-35")
@pytest.mark.row("CBF-11")
@pytest.mark.parametrize("wire", JOINS)
def test_joined_messages_decode_to_one_that_is_written_alike(wire: str) -> None:
    given = p.Request(messages=(p.system("a"), p.system("b"), p.user("c"), p.user("d")), model="m")
    body = wires.get(wire).encode_request(given).body
    read = wires.get(wire).decode_request(bytes(body))
    assert [each.role for each in read.messages] == ["system", "user"]
    for request in (read, read.replace()):
        again = wires.get(wire).encode_request(request)
        assert (json.loads(bytes(again.body)), again.losses) == (json.loads(bytes(body)), ())
    assert [each.text for each in given.messages] == ["a", "b", "c", "d"]


@pytest.mark.finding("F-35")
@pytest.mark.parametrize("wire", JOINS)
def test_a_request_that_grows_keeps_the_boundaries_it_came_with(wire: str) -> None:
    given = p.Request(messages=(p.user("one", tags=("t",)), p.user("two")), model="m")
    body = bytes(wires.get(wire).encode_request(given).body)
    encoder = wires.get(wire).request_encoder(wires.get(wire).decode_request(body))
    encoder.append(p.assistant("so"))
    items = json.loads(b"".join(encoder.chunks()))[LIST.get(wire, "messages")]
    assert [texts(item) for item in items] == [["one"], ["two"], ["so"]]


@pytest.mark.row("CBF-11")
def test_users_around_an_answer_that_says_nothing_are_joined_at_once() -> None:
    request = p.Request(messages=(p.user("one"), p.assistant(""), p.user("two")), model="m")
    encoded = wires.get("cohere_chat").encode_request(request)
    assert [texts(item) for item in json.loads(bytes(encoded.body))["messages"]] == [["one", "two"]]
    assert [(loss.what, loss.message) for loss in encoded.losses] == [("assistant message", 1)]
