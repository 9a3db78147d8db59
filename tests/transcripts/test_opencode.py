"""opencode exports: what each part becomes, both histories, and what is written of a conversation from anywhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from palaver import assistant, system, tool, transcripts, user
from palaver.core.messages import AssistantMessage, FlushMarker, SystemMessage, ToolMessage
from palaver.core.parts import (
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
from palaver.threads.thread import MAIN, Entry, usage_once
from palaver.threads.view import for_model, is_shown
from palaver.transcripts.conversation import session_of, transcript_of
from palaver.transcripts.extension_slot import without_records
from palaver.transcripts.writer import is_record

FILES = Path(__file__).parent / "files" / "opencode"
OPENCODE = transcripts.get("opencode")


def export(name):
    (transcript,) = OPENCODE.read((FILES / name).read_bytes())
    return transcript


def messages_of(transcript, branch=MAIN):
    return [entry.message for entry in transcript.thread.path(branch) if not is_record(entry)]


def of_parts(*parts, role="assistant", **info):
    """The messages of one message with parts."""
    session = {"id": "ses_1", "title": "t", "version": "1", "time": {"created": 1, "updated": 1}}
    message = {"info": {"id": "msg_1", "sessionID": "ses_1", "role": role, **info}, "parts": list(parts)}
    (transcript,) = OPENCODE.read(json.dumps({"info": session, "messages": [message]}).encode())
    return [without_records(each) for each in messages_of(transcript)]


def called(status, tool_name="t", **state):
    return {"type": "tool", "callID": "c", "tool": tool_name, "state": {"status": status, "input": {"a": 1}, **state}}


def written(*messages, **options):
    done = OPENCODE.write(transcript_of(messages), **options)
    return json.loads(done.body), done.losses


def again(*messages, **options):
    (transcript,) = OPENCODE.read(OPENCODE.write(transcript_of(messages), **options).body)
    return [without_records(each).replace(id=None, sent_at=None) for each in messages_of(transcript)]


# -- reading -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "text", "failed"),
    [
        (called("completed", output="fine", metadata={}), "fine", False),
        (called("completed", output="gone", metadata={"exit": 0}), "gone", False),
        (called("completed", output="no", metadata={"exit": 2}), "no", True),
        (called("completed", "invalid", output="unknown tool", metadata={}), "unknown tool", True),
        (called("error", error="broke"), "broke", True),
        (called("error", error="aborted", metadata={"interrupted": True, "output": "half"}), "half", True),
        (called("completed", output="kept on disk", metadata={}, time={"compacted": 5}), "kept on disk", False),
    ],
)
def test_completed_is_not_success(part, text, failed):
    answer, result = of_parts(part)
    assert answer.tool_calls[0].arguments == {"a": 1}
    assert (result.tool_call_id, result.text, result.is_error) == ("c", text, failed)


def test_calls_that_are_not_done_have_no_result():
    (answer,) = of_parts(called("running"), called("pending", raw=""), called("pending", raw='{"a'))
    assert [type(part) for part in answer.content] == [ToolCall, ToolCall, MalformedToolCall]


def test_usage_is_that_of_the_message_and_is_counted_once():
    tokens = {"input": 1, "output": 2, "reasoning": 3, "cache": {"read": 4, "write": 5}}
    (answer,) = of_parts(
        {"type": "text", "text": "a"},
        {"type": "step-finish", "reason": "stop", "cost": 1, "tokens": tokens},
        tokens=tokens,
    )
    usage = answer.usage
    assert (usage.input, usage.output, usage.reasoning, usage.cache_read, usage.cache_write) == (1, 2, 3, 4, 5)
    data = json.loads((FILES / "export.json").read_bytes())
    answers = sum(message["info"]["role"] == "assistant" for message in data["messages"])
    assert usage_once(messages_of(export("export.json"))).output == 20 * answers


def test_steps_of_one_message_are_answers():
    first, last = of_parts(
        {"type": "step-start"}, {"type": "text", "text": "a"}, {"type": "step-start"}, {"type": "text", "text": "b"},
        finish="stop", modelID="m",
    )  # fmt: skip
    assert (first.text, first.finish_reason, last.text, last.finish_reason, last.model) == ("a", None, "b", "stop", "m")


def test_who_sees_what():
    transcript = export("export.json")
    path = transcript.thread.path()
    sent = [message.text for message in for_model(path)]
    shown = [entry.message.text for entry in path if is_shown(entry.message) and not is_record(entry)]
    whole = "Called the Read tool with the following input: {}"
    messages = {message.text: message for message in messages_of(transcript)}
    assert messages[whole].source == "synthetic"
    assert whole not in shown
    assert "shown only" in shown
    assert "shown only" not in sent
    assert sent == [
        "What did we do so far?",
        "## Goal\nThe user wants the notes.",
        "This is the tail that is kept.",
        "Kept as well.",
        "Continue if you have next steps",
        "Going on.",
    ]
    assert shown.count("This is the tail that is kept.") == 1


def test_an_answer_with_an_error_is_not_sent_unless_it_was_aborted_and_said_something():
    aborted = {"name": "MessageAbortedError", "data": {"message": "x"}}
    failed = {"name": "APIError", "data": {"message": "x", "isRetryable": False}}
    text = {"type": "text", "text": "half"}
    tokens = {"input": 1, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}
    assert of_parts(text, error=aborted)[0].tags == ()
    assert of_parts({"type": "step-start"}, error=aborted, tokens=tokens)[0].tags == ("placeholder",)
    assert of_parts(text, error=failed)[0].tags == ("placeholder",)
    assert of_parts(text, error=failed)[0].metadata["error"] == failed


def test_a_compaction_that_failed_hides_nothing():
    data = json.loads((FILES / "export.json").read_bytes())
    for message in data["messages"]:
        if message["info"].get("summary") is True:
            message["info"]["error"] = {"name": "UnknownError", "data": {"message": "x"}}
    (transcript,) = OPENCODE.read(json.dumps(data).encode())
    assert not any(isinstance(message, FlushMarker) for message in messages_of(transcript))


def test_a_revert_ends_the_main_branch():
    transcript = export("reverted.json")
    assert messages_of(transcript)[-1].text == "One way."
    assert "Undone." in [message.text for message in messages_of(transcript, "branch-1")]


def test_a_sub_agents_session_names_its_parent():
    child, parent = export("reverted.json"), export("export.json")
    assert session_of(child.metadata).parent == parent.thread.id


def test_version_2_is_read():
    transcript = export("version2.json")
    answer = next(message for message in messages_of(transcript) if isinstance(message, AssistantMessage))
    kinds = [type(part) for part in answer.content]
    assert kinds == [
        Reasoning, Text, ToolCall, ToolCall, ToolCall, MalformedToolCall, ToolCall, ServerToolResult, ToolCall,
    ]  # fmt: skip
    assert answer.content[0].encrypted == "Z0FB"
    results = [message for message in messages_of(transcript) if isinstance(message, ToolMessage)]
    assert [(each.tool_call_id, each.is_error) for each in results] == [("c1", False), ("c2", True), ("c6", False)]
    assert [message.text for message in for_model(transcript.thread.path())] == [
        "They looked at a dot.", "user: and?", "Go on.", "On.",
    ]  # fmt: skip
    assert session_of(transcript.metadata).format == "2"


def test_what_nobody_knows_is_reported():
    _, drift = OPENCODE.read_with_unknown((FILES / "odd.json").read_bytes())
    assert {(each.kind, each.name) for each in drift} >= {
        ("key", "message.more"),
        ("key", "info.user.new"),
        ("block", "hologram"),
        ("unread", "message of role critic"),
        ("value", "state.status"),
    }


# -- writing -----------------------------------------------------------------------------------------------------------

TALK = (
    user("hi", Image(Inline("iVBO"), "image/png")),
    assistant(Reasoning("r", "s", wire="anthropic_messages"), ToolCall("c1", "f", '{"a": 1.0}'), ToolCall("c2", "g")),
    tool("one", tool_call_id="c1", tool_name="f"),
    tool("broke", tool_call_id="c2", tool_name="g", is_error=True),
    assistant("done").replace(
        model="m", usage=Usage(input=1, output=2), finish_reason="stop", finish_reason_raw="stop"
    ),
)


def test_an_answer_has_its_results_and_names_its_question():
    found, losses = written(*TALK)
    asked, answer, last = found["messages"]
    assert answer["info"]["parentID"] == last["info"]["parentID"] == asked["info"]["id"]
    assert [part["type"] for part in answer["parts"]] == ["step-start", "reasoning", "tool", "tool"]
    assert answer["parts"][1]["metadata"]["anthropic"] == {"signature": "s"}
    assert answer["parts"][2]["state"] | {"status": "completed", "output": "one"} == answer["parts"][2]["state"]
    assert answer["parts"][3]["state"] | {"status": "error", "error": "broke"} == answer["parts"][3]["state"]
    assert last["info"]["tokens"]["output"] == 2
    assert losses == ()


def test_a_call_that_a_provider_ran_is_sent_with_its_result():
    """opencode sends a call with ``providerExecuted`` alone, for the package of its provider."""
    call = ToolCall("s1", "web_search", '{"q": "tide"}', provider_executed=True)
    result = ServerToolResult("s1", Json.of(["high"]).value_json, "openai_responses")
    said = AssistantMessage(content=(call, result, Text("High.")))
    found, losses = written(user("Tide?"), said)
    (part,) = [each for each in found["messages"][1]["parts"] if each["type"] == "tool"]
    assert "providerExecuted" not in part.get("metadata", {})
    assert (part["state"]["status"], part["state"]["output"]) == ("completed", '["high"]')
    assert ("converted", "provider executed") in {(each.kind, each.what) for each in losses}
    assert again(user("Tide?"), said)[1] == said


def test_there_and_back_gives_the_same_messages():
    odd = (
        system("be brief"),
        *TALK,
        assistant(
            Text("t"),
            Refusal("no"),
            ToolCall("s1", "web", "{}", provider_executed=True),
            ServerToolResult("s1", Json.of([1]).value_json, "anthropic_messages", "web"),
            MalformedToolCall("{", "no JSON", "f", "c3"),
            ToolCall("c4", "free", '"text"', custom=True),
            Opaque("openai_responses", Json.of({"type": "x"}).value_json),
        ).replace(usage=Usage(input=3)),
        tool("late", tool_call_id="nobody", tool_name="f"),
        user("go on").replace(source="hook", agent="a", tags=("t",)),
        assistant(ToolCall("c1", "f")),
        user("hurry"),
        tool(Text("one"), Json.of(2), Image(Url("https://x.example/a.png")), tool_call_id="c1", tool_name="f"),
        FlushMarker(reason="r"),
        assistant("shown").replace(tags=("placeholder",)),
        assistant(Image(Inline("iVBO"), "image/png")),
        user("last"),
    )
    assert again(*odd, history="all") == list(odd)


@given(st.lists(any_messages(), min_size=1, max_size=4))
def test_any_conversation_is_written_and_comes_back(messages):
    messages = [without_records(message).replace(id=None, sent_at=None) for message in messages]
    assert again(*messages, history="all") == [message for message in messages if "record" not in message.tags]


def test_what_no_model_is_sent_is_shown_only():
    found, losses = written(system("be brief"), user("hi"))
    told = found["messages"][0]
    assert told["info"]["role"] == "user"
    assert [(part["text"], part["ignored"]) for part in told["parts"]] == [("be brief", True)]
    assert [(loss.kind, loss.what) for loss in losses] == [("converted", "system")]


def test_without_the_slot_nothing_is_carried():
    found, losses = written(*TALK, FlushMarker(reason="x"), user("b"), history="all", carry=False)
    assert "palaver" not in json.dumps(found)
    assert [loss.what for loss in losses] == ["flush", "reason"]


def test_the_same_conversation_gives_the_same_file():
    talk = [message.replace(sent_at=1767323045000) for message in TALK]
    assert OPENCODE.write(transcript_of(talk)).body == OPENCODE.write(transcript_of(talk)).body


# -- edits -------------------------------------------------------------------------------------------------------------


def edited(name, find, change):
    """A file in which the first message with a text was changed."""
    transcript = export(name)
    done = False
    thread = type(transcript.thread)(transcript.thread.id)
    for entry in transcript.thread.entries:
        message = entry.message
        if not done and find in message.text:
            done, message = True, change(message)
        thread.add([Entry(entry.id, entry.parent, message)])
    thread.add((), transcript.thread.branches)
    return OPENCODE.write(type(transcript)(thread, transcript.title, transcript.metadata)).body


def test_an_edited_text_changes_nothing_else():
    before = json.loads((FILES / "export.json").read_bytes())
    after = json.loads(edited("export.json", "It says", lambda message: message.replace(content=["New."])))
    at = next(
        place
        for place, (one, other) in enumerate(zip(before["messages"], after["messages"], strict=True))
        if one != other
    )
    new, old = after["messages"][at], before["messages"][at]
    assert new["parts"][1]["text"] == "New."
    new["parts"][1] = old["parts"][1]
    assert after == before


def test_an_edit_leaves_the_states_of_calls_as_they_were():
    before = json.loads((FILES / "export.json").read_bytes())
    changed = edited(
        "export.json",
        "RecordReader.",
        lambda message: message.replace(content=message.content[:1] + message.content[2:]),
    )
    after = json.loads(changed)
    old, new = before["messages"][1]["parts"], after["messages"][1]["parts"]
    assert [part for part in old if part.get("text") != "RecordReader."] == new
    transcript = export("export.json")
    kept = [without_records(message) for message in messages_of(transcript)]
    read = [without_records(message) for message in messages_of(OPENCODE.read(changed)[0])]
    assert [message.text for message in read] == [message.text.replace("RecordReader.", "") for message in kept]


def test_an_edited_text_of_version_2_stays_version_2():
    before = json.loads((FILES / "version2.json").read_bytes())
    after = json.loads(
        edited(
            "version2.json",
            "Let me look",
            lambda message: message.replace(content=[*message.content[:1], Text("New."), *message.content[2:]]),
        )
    )
    answer = next(message for message in after["messages"] if message["type"] == "assistant")
    assert answer["content"][1] == {"type": "text", "id": "t1", "text": "New."}
    old = next(message for message in before["messages"] if message["type"] == "assistant")
    assert {key: answer[key] for key in old if key != "content"} == {key: old[key] for key in old if key != "content"}
    assert answer["content"][2]["time"] == old["content"][2]["time"]
    (back,) = OPENCODE.read(json.dumps(after).encode())
    kept = [without_records(message) for message in messages_of(export("version2.json"))]
    new = [without_records(message) for message in messages_of(back)]
    assert [message.text for message in new] == [message.text.replace("Let me look.", "New.") for message in kept]


@pytest.mark.parametrize("name", ["export.json", "version2.json"])
def test_a_conversation_goes_on(name):
    transcript = export(name)
    thread, parent = transcript.thread, transcript.thread.branches[MAIN]
    for number, message in enumerate(
        (user("more"), assistant(ToolCall("n", "f")), tool("r", tool_call_id="n"), assistant("end"))
    ):
        thread.add([Entry(f"new-{number}", parent, message)], {MAIN: f"new-{number}"})
        parent = f"new-{number}"
    before, after = json.loads((FILES / name).read_bytes()), json.loads(OPENCODE.write(transcript).body)
    assert after["messages"][: len(before["messages"])] == before["messages"]
    assert len(after["messages"]) == len(before["messages"]) + 3
    transcripts, drift = OPENCODE.read_with_unknown(json.dumps(after).encode())
    assert drift == ()
    assert [message.text for message in messages_of(transcripts[0])][-4:] == ["more", "", "r", "end"]
    if name == "export.json":
        ids = [message["info"]["id"] for message in after["messages"]]
        assert ids[-4:] == sorted(ids[-4:])


def test_a_result_that_is_added_goes_into_the_part_of_its_call():
    data = json.loads((FILES / "export.json").read_bytes())
    data["messages"] = data["messages"][:7]
    (transcript,) = OPENCODE.read(json.dumps(data).encode())
    parent = transcript.thread.branches[MAIN]
    transcript.thread.add([Entry("new", parent, tool("seen", tool_call_id="call_t", tool_name="task"))], {MAIN: "new"})
    after = json.loads(OPENCODE.write(transcript).body)
    assert after["messages"][:6] == data["messages"][:6]
    part = next(part for part in after["messages"][6]["parts"] if part.get("callID") == "call_t")
    assert (part["state"]["status"], part["state"]["output"]) == ("completed", "seen")
    assert part["id"] == next(each["id"] for each in data["messages"][6]["parts"] if each.get("callID") == "call_t")


def test_system_messages_of_version_2_are_ours():
    assert any(isinstance(message, SystemMessage) for message in messages_of(export("version2.json")))
