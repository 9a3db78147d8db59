"""Acceptance groups about code that raises: hookguard, sweepguard, and every hook at once (row ASK-30)."""

import asyncio
import gc
import logging
from collections.abc import Sequence

import anyio
import pytest

from palaver.core.errors import StoreError, TurnError
from palaver.store.memory import MemoryStore
from palaver.swarm import Call, Custom, Hooks, Swarm, SwarmAgent, navigation, tool, triage
from palaver.swarm.extras.entry import connect
from palaver.swarm.log import Log
from tests.clocks import JUMPING
from tests.swarm.scripts import PLACEHOLDER, agent, asked, at_work, branching, calling
from tests.swarm.slow import Callers, Slow

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("small_heap")]


class BangError(Exception):
    """What the hooks of these tests raise."""


def bang(*_, **__):
    raise BangError("bang")


async def later_bang(*_, **__):
    await anyio.lowlevel.checkpoint()
    raise BangError("bang")


BANGS = pytest.mark.parametrize("bad", [bang, later_bang], ids=["plain", "async"])


@pytest.fixture(autouse=True)
async def _unobserved(anyio_backend_name):
    """No task of asyncio may end with an error that nobody took."""
    found = []
    if anyio_backend_name == "asyncio":
        asyncio.get_running_loop().set_exception_handler(lambda _, context: found.append(context))
    yield
    gc.collect()
    assert found == []


@tool
async def look(call: Call) -> None:
    """Commit, and go on."""
    await call.commit("seen")
    await call.execute("fin")


# -- hookguard: what changes an answer


@BANGS
@pytest.mark.row("ASK-30", "ASK-17")
@pytest.mark.parametrize("hook", ["transform", "map", "map_calls", "validate", "instructions", "dynamic"])
async def test_hookguard_what_changes_an_answer_and_raises_is_the_error_of_the_turn(hook, bad):
    """The caller gets the very error; there is no marker, no half answer, and the session goes on."""
    a = agent(script=branching(go=calling("look")), tools=[look], **{hook: bad})
    async with at_work(a) as it:
        with pytest.raises(BangError):
            await it.session.complete("go")
        assert not any(line.startswith("rescue") for line in it.log)
        assert not it.session.busy
        with anyio.fail_after(60):
            try:
                await it.session.complete("next")
            except BangError:
                assert hook != "map_calls"
        assert (await it.heard("agent", "error"))[0].output["error"] == "BangError: bang"


@BANGS
@pytest.mark.row("ASK-30")
async def test_sweepguard_a_custom_rescue_that_raises_is_the_error_of_the_turn(bad):
    a = agent(script=["", calling("nope"), "fine"], rescue=Custom(bad))
    async with at_work(a) as it:
        for text in ("empty", "unknown"):
            with pytest.raises(BangError):
                await it.session.complete(text)
        assert await it.session.complete("next") == "fine"


# -- hookguard: what looks on

OBSERVERS = sorted(name for name in vars(Hooks) if name.startswith("on_"))


def raising(names, bad=bang):
    """Hooks of which those raise; ``reached`` is which were called."""
    hooks = Hooks()
    hooks.reached = set()
    for name in names:

        def hook(*_, name=name):
            hooks.reached.add(name)
            return bad()

        setattr(hooks, name, hook)
    return hooks


async def everything(session):
    """Reach every hook of an agent."""
    await session.commit_user("user")
    await session.commit_system("system")
    await session.commit_developer("developer")
    await session.commit_assistant("assistant")
    (id_,) = await session.commit_tool_request([("f", {})])
    await session.commit_tool_output(id_, "r")
    await session.commit_flush()
    answers = [await session.complete(text) for text in ("go", "broken", "empty", "hi")]
    answers.append(await session.run("aside"))
    return answers


@tool
async def broken(call: Call) -> None:
    """Raise."""
    raise OSError("no paper")


def reaching(**more):
    script = branching(go=calling("look"), broken=calling("broken"), empty=lambda _: "")
    return agent(script=script, tools=[look, broken], **more)


@BANGS
@pytest.mark.row("ASK-30")
async def test_hookguard_all_observers_of_an_agent_raise(bad, caplog):
    hooks = raising(OBSERVERS, bad)
    async with at_work(reaching(hooks=hooks)) as it:
        with anyio.fail_after(60):
            answers = await everything(it.session)
        assert answers == ["answer:fin", PLACEHOLDER, PLACEHOLDER, "answer:hi", "answer:aside"]
    assert hooks.reached == set(OBSERVERS)
    logged = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    raised = {message.split()[0] for message in logged if "is ignored" in message}
    assert raised == set(OBSERVERS)


@pytest.mark.row("ASK-30")
@pytest.mark.parametrize("name", OBSERVERS)
@pytest.mark.share(2)
async def test_hookguard_one_observer_of_an_agent_raises_and_the_log_is_the_same(name):
    logs = []
    for hooks in (raising(()), raising([name])):
        async with at_work(reaching(hooks=hooks)) as it:
            with anyio.fail_after(60):
                await everything(it.session)
            logs.append(it.log)
    assert logs[0] == logs[1]


@BANGS
@pytest.mark.row("ASK-30")
async def test_hookguard_all_observers_of_a_swarm_raise(bad, caplog):
    names = ("on_open", "on_close", "on_execute", "on_emit", "on_agent_changed")
    slow = Slow()
    a = agent("A", branching(go=calling("to_b")), tools=[navigation("B")])
    async with at_work(a, agent("B", slow), **dict.fromkeys(names, bad)) as it, anyio.create_task_group() as group:
        callers = Callers(group)
        await callers.says(it.session.complete, "go")
        assert await it.session.emit("instead")
        assert await callers.settled() == ["instead"]
        slow.go.set()
        assert await it.session.complete("next") == "answer:next"
    logged = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    raised = {message.split()[0] for message in logged if "is ignored" in message}
    assert raised == set(names)


@BANGS
@pytest.mark.row("ASK-30")
async def test_hookguard_a_listener_of_the_bus_raises(bad):
    async with at_work(agent()) as it:
        await it.live.bus.listen(bad)
        for text in ("one", "two"):
            assert await it.session.complete(text) == f"echo:{text}"
        assert len(await it.heard("session", "execute")) == 2


@pytest.mark.row("ASK-30")
async def test_hookguard_a_bus_that_cannot_publish_disturbs_no_turn():
    async with at_work(agent()) as it:
        it.live.bus.publish = bang
        assert await it.session.complete("one") == "echo:one"


@pytest.mark.row("ASK-07", "ASK-30")
@pytest.mark.parametrize("how", ["emit", "cancel"])
async def test_hookguard_emit_or_cancel_inside_a_tool_does_not_poison_the_next(how):
    @tool
    async def ends(call: Call) -> None:
        if how == "emit":
            assert await call.emit("emitted")
        else:
            assert await call.session.cancel()
        await call.commit("late")
        assert await call.execute("nobody waits") == ""
        assert not await call.emit("nobody waits")

    a = agent(script=branching(go=calling("ends")), tools=[ends])
    async with at_work(a) as it:
        for _ in range(3):
            assert await it.session.complete("go") == ("emitted" if how == "emit" else "")
            assert await it.session.complete("next") == "answer:next"
        assert not any("nobody waits" in line for line in it.log)


# -- sweepguard


class Full(MemoryStore):
    """A store that takes so many messages, and then no more."""

    room = 10**9

    def append(self, thread, messages, *more, **named):
        if type(self).room <= 0:
            raise StoreError("the disk is full")
        type(self).room -= 1
        return super().append(thread, messages, *more, **named)


@pytest.mark.row("ASK-30", "ASK-17")
@pytest.mark.parametrize("room", range(8))
async def test_sweepguard_a_store_that_fails_at_any_append_is_the_error_of_the_turn(room):
    class Store(Full):
        pass

    Store.room = room
    script = branching(go=calling("to_b"))
    a, b = agent("A", script, tools=[navigation("B", execute="on")]), agent("B")
    async with Swarm("shop", [a, b]).start(store=Store()) as live, live.session("ann") as session:
        with anyio.fail_after(60):
            if room < 6:  # question, call, result, agent, what B is told, answer
                with pytest.raises(StoreError, match="the disk is full"):
                    await session.complete("go")
            else:
                assert await session.complete("go") == "echo:on"
        Store.room = 10**9
        assert not session.busy
        with anyio.fail_after(60):
            assert await session.complete("next") in {"answer:next", "echo:next"}


@pytest.mark.row("ASK-17", "ASK-30")
@BANGS
@pytest.mark.parametrize("optional", ["source", "available", "describe"])
async def test_sweepguard_an_optional_source_that_raises_is_left_out_and_reported(optional, bad):
    @tool
    async def extra(call: Call) -> None:
        """Never offered."""

    more = {"source": {"sources": [bad]}}.get(optional) or {"tools": [look, extra.replace(**{optional: bad})]}
    a = agent(script=lambda _: "good answer", **more)
    async with at_work(a) as it:
        assert await it.session.complete("hi") == "good answer"
        (error,) = await it.heard("agent", "error")
        assert error.output["error"] == "BangError: bang"
    assert "extra" not in [each.name for each in a.model.asked[0].tools]


@pytest.mark.row("ASK-30")
@BANGS
async def test_sweepguard_an_operator_that_raises_is_the_error_of_the_turn(bad):
    async with at_work(SwarmAgent("A", operator=bad), agent("B")) as it:
        with pytest.raises(BangError):
            await it.session.complete("hi")
        await it.session.change_to("B")
        assert await it.session.complete("next") == "echo:next"


@pytest.mark.row("ASK-30")
@BANGS
async def test_sweepguard_a_connector_that_raises_rejects_send_and_poisons_nothing(bad):
    calls = []

    async def connector(answer):
        calls.append(answer.data)
        if len(calls) == 1:
            await later_bang() if bad is later_bang else bang()

    async with Swarm("shop", [agent()]).start() as live, connect(live, "ann", connector) as ann:
        with pytest.raises(BangError):
            await ann.send("one")
        assert await ann.send("two") == "echo:two"
    assert calls == ["echo:one", "echo:two"]


@pytest.mark.row("ASK-03", "ASK-30")
async def test_sweepguard_a_filter_of_the_history_that_raises_keeps_everything():
    a = agent(where=bang)
    async with at_work(a) as it:
        for text in ("one", "two"):
            await it.session.complete(text)
    assert asked(a)[1] == ['system"PA"', 'user/user"one"', 'assistant"echo:one"', 'user/user"two"']


@pytest.mark.row("ASK-30")
@BANGS
@pytest.mark.parametrize("text", ["before", "success"])
async def test_a_text_of_a_hand_over_that_raises_is_a_rescue(bad, text):
    option = {"before": {"before": bad}, "success": {"execute": bad}}[text]
    a = agent("A", branching(go=calling("to_b")), tools=[navigation("B", **option)])
    async with at_work(a, agent("B", branching())) as it:
        with anyio.fail_after(60):
            assert await it.session.complete("go") == PLACEHOLDER
            assert await it.session.complete("next") == "answer:next"


@pytest.mark.row("ASK-30")
@pytest.mark.parametrize("where", ["model", "tool"])
async def test_whoever_is_cancelled_leaves_a_session_that_works(where):
    """The caller goes away while a model, or a tool, works for him."""
    begun = anyio.Event()

    @tool
    async def waits(call: Call) -> None:
        begun.set()
        await anyio.sleep_forever()

    slow = Slow(branching(go=calling("waits")))
    if where == "tool":
        slow.go.set()
    async with at_work(agent(script=slow, tools=[waits])) as it:
        async with anyio.create_task_group() as group:
            group.start_soon(it.session.complete, "go")
            await (begun if where == "tool" else slow.began).wait()
            group.cancel_scope.cancel()
        slow.go.set()
        assert not it.session.busy
        assert await it.session.complete("next") == "answer:next"


@JUMPING
@pytest.mark.row("ASK-08", "ASK-30")
@pytest.mark.parametrize(
    ("where", "name"),
    [
        ("swarm", "on_execute"),
        *[("hooks", name) for name in ("on_execute", "on_completion", "on_output", "on_assistant_message")],
        *[("agent", name) for name in ("instructions", "dynamic", "map", "transform", "validate")],
    ],
)
async def test_a_hook_that_does_not_return_meets_the_deadline(where, name):
    """Whatever hangs, the turn ends, the caller is told, and the next message is answered."""
    hung = []

    async def hangs(*arguments):
        if not hung:
            hung.append(name)
            await anyio.sleep_forever()
        return {"validate": None, "instructions": "P", "dynamic": ()}.get(name, arguments[0])

    hooks, options = Hooks(), {"agent": {}, "swarm": {}}
    if where == "hooks":
        setattr(hooks, name, hangs)
    else:
        options[where][name] = hangs
    async with at_work(agent(hooks=hooks, **options["agent"]), deadline=30, **options["swarm"]) as it:
        with pytest.raises(TurnError, match="within 30 seconds"):
            await it.session.complete("one")
        assert hung
        assert not it.session.busy
        assert await it.session.complete("two") == "echo:two"


# -- the cost of a turn


class Counted(Sequence):
    """A path that counts how many of its entries are read."""

    def __init__(self, path, count):
        self._path, self._count = path, count

    def __len__(self):
        return len(self._path)

    def __getitem__(self, place):
        found = self._path[place]
        self._count[0] += len(found) if isinstance(place, slice) else 1
        return found


@pytest.mark.row("ASK-30")
@pytest.mark.share(2)
@pytest.mark.parametrize("turns", [200, pytest.param(1000, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", ["plain", "tool", "hand over", "triage", "by id", "rescue"])
async def test_k10_a_turn_reads_as_many_messages_after_many_as_at_first(kind, turns, monkeypatch):
    """Counted and not timed."""
    count, path = [0], Log.path
    monkeypatch.setattr(Log, "path", property(lambda log: Counted(path.fget(log), count)))

    @tool
    async def by_id(call: Call) -> None:
        await call.session.commit_tool_output(call.id, "found")
        await call.execute("fin")

    script = {"tool": calling("look"), "hand over": calling("to_b"), "by id": calling("by_id"), "rescue": ""}
    a = agent("A", branching(go=script.get(kind, "plain")), tools=[look, by_id, navigation("B", emit="handed")])
    b = agent("B", branching(go=calling("to_default")), tools=[triage()])
    read = []
    async with Swarm("shop", [a, b]).start() as live:
        session = await live.open("ann")
        for _ in range(turns):
            if kind == "triage":
                await session.change_to("B")
            elif kind == "hand over":
                await session.change_to_default()
            before = count[0]
            await session.complete("go")
            read.append(count[0] - before)
            for each in (a, b):
                each.model.asked.clear()
        assert len(session.messages) >= 2 * turns
    assert max(read[-50:]) == max(read[20:70]) < 30
