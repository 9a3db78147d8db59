"""Every turn ends, with its own answer or an error of its own (ASK-07, ASK-08, ASK-17)."""

import anyio
import pytest

import palaver as p
from palaver.core.errors import TurnError
from palaver.store.memory import MemoryStore
from palaver.swarm import Call, Chats, RateLimited, Scheduled, Swarm, complete, connect, fork, tool
from palaver.swarm.extras.pipeline import Pipeline
from tests.clocks import BACKENDS
from tests.swarm.scripts import PLACEHOLDER, agent, at_work, branching, calling
from tests.swarm.slow import Callers, Slow

pytestmark = pytest.mark.anyio

CLOCKS = pytest.mark.parametrize(
    ("anyio_backend", "deadline"), [(backend, 300.0) for backend in BACKENDS.values()], ids=BACKENDS
)


# -- ASK-08: the deadline -------------------------------------------------------------------------------------------


@tool
async def hangs(call: Call) -> None:
    """Commit, and never come back."""
    await call.commit("ok")
    await anyio.sleep_forever()


@tool
async def silent(call: Call) -> None:
    """Never commit, and never come back."""
    await anyio.sleep_forever()


@tool(defers=True)
async def defers(call: Call) -> None:
    """Commit, and leave the rest to somebody who forgets it."""
    await call.commit("later")


@tool
async def executes(call: Call) -> None:
    """Go on."""
    await call.commit("ok")
    await call.execute("on")


@CLOCKS
@pytest.mark.row("ASK-08")
@pytest.mark.parametrize("slow", [hangs, silent, defers], ids=["hangs", "is silent", "defers"])
async def test_k5_the_deadline_ends_a_turn_and_names_the_tool(slow, deadline):
    """K5: such a turn held the lock for ever."""
    a = agent("A", branching(go=calling(slow.name)), tools=[slow])
    async with at_work(a, deadline=deadline) as it:
        with pytest.raises(TurnError) as raised:
            await it.session.complete("go")
        assert raised.value.tool == slow.name
        assert f"no answer within {deadline:g} seconds: the tool {slow.name!r} did not continue" in str(raised.value)
        assert not it.session.busy
        assert await it.events("execution") == [
            "execution commit-execution-begin",
            "execution commit-execution-end",
        ]
        assert await it.session.complete("next") == "answer:next"


@CLOCKS
@pytest.mark.row("ASK-08")
async def test_the_deadline_names_the_tool_that_has_not_gone_on(deadline):
    """The one that executed waits for it too, and is not to blame."""
    a = agent("A", branching(go=calling("executes"), on=calling("hangs")), tools=[executes, hangs])
    async with at_work(a, deadline=deadline) as it:
        with pytest.raises(TurnError) as raised:
            await it.session.complete("go")
        assert raised.value.tool == "hangs"


@CLOCKS
@pytest.mark.row("ASK-08")
@pytest.mark.parametrize("first", ["go", "hi"])
async def test_the_deadline_blames_no_tool_for_a_model_that_hangs(first, deadline):
    """At once, or when a tool has handed over to it."""
    a, b = agent("A", branching(go=calling("to_b_and_on")), tools=[to_b]), agent("B", Slow())
    async with at_work(a, b, deadline=deadline) as it:
        if first == "hi":
            await it.session.change_to("B")
        with pytest.raises(TurnError) as raised:
            await it.session.complete(first)
        assert raised.value.tool is None
        assert str(raised.value) == f"no answer within {deadline:g} seconds"


@tool(name="to_b_and_on")
async def to_b(call: Call) -> None:
    await call.commit("ok")
    await call.session.change_to("B")
    await call.execute("on")


@pytest.mark.row("ASK-08")
@pytest.mark.parametrize("nested", [1, 3, 20])
async def test_an_endless_loop_makes_exactly_as_many_calls_as_it_may(nested):
    a = agent("A", branching(go=calling("executes"), on=calling("executes")), tools=[executes])
    async with at_work(a, nested=nested) as it:
        assert await it.session.complete("go") == PLACEHOLDER
        assert len(a.model.asked) == nested
        reason = f"recursive execution prevented: {nested} model calls in one turn"
        assert it.log[-2:] == [f'rescue"{reason}"', 'assistant"PLACEHOLDER" #placeholder']
        assert await it.session.complete("next") == "answer:next"


# -- ASK-07: whose answer it is -------------------------------------------------------------------------------------


@pytest.mark.row("ASK-07", "ASK-12")
@pytest.mark.parametrize("how", ["emit", "session.emit", "cancel", "execute"])
async def test_what_a_tool_says_behind_its_turn_never_answers_the_next(how):
    late, slow = anyio.Event(), Slow()
    said = []

    @tool
    async def lingers(call: Call) -> None:
        await call.commit("ok")
        await call.session.change_to("B")
        await call.emit("first")
        await late.wait()
        match how:
            case "emit":
                said.append(await call.emit("late"))
            case "session.emit":
                said.append(await call.session.emit("late"))
            case "cancel":
                said.append(await call.session.cancel())
            case _:
                said.append(await call.execute("late"))

    a, b = agent("A", branching(go=calling("lingers")), tools=[lingers]), agent("B", slow)
    async with at_work(a, b) as it, anyio.create_task_group() as group:
        callers = Callers(group)
        assert await it.session.complete("go") == "first"
        await callers.says(it.session.complete, "next")
        late.set()
        assert await callers.settled() == []
        slow.go.set()
        assert await callers.settled() == ["answer:next"]
        assert not any("late" in line for line in it.log)
    assert said in ([False], [""])


@pytest.mark.row("ASK-07")
@pytest.mark.parametrize("held", ["model", "tool"])
@pytest.mark.parametrize(
    ("overtake", "answer"),
    [
        (lambda session: session.emit("instead"), "instead"),
        (lambda session: session.cancel(), ""),
        (lambda session: session.close(), ""),
        (lambda session: session.change_to("B"), ""),
    ],
    ids=["emit", "cancel", "close", "change"],
)
async def test_a_turn_that_is_overtaken(overtake, answer, held):
    """By a text, a cancel, the end of the session, or another agent, while a model or a tool is at work."""
    go = anyio.Event()

    @tool
    async def waits(call: Call) -> None:
        await go.wait()
        await call.commit("late")

    model = Slow() if held == "model" else branching(go=calling("waits"))
    a = agent("A", model, tools=[waits])
    async with at_work(a, agent("B")) as it, anyio.create_task_group() as group:
        callers = Callers(group)
        await callers.says(it.session.complete, "go")
        await overtake(it.session)
        await anyio.wait_all_tasks_blocked()
        (model.go if held == "model" else go).set()
        assert await callers.settled() == [answer]
        shown = [line for line in it.log if line.startswith('assistant"') and "#" not in line]
        assert shown == ([f'assistant"{answer}"'] if answer else [])


@pytest.mark.row("ASK-07", "ASK-23")
async def test_a_cancel_is_an_event_of_every_agent():
    slow = Slow()
    async with at_work(agent("A", slow), agent("B"), agent("C")) as it, anyio.create_task_group() as group:
        callers = Callers(group)
        await callers.says(it.session.complete, "go")
        await it.session.cancel()
        assert await callers.settled() == [""]
        assert [event.agent for event in await it.heard("agent", "commit-cancel-output")] == ["A", "B", "C"]
        assert len(await it.heard("swarm", "wait-for-output")) == 1


# -- ASK-17: models that fail ---------------------------------------------------------------------------------------


async def by_complete(live):
    async with live.session("ann") as session:
        return await session.complete("x")


async def by_execute(live):
    async with live.session("ann") as session:
        return await session.execute("x")


async def by_run(live):
    async with live.session("ann") as session:
        return await session.run("x")


async def by_one_shot(live):
    return await complete(live, "x", "ann")


async def by_connection(live):
    async with connect(live, "ann", lambda _: None) as connection:
        return await connection.send("x")


async def by_scheduled(live):
    async with live.session("ann") as session:
        return await Scheduled(session).complete("x")


async def by_rated(live):
    async with live.session("ann") as session:
        return await RateLimited(session).complete("x")


async def by_chats(live):
    async with Chats(live) as chats:
        return await chats.complete("ann", "x")


async def by_fork(live):
    errors = []
    got = await fork(live, "ann", lambda session: session.complete("x"), on_error=errors.append)
    if errors:
        assert got is None
        raise errors[0]
    return got


async def by_a_tool(live):
    async with live.session("ann") as session:
        return await session.complete("go")


WAYS = [
    by_complete,
    by_execute,
    by_run,
    by_one_shot,
    by_connection,
    by_scheduled,
    by_rated,
    by_chats,
    by_fork,
    by_a_tool,
]


def down(prompt):
    if prompt.messages[-1].text == "go":
        return calling("executes")
    return RuntimeError("provider-down")


@pytest.mark.row("ASK-17")
@pytest.mark.parametrize("way", WAYS, ids=[way.__name__ for way in WAYS])
@pytest.mark.parametrize("policy", ["raise", "placeholder"])
async def test_a_model_that_fails_is_one_thing_by_every_way(way, policy):
    a = agent("A", down, tools=[executes], on_model_error=policy)
    async with Swarm("shop", [a]).start(store=MemoryStore()) as live:
        if policy == "raise":
            with pytest.raises(RuntimeError, match="provider-down"):
                await way(live)
        else:
            assert await way(live) == PLACEHOLDER
        messages = (await live.log("ann")).messages
        assert not any(message.role in {"rescue", "flush"} for message in messages)
        spoken = [message for message in messages if message.role == "assistant" and not message.tool_calls]
        shown = [PLACEHOLDER] if policy == "placeholder" and way is not by_run else []
        assert [message.text for message in spoken] == shown


@pytest.mark.row("ASK-17")
async def test_a_pipeline_whose_model_fails_says_so():
    errors = []
    line = Pipeline("line", lambda session, _: session.execute("x"), on_error=lambda *given: errors.append(given))
    a = agent("A", [RuntimeError("provider-down")])
    async with at_work(a) as it:
        assert await line.run(it.session) is None
        assert "provider-down" in repr(errors)
        assert it.log == ['user/tool"x"']


@pytest.mark.row("ASK-17")
async def test_an_error_of_another_call_fails_no_good_answer():
    """K12: errors were the client's, and whoever was waiting got them."""
    slow = Slow(branching(bad=RuntimeError("provider-down")))

    async with at_work(agent("A", slow)) as it, anyio.create_task_group() as group:
        callers = Callers(group)
        await callers.says(it.session.complete, "good")
        await callers.says(it.session.run, "bad")
        slow.go.set()
        got = await callers.settled()
    assert sorted(map(repr, got)) == ["'answer:good'", "RuntimeError('provider-down')"]


# -- ASK-23: what is told of turns that end otherwise ---------------------------------------------------------------

BEGIN, END = "execution commit-execution-begin", "execution commit-execution-end"


@pytest.mark.row("ASK-23")
@pytest.mark.parametrize("way", WAYS, ids=[way.__name__ for way in WAYS])
@pytest.mark.parametrize("script", [down, lambda _: "fine"], ids=["fails", "answers"])
async def test_begin_and_end_pair_by_every_way(way, script):
    """K7: one shots told neither, and a turn that failed had no end."""
    seen = []
    a = agent("A", script, tools=[executes])
    async with Swarm("shop", [a]).start() as live:
        listener = await live.bus.listen(seen.append)
        try:
            assert await way(live) == "fine"
            failed = False
        except RuntimeError:
            failed = True
        await live.bus.flush()
        await listener.idle()
    told = [f"{event.source} {event.type}" for event in seen]
    executions = [each for each in told if each.startswith("execution")]
    times = 0 if way is by_run else 2 if way is by_a_tool and failed else 1
    assert executions == [BEGIN] * times + [END] * times
    assert failed == (script is down)
    assert told.count("session execute") == (0 if failed or way is by_run else 1)
    assert len({event.id for event in seen}) == len(seen)


@pytest.mark.row("ASK-07", "ASK-18")
async def test_a_tool_whose_agent_is_changed_from_outside_may_go_on_with_the_new_one():
    begun, go = anyio.Event(), anyio.Event()

    @tool
    async def waits(call: Call) -> None:
        begun.set()
        await go.wait()
        assert call.cancelled.is_set()
        await call.commit("nobody is told")
        await call.execute("take over")

    a = agent("A", branching(go=calling("waits")), tools=[waits])
    async with at_work(a, agent("B")) as it, anyio.create_task_group() as group:
        callers = Callers(group)
        await callers.says(it.session.complete, "go")
        await begun.wait()
        assert await it.session.change_to("B")
        go.set()
        assert await callers.settled() == ["echo:take over"]
        assert it.log == ['user/user"go"', "assistant[waits]", 'user/tool"take over"', 'assistant"echo:take over"']


@pytest.mark.row("ASK-13", "ASK-21")
async def test_a_hundred_messages_and_a_hundred_pushes_each_get_their_own_answer():
    a, heard, got = agent(), [], {}
    async with Swarm("shop", [a]).start() as live, connect(live, "ann", heard.append) as ann:

        async def say(text, function):
            got[text] = await function(text)

        async with anyio.create_task_group() as group:
            for number in range(100):
                group.start_soon(say, f"said {number}", ann.send)
                group.start_soon(say, f"pushed {number}", ann.session.execute)
        kept = [message.text for message in ann.session.messages]
    assert got == {text: f"echo:{text}" for text in got}
    assert len(got) == len(a.model.asked) == 200
    assert sorted(each.data for each in heard) == sorted(f"echo:said {number}" for number in range(100))
    assert [f"echo:{text}" for text in kept[::2]] == kept[1::2]


@pytest.mark.finding("F-43")
@pytest.mark.parametrize("way", ["complete", "execute"])
async def test_a_model_sees_the_question_of_its_turn_however_many_tools_it_calls(way):
    def look(number: int) -> str:
        return f"result {number}"

    def script(prompt):
        number = len(a.model.asked)
        if number > 12:
            return "done"
        return p.assistant(tool_calls=[p.tool_call("look", {"number": number}, id=f"call-{number}")])

    a = agent("A", script, tools=[look], instructions="")
    async with at_work(a, name="shop") as it:
        assert await getattr(it.session, way)("What is the sum?") == "done"
        assert await it.session.execute("And now?") == "done"
    assert [prompt.messages[0].text for prompt in a.model.asked[:-1]] == ["What is the sum?"] * 13
    assert a.model.asked[-1].messages[-1].text == "And now?"
    assert len(a.model.asked[-2].messages) == 15
