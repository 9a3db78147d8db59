"""Large things: a message, a thread, many threads. Small sizes always, full sizes under ``long``."""

import pytest

import palaver as p
from palaver.store.sqlite import SQLiteStore
from palaver.store.store import Query


@pytest.fixture
def store(tmp_path):
    with SQLiteStore(tmp_path / "palaver.db", sync="normal") as opened:
        yield opened


@pytest.mark.parametrize("megabytes", [2, pytest.param(50, marks=pytest.mark.long)])
def test_a_large_message(store, megabytes):
    store.create("t")
    text = "".join(f"word{number} " for number in range(megabytes * 100_000))[: megabytes * 1_000_000]
    picture = p.Image.from_bytes(text.encode()[::-1])
    (entry,) = store.append("t", [p.user(text, picture)]).entries
    assert store.read("t")[0] == entry
    assert [hit.entry.id for hit in store.search(Query(text="word17 word18"))] == [entry.id]
    assert store.verify().ok
    store.delete("t")
    assert store.gc().size > 0


@pytest.mark.parametrize("length", [3_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_a_long_thread(store, length):
    store.create("t")
    ids = []
    for start in range(0, length, 1000):
        ids += [entry.id for entry in store.append("t", [p.user(f"number {start + n}") for n in range(1000)]).entries]
    assert [entry.id for entry in store.path("t")] == ids
    assert [entry.id for entry in store.path("t", last=5)] == ids[-5:]
    assert steps(store, lambda: store.path("t", last=5)) < 2_000
    assert steps(store, lambda: store.read("t", start=length - 5)) < 2_000
    assert steps(store, lambda: store.info("t")) < 2_000
    store.fork("t", "side", at=ids[length // 2])
    assert steps(store, lambda: store.path("t", "side", last=2)) < 2_000
    assert len(store.load("t")) == length
    assert [hit.entry.id for hit in store.search(Query(text=f'"number {length - 1}"'))] == ids[-1:]
    assert store.verify().ok


def steps(store, action):
    """How much SQLite has to do, in its own instructions."""
    count = 0

    def step():
        nonlocal count
        count += 1

    with store._reader() as db:
        db.set_progress_handler(step, 1)
    try:
        action()
    finally:
        with store._reader() as db:
            db.set_progress_handler(None, 0)
    assert count
    return count


@pytest.mark.parametrize("length", [500, 5_000])
def test_an_append_costs_the_same_at_any_length(store, length):
    store.create("t")
    store.append("t", [p.user(f"number {n}") for n in range(length)])
    counts = []
    store._writer.run(lambda db: db.set_progress_handler(lambda: counts.append(1), 1), alone=True)
    store.append("t", [p.user("one more")])
    store._writer.run(lambda db: db.set_progress_handler(None, 0), alone=True)
    assert 0 < len(counts) < 400


@pytest.mark.parametrize("many", [300, pytest.param(10_000, marks=pytest.mark.long)])
def test_many_threads(store, many):
    for number in range(many):
        store.create(f"thread {number}", tags=["even"] if number % 2 == 0 else ["odd"])
        store.append(f"thread {number}", [p.user(f"in {number}")])
    assert len(list(store.threads())) == many
    assert len(list(store.threads(tag="odd"))) == many // 2
    assert [info.length for info in store.threads(limit=3)] == [1, 1, 1]
    assert [hit.thread for hit in store.search(Query(text=f"in {many - 1}"))] == [f"thread {many - 1}"]
    assert store.verify().threads == many


def test_bytes_on_disk_are_those_of_the_messages(tmp_path):
    """At most twice the JSON of unique messages, index included, and linear (ADR 33)."""
    import random

    rng = random.Random(1)
    vocabulary = ["".join(rng.choices("etaoinshrdlu", k=rng.randint(2, 9))) for _ in range(5000)]
    ratios = []
    for many in (150, 600):
        path, size = tmp_path / f"{many}.db", 0
        with SQLiteStore(path, sync="normal") as store:
            store.create("t")
            for _ in range(many):
                text = " ".join(rng.choices(vocabulary, [1 / (rank + 5) for rank in range(5000)], k=500))
                size += len(p.dumps(p.user(text)))
                for _ in range(2):
                    store.append("t", [p.user(text)])
            store.index()
        ratios.append(path.stat().st_size / size)
    assert ratios[1] < 2
    assert ratios[1] < ratios[0] * 1.05


@pytest.mark.parametrize("times", [50])
def test_a_picture_is_kept_once(tmp_path, times):
    import random

    picture = p.Image.from_bytes(random.Random(2).randbytes(300_000))
    path = tmp_path / "palaver.db"
    with SQLiteStore(path, sync="normal") as store:
        store.create("t")
        for number in range(times):
            store.append("t", [p.user(f"look {number}", picture)])
        assert store.read("t")[-1].message.images == (picture,)
        shown = store.read("t")
        assert shown[0].message.images[0].source is shown[-1].message.images[0].source, "it is held twice in memory"
        assert store.verify().blobs == 1
    assert path.stat().st_size < 500_000
