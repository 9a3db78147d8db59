"""What breaks into a turn at a bad moment: changes of the agent, cancellation, closing, errors that are no `Exception`.

Each was a turn that hung, a session that could not be used any more, or a value that a restart knew otherwise.
"""

import asyncio
import threading

import anyio
import pytest

from palaver.core.errors import ConflictError, StoreError, TurnError
from palaver.store.memory import MemoryStore
from palaver.store.sqlite import SQLiteStore
from palaver.swarm import Call, Policy, State, Swarm, navigation, tool, triage
from palaver.swarm.agent import Hooks
from palaver.swarm.extras.chats import Chats
from palaver.swarm.extras.entry import Scheduled
from palaver.swarm.names import KNOWN
from tests.swarm.scripts import PLACEHOLDER, agent, asked, at_work, branching, calling, echo, last, told
from tests.swarm.slow import Callers, Slow as SlowModel

pytestmark = pytest.mark.anyio


class Halting(SQLiteStore):
    """A store whose disk can be halted: writes wait until it goes on."""

    def __init__(self, path):
        super().__init__(path)
        self._reached, self._goes_on = threading.Event(), threading.Event()
        self._goes_on.set()

    def halt(self):
        self._reached.clear()
        self._goes_on.clear()

    async def reached(self):
        """Wait until a write waits."""
        assert await anyio.to_thread.run_sync(self._reached.wait, 60)

    def go_on(self):
        self._goes_on.set()

    def append(self, *arguments, **named):
        self._reached.set()
        assert self._goes_on.wait(60)
        return super().append(*arguments, **named)


class Gate:
    """A function of an application that waits until it is let through, and gives what it got, or nothing."""

    def __init__(self, *, silent=False):
        self._silent = silent
        self.reached, self.open = anyio.Event(), anyio.Event()

    async def __call__(self, *given):
        self.reached.set()
        await self.open.wait()
        return given[0] if not self._silent and isinstance(given[0], (str, list)) else None


class OnExecute(Hooks):
    def __init__(self, gate):
        self.on_execute = gate


def nothing() -> str:
    """Give nothing."""
    return "nothing"


# -- changes of the agent ----------------------------------------------------------------------------------------------


async def test_a_turn_that_begins_while_a_change_is_kept_has_an_answer(tmp_path):
    answers = []

    async def complete(session):
        answers.append(await session.complete("hi"))

    with Halting(tmp_path / "shop.db") as store:
        async with at_work(agent("A", echo), agent("B", echo), store=store, deadline=60) as it:
            store.halt()
            async with anyio.create_task_group() as group:
                group.start_soon(it.session.change_to, "B")
                await store.reached()
                group.start_soon(complete, it.session)
                await anyio.wait_all_tasks_blocked()
                store.go_on()
            assert answers == [""]
            assert await it.session.complete("again") == "echo:again"


@pytest.mark.parametrize("where", ["transform", "validate", "instructions", "on_execute", "map_calls"])
async def test_a_change_of_agent_while_no_model_is_asked_answers_the_turn(where):
    gate = Gate(silent=where == "validate")
    more = {"hooks": OnExecute(gate)} if where == "on_execute" else {where: gate}
    script = calling("nothing") if where == "map_calls" else "hello"
    a = agent("A", branching(hi=script), tools=[nothing], **more)
    async with at_work(a, agent("B", echo), deadline=120) as it, anyio.create_task_group() as group:

        async def say():
            with anyio.fail_after(60):
                assert await it.session.complete("hi") == ""

        group.start_soon(say)
        await gate.reached.wait()
        assert await it.session.change_to("B")
        gate.open.set()


async def test_a_change_that_is_cancelled_in_a_hook_leaves_no_turn_without_an_answer():
    model = SlowModel()

    async def never(*_):
        await anyio.sleep_forever()

    async with at_work(agent("A", model), agent("B", echo), deadline=120, on_agent_changed=never) as it:
        async with anyio.create_task_group() as group:
            callers = Callers(group)
            await callers.says(it.session.complete, "hi")
            with anyio.move_on_after(0.05):
                await it.session.change_to("B")
            assert await callers.settled() == [""]
        assert await it.session.complete("again") == "echo:again"


async def test_who_begins_while_the_agent_before_is_told_its_end_can_be_overtaken():
    gate, model = Gate(), SlowModel()

    class Leaving(Hooks):
        on_dispose = staticmethod(gate)

    agents = agent("A", echo, hooks=Leaving()), agent("B", model), agent("C", echo)
    async with at_work(*agents, deadline=120) as it:
        await it.session.complete("hi")
        async with anyio.create_task_group() as group:
            callers = Callers(group)
            await callers.says(it.session.change_to, "B")
            await callers.says(it.session.complete, "hi")
            assert model.began.is_set()
            gate.open.set()
            assert await callers.settled() == [True]
            await it.session.change_to("C")
            assert await callers.settled() == [True, ""]


# -- errors that are no `Exception`, or hardly one ---------------------------------------------------------------------


async def stray(*_):
    """What a task gets that waits for one that was cancelled."""
    other = asyncio.ensure_future(asyncio.sleep(10))
    await asyncio.sleep(0)
    other.cancel()
    await other


async def straying() -> str:
    """Wait for a task that was cancelled."""
    await stray()
    return ""


@tool(name="speaking")
async def stray_speaking(call: Call) -> None:
    """Wait for a task that was cancelled."""
    await stray()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("where", ["straying", "speaking", "on_execute", "transform", "instructions"])
async def test_a_cancelled_task_that_an_application_awaits_ends_no_swarm(where):
    """A stray cancellation of one client's code ended the tasks of all of them, and the block of the swarm."""
    more = {"hooks": OnExecute(stray)} if where == "on_execute" else {where: stray}
    if where in {"straying", "speaking"}:
        more = {"tools": [straying, stray_speaking]}
    a = agent("A", branching(go=calling(where) if "tools" in more else "hello"), **more)
    async with at_work(a, agent("B", echo), deadline=60) as it, it.live.session("bob") as other:
        if where == "straying":
            assert "cancelled" in await it.session.complete("go")
        elif where == "speaking":
            assert await it.session.complete("go") == PLACEHOLDER
        else:
            with pytest.raises(TurnError, match="cancelled"):
                await it.session.complete("go")
        for session in (it.session, other):
            await session.change_to("B")
            assert await session.complete("again") == "echo:again"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_listener_that_awaits_a_cancelled_task_stops_nobody(caplog):
    async with at_work(agent()) as it:
        await it.live.bus.listen(stray)
        assert await it.session.complete("hi") == "echo:hi"
        await anyio.sleep(0.02)
        before = len(it.seen)
        assert await it.session.complete("again") == "echo:again"
        assert await it.events("session", since=before) == ["session execute"]
    assert "a listener of the bus failed" in caplog.text


async def test_an_error_that_cannot_be_emitted_is_the_error_of_its_turn():
    class UnspeakableError(Exception):
        def __str__(self):
            raise ValueError("no words")

    async with at_work(agent("A", [UnspeakableError()]), deadline=120) as it:
        with anyio.fail_after(60), pytest.raises(ValueError, match="no words"):
            await it.session.complete("hi")
        assert await it.session.complete("again") == "answer:again"


# -- beginnings and ends -----------------------------------------------------------------------------------------------


async def test_a_session_whose_opening_is_cancelled_leaves_its_client_free():
    gate, closed = Gate(), []
    shop = Swarm("shop", [agent()], on_open=gate, on_close=closed.append)
    async with shop.start() as live:
        with anyio.move_on_after(0.02):
            async with live.session("ann"):
                pytest.fail("it was cancelled")
        assert (live.clients, len(closed)) == ((), 1)
        gate.open.set()
        async with live.session("ann") as session:
            assert await session.complete("hi") == "echo:hi"


async def test_a_swarm_that_cannot_start_leaves_nothing_running():
    class Broken(MemoryStore):
        def open(self, *_, **__):
            raise StoreError("no such disk")

    with anyio.fail_after(60), pytest.raises(StoreError, match="no such disk"):
        async with Swarm("shop", [agent()], policies=[Policy("polite")]).start(store=Broken()):
            pytest.fail("it has no store")


async def test_chats_that_are_cancelled_close_their_sessions():
    told = []
    async with Swarm("shop", [agent()]).start() as live:
        with anyio.CancelScope() as scope:
            async with Chats(live, on_close=told.append) as chats:
                for client in ("ann", "bob"):
                    await chats.complete(client, "hi")
                scope.cancel()
                await anyio.sleep_forever()
        assert (live.clients, told) == ((), ["ann", "bob"])


# -- whose call it is --------------------------------------------------------------------------------------------------


async def test_an_agent_that_is_handed_a_conversation_reads_what_it_lists_itself():
    """What an agent's own prompt reads was judged by the list of the agent whose tool had asked it."""
    cart = State("cart", ["pear"])

    async def prompt(place):
        return f"cart: {await place.session.state('cart').get()}"

    desk = agent("desk", branching(go=calling("to_sales")), tools=[navigation("sales", execute="a client")])
    sales = agent("sales", echo, instructions=prompt, states=[cart])
    async with at_work(desk, sales, states=[cart]) as it:
        assert await it.session.complete("go") == "echo:a client"
    assert asked(sales)[0][0] == "system\"cart: ['pear']\""


# -- what is kept ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_task_that_asyncio_cancels_while_a_store_writes_leaves_what_a_restart_finds(tmp_path):
    """A cancelled write was in the store, and not in memory, until the next restart."""
    cart = State("cart", [])

    async def begin_and_cancel(work):
        store.halt()
        task = asyncio.ensure_future(work)
        await store.reached()
        task.cancel()
        store.go_on()
        with pytest.raises(asyncio.CancelledError):
            await task

    with Halting(tmp_path / "shop.db") as store:
        how = {"store": store, "states": [cart]}
        async with at_work(agent("A"), agent("B"), **how) as it:
            await begin_and_cancel(it.session.state(cart).set(["pear"]))
            await begin_and_cancel(it.session.commit_user("hello"))
            await begin_and_cancel(it.session.change_to("B"))
            await anyio.sleep(0.2)
            assert [event.input["message"].text for event in await it.heard("history", "push")] == ["hello"]
            here = it.log, await it.session.state(cart).get(), it.session.agent
        async with at_work(agent("A"), agent("B"), **how) as it:
            assert (it.log, await it.session.state(cart).get(), it.session.agent) == here


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_change_of_agent_that_was_cancelled_before_it_began_can_be_made(tmp_path):
    with Halting(tmp_path / "shop.db") as store:
        async with at_work(agent("A"), agent("B"), store=store) as it, anyio.create_task_group() as group:
            store.halt()
            group.start_soon(it.session.commit_user, "hello")
            await store.reached()
            task = asyncio.ensure_future(it.session.change_to("B"))
            await anyio.wait_all_tasks_blocked()
            task.cancel()
            store.go_on()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await it.session.change_to("B")


async def test_two_swarms_of_a_realm_see_each_other_s_values(tmp_path):
    cart = State("cart", [], type=list[str])
    with SQLiteStore(tmp_path / "shop.db") as store:
        how = {"store": store, "realm": "shop", "states": [cart]}
        async with at_work(agent(), name="desk", **how) as desk, at_work(agent(), name="sales", **how) as sales:
            await desk.session.state(cart).set(["pear"])
            await sales.session.state(cart).set(lambda cart: [*cart, "fig"])
            assert await desk.session.state(cart).get() == ["pear", "fig"]


# -- ends in the middle of something -----------------------------------------------------------------------------------


@pytest.mark.parametrize("passes", [True, False])
@pytest.mark.parametrize(("how", "answer"), [("cancel", ""), ("emit", "one moment"), ("close", "")])
async def test_what_answers_a_turn_while_a_policy_is_asked_is_its_answer(how, answer, passes):
    gate = Gate()

    async def check(text, client):
        await gate(text)
        return passes

    shop = Swarm("shop", [agent()], policies=[Policy("slow", validate_input=check)])
    async with shop.start() as live, live.session("ann") as session, anyio.create_task_group() as group:
        callers = Callers(group)
        await callers.says(session.complete, "hi", run="one")
        await (session.emit(answer) if how == "emit" else getattr(session, how)())
        gate.open.set()
        assert await callers.settled() == [answer]
        if how == "close":
            assert session.messages == ()
        else:
            assert await session.complete("hi", run="one") == answer


async def test_a_session_that_closes_while_an_answer_is_emitted_returns_nothing():
    gate = Gate()

    class Telling(Hooks):
        on_output = staticmethod(gate)

    async with at_work(agent("A", echo, hooks=Telling())) as it, anyio.create_task_group() as group:
        callers = Callers(group)
        await callers.says(it.session.complete, "hi")
        await it.session.close()
        assert await callers.settled() == [""]


async def test_a_session_that_a_hook_closes_begins_no_tool():
    ran = []

    async def closing(place, call):
        await place.session.close()

    @tool(on_before_call=closing)
    async def buy(call: Call) -> None:
        """Buy something."""
        ran.append(call.id)

    async with at_work(agent("A", branching(go=calling("buy")), tools=[buy])) as it:
        assert await it.session.complete("go") == ""
        await anyio.wait_all_tasks_blocked()
    assert ran == []


async def test_what_has_not_begun_when_its_session_closes_does_not_go_on():
    went_on = []

    async def work():
        await anyio.sleep(0.01)
        went_on.append(True)

    async with at_work(agent()) as it:
        it.session.spawn(None, work)
        await it.session.close()
        it.session.spawn(None, work)
        await anyio.sleep(0.05)
    assert went_on == []


async def test_messages_that_wait_together_get_nothing_when_the_session_closes_before_their_turn():
    model = SlowModel()
    async with at_work(agent("A", model)) as it, anyio.create_task_group() as group:
        callers, scheduled = Callers(group), Scheduled(it.session)

        async def last_one():
            answer = await scheduled.complete("one")
            await it.session.close()
            return answer

        await callers.says(last_one)
        await callers.says(scheduled.complete, "two")
        await callers.says(scheduled.complete, "three")
        model.go.set()
        assert await callers.settled() == ["answer:one", "", ""]


async def test_turns_that_break_off_are_not_known_for_ever():
    async with at_work(agent("A", lambda _: 1 / 0)) as it:
        for number in range(KNOWN + 10):
            with pytest.raises(ZeroDivisionError):
                await it.session.complete("hi", run=f"turn {number}")
        known = [it.session.named.known(f"turn {number}") is None for number in range(KNOWN + 10)]
    assert known == [False] * 10 + [True] * KNOWN


async def nap(*_):
    await anyio.sleep(0.2)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_task_that_asyncio_cancels_while_its_session_closes_leaves_the_client_free():
    async with Swarm("shop", [agent()], on_close=nap).start() as live:

        async def visit():
            async with live.session("ann"):
                pass

        task = asyncio.ensure_future(visit())
        await anyio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with live.session("ann") as session:
            assert await session.complete("hi") == "echo:hi"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_task_that_asyncio_cancels_while_its_swarm_ends_leaves_nothing_running():
    before, callers = asyncio.all_tasks(), []

    async def work():
        async with Swarm("shop", [agent("A", SlowModel())], on_close=nap).start() as live:
            await live.bus.listen(nap)
            await live.open("ann")
            callers.append(asyncio.ensure_future((await live.open("bob")).complete("hi")))
            await anyio.sleep(0.02)

    task = asyncio.ensure_future(work())
    await anyio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await callers[0] == ""
    assert asyncio.all_tasks() == before


# -- the thread and who else writes to it ------------------------------------------------------------------------------


async def cancelled_at_the_gate(it, callers, model, gate, text):
    """Cancel a turn that waits at the gate, and let it go on while the next one waits for the model."""
    await callers.says(it.session.complete, text)
    assert await it.session.cancel()
    model.go = anyio.Event()
    await callers.says(it.session.complete, "next")
    gate.open.set()
    await anyio.wait_all_tasks_blocked()
    model.go.set()


async def test_a_rescue_whose_turn_was_cancelled_does_not_hide_the_next_turn():
    gate = Gate()

    class Resurrecting(Hooks):
        on_resurrect = staticmethod(gate)

    model = SlowModel(lambda prompt: "" if last(prompt).text == "bad" else echo(prompt))
    model.go.set()
    async with at_work(agent("A", model, hooks=Resurrecting())) as it, anyio.create_task_group() as group:
        callers = Callers(group)
        await cancelled_at_the_gate(it, callers, model, gate, "bad")
        assert await callers.settled() == ["", "echo:next"]
        await it.session.complete("third")
        assert told(model.asked[-1].messages)[-3:] == ['user/user"next"', 'assistant"echo:next"', 'user/user"third"']


async def test_a_client_that_another_process_served_meanwhile_is_read_anew(tmp_path):
    """A log that somebody still held was given again, and each of its appends met another head for ever."""
    shop = Swarm("shop", [agent()])
    with SQLiteStore(tmp_path / "shop.db") as store, SQLiteStore(tmp_path / "shop.db") as other:
        async with shop.start(store=store) as here, shop.start(store=other) as there:
            session = await here.open("ann")
            await session.complete("one")
            async with there.session("ann") as elsewhere:
                await elsewhere.complete("two")
            with pytest.raises(ConflictError):
                await session.complete("lost")
            await session.close()
            async with here.session("ann") as again:
                assert await again.complete("three") == "echo:three"
                assert again.user_history[-2].text == "two"


async def test_a_turn_whose_name_is_empty_has_that_name():
    async with at_work(agent()) as it:
        assert await it.session.complete("hi", run="") == "echo:hi"
        assert [message.metadata["turn"] for message in it.session.messages] == ["", ""]
        assert await it.session.complete("hi", run="") == "echo:hi"
        assert len(it.session.messages) == 2


# -- what is left of a cancelled turn, while the next one runs ---------------------------------------------------------


async def test_the_message_of_a_cancelled_turn_does_not_join_the_next_one():
    """It came behind the next message, which was then not the one that the model answered."""
    gate = Gate()

    class First(Hooks):
        async def on_execute(self, place, text, mode):
            if text == "one":
                await gate(text)

    model = SlowModel(lambda prompt: f"echo:{last(prompt).text}")
    async with at_work(agent("A", model, hooks=First())) as it, anyio.create_task_group() as group:
        callers = Callers(group)
        await callers.says(it.session.complete, "one")
        assert await it.session.cancel()
        await callers.says(it.session.complete, "two")
        gate.open.set()
        await anyio.wait_all_tasks_blocked()
        model.go.set()
        assert await callers.settled() == ["", "echo:two"]
        assert await it.session.complete("three") == "echo:three"
        assert it.log[:3] == ['user/user"two"', 'assistant"echo:two"', 'user/user"three"']


@pytest.mark.parametrize("how", ["cancel", "change"])
async def test_a_turn_that_is_cancelled_before_its_tools_begin_begins_none(how):
    gate, ran = Gate(), []

    @tool(on_before_call=gate)
    async def buy(call: Call) -> None:
        """Buy something."""
        ran.append(call.id)
        await call.emit("bought")

    a = agent("A", branching(go=calling("buy")), tools=[buy])
    async with at_work(a, agent("B"), deadline=120) as it, anyio.create_task_group() as group:
        callers = Callers(group)
        await callers.says(it.session.complete, "go")
        await (it.session.cancel() if how == "cancel" else it.session.change_to("B"))
        gate.open.set()
        assert await callers.settled() == [""]
        assert ran == []


@pytest.mark.parametrize("to", ["sales", "desk"])
async def test_a_hand_over_whose_turn_was_cancelled_leaves_the_next_turn_alone(to):
    gate, model = Gate(), SlowModel(branching(go=calling("over")))
    over = navigation("sales", name="over", before=gate) if to == "sales" else triage(name="over", before=gate)
    desk, sales = agent("desk", model, tools=[over]), agent("sales", model, tools=[over])
    async with at_work(desk, sales, default="desk") as it, anyio.create_task_group() as group:
        if to == "desk":
            await it.session.change_to("sales")
        model.go.set()
        callers = Callers(group)
        await cancelled_at_the_gate(it, callers, model, gate, "go")
        assert await callers.settled() == ["", "answer:next"]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_text_that_was_kept_is_given_when_asyncio_cancels_whoever_emitted_it(tmp_path):
    with Halting(tmp_path / "shop.db") as store:
        async with at_work(agent("A", SlowModel()), store=store) as it:
            asking = asyncio.ensure_future(it.session.complete("hi"))
            await anyio.wait_all_tasks_blocked()
            store.halt()
            emitting = asyncio.ensure_future(it.session.emit("one moment"))
            await store.reached()
            emitting.cancel()
            store.go_on()
            assert await asking == "one moment"
            assert it.log[-1] == 'assistant"one moment"'
