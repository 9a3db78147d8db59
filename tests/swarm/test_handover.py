"""Tools that hand over, commit an action, or fetch something: what they say, and when they go on (section 5.4)."""

from itertools import pairwise

import anyio
import pytest

import palaver as p
from palaver.core.errors import MessageError, TurnError
from palaver.swarm import Call, commit_action, fetch_info, navigation, tool, triage
from palaver.turn.tool_output import output_of
from tests.swarm.scripts import PLACEHOLDER, agent, answers, asked, at_work, branching, calling, last
from tests.swarm.slow import Callers

pytestmark = pytest.mark.anyio

FLUSHED = "Sorry, I missed that. Could you repeat please"
LEFT_A = "Successfully navigated from A to B. Please do not call the navigate tool to A during the next answer"
LEFT_B = "Successfully navigated from B to A. Please do not call the navigate tool to B during the next answer"


def named(name):
    """An agent that says its name, and what it was told."""
    return agent(name, lambda prompt: f"{name}:{last(prompt).text}")


async def later(value):
    await anyio.lowlevel.checkpoint()
    return value


# -- navigation --------------------------------------------------------------------------------------------------------


@pytest.mark.row("ASK-20")
def test_a_hand_over_is_a_tool_without_parameters():
    made = navigation("Sales desk")
    assert (made.name, made.kind, made.target) == ("to_sales_desk", "navigation", "Sales desk")
    assert dict(made.definition.parameters) == {"type": "object", "properties": {}}
    assert made.definition.description == "Hand the conversation over to Sales desk."
    other = navigation("Sales desk", name="sell", description="For those who buy.")
    assert (other.name, other.definition.description) == ("sell", "For those who buy.")
    assert (triage().name, triage().kind) == ("to_default", "navigation")


@pytest.mark.row("ASK-20")
@pytest.mark.parametrize("text", ["go on", lambda call: f"go on, {call.client}", lambda _: later("go on")])
async def test_navigation_says_its_texts(text):
    said = text if isinstance(text, str) else "go on, ann"
    a = agent("A", branching(hi=calling("to_b")), tools=[navigation("B", execute=text, tool_output="on your way")])
    async with at_work(a, named("B")) as it:
        answer = await it.session.complete("hi")
        assert answer in {f"B:{said}", "B:go on"}
        assert it.log[:3] == ['user/user"hi"', "assistant[to_b]", 'tool(re:to_b)"on your way"']
        assert it.log[3:] == [f'user/tool"{answer[2:]}"', f'assistant"{answer}"']


@pytest.mark.row("ASK-20")
async def test_navigation_with_a_text_to_emit_asks_no_model():
    b = named("B")
    a = agent("A", branching(hi=calling("to_b")), tools=[navigation("B", emit="one moment")])
    async with at_work(a, b) as it:
        assert await it.session.complete("hi") == "one moment"
        assert it.session.agent == "B"
        assert it.log == ['user/user"hi"', "assistant[to_b]", f'tool(re:to_b)"{LEFT_A}"', 'assistant"one moment"']
        assert it.session.messages[-1].agent == "B"
    assert not b.model.asked


@pytest.mark.row("ASK-20")
async def test_before_a_hand_over_the_old_agent_is_active_and_nothing_is_committed():
    seen = []

    async def before(call):
        seen.append((call.session.agent, len(call.session.messages)))

    a = agent("A", branching(hi=calling("to_b")), tools=[navigation("B", before=before)])
    async with at_work(a, named("B")) as it:
        assert await it.session.complete("hi") == "B:hi"
    assert seen == [("A", 2)]


@pytest.mark.row("ASK-20", "ASK-18")
@pytest.mark.parametrize("given", [{}, {"flush_message": "again?"}], ids=["default", "own text"])
async def test_navigation_to_where_it_was_flushes_everything(given):
    seen = []
    back = agent("B", lambda _: calling("to_a"), tools=[navigation("A")])
    forth = agent("A", lambda _: calling("to_b"), tools=[navigation("B", before=seen.append, **given)])
    async with at_work(forth, back) as it:
        await it.session.commit_developer("before")
        assert await it.session.complete("hi") == given.get("flush_message", FLUSHED)
        assert it.session.agent == "A"
        assert it.log[-3:] == ["assistant[to_b]", "flush", f'assistant"{given.get("flush_message", FLUSHED)}"']
        assert it.session.messages[-2] == p.flush(agent="A", mode="tool").replace(
            id=it.session.messages[-2].id, sent_at=it.session.messages[-2].sent_at
        )
        assert list(it.session.navigator.route) == ["B", "A"]
    assert len(seen) == 1


# -- triage ------------------------------------------------------------------------------------------------------------


@pytest.mark.row("ASK-20")
async def test_triage_tells_the_default_agent_the_client_s_last_message():
    b = agent("B", branching(**{"another thing": calling("to_default")}), tools=[triage()])
    async with at_work(named("A"), b) as it:
        await it.session.change_to("B")
        said = (
            "User changed conversation topic. The next message received: another thing. "
            "Continue conversation based on the last message without navigating to B."
        )
        assert await it.session.complete("another thing") == f"A:{said}"
        assert it.log == [
            'user/user"another thing"',
            "assistant[to_default]",
            f'tool(re:to_default)"{LEFT_B}"',
            f'user/tool"{said}"',
            f'assistant"A:{said}"',
        ]
        assert it.session.agent == "A"


@pytest.mark.row("ASK-20")
async def test_triage_says_its_own_texts():
    back = triage(
        name="back",
        before=lambda call: call.session.values.update(before=call.session.agent),
        last_message=lambda call: f"he said {call.session.last_user}",
        tool_output="gone",
    )
    b = agent("B", branching(hi=calling("back")), tools=[back])
    async with at_work(named("A"), b) as it:
        await it.session.change_to("B")
        assert await it.session.complete("hi") == "A:he said hi"
        assert it.log[2] == 'tool(re:back)"gone"'
        assert it.session.values == {"before": "B"}


@pytest.mark.row("ASK-20")
async def test_triage_on_the_default_agent_says_so_and_goes_on():
    a = agent("A", branching(hi=calling("to_default")), tools=[triage(execute="go on")])
    async with at_work(a, named("B")) as it:
        assert await it.session.complete("hi") == "answer:go on"
        assert it.log[2:] == [
            'tool(re:to_default)"Already on A. Please do not call the navigate tool to A during the next answer"',
            'user/tool"go on"',
            'assistant"answer:go on"',
        ]


@pytest.mark.row("ASK-20")
async def test_triage_on_the_default_agent_may_end_the_circle():
    a = agent("A", branching(hi=calling("to_default")), tools=[triage(flush_message="again?")])
    async with at_work(a, named("B")) as it:
        assert await it.session.complete("hi") == "again?"
        assert it.log == ['user/user"hi"', "assistant[to_default]", "flush", 'assistant"again?"']


@pytest.mark.row("ASK-20", "ASK-18")
@pytest.mark.parametrize(("given", "answer"), [({}, "answer:stay"), ({"flush_message": "again?"}, "again?")])
async def test_triage_to_where_the_turn_was_is_refused(given, answer):
    """B, the default agent, C, and back again: the default agent was visited in this turn."""
    a = agent("A", lambda _: calling("to_c"), tools=[navigation("C")])
    b = agent("B", branching(hi=calling("to_default")), tools=[triage()])
    c = agent("C", [calling("back")], tools=[triage(name="back", execute="stay", **given)])
    async with at_work(a, b, c) as it:
        await it.session.change_to("B")
        assert await it.session.complete("hi") == answer
        assert it.session.agent == "C"


# -- commit_action -----------------------------------------------------------------------------------------------------


def buying(function=None, **more):
    """An agent that buys when it is told to."""

    async def buy(item: str) -> str:
        """Buy something."""
        return f"bought {item}"

    more.setdefault("success", "thank him")
    made = commit_action(function or buy, name="buy", **more)
    return agent("A", branching(buy=given("buy", item="boots")), tools=[made])


def given(name, **arguments):
    """An answer that calls a tool with arguments."""
    return p.assistant(tool_calls=[p.tool_call(name, arguments, id=f"call-{name}")])


@pytest.mark.row("ASK-20")
def test_the_parameters_of_an_action_are_those_of_its_function():
    def buy(call: Call, item: str, count: int = 1) -> str:
        """Buy something."""
        return item

    for made, kind in ((commit_action(buy), "commit"), (fetch_info(buy), "plain")):
        assert (made.name, made.kind, made.definition.description) == ("buy", kind, "Buy something.")
        assert list(made.definition.parameters["properties"]) == ["item", "count"]
        assert list(made.definition.parameters["required"]) == ["item"]
    with pytest.raises(MessageError):
        commit_action(lambda *items: items, name="bad")


@pytest.mark.row("ASK-20")
async def test_aliastools_an_action_that_works_and_the_session_goes_on():
    async with at_work(buying()) as it:
        for _ in range(2):
            assert await it.session.complete("buy") == "answer:thank him"
        assert it.log[:5] == [
            'user/user"buy"',
            "assistant[buy]",
            'tool(re:buy)"bought boots"',
            'user/tool"thank him"',
            'assistant"answer:thank him"',
        ]
        assert not it.session.messages[2].is_error
        assert await it.session.complete("next") == "answer:next"


@pytest.mark.row("ASK-20")
@pytest.mark.parametrize(
    ("empty", "text"), [({}, "Action executed but produced no result"), ({"empty": "nothing"}, "nothing")]
)
@pytest.mark.parametrize("nothing", [None, ""])
async def test_an_action_that_gives_nothing(empty, text, nothing):
    def buy(item: str):
        return nothing if item else "a thing"

    async with at_work(buying(buy, **empty)) as it:
        assert await it.session.complete("buy") == "answer:thank him"
        assert it.log[2] == f'tool(re:buy)"{text}"'


@pytest.mark.row("ASK-20")
@pytest.mark.parametrize(("failure", "said"), [({}, "no money"), ({"failure": "say sorry"}, "say sorry")])
async def test_an_action_whose_arguments_are_wrong_is_not_done(failure, said):
    done = []

    def buy(item: str):
        done.append(item)

    async with at_work(buying(buy, validate=lambda _: "no money", **failure)) as it:
        assert await it.session.complete("buy") == f"answer:{said}"
        assert it.log[2] == 'tool(re:buy)"no money"'
        assert it.session.messages[2].is_error
    assert done == []


@pytest.mark.row("ASK-20")
async def test_the_check_of_an_action_sees_its_arguments():
    seen = []

    async def check(arguments):
        seen.append(arguments)

    async with at_work(buying(validate=check)) as it:
        assert await it.session.complete("buy") == "answer:thank him"
    assert seen == [{"item": "boots"}]


@pytest.mark.row("ASK-20")
@pytest.mark.parametrize(("failure", "said"), [({}, "sold out"), ({"failure": "say sorry"}, "say sorry")])
async def test_aliastools_an_action_that_raises(failure, said):
    told_of = []

    def broken(item: str):
        raise OSError("sold out")

    async def fallback(error, call):
        told_of.append((str(error), call.name))

    async with at_work(buying(broken, fallback=fallback, **failure)) as it:
        assert await it.session.complete("buy") == f"answer:{said}"
        assert it.log[2:4] == ['tool(re:buy)"sold out"', f'user/tool"{said}"']
        assert not any(line.startswith("rescue") for line in it.log)
    assert told_of == [("sold out", "buy")]


@pytest.mark.row("ASK-20")
@pytest.mark.parametrize("text", ["validate", "success", "empty", "fallback"])
async def test_aliastools_a_text_or_check_that_raises_is_a_rescue(text):
    def bang(*_):
        raise RuntimeError("bang")

    def broken(item: str):
        if text != "empty":
            raise OSError(item)

    function = broken if text in {"empty", "fallback"} else None
    async with at_work(buying(function, **{text: bang})) as it:
        assert await it.session.complete("buy") == PLACEHOLDER
        committed = [line for line in it.log if line.startswith("tool")]
        assert committed == (['tool(re:buy)"bought boots"'] if text == "success" else [])
        assert await it.session.complete("next") == "answer:next"


@pytest.mark.row("ASK-20")
async def test_an_action_goes_on_only_while_its_agent_is_active():
    """It changes the agent, and goes on by itself: neither a result nor the text for success is said."""

    async def hand_over(call: Call, item: str) -> str:
        await call.session.change_to("B")
        await call.execute("take over")
        return "done"

    async with at_work(buying(hand_over), named("B")) as it:
        assert await it.session.complete("buy") == "B:take over"
        await anyio.wait_all_tasks_blocked()
        assert it.log == ['user/user"buy"', "assistant[buy]", 'user/tool"take over"', 'assistant"B:take over"']


@pytest.mark.row("ASK-20", "ASK-08")
async def test_an_action_that_changes_the_agent_and_says_nothing_fails_its_turn():
    async def hand_over(call: Call, item: str) -> None:
        await call.session.change_to("B")

    async with at_work(buying(hand_over), named("B")) as it:
        with pytest.raises(TurnError, match="the tool 'buy' returned"):
            await it.session.complete("buy")
        assert await it.session.complete("next") == "B:next"


@pytest.mark.row("ASK-20", "ASK-07")
async def test_an_action_whose_agent_is_changed_from_outside_is_answered_with_nothing():
    begun, go = anyio.Event(), anyio.Event()

    async def slow(item: str) -> str:
        begun.set()
        await go.wait()
        return "done"

    async with at_work(buying(slow), named("B")) as it, anyio.create_task_group() as group:
        callers = Callers(group)
        await callers.says(it.session.complete, "buy")
        await begun.wait()
        assert await it.session.change_to("B")
        go.set()
        assert await callers.settled() == [""]
        assert it.log == ['user/user"buy"', "assistant[buy]"]
        assert await it.session.complete("next") == "B:next"


# -- fetch_info --------------------------------------------------------------------------------------------------------


def asking(function, limit=1, **given):
    """An agent that looks something up when it is told to, and tells what it found."""

    def answered(prompt):
        """An empty text is not sent, so that what stands last is the result."""
        said = last(prompt)
        return f"found {said.text}" if said.role == "tool" else given_call if said.text == "price" else answers(prompt)

    made = fetch_info(function, name="price", **given)
    given_call = calling("price") if limit == 1 else calling("price", "price", ids=["1", "2"])
    return agent("A", answered, tools=[made], max_tool_calls=limit)


@pytest.mark.row("ASK-20")
@pytest.mark.parametrize("found", ["119.00", {"price": 119}], ids=["text", "object"])
async def test_a_fetched_value_is_given_to_the_model_which_is_asked_again(found):
    async with at_work(asking(lambda: found)) as it:
        answer = await it.session.complete("price")
        assert it.session.messages[2].content == output_of(found).content
        assert it.log[1] == "assistant[price]"
        assert it.log[3:] == ['user/tool""', f'assistant"{answer}"']


@pytest.mark.row("ASK-20")
@pytest.mark.parametrize("how", [lambda: None, lambda: "", lambda: 1 / 0], ids=["none", "empty", "raises"])
@pytest.mark.parametrize(
    ("empty", "text"),
    [
        ({}, "The tool named price is not available. Do not ever call it again"),
        ({"empty": "unknown"}, "unknown"),
        ({"empty": lambda call: later(f"{call.name}: unknown")}, "price: unknown"),
    ],
)
async def test_aliastools_what_is_not_found_or_raises_is_said_so(how, empty, text):
    async with at_work(asking(how, **empty)) as it:
        assert await it.session.complete("price") == f"found {text}"
        assert it.log[2] == f'tool(re:price)"{text}"'
        assert not any(line.startswith("rescue") for line in it.log)
        errors = await it.heard("agent", "tool-error")
        assert [each.output["error"] for each in errors] in ([], ["ZeroDivisionError: division by zero"])


@pytest.mark.row("ASK-20")
async def test_aliastools_a_check_of_a_fetch():
    done = []
    async with at_work(asking(lambda: done.append(1), validate=lambda _: "not now")) as it:
        assert await it.session.complete("price") == "found not now"
        assert it.session.messages[2].is_error

    def bang(_):
        raise RuntimeError("bang")

    async with at_work(asking(lambda: done.append(1), validate=bang)) as it:
        assert await it.session.complete("price") == PLACEHOLDER
        assert await it.session.complete("next") == "answer:next"
    assert done == []


@pytest.mark.row("ASK-20")
async def test_of_several_fetches_the_last_alone_goes_on():
    a = asking(lambda: "119.00", limit=2)
    async with at_work(a) as it:
        assert await it.session.complete("price") == "found 119.00"
        assert it.log == [
            'user/user"price"',
            "assistant[price price]",
            'tool(re:price)"119.00"',
            'tool(re:price)"119.00"',
            'user/tool""',
            'assistant"found 119.00"',
        ]
    assert len(a.model.asked) == 2


# -- navbranch ---------------------------------------------------------------------------------------------------------


def branch(name, **to):
    """An agent that hands over by what is said, and else answers."""

    def script(prompt):
        said = next((m.text for m in reversed(prompt.messages) if m.role == "user" and m.mode == "user"), "")
        target = to.get(said)
        return calling(f"to_{target.lower()}") if target else f"{name}:{said}"

    return agent(name, script, tools=[navigation(each) for each in dict.fromkeys(to.values())])


@pytest.mark.row("ASK-18")
@pytest.mark.parametrize(("said", "by"), [("buy", "B"), ("return", "C"), ("hello", "A")])
async def test_navbranch_what_is_said_decides_who_answers(said, by):
    async with at_work(branch("A", buy="B", **{"return": "C"}), branch("B"), branch("C")) as it:
        assert await it.session.complete(said) == f"{by}:{said}"
        assert it.session.agent == by


@pytest.mark.row("ASK-18")
async def test_navbranch_chained_hops_of_one_turn():
    async with at_work(branch("A", deep="B"), branch("B", deep="C"), branch("C", deep="D"), branch("D")) as it:
        assert await it.session.complete("deep") == "D:deep"
        assert it.session.navigator.stack == ["B", "C", "D"]
        changes = [event.input["agentName"] for event in await it.heard("swarm", "set-agent-name")]
        assert changes == ["B", "C", "D"]


@pytest.mark.row("ASK-18")
async def test_navbranch_re_entry_with_the_next_message():
    async with at_work(branch("A", go="B"), branch("B", back="A")) as it:
        said = [(text, await it.session.complete(text), it.session.agent) for text in ("go", "back", "go", "back")]
    assert said == [("go", "B:go", "B"), ("back", "A:back", "A")] * 2


@pytest.mark.row("ASK-18")
async def test_navbranch_a_cascade_of_hand_overs_by_nested_executions():
    """Each tool hands over and executes, and waits for the end of the turn: all get the one answer."""
    got = []

    def onward(name, to):
        @tool(name="onward")
        async def run(call: Call) -> None:
            await call.commit("ok")
            await call.session.change_to(to)
            got.append((name, await call.execute(f"for {to}")))

        return run

    names = "ABCD"
    agents = [agent(name, lambda _: calling("onward"), tools=[onward(name, to)]) for name, to in pairwise(names)]
    async with at_work(*agents, agent("D", answers)) as it:
        assert await it.session.complete("go") == "answer:for D"
        await anyio.wait_all_tasks_blocked()
        ends = await it.events("execution")
        assert ends == ["execution commit-execution-begin"] * 4 + ["execution commit-execution-end"] * 4
    assert sorted(got) == [(name, "answer:for D") for name in "ABC"]


@pytest.mark.row("ASK-18")
@pytest.mark.parametrize("amount", [5, 500])
async def test_navbranch_a_tool_decides_the_way(amount):
    @tool
    async def route(call: Call, amount: int) -> None:
        await call.commit("ok")
        await call.session.change_to("B" if amount < 100 else "C")
        await call.execute(f"{amount}")

    async with at_work(
        agent("A", branching(go=given("route", amount=amount)), tools=[route]), named("B"), named("C")
    ) as it:
        assert await it.session.complete("go") == ("B:5" if amount == 5 else "C:500")


@pytest.mark.row("ASK-18")
async def test_navbranch_many_clients_at_once_each_their_own_way():
    agents = [branch("A", b="B", c="C"), branch("B"), branch("C")]
    got = {}
    async with at_work(*agents) as it:

        async def ask(number):
            async with it.live.session(f"client {number}") as session:
                got[number] = (await session.complete("abc"[number % 3]), session.agent)

        async with anyio.create_task_group() as group:
            for number in range(30):
                group.start_soon(ask, number)
    assert got == {number: (f"{who.upper()}:{who}", who.upper()) for number in range(30) for who in "abc"[number % 3]}


@pytest.mark.row("ASK-18")
@pytest.mark.parametrize(
    ("ring", "limit"), [("AB", 10), ("ABC", 12), ("A", 6)], ids=["ping-pong", "triangle", "to itself"]
)
async def test_a_ring_of_agents_ends_with_the_flush_message(ring, limit):
    agents = [
        agent(name, lambda _, to=to: calling(f"to_{to.lower()}"), tools=[navigation(to)])
        for name, to in zip(ring, ring[1:] + ring[0], strict=True)
    ]
    async with at_work(*agents) as it:
        assert await it.session.complete("go") == FLUSHED
        asked_for = sum(len(each.model.asked) for each in agents)
        assert asked_for == len(ring) + 1 <= limit
        assert it.session.agent == "A"
        assert it.log[-2] == "flush"
        assert await it.session.complete("again") == FLUSHED
    assert asked(agents[0])[asked_for - len(ring) + 1 :][0] == [
        'system"PA"',
        f'assistant"{FLUSHED}"',
        'user/user"again"',
    ]
