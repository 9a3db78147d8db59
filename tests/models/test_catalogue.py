"""The catalogue: longest beginning wins, unknown stays unknown, and files stand before what is built in."""

import datetime as dt

import pytest
from hypothesis import given, strategies as st

from palaver.core.errors import DecodeError
from palaver.core.usage import Usage
from palaver.models import catalogue, providers
from palaver.models.catalogue import Capabilities, Catalogue, ModelCard, cost
from palaver.tokens.media import image_tokens

BUILT_IN = Catalogue.read("").plus(catalogue.catalogue().cards)


@pytest.fixture(autouse=True)
def bare(monkeypatch):
    monkeypatch.delenv(catalogue.FILE, raising=False)


def card(prefix, **fields):
    return ModelCard(providers=("p",), prefix=prefix, source="https://p", checked=dt.date(2026, 1, 1), **fields)


@pytest.mark.parametrize("row", BUILT_IN.cards, ids=lambda row: f"{row.providers[0]}/{row.prefix}")
def test_every_row_says_where_and_when_it_was_read(row):
    assert row.source.startswith("https://")
    assert dt.date(2025, 6, 1) <= row.checked <= dt.date(2026, 11, 26)
    assert set(row.providers) <= set(providers.names())
    assert row.prices is not None or row.note
    assert row.window is not None or row.note
    assert row.prices is None or 0 < row.prices.input <= row.prices.output


def test_no_row_stands_twice():
    keys = [(provider, row.prefix) for row in BUILT_IN.cards for provider in row.providers]
    assert len(keys) == len(set(keys))


@given(st.lists(st.text("ab-", min_size=1, max_size=5), unique=True), st.text("ab-", max_size=8))
def test_the_longest_beginning_wins(prefixes, model_id):
    found = Catalogue([card(prefix) for prefix in prefixes]).find("p", model_id)
    fitting = [prefix for prefix in prefixes if model_id.startswith(prefix)]
    assert (found and found.prefix) == (max(fitting, key=len) if fitting else None)


@pytest.mark.row("KAI-29")
def test_an_unknown_model_has_no_card_no_prices_and_no_cost():
    assert catalogue.find("nobody", "claude-opus-5") is None
    assert catalogue.find("openai", "nothing") is None
    assert catalogue.prices_of("openai/nothing") is None
    assert cost(Usage(input=1), catalogue.prices_of("openai/nothing")) is None
    assert catalogue.capabilities_of("openai/nothing") == Capabilities()


def test_a_sibling_without_prices_does_not_get_those_of_the_shorter_name():
    assert catalogue.prices_of("openai/gpt-5.5-2026-04-01").input == 5
    assert catalogue.prices_of("openai/gpt-5.5-pro") is None
    assert catalogue.prices_of("openai-chat/gpt-5.5") == catalogue.prices_of("openai/gpt-5.5")


@pytest.mark.parametrize(
    ("name", "prefix"),
    [
        ("openai/gpt-5.4-mini-2026-03-01", "gpt-5.4-mini"),
        ("anthropic/claude-opus-5-5", "claude-opus-5-5"),
        ("google/gemini-3.5-flash-lite", "gemini-3.5-flash-lite"),
        ("xai/grok-4.20-0309-non-reasoning", "grok-4.20-0309-non-reasoning"),
        ("xai/grok-4.20-reasoning-latest", "grok-4.20"),
        ("deepseek/deepseek-v4-flash-vision-exp", "deepseek-v4-flash"),
        ("groq/openai/gpt-oss-120b", "openai/gpt-oss-120b"),
        ("moonshot/kimi-k3.1-pro", "kimi-k3."),
        ("openai/gpt-4o-2024-08-06", "gpt-4o"),
        ("openai/gpt-4o-mini-2024-07-18", "gpt-4o-mini"),
        ("openai/gpt-5-2025-08-07", "gpt-5"),
        ("openai/gpt-5.9", "gpt-5."),
        ("openai/o1-mini-2024-09-12", "o1-mini"),
        ("google/gemini-2.5-flash-lite-preview-09-2025", "gemini-2.5-flash-lite"),
        ("google/models/gemini-2.5-pro-001", "gemini-2.5-pro"),
        ("bedrock/us.anthropic.claude-sonnet-4-20250514-v1:0", "claude-sonnet-4-2025"),
        ("bedrock/us.meta.llama3-3-70b-instruct-v1:0", "meta.llama3-3-70b-instruct"),
        ("anthropic/claude-fable-5-1", "claude-fable-5-1"),
        ("openrouter/anthropic/claude-3.7-sonnet:thinking", "claude-3-7-sonnet"),
        ("openrouter/minimax/minimax-m2.5", "MiniMax-M2.5"),
    ],
)
def test_a_sibling_has_a_row_of_its_own(name, prefix):
    provider, _, model_id = name.partition("/")
    assert catalogue.find(provider, model_id).prefix == prefix


def test_a_long_prompt_costs_at_least_what_a_short_one_costs():
    tiered = [row.prices for row in BUILT_IN.cards if row.prices is not None and row.prices.long is not None]
    assert tiered
    for prices in tiered:
        assert prices.over is not None
        assert (prices.long.input, prices.long.output) > (prices.input, prices.output)
        assert (prices.long.cache_read is None) is (prices.cache_read is None)


@pytest.mark.parametrize("row", BUILT_IN.cards, ids=lambda row: f"{row.providers[0]}/{row.prefix}")
def test_prices_and_sizes_of_a_row_fit_together(row):
    if row.window is not None and row.max_output is not None:
        assert row.max_output < row.window
    if row.prices is not None:
        assert (row.prices.cache_read or 0) <= row.prices.input
        written = row.prices.cache_write or row.prices.input
        assert row.prices.input <= written or "highspeed" in row.prefix, "cheaper only where input alone is dearer"


@pytest.mark.parametrize(
    ("name", "width", "height", "tokens"),
    [
        # the examples of https://platform.claude.com/docs/en/build-with-claude/vision
        ("anthropic/claude-opus-5", 1920, 1080, 2691),
        ("anthropic/claude-opus-4-7", 3840, 2160, 4784),
        ("anthropic/claude-haiku-4-5", 1000, 1000, 1296),
        ("google/gemini-3-flash-preview", 100, 100, 1120),
        ("google/gemini-3.8-flash", 4000, 3000, 1120),
        ("openai/gpt-6-sol", 1024, 1024, 1229),
    ],
)
def test_an_image_costs_what_the_page_says(name, width, height, tokens):
    assert image_tokens(width, height, catalogue.rates_of(name)) == tokens


def test_a_standard_image_never_costs_more_than_the_page_says():
    assert image_tokens(1920, 1080, catalogue.rates_of("anthropic/claude-sonnet-4-5")) <= 1568


def test_rates_that_are_not_known_are_none():
    assert catalogue.rates_of("openai/nothing") is None
    assert catalogue.rates_of("deepseek/deepseek-flash") is None


def test_rates_that_cannot_be_are_refused():
    with pytest.raises(DecodeError, match="side"):
        Catalogue.read(
            '[[models]]\nproviders = ["p"]\nprefix = "x"\nsource = "https://p"\nchecked = 2026-11-01\n'
            "rates = { side = 0 }\n"
        )


def test_what_a_card_says_becomes_capabilities_and_the_rest_stays_open():
    said = card("x", window=8, media=frozenset(), tools=False, structured="none").capabilities
    assert said == Capabilities(window=8, media=frozenset(), tools=False, structured=None)
    assert card("x").capabilities == Capabilities()


def test_a_newer_sibling_has_a_row_of_its_own():
    assert catalogue.find("anthropic", "claude-sonnet-5-5").prefix == "claude-sonnet-5-5"
    assert catalogue.find("openai", "gpt-5.5").prices.long.input == 10


def test_a_file_stands_before_what_is_built_in(monkeypatch, tmp_path):
    file = tmp_path / "models.toml"
    file.write_text(
        '[[models]]\nproviders = ["openai", "lab"]\nprefix = "gpt-5.5"\nwindow = 7\n'
        'prices = { input = 1, output = 2 }\nsource = "https://lab"\nchecked = 2026-11-01\n',
        "utf-8",
    )
    monkeypatch.setenv(catalogue.FILE, str(file))
    assert catalogue.find("openai", "gpt-5.5").window == 7
    assert catalogue.find("lab", "gpt-5.5-x").prices.output == 2
    assert catalogue.find("openai", "gpt-5.4").window == 1_050_000
    monkeypatch.delenv(catalogue.FILE)
    assert catalogue.find("openai", "gpt-5.5").window == 1_050_000


@pytest.mark.parametrize(
    "text",
    [
        "[[models",
        "[[models]]\nprefix = 1\n",
        "[[models]]\nunknown = 1\n",
        "[[rows]]\n",
        pytest.param(f"a = {'[' * 9999}", id="deep"),
        pytest.param(f"a = {'1' * 9999}", id="long"),
    ],
)
def test_a_file_that_is_none_names_itself(monkeypatch, tmp_path, text):
    file = tmp_path / "models.toml"
    file.write_text(text, "utf-8")
    monkeypatch.setenv(catalogue.FILE, str(file))
    with pytest.raises(DecodeError, match=r"PALAVER_MODELS=.*models\.toml"):
        catalogue.catalogue()
    monkeypatch.setenv(catalogue.FILE, str(tmp_path / "none.toml"))
    with pytest.raises(DecodeError, match="cannot be read"):
        catalogue.catalogue()


def test_rows_of_the_program_stand_first():
    assert BUILT_IN.plus([card("x", window=1)]).find("p", "x-1").window == 1
    assert repr(Catalogue()) == "Catalogue(0 rows)"
