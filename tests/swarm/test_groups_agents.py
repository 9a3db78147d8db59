"""Acceptance groups about what an agent is told and what becomes of its answers: agentflow, clientfix, presets."""

import anyio
import pytest

import palaver as p
from palaver.swarm import (
    Call,
    Custom,
    Hooks,
    Recomplete,
    SwarmAgent,
    no_tool_syntax,
    plain_text,
    tool,
)
from tests.swarm.scripts import PLACEHOLDER, agent, asked, at_work, branching, calling, told
from tests.swarm.slow import Callers, Slow

pytestmark = pytest.mark.anyio


@tool
async def look(call: Call) -> None:
    """Commit, and go on."""
    await call.commit("seen")
    await call.execute("fin")


# -- agentflow: what an agent is told


@pytest.mark.parametrize("prompt", [lambda place: f"for {place.client}", "async"])
async def test_agentflow_a_prompt_may_be_a_function(prompt):
    async def later(place):
        await anyio.lowlevel.checkpoint()
        return f"for {place.client}"

    a = agent(instructions=later if prompt == "async" else prompt)
    async with at_work(a) as it:
        await it.session.complete("hi")
    assert asked(a) == [['system"for ann"', 'user/user"hi"']]


@pytest.mark.row("ASK-05")
async def test_agentflow_prompt_global_static_dynamic_flags_committed_dialogue():
    times = iter(range(9))

    async def dynamic(place):
        return [f"dynamic {next(times)}", ""]

    a = agent(system=["static"], dynamic=dynamic, flags=["flag"])
    async with at_work(a, agent("B"), instructions=["global"]) as it:
        await it.session.commit_system("committed")
        for text in ("one", "two"):
            await it.session.complete(text)
        await it.session.change_to("B")
        await it.session.complete("three")
        assert asked(it.session.swarm.agents["B"])[0][:3] == ['system"PB"', 'system"global"', 'user/user"one"']
    before = ['system"PA"', 'system"global"', 'system"static"']
    after = ['system"flag"', 'system"committed"', 'user/user"one"']
    assert asked(a)[0] == [*before, 'system"dynamic 0"', *after]
    assert asked(a)[1][:7] == [*before, 'system"dynamic 1"', *after]


async def test_agentflow_a_window_of_two():
    a = agent(keep=2)
    async with at_work(a) as it:
        for text in "abc":
            await it.session.complete(text)
    assert asked(a)[-1] == ['system"PA"', 'assistant"echo:b"', 'user/user"c"']


async def test_agentflow_settings_and_what_a_provider_alone_knows_reach_the_model():
    a = agent(settings=p.Settings(temperature=0.0), provider={"openai": {"seed": 7}})
    async with at_work(a) as it:
        await it.session.complete("hi")
    assert a.model.asked[0].settings.temperature == 0.0
    assert a.model.asked[0].provider == {"openai": {"seed": 7}}


# -- agentflow: what becomes of an answer


@pytest.mark.row("ASK-16")
@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_agentflow_a_transform_runs_once_and_is_what_is_kept(kind):
    seen = []

    def transform(text):
        seen.append(text)
        return f"T[{text}]"

    async def later(text):
        return transform(text)

    a = agent(transform=transform if kind == "plain" else later)
    async with at_work(a) as it:
        assert await it.session.complete("hi") == "T[echo:hi]"
        assert it.log == ['user/user"hi"', 'assistant"T[echo:hi]"']
        (output,) = await it.heard("agent", "emit-output")
        assert (output.input["rawResult"], output.output["result"]) == ("echo:hi", "T[echo:hi]")
    assert seen == ["echo:hi"]


@pytest.mark.row("ASK-16")
async def test_agentflow_a_check_sees_what_the_transform_gave():
    seen = []

    def validate(text):
        seen.append(text)

    async with at_work(agent(transform=str.upper, validate=validate)) as it:
        assert await it.session.complete("hi") == "ECHO:HI"
    assert seen == ["ECHO:HI"]


@pytest.mark.row("ASK-16")
async def test_agentflow_a_placeholder_is_transformed_once_too():
    seen = []

    def transform(text):
        seen.append(text)
        return text.lower()

    async with at_work(agent(script=["", "fine"], transform=transform)) as it:
        assert await it.session.complete("hi") == "placeholder"
    assert seen == ["", PLACEHOLDER]


@pytest.mark.row("ASK-16")
@pytest.mark.parametrize(
    ("raw", "result"),
    [
        ("<think>\nr\n</think>Answer", "Answer"),
        ("{json}", PLACEHOLDER),
        ("<tool_call>x</tool_call>", PLACEHOLDER),
        ("<b>bold</b> rest", "rest"),
        ("<invalid>", "<invalid>"),
        ("  spaced  ", "spaced"),
        ("a\n\n\nb", "a\nb"),
    ],
)
async def test_presets_are_those_of_the_original(raw, result):
    a = agent(script=[raw], transform=plain_text, validate=no_tool_syntax)
    async with at_work(a) as it:
        assert await it.session.complete("go") == result


@pytest.mark.row("ASK-16")
@pytest.mark.parametrize("raw", ["{json}", "<b>bold</b> rest", "<think>r</think>x", "  spaced  ", "a\n\n\nb"])
async def test_without_presets_an_answer_stays_what_it_was(raw):
    async with at_work(agent(script=[raw])) as it:
        assert await it.session.complete("go") == raw


async def test_agentflow_map_changes_the_whole_answer():
    def mapped(answer):
        return answer.replace(content=[p.Text(f"M[{answer.text}]")])

    async with at_work(agent(map=mapped)) as it:
        assert await it.session.complete("hi") == "M[echo:hi]"
        assert it.log[-1] == 'assistant"M[echo:hi]"'


async def test_agentflow_map_calls_changes_the_calls():
    async def mapped(calls):
        return [call.replace(name="look") for call in calls]

    a = agent(script=branching(go=calling("glance")), tools=[look], map_calls=mapped)
    async with at_work(a) as it:
        assert await it.session.complete("go") == "answer:fin"
        assert "assistant[look]" in it.log


async def test_agentflow_calls_without_an_id_get_one():
    a = agent(script=branching(go=calling("look", ids=[""])), tools=[look])
    async with at_work(a) as it:
        assert await it.session.complete("go") == "answer:fin"
        request, result = it.session.messages[1:3]
        assert request.tool_calls[0].id == result.tool_call_id != ""


# -- agentflow: stateless, rescue, hooks


@pytest.mark.row("ASK-28")
async def test_agentflow_a_stateless_question_sees_the_dialogue_and_leaves_no_trace():
    a = agent(tools=[look], transform=lambda text: f"T[{text}]")
    async with at_work(a) as it:
        await it.session.complete("hi")
        before = list(it.session.log.path)
        assert await it.session.run(" and? ") == "T[echo: and? ]"
        assert list(it.session.log.path) == before
    assert asked(a)[1] == ['system"PA"', 'user/user"hi"', 'assistant"T[echo:hi]"', 'user/user" and? "']
    assert not a.model.asked[1].tools


@pytest.mark.row("ASK-28")
@pytest.mark.parametrize("answer", [calling("look", said="let me see"), "", p.assistant()])
async def test_agentflow_a_stateless_answer_that_cannot_be_shown_is_nothing(answer):
    async with at_work(agent(script=[answer], tools=[look])) as it:
        assert await it.session.run("hi") == ""
        assert it.log == []


@pytest.mark.row("ASK-14")
async def test_agentflow_recomplete_recovers():
    async with at_work(agent(script=["", "better"], rescue=Recomplete())) as it:
        assert await it.session.complete("hi") == "better"


@pytest.mark.row("ASK-14")
@pytest.mark.parametrize("bad", ["", calling("nope")])
async def test_agentflow_custom_substitutes(bad):
    reasons = []

    async def instead(place, reason):
        reasons.append(reason)
        return f"for {place.client}"

    async with at_work(agent(script=[bad], rescue=Custom(instead))) as it:
        assert await it.session.complete("hi") == "for ann"
        assert it.log[-1] == 'assistant"for ann"'
    assert reasons == ["Empty output" if bad == "" else "No target function for nope"]


class Order(Hooks):
    """Every hook, in the order in which it is called."""

    def __init__(self):
        self.called = []

    def __getattribute__(self, name):
        if not name.startswith("on_"):
            return super().__getattribute__(name)
        return lambda *_: self.called.append(name)


async def test_agentflow_the_order_of_hooks():
    hooks = Order()
    a = agent(script=branching(go=calling("look")), tools=[look], hooks=hooks)
    async with at_work(a) as it:
        await it.session.complete("go")
        await anyio.wait_all_tasks_blocked()
    called = [each for each in hooks.called if each != "on_completion"]
    # `on_init` runs beside the first turn
    assert [each for each in called if each != "on_init"] == [
        "on_execute",
        "on_tool_output",
        "on_after_tool_calls",
        "on_execute",
        "on_output",
        "on_assistant_message",
        "on_dispose",
    ]
    assert called.count("on_init") == 1
    assert called.index("on_init") <= 1


async def test_agentflow_the_order_of_a_tool_s_hooks():
    order = []
    hooks = {
        name: lambda *_, name=name: order.append(name) for name in ("on_validate", "on_before_call", "on_after_call")
    }

    @tool(**hooks)
    async def watched(call: Call) -> None:
        order.append("call")
        await call.emit("done")

    async with at_work(agent(script=branching(go=calling("watched")), tools=[watched])) as it:
        assert await it.session.complete("go") == "done"
        await anyio.wait_all_tasks_blocked()
    assert order == ["on_validate", "on_before_call", "call", "on_after_call"]


async def test_agentflow_ids_of_requests():
    async with at_work(agent()) as it:
        ids = await it.session.commit_tool_request([("a", {"x": 1}), ("b", {})])
        assert len(set(ids)) == 2
        assert all(each.startswith("call_") and len(each) == 14 for each in ids)
        with pytest.raises(p.MessageError):
            await it.session.commit_tool_request([("a", {"x": object()})])


async def test_agentflow_six_getters():
    async with at_work(agent(script=branching(go=calling("look")), tools=[look])) as it:
        session = it.session
        assert (session.last_user, session.last_assistant, session.last_tool, session.last_system) == (None,) * 4
        await session.commit_system("")
        await session.complete("go")
        await session.commit_flush()
        assert told(session.user_history) == ['user/user"go"']
        assert told(session.assistant_history) == ["assistant[look]", 'assistant"answer:fin"']
        assert session.last_user == "go"
        assert session.last_assistant == "answer:fin"
        assert session.last_tool == "seen"
        assert session.last_system == ""
        assert len(session.messages) == 7


async def test_adapters_what_was_committed_for_an_agent_is_seen_next():
    a = agent()
    async with at_work(a) as it:
        await it.session.commit_assistant("I said so")
        await it.session.complete("hi")
    assert asked(a) == [['system"PA"', 'assistant"I said so"', 'user/user"hi"']]


# -- clientfix


async def test_clientfix_after_a_cancel_no_next_tool_and_one_end_of_the_batch():
    ran, ends = [], []
    begun = anyio.Event()

    class Told(Hooks):
        def on_after_tool_calls(self, place, calls):
            ends.append([call.name for call in calls])

    @tool
    async def first(call: Call) -> None:
        begun.set()
        await call.cancelled.wait()
        await call.commit("too late")

    @tool
    async def second(call: Call) -> None:
        ran.append("second")

    a = agent(script=branching(go=calling("first", "second")), tools=[first, second], max_tool_calls=2, hooks=Told())
    async with at_work(a) as it, anyio.create_task_group() as group:
        callers = Callers(group)
        await callers.says(it.session.complete, "go")
        await begun.wait()
        await it.session.cancel()
        assert await callers.settled() == [""]
        assert await it.session.complete("next") == "answer:next"
    assert (ran, ends) == ([], [["first", "second"]])


async def test_clientfix_a_model_that_raises_settles_and_the_next_one_works():
    async with at_work(agent(script=[RuntimeError("down"), "up"])) as it:
        with pytest.raises(RuntimeError, match="down"):
            await it.session.complete("one")
        assert not it.session.busy
        assert await it.session.complete("two") == "up"


async def test_clientfix2_a_plain_answer_is_emitted():
    heard = []

    class Told(Hooks):
        def on_assistant_message(self, place, text):
            heard.append((place.client, text))

    async with at_work(agent(hooks=Told())) as it:
        await it.session.complete("hi")
    assert heard == [("ann", "echo:hi")]


@pytest.mark.parametrize("late", ["", "cancel"])
async def test_an_operator_who_does_not_answer(late):
    """A person who is waited for can be cancelled, or has a time; the next one is asked anew."""
    asked_, gate = [], anyio.Event()

    async def person(place, text):
        asked_.append(text)
        if text == "first":
            await gate.wait()
        return f"person:{text}"

    a = SwarmAgent("A", operator=person, operator_timeout=None if late else 0.01)
    async with at_work(a) as it, anyio.create_task_group() as group:
        callers = Callers(group)
        if late:
            await callers.says(it.session.complete, "first")
            await it.session.cancel()
            assert await callers.settled() == [""]
        else:
            assert await it.session.complete("first") == ""
        assert await it.session.complete("second") == "person:second"
        gate.set()
        assert await it.session.complete("third") == "person:third"
    assert asked_ == ["first", "second", "third"]


async def test_infra_an_agent_that_streams_tells_its_text_as_it_comes():
    async with at_work(agent(stream=True)) as it:
        assert await it.session.complete("hi") == "echo:hi"
        deltas = await it.heard("agent", "delta")
    assert "".join(each.output["text"] for each in deltas) == "echo:hi"


async def test_a_slow_model_is_asked_once():
    slow = Slow()
    async with at_work(agent(script=slow)) as it, anyio.create_task_group() as group:
        callers = Callers(group)
        await callers.says(it.session.complete, "hi")
        slow.go.set()
        assert await callers.settled() == ["answer:hi"]
    assert len(slow.asked) == 1
