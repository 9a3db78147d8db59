"""Estimates by the golden formula, and what it does not name: media, system messages, tools, proofs, names."""

import pytest
from hypothesis import given
from msgspec import UNSET

import palaver as p
from palaver.core.parts import AnyPart
from palaver.core.request import OutputFormat
from palaver.testing import strategies
from palaver.tokens import estimate, estimate_media, estimate_reasoning, estimate_text, estimate_tools, overhead
from palaver.tokens.estimate import has_proof

_PNG = p.Image(p.Inline("iVBORw0KGgo="), "image/png")

# characters, said, result; and characters of the arguments, call (KAI-03, golden `token_estimate`)
GOLDEN = [
    (0, 1, 1, 4, 1),
    (1, 1, 1, 5, 1),
    (3, 1, 1, 7, 1),
    (4, 1, 1, 8, 1),
    (7, 2, 1, 11, 2),
    (10, 2, 2, 14, 2),
    (35, 10, 7, 39, 7),
    (100, 28, 22, 104, 20),
    (1000, 285, 222, 1004, 200),
]


@pytest.mark.row("KAI-03")
@pytest.mark.parametrize(("size", "said", "result", "arguments", "call"), GOLDEN)
def test_the_golden_formula(size, said, result, arguments, call):
    text = "x" * size
    assert estimate(p.user(text)) == estimate_text(text) == said
    assert estimate(p.assistant(reasoning=text)) == said
    assert estimate(p.tool(text, tool_call_id="c")) == result
    written = p.ToolCall("an id", "a_name", '"' + "x" * (arguments - 2) + '"')
    assert estimate(p.assistant(tool_calls=[written])) == call


@pytest.mark.row("KAI-03")
def test_a_message_is_the_sum_of_its_parts_and_an_empty_one_is_nothing():
    assert estimate(p.assistant()) == 0
    call = p.ToolCall("c", "f", "x" * 50)
    assert estimate(p.assistant("x" * 35, "x" * 7, tool_calls=[call])) == 10 + 2 + 10


@pytest.mark.row("KAI-03")
def test_what_the_original_leaves_out_counts():
    assert estimate(p.user(_PNG)) > 0
    assert estimate(p.system("Be brief.")) > 0
    assert estimate(p.developer("Be brief.")) > 0
    tool = p.Tool.of("find", "Finds files.", {"type": "object", "properties": {"glob": {"type": "string"}}})
    assert estimate_tools([tool]) > 0
    assert estimate_tools([tool, tool]) == 2 * estimate_tools([tool])
    assert estimate_tools([p.ProviderTool("openai_responses", strategies.jsontext.raw({"type": "web_search"}))]) > 0


def test_the_schema_of_the_answer_counts_with_the_tools():
    schema = strategies.jsontext.raw({"type": "object", "properties": {"name": {"type": "string"}}})
    assert estimate_tools([], OutputFormat("json_schema", schema)) > 0
    assert estimate_tools([], OutputFormat("json", UNSET)) == 0


def test_other_scripts_take_more_tokens_for_a_character():
    assert estimate_text("д" * 700) == 400
    assert estimate_text("語" * 700) == 600
    assert estimate_text("\ud800" * 7) == 6


def test_a_proof_stands_for_the_reasoning_that_the_text_digests():
    assert estimate(p.assistant(p.Reasoning("x" * 35, signature="s" * 800))) == 100
    assert estimate(p.assistant(p.Reasoning("x" * 700, encrypted="s" * 80))) == 200
    call = p.ToolCall("c", "f", "{}")
    signed = call.replace(provider={"google_generate": {"thoughtSignature": "s" * 1000}})
    marked = call.replace(provider={"anthropic_messages": {"cache_control": {"type": "ephemeral"}}})
    assert estimate(p.assistant(tool_calls=[signed])) > 100
    assert estimate(p.assistant(tool_calls=[marked])) == estimate(p.assistant(tool_calls=[call])) == 1
    assert has_proof(p.assistant(tool_calls=[signed]))
    assert not has_proof(p.assistant(p.Reasoning("thought"), tool_calls=[marked]))


def test_overhead_counts_calls_and_is_no_part_of_the_estimate():
    call = p.ToolCall("c", "f", "{}")
    assert overhead(p.assistant("hi", tool_calls=[call, call])) > overhead(p.assistant("hi", tool_calls=[call]))
    assert overhead(p.tool("hi", tool_call_id="c")) > overhead(p.user("hi")) > 0


@given(strategies.any_messages(newer=True))
def test_every_message_has_an_estimate_and_its_shares_are_within_it(message):
    whole = estimate(message)
    assert whole >= len(message.content)
    assert 0 <= estimate_reasoning(message) <= whole
    assert 0 <= estimate_media(message) <= whole
    parts: list[AnyPart] = list(message.content)
    assert whole == sum(estimate(message.replace(content=[part])) for part in parts)


@given(strategies.tools())
def test_every_tool_has_an_estimate(tool):
    assert estimate_tools([tool]) > 0


@pytest.mark.parametrize(
    "part", [_PNG, p.Opaque("elsewhere", strategies.jsontext.raw({})), p.Text("hi"), p.ToolCall("c", "f")]
)
def test_long_fields_of_a_wire_count_as_reasoning_only_where_they_count_at_all(part):
    message = p.assistant(part.replace(provider={"google_generate": {"thoughtSignature": "s" * 900}}))
    plain = p.assistant(part)
    assert estimate(message) - estimate(plain) in (estimate_reasoning(message), estimate_reasoning(message) - 1)
