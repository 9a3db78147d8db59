"""What holds for every view: it is a function of the path, costs what is new, and goes to every wire."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st

import palaver as p
from palaver import wires
from palaver.testing import rules
from palaver.threads import AgentView, ModelView, PeopleView, Thread
from tests.folding import over
from tests.threads.logs import KEEPS, CountedPath, logs, path_of
from tests.wires.histories import histories

VIEWS: dict[str, Callable[[], Any]] = {
    **{f"agent, keep {keep}": lambda keep=keep: AgentView("a", keep=keep, prompt="P") for keep in KEEPS},
    **{f"model, keep {keep}": lambda keep=keep: ModelView(keep=keep) for keep in KEEPS},
    "people": PeopleView,
}
WINDOWS = ("agent, keep 15", "model, keep 15", "model, keep None", "people")
SOME = ("agent, keep 3", "agent, keep None", "model, keep 3", "model, keep None", "people")


@pytest.mark.row("ASK-03")
@given(log=logs(), cuts=st.sets(st.integers(0, 30)))
@over("name", VIEWS)
def test_fed_in_any_split_it_equals_fed_whole(name: str, log: Any, cuts: Any):
    view, thread = VIEWS[name](), Thread(clock=itertools.count().__next__)
    given_out: list[tuple[Any, list[p.Message]]] = []
    for start, end in itertools.pairwise([0, *sorted(cut for cut in cuts if 0 < cut < len(log)), len(log)]):
        thread.append(*log[start:end])
        given_out.append((found := view(thread.path()), list(found)))
        assert list(found) == list(VIEWS[name]()(thread.path()))
    assert all(list(view) == snapshot for view, snapshot in given_out), "a view changed under its holder"


@given(
    log=logs(), steps=st.lists(st.tuples(st.sampled_from(["append", "rewind", "fork"]), st.integers(0, 40)), max_size=8)
)
@over("name", VIEWS)
def test_after_any_rewind_or_fork_it_equals_a_fresh_one(name: str, log: Any, steps: Any):
    view, thread, branch = VIEWS[name](), Thread(), "main"
    thread.append(*log)
    snapshots: list[tuple[Any, list[p.Message]]] = []
    for number, (what, where) in enumerate(steps):
        path = thread.path(branch)
        place = path[where % len(path)].id if path else None
        match what:
            case "rewind":
                thread.rewind(place, branch=branch)
            case "fork":
                thread.fork(str(number), at=place)
                branch = str(number)
            case _:
                thread.append(*log[where % 7 : where % 7 + 3], branch=branch)
        snapshots.append((found := view(thread.path(branch)), list(found)))
        assert list(found) == list(VIEWS[name]()(thread.path(branch)))
    assert all(list(view) == snapshot for view, snapshot in snapshots), "a view changed under its holder"


class _CountedList(list[p.Message]):
    """A list that counts how many of its items are read."""

    reads = 0

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        self.reads += len(found) if isinstance(index, slice) else 1
        return found

    def __iter__(self) -> Any:
        self.reads += len(self)
        return super().__iter__()


@pytest.mark.row("ASK-30")
@pytest.mark.parametrize("name", WINDOWS)
def test_a_turn_costs_what_is_new_however_long_the_log(name: str):
    """Counted in entries read from the path, and in messages read from what the view remembers."""
    view, thread = VIEWS[name](), Thread()
    view(thread.path())
    held = _CountedList()
    setattr(view, "_shown" if name == "people" else "_visible", held)
    for turn in range(2_000):
        thread.append(p.user(f"q{turn}"), p.assistant(f"a{turn}"))
        path, held.reads = CountedPath(thread.path()), 0
        view(path)
        assert path.reads <= 3, "the last one that was read, and two new ones"
        assert held.reads <= 16, "the window, and the message that the turn began with"
    assert len(held) == 4_000


@pytest.mark.row("ASK-30")
@pytest.mark.parametrize("name", WINDOWS)
def test_asking_twice_reads_nothing_new(name: str):
    view, path = VIEWS[name](), path_of(*[p.user(str(number)) for number in range(100)])
    view(path)
    counted = CountedPath(path)
    assert list(view(counted)) == list(view(path))
    assert counted.reads == 1


@pytest.mark.row("ASK-30")
def test_what_hides_everything_is_forgotten():
    view, thread = AgentView("a"), Thread()
    for _ in range(100):
        thread.append(*[p.user("q")] * 10, p.flush())
        view(thread.path())
    assert view._visible == []


@st.composite
def logs_of_histories(draw: st.DrawFn) -> list[p.Message]:
    """A history, broken pairs and all, that two agents wrote."""
    odd = draw(histories())
    agents = draw(st.lists(st.sampled_from(["a", "b"]), min_size=len(odd), max_size=len(odd)))
    return [each.replace(agent=agent) for each, agent in zip(odd, agents, strict=True)]


@pytest.mark.row("ASK-02")
@pytest.mark.law(5)
@given(log=logs(10), odd=logs_of_histories())
@over("name", SOME)
def test_every_view_goes_to_every_wire(name: str, log: Any, odd: Any):
    """docs/spec/pains.md#17: one thread holds the messages of several agents, and each view of it is a body that is
    taken."""
    view = VIEWS[name]()(path_of(*log, *odd))
    request = p.Request(messages=tuple(view), model="some-model")
    bodies = {wire: wires.get(wire).encode_request(request).body for wire in wires.names()}
    assert {wire: rules.check_request(wire, body) for wire, body in bodies.items()} == {wire: [] for wire in bodies}
