"""The store in an SQLite file: the one suite."""

import pytest
from hypothesis.stateful import run_state_machine_as_test

from palaver.store.sqlite import SQLiteStore
from palaver.testing.stores_machine import machine
from tests.generated import fifty
from tests.store.conformance import CHECKS


@pytest.mark.law(8)
@pytest.mark.parametrize("check", CHECKS)
def test_conformance(check, tmp_path):
    check(lambda: SQLiteStore(tmp_path / "palaver.db"))


@pytest.mark.law(8)
@pytest.mark.hypothesis
def test_state_machine(tmp_path):
    run_state_machine_as_test(machine(lambda: SQLiteStore(tmp_path / "palaver.db", sync="normal")), settings=fifty)
