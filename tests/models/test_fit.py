"""Fitting: what a model cannot see or do is left out or said otherwise, with one loss each, or refused."""

import pytest
from msgspec import structs

import palaver as p
from palaver import wires
from palaver.core.errors import CapabilityError
from palaver.models.catalogue import Capabilities
from palaver.models.encoded_prompt import fit
from palaver.models.language_model import Prompt
from palaver.testing.rules import check_request

ALL = Capabilities()
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = p.Tool.of("look", "Look it up.", {"type": "object", "properties": {}})
HISTORY = (
    p.user("What is the weather?"),
    p.assistant("I look.", p.tool_call("look", {"city": "Oslo"}, id="call_1")),
    p.tool("Rain.", tool_call_id="call_1", tool_name="look"),
    p.assistant("It rains."),
    p.user("And tomorrow?"),
)


class Counted(tuple):
    """Messages that tell when they are read."""

    __slots__ = ()

    def __iter__(self):
        raise AssertionError("the messages were read")

    def __getitem__(self, index):
        raise AssertionError("the messages were read")


def prompt(*messages, **fields):
    return Prompt(messages=messages or (p.user("Hi"),), **fields)


def output(kind, **fields):
    return p.OutputFormat(kind, **fields)


@pytest.mark.parametrize(
    "settings",
    [
        p.Settings(),
        p.Settings(max_tokens=5, effort="high", reasoning_tokens=7, parallel_tool_calls=True),
        p.Settings(tool_choice=p.ToolChoice("required"), output=p.OutputFormat("json")),
    ],
)
def test_a_prompt_that_asks_for_nothing_it_cannot_do_is_the_same_object_and_is_not_read(settings):
    asked = Prompt(messages=Counted(HISTORY), tools=(TOOL,), settings=settings)
    for missing in ("drop", "refuse"):
        assert fit(asked, ALL, missing) == (asked, ())
        assert fit(asked, ALL, missing)[0] is asked


def test_media_are_not_looked_for_where_they_are_only_left_out():
    asked = Prompt(messages=Counted(HISTORY))
    assert fit(asked, Capabilities(media=frozenset()))[0] is asked


# -- tools --


def test_without_tools_none_is_offered_and_calls_are_sent_as_text():
    settings = p.Settings(tool_choice=p.ToolChoice("required"), parallel_tool_calls=True, max_tokens=9)
    fitted, losses = fit(Prompt(messages=HISTORY, tools=(TOOL,), settings=settings), Capabilities(tools=False))
    assert fitted.tools == ()
    assert fitted.settings == p.Settings(max_tokens=9)
    assert [message.role for message in fitted.messages] == ["user", "assistant", "user", "assistant", "user"]
    assert fitted.messages[1].text == 'I look.[Called the tool look with {"city":"Oslo"}]'
    assert [part.text for part in fitted.messages[2].content] == ["[Tool result of look]", "Rain."]
    assert [(loss.what, loss.message, loss.part) for loss in losses] == [
        ("tools", None, None),
        ("tool_choice", None, None),
        ("tool call", 1, 1),
        ("tool result", 2, None),
    ]


def test_messages_without_calls_stay_the_same_object():
    asked = prompt(p.user("a"), p.assistant("b"), p.user("c"))
    fitted, losses = fit(asked, Capabilities(tools=False))
    assert fitted is asked
    assert losses == ()


@pytest.mark.parametrize("wire", wires.names())
def test_a_conversation_with_calls_goes_to_a_model_without_tools_on_every_wire(wire):
    fitted, _ = fit(Prompt(messages=HISTORY, tools=(TOOL,)), Capabilities(tools=False))
    encoded = wires.get(wire).encode_request(fitted.request("some-model"))
    assert check_request(wire, encoded.body) == []
    assert b"Rain." in encoded.body
    assert b"Oslo" in encoded.body


# -- settings --


@pytest.mark.parametrize(
    ("asked", "capabilities", "sent", "lost"),
    [
        ({"parallel_tool_calls": True}, {"parallel_tools": False}, {}, ["parallel_tool_calls"]),
        ({"parallel_tool_calls": False}, {"parallel_tools": False}, {}, []),
        ({"effort": "high"}, {"reasoning": False}, {}, ["effort"]),
        ({"effort": "none"}, {"reasoning": False}, {}, []),
        ({"effort": "low", "reasoning_tokens": 5}, {"reasoning": False}, {}, ["effort", "reasoning_tokens"]),
        ({"effort": "high"}, {"reasoning": None}, {"effort": "high"}, []),
        ({"effort": "high"}, {"reasoning": True}, {"effort": "high"}, []),
        ({"max_tokens": 100}, {"max_output": 99}, {"max_tokens": 99}, ["max_tokens"]),
        ({"max_tokens": 99}, {"max_output": 99}, {"max_tokens": 99}, []),
        ({"max_tokens": 10**6}, {"max_output": None}, {"max_tokens": 10**6}, []),
    ],
)
def test_settings_are_brought_to_what_the_model_does(asked, capabilities, sent, lost):
    fitted, losses = fit(prompt(settings=p.Settings(**asked)), Capabilities(**capabilities))
    assert fitted.settings == p.Settings(**sent)
    assert [loss.what for loss in losses] == lost


# -- the form of the answer --


@pytest.mark.parametrize(
    ("structured", "asked", "sent", "told"),
    [
        ("json_schema", "json_schema", "json_schema", False),
        ("json_schema", "json", "json", False),
        ("json", "json", "json", False),
        ("json", "json_schema", "json", True),
        (None, "json_schema", None, True),
        (None, "json", None, True),
        (None, "text", "text", False),
    ],
)
def test_a_form_that_the_wire_cannot_enforce_is_in_the_instructions(structured, asked, sent, told):
    made = output(asked)
    if asked == "json_schema":
        made = structs.replace(made, schema_json=p.Tool.of("x", None, SCHEMA).parameters_json, name="place")
    before = p.system("Be brief.")
    fitted, losses = fit(
        prompt(system=(before,), settings=p.Settings(output=made)), Capabilities(structured=structured)
    )
    assert (fitted.settings.output and fitted.settings.output.kind) == sent
    assert fitted.system[0] is before
    assert len(fitted.system) == 1 + told
    assert [loss.what for loss in losses] == ["output"] * told
    if told and asked == "json_schema":
        assert '"required":["city"]' in fitted.system[1].text.replace(" ", "")


def test_the_instructions_are_the_same_each_turn():
    asked = prompt(settings=p.Settings(output=output("json")))
    assert fit(asked, Capabilities(structured=None)) == fit(asked, Capabilities(structured=None))


# -- refusing --


@pytest.mark.row("DAS-09")
def test_what_is_missing_can_be_refused_and_all_of_it_is_named():
    image = p.Image(p.Url("https://x/a.png"))
    asked = Prompt(
        messages=(
            p.user("a", image),
            p.assistant(p.tool_call("look", {}, id="c")),
            p.tool(image, tool_call_id="c"),
        ),
        tools=(TOOL,),
        settings=p.Settings(effort="high", max_tokens=9, output=output("json")),
    )
    poor = Capabilities(media=frozenset(), tools=False, reasoning=False, max_output=8, structured=None)
    with pytest.raises(CapabilityError) as caught:
        fit(asked, poor, "refuse")
    text = str(caught.value)
    for what in ("tools", "effort", "max_tokens", "output", "messages[1].content[0]: tool call"):
        assert what in text
    for what in ("messages[0].content[1]: image", "messages[2]: tool result"):
        assert what in text
    with pytest.raises(
        CapabilityError, match=r"messages\[0\]\.content\[1\]: image .*messages\[2\]\.content\[0\]: image"
    ):
        fit(asked, Capabilities(media=frozenset({"audio"})), "refuse")
    assert fit(asked, Capabilities(media=frozenset({"image"})), "refuse") == (asked, ())
