"""A table without a row for a wire says what to add, and where."""

from __future__ import annotations

import pytest

from palaver.testing import receipts, rules
from palaver.testing.tables import MissingRowError, row
from tests import sdk_shapes

pytestmark = [pytest.mark.finding("F-94")]


def test_a_missing_row_is_named_with_its_place() -> None:
    with pytest.raises(MissingRowError, match=r"^add 'telegraph' to CODES in codes\.py; it has morse, baudot$"):
        row({"morse": 1, "baudot": 2}, "telegraph", "CODES in codes.py")


def test_the_tables_of_the_test_kit_say_where_a_wire_goes() -> None:
    with pytest.raises(MissingRowError, match=r"WIRES in src/palaver/testing/rules/__init__\.py"):
        rules.check_request("telegraph", {})
    with pytest.raises(MissingRowError, match=r"FORMS in src/palaver/testing/receipts\.py"):
        receipts.forms_of("telegraph")
    with pytest.raises(MissingRowError, match=r"REQUESTS in tests/sdk_shapes\.py"):
        sdk_shapes.accepts_request("telegraph", {})
