"""What becomes of answers that cannot be shown, and what the log says of it (ASK-06, ASK-14, ASK-15)."""

import anyio
import pytest

import palaver as p
from palaver.swarm import Call, Custom, Flush, Policy, Recomplete, tool
from palaver.threads.view import DISCARDED
from tests.swarm.scripts import PLACEHOLDER, agent, asked, at_work, branching, calling
from tests.swarm.slow import Callers, Slow

pytestmark = pytest.mark.anyio

START = 'user/tool"Start the conversation"'
SHOWN = 'assistant"PLACEHOLDER" #placeholder'


@tool
async def broken(call: Call) -> None:
    """Raise."""
    raise OSError("no paper")


@tool(validate=lambda *_: False)
async def picky(call: Call) -> None:
    """Never run."""


TOOLS = [broken, picky]
FAULTS = {
    "unknown": (calling("nope"), "No target function for nope"),
    "refused": (calling("picky"), "Function validation failed: name=picky arguments={}"),
    "raised": (calling("broken"), "Function call failed with error: name=broken arguments={}"),
}
SCOPES = pytest.mark.parametrize(("scope", "start"), [("turn", []), ("thread", [START])])


# -- ASK-14 ---------------------------------------------------------------------------------------------------------


@SCOPES
@pytest.mark.row("ASK-14")
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(
    ("strategy", "second", "answer", "extra"),
    [
        (Flush(), "fixed", PLACEHOLDER, 0),
        (Recomplete("again"), "fixed", "fixed", 1),
        (Recomplete("again"), "", PLACEHOLDER, 1),
        (Recomplete("again"), calling("nope"), PLACEHOLDER, 1),
        (Recomplete("again"), RuntimeError("down"), PLACEHOLDER, 1),
        (Custom(lambda place, reason: f"{place.agent}: {reason}"), None, None, 0),
        (Custom(lambda *_: ""), None, PLACEHOLDER, 0),
    ],
    ids=["flush", "recomplete", "still empty", "calls again", "then fails", "custom", "custom is empty"],
)
async def test_a_rescue_asks_so_often_and_shows_this(*, strategy, second, answer, extra, fault, scope, start):
    first, reason = FAULTS[fault]
    answer = f"A: {reason}" if answer is None else answer
    script = [first] if second is None or not extra else [first, second]
    a = agent("A", script, tools=TOOLS, rescue=strategy, rescue_scope=scope)
    async with at_work(a) as it:
        assert await it.session.complete("x") == answer
        assert len(a.model.asked) == 1 + extra
        name = first.tool_calls[0].name
        assert it.log[: 3 + len(start)] == ['user/user"x"', f"assistant[{name}]", f'rescue"{reason}"', *start]
        assert it.log[-1] == (SHOWN if answer == PLACEHOLDER else f'assistant"{answer}"')
        assert await it.session.complete("next") == "answer:next"
    # what was shown of a rescue that worked is said after the marker, and stays
    worked = [] if answer == PLACEHOLDER else [f'assistant"{answer}"']
    assert asked(a)[-1] == ['system"PA"', *(start * it.log.count(START))[:1], *worked, 'user/user"next"']


@SCOPES
@pytest.mark.row("ASK-14", "ASK-15")
@pytest.mark.parametrize(
    ("strategy", "said", "answer", "extra"),
    [
        (Flush(), [], PLACEHOLDER, 0),
        (Recomplete("again"), ['user/tool"again"'], PLACEHOLDER, 1),
        (Custom(lambda *_: " \n"), [], PLACEHOLDER, 0),
    ],
    ids=["flush", "recomplete", "custom"],
)
async def test_a_model_that_says_nothing_ends_with_a_placeholder(*, strategy, said, answer, extra, scope, start):
    a = agent("A", ["", ""] if extra else [""], rescue=strategy, rescue_scope=scope)
    async with at_work(a) as it:
        assert await it.session.complete("x") == answer
        assert len(a.model.asked) == 1 + extra
        assert it.log == ['user/user"x"', *said, 'assistant"" #discarded', 'rescue"Empty output"', *start, SHOWN]


@SCOPES
@pytest.mark.row("ASK-14")
async def test_a_custom_answer_in_place_of_an_empty_one(scope, start):
    a = agent("A", [""], rescue=Custom(lambda _, reason: f"I: {reason}"), rescue_scope=scope)
    async with at_work(a) as it:
        assert await it.session.complete("x") == "I: Empty output"
        assert it.log == ['user/user"x"', 'assistant"I: Empty output"']


@pytest.mark.row("ASK-14")
async def test_a_rescue_that_calls_tools_leaves_a_second_marker():
    a = agent("A", [calling("nope"), calling("broken")], tools=TOOLS, rescue=Recomplete())
    async with at_work(a) as it:
        assert await it.session.complete("x") == PLACEHOLDER
        assert it.log[2:] == ['rescue"No target function for nope"', 'rescue"A rescue should not call tools"', SHOWN]


@pytest.mark.row("ASK-14")
async def test_no_call_may_run_and_nothing_is_said_is_asked_about_once_more():
    """With no calls allowed, what is left of an answer is its text."""
    a = agent("A", [calling("f"), "fixed"], max_tool_calls=0, rescue=Recomplete("again"))
    async with at_work(a) as it:
        assert await it.session.complete("x") == "fixed"
        assert it.log == ['user/user"x"', 'user/tool"again"', 'assistant"fixed"']
    always = agent("A", lambda _: calling("f"), max_tool_calls=0, rescue=Recomplete("again"))
    async with at_work(always) as it:
        assert await it.session.complete("x") == PLACEHOLDER
    assert len(always.model.asked) == 2


@pytest.mark.row("ASK-14", "ASK-17")
async def test_a_stateless_question_heeds_what_is_said_of_failing_models():
    a = agent("A", [RuntimeError("down"), "up"], on_model_error="placeholder")
    async with at_work(a) as it:
        assert await it.session.run("x") == PLACEHOLDER
        assert it.log == []
        (error,) = await it.heard("agent", "error")
        assert error.output["error"] == "RuntimeError: down"
        assert await it.session.run("x") == "up"


# -- ASK-06 ---------------------------------------------------------------------------------------------------------


@pytest.mark.row("ASK-06")
async def test_k1_an_answer_whose_list_of_calls_is_empty_keeps_its_text():
    """K1: it was kept with an empty list, and no model was ever sent it again."""
    a = agent("A", [p.assistant("text", tool_calls=[])])
    async with at_work(a) as it:
        assert await it.session.complete("one") == "text"
        await it.session.complete("two")
        await it.session.complete("three")
    for later in asked(a)[1:]:
        assert later[:3] == ['system"PA"', 'user/user"one"', 'assistant"text"']


# -- ASK-15: the log says what was shown ----------------------------------------------------------------------------


def shown(messages):
    """The texts of a log that somebody was shown."""
    return [m.text for m in messages if m.role == "assistant" and DISCARDED not in m.tags and not m.tool_calls]


def secretive():
    return Policy("manners", validate_output=lambda text, _: "secret" not in text, ban_message="BAN")


SAID = {
    "s1": (["", "fine"], {}),
    "s4": ([calling("nope"), "second"], {"rescue": Recomplete()}),
    "s4, empty": (["", "fixed"], {"rescue": Recomplete()}),
    "a tool raises": ([calling("broken"), "fine"], {"tools": TOOLS}),
    "s17": (["a secret", "no more"], {}),
    "a model fails": ([RuntimeError("down"), "up"], {"on_model_error": "placeholder"}),
    "transformed": (["one", "two"], {"transform": str.upper}),
}


@SCOPES
@pytest.mark.row("ASK-15")
@pytest.mark.parametrize("case", SAID)
async def test_k13_the_log_holds_what_was_given_and_models_are_sent_nothing_else(case, scope, start):
    """K13: apologies and emitted texts were missing, and answers that nobody saw were sent to models."""
    script, options = SAID[case]
    a = agent("A", script, rescue_scope=scope, **options)
    async with at_work(a, policies=[secretive()]) as it:
        given = [await it.session.complete(text) for text in ("one", "two", "three")]
        assert shown(it.session.messages) == given
        for prompt in a.model.asked:
            spoken = [message for message in prompt.messages if message.role == "assistant" and not message.tool_calls]
            assert not any(message.tags for message in spoken)
            assert {message.text for message in spoken} <= set(given)


@pytest.mark.row("ASK-15")
@pytest.mark.parametrize(
    ("overtake", "given"),
    [
        (lambda session: session.emit("emitted"), ["emitted", "answer:next"]),
        (lambda session: session.emit("a secret"), ["BAN", "answer:next"]),
        (lambda session: session.cancel(), ["answer:next"]),
        (lambda session: session.change_to("B"), ["echo:next"]),
    ],
    ids=["emit", "emit what a policy refuses", "cancel", "change"],
)
async def test_what_overtakes_an_answer_is_in_the_log_and_the_answer_is_tagged(overtake, given):
    slow = Slow()
    a, b = agent("A", slow), agent("B")
    async with at_work(a, b, policies=[secretive()]) as it, anyio.create_task_group() as group:
        callers = Callers(group)
        await callers.says(it.session.complete, "m")
        await overtake(it.session)
        await callers.settled()
        slow.go.set()
        await callers.settled()
        await callers.says(it.session.complete, "next")
        assert [each for each in callers.got if each] == given == shown(it.session.messages)
        assert 'assistant"answer:m" #discarded' in it.log
        sent = [message.text for prompt in (*slow.asked, *b.model.asked) for message in prompt.messages]
        assert "answer:m" not in sent
        assert "BAN" not in sent
        assert ("emitted" in sent) == ("emitted" in given)
        emitted = [message for message in it.session.messages if message.source == "emit"]
        assert [message.text for message in emitted] == [text for text in given if text in {"emitted", "BAN"}]
        assert len(await it.heard("session", "emit")) == (1 if "emitted" in given else 0)


@pytest.mark.row("ASK-01", "ASK-15")
async def test_roles_modes_and_agents_of_everything_in_a_turn_with_a_tool_and_a_rescue():
    """The client types; all else happens inside turns."""

    @tool
    async def look(call: Call) -> None:
        await call.commit("seen")
        await call.execute(" on ")

    a = agent("A", branching(go=calling("look"), on=""), tools=[look], rescue_scope="thread")
    async with at_work(a, agent("B")) as it:
        await it.session.complete(" go ", {"n": 1})
        await it.session.execute(" pushed ")
        await it.session.change_to("B")
        await it.session.complete("hi")
        told = [
            (m.role, m.mode, m.agent, m.text if m.role not in {"rescue", "flush"} else m.reason)
            for m in it.session.messages
        ]
        payloads = [message.payload for message in it.session.user_history]
    assert told == [
        ("user", "user", "A", "go"),
        ("assistant", "tool", "A", ""),
        ("tool", "tool", "A", "seen"),
        ("user", "tool", "A", "on"),
        ("assistant", "tool", "A", ""),
        ("rescue", "tool", "A", "Empty output"),
        ("user", "tool", "A", "Start the conversation"),
        ("assistant", "tool", "A", PLACEHOLDER),
        ("user", "tool", "A", "pushed"),
        ("assistant", "tool", "A", "answer:pushed"),
        ("user", "user", "B", "hi"),
        ("assistant", "tool", "B", "echo:hi"),
    ]
    assert payloads == [{"n": 1}, None]
