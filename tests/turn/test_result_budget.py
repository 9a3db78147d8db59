"""The budget of the results of a turn, in runs: docs/spec/kairo.md#2.4, D26; goldens ``tool_result_budget`` and
``output_compress``."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import palaver as p
from palaver.agent import Agent, Compactor, approve, function_tool
from palaver.agent.scripted_agent import Scripted, call_of
from palaver.models.catalogue import Capabilities
from palaver.models.scripted import ScriptedModel
from palaver.store.sqlite import SQLiteStore
from palaver.turn import tool_output
from palaver.turn.results import Offload
from tests.generated import examples

pytestmark = [pytest.mark.row("KAI-17"), pytest.mark.finding("F-50")]

KEY = "tool_result_budget_"
GOLDEN = [
    (178904, 1, 100, 8192, 2048, 25, 0, 100),
    (178904, 1, 20000, 8192, 2048, 5000, 1, 8192),
    (178904, 4, 20000, 8192, 2048, 20000, 4, 8192),
    (178904, 10, 20000, 8192, 819, 50000, 10, 3276),
    (8904, 1, 20000, 3116, 2048, 5000, 1, 8192),
    (904, 2, 9000, 316, 158, 4500, 2, 632),
    (0, 1, 2000, 256, 256, 500, 1, 1024),
]
"""Remaining, results, characters of each, total, share, original tokens, how many are cut, characters that are kept."""
MANY = [(0, 8, 2000, 256, 32, 4000, 8, 128), (904, 10, 2000, 316, 31, 5000, 10, 124)]
"""Where so many results would exceed the total with 96 tokens each."""
LONG = "You keep the harbour. " * 12_000
"""Instructions beyond the windows in which an estimate has less room."""


def ran(texts: Any, window: Any, *, limit: Any = None, eager: Any = False, first: Any = (), **how: Any) -> Any:
    """A run in which a tool is called once for each text."""

    @function_tool(effect="read")
    async def look(at: int) -> str:
        """Look."""
        await anyio.lowlevel.checkpoint()
        return texts[at]

    calls = [p.ToolCall(f"c{n}", "look", json.dumps({"at": n})) for n in range(len(texts))]
    model = ScriptedModel(
        [p.assistant(*calls), "Done."], capabilities=Capabilities(window=window, max_output=1), name="one/model"
    )
    middleware = [Compactor(), *first]
    agent = Agent(model, instructions=LONG, tools=[look], middleware=middleware, result_limit=limit, eager=eager, **how)
    run = agent.sync.run("Look.")
    assert run.ok, run.reason
    return run


def results(run: Any) -> Any:
    return [message for message in run.messages if message.role == "tool"]


def remaining(texts: Any, window: Any) -> Any:
    return results(ran(texts, window))[0].metadata[f"{KEY}remaining_tokens"]


def spoken(text: Any) -> Any:
    """A result without the notes of the loop."""
    return text.partition("\n...[truncated")[0].partition("\n[Result truncated")[0].partition("\n[To read on")[0]


@pytest.mark.parametrize("row", GOLDEN + MANY)
def test_results_are_cut_to_the_shares_of_the_golden(row: Any) -> None:
    left, count, size, total, each, original, cut, kept = row
    texts = ["x" * size] * count
    window = 300_000 - remaining(texts, 300_000) + left
    run = ran(texts, window)
    found = results(run)
    assert len(found) == count
    suffix = f"\n...[truncated by ToolResultBudget: originalTokens={size // 4}, keptTokens={each}]"
    for place, message in enumerate(found):
        note = f'{suffix}\n[To read on, call read_result with {{"handle": "c{place}", "start": {kept}}}.]'
        assert message.text == "x" * kept + (note if cut else "")
        assert message.metadata[f"{KEY}applied"] is (cut > 0)
        assert message.metadata[f"{KEY}remaining_tokens"] == left
        assert message.metadata[f"{KEY}per_result_tokens"] == each
    sums = {
        name: sum(message.metadata[KEY + name] for message in found)
        for name in ("original_tokens", "kept_tokens", "truncated_count")
    }
    assert sums == {
        "original_tokens": original,
        "kept_tokens": min(size // 4, each) * count,
        "truncated_count": cut,
    }
    assert sums["kept_tokens"] <= total


SCRIPTS = st.sampled_from(["x", "é", "語", "🙂", "👨\u200d👩\u200d👧", "e\u0301", "\ud800"])


@given(
    st.lists(st.tuples(SCRIPTS, st.integers(1, 12_000)), min_size=1, max_size=12),
    st.integers(70_000, 300_000),
    st.booleans(),
    st.sampled_from([None, 500, 6_000]),
    st.booleans(),
)
@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow])
def test_the_results_of_a_turn_never_exceed_their_total(
    sizes: Any, window: Any, eager: Any, limit: Any, spilled: Any
) -> None:
    texts = [character * size for character, size in sizes]
    found = results(ran(texts, window, limit=limit, eager=eager, first=[Offload(3_000)] if spilled else []))
    left = max(message.metadata[f"{KEY}remaining_tokens"] for message in found)
    total = min(max(left * 35 // 100, 256), 8192)
    assert sum(len(spoken(message.text).encode("utf-8", "surrogatepass")) // 4 for message in found) <= total
    assert all(sorted(k for k in message.metadata if KEY in k) == KEYS for message in found)
    for message, text in zip(found, texts, strict=True):
        if limit is not None and not spilled:
            assert tool_output.count(spoken(message.text)) <= limit
        if message.text == text:
            continue
        assert "read_result" in message.text
        if not spilled and len(text) <= 20_000:  # a longer one is compressed
            assert text.startswith(spoken(message.text))
            assert tool_output.cut(text, 0, tool_output.count(spoken(message.text)))[0] == spoken(message.text)


KEYS = sorted(
    KEY + name
    for name in (
        "applied",
        "kept_tokens",
        "original_tokens",
        "per_result_tokens",
        "remaining_tokens",
        "truncated_count",
    )
)


def test_the_limit_of_the_loop_holds_where_it_is_smaller() -> None:
    (found,) = results(ran(["x" * 7_900], 300_000, limit=6_000))
    assert found.text.startswith("x" * 6_000 + "\n[Result truncated: showing the first 6000 of 7900 characters.]")
    (found,) = results(ran(["x" * 9_000], 300_000, limit=6_000))
    assert found.text.startswith("x" * 6_000 + "\n[Result truncated: showing the first 6000 of 9000 characters.]")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("x" * 30_000, "x" * 2000 + "\n[... 25000 chars omitted (middle) ...]\n" + "x" * 3000),
        ("line\n" * 10_000, "line\n[repeated 9999 more time(s)]\n"),
        ("x" * 20_000, "x" * 8_192),
    ],
)
def test_a_result_above_20000_characters_is_compressed(text: Any, shown: Any) -> None:
    run = ran([text], 300_000, limit=6_000 if len(shown) < 6_000 else None)
    (found,) = results(run)
    assert spoken(found.text) == shown
    start = json.loads(found.text.rpartition("read_result with ")[2].removesuffix(".]"))["start"]
    assert text[:start] == shown[:start]
    assert shown[start : start + 1] != text[start : start + 1]


def test_results_that_wait_for_a_decision_have_a_budget_in_another_process(tmp_path: Any) -> None:
    @function_tool
    def send(at: int) -> str:
        """Send."""
        return "sent " * 20_000

    def agent(*script: Any) -> Any:
        model = ScriptedModel(script, capabilities=Capabilities(window=100_000, max_output=1))
        return Agent(model, tools=[send], middleware=[Compactor()], policy={"send": "ask"}, result_limit=None)

    calls = [p.ToolCall(f"c{n}", "send", json.dumps({"at": n})) for n in range(8)]
    with SQLiteStore(tmp_path / "t.db") as store:
        run = agent(p.assistant(*calls)).sync.run("Send.", thread=store.open("t"))
        assert run.outcome == "waiting"
    with SQLiteStore(tmp_path / "t.db") as store:
        decisions = {call.id: approve() for call in calls}
        run = agent("Sent.").sync.run(thread=store.open("t"), decisions=decisions)
        assert run.ok
        found = results(run)
    assert [message.metadata[f"{KEY}per_result_tokens"] for message in found] == [1024] * 8
    assert all(len(message.text) < 1024 * 4 + 400 for message in found)


@pytest.mark.parametrize("middleware", [Compactor(), Offload()])
def test_a_script_gets_the_whole_result_of_its_hidden_call(middleware: Any) -> None:
    @function_tool
    def look() -> str:
        """Look."""
        return "seen " * 20_000

    heard: list[Any] = []

    def script(_: Any) -> Any:
        heard.append((yield call_of("look", hidden=True)))

    model = ScriptedModel(["Done."], capabilities=Capabilities(window=100_000, max_output=1))
    assert Agent(model, tools=[look], middleware=[middleware, Scripted(script)]).sync.run("Go.").ok
    assert len(heard[0].result.content[0].text) == 100_000
