"""Cost: the golden, what is unknown, and prices of long prompts."""

import pytest

from palaver.core.usage import Usage, UsagePass
from palaver.models.catalogue import Prices, cost

PRICES = Prices(input=3, output=15)

# Golden `cost_usd`: 1000 in, 500 out, 2000 read from the cache, 300 written to it.
GOLDEN = [
    (3, 15, 0.012225),
    (15, 75, 0.061125),
    (0.15, 0.6, 0.00053625),
    (2.5, 10, 0.0089375),
    (0.56, 2.24, 0.002002),
]


@pytest.mark.row("KAI-29")
@pytest.mark.parametrize(("given", "taken", "usd"), GOLDEN)
def test_cost_is_that_of_the_golden(given, taken, usd):
    usage = Usage(input=1000, output=500, cache_read=2000, cache_write=300)
    assert cost(usage, Prices(input=given, output=taken)) == pytest.approx(usd, rel=1e-12)


@pytest.mark.row("KAI-29")
@pytest.mark.parametrize(("usage", "prices"), [(None, PRICES), (Usage(input=1), None), (Usage(), PRICES), (None, None)])
def test_what_is_not_known_has_no_cost_and_is_not_free(usage, prices):
    assert cost(usage, prices) is None


def test_reasoning_costs_as_output_and_cache_prices_stand_before_the_defaults():
    assert cost(Usage(output=500_000, reasoning=500_000), PRICES) == 15
    named = Prices(input=3, output=15, cache_read=1, cache_write=2)
    assert cost(Usage(cache_read=1_000_000, cache_write=1_000_000), named) == 3


def test_a_long_prompt_has_the_prices_of_a_long_prompt():
    tiered = Prices(input=1, output=10, over=200_000, long=Prices(input=2, output=15))
    assert cost(Usage(input=200_000, output=100_000), tiered) == pytest.approx(1.2)
    assert cost(Usage(input=100_000, cache_read=100_001, output=100_000), tiered) == pytest.approx(
        0.2 + 0.0200002 + 1.5
    )


def test_a_pass_of_another_model_makes_the_cost_unknown():
    own = UsagePass(kind="compaction", usage=Usage(input=1_000_000))
    other = UsagePass(kind="advisor", model="other", usage=Usage(input=1))
    assert cost(Usage(input=1_000_000, passes=(own,)), PRICES) == 6
    assert cost(Usage(input=1_000_000, passes=(own, other)), PRICES) is None
