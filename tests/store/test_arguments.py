"""What a store is asked with a wrong type is refused with the name of the field, and nothing is made."""

import pytest

from palaver.core.errors import StoreError
from palaver.store import Query
from palaver.store.memory import MemoryStore
from palaver.store.sqlite import SQLiteStore

pytestmark = pytest.mark.finding("S-15")


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    with MemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "threads.db") as opened:
        yield opened


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("text", 5),
        ("text", None),
        ("role", "nobody"),
        ("agent", 5),
        ("tool", ["a"]),
        ("tag", 5),
        ("since", "x"),
        ("since", True),
        ("until", 1.5),
        ("thread", 5),
        ("limit", "x"),
        ("limit", None),
        ("limit", -1),
    ],
)
def test_a_query_names_the_field_that_is_wrong(field, value):
    with pytest.raises(StoreError, match=f"Query: {field}: expected "):
        Query(**{field: value})


@pytest.mark.parametrize("wrong", [None, 5, b"t", ["t"]])
def test_a_thread_is_not_begun_for_what_is_no_id(store, wrong):
    with pytest.raises(StoreError, match="open: thread: expected a text"):
        store.open(wrong)
    with pytest.raises(StoreError, match="open: branch: expected a text"):
        store.open("t", wrong)
    assert list(store.threads()) == []


@pytest.mark.parametrize("wrong", [None, 5, "text", ["t"]])
def test_what_is_no_bytes_is_no_blob(store, wrong):
    with pytest.raises(StoreError, match="put_blob: data: expected bytes"):
        store.put_blob(wrong)
    assert store.verify().blobs == 0


@pytest.mark.finding("B-04")
@pytest.mark.parametrize("wrong", [None, 7, b"sha256:", ["t"]])
def test_a_blob_is_not_looked_up_by_what_is_no_name(store, wrong):
    with pytest.raises(StoreError, match="get_blob: blob: expected a Blob or a text"):
        store.get_blob(wrong)
