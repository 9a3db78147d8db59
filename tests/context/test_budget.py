"""How much of a window a prompt may take."""

import pytest

from palaver.context import capacity, prompt_budget
from palaver.core.request import Settings
from palaver.models.catalogue import catalogue

# window, output, what a prompt may take (KAI-03, golden `effective_budget`)
GOLDEN = [
    (200_000, 8_192, 178_808),
    (200_000, 16_384, 170_616),
    (200_000, 20_000, 167_000),
    (128_000, 16_384, 98_616),
    (128_000, 4_096, 110_904),
    (1_000_000, 4_096, 982_904),
    (128_000, 8_192, 106_808),
    (64_000, 8_192, 42_808),
    (200_000, 8_096, 178_904),
]


@pytest.mark.row("KAI-03")
@pytest.mark.parametrize(("window", "output", "expected"), GOLDEN)
def test_the_golden_budget(window, output, expected):
    assert prompt_budget(window, output) == expected
    assert capacity(window, None, Settings(max_tokens=output)) == expected


def test_of_an_unknown_model_the_usual_is_taken():
    assert capacity(None, None) == prompt_budget(128_000, 8_192)


def test_something_is_left_in_a_small_window():
    assert capacity(8_000, 8_000) >= 2_000
    assert capacity(200_000, None, Settings(max_tokens=200_000)) == 50_000


def test_reasoning_is_reserved_with_the_output():
    plain, thinking = Settings(max_tokens=1000), Settings(max_tokens=1000, reasoning_tokens=4000)
    assert capacity(200_000, None, plain) - capacity(200_000, None, thinking) == 4000


@pytest.mark.parametrize("settings", [Settings(max_tokens=1_000_000), Settings(max_tokens=10, reasoning_tokens=90_000)])
def test_no_more_is_reserved_than_the_model_can_write(settings):
    assert capacity(200_000, 64_000, settings) == prompt_budget(200_000, 64_000)


def test_every_model_that_is_known_keeps_most_of_its_window():
    for card in catalogue().cards:
        if card.window is None:
            continue
        for settings in (Settings(), Settings(max_tokens=1_000_000), Settings(reasoning_tokens=32_000)):
            room = capacity(card.window, card.max_output, settings)
            assert card.window // 4 <= room < card.window
            if card.max_output is not None:
                assert room >= prompt_budget(card.window, card.max_output), card.prefix
