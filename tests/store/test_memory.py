"""The store in memory: the one suite."""

import pytest
from hypothesis.stateful import run_state_machine_as_test

import palaver as p
from palaver.store.memory import MemoryStore
from palaver.testing.stores_machine import machine
from tests.generated import fifty
from tests.store.conformance import CHECKS


@pytest.mark.law(8)
@pytest.mark.parametrize("check", CHECKS)
def test_conformance(check):
    store = MemoryStore()
    check(lambda: store)


@pytest.mark.law(8)
@pytest.mark.hypothesis
def test_state_machine():
    store = MemoryStore()
    run_state_machine_as_test(machine(lambda: store), settings=fifty)


def test_a_message_or_a_branch_moves_the_time_of_a_thread():
    now = iter(range(100))
    store = MemoryStore(clock=lambda: next(now))
    store.create("t")
    seen = [store.info("t").updated_at]
    for change in (
        lambda: store.append("t", [p.user("a")]),
        lambda: store.fork("t", "side"),
        lambda: store.rewind("t", None),
        lambda: store.append("t", [p.user("b")]),
    ):
        change()
        seen.append(store.info("t").updated_at)
    assert seen == sorted(set(seen))
    assert store.info("t").created_at == seen[0]
