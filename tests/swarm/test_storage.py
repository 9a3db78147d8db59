"""Storage: items kept whole, found by likeness, in order."""

import sqlite3
from contextlib import closing

import anyio
import hypothesis.strategies as st
import pytest
from hypothesis import given
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec import Struct

from palaver.core.errors import SwarmError, UnavailableError
from palaver.swarm.extras.storage import LiveStorage, Storage, cosine
from palaver.swarm.log import Log, Records
from palaver.threads.thread import Thread

pytestmark = pytest.mark.anyio


class Note(Struct):
    id: int
    text: str


class Embedding:
    """Numbers as vectors; `bad` texts fail, and everything asked is remembered."""

    def __init__(self):
        self.asked, self.bad = [], set()

    async def __call__(self, text):
        self.asked.append(text)
        await anyio.lowlevel.checkpoint()
        if text in self.bad:
            raise ConnectionError(text)
        return [float(text)]


def near(one, other):
    return 1 - abs(one[0] - other[0]) / 10


@pytest.fixture
def embed():
    return Embedding()


def numbers(embed, **more):
    return Storage("numbers", embed=embed, index=lambda item: str(item["id"]), similarity=near, **more)


async def filled(storage, values, publish, upto=7):
    cell = LiveStorage(storage, values, "ann", publish)
    for number in range(1, upto + 1):
        await cell.upsert({"id": number})
    return cell


def ids(items):
    return [item["id"] for item in items]


@pytest.mark.row("ASK-25")
async def test_s19(values, events, embed):
    cell = await filled(numbers(embed), values, events.append)
    assert ids(await cell.take("1")) == [1, 2, 3, 4]
    assert ids(await cell.take("1", score=0.8)) == [1, 2, 3]
    assert ids(await cell.take("4", total=2, score=0)) == [4, 3]
    assert [event.type for event in events] == ["upsert"] * 7 + ["take"] * 3
    assert events[-1].input == {"search": "4", "total": 2, "score": 0}
    assert events[-1].output == {"indexed": [{"id": "4", "score": 1.0}, {"id": "3", "score": 0.9}]}
    await cell.list()
    assert len(events) == 10
    assert ids(await cell.list(lambda item: item["id"] > 5)) == [6, 7]
    assert (events[-1].type, events[-1].output) == ("list", {"result": [{"id": 6}, {"id": 7}]})


async def test_each_operation_is_one_event(values, events, embed):
    cell = LiveStorage(numbers(embed, shared=True), values, "ann", events.append)
    await cell.upsert({"id": 1})
    assert await cell.get(1) == await cell.get("1") == {"id": 1}
    await cell.remove(1)
    assert await cell.get(1) is None
    await cell.clear()
    assert [(event.type, event.input, event.output) for event in events] == [
        ("upsert", {"item": {"id": 1}}, {}),
        ("get", {"item_id": 1}, {"result": {"id": 1}}),
        ("get", {"item_id": "1"}, {"result": {"id": 1}}),
        ("remove", {"item_id": 1}, {}),
        ("get", {"item_id": 1}, {"result": None}),
        ("clear", {}, {}),
    ]
    assert {(event.source, event.client, event.name) for event in events} == {("storage", "shared", "numbers")}


async def test_items_are_there_after_a_restart_and_are_found(place, events, embed):
    cell = await filled(numbers(embed), await place.open(), events.append, 3)
    await cell.upsert({"id": 2, "text": "again"})
    await cell.remove(1)
    cell = LiveStorage(numbers(embed), await place.open(), "ann", events.append)
    assert await cell.list() == ({"id": 2, "text": "again"}, {"id": 3})
    assert ids(await cell.take("3")) == [3, 2]
    await cell.clear()
    cell = LiveStorage(numbers(embed), await place.open(), "ann", events.append)
    assert await cell.list() == await cell.take("3") == ()
    await cell.upsert({"id": 4})
    assert ids(await LiveStorage(numbers(embed), await place.open(), "ann", events.append).list()) == [4]


async def test_two_processes_share_a_storage(shared, events, embed):
    one, other = [LiveStorage(numbers(embed, shared=True), await shared.open(), "", events.append) for _ in "12"]
    await one.upsert({"id": 1})
    assert ids(await other.take("1")) == [1]
    await other.upsert({"id": 1, "text": "changed"})
    await other.upsert({"id": 2})
    assert await one.take("2") == ({"id": 2}, {"id": 1, "text": "changed"})
    assert await one.numeric_index() == 3
    await other.clear()
    assert await one.list() == await one.take("1") == ()


@pytest.mark.row("ASK-25")
async def test_the_numeric_index_is_one_more_than_the_largest(values, events, embed):
    cell = LiveStorage(Storage("notes", index=lambda item: item["id"]), values, "ann", events.append)
    assert await cell.numeric_index() == 1
    for item_id in ("1", "2", "7", "x9", "-12", "3.5", "²", "9" * 30):
        await cell.upsert({"id": item_id})
    assert await cell.numeric_index() == 8
    await cell.remove("1")
    await cell.remove("2")
    assert await cell.numeric_index() == 8
    await cell.remove("7")
    assert await cell.numeric_index() == 1
    assert {event.type for event in events} == {"upsert", "remove"}


@pytest.mark.row("ASK-25")
async def test_an_upsert_that_fails_leaves_nothing_and_the_next_ones_happen(values, events, embed):
    def index(item):
        return {1: "1", 2: 7, 3: {"a": None}}.get(item["id"]) or str(1 // (item["id"] - 4))

    cell = LiveStorage(
        Storage("numbers", embed=embed, index=index, similarity=near, type=dict[str, int]),
        values, "ann", events.append,
    )  # fmt: skip
    refused = {}

    async def upsert(item):
        try:
            await cell.upsert(item)
        except (SwarmError, ZeroDivisionError, KeyError, AttributeError) as error:
            refused[str(item)] = type(error).__name__

    bad = [{"id": 2}, {"id": 3}, {"id": 4}, {"id": "one"}, {"no": 1}, {"id": 1.5}, {"id": object()}, 5]
    async with anyio.create_task_group() as group:
        for item in [{"id": 1}, *bad, {"id": 5}]:
            group.start_soon(upsert, item)
    assert len(refused) == len(bad)
    assert sorted(ids(await cell.list())) == [1, 5]
    assert len(events) == 2
    assert set(embed.asked) == {"1"}


@pytest.mark.row("ASK-25")
async def test_a_store_that_fails_leaves_nothing(disk, events, embed):
    cell = await filled(numbers(embed), await disk.open(), events.append, 1)
    with closing(sqlite3.connect(disk.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")  # now nobody can write
        for operation in (cell.upsert({"id": 2}), cell.remove(1), cell.clear(), cell.upsert({"id": 1, "a": 1})):
            with pytest.raises(UnavailableError):
                await operation
        assert await cell.list() == await cell.take("1", score=0) == ({"id": 1},)
    await cell.upsert({"id": 2})
    assert ids(await cell.list()) == [1, 2]
    assert len(events) == 3


async def test_an_embedding_that_fails_keeps_the_item_and_is_tried_again(values, events, embed):
    embed.bad = {"2"}
    cell = await filled(numbers(embed), values, events.append, 3)
    assert ids(await cell.list()) == [1, 2, 3]
    assert ids(await cell.take("1")) == [1, 3]
    assert events[-1].output["left_out"] == ["2"]
    embed.bad = set()
    assert ids(await cell.take("1")) == [1, 2, 3]
    assert "left_out" not in events[-1].output
    asked = len(embed.asked)
    await cell.take("1")
    assert embed.asked[asked:] == ["1"]


async def test_what_cannot_be_searched_rejects_the_search_alone(values, events, embed):
    cell = await filled(numbers(embed), values, events.append, 2)
    embed.bad = {"9"}
    with pytest.raises(ConnectionError):
        await cell.take("9")
    broken = LiveStorage(numbers(embed, score=0), values, "ann", events.append)
    object.__setattr__(broken._storage, "similarity", lambda one, _: one[0] // 0)
    with pytest.raises(ZeroDivisionError):
        await broken.take("1")
    assert ids(await cell.take("1")) == [1, 2]
    blind = LiveStorage(Storage("blind", index=str), values, "ann", events.append)
    await blind.upsert({"id": 1})
    with pytest.raises(SwarmError, match="storage 'blind' has no embedding"):
        await blind.take("1")
    with pytest.raises(ZeroDivisionError):
        await cell.list(lambda item: item["id"] // 0)
    assert len(events) == 4


async def test_the_best_of_several_texts_counts(values, events, embed):
    storage = Storage("pairs", embed=embed, index=lambda item: item["at"], similarity=near)
    cell = LiveStorage(storage, values, "ann", events.append)
    await cell.upsert({"id": "far", "at": {"a": "50", "b": "60"}})
    await cell.upsert({"id": "both", "at": {"a": "90", "b": "1"}})
    await cell.upsert({"id": "none", "at": {}})
    await cell.upsert({"id": "one", "at": {"a": "2"}})
    assert ids(await cell.take("1")) == ["both", "one"]
    assert "left_out" not in events[-1].output


async def test_a_text_is_embedded_once_for_each_item_and_again_when_it_changed(values, events, embed):
    storage = Storage("notes", embed=embed, index=lambda item: item["text"], similarity=near)
    cell = LiveStorage(storage, values, "ann", events.append)
    for item_id in "ab":
        await cell.upsert({"id": item_id, "text": "1"})
        await cell.upsert({"id": item_id, "text": "1", "more": True})
    assert embed.asked == ["1", "1"]
    await cell.upsert({"id": "a", "text": "2"})
    assert embed.asked == ["1", "1", "2"]
    assert ids(await cell.take("2")) == ["a", "b"]
    await cell.remove("a")
    assert ids(await cell.take("2")) == ["b"]
    assert embed.asked == ["1", "1", "2", "2", "2"]


async def test_a_cache_knows_texts_of_items_and_of_searches_also_after_a_restart(place, events, embed):
    storage = Storage("notes", embed=embed, index=lambda item: item["text"], similarity=near, cache=True)
    cell = LiveStorage(storage, await place.open(), "ann", events.append)
    await cell.upsert({"id": "a", "text": "1"})
    await cell.upsert({"id": "b", "text": "1"})
    await cell.take("2")
    assert ids(await cell.take("2")) == ["a", "b"]
    assert embed.asked == ["1", "2"]
    cell = LiveStorage(storage, await place.open(), "ann", events.append)
    assert ids(await cell.take("2")) == ["a", "b"]
    assert embed.asked == ["1", "2"]


async def test_a_cache_that_cannot_be_written_costs_only_time(disk, events, embed):
    values = await disk.open()
    cell = await filled(numbers(embed, cache=True), values, events.append, 1)
    with closing(sqlite3.connect(disk.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert ids(await cell.take("2")) == [1]
    assert ids(await cell.take("2")) == [1]
    assert embed.asked == ["1", "2", "2"]


@pytest.mark.parametrize("pool", [1, 3])
async def test_no_more_texts_than_the_pool_are_embedded_at_once(events, pool):
    most = now = 0

    async def embed(text):
        nonlocal most, now
        now += 1
        most = max(most, now)
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        now -= 1
        return [float(text)]

    cell = LiveStorage(numbers(embed, pool=pool), Records(Log(Thread("ann"))), "ann", events.append)
    async with anyio.create_task_group() as group:
        for number in range(30):
            group.start_soon(cell.upsert, {"id": number})
            group.start_soon(cell.take, str(number))
    assert most == pool
    assert len(await cell.take("3", score=-9)) == 30


async def test_a_slow_embedding_holds_up_no_other_operation(events):
    began, gate = anyio.Event(), anyio.Event()

    async def embed(text):
        began.set()
        await gate.wait()
        return [1.0]

    cell = LiveStorage(numbers(embed), Records(Log(Thread("ann"))), "ann", events.append)
    async with anyio.create_task_group() as group:
        group.start_soon(cell.upsert, {"id": 1})
        await began.wait()
        assert await cell.get(1) == {"id": 1}
        await cell.remove(1)
        gate.set()
    assert await cell.take("1") == ()
    assert not cell._vectors._known


async def test_a_cancelled_search_leaves_the_storage_usable(events):
    gate = anyio.Event()

    async def embed(text):
        await gate.wait()
        return [float(text)]

    cell = LiveStorage(numbers(embed), Records(Log(Thread("ann"))), "ann", events.append)
    for operation, argument in ((cell.upsert, {"id": 1}), (cell.take, "1")):
        async with anyio.create_task_group() as group:
            group.start_soon(operation, argument)
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
    gate.set()
    assert ids(await cell.take("1")) == [1]


async def test_items_of_a_type_with_a_key_of_their_own(place, events, embed):
    storage = Storage("notes", embed=embed, index=lambda note: note.text, key=lambda note: note.id, type=Note)
    cell = LiveStorage(storage, await place.open(), "ann", events.append)
    await cell.upsert(Note(3, "5"))
    cell = LiveStorage(storage, await place.open(), "ann", events.append)
    assert (await cell.get(3)).text == "5"
    assert await cell.take("5") == await cell.list(lambda note: note.id == 3) == (Note(3, "5"),)
    assert await cell.numeric_index() == 4


async def test_nobody_can_change_an_item_by_what_he_was_given(values, events, embed):
    cell = LiveStorage(Storage("notes", index=lambda _: ""), values, "ann", events.append)
    item = {"id": 1, "tags": ["a"]}
    await cell.upsert(item)
    events[0].input["item"]["tags"].append("b")
    item["tags"].append("b")
    (await cell.get(1))["tags"].append("b")
    (await cell.list())[0]["tags"].append("b")
    assert await cell.get(1) == {"id": 1, "tags": ["a"]}


async def test_observers_get_the_stored_items(values, events, embed):
    seen = []
    storage = numbers(
        embed,
        on_update=lambda items, client: seen.append((client, ids(items))),
        on_search=lambda search, items, client: seen.append((client, search, ids(items))),
    )
    cell = await filled(storage, values, events.append, 3)
    await cell.take("2", total=1)
    await cell.clear()
    assert seen == [("ann", [1]), ("ann", [1, 2]), ("ann", [1, 2, 3]), ("ann", "2", [2]), ("ann", [])]


def test_cosine():
    assert cosine([1, 0], [2, 0]) == 1
    assert cosine([1, 0], [0, 3]) == 0
    assert cosine([0, 0], [0, 3]) == 0
    assert cosine([1, 1], [-1, -1]) == pytest.approx(-1)
    with pytest.raises(SwarmError, match="2 and of 1"):
        cosine([1, 0], [1])


vectors = st.lists(st.floats(-100, 100).map(lambda each: round(each, 3)), min_size=3, max_size=3)


@given(vectors, vectors)
def test_cosine_is_symmetric_and_never_beyond_one(one, other):
    assert cosine(one, other) == pytest.approx(cosine(other, one))
    assert abs(cosine(one, other)) <= 1 + 1e-9


def test_a_description_that_cannot_work_is_refused():
    with pytest.raises(SwarmError, match="needs a name"):
        Storage("", index=str)
    with pytest.raises(SwarmError, match="at least 1"):
        Storage("notes", index=str, pool=0)


class Machine(RuleBasedStateMachine):
    """A storage is a dict: whatever is kept, removed, cleared, refused or restarted; a search finds the nearest."""

    def __init__(self):
        super().__init__()
        self.thread, self.model = Thread("ann"), {}
        self.restarts()

    @rule()
    def restarts(self):
        self.embed = Embedding()
        self.cell = LiveStorage(numbers(self.embed, score=0), Records(Log(self.thread)), "ann", lambda _: None)

    @rule(number=st.integers(0, 9), value=st.integers(0, 3))
    def upserts(self, number, value):
        anyio.run(self.cell.upsert, {"id": number, "value": value})
        self.model[number] = value

    @rule(number=st.integers(0, 9))
    def removes(self, number):
        anyio.run(self.cell.remove, number)
        self.model.pop(number, None)

    @rule()
    def clears(self):
        anyio.run(self.cell.clear)
        self.model.clear()

    @rule()
    def fails(self):
        with pytest.raises(SwarmError):
            anyio.run(self.cell.upsert, {"id": None})

    @rule(bad=st.sets(st.integers(0, 9).map(str)))
    def embeds_badly(self, bad):
        self.embed.bad = bad

    @rule(number=st.integers(0, 9))
    def searches(self, number):
        self.embed.bad = set()
        found = ids(anyio.run(self.cell.take, str(number)))
        assert found == sorted(self.model, key=lambda each: abs(each - number) / 10)

    @invariant()
    def holds(self):
        assert {item["id"]: item["value"] for item in anyio.run(self.cell.list)} == self.model
        assert anyio.run(self.cell.numeric_index) == max([0, *self.model]) + 1


TestMachine = Machine.TestCase
