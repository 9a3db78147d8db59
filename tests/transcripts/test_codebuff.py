"""Codebuff histories: both forms, options, deprecated keys, and what goes to the wires from them."""

# pyright: basic, reportAttributeAccessIssue=false, reportArgumentType=false, reportGeneralTypeIssues=false

from __future__ import annotations

import json

import pytest

from palaver import transcripts, wires
from palaver.core import jsontext
from palaver.core.errors import DecodeError
from palaver.core.messages import AssistantMessage, DeveloperMessage, SystemMessage, ToolMessage, UserMessage
from palaver.core.parts import File, FileId, Image, Inline, Json, MalformedToolCall, Reasoning, Text, ToolCall, Url
from palaver.core.request import Request
from palaver.testing import rules
from palaver.threads.thread import Entry, Thread
from palaver.threads.view import expire
from palaver.transcripts import original_bytes
from palaver.transcripts.conversation import Transcript, transcript_of
from palaver.transcripts.writer import is_record
from tests.transcripts.samples import FOLDER
from tests.transcripts.test_listing import bare
from tests.wires.histories import results_of

FILES = FOLDER / "codebuff"
CODEBUFF = transcripts.get("codebuff")
WIRES = wires.names()


def read(*records):
    """The messages of a list of records, and the drift."""
    transcripts, drift = CODEBUFF.read_with_unknown(json.dumps(records).encode())
    return [entry.message for entry in transcripts[0].thread.path() if not is_record(entry)], drift


def one(record):
    (message,), _ = read(record)
    return message


def user(*parts, **fields):
    return {"role": "user", "content": list(parts), **fields}


def text(said="hi", **fields):
    return {"type": "text", "text": said, **fields}


def call(called, **fields):
    return {"type": "tool-call", "toolCallId": called, "toolName": "t", "input": {"a": 1}, **fields}


def result(called, *outputs):
    return {"role": "tool", "toolCallId": called, "toolName": "t", "content": list(outputs)}


def output(value):
    return {"type": "json", "value": value}


def written(*messages, **options):
    done = CODEBUFF.write(transcript_of(messages), **options)
    return json.loads(done.body), done.losses


# -- what is read ------------------------------------------------------------------------------------------------------

FULL = {
    "text": (user, {"type": "text", "text": "x"}, Text),
    "image": (user, {"type": "image", "image": "iVBORw0KGgo="}, Image),
    "file": (user, {"type": "file", "data": "iVBORw0KGgo=", "mediaType": "image/png"}, File),
    "reasoning": (lambda part: {"role": "assistant", "content": [part]}, {"type": "reasoning", "text": "x"}, Reasoning),
    "tool-call": (lambda part: {"role": "assistant", "content": [part]}, call("c1"), ToolCall),
    "json": (lambda part: result("c1", part), {"type": "json", "value": None}, Json),
    "media": (
        lambda part: result("c1", part),
        {"type": "media", "data": "iVBORw0KGgo=", "mediaType": "image/png"},
        Image,
    ),
}


@pytest.mark.parametrize("kind", FULL)
def test_a_part_has_exactly_what_it_needs(kind):
    """With all it needs it is one of ours; without, or with another kind of value, it keeps its bytes and is named."""
    around, part, cls = FULL[kind]
    messages, drift = read(around(part))
    assert [type(each) for each in messages[0].content] == [cls]
    assert drift == ()
    for key in part.keys() - {"type"}:
        for broken in ({k: v for k, v in part.items() if k != key}, {**part, key: 5}):
            if kind == "json" and key in broken:
                continue
            messages, drift = read(around(broken))
            assert [each.raw for each in messages[0].content] == [broken]
            assert {each.kind for each in drift} <= {"value", "type"}
            assert any(each.kind == "value" and each.name.startswith(kind) for each in drift)


STATES = [None, True, 5, "x", [], [1], {}, {"x": 1}, {"x": {"y": 1}}]
"""A value of every JSON type, and of each form that a field may ask for."""
TEXT, FLAG, OBJECT = ["x"], [True], [{}, {"x": 1}, {"x": {"y": 1}}]
OPTIONS = {"providerOptions": (False, [{}, {"x": {"y": 1}}])}
PART_FIELDS = {
    "text": {"text": (True, TEXT), **OPTIONS},
    "image": {"image": (True, TEXT), "mediaType": (False, TEXT), **OPTIONS},
    "file": {"data": (True, TEXT), "mediaType": (True, TEXT), "filename": (False, TEXT), **OPTIONS},
    "reasoning": {"text": (True, TEXT), **OPTIONS},
    "tool-call": {
        "toolCallId": (True, TEXT),
        "toolName": (True, TEXT),
        "input": (True, OBJECT),
        "providerExecuted": (False, FLAG),
        **OPTIONS,
    },
    "json": {"value": (True, STATES)},
    "media": {"data": (True, TEXT), "mediaType": (True, TEXT)},
}
"""Of each part of the specification: its fields, whether they are required, and which of the states they take."""
AROUND = {
    **OPTIONS,
    "tags": (False, [[], ["x"]]),
    "sentAt": (False, [5]),
    "timeToLive": (False, ["agentStep", "userPrompt"]),
    "keepDuringTruncation": (False, FLAG),
    "keepLastTags": (False, [[], ["x"]]),
}
MESSAGE_FIELDS = {
    "system": {"content": (True, [[]]), **AROUND},
    "user": {"content": (True, [[]]), **AROUND},
    "assistant": {"content": (True, [[]]), **AROUND},
    "tool": {"content": (True, [[]]), "toolCallId": (True, TEXT), "toolName": (True, TEXT), **AROUND},
}
ROLES = {
    "system": ("text",),
    "user": ("text", "image", "file"),
    "assistant": ("text", "reasoning", "tool-call"),
    "tool": ("json", "media"),
}


def refused(value):
    """Where a strict reading refuses a value; ``None`` where it takes it, as the reading without rules always does."""
    data = json.dumps(value).encode()
    CODEBUFF.read(data)
    try:
        CODEBUFF.read(data, strict=True)
    except DecodeError as error:
        return error.path if error.source == "codebuff" else error
    return None


def full(fields, **others):
    """An object with just what is required."""
    return {**{key: takes[-1] for key, (required, takes) in fields.items() if required}, **others}


def holding(part):
    role = next(role for role, kinds in ROLES.items() if part["type"] in kinds)
    return full(MESSAGE_FIELDS[role], role=role, content=[part])


@pytest.mark.finding("F-35")
@pytest.mark.row("CBF-01")
@pytest.mark.parametrize(("kind", "key"), [(kind, key) for kind, fields in PART_FIELDS.items() for key in fields])
def test_a_strict_reading_takes_a_field_of_a_part_in_its_states_alone(kind, key):
    required, takes = PART_FIELDS[kind][key]
    part = full(PART_FIELDS[kind], type=kind)
    there = f"[0].content[0].{key}"
    assert refused([holding(part)]) is None
    assert refused([holding({k: v for k, v in part.items() if k != key})]) == (there if required else None)
    for state in [*STATES, *takes]:
        assert refused([holding({**part, key: state})]) == (None if state in takes else there), state


@pytest.mark.finding("F-35")
@pytest.mark.row("CBF-01")
@pytest.mark.parametrize(("role", "key"), [(role, key) for role, fields in MESSAGE_FIELDS.items() for key in fields])
def test_a_strict_reading_takes_a_field_of_a_message_in_its_states_alone(role, key):
    required, takes = MESSAGE_FIELDS[role][key]
    message = full(MESSAGE_FIELDS[role], role=role)
    assert refused([message]) is None
    without = {k: v for k, v in message.items() if k != key}
    assert refused([message, without]) == (f"[1].{key}" if required else None)
    for state in [*STATES, *takes]:
        found = refused([message, {**message, key: state}])
        if key == "content" and state == [1]:
            assert found == "[1].content[0]"
        else:
            assert found == (None if state in takes else f"[1].{key}"), state


@pytest.mark.finding("F-35")
@pytest.mark.row("CBF-01")
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("kind", [*PART_FIELDS, "tool-result", None])
def test_a_strict_reading_takes_the_parts_of_a_role_alone(role, kind):
    part = {**full(PART_FIELDS.get(kind, {})), "type": kind}
    there = None if kind in ROLES[role] else "[0].content[0].type"
    assert refused([full(MESSAGE_FIELDS[role], role=role, content=[part])]) == there


@pytest.mark.finding("F-35")
@pytest.mark.row("CBF-01")
def test_a_strict_reading_names_the_place_in_a_run_and_in_one_message():
    broken = {"role": "user", "content": [{"type": "file", "data": "x"}]}
    history = "sessionState.mainAgentState.messageHistory"
    run = {"sessionState": {"mainAgentState": {"messageHistory": [user(text()), broken]}}}
    assert refused(run) == f"{history}[1].content[0].mediaType"
    assert refused(broken) == "content[0].mediaType"
    assert refused([{"role": "robot", "content": []}]) == "[0].role"
    assert refused([user({**text(), "later": 1}, newer=2)]) is None


@pytest.mark.row("CBF-01")
def test_strict_without_rules_is_refused():
    with pytest.raises(DecodeError, match="no rules"):
        transcripts.get("claude_code").read(b"{}", strict=True)


@pytest.mark.row("CBF-01")
@pytest.mark.parametrize("options", [{"x": 1}, 5, {"anthropic": {"a": 1}, "y": None}])
def test_options_that_are_no_options_are_named_and_kept(options):
    messages, drift = read(user(text(providerOptions=options)))
    assert ("value", "text.providerOptions") in [(each.kind, each.name) for each in drift]
    assert messages[0].content[0].provider == {"codebuff_fields": {"providerOptions": options}}
    assert not any(name in messages[0].content[0].provider for name in WIRES)


@pytest.mark.row("CBF-01")
@pytest.mark.parametrize("key", ["toolCallId", "toolName"])
def test_a_result_that_names_no_call_is_read_all_the_same(key):
    record = result("c1", output(1))
    del record[key]
    message = one(record)
    assert (message.tool_call_id is None, message.tool_name is None) == (key == "toolCallId", key == "toolName")


@pytest.mark.row("CBF-02")
@pytest.mark.parametrize("name", ["history.json", "run.json"])
def test_the_order_of_keys_never_matters(name):
    def turned(value):
        if isinstance(value, dict):
            return {key: turned(value[key]) for key in sorted(value, reverse=True)}
        return [turned(each) for each in value] if isinstance(value, list) else value

    data = jsontext.value((FILES / name).read_bytes())
    one_way, other = (
        CODEBUFF.write(bare("codebuff", CODEBUFF.read(jsontext.encode(each))[0]), carry=False).body
        for each in (data, turned(data))
    )
    assert jsontext.normal(one_way) == jsontext.normal(other)


TWINS = [
    ({"role": "system", "content": "x"}, {"role": "system", "content": [text("x")]}),
    ({"role": "user", "content": ""}, user(text(""))),
    ({"role": "assistant", "content": "x", "mood": 1}, {"role": "assistant", "content": [text("x")], "mood": 1}),
    (
        {
            "role": "tool",
            "content": {"type": "tool-result", "toolCallId": "c1", "toolName": "t", "output": [output([1, "a"])]},
        },
        result("c1", output([1, "a"])),
    ),
    (
        {
            "role": "tool",
            "content": {"type": "tool-result", "toolCallId": "c1", "toolName": "t", "output": [], "note": {"a": 2.0}},
        },
        {**result("c1"), "note": {"a": 2.0}},
    ),
]


@pytest.mark.row("CBF-03")
@pytest.mark.parametrize(("first", "later"), TWINS)
def test_the_first_form_reads_as_the_later_one(first, later):
    old, new = (original_bytes.bare(one(record), "codebuff").replace(id=None) for record in (first, later))
    assert old == new
    again, _ = written(old)
    assert again == [later]
    assert written(one(again[0]))[0] == again


@pytest.mark.row("MSG-14")
@pytest.mark.finding("F-05")
@pytest.mark.parametrize("lifetime", ["agentStep", "userPrompt"])
@pytest.mark.parametrize("count", [1, 3])
def test_the_deprecated_lifetime_is_reported_once_obeyed_and_not_written(lifetime, count):
    records = [user(text(f"a{number}"), timeToLive=lifetime) for number in range(count)]
    messages, drift = read(*records)
    assert [(each.name, each.count) for each in drift] == [("message.timeToLive", count)]
    ends = {"agentStep": "agent-step", "userPrompt": "user-prompt"}[lifetime]
    assert len(expire(messages, ends)) == 0
    (transcript,) = CODEBUFF.read(json.dumps(records).encode())
    again = json.loads(CODEBUFF.write(bare("codebuff", transcript)).body)
    assert [each["tags"] for each in again] == [[f"expires:{ends}"]] * count
    assert not any("timeToLive" in each for each in again)


@pytest.mark.row("CBF-07", "MSG-14")
@pytest.mark.parametrize(
    ("lifetime", "after_step", "after_prompt"), [(None, 1, 1), ("agentStep", 0, 0), ("userPrompt", 1, 0)]
)
def test_a_lifetime_is_obeyed(lifetime, after_step, after_prompt):
    given = {} if lifetime is None else {"timeToLive": lifetime}
    message = one(user(text(), **given))
    assert len(expire([message], "agent-step")) == after_step
    assert len(expire([message], "user-prompt")) == after_prompt


@pytest.mark.row("CBF-07", "MSG-14")
def test_deprecated_keys_are_reported_once_and_never_written():
    records = [
        user(text("a"), timeToLive="agentStep", keepDuringTruncation=True, keepLastTags=["T"]),
        user(text("b"), timeToLive="userPrompt", keepLastTags=["T"], tags=["expires:user-prompt"]),
        user(text("c"), keepDuringTruncation=False),
    ]
    messages, drift = read(*records)
    assert [(each.kind, each.name, each.count) for each in drift] == [
        ("deprecated", "message.timeToLive", 2),
        ("deprecated", "message.keepDuringTruncation", 2),
        ("deprecated", "message.keepLastTags", 2),
    ]
    assert str(drift[0]) == "deprecated message.timeToLive (2 times)"
    assert [each.verbatim for each in messages] == [True, True, False]
    assert [each.tags for each in messages] == [("expires:agent-step",), ("expires:user-prompt",), ()]
    (transcript,) = CODEBUFF.read(json.dumps(records).encode())
    again = CODEBUFF.write(bare("codebuff", transcript)).body
    assert not any(key in json.loads(again)[0] for key in ("timeToLive", "keepDuringTruncation", "keepLastTags"))
    assert [each.tags for each in read(*json.loads(again))[0]] == [each.tags for each in messages]
    assert [each.verbatim for each in read(*json.loads(again))[0]] == [True, True, False]


@pytest.mark.row("CBF-07")
def test_an_edited_message_loses_its_deprecated_keys():
    (transcript,) = CODEBUFF.read(json.dumps([user(text("a"), timeToLive="agentStep", x=1)]).encode())
    again = Thread(transcript.thread.id)
    for each in transcript.thread.entries:
        message = each.message if is_record(each) else each.message.replace(content=["b"])
        again.add([Entry(each.id, each.parent, message)], {"main": each.id})
    (record,) = json.loads(CODEBUFF.write(Transcript(again)).body)
    assert record == {"role": "user", "content": [text("b")], "x": 1, "tags": ["expires:agent-step"]}


def test_proofs_of_reasoning_belong_to_their_wires():
    (transcript,) = CODEBUFF.read((FILES / "history.json").read_bytes())
    answer = next(each.message for each in transcript.thread.path() if isinstance(each.message, AssistantMessage))
    thought, hidden = [part for part in answer.content if isinstance(part, Reasoning)]
    assert (thought.signature, thought.wire) == ("SIG", "anthropic_messages")
    assert (hidden.encrypted, hidden.wire) == ("ENC", "openai_responses")
    assert hidden.provider == {"openai": {"itemId": "rs_1"}}
    body = wires.get("anthropic_messages").encode_request(Request(messages=(answer,))).body
    assert b'"signature":"SIG"' in body


def test_options_go_to_the_wire_that_spells_them_so():
    message = one(
        user(
            text(providerOptions={"anthropic": {"cacheControl": {"type": "ephemeral"}, "other": 1}}),
            providerOptions={"openaiCompatible": {"name": "Ann"}, "codebuff": {"x": 1}, "openrouter": {"y": 2}},
        )
    )
    assert message.content[0].provider == {
        "anthropic_messages": {"cache_control": {"type": "ephemeral"}},
        "anthropic": {"other": 1},
    }
    provider = {name: held for name, held in message.provider.items() if not name.startswith("@")}
    assert provider == {"openai_chat": {"name": "Ann"}, "codebuff": {"x": 1}, "openrouter": {"y": 2}}


def test_what_stands_before_base64_is_kept():
    images = [
        {"type": "image", "image": "data:image/png;base64,iVBORw0KGgo="},
        {"type": "image", "image": "iVBORw0KGgo=", "mediaType": "image/png"},
        {"type": "image", "image": "https://example.org/a.png"},
    ]
    message = one(user(*images))
    assert [part.source for part in message.content] == [
        Inline("iVBORw0KGgo="),
        Inline("iVBORw0KGgo="),
        Url("https://example.org/a.png"),
    ]
    assert [part.media_type for part in message.content] == ["image/png", "image/png", None]


def test_a_run_keeps_what_stands_around_its_history():
    data = (FILES / "run.json").read_bytes()
    (transcript,) = CODEBUFF.read(data)
    path = [entry.message for entry in transcript.thread.path() if not is_record(entry)]
    assert [message.text for message in path] == ["Hello", "Hi."]
    last = transcript.thread.path()[-1].id
    said = UserMessage(content=(Text("Go on."),), sent_at=1763000002000)
    transcript.thread.add([Entry("new", last, said)], {"main": "new"})
    state = json.loads(CODEBUFF.write(transcript).body)
    assert state["sessionState"]["mainAgentState"]["stepsRemaining"] == 25
    assert state["sessionState"]["mainAgentState"]["messageHistory"][2] == {
        "role": "user",
        "content": [text("Go on.")],
        "sentAt": 1763000002000,
    }


# -- what is written ---------------------------------------------------------------------------------------------------


def test_a_malformed_call_is_written_as_a_note_behind_the_results():
    messages = (
        AssistantMessage(content=(ToolCall("c1", "t", "{}"), MalformedToolCall('{"a', "not JSON", "t", "c2"))),
        ToolMessage(content=(Json.of(1),), tool_call_id="c1", tool_name="t"),
        UserMessage(content=(Text("next"),)),
    )
    records, losses = written(*messages)
    assert [each["role"] for each in records] == ["assistant", "tool", "user", "user"]
    assert records[2]["tags"] == ["TOOL_CALL_ERROR"]
    assert 'not JSON: {"a' in records[2]["content"][0]["text"]
    assert ("converted", "malformed_tool_call", 0, 1) in [(x.kind, x.what, x.message, x.part) for x in losses]
    again, drift = read(*records)
    assert (tuple(each.replace(id=None, sent_at=None, provider={}) for each in again), drift) == (
        tuple(each.replace(provider={}) for each in messages),
        (),
    )


def test_a_note_that_is_there_is_not_written_twice():
    note = UserMessage(content=(Text("it was broken"),), tags=("TOOL_CALL_ERROR",))
    records, _ = written(AssistantMessage(content=(MalformedToolCall("{", "not JSON"),)), note)
    assert [each["role"] for each in records] == ["assistant", "user"]


def test_what_it_cannot_say_is_on_the_receipt():
    developer = DeveloperMessage(content=(Text("x"),))
    answer = ToolMessage(content=(Text("18"), Image(FileId("f", "openai_chat"))), tool_call_id="c", tool_name="t")
    records, losses = written(developer, answer, carry=False)
    assert records == [{"role": "system", "content": [text("x")]}, result("c", output("18"))]
    assert {(x.kind, x.what, x.message, x.part) for x in losses} == {
        ("converted", "developer", 0, None),
        ("converted", "text", 1, 0),
        ("dropped", "image", 1, 1),
    }


@pytest.mark.parametrize(
    ("records", "confidence"),
    [
        ([user(text(), sentAt=1)], 0.9),
        ([result("c1", output(1))], 0.9),
        ([user(text())], 0.5),
        ([{"role": "user", "content": "x"}], None),
        ([{"role": "user", "parts": []}], None),
    ],
)
def test_how_sure_it_is(records, confidence):
    detection = CODEBUFF.detect(json.dumps(records).encode())
    assert (detection and detection.confidence) == confidence


# -- from a history to the wires ---------------------------------------------------------------------------------------

MEDIA = {"type": "media", "data": "iVBORw0KGgo=", "mediaType": "image/png"}


def encoded(wire, *records):
    messages, _ = read(*records)
    before = [each.replace() for each in messages]
    request = Request(messages=tuple(messages), model="m")
    done = wires.get(wire).encode_request(request)
    assert rules.check_request(wire, done.body) == []
    assert list(request.messages) == before
    return done.body


@pytest.mark.row("CBF-08")
@pytest.mark.parametrize("wire", WIRES)
def test_only_the_providers_own_fields_are_sent(wire):
    (transcript,) = CODEBUFF.read((FILES / "history.json").read_bytes())
    messages = tuple([each.message for each in transcript.thread.path() if not is_record(each)])
    body = wires.get(wire).encode_request(Request(messages=messages, model="m")).body
    assert rules.check_request(wire, body) == []
    for ours in (
        "sentAt",
        "sent_at",
        "USER_PROMPT",
        "1763000000000",
        "keepDuring",
        "codebuff",
        "records",
        "cacheControl",
    ):
        assert ours not in body.decode(), ours


@pytest.mark.row("CBF-09", "CBF-10")
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    "outputs",
    [(), (output(1),), (output("one"), output({"b": 2})), (MEDIA,), (output("one"), MEDIA), (MEDIA, output("one"))],
)
def test_a_call_has_one_result_whatever_it_holds(wire, outputs):
    """The rules of each wire refuse what stands between calls and their last result."""
    calls = {"role": "assistant", "content": [call("c1"), call("c2")]}
    body = encoded(wire, user(text("go")), calls, result("c1", *outputs), result("c2", output("two")), user(text("on")))
    value = json.loads(body)
    texts = json.dumps(value)
    first, second = results_of(value)
    assert "two" in json.dumps(second)
    assert ("one" in json.dumps(first)) == (output("one") in outputs)
    assert bool(first) or not outputs
    assert texts.count("two") == 1
    if output("one") in outputs:
        assert texts.count("one") == 1
    if MEDIA in outputs and wire != "cohere_chat":
        assert texts.count("iVBORw0KGgo=") == 1


@pytest.mark.parametrize("wire", WIRES)
def test_a_lone_surrogate_stays_in_the_thread_and_is_no_text_of_a_body(wire):
    record = user(text("a\ud83d"))
    body = encoded(wire, record)
    assert "ud83d" not in body.decode()
    assert one(record).text == "a\ud83d"
    assert written(one(record))[0] == [record]


@pytest.mark.finding("F-35")
@pytest.mark.row("CBF-11")
@pytest.mark.parametrize("key", ["tags", "timeToLive", "providerOptions"])
@pytest.mark.parametrize("wire", ["openai_chat", "openai_responses", "cohere_chat", "ollama_chat"])
def test_users_of_a_history_are_joined_unless_one_key_differs(wire, key):
    value = {"tags": ["x"], "timeToLive": "agentStep", "providerOptions": {"openai": {"user": "a"}}}[key]
    alike, unlike = (
        json.loads(encoded(wire, user(text("one"), **{key: value}), user(text("two"), **other)))
        for other in ({key: value}, {})
    )
    list_of = "input" if wire == "openai_responses" else "messages"
    assert (len(alike[list_of]), len(unlike[list_of])) == (1, 2)


def test_a_system_message_holds_texts_alone():
    message, drift = read({"role": "system", "content": [{"type": "image", "image": "iVBORw0KGgo="}]})
    assert isinstance(message[0], SystemMessage)
    assert [each.kind for each in drift] == ["block"]
