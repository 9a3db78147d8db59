"""Metadata that the caller allows to leave: rows MSG-07, R09, conflict C12."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

import palaver as p
from palaver import wires
from palaver.testing import rules
from palaver.wires._engine import metadata
from palaver.wires._engine.capabilities import MetadataRule
from tests.wires.histories import histories

pytestmark = [pytest.mark.finding("F-05"), pytest.mark.row("MSG-07")]

FIELDS = {
    "openai_chat": "metadata",
    "openai_responses": "metadata",
    "anthropic_messages": "metadata",
    "google_generate": "labels",
    "bedrock_converse": "requestMetadata",
}
"""The field that a provider documents; a wire that is not here has none."""
VARIANTS = [f"{name}:{variant}" for name in wires.names() for variant in wires.variants(name)]


def encoded(name: str, *found: dict[str, Any], allow: Any = (), **provider: Any) -> tuple[Any, list[str]]:
    """The field of a body that holds metadata, and what the receipt says of it."""
    messages = tuple(p.user("hi", metadata=each) for each in found)
    base = name.partition(":")[0]
    stored = {"store": True} if base == "openai_chat" else {}
    request = p.Request(messages, "m").replace(provider={base: {**stored, **provider}})
    made = wires.get(name).encode_request(request, metadata=allow)
    return json.loads(made.body).get(FIELDS.get(base)), [x.why for x in made.losses if x.what == "metadata"]


@pytest.mark.parametrize("name", [*wires.names(), *VARIANTS])
def test_a_key_that_is_not_allowed_stays_and_is_on_the_receipt_once(name: str) -> None:
    field, lost = encoded(name, {"user_id": "u-77", "session": "s-77"}, {"user_id": "u-78"})
    assert field is None
    assert lost == [f"{key!r}: not among the keys that may leave" for key in ("user_id", "session")]


@pytest.mark.conflict("C12")
@pytest.mark.parametrize("name", wires.names())
def test_an_allowed_key_is_copied_where_the_provider_has_a_field(name: str) -> None:
    field, lost = encoded(name, {"user_id": "u-77", "session": "s-77"}, allow={"user_id"})
    assert field == ({"user_id": "u-77"} if name in FIELDS else None)
    kept = "'session': not among the keys that may leave"
    assert lost == [kept] if name in FIELDS else [kept, "'user_id': the wire has no field for it"]


@pytest.mark.parametrize("name", VARIANTS)
def test_a_vendor_that_documents_no_field_gets_none(name: str) -> None:
    assert encoded(name, {"user_id": "u"}, allow={"user_id"}) == (None, ["'user_id': the wire has no field for it"])


def test_the_last_value_of_a_key_stands() -> None:
    field, lost = encoded("openai_responses", {"a": "1", "b": "2"}, {"a": "3"}, allow={"a", "b"})
    assert (field, lost) == ({"a": "3", "b": "2"}, [])


def test_results_and_marks_of_compaction_are_not_read() -> None:
    messages = (
        p.user("hi", metadata={"compaction": "micro"}),
        p.assistant(p.tool_call("f", {}, id="c")),
        p.tool("r", tool_call_id="c", metadata={"error_code": "x"}),
    )
    made = wires.get("openai_responses").encode_request(
        p.Request(messages, "m"), metadata={"compaction", "error_code"}, losses="raise"
    )
    assert "metadata" not in json.loads(made.body)


def test_numbers_and_truth_become_text_and_the_receipt_says_so() -> None:
    field, lost = encoded("openai_responses", {"n": 7, "t": True, "x": [1], "z": None}, allow=list("ntxz"))
    assert field == {"n": "7", "t": "true"}
    assert lost == [
        "'n': only text is taken; '7' was sent",
        "'t': only text is taken; 'true' was sent",
        "'x': only text is taken",
        "'z': only text is taken",
    ]


def test_chat_takes_it_only_where_the_answer_is_stored() -> None:
    made = wires.get("openai_chat").encode_request(p.Request((p.user("hi", metadata={"a": "1"}),)), metadata={"a"})
    assert "metadata" not in json.loads(made.body)
    assert "'a': taken only beside 'store': true, which the request does not set" in [x.why for x in made.losses]


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("openai_responses", "k" * 65, "v"),
        ("openai_responses", "k", "v" * 513),
        ("openai_chat", "k", "v" * 513),
        ("anthropic_messages", "session", "v"),
        ("anthropic_messages", "user_id", "v" * 257),
        ("google_generate", "Upper", "v"),
        ("google_generate", "k", "Upper"),
        ("google_generate", "k", "v" * 64),
        ("bedrock_converse", "k", "{}"),
        ("bedrock_converse", "k" * 257, "v"),
    ],
)
def test_what_a_provider_refuses_is_on_the_receipt(name: str, key: str, value: str) -> None:
    field, lost = encoded(name, {key: value}, allow=[key])
    assert field is None
    assert len(lost) == 1
    assert lost[0].startswith(f"{key!r}: ")


@pytest.mark.parametrize(
    ("name", "most"), [("openai_responses", 16), ("bedrock_converse", 16), ("google_generate", 64)]
)
def test_no_more_keys_are_sent_than_are_taken(name: str, most: int) -> None:
    keys = {f"k{number}": "v" for number in range(most + 2)}
    field, lost = encoded(name, keys, allow=keys)
    assert list(field) == list(keys)[:most]
    assert lost == [f"{key!r}: the wire takes at most {most} keys" for key in list(keys)[most:]]


def test_the_field_of_the_request_itself_stays_in_front() -> None:
    field, lost = encoded("openai_responses", {"a": "1", "b": "2"}, allow={"a", "b"}, metadata={"a": "mine"})
    assert (field, lost) == ({"a": "mine", "b": "2"}, ["'a': the request sets it itself"])
    field, lost = encoded("openai_responses", {"a": "1"}, allow={"a"}, metadata=[1])
    assert (field, lost) == ([1], ["'a': the request sets 'metadata' itself"])


def test_one_text_is_no_list_of_keys() -> None:
    with pytest.raises(p.MessageError, match="collection of keys"):
        encoded("openai_responses", {"a": "1"}, allow="a")


TEXT = st.text("abzAZ019_-. :{é", max_size=5)


@pytest.mark.parametrize("name", wires.names())
@given(
    messages=histories(), found=st.dictionaries(TEXT, TEXT | st.integers() | st.booleans(), max_size=4), data=st.data()
)
def test_bodies_differ_by_the_allowed_copy_alone(
    name: str, messages: tuple[p.Message, ...], found: dict[str, Any], data: st.DataObject
) -> None:
    allow = data.draw(st.sets(st.sampled_from(sorted(found) or ["x"])))
    wire = wires.get(name)
    marked = tuple(message.replace(metadata=found) for message in messages)
    request = p.Request(messages, "m").replace(provider={"openai_chat": {"store": True}})
    plain = json.loads(wire.encode_request(request).body)
    made = wire.encode_request(request.replace(messages=marked), metadata=allow)
    body = json.loads(made.body)
    copied = body.pop(FIELDS.get(name), {})
    assert body == plain
    assert rules.check_request(name, made.body, None) == rules.check_request(
        name, wire.encode_request(request).body, None
    )
    assert copied.keys() <= allow
    lost = {x.why.rpartition(": ")[0] for x in made.losses if x.what == "metadata" and x.kind == "dropped"}
    if any(not isinstance(m, (p.ToolMessage, p.RescueMarker, p.FlushMarker)) for m in messages):
        assert all(
            (key in copied) != any(why == repr(key) or why.startswith(f"{key!r}: ") for why in lost) for key in found
        )


@pytest.mark.parametrize("name", wires.names())
def test_a_growing_request_says_what_is_encoded_at_once(name: str) -> None:
    messages = [
        p.user("a", metadata={"user_id": "1"}),
        p.assistant("b", metadata={"user_id": "1", "turn": "x"}),
        p.user("c", metadata={"user_id": "2", "late": "y"}),
        p.user("d"),
    ]
    wire, allow = wires.get(name), {"user_id", "late"}
    base = p.Request(model="m").replace(provider={"openai_chat": {"store": True}})
    for cuts in itertools.product([True, False], repeat=3):
        encoder = wire.request_encoder(base, metadata=allow)
        start = 0
        for end in [place for place in (1, 2, 3) if cuts[place - 1]] + [4]:
            encoder.append(*messages[start:end])
            start = end
            once = wire.encode_request(base.replace(messages=messages[:end]), metadata=allow)
            assert b"".join(encoder.chunks()) == once.body
            assert encoder.losses == once.losses


def test_every_rule_is_of_a_documented_field() -> None:
    found = {name: wires.get(name).capabilities.metadata for name in wires.names()}
    assert {name: rule.field for name, rule in found.items() if isinstance(rule, MetadataRule)} == FIELDS


CARRIED = {
    "openai_chat": {"messages": [{"role": "user", "content": "hi"}], "metadata": {"user_id": "u", "ticket": "9"}},
    "openai_responses": {"input": "hi", "metadata": {"user_id": "u", "ticket": "9"}},
    "anthropic_messages": {
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 9,
        "metadata": {"user_id": "u", "ticket": "9"},
    },
    "google_generate": {
        "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
        "labels": {"user_id": "u", "ticket": "9"},
    },
    "bedrock_converse": {
        "messages": [{"role": "user", "content": [{"text": "hi"}]}],
        "requestMetadata": {"user_id": "u", "ticket": "9"},
    },
}
"""Bodies whose own metadata are those of the whole request."""


@pytest.mark.parametrize("target", wires.names())
@pytest.mark.parametrize("source", CARRIED)
def test_named_keys_of_a_body_go_to_the_wire_that_has_the_field(source: str, target: str) -> None:
    request = wires.get(source).decode_request(json.dumps({"model": "m", **CARRIED[source]}))
    if source == target:
        assert wires.get(target).encode_request(request, losses="raise").body
        return
    if target == "openai_chat":
        request = request.replace(provider={**request.provider, "openai_chat": {"store": True}})
    made = wires.get(target).encode_request(request, metadata={"user_id"})
    lost = [each.why for each in made.losses if each.what.partition(".")[0] in {"metadata", *FIELDS.values()}]
    field = json.loads(made.body).get(FIELDS.get(target))
    stays = "'ticket': not among the keys that may leave"
    if target in FIELDS:
        assert (field, lost) == ({"user_id": "u"}, [stays])
    else:
        assert (field, lost) == (None, [stays, "'user_id': the wire has no field for it"])


def test_metadata_of_a_body_stand_before_those_of_messages_and_survive_an_append() -> None:
    request = wires.get("openai_chat").decode_request(json.dumps({"model": "m", **CARRIED["openai_chat"]}))
    encoder = wires.get("openai_responses").request_encoder(request, metadata={"ticket", "turn"})
    encoder.append(p.user("more", metadata={"ticket": "of the message", "turn": "2"}))
    encoder.append(p.assistant("yes"), p.user("and?"))
    assert json.loads(b"".join(encoder.chunks()))["metadata"] == {"ticket": "9", "turn": "2"}


def test_the_table_of_fields_is_that_of_the_rules() -> None:
    assert metadata.BODY_FIELDS == FIELDS
