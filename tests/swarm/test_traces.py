"""The exact traces of the specification (docs/spec/agent-swarm-kit.md#10), with what is ours where it differs."""

import anyio
import pytest

from palaver.core.errors import NavigationError, SwarmError
from palaver.swarm import Call, Recomplete, navigation, tool
from tests.swarm.scripts import PLACEHOLDER, agent, asked, at_work, branching, calling, echo, last, told
from tests.swarm.slow import Slow

pytestmark = pytest.mark.anyio

START = 'user/tool"Start the conversation"'
PLAIN = [
    "execution commit-execution-begin",
    "history push",
    "history push",
    "agent emit-output",
    "swarm wait-for-output",
    "session execute",
    "execution commit-execution-end",
]


@tool
async def f1(call: Call) -> None:
    """Commit, and ask again."""
    await call.commit("one")
    await call.execute("fin")


# -- S1, S4: rescue ----------------------------------------------------------------------------------------------------


@pytest.mark.row("ASK-14", "ASK-15", "ASK-04")
@pytest.mark.parametrize(
    ("scope", "start", "context"),
    [
        ("thread", ['user/tool"Start the conversation"'], ['system"PA"', 'user/tool"Start the conversation"']),
        ("turn", [], ['system"PA"']),
    ],
)
async def test_s1_a_flush_shows_a_placeholder_at_once(scope, start, context):
    a = agent(script=["", "fine"], rescue_scope=scope)
    async with at_work(a) as it:
        assert await it.session.complete("one") == PLACEHOLDER
        assert len(a.model.asked) == 1
        assert it.log == [
            'user/user"one"',
            'assistant"" #discarded',
            'rescue"Empty output"',
            *start,
            'assistant"PLACEHOLDER" #placeholder',
        ]
        pushes = ["history push"] * (3 + len(start))
        assert await it.events("execution", "history", "agent", "swarm", "session") == [
            *PLAIN[:2],
            *pushes,
            *PLAIN[3:],
        ]
        assert await it.session.complete("two") == "fine"
    assert asked(a)[1] == [*context, 'user/user"two"']


@pytest.mark.row("ASK-14", "ASK-15")
@pytest.mark.parametrize("scope", ["thread", "turn"])
async def test_s4_an_unknown_tool_is_asked_about_once_more(scope):
    a = agent(script=[calling("nope"), "second"], rescue=Recomplete("again"), rescue_scope=scope)
    async with at_work(a) as it:
        assert await it.session.complete("x") == "second"
        start = [START] if scope == "thread" else []
        assert it.log == [
            'user/user"x"',
            "assistant[nope]",
            'rescue"No target function for nope"',
            *start,
            'assistant"second"',
        ]
    assert len(a.model.asked) == 2
    assert not a.model.asked[1].tools
    shown = ['system"PA"', *start] if start else ['system"PA"', 'user/user"x"', 'user/tool"again"']
    assert asked(a)[1] == shown


@pytest.mark.row("ASK-14")
async def test_s4_an_empty_answer_is_asked_for_once_more():
    a = agent(script=["", "fixed"], rescue=Recomplete("again"))
    async with at_work(a) as it:
        assert await it.session.complete("x") == "fixed"
        assert it.log == ['user/user"x"', 'user/tool"again"', 'assistant"fixed"']
    assert len(a.model.asked) == 2


@pytest.mark.row("ASK-14")
async def test_a_model_that_is_always_empty_is_asked_twice():
    a = agent(script=lambda _: "", rescue=Recomplete("again"))
    async with at_work(a) as it:
        assert await it.session.complete("x") == PLACEHOLDER
    assert len(a.model.asked) == 2


# -- S2, S3, S5, S18: contexts -----------------------------------------------------------------------------------------


@pytest.mark.row("ASK-06")
async def test_s2_half_a_request_is_never_sent():
    a = agent()
    async with at_work(a) as it:
        ids = await it.session.commit_tool_request([("f1", {}), ("f2", {})])
        await it.session.commit_tool_output(ids[1], "two")
        await it.session.complete("q")
    assert asked(a) == [['system"PA"', "assistant[f2]", 'tool(re:f2)"two"', 'user/user"q"']]


@pytest.mark.row("ASK-06")
async def test_s3_a_window_that_would_part_a_pair_holds_neither():
    a = agent(keep=2)
    async with at_work(a) as it:
        (one,) = await it.session.commit_tool_request([("f1", {})])
        await it.session.commit_tool_output(one, "one")
        await it.session.complete("q")
    assert asked(a) == [['system"PA"', 'user/user"q"']]


@pytest.mark.row("ASK-04", "ASK-05")
@pytest.mark.parametrize("rescue_scope", ["turn", "thread"])
@pytest.mark.parametrize(
    ("scope", "before"),
    [
        ("thread", []),
        (
            "agent",
            [
                'system"system"',
                "assistant[f]",
                'tool(re:f)"r"',
                'developer"developer"',
                'user/user"m1"',
                'assistant"ans-A"',
                'user/user"m2"',
                'assistant"ans-B"',
            ],
        ),
    ],
)
async def test_s5_k8_a_flush_hides_what_was_before_it_from_all_or_from_its_agent(scope, before, rescue_scope):
    """K8: there was but one scope. The flush is of B; with the scope `agent` it hides nothing from A."""
    a = agent("A", lambda _: "ans-A", rescue_scope=rescue_scope)
    b = agent("B", lambda _: "ans-B", rescue_scope=rescue_scope)
    async with at_work(a, b) as it:
        session = it.session
        await session.commit_system("system")
        (one,) = await session.commit_tool_request([("f", {})])
        await session.commit_tool_output(one, "r")
        await session.commit_developer("developer")
        await session.complete("m1")
        assert await session.change_to("B")
        await session.complete("m2")
        kept = len(session.messages)
        await session.commit_flush(scope=scope)
        assert it.log[kept:] == ["flush"]
        assert await session.change_to("A")
        await session.complete("m3")
        assert it.log[kept:] == ["flush", 'user/user"m3"', 'assistant"ans-A"']
        assert it.log[:kept] == [
            'system"system"',
            "assistant[f]",
            'tool(re:f)"r"',
            'developer"developer"',
            'user/user"m1"',
            'assistant"ans-A"',
            'user/user"m2"',
            'assistant"ans-B"',
        ]
    assert asked(a) == [
        ['system"PA"', 'system"system"', "assistant[f]", 'tool(re:f)"r"', 'developer"developer"', 'user/user"m1"'],
        ['system"PA"', *before, 'user/user"m3"'],
    ]
    assert asked(b) == [['system"PB"', 'developer"developer"', 'user/user"m1"', 'assistant"ans-A"', 'user/user"m2"']]


async def test_s18_the_window_grows_to_fifteen():
    a = agent()
    async with at_work(a) as it:
        for turn in range(10):
            await it.session.complete(f"{turn}")
    assert [len(each) - 1 for each in asked(a)] == [1, 3, 5, 7, 9, 11, 13, 15, 15, 15]


# -- S6, S14: models that fail -----------------------------------------------------------------------------------------


@pytest.mark.row("ASK-17")
async def test_s6_a_failing_model_raises_and_leaves_the_question():
    a = agent(script=[RuntimeError("provider-down")])
    async with at_work(a) as it:
        with pytest.raises(RuntimeError, match="provider-down"):
            await it.session.complete("x")
        assert it.log == ['user/user"x"']
        begins = await it.events("execution")
        assert begins == ["execution commit-execution-begin", "execution commit-execution-end"]
        assert await it.session.complete("y") == "answer:y"


@pytest.mark.row("ASK-17")
async def test_s6_a_placeholder_can_be_asked_for_instead():
    a = agent(script=[RuntimeError("provider-down")], on_model_error="placeholder")
    async with at_work(a) as it:
        assert await it.session.complete("x") == PLACEHOLDER
        assert it.log == ['user/user"x"', 'assistant"PLACEHOLDER" #placeholder']


@pytest.mark.row("ASK-17")
async def test_s14_k12_a_source_of_tools_that_fails_is_left_out():
    def broken(_):
        raise OSError("no tools today")

    a = agent(script=lambda _: "good answer", sources=[broken])
    async with at_work(a) as it:
        assert await it.session.complete("x") == "good answer"
        (error,) = await it.heard("agent", "error")
        assert "no tools today" in error.output["error"]


# -- S8, S9: navigation ------------------------------------------------------------------------------------------------


@pytest.mark.row("ASK-18")
async def test_s8_nobody_is_visited_twice_before_the_next_message():
    a, b = agent("A"), agent("B")
    async with at_work(a, b) as it:
        session = it.session
        await session.complete("hi")
        assert await session.change_to("A")
        assert await session.change_to("B")
        for name in ("A", "B"):
            with pytest.raises(NavigationError, match=r"recursion.*route=A->B->"):
                await session.change_to(name)
        assert list(session.navigator.route) == ["A", "B"]
        await session.complete("next")
        assert not session.navigator.route
        assert await session.change_to("B")


@pytest.mark.row("ASK-18", "ASK-20")
async def test_s9_a_hand_over_in_mid_turn():
    a = agent("A", lambda _: calling("to_b"), tools=[navigation("B")])
    b = agent("B", lambda _: "hello from B")
    async with at_work(a, b) as it:
        assert await it.session.complete("hi") == "hello from B"
        text = "Successfully navigated from A to B. Please do not call the navigate tool to A during the next answer"
        assert it.log == [
            'user/user"hi"',
            "assistant[to_b]",
            f'tool(re:to_b)"{text}"',
            'user/tool""',
            'assistant"hello from B"',
        ]
        await it.events()
        told_by = [
            f"{event.type}@{event.agent}" if event.source == "agent" else event.type
            for event in it.seen
            if event.source in {"agent", "swarm"} and not event.type.startswith("get-agent")
        ]
        assert told_by == [
            "commit-stop-tools@A",
            "commit-tool-output@A",
            "commit-agent-change@B",
            "commit-agent-change@A",
            "set-agent-ref",
            "set-agent-name",
            "emit-output@B",
            "wait-for-output",
        ]
    assert asked(b) == [['system"PB"', 'user/user"hi"']]


@pytest.mark.row("ASK-18", "ASK-20")
async def test_s9_a_circle_ends_with_a_flush():
    a = agent("A", lambda _: calling("to_b"), tools=[navigation("B")])
    b = agent("B", lambda _: calling("to_a"), tools=[navigation("A")])
    async with at_work(a, b) as it:
        assert await it.session.complete("hi") == "Sorry, I missed that. Could you repeat please"
        assert it.session.agent == "A"
        assert it.log[-3:-1] == ["assistant[to_b]", "flush"]
        assert it.session.messages[-1].source == "emit"
        assert len(a.model.asked) + len(b.model.asked) == 3


# -- S10, S15, S16, S20: batches ---------------------------------------------------------------------------------------


@pytest.mark.row("ASK-11")
async def test_s10_each_begins_when_the_one_before_has_committed():
    trace = []
    gates = {name: (anyio.Event(), anyio.Event()) for name in "abc"}

    def speaking(name):
        @tool(name=name)
        async def run(call: Call) -> None:
            trace.append(f"start {name}")
            assert [each.name for each in call.calls] == ["a", "b", "c"]
            await gates[name][0].wait()
            await call.commit(name)
            trace.append(f"committed {name}")
            await gates[name][1].wait()
            trace.append(f"end {name}{' last' if call.is_last else ''}")
            if call.is_last:
                await call.emit("done")

        return run

    a = agent("A", lambda _: calling("a", "b", "c"), tools=[speaking(name) for name in "abc"], max_tool_calls=3)
    async with at_work(a) as it, anyio.create_task_group() as group:
        got = []

        async def ask():
            got.append(await it.session.complete("go"))

        group.start_soon(ask)
        await settled()
        assert trace == ["start a"]
        for opened in (gates["a"][0], gates["b"][0], gates["a"][1], gates["c"][0], gates["b"][1], gates["c"][1]):
            opened.set()
            await settled()
    assert got == ["done"]
    assert trace == [
        "start a",
        "start b",
        "committed a",
        "start c",
        "committed b",
        "end a",
        "committed c",
        "end b",
        "end c last",
    ]


@pytest.mark.row("ASK-11", "ASK-07")
async def test_s15_a_cancel_skips_the_rest_and_tells_those_that_run(monkeypatch):
    ran, order, running = [], [], []

    @tool
    async def slow(call: Call) -> None:
        ran.append("slow")
        running.append(call)
        begun.set()
        await call.cancelled.wait()
        ran.append("cancelled")
        assert await call.execute("nobody waits") == ""

    @tool
    async def second(call: Call) -> None:
        ran.append("second")

    begun = anyio.Event()
    a = agent("A", [calling("slow", "second")], tools=[slow, second], max_tool_calls=2)
    async with at_work(a) as it, anyio.create_task_group() as group:
        got = []

        async def ask():
            got.append(await it.session.complete("go"))

        group.start_soon(ask)
        await begun.wait()
        monkeypatch.setattr(it.live, "publish", lambda event: order.append((event.type, running[0].cancelled.is_set())))
        assert not running[0].cancelled.is_set()
        assert await it.session.cancel()
        await settled()
        assert got == [""]
        assert ran == ["slow", "cancelled"]
        told = [each for each in order if "cancel" in each[0] or "wait" in each[0]]
        assert told == [("commit-cancel-output", True), ("wait-for-output", True), ("cancel-output", True)]
        assert await it.session.complete("next") == "answer:next"


@pytest.mark.row("ASK-09")
@pytest.mark.parametrize(("rescue_scope", "start"), [("turn", []), ("thread", [START])])
async def test_s16_one_unknown_call_and_no_tool_runs(rescue_scope, start):
    ran = []

    @tool(on_before_call=lambda *_: ran.append("before"))
    async def known(call: Call) -> None:
        ran.append("ran")

    script = branching(go=calling("known", "nope"))
    a = agent("A", script, tools=[known], max_tool_calls=2, rescue_scope=rescue_scope)
    async with at_work(a) as it:
        assert await it.session.complete("go") == PLACEHOLDER
        assert it.log == [
            'user/user"go"',
            "assistant[known nope]",
            'rescue"No target function for nope"',
            *start,
            'assistant"PLACEHOLDER" #placeholder',
        ]
        assert await it.session.complete("next") == "answer:next"
    assert ran == ["before"]
    assert asked(a)[1] == ['system"PA"', *start, 'user/user"next"']


@pytest.mark.row("ASK-09")
@pytest.mark.parametrize(("rescue_scope", "start"), [("turn", []), ("thread", [START])])
async def test_s20_equal_ids_are_an_error(rescue_scope, start):
    a = agent("A", [calling("f1", "f1", ids=["d", "d"])], tools=[f1], max_tool_calls=2, rescue_scope=rescue_scope)
    async with at_work(a) as it:
        with pytest.raises(SwarmError, match="Duplicate tool call id in model output"):
            await it.session.complete("x")
        assert it.log == ['user/user"x"', 'rescue"Duplicate tool call id in model output"', *start]
        assert await it.session.complete("y") == "answer:y"
    assert asked(a)[1] == ['system"PA"', *start, 'user/user"y"']


# -- S11, S12: whose answer it is --------------------------------------------------------------------------------------


@pytest.mark.row("ASK-13")
async def test_s11_k2_a_push_from_outside_waits_its_turn():
    begun, go = anyio.Event(), anyio.Event()

    @tool
    async def slow(call: Call) -> None:
        begun.set()
        await go.wait()
        await call.commit("ok")
        await call.execute("fin")

    a = agent("A", branching(go=calling("slow")), tools=[slow])
    got = {}
    async with at_work(a) as it, anyio.create_task_group() as group:

        async def complete():
            got["go"] = await it.session.complete("go")

        async def push():
            got["push"] = await it.session.execute("server-push")

        group.start_soon(complete)
        await begun.wait()
        group.start_soon(push)
        await settled()
        go.set()
        await settled()
        got["next"] = await it.session.complete("next")
    assert got == {"go": "answer:fin", "push": "answer:server-push", "next": "answer:next"}


@pytest.mark.row("ASK-12")
async def test_s12_k3_an_error_after_the_answer_is_reported_and_changes_nothing(caplog):
    late = anyio.Event()

    @tool
    async def failing(call: Call) -> None:
        await call.commit("ok")
        await call.execute("fin")
        await late.wait()
        raise RuntimeError("too late")

    a = agent("A", branching(go=calling("failing")), tools=[failing])
    async with at_work(a) as it:
        first = await it.session.complete("go")
        late.set()
        await settled()
        assert [first, await it.session.complete("next"), await it.session.complete("third")] == [
            "answer:fin",
            "answer:next",
            "answer:third",
        ]
        assert not any(each.startswith("rescue") for each in it.log)
        (error,) = await it.heard("agent", "tool-error")
        assert error.output == {"error": "RuntimeError: too late"}
        (logged,) = [record.getMessage() for record in caplog.records]
        assert logged == "the tool 'failing' of the agent 'A' raised"


@pytest.mark.row("ASK-10")
@pytest.mark.parametrize("names", [("to_b", "f1"), ("f1", "to_b"), ("f1", "to_b", "f1")])
async def test_s13_k11_a_navigation_wins_wherever_it_stands(names):
    ids = [f"c{place}" for place, _ in enumerate(names)]
    a = agent("A", lambda _: calling(*names, ids=ids), tools=[f1, navigation("B")])
    b = agent("B", lambda _: "from B")
    async with at_work(a, b) as it:
        assert await it.session.complete("go") == "from B"
        assert it.session.agent == "B"


# -- S21, S22: answers that are overtaken ------------------------------------------------------------------------------


@pytest.mark.row("ASK-07", "ASK-15")
@pytest.mark.parametrize(
    ("overtake", "result"),
    [
        (lambda session: session.change_to("B"), ""),
        (lambda session: session.emit("emitted"), "emitted"),
        (lambda session: session.cancel(), ""),
    ],
    ids=["change", "emit", "cancel"],
)
async def test_s21_s22_k13_a_late_answer_is_kept_and_given_to_nobody(overtake, result):
    slow = Slow()
    a, b = agent("A", slow), agent("B")
    async with at_work(a, b) as it, anyio.create_task_group() as group:
        got = []

        async def ask():
            got.append(await it.session.complete("m"))

        group.start_soon(ask)
        await slow.began.wait()
        assert await overtake(it.session)
        await settled()
        assert got == [result]
        slow.go.set()
        await settled()
        spoken = ['assistant"emitted"'] if result else []
        assert it.log == ['user/user"m"', *spoken, 'assistant"answer:m" #discarded']
        assert await it.session.complete("next") in {"echo:next", "answer:next"}
        prompts = [told(prompt.messages) for each in (a, b) for prompt in each.model.asked]
        assert not any("#discarded" in each for prompt in prompts for each in prompt)


# -- section 4: the order of events ------------------------------------------------------------------------------------


@pytest.mark.row("ASK-23")
async def test_the_events_of_a_plain_turn():
    async with at_work(agent()) as it:
        await it.session.complete("hi")
        await it.events()
        assert [f"{event.source} {event.type}" for event in it.seen] == [
            "execution commit-execution-begin",
            "swarm get-agent-name",
            "swarm get-agent",
            "history push",
            "history push",
            "agent emit-output",
            "swarm get-agent-name",
            "swarm wait-for-output",
            "session execute",
            "execution commit-execution-end",
        ]
        assert {event.client for event in it.seen} == {"ann"}
        assert {event.run for event in it.seen} == {it.seen[0].run}


@pytest.mark.row("ASK-23")
async def test_the_events_of_a_turn_with_a_tool():
    def script(prompt):
        return calling("f1") if last(prompt).text == "go" else echo(prompt)

    async with at_work(agent("A", script, tools=[f1])) as it:
        assert await it.session.complete("go") == "echo:fin"
        assert await it.events() == [
            "execution commit-execution-begin",
            "history push",
            "history push",
            "history push",
            "agent commit-tool-output",
            "session commit-tool-output",
            "execution commit-execution-begin",
            "history push",
            "history push",
            "agent emit-output",
            "swarm wait-for-output",
            "session execute",
            "session execute",
            "execution commit-execution-end",
            "execution commit-execution-end",
        ]


async def settled():
    """Let everything that can run do so."""
    await anyio.wait_all_tasks_blocked()
