"""On recorded traffic: how near predicted prompts are to what the providers counted.

`make bench BENCH=estimates` gives the whole distribution. Text is within a tenth nearly everywhere, and images whose
size is known. These classes are not, and the bounds leave them out or say so:

- reasoning that comes back or not: one wire is served by hosts that keep it, and by hosts that drop it, under the same
  model's name. A ledger that has seen neither counts it; one that has heard the model knows.
- media that are elsewhere, and documents: what a page costs depends on what is on it.
- tools that run at the provider: their texts are in the prompt, and nobody is shown them.
- prompts that nobody answered yet: most of these have 10 to 600 tokens, of which the provider's own words are the most.
"""

from statistics import median

import pytest

from tests.context import turns
from tests.corpus import CORPUS

pytestmark = pytest.mark.skipif(
    not (CORPUS / "wires").is_dir(), reason="the recorded corpus is absent; PALAVER_CORPUS names its folder"
)


@pytest.fixture(scope="module")
def exchanges():
    return turns.recorded(CORPUS)


@pytest.fixture(scope="module")
def following(exchanges):
    return turns.following(exchanges)


@pytest.fixture(scope="module")
def seeded(exchanges):
    return turns.seeded(exchanges)


def within(guesses, share=0.1):
    return sum(each.error <= share for each in guesses) / len(guesses)


def chosen(guesses, how, kind, wire=None):
    found = [each for each in guesses if each.how == how and each.kind == kind and wire in (None, each.wire)]
    assert found
    return found


# the wire, and the least share within a tenth, of the next prompt after an answer
TEXT = [
    ("anthropic_messages", 0.9),
    ("bedrock_converse", 0.8),
    ("cohere_chat", 1.0),
    ("openai_chat", 0.9),
    ("openai_responses", 0.8),
    ("google_generate", 0.45),
]


@pytest.mark.parametrize(("wire", "share"), TEXT)
def test_the_next_prompt_after_an_answer(following, wire, share):
    guesses = chosen(following, "anchored", "text", wire)
    assert within(guesses) >= share
    if wire != "google_generate":
        assert median(each.error for each in guesses) < 0.04


def test_the_next_prompt_after_an_answer_by_a_ledger_that_knows_the_model(seeded):
    assert within(chosen(seeded, "anchored, seeded", "text", "google_generate")) >= 0.8
    assert within(chosen(seeded, "anchored, seeded", "text")) >= 0.8


def test_the_next_prompt_with_new_images_of_known_size(following):
    others = [each for each in chosen(following, "anchored", "image") if each.wire != "openai_chat"]
    assert within(others) >= 0.8
    assert median(each.error for each in others) < 0.03


def test_the_next_prompt_estimated_whole_after_one_answer(following):
    guesses = [each for each in chosen(following, "whole", "text") if each.wire != "google_generate"]
    assert within(guesses) >= 0.75
    assert within(guesses, 0.25) >= 0.9


def test_a_prompt_nobody_answered_yet(seeded):
    assert median(each.error for each in chosen(seeded, "seeded", "text")) < 0.1
    assert within(chosen(seeded, "seeded", "text")) >= 0.55
