"""Every turn ends, with its own answer or with an error that says why (K5, ASK-08, ASK-09, ASK-16)."""

import anyio
import pytest

from palaver.core.errors import NavigationError, TurnError, UnavailableError
from palaver.store.sqlite import SQLiteStore
from palaver.swarm import Call, no_tool_syntax, not_empty, plain_text, tool
from tests.clocks import JUMPING
from tests.swarm.scripts import PLACEHOLDER, agent, at_work, branching, calling, echo, last
from tests.swarm.slow import Callers, Slow

pytestmark = pytest.mark.anyio


@tool
async def silent(call: Call) -> None:
    """Commit, and stop."""
    await call.commit("done")


@tool
async def idle(call: Call) -> None:
    """Do nothing."""


@tool
async def hanging(call: Call) -> None:
    """Never come back."""
    await anyio.sleep_forever()


@tool(defers=True)
async def deferring(call: Call) -> None:
    """Commit, and leave the rest to later."""
    await call.commit("later")
    call.session.values["call"] = call


@pytest.mark.row("ASK-08")
@pytest.mark.parametrize("lazy", [silent, idle], ids=["commits", "does nothing"])
async def test_k5_a_tool_that_stops_fails_its_turn_by_name(lazy):
    a = agent("A", branching(go=calling(lazy.name)), tools=[lazy])
    async with at_work(a) as it:
        with pytest.raises(TurnError, match=f"the tool '{lazy.name}' returned") as raised:
            await it.session.complete("go")
        assert raised.value.tool == lazy.name
        assert not it.session.busy
        assert await it.session.complete("next") == "answer:next"


@JUMPING
@pytest.mark.row("ASK-08")
@pytest.mark.parametrize("slow", [hanging, deferring], ids=["hangs", "defers"])
async def test_k5_a_tool_that_hangs_meets_the_deadline(slow):
    a = agent("A", branching(go=calling(slow.name)), tools=[slow])
    async with at_work(a, deadline=30) as it:
        began = anyio.current_time()
        blame = "the tool 'hanging' did not" if slow is hanging else "no answer within 30 seconds"
        with pytest.raises(TurnError, match=blame):
            await it.session.complete("go")
        assert anyio.current_time() - began == pytest.approx(30)
        assert await it.session.complete("next") == "answer:next"


@pytest.mark.row("ASK-08")
async def test_a_tool_that_defers_goes_on_later():
    a = agent("A", branching(go=calling("deferring")), tools=[deferring])
    async with at_work(a) as it, anyio.create_task_group() as group:
        got = []

        async def ask():
            got.append(await it.session.complete("go"))

        group.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        assert got == []
        assert await it.session.values["call"].execute("now") == "answer:now"
        await anyio.wait_all_tasks_blocked()
        assert got == ["answer:now"]


@pytest.mark.row("ASK-08")
async def test_an_endless_loop_makes_exactly_twenty_calls():
    @tool
    async def again(call: Call) -> None:
        await call.commit("ok")
        await call.execute("again")

    a = agent("A", lambda _: calling("again"), tools=[again])
    async with at_work(a) as it:
        assert await it.session.complete("go") == PLACEHOLDER
        assert len(a.model.asked) == 20


@pytest.mark.row("ASK-08")
async def test_a_function_that_is_called_for_ever_meets_the_same_limit():
    def again() -> str:
        """Once more."""
        return "ok"

    a = agent("A", lambda _: calling("again"), tools=[again])
    async with at_work(a, nested=5) as it:
        assert await it.session.complete("go") == PLACEHOLDER
        assert len(a.model.asked) == 5


@pytest.mark.row("ASK-09")
@pytest.mark.parametrize("bad", ["nope", "picky", "typed"])
async def test_one_call_that_may_not_run_and_none_does(bad):
    ran = []

    @tool
    async def good(call: Call) -> None:
        ran.append("good")
        await call.emit("ran")

    @tool(validate=lambda *_: False)
    async def picky(call: Call) -> None:
        ran.append("picky")

    @tool
    async def typed(call: Call, number: int) -> None:
        ran.append("typed")

    a = agent(
        "A", lambda _: calling("good", bad, "good", ids=["1", "2", "3"]), tools=[good, picky, typed], max_tool_calls=3
    )
    async with at_work(a) as it:
        assert await it.session.complete("go") == PLACEHOLDER
        reason = "No target function for nope" if bad == "nope" else f"Function validation failed: name={bad}"
        assert any(each.startswith(f'rescue"{reason}') for each in it.log)
    assert ran == []


@pytest.mark.row("ASK-09")
async def test_a_batch_is_made_in_this_order():
    """An id for each, then `map_calls`, then duplicates, then priority, then the slice."""
    seen = []

    def mapped(calls):
        seen.append([(call.name, bool(call.id)) for call in calls])
        return list(calls)

    @tool
    async def note(call: Call) -> None:
        seen.append([each.name for each in call.calls])
        await call.commit("ok")
        if call.is_last:
            await call.emit("done")

    notes = [note.replace(definition=note.definition.replace(name=name)) for name in "abc"]
    a = agent("A", lambda _: calling("a", "b", "c", ids=["", "", ""]), tools=notes, map_calls=mapped, max_tool_calls=2)
    async with at_work(a) as it:
        assert await it.session.complete("go") == "done"
    assert seen == [[("a", True), ("b", True), ("c", True)], ["b", "c"], ["b", "c"]]


@pytest.mark.row("ASK-16")
@pytest.mark.parametrize(
    ("raw", "shown"),
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
async def test_the_presets_of_the_original(raw, shown):
    a = agent("A", lambda _: raw, transform=plain_text, validate=no_tool_syntax)
    async with at_work(a) as it:
        assert await it.session.complete("x") == shown


@pytest.mark.row("ASK-16")
@pytest.mark.parametrize("text", ["def f(): return {1: <b>2</b>}", '{"a": 1}', "<p>html</p>"])
async def test_k19_an_agent_without_presets_leaves_answers_as_they_are(text):
    async with at_work(agent("A", lambda _: text)) as it:
        assert await it.session.complete("x") == text
    assert not_empty(" \n") == "Empty output"


@pytest.mark.row("ASK-16")
async def test_an_answer_is_transformed_once_and_kept_as_it_was_shown():
    a = agent("A", echo, transform=lambda text: f"T[{text}]", validate=lambda text: None if text[0] == "T" else "raw")
    async with at_work(a) as it:
        assert await it.session.complete("hi") == "T[echo:hi]"
        assert it.session.last_assistant == "T[echo:hi]"
        assert it.session.messages[-1].metadata == {"raw": "echo:hi"}


@pytest.mark.row("ASK-19")
async def test_the_way_back_and_what_a_restart_knows(tmp_path):

    agents = [agent(name, lambda prompt, name=name: f"{name}:{last(prompt).text}") for name in "ABC"]
    with SQLiteStore(tmp_path / "shop.db") as store:
        async with at_work(*agents, store=store) as it:
            assert await it.session.change_to("B")
            assert await it.session.change_to("C")
        async with at_work(*agents, store=store) as it:
            session = it.session
            assert (session.agent, session.navigator.stack) == ("C", ["B", "C"])
            assert await session.complete("hi") == "C:hi"
            assert await session.change_to_previous()
            assert session.agent == "B"
            assert await session.change_to_previous()
            assert session.agent == "A"
            assert not await session.change_to_previous()
        async with at_work(*agents[1:], store=store, default="C") as it:
            assert it.session.agent == "C"  # the agent A is no more


@pytest.mark.row("ASK-19")
async def test_k17_the_stack_is_bounded():
    async with at_work(agent("A"), agent("B")) as it:
        for number in range(200):
            it.session.navigator.route.clear()
            await it.session.change_to("AB"[number % 2])
        assert len(it.session.navigator.stack) == 64


async def test_any_agent_can_be_asked_without_a_trace():
    a, b = agent("A"), agent("B", lambda prompt: f"B saw {len(prompt.messages)}")
    async with at_work(a, b) as it:
        await it.session.complete("hi")
        before = it.log
        assert await it.session.consult("B", "what do you think?") == "B saw 4"
        assert await it.session.run("and you?") == "echo:and you?"
        assert it.log == before
        assert it.session.agent == "A"
        with pytest.raises(NavigationError, match="no agent 'C'"):
            await it.session.consult("C", "anybody?")


@pytest.mark.row("ASK-18")
async def test_an_agent_can_be_visited_again_where_that_is_asked_for():
    async with at_work(agent("A"), agent("B")) as it:
        await it.session.complete("hi")
        for name in "BABAB":
            assert await it.session.change_to(name, again=True)
        with pytest.raises(NavigationError, match="recursion"):
            await it.session.change_to("A")


async def test_tools_are_asked_at_once_whether_they_are_offered_and_stand_in_their_order():
    asked_of = []
    both = anyio.Event()

    def offered(name):
        async def available(_):
            asked_of.append(name)
            if len(asked_of) == 2:
                both.set()
            await both.wait()
            return True

        return idle.replace(definition=idle.definition.replace(name=name), available=available)

    a = agent("A", tools=[offered("one"), silent, offered("two")])
    async with at_work(a) as it:
        with anyio.fail_after(60):
            await it.session.complete("hi")
    assert [tool.name for tool in a.model.asked[0].tools] == ["one", "silent", "two"]


async def test_questions_without_a_trace_follow_each_other():
    slow = Slow()
    async with at_work(agent("A", slow)) as it, anyio.create_task_group() as group:
        callers = Callers(group)
        await callers.says(it.session.run, "one")
        await callers.says(it.session.run, "two")
        assert len(slow.asked) == 0
        slow.go.set()
        assert await callers.settled() == ["answer:one", "answer:two"]


async def test_a_change_that_cannot_be_kept_changes_nothing(monkeypatch):
    async with at_work(agent("A"), agent("B")) as it:
        assert await it.session.change_to("B")
        append = it.session.log.append

        async def full(*_):
            raise UnavailableError("the disk is full")

        monkeypatch.setattr(type(it.session.log), "append", full)
        for change in (it.session.change_to_previous, lambda: it.session.change_to("A")):
            with pytest.raises(UnavailableError):
                await change()
        monkeypatch.setattr(type(it.session.log), "append", lambda _, *how: append(*how))
        assert (it.session.agent, it.session.navigator.stack, list(it.session.navigator.route)) == ("B", ["B"], ["B"])
        assert await it.session.change_to("A")
