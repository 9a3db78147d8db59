"""Large things in a folder of JSON Lines. Small sizes always, full sizes under ``long``."""

import pytest

import palaver as p
from palaver.store.jsonl import JsonlStore

MEGABYTES = [2, pytest.param(50, marks=pytest.mark.long)]
LENGTHS = [3_000, pytest.param(100_000, marks=pytest.mark.long)]
COUNTS = [300, pytest.param(10_000, marks=pytest.mark.long)]


@pytest.mark.parametrize("megabytes", MEGABYTES)
def test_a_large_message(tmp_path, megabytes):
    with JsonlStore(tmp_path, sync="flush") as store:
        store.create("t")
        (entry,) = store.append("t", [p.user("word " * (megabytes * 200_000))]).entries
    with JsonlStore(tmp_path) as again:
        assert list(again.read("t")) == [entry]
        assert again.verify().ok
        assert again.damage == ()


@pytest.mark.parametrize("length", LENGTHS)
def test_a_long_thread(tmp_path, length):
    with JsonlStore(tmp_path, sync="flush") as store:
        store.create("t")
        ids = []
        for start in range(0, length, 1000):
            batch = [p.user(f"number {start + n}") for n in range(1000)]
            ids += [entry.id for entry in store.append("t", batch).entries]
        store.fork("t", "side", at=ids[length // 2])
    with JsonlStore(tmp_path) as again:
        assert [entry.id for entry in again.path("t")] == ids
        assert [entry.id for entry in again.path("t", "side", last=2)] == ids[length // 2 - 1 : length // 2 + 1]
        assert again.verify().ok


@pytest.mark.parametrize("many", COUNTS)
def test_many_threads(tmp_path, many):
    with JsonlStore(tmp_path, sync="flush") as store:
        for number in range(many):
            store.create(f"thread {number}")
            store.append(f"thread {number}", [p.user(f"in {number}")])
    with JsonlStore(tmp_path) as again:
        assert len(list(again.threads())) == many
        assert again.verify().entries == many
