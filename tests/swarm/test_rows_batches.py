"""The calls of one answer: which of them run, in which order, and what skips the rest (ASK-09, ASK-10, ASK-11)."""

import anyio
import pytest

import palaver as p
from palaver.swarm import Call, commit_action, navigation, tool
from tests.swarm.scripts import PLACEHOLDER, agent, answers, at_work, branching, calling, last
from tests.swarm.slow import Callers

pytestmark = pytest.mark.anyio


def recording(name, ran, **options):
    """A tool that says that it ran; the last of its batch goes on with the turn."""

    @tool(name=name, **options)
    async def run(call: Call) -> None:
        ran.append((name, call.is_last))
        await call.commit(name)
        if call.is_last:
            await call.execute("fin")

    return run


# -- ASK-09: a batch is made without running anything --------------------------------------------------------------

GOOD = p.tool_call("good", {}, id="1"), p.tool_call("good", {}, id="2")
BAD = {
    "unknown": (p.tool_call("nope", {}, id="x"), "No target function for nope"),
    "refused": (p.tool_call("picky", {}, id="x"), "Function validation failed: name=picky arguments={}"),
    "odd arguments": (
        p.tool_call("typed", {"number": "many"}, id="x"),
        'Function validation failed: name=typed arguments={"number":"many"}',
    ),
    "did not parse": (
        p.MalformedToolCall("{half", "cut off", "good", "x"),
        "Function validation failed: name=good arguments={half",
    ),
}


def with_parts(*parts):
    return p.AssistantMessage(content=parts)


@pytest.mark.row("ASK-09")
@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("place", [0, 1, 2])
async def test_one_call_that_cannot_run_and_none_does_wherever_it_stands(kind, place):
    bad, reason = BAD[kind]
    parts = [*GOOD[:place], bad, *GOOD[place:]]
    ran = []

    @tool
    async def typed(call: Call, number: int) -> None:
        ran.append("typed")

    tools = [recording("good", ran), recording("picky", ran, validate=lambda *_: False), typed]
    a = agent("A", [with_parts(*parts)], tools=tools, max_tool_calls=3)
    async with at_work(a) as it:
        assert await it.session.complete("go") == PLACEHOLDER
        assert it.log[2:] == [f'rescue"{reason}"', 'assistant"PLACEHOLDER" #placeholder']
        assert await it.events() == [
            "execution commit-execution-begin",
            *["history push"] * 2,
            *(["agent tool-error"] if kind == "odd arguments" else []),
            *["history push"] * 2,
            "agent emit-output",
            "swarm wait-for-output",
            "session execute",
            "execution commit-execution-end",
        ]
        assert await it.session.complete("next") == "answer:next"
    assert ran == []


@pytest.mark.row("ASK-09", "ASK-10")
@pytest.mark.parametrize(
    ("order", "limit", "runs"),
    [("bg", 1, True), ("gb", 1, False), ("bgg", 2, True), ("gbg", 2, False), ("gb", 0, None)],
)
async def test_a_call_that_did_not_parse_counts_where_it_would_have_run(order, limit, runs):
    """It takes its place among the last calls, and outside of them it is nothing."""
    good, ran = iter(GOOD), []
    parts = [p.MalformedToolCall("{half", "cut off", "good", "x") if each == "b" else next(good) for each in order]
    a = agent("A", [with_parts(p.Text("text"), *parts)], tools=[recording("good", ran)], max_tool_calls=limit)
    async with at_work(a) as it:
        wanted = {True: "answer:fin", False: PLACEHOLDER, None: "text"}[runs]
        assert await it.session.complete("go") == wanted
    assert len(ran) == (limit if runs else 0)


@pytest.mark.row("ASK-09")
@pytest.mark.parametrize("way", ["complete", "execute"])
async def test_equal_ids_are_found_before_the_list_is_cut(way):
    ran = []
    a = agent("A", [calling("a", "b", "c", ids=["1", "1", "2"])], tools=[recording(n, ran) for n in "abc"])
    async with at_work(a) as it:
        with pytest.raises(p.PalaverError, match="Duplicate tool call id"):
            await getattr(it.session, way)("go")
        assert await it.session.complete("next") == "answer:next"
    assert ran == []


async def test_a_tool_that_has_the_name_of_a_navigation_is_called_and_the_navigation_renamed():
    ran = []
    a = agent("A", branching(go=calling("to_b")), tools=[recording("to_b", ran), navigation("B")])
    async with at_work(a, agent("B", lambda _: "from B")) as it:
        assert await it.session.complete("go") == "answer:fin"
    assert [each.name for each in a.model.asked[0].tools] == ["to_b_2", "to_b"]
    with pytest.raises(p.MessageError, match="two tools have the name 'to_b'"):
        agent("A", branching(), tools=[navigation("B"), recording("to_b", ran)])


# -- ASK-10: which calls win ----------------------------------------------------------------------------------------


@pytest.mark.row("ASK-10")
@pytest.mark.parametrize("limit", [1, 2, 3])
@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("winner", ["to_b", "buy"])
async def test_k11_a_call_that_navigates_or_commits_wins_wherever_it_stands(winner, place, limit):
    """K11: the list was cut before, and the call that hands over lost unless it stood last."""
    ran, bought = [], []
    names = ["a", "b"]
    names.insert(place, winner)

    def buy():
        """Buy."""
        bought.append("boots")
        return "bought"

    tools = [recording("a", ran), recording("b", ran), navigation("B"), commit_action(buy, success="thank him")]
    a = agent("A", branching(go=calling(*names)), tools=tools, max_tool_calls=limit)
    async with at_work(a, agent("B", lambda _: "from B")) as it:
        assert await it.session.complete("go") == ("from B" if winner == "to_b" else "answer:thank him")
        assert it.log[1] == f"assistant[{winner}]"
    assert ran == []
    assert bought == ([] if winner == "to_b" else ["boots"])


@pytest.mark.row("ASK-10")
@pytest.mark.parametrize(("names", "winner"), [(("to_b", "buy"), "to_b"), (("buy", "to_b"), "buy")])
async def test_of_two_that_win_the_first_does(names, winner):
    def buy():
        """Buy."""
        return "bought"

    a = agent("A", branching(go=calling(*names)), tools=[navigation("B"), commit_action(buy, success="thanks")])
    async with at_work(a, agent("B", lambda _: "from B")) as it:
        await it.session.complete("go")
        assert it.log[1] == f"assistant[{winner}]"


# -- ASK-11: what skips the rest ------------------------------------------------------------------------------------


async def stops(call):
    await call.stop()
    await call.commit("stopped")
    await call.execute("fin")


async def fails(call):
    raise OSError("no paper")


async def changes(call):
    await call.session.change_to("B")
    await call.execute("fin")


async def cancels(call):
    assert await call.session.cancel()
    await call.commit("too late")


async def is_rescued(call):
    await call.execute("nonsense")
    await call.commit("too late")


@pytest.mark.row("ASK-11")
@pytest.mark.parametrize(
    ("work", "answer"),
    [(stops, "answer:fin"), (fails, PLACEHOLDER), (changes, "B"), (cancels, ""), (is_rescued, PLACEHOLDER)],
    ids=["stop", "error", "change", "cancel", "rescue"],
)
async def test_what_ends_a_batch_skips_the_rest_and_tells_those_that_run(work, answer):
    trace = []

    @tool
    async def first(call: Call) -> None:
        trace.append(("first", call.is_last))
        await call.commit("ok")
        await call.cancelled.wait()
        trace.append("first told")

    @tool
    async def second(call: Call) -> None:
        trace.append(("second", call.is_last))
        try:
            await work(call)
        finally:
            trace.append(("told", call.cancelled.is_set()))

    @tool
    async def third(call: Call) -> None:
        trace.append("third")

    script = branching(go=calling("first", "second", "third"), nonsense=calling("nope"))
    a = agent("A", script, tools=[first, second, third], max_tool_calls=3)
    async with at_work(a, agent("B", lambda _: "B")) as it:
        assert await it.session.complete("go") == answer
        await anyio.wait_all_tasks_blocked()
        assert trace[:2] == [("first", False), ("second", False)]
        assert set(trace[2:]) == {"first told", ("told", work is not fails)}
        assert await it.session.complete("next") in {"answer:next", "B"}
    assert "third" not in trace


@pytest.mark.row("ASK-11")
async def test_a_text_that_is_emitted_does_not_skip_the_rest():
    """The turn is answered; what was begun for it is done all the same."""
    ran = []

    @tool
    async def says(call: Call) -> None:
        await call.emit("done already")
        await call.commit("ok")

    a = agent("A", branching(go=calling("says", "saves")), tools=[says, recording("saves", ran)], max_tool_calls=2)
    async with at_work(a) as it:
        assert await it.session.complete("go") == "done already"
        await anyio.wait_all_tasks_blocked()
        assert it.log[-1] == 'tool(re:saves)"saves"'
        assert await it.session.complete("next") == "answer:next"
    assert ran == [("saves", True)]


@pytest.mark.row("ASK-11")
async def test_a_second_result_of_one_call_lets_nobody_begin_twice():
    ran = []

    @tool
    async def chatty(call: Call) -> None:
        ran.append("chatty")
        await call.commit("one")
        await call.session.commit_tool_output(call.id, "two")

    a = agent("A", branching(go=calling("chatty", "a")), tools=[chatty, recording("a", ran)], max_tool_calls=2)
    async with at_work(a) as it:
        assert await it.session.complete("go") == "answer:fin"
    assert ran == ["chatty", ("a", True)]


@pytest.mark.row("ASK-11")
async def test_the_next_begins_though_the_commit_before_was_cancelled_meanwhile():
    """A commit that is given up waiting lets the next begin all the same."""
    ran, begun = [], anyio.Event()

    @tool
    async def hasty(call: Call) -> None:
        begun.set()
        with anyio.CancelScope() as scope:
            scope.cancel()
            await call.commit("ok")

    a = agent("A", branching(go=calling("hasty", "a")), tools=[hasty, recording("a", ran)], max_tool_calls=2)
    async with at_work(a) as it, anyio.create_task_group() as group:
        callers = Callers(group)
        await callers.says(it.session.complete, "go")
        assert await callers.settled() == ["answer:fin"]
    assert ran == [("a", True)]


@pytest.mark.row("ASK-11")
async def test_tools_that_return_are_run_in_order_and_asked_about_once():
    trace = []

    def result_tool(name):
        async def run() -> str:
            """Return."""
            trace.append(f"start {name}")
            await anyio.lowlevel.checkpoint()
            trace.append(f"end {name}")
            return name

        run.__name__ = name
        return run

    def script(prompt):
        return calling("a", "b") if last(prompt).role == "user" else answers(prompt)

    a = agent("A", script, tools=[result_tool("a"), result_tool("b")], max_tool_calls=2)
    async with at_work(a) as it:
        assert await it.session.complete("go") == "answer:b"
        assert it.log[1:4] == ["assistant[a b]", 'tool(re:a)"a"', 'tool(re:b)"b"']
    assert trace == ["start a", "end a", "start b", "end b"]
    assert len(a.model.asked) == 2
