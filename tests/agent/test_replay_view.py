"""What is replayed to the model, while calls are open and when their results come later."""

import json

import pytest

import palaver as p
from palaver.agent import Agent, Compactor, approve
from palaver.core.pairs import MISSING_RESULT
from palaver.models import ScriptedModel
from palaver.store import open_store
from palaver.threads import Thread
from palaver.turn.journal import ReplayView


def call(number):
    return p.ToolCall(f"c{number}", "triple", json.dumps({"a": number}))


def triple(a: int) -> str:
    """Triple a number."""
    return str(a * 3)


def viewed(thread, *groups):
    """What a view shows at the end, when it looked at the thread behind each group of messages."""
    view, shown = ReplayView(), ()
    for group in groups:
        thread.append(*group)
        shown = view(thread.path())
    return list(shown)


BROKEN = p.assistant("It br", p.Reasoning("hm", wire="openai_responses"), finish_reason="error")


@pytest.mark.finding("F-16")
@pytest.mark.parametrize("before", [(), (BROKEN, p.user("again"))], ids=["whole", "behind a broken turn"])
def test_a_result_that_comes_later_takes_the_place_of_the_text_for_it(before):
    results = [p.tool(str(3 * number), tool_call_id=f"c{number}") for number in (1, 2)]
    said = (p.user("go"), *before, p.assistant(call(1), call(2)))
    shown = viewed(Thread(), said, results[:1], results[1:], (p.assistant("9 and 6"), p.user("more")))
    assert [message.text for message in shown if message.role == "tool"] == ["3", "6"]
    assert [message.text for message in shown[-2:]] == ["9 and 6", "more"]


@pytest.mark.finding("F-16")
def test_a_list_goes_on_behind_calls_that_nobody_will_answer():
    view, thread = ReplayView(), Thread()
    thread.append(p.user("go"), p.assistant(call(1)))
    view(thread.path())
    thread.append(p.user("never mind"))
    first = view(thread.path())
    assert [message.text for message in first] == ["go", "", MISSING_RESULT, "never mind"]
    thread.append(p.assistant(call(2)), p.tool("6", tool_call_id="c2"))
    second = view(thread.path())
    assert second.continues(first)


@pytest.mark.finding("F-16")
@pytest.mark.row("DAS-25")
@pytest.mark.parametrize("middleware", [[], [Compactor()]], ids=["alone", "compacting"])
def test_an_approval_by_another_process_sends_the_result_itself(tmp_path, middleware):
    """What weighs the conversation looks at it while the call is open; what it saw is not sent."""
    model = ScriptedModel([p.assistant(call(3)), "9"])
    where = str(tmp_path / "a.db")
    for last in ({"content": "go"}, {"decisions": {"c3": approve()}}):
        with open_store(where) as store:
            agent = Agent(model, tools=[triple], policy="ask", middleware=middleware)
            run = agent.sync.run(last.pop("content", None), thread=store.open("t"), **last)
    assert run.text == "9"
    sent = list(model.asked[-1].messages)
    assert [message.role for message in sent] == ["user", "assistant", "tool"]
    assert (sent[-1].text, sent[-1].is_error) == ("9", False)
