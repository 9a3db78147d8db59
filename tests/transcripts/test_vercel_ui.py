"""UI messages: what each part becomes, and what is written of a conversation from anywhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from palaver import Request, assistant, system, tool, transcripts, user, wires
from palaver.core.messages import AssistantMessage, FlushMarker, ToolMessage, UserMessage
from palaver.core.parts import (
    Citation,
    FileId,
    Image,
    Inline,
    Json,
    MalformedToolCall,
    Opaque,
    Reasoning,
    Refusal,
    ServerToolResult,
    Text,
    ToolCall,
    Url,
)
from palaver.core.usage import Usage
from palaver.testing.strategies import any_messages
from palaver.threads.thread import MAIN, Entry
from palaver.threads.view import for_model
from palaver.transcripts.conversation import transcript_of
from palaver.transcripts.extension_slot import without_records
from palaver.transcripts.writer import is_record

FILES = Path(__file__).parent / "files" / "vercel_ui"
VERCEL = transcripts.get("vercel_ui")


def read(*messages):
    """The messages that UI messages become."""
    (transcript,) = VERCEL.read(json.dumps(messages).encode())
    return [without_records(entry.message) for entry in transcript.thread.path() if not is_record(entry)]


def of_parts(*parts, role="assistant", **more):
    return read({"id": "m", "role": role, "parts": list(parts), **more})


def call(state, **more):
    return {"type": "tool-a-b", "toolCallId": "c", "state": state, **more}


def written(*messages, **options):
    """What is written of messages from elsewhere, and its losses."""
    done = VERCEL.write(transcript_of(messages), **options)
    return json.loads(done.body), done.losses


def again(*messages, **options):
    """Messages written and read again, without ids."""
    (transcript,) = VERCEL.read(VERCEL.write(transcript_of(messages), **options).body)
    return [
        without_records(entry.message).replace(id=None) for entry in transcript.thread.path() if not is_record(entry)
    ]


# -- reading -----------------------------------------------------------------------------------------------------------


def test_a_run_is_an_answer_for_each_step_with_the_results_behind_it():
    one, result, two = of_parts(
        {"type": "step-start"},
        {"type": "text", "text": "look"},
        call("output-available", input={"n": 1}, output={"x": 2.50}),
        {"type": "step-start"},
        {"type": "text", "text": "seen"},
    )
    assert one.content[:1] == (Text("look"),)
    assert (one.tool_calls[0].id, one.tool_calls[0].name, one.tool_calls[0].arguments) == ("c", "a-b", {"n": 1})
    assert (result.tool_call_id, result.tool_name, result.content[0].value) == ("c", "a-b", {"x": 2.5})
    assert two.text == "seen"


@pytest.mark.parametrize(
    ("part", "text", "failed"),
    [
        (call("output-error", input={}, errorText="broke"), "broke", True),
        (call("output-denied", input={}, approval={"id": "a", "approved": False, "reason": "no"}), "no", True),
        (call("output-denied", input={}, approval={"id": "a", "approved": False}), "Tool call execution denied.", True),
        (call("approval-responded", input={}, approval={"id": "a", "approved": False, "reason": "no"}), "no", True),
        (call("output-available", input={}, output="said"), "said", False),
        (call("output-available", input={}, output=""), "", False),
    ],
)
def test_a_final_state_is_a_result(part, text, failed):
    _, result = of_parts(part)
    assert (result.text, result.is_error) == (text, failed)


@pytest.mark.parametrize(
    "part",
    [
        call("input-available", input={}),
        call("approval-requested", input={}, approval={"id": "a"}),
        call("approval-responded", input={}, approval={"id": "a", "approved": True}),
        call("output-available", input={}, output="half", preliminary=True),
    ],
)
def test_a_state_that_is_not_final_is_a_call_without_a_result(part):
    (message,) = of_parts(part)
    assert [each.id for each in message.tool_calls] == ["c"]


def test_what_streams_or_did_not_parse_is_no_call():
    message, result = of_parts(
        call("input-streaming", input={"half": 1}), call("output-error", rawInput='{"a', errorText="bad")
    )
    assert [type(part) for part in message.content] == [MalformedToolCall, MalformedToolCall]
    assert message.content[1].raw == '{"a'
    assert result.text == "bad"


def test_a_call_that_the_provider_ran_has_its_result_beside_it():
    (message,) = of_parts(call("output-available", input={}, output=[1], providerExecuted=True))
    ran, result = message.content
    assert ran.provider_executed
    assert (result.wire, result.output) == ("vercel_ui", [1])


@pytest.mark.parametrize(
    ("data", "part"),
    [
        ({"anthropic": {"signature": "s"}}, Reasoning("t", "s", wire="anthropic_messages")),
        ({"anthropic": {"redactedData": "r"}}, Reasoning("t", None, "r", "anthropic_messages")),
        ({"bedrock": {"signature": "s"}}, Reasoning("t", "s", wire="bedrock_converse")),
        ({"google": {"thoughtSignature": "s"}}, Reasoning("t", "s", wire="google_generate")),
        ({}, Reasoning("t")),
    ],
)
def test_provider_data_is_the_proof_of_its_wire(data, part):
    (message,) = of_parts({"type": "reasoning", "text": "t", "providerMetadata": data})
    assert message.content == (part,)
    assert again(message) == [message.replace(id=None)]
    ((_, said),) = [each["parts"] for each in written(message)[0]]
    assert said.get("providerMetadata", {}) == data


def test_summaries_of_one_item_of_openai_are_one_part():
    (message,) = of_parts(
        {"type": "reasoning", "text": "a", "providerMetadata": {"openai": {"itemId": "rs"}}},
        {
            "type": "reasoning",
            "text": "b",
            "providerMetadata": {"openai": {"itemId": "rs", "reasoningEncryptedContent": "e"}},
        },
    )
    (part,) = message.content
    assert (part.text, part.encrypted, part.provider["openai_responses"]["id"]) == ("a\n\nb", "e", "rs")


def test_files_are_media_by_their_type():
    (message,) = of_parts(
        {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,iVBO", "filename": "a.png"},
        {"type": "file", "mediaType": "application/pdf", "url": "https://x.example/a.pdf", "filename": "a.pdf"},
        {"type": "file", "mediaType": "audio/wav", "url": "u", "providerReference": {"openai": "file-1"}},
        role="user",
    )
    image, paper, sound = message.content
    assert (image.source, image.media_type) == (Inline("iVBO"), "image/png")
    assert (paper.source, paper.name) == (Url("https://x.example/a.pdf"), "a.pdf")
    assert sound.source == FileId("file-1", "openai_responses")


def test_parts_for_the_ui_are_kept_and_sent_to_nobody():
    (message,) = of_parts({"type": "text", "text": "t"}, {"type": "data-x", "data": 1}, {"type": "later", "x": 1})
    assert [type(part) for part in message.content] == [Text, Opaque, Opaque]


def test_usage_is_that_of_the_run_and_its_counters_do_not_overlap():
    first, last = of_parts(
        {"type": "step-start"},
        {"type": "text", "text": "a"},
        {"type": "step-start"},
        {"type": "text", "text": "b"},
        metadata={
            "totalUsage": {"inputTokens": 10, "outputTokens": 7, "cachedInputTokens": 4, "reasoningTokens": 2},
            "modelId": "m",
            "x": 1,
        },
    )
    assert first.usage is None
    assert (first.model, last.model, first.payload) == ("m", "m", {"x": 1})
    assert (last.usage.input, last.usage.cache_read, last.usage.output, last.usage.reasoning) == (6, 4, 5, 2)


def test_version_4_is_read():
    transcript = VERCEL.read((FILES / "version4.json").read_bytes())[0]
    messages = [entry.message for entry in transcript.thread.path() if not is_record(entry)]
    assert [message.role for message in messages] == [
        "user", "assistant", "tool", "assistant", "tool", "assistant", "system",
    ]  # fmt: skip
    assert messages[1].content[0] == Reasoning("Look.")
    assert messages[3].content[0] == Reasoning("Signed.", "c2ln", wire="anthropic_messages")


def test_a_message_of_the_user_within_a_run_parts_it():
    roles = [
        message.role
        for message in of_parts(
            {"type": "text", "text": "a"},
            {"type": "steering-message", "id": "s", "parts": [{"type": "text", "text": "quick"}]},
            {"type": "text", "text": "b"},
        )
    ]
    assert roles == ["assistant", "user", "assistant"]


def test_what_nobody_knows_is_reported():
    _, drift = VERCEL.read_with_unknown((FILES / "odd.json").read_bytes())
    assert {(each.kind, each.name) for each in drift} >= {
        ("key", "message.new"),
        ("block", "hologram"),
        ("unread", "message of role moderator"),
        ("value", "tool.state sleeping"),
    }


# -- writing -----------------------------------------------------------------------------------------------------------

RUN = (
    system("be brief"),
    user("hi", Image(Inline("iVBO"), "image/png")),
    assistant(Reasoning("r", "s", wire="anthropic_messages"), ToolCall("c1", "f", '{"a": 1.0}'), ToolCall("c2", "g")),
    tool(Json.of({"x": 1}), tool_call_id="c1", tool_name="f"),
    tool("broke", tool_call_id="c2", tool_name="g", is_error=True),
    assistant("done").replace(model="m", usage=Usage(input=1, output=2), finish_reason="stop"),
)


def test_a_run_is_one_message_and_a_call_has_its_result():
    (told, asked, run), losses = written(*RUN)
    assert [each["role"] for each in (told, asked, run)] == ["system", "user", "assistant"]
    assert [part["type"] for part in run["parts"]] == [
        "step-start", "reasoning", "dynamic-tool", "dynamic-tool", "step-start", "text",
    ]  # fmt: skip
    assert [part["toolName"] for part in run["parts"][2:4]] == ["f", "g"]
    assert run["parts"][2] | {"input": {"a": 1.0}, "output": {"x": 1}, "state": "output-available"} == run["parts"][2]
    assert run["parts"][3] | {"input": {}, "errorText": "broke", "state": "output-error"} == run["parts"][3]
    assert run["metadata"]["model"] == "m"
    assert losses == ()


def test_there_and_back_gives_the_same_messages():
    odd = (
        *RUN[:3],
        RUN[4],
        RUN[3],
        assistant(
            Text("t", (Citation(url="https://x.example"),)),
            Refusal("no"),
            ToolCall("s1", "web", "{}", provider_executed=True),
            ServerToolResult("s1", raw_of([1]), "anthropic_messages", "web"),
            MalformedToolCall("{", "no JSON", "f", "c3"),
            Opaque("openai_responses", raw_of({"type": "x"})),
        ).replace(usage=Usage(input=3)),
        tool("late", tool_call_id="nobody", tool_name="f"),
        user("go on").replace(source="hook", agent="a", tags=("t",)),
        assistant(ToolCall("c1", "f")),
        user("hurry"),
        tool(Text("one"), Text("two"), Image(Inline("iVBO"), "image/png"), tool_call_id="c1", tool_name="f"),
        FlushMarker(reason="r"),
        assistant("shown").replace(tags=("placeholder",)),
        user("last"),
    )
    assert again(*odd, history="all") == list(odd)


@given(st.lists(any_messages(), min_size=1, max_size=4))
def test_any_conversation_is_written_and_comes_back(messages):
    messages = [without_records(message).replace(id=None) for message in messages]
    assert again(*messages, history="all") == [message for message in messages if "record" not in message.tags]


def raw_of(value):
    return Json.of(value).value_json


def test_a_result_that_came_late_stands_with_its_call():
    asked = assistant(ToolCall("c", "f"))
    messages, losses = written(asked, user("hurry"), tool("here", tool_call_id="c"), carry=False)
    assert messages[0]["parts"][1]["output"] == "here"
    assert [loss.kind for loss in losses] == ["approximated"]


def test_a_result_without_a_call_is_written_and_said():
    ((message,), losses) = written(tool("alone", tool_call_id="c", tool_name="f"))
    assert message["parts"][0] | {"type": "dynamic-tool", "toolName": "f", "output": "alone"} == message["parts"][0]
    assert [loss.kind for loss in losses] == ["approximated"]


def test_a_call_that_a_provider_ran_says_so_in_every_version():
    ran = ToolCall("s", "web", "{}", provider_executed=True)
    ((message,), _) = written(assistant(ran, ServerToolResult("s", raw_of([1]), "anthropic_messages", "web")))
    assert message["parts"][1].items() >= {"type": "tool-web", "providerExecuted": True, "output": [1]}.items()


def test_ids_of_calls_are_unique():
    messages, losses = written(
        assistant(ToolCall("c", "f")), tool("1", tool_call_id="c"), user("x"),
        assistant(ToolCall("c", "f")), tool("2", tool_call_id="c"),
    )  # fmt: skip
    calls = [part for message in messages for part in message["parts"] if part.get("toolName") == "f"]
    assert len({part["toolCallId"] for part in calls}) == 2
    assert [part["output"] for part in calls] == ["1", "2"]
    assert len(losses) == 1


def test_what_no_model_is_sent_is_a_part_that_no_version_sends():
    messages, losses = written(user("a"), FlushMarker(reason="x"), user("b"), history="all")
    assert [part["type"] for message in messages for part in message["parts"]] == ["text", "data-palaver", "text"]
    assert [loss.what for loss in losses] == ["flush"]
    assert [message["parts"][0]["text"] for message in written(user("a"), FlushMarker(reason="x"), user("b"))[0]] == [
        "b"
    ]


def test_without_the_slot_nothing_is_carried():
    messages, losses = written(*RUN, FlushMarker(reason="x"), user("b"), history="all", carry=False)
    assert b"palaver" not in json.dumps(messages).encode()
    assert [(loss.kind, loss.what) for loss in losses] == [("dropped", "flush")]


def test_a_file_without_a_url_is_carried_and_said():
    _, losses = written(user("a", Image(Url("no url"))))
    assert [(loss.kind, loss.what, loss.part) for loss in losses] == [("converted", "image", 1)]


# -- edits -------------------------------------------------------------------------------------------------------------


def edited(data, place, change):
    """A file in which the message at a place was changed, and everything else left."""
    (transcript,) = VERCEL.read(data)
    entries = [
        Entry(entry.id, entry.parent, change(entry.message) if number == place else entry.message)
        for number, entry in enumerate(transcript.thread.path())
    ]
    thread = type(transcript.thread)(transcript.thread.id)
    thread.add(entries, {MAIN: entries[-1].id})
    return VERCEL.write(type(transcript)(thread, transcript.title, transcript.metadata)).body


def test_an_edited_text_changes_nothing_else():
    data = (FILES / "chat.json").read_bytes()
    changed = edited(data, 2, lambda message: message.replace(content=["What?", *message.content[1:]]))
    before, after = json.loads(data), json.loads(changed)
    assert after[1]["parts"][0]["text"] == "What?"
    after[1]["parts"][0] = before[1]["parts"][0]
    assert after == before


def test_a_part_that_was_removed_leaves_its_proof_to_nobody():
    data = json.dumps(
        [
            {
                "id": "a",
                "role": "assistant",
                "parts": [
                    {"type": "text", "text": "one", "providerMetadata": {"x": {"k": 1}}},
                    {"type": "text", "text": "two"},
                ],
            }
        ]
    ).encode()
    changed = edited(data, 1, lambda message: message.replace(content=message.content[1:]))
    assert json.loads(changed)[0]["parts"] == [{"type": "text", "text": "two"}]


def test_a_result_that_is_added_goes_into_the_part_of_its_call():
    (transcript,) = VERCEL.read((FILES / "chat.json").read_bytes())
    thread = transcript.thread
    new = [tool("yes", tool_call_id="call_6", tool_name="ask"), assistant("Thank you.")]
    parent = thread.branches[MAIN]
    for number, message in enumerate(new):
        thread.add([Entry(f"new-{number}", parent, message)], {MAIN: f"new-{number}"})
        parent = f"new-{number}"
    before = json.loads((FILES / "chat.json").read_bytes())
    after = json.loads(VERCEL.write(transcript).body)
    assert after[:4] == before[:4]
    (part,) = [part for part in after[4]["parts"] if part.get("toolCallId") == "call_6"]
    assert (part["state"], part["output"]) == ("output-available", "yes")
    assert "approval" not in part
    assert after[4]["parts"][-1] == {"type": "text", "text": "Thank you."}


def test_messages_are_added_to_a_file():
    for name in ("chat.json", "providers.json", "lines.json"):
        (transcript,) = VERCEL.read((FILES / name).read_bytes())
        transcript.thread.add([Entry("new", transcript.thread.branches[MAIN], user("more"))], {MAIN: "new"})
        body = VERCEL.write(transcript).body
        (back,) = VERCEL.read(body)
        assert back.thread.path()[-2].message.text == "more" or name == "lines.json"
        assert any(entry.message.text == "more" for entry in back.thread.path())


def test_the_model_sees_the_steps_in_order():
    (transcript,) = VERCEL.read((FILES / "chat.json").read_bytes())
    kinds = [type(message) for message in for_model(transcript.thread.path())][:6]
    assert kinds[1:] == [UserMessage, AssistantMessage, ToolMessage, ToolMessage, AssistantMessage]


def test_the_shape_of_others_is_not_taken_for_ours():
    for other in (
        b'[{"role":"user","parts":[{"text":"gemini"}]}]',
        b'[{"role":"user","parts":[{"type":"text","content":"otel"}]}]',
        b'[{"role":"user","content":"chat"}]',
        b"[]",
        b"{}",
        b"",
    ):
        assert VERCEL.detect(other) is None


def test_the_id_of_reasoning_is_the_one_that_the_wire_sends():
    """The item id of a UI message goes out as the id of the reasoning item, and comes in from it."""
    wire = wires.get("openai_responses")
    item = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e"}
    turns = [{"role": "assistant", "content": "So."}, {"role": "user", "content": "Go on."}]
    thread = transcript_of(wire.decode_request({"model": "m", "input": [item, *turns]}).messages)
    written = transcripts.get("vercel_ui").write(thread).body
    assert b'"itemId":"rs_1"' in written
    (again,) = transcripts.get("vercel_ui").read(written)
    sent = json.loads(wire.encode_request(Request(messages=again.thread.path().messages)).body)
    assert sent["input"][0]["id"] == "rs_1"
