"""Acceptance groups about tools: toolcall, toolguard, toolcontext, edgecases, resilience."""

import logging

import anyio
import pytest

import palaver as p
from palaver.core.errors import TurnError
from palaver.store.jsonl import JsonlStore
from palaver.swarm import Call, Hooks, Swarm, navigation, tool, triage
from tests.clocks import JUMPING
from tests.swarm.scripts import PLACEHOLDER, agent, asked, at_work, branching, calling, last

pytestmark = pytest.mark.anyio


def recording(name, ran, *, ends=False, **options):
    """A tool that says that it ran; the last of its batch goes on with the turn."""

    @tool(name=name, **options)
    async def run(call: Call) -> None:
        ran.append(name)
        await call.commit(name)
        if call.is_last or ends:
            await call.execute("fin")

    return run


class Told(Hooks):
    """Hooks that say that they were called."""

    def __init__(self):
        self.calls = []

    def on_resurrect(self, place, mode, reason):
        self.calls.append(("resurrect", reason))

    def on_tool_error(self, place, call, error):
        self.calls.append(("tool error", str(error)))

    def on_after_tool_calls(self, place, calls):
        self.calls.append(("after", [call.name for call in calls]))


# -- toolcall ----------------------------------------------------------------------------------------------------------


@pytest.mark.row("ASK-10")
@pytest.mark.parametrize(
    ("called", "limit", "wanted"),
    [("ab", 2, "ab"), ("abc", 2, "bc"), ("abc", 1, "c"), ("abc", 3, "abc"), ("a", 5, "a")],
)
async def test_toolcall_the_last_calls_run_in_their_order(called, limit, wanted):
    ran = []
    tools = [recording(name, ran) for name in "abc"]
    async with at_work(agent("A", branching(go=calling(*called)), tools=tools, max_tool_calls=limit)) as it:
        assert await it.session.complete("go") == "answer:fin"
        assert f"assistant[{' '.join(wanted)}]" in it.log
    assert ran == list(wanted)


@pytest.mark.row("ASK-10")
async def test_toolcall_a_navigation_suppresses_the_others():
    ran = []
    script = branching(go=calling("a", "to_b", "b"))
    a = agent("A", script, tools=[recording("a", ran), navigation("B"), recording("b", ran)], max_tool_calls=3)
    async with at_work(a, agent("B", lambda _: "from B")) as it:
        assert await it.session.complete("go") == "from B"
        assert "assistant[to_b]" in it.log
    assert ran == []


@pytest.mark.row("ASK-11")
async def test_toolcall_a_tool_that_raises_is_a_rescue_and_halts_the_rest():
    hooks, ran = Told(), []

    @tool
    async def broken(call: Call) -> None:
        raise OSError("no paper")

    script = branching(go=calling("broken", "a"))
    a = agent("A", script, tools=[broken, recording("a", ran)], max_tool_calls=2, hooks=hooks)
    async with at_work(a) as it:
        assert await it.session.complete("go") == PLACEHOLDER
        assert len(await it.heard("agent", "tool-error")) == 1
        assert await it.session.complete("next") == "answer:next"
    assert ran == []
    assert hooks.calls[0] == ("tool error", "no paper")
    assert sorted(map(str, hooks.calls[1:])) == [
        "('after', ['broken', 'a'])",
        "('resurrect', 'Function call failed with error: name=broken arguments={}')",
    ]


@pytest.mark.row("ASK-11")
async def test_toolcall_a_stop_prevents_the_second():
    ran = []

    @tool
    async def stops(call: Call) -> None:
        await call.stop()
        assert call.cancelled.is_set()
        await call.commit("stopped")
        await call.execute("fin")

    a = agent("A", branching(go=calling("stops", "a")), tools=[stops, recording("a", ran)], max_tool_calls=2)
    async with at_work(a) as it:
        assert await it.session.complete("go") == "answer:fin"
    assert ran == []


@pytest.mark.parametrize("available", [lambda _: False, lambda _: 1 / 0], ids=["no", "raises"])
async def test_toolcall_what_is_not_available_is_hidden_and_cannot_be_called(available):
    ran = []
    tools = [recording("hidden", ran, available=available), recording("a", ran)]
    a = agent("A", branching(go=calling("hidden")), tools=tools)
    async with at_work(a) as it:
        assert await it.session.complete("go") == PLACEHOLDER
        assert 'rescue"No target function for hidden"' in it.log
    assert [each.name for each in a.model.asked[0].tools] == ["a"]
    assert ran == []


async def test_toolcall_a_tool_may_be_called_otherwise_at_each_place():
    """The name, too, may be given when it is offered; the model calls it by that."""

    async def described(place, tool):
        return tool.replace(name=f"look_up_for_{place.client}", description="Look it up.")

    ran = []
    script = branching(go=calling("look_up_for_ann"))
    a = agent("A", script, tools=[recording("look_up", ran, describe=described)])
    async with at_work(a) as it:
        assert await it.session.complete("go") == "answer:fin"
    assert [each.name for each in a.model.asked[0].tools] == ["look_up_for_ann"]
    assert ran == ["look_up"]


async def test_toolcall_a_tool_of_a_source_does_not_replace_one_of_the_same_name():
    ran = []
    tools = [recording("a", ran)]
    a = agent("A", branching(go=calling("a")), tools=tools, sources=[lambda _: [recording("a", ["other"])]])
    async with at_work(a) as it:
        assert await it.session.complete("go") == "answer:fin"
    assert [each.name for each in a.model.asked[0].tools] == ["a"]
    assert ran == ["a"]


async def test_toolcall_triage_hands_back_to_the_default_agent():
    b = agent("B", branching(back=calling("to_default")), tools=[triage()])
    async with at_work(agent("A"), b) as it:
        await it.session.change_to("B")
        told = await it.session.complete("back")
        assert told.startswith("echo:User changed conversation topic.")
        assert "without navigating to B" in told
        assert any("Successfully navigated from B to A" in line for line in it.log)
        assert it.session.agent == "A"


async def test_toolcall_the_order_is_that_of_the_declaration_with_navigation_first():
    def late(steps):
        async def available(_):
            for _step in range(steps):
                await anyio.lowlevel.checkpoint()
            return True

        return available

    tools = [recording(name, [], available=late(steps)) for name, steps in zip("abc", (3, 0, 1), strict=True)]
    a = agent("A", tools=[*tools, navigation("B", available=late(5))])
    async with at_work(a, agent("B")) as it:
        await it.session.complete("hi")
    assert [each.name for each in a.model.asked[0].tools] == ["to_b", "a", "b", "c"]


# -- toolguard ---------------------------------------------------------------------------------------------------------


def bad(*_):
    raise RuntimeError("a hook that raises")


@pytest.mark.row("ASK-30")
@pytest.mark.parametrize("hook", ["on_validate", "on_before_call", "on_after_call"])
async def test_toolguard_a_hook_that_raises_disturbs_nothing(hook, caplog):
    ran = []
    a = agent("A", branching(go=calling("a")), tools=[recording("a", ran, **{hook: bad})])
    async with at_work(a) as it:
        assert await it.session.complete("go") == "answer:fin"
        await anyio.wait_all_tasks_blocked()
    assert ran == ["a"]
    assert [record.getMessage() for record in caplog.records] == [f"{hook} raised; the error is ignored"]


@pytest.mark.row("ASK-30")
async def test_toolguard_an_error_hook_that_raises_does_not_keep_from_a_rescue(caplog):
    @tool(on_call_error=bad)
    async def broken(call: Call) -> None:
        raise OSError("no paper")

    async with at_work(agent("A", branching(go=calling("broken")), tools=[broken])) as it:
        assert await it.session.complete("go") == PLACEHOLDER
        assert await it.session.complete("next") == "answer:next"
    assert "on_call_error raised; the error is ignored" in caplog.text


@pytest.mark.row("ASK-09")
@pytest.mark.parametrize("validate", [lambda *_: False, bad], ids=["no", "raises"])
async def test_toolguard_a_check_that_refuses_or_raises_is_a_failed_validation(validate):
    ran = []
    a = agent("A", branching(go=calling("a")), tools=[recording("a", ran, validate=validate)])
    async with at_work(a) as it:
        assert await it.session.complete("go") == PLACEHOLDER
        assert 'rescue"Function validation failed: name=a arguments={}"' in it.log
    assert ran == []


# -- toolcontext -------------------------------------------------------------------------------------------------------


def doing(work):
    """A tool that does something with the session, commits, and goes on."""

    @tool(name="work")
    async def run(call: Call) -> None:
        await work(call)
        await call.commit("ok")
        await call.execute("next")

    return run


async def test_toolcontext_a_stateless_question_inside_a_tool():
    got = []

    async def work(call):
        got.append(await call.session.run("by the way"))

    a = agent("A", branching(go=calling("work")), tools=[doing(work)])
    async with at_work(a) as it:
        assert await it.session.complete("go") == "answer:next"
        assert not any("by the way" in line for line in it.log)
    assert got == ["answer:by the way"]
    assert asked(a)[1] == ['system"PA"', 'user/user"go"', 'user/user"by the way"']


@pytest.mark.parametrize(
    ("commit", "context"),
    [
        ("commit_system", ['system"PA"', 'system"told"', 'user/user"go"', "assistant[work]", 'tool(re:work)"ok"']),
        (
            "commit_assistant",
            ['system"PA"', 'user/user"go"', "assistant[work]", 'assistant"told"', 'tool(re:work)"ok"'],
        ),
        (
            "commit_developer",
            ['system"PA"', 'user/user"go"', "assistant[work]", 'developer"told"', 'tool(re:work)"ok"'],
        ),
    ],
)
async def test_toolcontext_what_a_tool_commits_is_seen_next(commit, context):
    async def work(call):
        await getattr(call.session, commit)("told")

    a = agent("A", branching(go=calling("work")), tools=[doing(work)])
    async with at_work(a) as it:
        assert await it.session.complete("go") == "answer:next"
    assert asked(a)[1] == [*context, 'user/tool"next"']


@pytest.mark.row("ASK-04")
@pytest.mark.parametrize("scope", ["agent", "thread"])
async def test_toolcontext_a_flush_in_a_tool_hides_what_was_before(scope):
    async def work(call):
        await call.flush(scope)

    a, b = agent("A", branching(go=calling("work")), tools=[doing(work)]), agent("B")
    async with at_work(a, b) as it:
        await it.session.complete("before")
        await it.session.complete("go")
        assert asked(a)[-1] == ['system"PA"', 'user/tool"next"']
        await it.session.change_to("B")
        await it.session.complete("you")
        assert ('user/user"before"' in asked(b)[-1]) == (scope == "agent")


async def test_toolcontext_a_stateless_question_leaves_the_log_as_it_was():
    async with at_work(agent()) as it:
        await it.session.complete("hi")
        before = it.session.messages
        assert await it.session.run("by the way") == "echo:by the way"
        assert it.session.messages == before


async def test_toolcontext_payload_and_place_are_known():
    got = []

    async def work(call):
        got.append(
            (call.session.payload, call.place.payload, call.client, call.agent, call.place.swarm, call.place.run)
        )

    async with at_work(agent("A", branching(go=calling("work")), tools=[doing(work)])) as it:
        await it.session.complete("go", {"n": 1}, run="turn-7")
        assert it.session.payload is None
    assert got == [({"n": 1}, {"n": 1}, "ann", "A", "shop", "turn-7")]


# -- edgecases ---------------------------------------------------------------------------------------------------------


@pytest.mark.row("ASK-06")
async def test_edgecases_no_calls_allowed_leaves_the_text():
    ran = []
    script = branching(go=calling("a", said="only text"))
    a = agent("A", script, tools=[recording("a", ran)], max_tool_calls=0)
    async with at_work(a) as it:
        assert await it.session.complete("go") == "only text"
        assert it.log == ['user/user"go"', 'assistant"only text"']
        await it.session.complete("next")
    assert asked(a)[1] == ['system"PA"', 'user/user"go"', 'assistant"only text"', 'user/user"next"']
    assert ran == []


@pytest.mark.row("ASK-03")
async def test_edgecases_no_window_is_no_dialogue():
    a = agent("A", lambda _: "fine", keep=0)
    async with at_work(a) as it:
        await it.session.commit_system("told")
        assert await it.session.complete("hi") == "fine"
    assert asked(a) == [['system"PA"', 'system"told"']]


async def test_edgecases_a_tool_reads_the_log_that_it_writes():
    got = []

    async def work(call):
        got.append((call.session.last_user, call.session.last_assistant, len(call.session.messages)))

    async with at_work(agent("A", branching(go=calling("work")), tools=[doing(work)])) as it:
        await it.session.complete("go")
    assert got == [("go", "", 2)]


@pytest.mark.row("ASK-29")
@pytest.mark.parametrize("client", ["../../escaped", "/etc/passwd", "a/../../b", "..", "con:aux?", "a\\..\\b"])
async def test_edgecases_odd_names_stay_inside_the_store(client, tmp_path):
    folder = tmp_path / "inner" / "store"
    swarm = Swarm("shop", [agent()], realm="../realm")
    for round_ in range(2):
        with JsonlStore(folder) as store:
            async with swarm.start(store=store) as live, live.session(client) as session:
                assert len(session.messages) == 2 * round_
                await session.complete("hi")
    assert [each.name for each in tmp_path.iterdir()] == ["inner"]
    assert [each.name for each in (tmp_path / "inner").iterdir()] == ["store"]


# -- resilience --------------------------------------------------------------------------------------------------------


@pytest.mark.row("ASK-04")
@pytest.mark.parametrize("scope", ["turn", "thread"])
async def test_resilience_an_unknown_tool_and_what_the_next_turn_sees(scope):
    a = agent("A", branching(go=calling("nope")), rescue_scope=scope)
    async with at_work(a) as it:
        await it.session.complete("before")
        assert await it.session.complete("go") == PLACEHOLDER
        assert await it.session.complete("next") == "answer:next"
    kept = (
        ['user/user"before"', 'assistant"answer:before"'] if scope == "turn" else ['user/tool"Start the conversation"']
    )
    assert asked(a)[-1] == ['system"PA"', *kept, 'user/user"next"']


@pytest.mark.row("ASK-06")
async def test_resilience_half_pairs_are_never_sent():
    a = agent()
    async with at_work(a) as it:
        await it.session.commit_tool_request([("dangling", {})])
        await it.session.commit_tool_output("orphan", "nobody asked", allow_unknown=True)
        await it.session.complete("hi")
    assert asked(a) == [['system"PA"', 'user/user"hi"']]


@pytest.mark.row("ASK-03")
async def test_resilience_a_window_of_two():
    a = agent(keep=2)
    async with at_work(a) as it:
        for number in range(1, 5):
            await it.session.complete(f"turn{number}")
    assert asked(a)[-1] == ['system"PA"', 'assistant"echo:turn3"', 'user/user"turn4"']


@pytest.mark.row("ASK-08")
@pytest.mark.parametrize("commits", [True, False])
async def test_resilience_a_tool_that_does_not_go_on_fails_its_turn_and_no_other(commits):
    @tool
    async def quiet(call: Call) -> None:
        if commits:
            await call.commit("ok")

    async with at_work(agent("A", branching(go=calling("quiet")), tools=[quiet])) as it:
        with pytest.raises(TurnError, match="'quiet'") as raised:
            await it.session.complete("go")
        assert raised.value.tool == "quiet"
        assert await it.session.complete("next") == "answer:next"


@JUMPING
@pytest.mark.row("ASK-08")
async def test_resilience_a_tool_that_defers_has_until_the_deadline():
    @tool(defers=True)
    async def later(call: Call) -> None:
        await call.commit("ok")

    async with at_work(agent("A", branching(go=calling("later")), tools=[later]), deadline=30) as it:
        with pytest.raises(TurnError, match="no answer within"):
            await it.session.complete("go")
        assert await it.session.complete("next") == "answer:next"


async def test_resilience_calls_that_could_not_be_read_are_a_rescue():
    broken = p.MalformedToolCall("{half", "cut off", "a", "1")
    a = agent("A", branching(go=p.assistant(tool_calls=[broken])), tools=[recording("a", [])])
    async with at_work(a) as it:
        assert await it.session.complete("go") == PLACEHOLDER
        assert any("name=a arguments={half" in line for line in it.log)
        assert await it.session.complete("next") == "answer:next"


async def test_a_late_error_after_a_failed_validation_changes_nothing(caplog):
    caplog.set_level(logging.WARNING)
    late = anyio.Event()

    @tool
    async def lingers(call: Call) -> None:
        await call.commit("ok")
        await call.execute("empty")
        await late.wait()
        raise OSError("too late")

    script = branching(go=calling("lingers"), empty=lambda _: "")
    async with at_work(agent("A", script, tools=[lingers])) as it:
        assert await it.session.complete("go") == PLACEHOLDER
        late.set()
        await anyio.wait_all_tasks_blocked()
        assert await it.session.complete("next") == "answer:next"
        assert len([line for line in it.log if line.startswith("rescue")]) == 1


async def test_answers_that_follow_a_result_see_it():
    """A tool that returns is asked about by itself."""

    def price() -> str:
        """Say a price."""
        return "119.00"

    def script(prompt):
        return f"it is {last(prompt).text}" if last(prompt).role == "tool" else calling("price")

    async with at_work(agent("A", script, tools=[price])) as it:
        assert await it.session.complete("how much?") == "it is 119.00"
