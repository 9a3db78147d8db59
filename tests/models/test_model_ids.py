"""Ids of clouds and routers find the row of the model's home."""

import datetime as dt
import re

import pytest

from palaver.models import catalogue, providers
from palaver.models.catalogue import Catalogue, ModelCard, Prices
from palaver.models.model_ids import RULES, home_ids


@pytest.fixture(autouse=True)
def bare(monkeypatch):
    monkeypatch.delenv(catalogue.FILE, raising=False)


@pytest.mark.parametrize(
    ("name", "home", "model_id"),
    [
        ("google/models/gemini-3.8-flash", "google", "gemini-3.8-flash"),
        ("vertex/publishers/google/models/gemini-3.8-flash", "google", "gemini-3.8-flash"),
        ("vertex/gemini-3.8-flash", "google", "gemini-3.8-flash"),
        ("vertex-anthropic/claude-sonnet-4@20250514", "anthropic", "claude-sonnet-4-20250514"),
        ("vertex-anthropic/claude-opus-4-8", "anthropic", "claude-opus-4-8"),
        ("vertex-anthropic/claude-opus-4-8@default", "anthropic", "claude-opus-4-8"),
        ("bedrock/anthropic.claude-3-5-haiku-20241022-v1:0", "anthropic", "claude-3-5-haiku-20241022"),
        ("bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0", "anthropic", "claude-sonnet-4-5-20250929"),
        ("bedrock-anthropic/global.anthropic.claude-opus-4-6-v1", "anthropic", "claude-opus-4-6"),
        ("bedrock/us-gov.anthropic.claude-haiku-4-5-20251001-v1:0:200k", "anthropic", "claude-haiku-4-5-20251001"),
        (
            "bedrock/arn:aws:bedrock:us-east-1:1:inference-profile/us.anthropic.claude-opus-5",
            "anthropic",
            "claude-opus-5",
        ),
        ("bedrock/us.amazon.nova-pro-v1:0", "bedrock", "amazon.nova-pro-v1:0"),
        ("azure/gpt-5.5", "openai", "gpt-5.5"),
        ("openai-chat/ft:gpt-4o-2024-08-06:org::id", "openai", "gpt-4o-2024-08-06"),
        ("openrouter/anthropic/claude-sonnet-4.5", "anthropic", "claude-sonnet-4-5"),
        ("openrouter/anthropic/claude-3.5-haiku:beta", "anthropic", "claude-3-5-haiku"),
        ("openrouter/anthropic/claude-sonnet-4:thinking", "anthropic", "claude-sonnet-4-0"),
        ("openrouter/deepseek/deepseek-v4-pro:free", "deepseek", "deepseek-v4-pro"),
        ("openrouter/x-ai/grok-4.20", "xai", "grok-4.20"),
        ("openrouter/moonshotai/kimi-k3", "moonshot", "kimi-k3"),
    ],
)
def test_an_id_is_that_of_its_home(name, home, model_id):
    provider, _, written = name.partition("/")
    assert next(home_ids(provider, written))[:2] == (home, model_id)


@pytest.mark.parametrize("name", ["openai/gpt-5.5", "anthropic/claude-opus-5", "bedrock/amazon.nova-pro-v1:0", "lab/x"])
def test_an_id_at_home_has_no_other(name):
    provider, _, written = name.partition("/")
    assert list(home_ids(provider, written)) == []


def test_rules_are_for_providers_that_there_are_and_their_patterns_hold():
    for rule in RULES:
        assert {*rule.providers, rule.home} <= set(providers.names())
        assert re.compile(rule.pattern).groups >= rule.id.count("\\")


def test_a_row_from_home_has_its_sizes_and_not_its_prices():
    at_home = catalogue.find("anthropic", "claude-opus-4-8")
    found = catalogue.find("bedrock", "eu.anthropic.claude-opus-4-8-v1:0")
    assert found.window == at_home.window
    assert at_home.prices is not None
    assert found.prices is None
    assert catalogue.find("google", "models/gemini-3.8-flash").prices is not None


def test_a_row_of_the_provider_itself_stands_before_that_of_the_home():
    own = ModelCard(
        providers=("bedrock",),
        prefix="us.anthropic.claude-opus-5",
        source="https://p",
        checked=dt.date(2026, 1, 1),
        prices=Prices(input=1, output=2),
    )
    assert catalogue.catalogue().plus([own]).find("bedrock", "us.anthropic.claude-opus-5").prices.input == 1


def test_an_answer_that_names_no_provider_finds_the_longest_beginning():
    made = catalogue.catalogue()
    provider, card = made.find_answered("gpt-5.5-pro-2026-04-01")
    assert (provider, card.prefix, card.prices) == ("openai", "gpt-5.5-pro", None)
    assert made.find_answered("nothing") is None


def test_the_list_has_each_model_of_each_provider_once():
    rows = Catalogue(catalogue.catalogue().cards).rows()
    names = [row.name for row in rows]
    assert len(names) == len(set(names)) == len({(row.provider, row.name) for row in rows})
    haiku = next(row for row in rows if row.name == "anthropic/claude-haiku-4-5")
    assert (haiku.capabilities.window, haiku.prices.input) == (200_000, 1)
    assert haiku.source.startswith("https://")
    assert haiku.seen.year >= 2026
