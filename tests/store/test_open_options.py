"""Options of ``open_store``: those of the kind that is opened, of the right type."""

# What is wrong is given on purpose.
# pyright: basic, reportOptionalIterable=false

import pytest

from palaver.core.errors import StoreError
from palaver.store.jsonl import JsonlStore
from palaver.store.location import StoreOptions, open_store
from palaver.store.memory import MemoryStore
from palaver.store.postgres import PostgresStore
from palaver.store.sqlite import SQLiteStore

pytestmark = pytest.mark.finding("F-01")


@pytest.mark.parametrize(
    ("location", "given", "said"),
    [
        ("memory:", {"sync": "full"}, "^sync: a store of the kind 'memory' has no such option, only clock$"),
        ("memory:", {"clock": 5}, "clock: expected a function, got int 5"),
        ("{}/x.db", {"syn": "full"}, "^syn: .* only sync, timeout, read_only, clock$"),
        ("{}/x.db", {"sync": "flush"}, "sync: expected one of 'full', 'normal', got str 'flush'"),
        ("{}/x.db", {"timeout": "1"}, "timeout: expected a number, got str '1'"),
        ("jsonl:{}/lines", {"max_bytes": 1.5}, "max_bytes: expected a whole number, got float 1.5"),
        ("postgresql://nowhere", {"max_size": "4"}, "max_size: expected a whole number, got str '4'"),
    ],
)
def test_an_option_of_another_kind_or_type_is_refused_by_its_name(tmp_path, location, given, said):
    with pytest.raises(StoreError, match=said):
        open_store(location.format(tmp_path), **given)
    assert list(tmp_path.iterdir()) == []


def test_every_option_of_every_kind_is_written_down():
    kinds = (MemoryStore, SQLiteStore, JsonlStore, PostgresStore)
    options = {name for kind in kinds for name in kind.__init__.__kwdefaults__}
    assert options == set(StoreOptions.__annotations__)
