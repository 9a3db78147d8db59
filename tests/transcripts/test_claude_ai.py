"""Claude.ai's account exports: what each message and block becomes."""

from __future__ import annotations

import json

import pytest

from palaver import transcripts
from palaver.core.errors import EncodeError
from palaver.core.messages import AssistantMessage, ToolMessage
from palaver.core.parts import File, FileId, Image, Opaque, Reasoning, Text, ToolCall
from palaver.transcripts.conversation import session_of
from palaver.transcripts.writer import is_record
from tests.transcripts.samples import FOLDER

CLAUDE = transcripts.get("claude_ai")
SAMPLE = (FOLDER / "claude_ai" / "conversations.json").read_bytes()
WEB = (FOLDER / "claude_ai" / "web.json").read_bytes()


def read(*messages, **more):
    return CLAUDE.read_with_unknown(
        json.dumps([{"uuid": "c", "name": "n", "chat_messages": messages, **more}]).encode()
    )


def path_of(transcript, branch="main"):
    return [entry.message for entry in transcript.thread.path(branch) if not is_record(entry)]


def test_a_file_has_several_conversations_and_empty_ones():
    first, old, empty = CLAUDE.read(SAMPLE)
    assert [first.title, old.title, empty.title] == ["High tide", None, "Nothing"]
    assert [len(each.thread.path()) for each in (first, old, empty)] == [7, 4, 0]
    assert session_of(first.metadata).started_at == 1774918980921


def test_messages_are_a_tree_by_their_parents():
    first, _, _ = CLAUDE.read(SAMPLE)
    assert [message.text for message in path_of(first)][-2:] == ["And low tide?", "At 12:30."]
    assert [message.text for message in path_of(first, "branch-1")][-2:] == ["High tide is at 18:42.", "Thanks."]


def test_the_web_interface_names_the_leaf_the_model_and_why_an_answer_ended():
    (transcript,) = CLAUDE.read(WEB)
    shown, other = path_of(transcript)[-1], path_of(transcript, "branch-1")[-1]
    assert (shown.text, shown.model, shown.finish_reason) == ("Hi.", "claude-sonnet-4-6", "stop")
    assert (other.text, other.finish_reason) == ("Good day.", "length")


def test_an_answer_is_split_at_the_results_of_its_calls():
    first, _, _ = CLAUDE.read(SAMPLE)
    asked, one, other, answered = path_of(first)[1:5]
    assert [type(part) for part in asked.content] == [Reasoning, Text, ToolCall, ToolCall]
    assert [call.arguments for call in asked.tool_calls] == [{"query": "tide harbour"}, {"path": "/mnt/tide.md"}]
    assert isinstance(one, ToolMessage)
    assert (one.tool_call_id, one.tool_name, one.text, one.is_error) == (
        "toolu_01",
        "web_search",
        "High water 18:42",
        False,
    )
    assert (other.tool_call_id, other.text, other.is_error) == ("toolu_02", "No such file", True)
    assert answered.text == "High tide is at 18:42."


def test_results_and_answers_have_their_sources():
    first, _, _ = CLAUDE.read(SAMPLE)
    _, _, result, _, answer = path_of(first)[:5]
    assert result.content[0].citations[0].title == "Harbour"
    (source,) = answer.content[0].citations
    assert (answer.text[source.start : source.end], source.url) == ("18:42", "https://tides.example/harbour")


def test_attachments_have_their_text_and_files_their_id():
    first, old, _ = CLAUDE.read(SAMPLE)
    table, chart, _ = path_of(first)[0].content
    assert (table.name, table.media_type) == ("harbour.csv", "text/plain")
    assert table.source.bytes == b"time,metres\n18:42,4.8\n"
    assert isinstance(chart, Image)
    assert chart.source == FileId("019d416b-0000-7000-8000-000000000080", "claude_ai")
    (map_,) = [part for part in path_of(old)[0].content if isinstance(part, File)]
    assert (map_.name, map_.source.id) == ("map.pdf", "map.pdf")


def test_calls_of_older_exports_have_no_ids_and_are_paired_by_their_place():
    _, old, _ = CLAUDE.read(SAMPLE)
    _, asked, result, answer = path_of(old)
    assert asked.tool_calls[0].id == result.tool_call_id
    assert answer.text == "Whitby."


def test_the_text_beside_blocks_is_not_read_twice():
    block = {"type": "tool_use", "id": "t", "name": "x", "input": {}}
    stand_in = "```\nThis block is not supported on your current device yet.\n```"
    ((transcript,), unknown) = read(
        {"uuid": "a", "sender": "human", "text": "Hi", "content": [{"type": "text", "text": "Hi"}]},
        {"uuid": "b", "sender": "assistant", "text": stand_in, "content": [block]},
    )
    assert not unknown
    assert [message.text for message in path_of(transcript)] == ["Hi", ""]


def test_an_unknown_block_is_kept_and_reported():
    ((transcript,), unknown) = read({"uuid": "a", "sender": "assistant", "content": [{"type": "hologram", "beam": 3}]})
    assert [str(each) for each in unknown] == ["unknown block hologram"]
    assert isinstance(path_of(transcript)[0].content[0], Opaque)


def test_a_message_of_an_unknown_sender_is_a_record_and_reported():
    ((transcript,), unknown) = read({"uuid": "a", "sender": "ghost", "text": "x"})
    assert path_of(transcript) == []
    assert [each.kind for each in unknown] == ["unread"]


def test_a_file_of_an_answer_stays_with_it():
    files = [{"file_uuid": "f", "file_name": "plot.png"}]
    ((transcript,), _) = read({"uuid": "a", "sender": "assistant", "text": "Here.", "files": files})
    (answer,) = path_of(transcript)
    assert isinstance(answer, AssistantMessage)
    assert [type(part) for part in answer.content] == [Image, Text]


def test_it_is_only_read():
    first, *_ = CLAUDE.read(SAMPLE)
    with pytest.raises(EncodeError, match="only read"):
        CLAUDE.write(first)
