"""Where cache marks stand, and that they can be put on and taken off."""

from __future__ import annotations

import json

import pytest
from bench import prefixes
from hypothesis import given, settings, strategies as st

import palaver as p
from palaver import wires
from palaver.context import marks
from palaver.context.marks import BridgeMarks, CachePlan, StableMarks, stable_marks, turn_marks
from palaver.core.errors import MessageError
from palaver.testing import strategies
from palaver.threads.thread import ListPrefix
from palaver.tokens import estimate
from palaver.turn import notes
from tests.context.growing import EVERY, TOOLS, conversation, growing
from tests.generated import examples
from tests.wires.histories import histories

USER, STEP = (notes.USER_PROMPT,), (notes.STEP_PROMPT,)
MARK = {"type": "ephemeral"}
OFF = CachePlan(head=False, automatic=False)


def _turns(messages, **more):
    """A request with the marks of Codebuff, as the Messages wire says it."""
    plan = CachePlan(places=turn_marks, head=False, automatic=False)
    wire = wires.get("anthropic_messages")
    request = p.Request(tuple(messages), "m", **more)
    return json.loads(wire.encode_request(wire.marked(request, plan)).body)


def _where(body):
    """Places of the marks: message, block."""
    return [
        (at, number)
        for at, message in enumerate(body["messages"])
        for number, block in enumerate(message["content"])
        if "cache_control" in block
    ]


# -- Codebuff's four -------------------------------------------------------------------------------


@pytest.mark.row("CBF-15")
def test_the_four_places():
    messages = [
        p.user("0"),
        p.user("1", tags=USER),
        p.assistant("2"),
        p.user("3"),
        p.user("4", tags=STEP),
        p.user("5"),
    ]
    assert turn_marks(messages) == (0, 1, 3, 5)  # before the prompt, the answer, the step; the end
    assert turn_marks(messages[:2]) == (0, 1)
    assert turn_marks(messages[1:3]) == (0, 1)  # nothing stands before the prompt
    assert (notes.USER_PROMPT, notes.STEP_PROMPT) == marks._PROMPTS
    body = _turns(messages)
    assert _where(body) == [(0, 0), (1, 0), (3, 0), (5, 0)]
    assert body["messages"][5]["content"][0]["cache_control"] == MARK


@pytest.mark.row("CBF-15")
def test_the_last_of_each_kind_counts():
    messages = [each for turn in range(3) for each in (p.user(f"u{turn}", tags=USER), p.assistant(f"a{turn}"))]
    assert turn_marks(messages) == (3, 4, 5)


@pytest.mark.row("CBF-15")
def test_an_empty_list_has_none_and_is_no_error():
    assert turn_marks([]) == stable_marks([]) == BridgeMarks()([]) == ()
    for name in EVERY:
        wire = wires.get(name)
        plan = CachePlan(places=turn_marks, key="k")
        assert wire.unmarked(wire.marked(p.Request(), plan)) == p.Request()


@pytest.mark.row("CBF-15")
def test_the_mark_stands_on_the_nearest_earlier_part_that_can_carry_one():
    thought = p.Reasoning("hm", signature="c2ln", wire="anthropic_messages")
    call = p.ToolCall("c1", "look", "{}")
    body = _turns([p.user("one", " "), p.assistant("two", thought), p.user("3"), p.assistant(thought, call)])
    assert _where(body) == [(2, 0), (3, 1)]  # thinking carries none, blank text is not sent
    body = _turns([p.user("one"), p.assistant(thought), p.user(" ")])
    assert _where(body) == [(0, 0)]  # the message before; it has one already, so there is one less


@pytest.mark.row("CBF-15")
def test_a_result_carries_its_mark_itself():
    said = [p.user("one"), p.assistant(p.ToolCall("c1", "look", "{}")), p.tool("r", tool_call_id="c1")]
    body = _turns(said)
    assert body["messages"][2]["content"][0]["cache_control"] == MARK


@pytest.mark.row("CBF-15")
@pytest.mark.parametrize("name", EVERY)
def test_off_is_what_it_was(name):
    wire = wires.get(name)
    request = p.Request(tuple(conversation(name)), prefixes.MODELS.get(name, "a-model"), TOOLS)
    assert wire.marked(request, OFF) == request


@pytest.mark.row("CBF-15")
@pytest.mark.conflict("C12")
@pytest.mark.parametrize("name", EVERY)
@settings(max_examples=15)
@given(data=st.data())
def test_taking_marks_off_restores_the_body(name, data):
    wire = wires.get(name)
    messages = data.draw(growing(name) | histories())
    places = tuple(data.draw(st.lists(st.integers(0, max(0, len(messages) - 1)), max_size=4, unique=True).map(sorted)))
    plan = CachePlan(
        places=lambda said: [place for place in places if place < len(said)],
        automatic=data.draw(st.booleans()),
        head=data.draw(st.booleans()),
        key=data.draw(st.sampled_from([None, "k"])),
    )
    tools = data.draw(st.sampled_from([(), TOOLS]))
    request = p.Request(tuple(messages), prefixes.MODELS.get(name, "a-model"), tools)
    marked = wire.marked(request, plan)
    assert wire.unmarked(marked) == request
    assert wire.encode_request(wire.unmarked(marked)).body == wire.encode_request(request).body
    assert all(new.metadata_json == old.metadata_json for new, old in zip(marked.messages, messages, strict=True))


@settings(max_examples=examples(30))
@given(st.lists(strategies.user_messages(), max_size=3))
def test_other_fields_of_a_provider_stay(messages):
    wire = wires.get("openai_chat", "openrouter")
    request = p.Request(tuple(messages), "anthropic/claude")
    plan = CachePlan(places=lambda said: range(len(said)))
    bare = wire.unmarked(wire.marked(request, plan))  # an empty ``provider`` is left out, which no body shows
    assert wire.encode_request(bare).body == wire.encode_request(request).body
    assert [dict(each.provider) for each in bare.messages] == [dict(each.provider) for each in request.messages]


def test_what_the_request_says_itself_stays():
    wire = wires.get("openai_chat")
    request = p.Request((p.user("hi"),)).replace(provider={"openai_chat": {"prompt_cache_key": "mine"}})
    assert wire.marked(request, CachePlan(key="thread")) == request
    long = wire.marked(p.Request((p.user("hi"),)), CachePlan(key="x" * 100))
    assert long.provider["openai_chat"]["prompt_cache_key"] == "x" * 64


@pytest.mark.row("CBF-15")
def test_the_head_goes_before_and_the_last_places_get_what_is_left():
    wire = wires.get("anthropic_messages", "vertex")
    request = p.Request((p.system("s"), *(p.user(text) for text in "abcdef")), "m", TOOLS)
    marked = wire.marked(request, CachePlan(places=lambda said: range(len(said))))
    carriers = [at for at, (new, old) in enumerate(zip(marked.messages, request.messages, strict=True)) if new != old]
    assert carriers == [0, 5, 6]
    assert wire.encode_request(marked).body.count(b"cache_control") == 4


@pytest.mark.parametrize(
    ("wire", "model", "tools", "messages"),
    [
        ("bedrock_converse", "us.anthropic.claude-x", 1, 2),
        ("bedrock_converse", "amazon.nova-pro-v1:0", 0, 2),
        ("bedrock_converse", "meta.llama3-1", 0, 0),
        ("bedrock_converse", None, 0, 0),
        ("openai_chat:openrouter", "google/gemini", 0, 2),
        ("openai_chat:openrouter", "openai/gpt-5", 0, 0),
        ("openai_chat:groq", "anthropic/claude", 0, 0),
    ],
)
def test_which_models_take_marks(wire, model, tools, messages):
    request = p.Request(tuple(conversation(wire)), model, TOOLS)
    spoken = wires.get(wire)
    marked = spoken.marked(request, CachePlan(places=StableMarks(step=600)))
    assert len(marked.tools) - len(TOOLS) == tools
    changed = [new for new, old in zip(marked.messages, request.messages, strict=True) if new != old]
    assert len(changed) == messages + (messages > 0)  # and the system prompt


# -- marks that stay -------------------------------------------------------------------------------

SIZES = st.lists(st.tuples(st.sampled_from("uuat"), st.integers(1, 60)), max_size=40)


def _of(sizes):
    make = {"u": p.user, "a": p.assistant, "t": lambda text: p.tool(text, tool_call_id="c")}
    return [make[role]("x" * size * 10) for role, size in sizes]


@given(SIZES, st.integers(1, 400), st.integers(1, 3))
def test_a_growing_list_has_the_places_of_a_new_one(sizes, step, keep):
    messages = _of(sizes)
    kept, bridges = StableMarks(step=step, keep=keep), BridgeMarks()
    window, bridged = StableMarks(step=step, keep=keep), BridgeMarks()
    for end in range(len(messages) + 1):
        expected = stable_marks(messages[:end], step=step, keep=keep)
        assert kept(messages[:end]) == window(ListPrefix(messages, end)) == expected
        assert bridges(tuple(messages[:end])) == bridged(ListPrefix(messages, end)) == BridgeMarks()(messages[:end])


@given(SIZES, st.integers(1, 400))
def test_places_are_few_in_order_and_far_apart(sizes, step):
    messages = _of(sizes)
    places = stable_marks(messages, step=step)
    assert len(places) <= marks.KEEP
    assert list(places) == sorted({*places})
    if len(places) == 2:
        assert sum(estimate(each) for each in messages[places[0] + 1 : places[1] + 1]) >= step
    assert not any(isinstance(messages[place], p.AssistantMessage) for place in places)


@given(SIZES, SIZES, st.integers(1, 400))
def test_a_turn_that_is_added_moves_none(sizes, more, step):
    """What an answer follows on stays, until as many new ones are wanted as are kept."""
    messages = _of(sizes)
    after = [*messages, p.assistant("so"), *_of(more)]
    before, now = stable_marks(messages, step=step), stable_marks(after, step=step)
    new = [place for place in now if place >= len(messages)]
    assert now == (*before, *new)[-marks.KEEP :]


def test_a_mark_stands_where_the_request_ended():
    messages = [p.user("x" * 4000), p.assistant("y"), p.user("short"), p.assistant("y"), p.user("x" * 4000)]
    assert stable_marks(messages[:1]) == stable_marks(messages[:4]) == (0,)
    assert stable_marks(messages) == (0, 4)


def test_a_bridge_is_put_where_the_one_before_ended():
    near, far = [p.user(*"abcde")], [p.user(*"abcdefghijklmnopq")]
    messages = [*far, p.assistant("y"), *near, p.assistant("y"), *far, p.assistant("y"), *near]
    assert [BridgeMarks()(messages[:end]) for end in (1, 3, 5, 6, 7)] == [(), (), (2,), (2,), (2,)]


def test_other_messages_begin_anew():
    kept = StableMarks(step=10)
    assert kept([p.user("x" * 100), p.assistant("y"), p.user("x" * 100)]) == (0, 2)
    assert kept([p.user("x"), p.assistant("y"), p.user("x" * 100)]) == (2,)


@pytest.mark.parametrize("bad", [{"step": 0}, {"keep": 0}])
def test_sizes_are_at_least_one(bad):
    with pytest.raises(MessageError):
        stable_marks([], **bad)
