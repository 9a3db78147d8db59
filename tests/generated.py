"""How many examples a generated test gets.

A profile of Hypothesis (tests/conftest.py) says how many an ordinary test gets. One whose cases are rarer says
`@settings(max_examples=examples(150))`: 150 where an ordinary test gets 50 (`make test-long`), and in proportion
elsewhere. One that 20 examples cannot break, though its rule is broken, says `@fifty`, and has 50 everywhere.
"""

from hypothesis import settings

ORDINARY = 50


def examples(many: int) -> int:
    return max(1, many * settings.default.max_examples // ORDINARY)


fifty = settings(max_examples=max(ORDINARY, settings.default.max_examples))
