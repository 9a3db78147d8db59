"""The agent machine: every pair is defined, it is pure, no row of events breaks a thread (law 7, KAI-11, KAI-12)."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from hypothesis import event as note_event, given, settings, strategies as st
from msgspec import structs

import palaver as p
from palaver.agent import machine as m, protocol
from palaver.agent.protocol import State
from palaver.core.pairs import client_calls
from palaver.turn.approvals import SOURCE, pending_record
from palaver.turn.calls import PlannedCall, result
from palaver.turn.limits import Limits
from tests.agent.wholeness import broken_pairs, refused, said
from tests.generated import examples

PHASES = ("idle", "prepare", "model", "review", "output", "plan", "approval", "tools", "done")
ANYWHERE = {protocol.Steered, protocol.Blocked, protocol.Interrupted, protocol.Crashed}
MEANT = {
    "idle": {protocol.Begun, protocol.Resumed},
    "prepare": {protocol.Prepared},
    "model": {protocol.Answered, protocol.ModelFailed},
    "review": {protocol.Reviewed},
    "output": {protocol.OutputRead, protocol.OutputRefused},
    "plan": {protocol.Planned},
    "approval": {protocol.Decided},
    "tools": {protocol.Ran},
    "done": set(),
}

# -- the table ---------------------------------------------------------------------------------------------------------


@pytest.mark.law(7)
@pytest.mark.row("KAI-11")
def test_every_event_is_defined_in_every_phase():
    assert set(m.TABLE) == {(phase, event) for phase in PHASES for event in protocol.EVENTS}
    assert len(protocol.EVENTS) == 15
    for (phase, event), does in m.TABLE.items():
        means_something = does is not m._nothing
        assert means_something == (event in MEANT[phase] or (event in ANYWHERE and phase != "done")), (phase, event)


@pytest.mark.row("KAI-11")
@pytest.mark.parametrize("phase", PHASES)
def test_what_means_nothing_changes_nothing(phase):
    state = State(phase=phase, message=p.assistant("hi"), results=(None,))
    for (at, event), does in m.TABLE.items():
        if at == phase and does is m._nothing:
            blank = event(*[_any(field) for field in event.__struct_fields__])
            assert m.step(state, blank) == (state, ())


def _any(field: str) -> Any:
    return {"message": p.assistant("late"), "calls": (), "index": 0, "error": ValueError("x")}.get(field, ())


# -- rows of events ----------------------------------------------------------------------------------------------------

IDS = st.sampled_from(["a", "b", "c"])
CALLS = st.builds(
    p.ToolCall, IDS, st.sampled_from(["look", "note", "nobody"]), st.sampled_from(['{"x": 1}', '{"x": 2}', "{}"])
)
PARTS = st.one_of(
    st.sampled_from(["text", " ", "Z"]).map(p.Text),
    st.just(p.Reasoning("hm")),
    CALLS,
    CALLS,
    st.just(p.MalformedToolCall('{"x": ', "cut off", "look", "m1")),
)
ANSWERS = st.builds(
    lambda parts, reason: p.AssistantMessage(content=tuple(parts), finish_reason=reason),
    st.lists(PARTS, max_size=4),
    st.sampled_from(["stop", "stop", "stop", "tool_calls", "length", "pause", "content_filter"]),
)
NOTES = st.lists(st.just(p.user("injected")), max_size=1).map(tuple)
SAID = st.lists(st.just(p.user("steered")), max_size=2).map(tuple)
JUMPS = st.sampled_from([None, None, None, None, "tools", "model", "end"])
LIMITS = st.builds(
    Limits,
    iterations=st.integers(1, 6),
    tokens=st.sampled_from([None, None, 30]),
    seconds=st.sampled_from([None, None, 40.0]),
    repeats=st.sampled_from(["answer", "run"]),
    continue_cut=st.booleans(),
)


class World:
    """Carries out commands as a driver would, without one."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.now = 0.0
        self.state = State(limits=draw(LIMITS), reads_output=draw(st.booleans()))
        self.todo: list[Any] = []
        self.messages: list[p.Message] = []
        self.asked = 0
        self.finishes: list[protocol.Finish] = []

    def feed(self, event: Any) -> None:
        before = copy.deepcopy(self.state)
        state, commands = m.step(self.state, event)
        assert self.state == before, "the state was changed in place"
        again = m.step(before, event)
        assert same(again[0], state), "not pure"
        assert len(again[1]) == len(commands)
        assert not (self.finishes and commands), "something follows the end"
        self.state = state
        for command in commands:
            if isinstance(command, protocol.Append):
                assert command.messages
                self.messages += command.messages
            elif isinstance(command, protocol.Finish):
                self.finishes.append(command)
            elif isinstance(command, protocol.Run):
                self.todo += [(command, call) for call in command.calls]
            elif not isinstance(command, protocol.Warn):
                self.asked += isinstance(command, protocol.CallModel)
                self.todo.append((command, None))

    def answer(self) -> Any:
        """What comes of one of the commands under way."""
        command, call = self.todo.pop(self.draw(st.integers(0, len(self.todo) - 1)))
        self.now += self.draw(st.integers(0, 5))
        draw = self.draw
        match command:
            case protocol.Prepare():
                return protocol.Prepared(draw(NOTES), draw(JUMPS))
            case protocol.CallModel():
                if draw(st.integers(0, 4)) == 0:
                    partial = draw(st.none() | ANSWERS)
                    return protocol.ModelFailed(ValueError("no"), self.now, partial, draw(st.booleans()))
                return protocol.Answered(draw(ANSWERS), self.now, draw(st.integers(0, 9)), 0.0, 3)
            case protocol.Review():
                return protocol.Reviewed(draw(NOTES), draw(JUMPS))
            case protocol.ReadOutput():
                return draw(st.sampled_from([protocol.OutputRead(1), protocol.OutputRefused("$.a: missing")]))
            case protocol.Plan(message, indexes):
                calls = client_calls(message)
                planned = tuple([self.planned(index, calls[index]) for index in indexes])
                asks = any(each.verdict == "ask" for each in planned)
                return protocol.Planned(planned, pending_record(planned) if asks else None)
            case protocol.Ask(calls):
                return protocol.Decided(tuple([self.decided(each) for each in calls]))
            case protocol.Run():
                records = draw(st.lists(st.just(p.system("", tags=("record",), source=SOURCE)), max_size=1))
                failed = draw(st.booleans())
                return protocol.Ran(call.index, result(call, "done", is_error=failed), tuple(records))
        raise AssertionError(command)

    def planned(self, index: int, call: p.ToolCall) -> PlannedCall:
        verdict = "invalid" if call.name == "nobody" else self.draw(st.sampled_from(["run", "run", "ask", "deny"]))
        return PlannedCall(index, call, call.name, "read" if call.name == "look" else "write", verdict, "because")

    def decided(self, call: PlannedCall) -> PlannedCall:
        to = self.draw(st.sampled_from(["run", "run", "answered", "invalid", "ask"]))
        return structs.replace(call, verdict=to) if call.verdict == "ask" else call


def same(one: State, other: State) -> bool:
    return one == other and pickle.loads(pickle.dumps(one)) == other


ODD = st.one_of(
    st.builds(protocol.Steered, SAID),
    st.builds(protocol.Steered, SAID),
    st.builds(protocol.Answered, ANSWERS, st.just(0.0)),
    st.builds(protocol.Prepared, NOTES, JUMPS),
    st.builds(protocol.Reviewed, NOTES),
    st.builds(protocol.OutputRead),
    st.builds(protocol.Begun, st.just(0.0), SAID),
    st.builds(protocol.Ran, st.integers(0, 5), st.just(p.tool("late", tool_call_id="a"))),
)
ENDS = st.one_of(
    st.builds(protocol.Interrupted, st.sampled_from(["cancelled", "timed_out"]), st.just(""), st.none() | ANSWERS),
    st.builds(protocol.Crashed, st.just(ValueError("hook")), st.none() | ANSWERS),
    st.builds(protocol.Blocked, st.just("no"), st.none() | ANSWERS),
)


def in_place(world: World, odd: Any) -> bool:
    """Whether an event of ``ODD`` would be an answer to a command that is under way."""
    if isinstance(odd, protocol.Ran):
        return odd.index in world.state.running
    return type(odd) in MEANT[world.state.phase]


@pytest.mark.law(7)
@pytest.mark.row("KAI-11")
@pytest.mark.row("KAI-12")
@pytest.mark.row("KAI-16")
@settings(max_examples=examples(150))
@given(st.data())
def test_whatever_happens_the_thread_is_whole(data):
    world = World(data.draw)
    world.feed(protocol.Begun(0.0, (p.user("go"),)))
    for _ in range(40):
        if world.finishes:
            break
        chance = data.draw(st.integers(0, 19))
        if chance == 0:
            world.feed(data.draw(ENDS))
        elif chance < 5:
            odd = data.draw(ODD)
            if not in_place(world, odd):
                world.feed(odd)
        elif world.todo:
            world.feed(world.answer())
    if not world.finishes:
        assert refused(world.messages) == {}  # as if it was killed here
        world.feed(protocol.Interrupted())
    note_event(world.state.outcome or "?")
    assert len(world.finishes) == 1
    assert world.state.phase == "done"
    assert world.state.outcome == world.finishes[0].outcome
    assert world.asked == world.state.iteration <= world.state.limits.iterations
    assert said(world.messages)[0].text == "go"
    assert refused(world.messages) == {}
    if world.state.outcome != "waiting":
        assert broken_pairs(world.messages) == []
    for odd in [data.draw(ODD), data.draw(ENDS)]:
        assert m.step(world.state, odd) == (world.state, ())


@pytest.mark.row("KAI-12")
@pytest.mark.parametrize("limit", [1, 3])
def test_no_answer_takes_more_calls_of_the_model_than_the_limit(limit):
    for turn in (
        protocol.Answered(p.assistant(p.ToolCall("a", "nobody", "{}")), 0.0),
        protocol.Answered(p.AssistantMessage(content=(p.Reasoning("hm"),)), 0.0),
        protocol.Answered(p.AssistantMessage(content=(p.Text("more"),), finish_reason="pause"), 0.0),
        protocol.ModelFailed(ValueError("no"), 0.0, p.assistant("par"), broke=True),
    ):
        state, commands = m.step(
            State(limits=Limits(iterations=limit, recoveries=99)), protocol.Begun(0.0, (p.user("x"),))
        )
        asked = 0
        while not any(isinstance(each, protocol.Finish) for each in commands):
            asked += any(isinstance(each, protocol.CallModel) for each in commands)
            event: Any = {
                "prepare": protocol.Prepared(),
                "model": turn,
                "review": protocol.Reviewed(),
            }.get(state.phase)
            if event is None:
                call = client_calls(turn.message)[0]
                event = protocol.Planned((PlannedCall(0, call, None, verdict="invalid"),))
            state, commands = m.step(state, event)
        assert asked == limit
