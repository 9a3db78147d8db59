"""ChatGPT's account exports: what each node of a conversation becomes."""

from __future__ import annotations

import json

import pytest

from palaver import transcripts
from palaver.core.errors import EncodeError
from palaver.core.messages import AssistantMessage, SystemMessage, ToolMessage, UserMessage
from palaver.core.parts import Audio, FileId, Image, Opaque, Reasoning, Text, ToolCall
from palaver.transcripts.conversation import session_of
from palaver.transcripts.writer import is_record
from tests.transcripts.samples import FOLDER

CHATGPT = transcripts.get("chatgpt")
SAMPLE = (FOLDER / "chatgpt" / "conversations.json").read_bytes()


def said(role, content, *, parent=None, **more):
    """A node with a message."""
    author = {"role": role, "name": more.pop("name", None)}
    return {"parent": parent, "message": {"author": author, "content": content, "recipient": "all", **more}}


def text(*parts):
    return {"content_type": "text", "parts": [*parts]}


def read(nodes, **more):
    mapping = {key: {"id": key, "children": [], **node} for key, node in nodes.items()}
    return CHATGPT.read_with_unknown(json.dumps([{"mapping": mapping, **more}]).encode())


def path_of(transcript, branch="main"):
    return [entry.message for entry in transcript.thread.path(branch) if not is_record(entry)]


def test_a_file_has_several_conversations_with_title_id_and_time():
    first, second = CHATGPT.read(SAMPLE)
    assert (first.title, second.title) == ("High tide", "A harbour")
    assert first.thread.id == session_of(first.metadata).id == "6891a485-3fec-4331-964d-f6bafb8733d3"
    assert session_of(second.metadata).id == "chat-2"
    assert session_of(first.metadata).started_at == 1754375325171


def test_the_main_branch_ends_in_the_current_node_and_the_others_stay():
    first, _ = CHATGPT.read(SAMPLE)
    assert path_of(first)[-1].text == "High tide is at 18:42."
    assert [message.text for message in path_of(first, "branch-1")][-2:] == [
        "At 18:42, as the chart says.",
        "And low tide?",
    ]


def test_nodes_before_their_parents_are_read_in_the_order_of_the_tree():
    _, second = CHATGPT.read(SAMPLE)
    assert [message.text for message in path_of(second)] == ["Name a harbour.", "Whitby."]


def test_every_node_is_one_entry():
    for transcript, conversation in zip(CHATGPT.read(SAMPLE), json.loads(SAMPLE), strict=True):
        ids = [entry.id for entry in transcript.thread.entries]
        assert len(ids) == len(conversation["mapping"])
        assert set(ids) == set(conversation["mapping"])


def test_calls_and_results_are_paired_by_tool_and_place():
    first, _ = CHATGPT.read(SAMPLE)
    messages = path_of(first)
    python, web = [call for message in messages for call in message.tool_calls]
    assert (python.name, python.custom, json.loads(python.arguments_json)) == ("python", True, "max([3.1, 4.8, 2.2])")
    assert (web.name, web.arguments) == ("web.run", {"q": "tide harbour"})
    results = [message for message in messages if isinstance(message, ToolMessage)]
    assert [each.tool_call_id for each in results] == [python.id, web.id, web.id, web.id]
    assert [each.is_error for each in results] == [False, False, False, True]
    assert results[0].content == (Text("4.8"), Image(FileId("file-service://file-plot", "chatgpt")))


def test_parallel_calls_are_answered_in_their_order():
    nodes = {
        "a": said("assistant", text("{}"), recipient="web.search"),
        "b": said("assistant", text("{}"), recipient="web.open", parent="a"),
        "c": said("tool", text("one"), name="web.search", parent="b"),
        "d": said("tool", text(""), name="web.open", parent="c"),
        "e": said("tool", text("nobody asked"), name="bio", parent="d"),
    }
    ((transcript,), unknown) = read(nodes)
    assert not unknown
    results = [each for each in path_of(transcript) if isinstance(each, ToolMessage)]
    assert [(each.tool_call_id, each.text) for each in results] == [("a", "one"), ("b", ""), (None, "nobody asked")]


def test_thoughts_are_reasoning_and_the_recap_is_a_record():
    first, _ = CHATGPT.read(SAMPLE)
    (thought,) = [part for each in path_of(first) for part in each.content if isinstance(part, Reasoning)]
    assert thought.text == "Reading the chart\n\nThe curve peaks in the evening."
    assert "Thought for" not in "".join(each.text for each in path_of(first))


def test_hidden_contexts_have_a_source_and_memory_is_a_system_message():
    first, _ = CHATGPT.read(SAMPLE)
    profile, memory = path_of(first)[:2]
    assert isinstance(profile, UserMessage)
    assert profile.source == "user_editable_context"
    assert isinstance(memory, SystemMessage)
    assert (memory.source, memory.text) == ("model_editable_context", "1. The user lives by the sea.")


def test_media_and_attachments_are_ids_of_files_once():
    first, _ = CHATGPT.read(SAMPLE)
    question = path_of(first)[2]
    image, _, table = question.content
    assert image.source == FileId("sediment://file_00000000aa", "chatgpt")
    assert (table.name, table.media_type, table.source.id) == ("harbour.csv", "text/csv", "file_00000000bb")
    (audio,) = [part for part in path_of(first, "branch-1")[-1].content if isinstance(part, Audio)]
    assert audio.source == FileId("sediment://file_00000000cc", "chatgpt")


def test_an_answer_has_its_model_its_end_and_its_sources():
    first, second = CHATGPT.read(SAMPLE)
    answer, old = path_of(first)[-1], path_of(second)[-1]
    assert isinstance(answer, AssistantMessage)
    assert (answer.model, answer.finish_reason, answer.sent_at) == ("gpt-5-thinking", "stop", 1754375333000)
    assert old.finish_reason == "length"
    for message in (answer, old):
        (source,) = message.content[0].citations
        assert message.text[source.start : source.end] in {"18:42", "Whitby"}
        assert source.url.startswith("https://")


def test_an_unknown_content_is_kept_and_reported():
    ((transcript,), unknown) = read({"a": said("user", {"content_type": "hologram", "beam": 3})})
    assert [str(each) for each in unknown] == ["unknown block hologram"]
    assert isinstance(path_of(transcript)[0].content[0], Opaque)


@pytest.mark.parametrize("role", ["critic", None])
def test_a_message_of_an_unknown_role_is_a_record_and_reported(role):
    ((transcript,), unknown) = read({"a": said(role, text("x"))})
    assert path_of(transcript) == []
    assert [each.kind for each in unknown] == ["unread"]


def test_a_missing_parent_is_reported_and_its_node_is_read():
    ((transcript,), unknown) = read({"a": said("user", text("x"), parent="gone")})
    assert [message.text for message in path_of(transcript)] == ["x"]
    assert [each.kind for each in unknown] == ["link"]


def test_conversations_of_one_id_are_two():
    conversation = json.loads(SAMPLE)[0]
    found = CHATGPT.read(json.dumps([conversation, conversation]).encode())
    assert len({each.thread.id for each in found}) == len(found) == 2


def test_lines_with_a_conversation_each_are_read():
    lines = b"".join(json.dumps(each).encode() + b"\n" for each in json.loads(SAMPLE))
    assert [each.title for each in CHATGPT.read(lines)] == ["High tide", "A harbour"]


def test_it_is_only_read():
    (first, _) = CHATGPT.read(SAMPLE)
    with pytest.raises(EncodeError, match="only read"):
        CHATGPT.write(first)


def test_calls_are_no_text():
    first, _ = CHATGPT.read(SAMPLE)
    (answer,) = [
        each for each in path_of(first) if any(isinstance(part, ToolCall) and part.custom for part in each.content)
    ]
    assert answer.text == ""
