"""What stands in the place of something taken out (golden ``compaction``, ``labels``)."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

import palaver as p
from palaver.context import labels
from palaver.testing.strategies import odd_text
from palaver.tokens import estimate, estimate_text
from tests.context.goldens import AT, COMPACTION


@pytest.mark.row("KAI-10")
@pytest.mark.parametrize("row", COMPACTION["label_rows"])
def test_reasoning_labels_are_the_golden(row: dict[str, str]) -> None:
    assert labels.reasoning_label(row["in"]) == row["out"]


@pytest.mark.row("KAI-10")
def test_labels_have_the_golden_form() -> None:
    golden = COMPACTION["labels"]
    result = p.tool("é" * 10, tool_call_id="c0", sent_at=AT)
    assert labels.result_label(result) == "[Result: c0 - success - 20 bytes]"
    assert labels.result_label(result.replace(is_error=True)) == "[Result: c0 - error - 20 bytes]"
    assert labels.snipped_label(result) == golden["snip"].replace("<tool_call_id>", "c0").replace(
        "<ISO time>", "2026-01-01T00:00:00Z"
    )
    assert labels.snipped_label(result.replace(sent_at=None)) == "[Tool result snipped - c0]"
    assert labels.snipped_label(result.replace(sent_at=10**30)).startswith("[Tool result snipped - c0 at ")
    assert labels.collapsed_label({"read": 2, "write": 1}, 0) == golden["all_ok"].replace("<n>", "3").replace(
        "<name> x<k>, ...", "read x2, write x1"
    )
    assert labels.partial_label(7, 90, 5) == golden["partial_from"].replace("<n>", "7").replace("<t>", "90")
    assert labels.partial_up_to_label(7, 90, "m3") == golden["partial_up_to"].replace("<n>", "7").replace(
        "<t>", "90"
    ).replace("<id>", "m3")
    assert golden["truncated_text"].endswith(labels.CUT)


def test_a_result_of_many_parts_is_measured_whole() -> None:
    image = p.Image(p.Inline("AAAA"), "image/png")
    message = p.tool("abc", p.Json.of([1, 2]), image, p.Opaque("w", p.Json.of({}).value_json), tool_call_id="c")
    assert labels.result_label(message) == f"[Result: c - success - {3 + 5 + 3 + 2} bytes]"
    assert labels.result_label(p.tool(tool_call_id="c")) == "[Result: c - success - 0 bytes]"
    assert labels.result_label(p.tool(p.Image(p.Url("https://e.com/x")), tool_call_id="c")).endswith("- 0 bytes]")


@given(odd_text(200))
def test_a_label_weighs_what_the_estimate_says(text: str) -> None:
    assert labels.result_tokens(text) == estimate(p.tool(text))
    assert estimate_text(text) == estimate(p.user(text)) == estimate(p.assistant(p.Reasoning(text)))


@given(odd_text(200) | st.text())
def test_the_label_of_a_label_is_the_label(text: str) -> None:
    label = labels.reasoning_label(text)
    assert labels.reasoning_label(label) == label


def test_what_a_tool_said_is_no_label() -> None:
    said = p.tool("[Result: c0 - success - 400 bytes]", tool_call_id="c")
    assert not labels.is_label(said)
    assert not labels.is_label(said.replace(metadata={"session": 1}))
    assert labels.is_label(said.replace(metadata={"compaction": "micro"}))
    assert not labels.is_label(p.tool("x", tool_call_id="c", metadata={"compaction": "shorten"}))
