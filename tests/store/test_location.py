"""Where a store is: a folder that somebody names must be there."""

import pytest

from palaver.core.errors import UnavailableError
from palaver.store.location import VARIABLE, default_location, open_store

pytestmark = pytest.mark.finding("F-07")


@pytest.mark.parametrize("location", ["{}/no/such/x.db", "jsonl:{}/no/such", "sqlite:{}/no/x.db"])
def test_a_folder_that_is_not_there_is_an_error(tmp_path, monkeypatch, location):
    where = location.format(tmp_path)
    with pytest.raises(UnavailableError, match="no such folder"):
        open_store(where)
    monkeypatch.setenv(VARIABLE, where)
    with pytest.raises(UnavailableError, match="no such folder"):
        open_store()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("location", ["{}/x.db", "jsonl:{}/new", "jsonl:{}/new/"])
def test_a_store_is_begun_in_a_folder_that_is_there(tmp_path, location):
    with open_store(location.format(tmp_path)) as store:
        store.create("t")


@pytest.mark.finding("S-14")
@pytest.mark.parametrize("named", [False, True])
def test_the_folder_of_the_default_location_is_made(tmp_path, monkeypatch, named):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    with open_store(default_location() if named else None) as store:
        store.create("t")
    assert (tmp_path / "data" / "palaver" / "palaver.db").exists()
