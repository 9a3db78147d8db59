"""Where a store is: a folder that somebody names must be there."""

import pytest

from palaver.core.errors import StoreError, UnavailableError
from palaver.store.location import VARIABLE, default_location, open_store, split_location

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


@pytest.mark.finding("F-16")
@pytest.mark.parametrize("wrong", ["nope:x", ":memory:", "mysql://host/x", 5, b"x.db"])
def test_what_names_no_kind_of_store_makes_no_file(tmp_path, monkeypatch, wrong):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError):
        open_store(wrong)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.finding("F-16")
def test_a_file_whose_name_has_a_colon_is_opened(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for location in ("./nope:x", "nope:x", tmp_path / "other:x", "C:x"):
        with open_store(location) as store:
            store.create(str(location).replace("/", "_"))
    assert {each.name.partition("-")[0] for each in tmp_path.iterdir()} == {"nope:x", "other:x", "C:x"}


@pytest.mark.finding("F-16")
@pytest.mark.parametrize("form", ["{}", "jsonl:{}", "sqlite:{}"])
def test_a_name_that_no_file_can_have_is_an_error_of_the_store(form):
    with pytest.raises((StoreError, UnavailableError), match=r"(?i)name too long"):
        open_store(form.format("x" * 300))


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("sqlite:x.db", "x.db"),
        ("sqlite:///x.db", "x.db"),
        ("sqlite:///./x.db", "./x.db"),
        ("sqlite:////data/x.db", "/data/x.db"),
        ("sqlite:/data/x.db", "/data/x.db"),
        ("sqlite:///C:/x.db", "C:/x.db"),
    ],
)
def test_the_path_of_an_sqlite_url_is_that_of_sqlalchemy(location, path):
    assert split_location(location) == ("sqlite", path)


@pytest.mark.parametrize("location", ["sqlite:", "sqlite://", "sqlite:///", "sqlite://x.db", "sqlite::memory:"])
def test_an_sqlite_url_without_a_clear_path_makes_no_file(tmp_path, monkeypatch, location):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError, match=r"not the path of a file; sqlite:///x\.db is x\.db in the working folder"):
        open_store(location)
    assert list(tmp_path.iterdir()) == []


def test_a_relative_sqlite_url_is_in_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with open_store("sqlite:///x.db") as store:
        store.create("t")
    assert (tmp_path / "x.db").exists()
