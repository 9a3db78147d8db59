"""The examples are short, run as they are, and show what they say they show."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.loopback import serve

EXAMPLES = Path(__file__).parents[1] / "examples"
PATTERNS = {path.stem: path for path in EXAMPLES.glob("*.py") if path.stem != "stage"}
LONGEST = 100

ESSENTIAL = {
    "triage": [
        "client          │ The boots of order 17 do not fit. I want my money back.",
        "reception       │ → to_refunds()",
        "refunds         │ → refund(17)",
        "  refund        │ order 17: 89.00 refunded",
        "refunds         │ Done: 89.00 are on their way back to you.",
        "client          │ Thanks. Do you have the red ones in 38?",
        "refunds         │ → to_default()",
        "reception       │ → to_sales()",
        "sales           │ The red ones come in 36 to 44, at 119.00. Which size may it be?",
    ],
    "plan_generate_evaluate": [
        "planner         │ → write_by('What it is, what it costs, how to get it.')",
        "critic          │ REVISE: neither the price nor the time is said.",
        "writer          │ → submit('The ferry to the islands costs 12.00 and leaves the harbour at nine.')",
        "critic          │ APPROVED",
    ],
    "mixture": [
        "  to merger     │ The sailor says: The wind is from the south-west at five: fine until noon.",
        "  to merger     │ The tide clerk says: High water is at 10:40; after 13:00 the channel is too shallow.",
        "  to merger     │ The cook says: There is bread for one day, and no more.",
        "merger          │ Leave by nine and be back before 13:00: the wind holds until noon, the channel until one.",
    ],
    "supervisor": [
        "supervisor      │ → delegate('surveyor', 'How long is the hull?')",
        "surveyor        │ → measure('hull')",
        "  to supervisor │ The surveyor reports: The hull is 9.5 metres long.",
        "accountant      │ → multiply(9.5, 4.2)",
        "  to supervisor │ The accountant reports: It costs 39.90.",
        "supervisor      │ Your ship is 9.5 metres long; a night costs 39.90.",
    ],
    "debate": [
        "for             │ Charts on paper never run out of power.",
        "client          │ for says: Charts on paper never run out of power.",
        "against         │ But paper is out of date when it is printed, and buoys move.",
        "client          │ against says: But paper is out of date when it is printed, and buoys move.",
        "judge           │ Against has it: it answered every point. Keep one chart on board all the same.",
    ],
}


def played(name, *arguments, **environment):
    command = [sys.executable, "-W", "error", PATTERNS[name], *arguments]
    env = {**os.environ, "PYTHONIOENCODING": "utf-8", **environment}
    done = subprocess.run(command, capture_output=True, check=False, encoding="utf-8", env=env, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def in_order(lines, wanted):
    left = iter(lines)
    return [each for each in wanted if each not in left]


def test_every_pattern_is_known():
    assert set(PATTERNS) == set(ESSENTIAL)


@pytest.mark.parametrize("name", sorted(ESSENTIAL))
def test_an_example_tells_who_says_what(name):
    told = played(name)
    assert not in_order(told, ESSENTIAL[name])
    count, _, sources = told[-1].partition(" events: ")
    assert int(count) == sum(int(each.split()[0]) for each in sources.split(", ")) > 20


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_is_short(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) < LONGEST


@pytest.mark.parametrize("path", sorted(PATTERNS.values()), ids=lambda path: path.stem)
def test_an_example_is_in_the_table(path):
    (line,) = [line for line in (EXAMPLES / "README.md").read_text().splitlines() if f"({path.name})" in line]
    assert line.endswith(". |")


def test_a_real_model_can_play():
    body = b'{"id":"1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"finish_reason":"stop",'
    body += b'"message":{"role":"assistant","content":"I improvise."}}]}'
    with serve(*[body] * 5, content_type="application/json") as server:
        told = played("debate", "--model", "mistral/m", MISTRAL_BASE_URL=server.url, MISTRAL_API_KEY="k")
    assert "judge           │ I improvise." in told
    assert len(server.requests) == 5
