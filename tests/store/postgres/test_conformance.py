"""The store in PostgreSQL: the one suite."""

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from palaver.testing.stores_machine import machine
from tests.generated import examples
from tests.store.conformance import CHECKS
from tests.store.postgres.server import open_store

pytestmark = pytest.mark.server


@pytest.mark.law(8)
@pytest.mark.parametrize("check", CHECKS)
def test_conformance(check, schema):
    check(lambda: open_store(schema))


@pytest.mark.law(8)
@pytest.mark.hypothesis
def test_state_machine(schema):
    """Examples share the schema, and begin by emptying it."""

    def clear():
        with open_store(schema) as store:
            for info in store.threads():
                store.delete(info.id)

    run_state_machine_as_test(
        machine(lambda: open_store(schema, max_size=2), clear=clear),
        settings=settings(max_examples=examples(10), deadline=None),
    )
