"""Links of a history: the same for what says the same."""

import pytest

from palaver import assistant, system, tool, tool_call, user, wires
from palaver.core.parts import Reasoning, Text
from palaver.gateway.log.history import digest, instructions, links, title, without_reminders
from tests.gateway.test_wires import ASKED


def linked(messages, seed):
    return links(map(digest, messages), seed)


WIRES = ("openai_chat", "openai_responses", "anthropic_messages", "bedrock_converse", "ollama_chat")


@pytest.mark.row("GW-33")
@pytest.mark.parametrize("wire", WIRES)
def test_a_history_has_the_same_links_in_every_wire(wire):
    codec = wires.get(wire)
    read = codec.decode_request(codec.encode_request(ASKED).body).messages
    assert linked(read[instructions(read) :], "key") == linked(ASKED.messages[1:], "key")


def test_what_clients_change_from_turn_to_turn_changes_no_link():
    one = [
        user("Look."),
        assistant(Reasoning("Hm.", signature="s"), Text("I do."), tool_call("f", '{"a": 1, "b": 2}', id="1")),
        tool("there ", tool_call_id="1", tool_name="f"),
        user("More."),
    ]
    other = [
        user("<system-reminder>It is late.</system-reminder>", "Look.\n"),
        assistant(Text("I do."), tool_call("f", '{"b":2,"a":1}', id="2")),
        user("<system-reminder>Be\nbrief.</system-reminder>"),
        tool("there", tool_call_id="2"),
        user("More."),
    ]
    mine, theirs = linked(one, ""), linked(other, "")
    assert list(dict.fromkeys(theirs)) == mine


@pytest.mark.parametrize(
    "other",
    [
        [user("Look!")],
        [assistant("Look.")],
        [user("Look."), user("Now.")],
        [assistant(tool_calls=[tool_call("f", "{}", id="1")])],
        [assistant(tool_calls=[tool_call("f", '{"a":1}', id="1")])],
    ],
)
def test_what_says_something_else_has_another_link(other):
    assert linked([user("Look.")], "")[-1] != linked(other, "")[-1]
    assert linked(other, "")[-1] != linked(other, "another key")[-1]


def test_the_title_is_the_first_line_of_the_user():
    assert title([system("Be brief."), user("<system-reminder>x</system-reminder>\n Fix it\nsoon")]) == "Fix it"
    assert title([user("<session_context>\na<b>\n</session_context>"), user("<env>x</env>Fix it")]) == "Fix it"
    assert title([assistant("Hi"), user("<a>b</a>")]) is None
    assert len(title([user("x" * 500)])) == 80


def test_reminders_that_are_closed_are_left_out():
    text = "a<system-reminder>b<system-reminder>c</system-reminder>d</system-reminder>e<system-reminder>f"
    assert without_reminders(text) == "ad</system-reminder>e<system-reminder>f"


@pytest.mark.parametrize("text", ["<system-reminder>", "</system-reminder><system-reminder>", "<a></a>", "<a>"])
def test_no_prompt_keeps_the_writer_busy(text):
    """With quadratic time, this would take many minutes."""
    messages = [user(text * 400_000)]
    assert len(linked(messages, "")) == 1
    assert title(messages) is None or text != "<a></a>"
