"""Approvals: docs/spec/deepagents-swift.md#8.1, DAS-25, and issue 5: decided days later, by another process."""

from __future__ import annotations

import json
import subprocess
import sys

import anyio
import anyio.lowlevel
import pytest
from msgspec import structs

import palaver as p
from palaver import wires
from palaver.agent.agent import Agent
from palaver.agent.functions import function_tool, schema_tool
from palaver.agent.subagents import subagents
from palaver.core.errors import MessageError, RunError
from palaver.models.scripted import ScriptedModel
from palaver.store.memory import MemoryStore
from palaver.store.sqlite import SQLiteStore
from palaver.threads.agent_view import for_agent
from palaver.threads.thread import Thread
from palaver.threads.view import RECORD, for_model, for_people
from palaver.turn.approvals import PENDING, Decision, DecisionError, answer, approve, decided_record, edit, reject
from palaver.turn.limits import Limits
from palaver.turn.notes import MAY_HAVE_RUN, NOT_RUN_UNDECIDED
from palaver.turn.open_calls import all_pending, pending
from palaver.turn.tool import CHOICES, Rule
from tests.agent.scripts import assert_valid, bodies, call, calls, noting

DECISIONS = {
    "approve": approve(),
    "edit": edit({"to": "bob", "amount": 2}),
    "reject": reject("too much"),
    "answer": answer("Bob has it already."),
}
TOLD = {
    "approve": ("sent 1 to ann", False),
    "edit": ("sent 2 to bob", False),
    "reject": (
        "The user rejected the send tool call. Reason: too much. Do not retry it unless the user asks for it.",
        False,
    ),
    "answer": ("Bob has it already.", False),
}


def asked_agent(ran, script=None, *, model=None, **how):
    model = model or ScriptedModel([calls(call(to="ann")), "done"] if script is None else script, then="done")
    return Agent(model, **{"tools": [noting(ran)], "policy": "ask", **how})


def results(run):
    return [message for message in run.messages if message.role == "tool"]


# -- the matrix ------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.row("DAS-25")
@pytest.mark.parametrize("way", ["handler", "async handler", "decisions"])
@pytest.mark.parametrize("allowed", [True, False])
@pytest.mark.parametrize("kind", CHOICES)
async def test_the_decision_matrix(anyio_backend, kind, allowed, way):
    ran = []
    choices = CHOICES if allowed else tuple(each for each in CHOICES if each != kind)
    agent = asked_agent(ran, policy={"send": Rule(judgement="ask", reason="it costs", choices=choices)})
    decisions = {"c1": DECISIONS[kind]}
    if way == "decisions":
        waits = await agent.run("go")
        assert (waits.outcome, ran) == ("waiting", [])
        assert [(each.tool, each.reason, each.choices) for each in waits.pending] == [("send", "it costs", choices)]
        if not allowed:
            with pytest.raises(MessageError, match=f"'{kind}' is not allowed for call 'c1' of 'send', but"):
                await agent.run(thread=waits.thread, decisions=decisions)
            assert pending(waits.thread) == waits.pending
            return
        run = await agent.run(thread=waits.thread, decisions=decisions)
    else:

        async def later(requests):
            await anyio.lowlevel.checkpoint()
            return decisions

        run = await agent.run("go", decide=later if way == "async handler" else lambda _: decisions)
    assert run.ok
    (result,) = results(run)
    if allowed:
        assert (result.text, result.is_error) == TOLD[kind]
        assert ran == {"approve": [("send", "ann", 1)], "edit": [("send", "bob", 2)]}.get(kind, [])
    else:
        assert result.is_error
        assert f"'{kind}' is not allowed here" in result.text
        assert ran == []
    assert result.metadata["approval"]["decision"] == kind
    assert_valid(run.path.messages)


@pytest.mark.anyio
@pytest.mark.row("DAS-25")
async def test_nobody_there_means_that_it_waits_and_nothing_runs(anyio_backend):
    ran = []
    run = await asked_agent(ran).run("go")
    assert (run.outcome, ran, run.ok) == ("waiting", [], False)
    assert run.pending == pending(run.thread)


def word(judgement):
    return judgement


def table(judgement):
    return {"send": judgement, "*": "deny"}


def rest(judgement):
    return {"*": judgement}


def ruled(judgement):
    return {"send": Rule(judgement=judgement)}


def function(judgement):
    return lambda _: judgement


def coroutine(judgement):
    async def judge(call):
        await anyio.lowlevel.checkpoint()
        return judgement

    return judge


@pytest.mark.anyio
@pytest.mark.row("DAS-25")
@pytest.mark.parametrize("form", [word, table, rest, ruled, function, coroutine])
@pytest.mark.parametrize("judgement", ["allow", "ask", "deny"])
@pytest.mark.parametrize("handler", [True, False])
async def test_a_policy_in_every_form(anyio_backend, form, judgement, handler):
    ran, asked = [], []

    def decide(requests):
        asked.extend(requests)
        return {each.call.id: approve() for each in requests}

    run = await asked_agent(ran, policy=form(judgement), decide=decide if handler else None).run("go")
    assert len(asked) == (judgement == "ask" and handler)
    assert len(ran) == (judgement == "allow" or (judgement == "ask" and handler))
    assert run.outcome == ("waiting" if judgement == "ask" and not handler else "completed")
    if judgement == "deny":
        assert [(each.text, each.is_error) for each in results(run)] == [
            ("The send tool may not be called here.", True)
        ]
    assert_valid(run.path.messages)


@pytest.mark.anyio
async def test_what_no_policy_can_mean_allows_nothing(anyio_backend):
    for policy in ("Allow", {"send": "yes"}, {"send": None}):
        with pytest.raises(MessageError, match="a policy returns allow, ask, deny, or a Rule; not"):
            asked_agent([], policy=policy)
    ran = []
    for policy in (lambda _: None, lambda _: "yes", lambda _: Rule(judgement="maybe")):
        run = await asked_agent(ran, policy=policy).run("go")
        assert run.outcome == "failed"
        assert isinstance(run.error, MessageError)
    assert ran == []


@pytest.mark.finding("F-12")
@pytest.mark.parametrize("named", [{"sned": "ask"}, {"*": "allow", "sned": "deny"}, {"send": "allow", "Send": "ask"}])
def test_a_policy_that_names_a_tool_which_is_not_there_is_refused(named):
    with pytest.raises(MessageError, match=r"policy: there is no tool '(sned|Send)'; there is: send"):
        asked_agent([], policy=named)
    with pytest.raises(MessageError, match="policy: there is no tool"):
        asked_agent([]).replace(policy=named)


@pytest.mark.finding("F-12")
def test_a_policy_may_name_the_tools_of_sub_agents():
    child = Agent(ScriptedModel(["k"]), name="child", tools=[noting([])])
    Agent(ScriptedModel(["k"]), middleware=[subagents([child])], policy={"send": "ask", "task": "allow"})


@pytest.mark.finding("F-12")
@pytest.mark.anyio
@pytest.mark.parametrize(("effect", "outcome"), [("read", "completed"), ("write", "waiting")])
async def test_a_tool_that_a_table_does_not_name_is_asked_for_unless_it_only_reads(anyio_backend, effect, outcome):
    ran = []
    tools = [noting(ran, effect=effect), noting([], name="other")]
    run = await asked_agent(ran, tools=tools, policy={"other": "deny"}).run("go")
    assert (run.outcome, bool(ran)) == (outcome, effect == "read")
    assert [each.reason for each in run.pending] == ["The policy does not name this tool."] * (effect == "write")


@pytest.mark.finding("F-12")
def test_other_names_that_nothing_goes_by_are_refused():
    with pytest.raises(MessageError, match="polling: there is no tool 'wiat'; there is: send"):
        asked_agent([], polling=["wiat"])
    with pytest.raises(MessageError, match="polling: 'send' is a string; expected a list of names"):
        asked_agent([], polling="send")
    child = Agent(ScriptedModel(["k"]), name="child")
    with pytest.raises(MessageError, match="about: there is no agent 'chidl'; there is: child"):
        subagents([child], about={"chidl": "digs"})
    with pytest.raises(MessageError, match="repairs: there is no parameter 'pth'; there is: path"):
        function_tool(lambda path: path, name="read", repairs=["pth"])
    schema = {"type": "object", "properties": {"path": {}}}
    with pytest.raises(MessageError, match="repairs: there is no parameter 'pth'; there is: path"):
        schema_tool("read", None, schema, lambda given: given, repairs=["pth"])


@pytest.mark.anyio
async def test_a_policy_denies_also_what_a_tool_wants_to_have_asked(anyio_backend):
    ran = []
    tool = structs.replace(noting(ran), rule=Rule(judgement="ask", choices=("answer",)))
    run = await asked_agent(ran, tools=[tool], policy="deny").run("go")
    assert (run.outcome, results(run)[0].is_error) == ("completed", True)
    run = await asked_agent(ran, tools=[tool], policy="allow").run("go")
    assert run.pending[0].choices == ("answer",)


# -- edits -----------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.row("DAS-25")
async def test_edited_arguments_are_checked_again(anyio_backend):
    ran = []
    for arguments in ({"to": 7}, {}, {"to": "x", "amount": "many"}):
        run = await asked_agent(ran, decide=lambda _, arguments=arguments: {"c1": edit(arguments)}).run("go")
        (result,) = results(run)
        assert run.ok
        assert result.is_error
        assert result.text.startswith("The edited arguments do not fit: ")
    assert ran == []


@pytest.mark.anyio
@pytest.mark.row("DAS-25")
async def test_an_edit_that_does_not_fit_is_refused_and_the_call_stays_pending(anyio_backend):
    ran = []
    agent = asked_agent(ran)
    waiting = await agent.run("go")
    with pytest.raises(p.MessageError, match="the edited arguments of call 'c1' do not fit 'send'"):
        await agent.run(previous=waiting, decisions={"c1": edit({"to": 7})})
    run = await agent.run(previous=waiting, decisions={"c1": edit({"to": "bob", "amount": 2})})
    assert (run.ok, ran) == (True, [("send", "bob", 2)])


@pytest.mark.anyio
@pytest.mark.row("DAS-25")
async def test_an_edit_is_recorded_and_the_call_of_the_model_stays_byte_for_byte(anyio_backend):
    written = '{ "to":"ann" ,"amount": 1 }'
    ran = []
    script = [p.assistant(p.ToolCall("c1", "send", written)), "done"]
    run = await asked_agent(ran, script, decide=lambda _: {"c1": edit({"to": "bob", "amount": 2})}).run("go")
    assert run.messages[1].tool_calls[0].arguments_json == written
    assert ran == [("send", "bob", 2)]
    assert results(run)[0].metadata["approval"] == {"decision": "edit", "arguments": {"to": "bob", "amount": 2}}
    records = [each.payload for each in run.messages if RECORD in each.tags]
    decided = {"decision": "edit", "text": "", "arguments": {"to": "bob", "amount": 2}}
    assert records[-1] == {"decided": {"c1": decided}, "handled": ["c1"]}


@pytest.mark.anyio
@pytest.mark.parametrize("place", ["memory", "store", "another process", "two loads"])
async def test_a_waiting_run_is_decided_once(anyio_backend, place):
    ran = []
    agent = asked_agent(ran, [calls(call(to="ann"), call(id="c2", to="ben"))])
    with MemoryStore() as store:
        waiting = await agent.run("go", thread=None if place == "memory" else store.open("t"))
        first = waiting
        if place == "another process":
            first = p.agent.Run.load(waiting.dump(), store)
        elif place == "two loads":
            waiting, first = [p.agent.Run.load(waiting.dump(), store) for _ in range(2)]
        half = await agent.run(previous=first, decisions={"c1": approve()})
        assert (half.outcome, ran) == ("waiting", [])
        size = len(waiting.thread.branches if place == "memory" else store.info("t").branches)
        again = [{"c1": approve(), "c2": approve()}, {"c1": reject()}, {"c2": approve()}]
        for decisions in again:
            with pytest.raises(DecisionError, match="call 'c1' was decided already, behind this run"):
                await agent.run(previous=waiting, decisions=decisions)
        with pytest.raises(DecisionError, match="'c1' was decided already"):
            await agent.replace(decide=lambda each: {one.call.id: approve() for one in each}).run(previous=waiting)
        done = await agent.run(previous=half, decisions={"c2": approve()})
        assert (done.outcome, ran) == ("completed", [("send", "ann", 1), ("send", "ben", 1)])
        with pytest.raises(DecisionError, match="'c1' was decided already"):
            await agent.run("and then", previous=waiting, decisions={"c1": approve(), "c2": approve()})
        assert len(waiting.thread.branches if place == "memory" else store.info("t").branches) == size
        other = await agent.run("never mind", previous=waiting)
        assert [each.text for each in results(other)] == [MAY_HAVE_RUN] * 2
        more = [await agent.run("on", previous=done) for _ in range(2)]
        assert [each.outcome for each in more] == ["completed"] * 2
        assert len(ran) == 2
        for run in (other, *more):
            assert_valid(run.path.messages)


@pytest.mark.anyio
async def test_a_waiting_run_that_a_prompt_closed_is_not_decided_any_more(anyio_backend):
    ran = []
    agent = asked_agent(ran)
    waiting = await agent.run("go")
    for _ in range(2):
        closed = await agent.run("never mind", previous=waiting)
        assert [each.text for each in results(closed)] == [NOT_RUN_UNDECIDED]
    with pytest.raises(DecisionError, match="call 'c1' was closed already, behind this run"):
        await agent.run(previous=waiting, decisions={"c1": approve()})
    waiting.thread.fork("again", at=waiting.leaf)
    again = await agent.run(thread=waiting.thread, branch="again", decisions={"c1": approve()})
    assert (again.outcome, len(ran)) == ("completed", 1)


# -- partly, wrongly, not at all -------------------------------------------------------------------------------------

TWO = [calls(call(to="ann"), call(id="c2", to="ben")), "done"]


@pytest.mark.anyio
async def test_a_batch_waits_until_all_of_it_is_decided_and_nothing_is_asked_twice(anyio_backend):
    ran = []
    agent = asked_agent(ran, TWO)
    first = await agent.run("go")
    assert [each.call.id for each in first.pending] == ["c1", "c2"]
    second = await agent.run(thread=first.thread, decisions={"c2": edit({"to": "eve"})})
    assert (second.outcome, ran) == ("waiting", [])
    assert [each.call.id for each in second.pending] == [each.call.id for each in pending(first.thread)] == ["c1"]
    third = await agent.run(thread=first.thread, decisions={"c1": approve()})
    assert (third.outcome, ran) == ("completed", [("send", "ann", 1), ("send", "eve", 1)])
    assert [each.tool_call_id for each in results(third)] == ["c1", "c2"]
    assert pending(first.thread) == ()
    assert_valid(third.path.messages)


@pytest.mark.anyio
async def test_what_needs_no_decision_waits_with_the_batch_and_runs_unasked(anyio_backend):
    ran = []
    agent = asked_agent(ran, [calls(call("free", to="ann"), call(id="c2", to="ben")), "done"])
    policy = {"send": "ask", "free": "allow"}
    agent = agent.replace(tools=[noting(ran), noting(ran, "free")], policy=policy)
    first = await agent.run("go")
    assert ([each.call.id for each in first.pending], ran) == (["c2"], [])
    done = await agent.run(thread=first.thread, decisions={"c2": approve()})
    assert (done.outcome, ran) == ("completed", [("free", "ann", 1), ("send", "ben", 1)])


@pytest.mark.anyio
async def test_going_on_without_a_decision_waits_again_and_writes_nothing(anyio_backend):
    agent = asked_agent([])
    first = await agent.run("go")
    again = await agent.run(thread=first.thread)
    assert (again.outcome, again.pending, again.messages) == ("waiting", first.pending, [])


@pytest.mark.anyio
async def test_the_next_batch_of_a_run_with_decisions_waits_in_a_record_too(anyio_backend):
    ran = []
    agent = asked_agent(ran, [calls(call(to="ann")), calls(call(id="c2", to="ben")), "done"])
    first = await agent.run("go")
    second = await agent.run(thread=first.thread, decisions={"c1": approve()})
    assert [each.call.id for each in second.pending] == ["c2"]
    assert pending(first.thread) == second.pending
    third = await agent.run(thread=first.thread, decisions={"c2": approve()})
    assert third.ok
    assert ran == [("send", "ann", 1), ("send", "ben", 1)]


@pytest.mark.anyio
async def test_a_decision_of_what_is_not_pending_is_refused_before_anything_is_written(anyio_backend):
    agent = asked_agent([], TWO)
    run = await agent.run("go")
    await agent.run(thread=run.thread, decisions={"c1": approve()})
    length = len(run.thread)
    for decisions in ({"c9": approve()}, {"c2": approve(), "c9": approve()}, {"c1": reject()}):
        with pytest.raises(MessageError, match="nothing is pending for call"):
            await agent.run(thread=run.thread, decisions=decisions)
    with pytest.raises(MessageError, match="nothing is pending for call 'c1'"):
        await agent.run("else", thread=run.thread, decisions={"c1": approve(), "c2": approve()})
    with pytest.raises(MessageError, match="nothing is pending"):
        await agent.run(thread=said("hi"), decisions={"c1": approve()})
    assert len(run.thread) == length


def said(text):
    thread = Thread()
    thread.append(p.user(text))
    return thread


@pytest.mark.anyio
async def test_a_new_prompt_closes_what_waits(anyio_backend):
    ran = []
    agent = asked_agent(ran, TWO)
    first = await agent.run("go")
    run = await agent.run("something else", thread=first.thread)
    assert (run.outcome, ran, pending(first.thread)) == ("completed", [], ())
    assert [(each.tool_call_id, each.is_error) for each in results(run)] == [("c1", True), ("c2", True)]
    assert all(each.text.startswith("Not run:") for each in results(run))
    assert_valid(run.path.messages)


@pytest.mark.anyio
@pytest.mark.parametrize("before", [{}, {"c2": approve()}])
async def test_a_prompt_beside_decisions_follows_the_results_and_closes_the_other_calls(anyio_backend, before):
    ran, asked = [], []

    def last(prompt):
        asked.append([(each.role, each.text) for each in prompt.messages])
        return "done"

    asking = calls(*[call(id=f"c{n}", to=name) for n, name in enumerate(("ann", "ben", "cid"), 1)])
    agent = asked_agent(ran, model=ScriptedModel([asking], then=last))
    first = await agent.run("go")
    await agent.run(thread=first.thread, decisions=before)
    handled = agent.replace(decide=lambda _: 1 / 0)  # who writes on is not asked
    run = await handled.run("and now?", thread=first.thread, decisions={"c1": approve()})
    assert (run.outcome, pending(first.thread)) == ("completed", ())
    assert ran == [("send", "ann", 1), *([("send", "ben", 1)] if before else [])]
    not_run = ("tool", NOT_RUN_UNDECIDED)
    second = ("tool", "sent 1 to ben") if before else not_run
    told = [("user", "go"), ("assistant", ""), ("tool", "sent 1 to ann"), second, not_run, ("user", "and now?")]
    assert asked == [told]
    assert_valid(run.path.messages)
    assert (await agent.run("more", thread=first.thread)).ok


@pytest.mark.anyio
@pytest.mark.parametrize("then", ["a prompt", "a decision", "nothing"])
async def test_a_process_that_dies_behind_decisions_and_a_prompt_has_decided_all_calls(anyio_backend, then):
    ran, left, store = [], Thread(), MemoryStore()

    async def send(to: str) -> str:
        """Send."""
        left.append(*[each.message for each in store.open("t").path()])  # what a process that dies now leaves
        ran.append(to)
        return "sent"

    agent = asked_agent(ran, TWO, tools=[send])
    await agent.run("go", thread=store.open("t"))
    await agent.run("more", thread=store.open("t"), decisions={"c1": approve()})
    assert (ran, pending(left)) == (["ann"], ())
    if then == "a prompt":
        run = await agent.run("more", thread=left)
        assert [each.text for each in results(run)] == [MAY_HAVE_RUN, MAY_HAVE_RUN]
    elif then == "a decision":
        with pytest.raises(MessageError, match="nothing is pending for call 'c2'"):
            await agent.run(thread=left, decisions={"c2": approve()})
    else:
        run = await agent.run(thread=left)
        assert [(each.call.id, each.reason) for each in run.pending] == [("c1", MAY_HAVE_RUN), ("c2", "")]
        assert pending(left) == run.pending
    assert ran == ["ann"]


@pytest.mark.anyio
async def test_what_may_have_run_is_asked_again_and_what_was_rejected_is_not(anyio_backend):
    ran = []
    agent = asked_agent(ran, TWO, decide=lambda _: {"c1": approve(), "c2": reject()})
    whole = await agent.run("go")
    cut = Thread()
    cut.add([entry for entry in whole.path if entry.message.role != "tool" and entry.message.text != "done"])
    cut.rewind(cut.leaves[-1])
    ran.clear()
    agent = agent.replace(decide=None, model=ScriptedModel(["done"]))
    run = await agent.run(thread=cut)
    assert [(each.call.id, each.reason) for each in run.pending] == [("c1", MAY_HAVE_RUN)]
    assert ran == []
    done = await agent.run(thread=cut, decisions={"c1": approve()})
    assert (done.outcome, ran) == ("completed", [("send", "ann", 1)])
    assert [each.text[:17] for each in results(done)] == ["sent 1 to ann", "The user rejected"]


@pytest.mark.anyio
async def test_a_decision_that_was_not_allowed_stays_so_after_a_crash(anyio_backend):
    ran = []
    rule = {"send": Rule(judgement="ask", choices=("reject",))}
    whole = await asked_agent(ran, policy=rule, decide=lambda _: {"c1": approve()}).run("go")
    cut = Thread()
    cut.add(whole.path[:4], {"main": whole.path[3].id})
    assert RECORD in whole.path[3].message.tags
    run = await asked_agent(ran, ["done"], policy=rule).run(thread=cut)
    assert (run.outcome, results(run)[0].is_error, ran) == ("completed", True, [])


# -- handlers --------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize("how", ["raises", "another call", "no mapping", "no decision"])
async def test_a_handler_that_fails_leaves_its_calls_pending(anyio_backend, how):
    ran = []

    async def broken(requests):
        raise ValueError("no screen")

    given = {"another call": {"c9": approve()}, "no mapping": None, "no decision": {"c1": True}}
    decide = broken if how == "raises" else lambda _: given[how]
    agent = asked_agent(ran, decide=decide)
    run = await agent.run("go")
    assert (run.outcome, ran, results(run)) == ("waiting", [], [])
    assert [each.call.id for each in run.pending] == ["c1"]
    assert run.reason == f"decide: {run.error}"
    assert isinstance(run.error, ValueError if how == "raises" else MessageError)
    with pytest.raises(RunError, match="waiting: decide: "):
        run.check()
    again = await agent.run(previous=run, decisions={"c1": approve()})
    assert (again.outcome, len(ran)) == ("completed", 1)
    assert_valid(again.path.messages)


@pytest.mark.anyio
async def test_a_handler_that_decides_nothing_leaves_it_waiting(anyio_backend):
    run = await asked_agent([], decide=lambda _: {}).run("go")
    assert (run.outcome, len(run.pending)) == ("waiting", 1)


@pytest.mark.anyio
@pytest.mark.parametrize("how", ["cancel", "limit"])
async def test_a_handler_that_is_cancelled_leaves_a_whole_thread(anyio_backend, how):
    ran = []
    entered = anyio.Event()

    async def never(requests):
        entered.set()
        await anyio.sleep_forever()

    agent = asked_agent(ran, decide=never, limits=Limits(seconds=0.05 if how == "limit" else None))
    async with agent.stream("go") as running:
        if how == "cancel":
            async with anyio.create_task_group() as group:
                group.start_soon(running.wait)
                await entered.wait()
                running.cancel("enough")
        run = await running.wait()
    assert run.outcome == ("cancelled" if how == "cancel" else "timed_out")
    assert (ran, results(run)[0].is_error) == ([], True)
    assert_valid(run.path.messages)


# -- records are for nobody ------------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.row("DAS-25")
async def test_records_are_shown_by_no_view_and_sent_on_no_wire(anyio_backend):
    agent = asked_agent([], TWO)
    first = await agent.run("go")
    await agent.run(thread=first.thread, decisions={"c1": edit({"to": "secret"})})
    run = await agent.run(thread=first.thread, decisions={"c2": reject("secret")})
    path = run.path
    records = [entry.message for entry in path if RECORD in entry.message.tags]
    assert [PENDING in each.tags for each in records] == [True, False, False]
    for view in (for_model, for_people, lambda path: for_agent(path, "agent")):
        assert not [each for each in view(path) if RECORD in each.tags]
    assert not [each for prompt in agent.model.asked for each in prompt.messages if RECORD in each.tags]
    without = [each for each in path.messages if RECORD not in each.tags]
    clean = {name: (bytes(body), [each.what for each in losses]) for name, body, losses in bodies(without)}
    raw = {name: (bytes(body), [each.what for each in losses]) for name, body, losses in bodies(path.messages)}
    assert raw == clean
    assert len(raw) == len(wires.names()) == 7


# -- days later, in another process ----------------------------------------------------------------------------------

DAYS_LATER = """
import sys
import anyio
import anyio.lowlevel
from palaver.agent.agent import Agent
from palaver.turn.approvals import (approve, edit)
from palaver.turn.open_calls import (all_pending, pending)
from palaver.models.scripted import ScriptedModel
from palaver.store.sqlite import SQLiteStore
sys.path.insert(0, {root!r})
from tests.agent.scripts import noting

ran = []
with SQLiteStore({path!r}) as store:
    (found,) = all_pending(store)
    thread = store.open(found.thread, found.branch)
    assert pending(thread) == found.requests
    agent = Agent(ScriptedModel(["done"]), tools=[noting(ran)], policy="ask")
    run = anyio.run(lambda: agent.run(
        thread=thread, decisions={{"c1": approve(), "c2": edit({{"to": "eve"}})}}), backend={backend!r})
    assert all_pending(store) == ()
print(run.outcome, ran)
"""


@pytest.mark.anyio
@pytest.mark.share(2)
async def test_another_process_decides_days_later(anyio_backend, tmp_path, request):
    path = tmp_path / "threads.db"
    monday = 1_700_000_000_000
    with SQLiteStore(str(path), clock=lambda: monday) as store:
        run = await asked_agent([], TWO).run("go", thread=store.open("trip"))
        assert run.outcome == "waiting"
    program = DAYS_LATER.format(root=str(request.config.rootpath), path=str(path), backend=anyio_backend)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)  # noqa: ASYNC221
    assert done.stderr == ""
    assert done.stdout == "completed [('send', 'ann', 1), ('send', 'eve', 1)]\n"
    with SQLiteStore(str(path)) as store:
        messages = [entry.message for entry in store.open("trip").path()]
    assert_valid(messages)
    assert len({each.id for each in messages}) == len(messages) == 7
    assert [each.sent_at == monday for each in messages] == [True] * 3 + [False] * 4


@pytest.mark.anyio
@pytest.mark.parametrize("make", [lambda _: MemoryStore(), lambda path: SQLiteStore(str(path / "s.db"))])
async def test_a_store_is_asked_what_waits(anyio_backend, tmp_path, make):
    many = calls(*[call(id=f"c{number}", to="ann") for number in range(40)])
    with make(tmp_path) as store:
        for name, script in (("one", None), ("two", TWO), ("done", None), ("closed", None), ("many", [many])):
            agent = asked_agent([], script)
            run = await agent.run("go", thread=store.open(name))
            if name == "done":
                await agent.run(thread=store.open(name), decisions={"c1": approve()})
            if name == "closed":
                await agent.run("never mind", thread=store.open(name))
            if name == "many":
                for each in run.pending[:35]:
                    await agent.run(thread=store.open(name), decisions={each.call.id: approve()})
        fork = store.open("two").fork("other")
        found = {(each.thread, each.branch): len(each.requests) for each in all_pending(store)}
        assert found == {("one", "main"): 1, ("two", "main"): 2, ("two", "other"): 2, ("many", "main"): 5}
        assert len(pending(fork)) == 2
        assert all_pending(store, since=2**50) == ()
        assert len(all_pending(store, limit=1)) == 1


def test_a_decision_is_a_value():
    assert approve() == Decision(kind="approve")
    assert json.dumps(dict(edit({"a": 1}).arguments)) == '{"a": 1}'


# -- what cannot be decided ------------------------------------------------------------------------------------------


@pytest.mark.finding("S-20")
@pytest.mark.parametrize("choices", [("aprove", "reject"), "approve", (), ("approve", 5)])
def test_a_rule_refuses_choices_that_nobody_can_make(choices):
    with pytest.raises(MessageError, match="choices"):
        Rule(judgement="ask", choices=choices)


@pytest.mark.finding("S-20")
@pytest.mark.parametrize(
    "decide",
    [
        lambda: Decision(kind="approv"),
        lambda: edit({"x": float("nan")}),
        lambda: edit({"x": object()}),
        lambda: edit({1: 2}),
        lambda: edit("nojson"),
        lambda: edit([("x", 1)]),
        lambda: Decision(kind="edit", arguments={"x": float("inf")}),
        lambda: reject(5),
        lambda: answer(None),
        lambda: answer(["a"]),
    ],
)
def test_what_is_no_decision_is_refused_where_it_is_made(decide):
    with pytest.raises(MessageError):
        decide()


@pytest.mark.parametrize(
    ("kind", "prompt", "told"),
    [
        (None, None, None),
        ("approve", None, None),
        ("edit", None, None),
        ("approve", "and now?", None),
        ("reject", None, TOLD["reject"][0]),
        ("answer", None, TOLD["answer"][0]),
        (None, "and now?", NOT_RUN_UNDECIDED),
    ],
)
def test_a_call_whose_tool_is_missing_still_waits(kind, prompt, told):
    waits = asked_agent([]).sync.run("go")
    without = Agent(ScriptedModel(["done"]))
    decisions = {} if kind is None else {"c1": DECISIONS[kind]}
    if told is None:
        with pytest.raises(MessageError, match="call 'c1' waits for 'send', which is not among them"):
            without.sync.run(prompt, thread=waits.thread, decisions=decisions)
        assert pending(waits.thread) == waits.pending
    else:
        run = without.sync.run(prompt, thread=waits.thread, decisions=decisions)
        assert [each.text for each in results(run)] == [told]


def test_a_decision_that_was_recorded_needs_the_tool_too():
    """The process died between the decision and the call."""
    waits = asked_agent([]).sync.run("go")
    waits.thread.append(decided_record({"c1": approve()}))
    with pytest.raises(MessageError, match="waits for 'send'"):
        Agent(ScriptedModel(["done"])).sync.run(thread=waits.thread)
