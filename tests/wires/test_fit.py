"""Law 5: any history goes to any wire, and what did not make it is on the receipt.

Source: docs/spec/wires.md#9, docs/spec/pains.md#1, #7.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

import palaver as p
from palaver import wires
from palaver.stream.replay_events import replay_events
from palaver.testing import rules
from tests.corpus import Exchange
from tests.folding import over
from tests.generated import fifty
from tests.wires.histories import FOREIGN, carriers, histories

TARGETS = [*wires.names(), *(f"openai_chat:{name}" for name in wires.variants("openai_chat"))]


def _variant(target: str) -> str | None:
    return target.partition(":")[2] or None


def _refused(target: str, body: bytes) -> list[Any]:
    return rules.check_request(target.partition(":")[0], body, _variant(target))


def _values(body: bytes) -> str:
    """The body's strings as they are, escapes undone."""
    return json.dumps(json.loads(body), ensure_ascii=False)


TOOLS = (p.Tool.of("search", "Find things.", {"type": "object", "properties": {"q": {"type": "string"}}}),)


@pytest.mark.law(5)
@fifty
@given(messages=histories())
@over("target", TARGETS)
def test_any_history_satisfies_the_provider(target: str, messages: tuple[p.Message, ...]) -> None:
    request = p.Request(messages=messages, model="some-model", tools=TOOLS)
    encoded = wires.get(target).encode_request(request)
    assert _refused(target, encoded.body) == []


@pytest.mark.law(5)
@fifty
@given(messages=histories())
@over("target", TARGETS)
def test_every_part_arrives_or_is_on_the_receipt(target: str, messages: tuple[p.Message, ...]) -> None:
    encoded = wires.get(target).encode_request(p.Request(messages=messages))
    body = _values(encoded.body).replace("\\\\", "\\").replace('\\"', '"')
    for index, position, shown in carriers(messages):
        told = [x for x in encoded.losses if x.message == index and x.part in (position, None)]
        assert shown in body or told, f"{type(messages[index].content[position]).__name__} vanished"
        if any(x.kind == "dropped" and x.part == position and x.what not in {"citations", "file name"} for x in told):
            assert shown not in body, "reported as dropped, and sent"


@pytest.mark.law(5)
@pytest.mark.finding("F-71")
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("empty", [p.user(), p.assistant(), p.system(), p.developer()], ids=lambda each: each.role)
def test_a_message_without_content_is_on_the_receipt(target: str, empty: p.Message) -> None:
    said = (p.user("a"), p.assistant("b"), empty, p.user("c"))
    losses = wires.get(target).encode_request(p.Request(messages=said, model="m")).losses
    named = [(each.kind, each.what, each.message) for each in losses if each.message == 2]
    assert named == [("dropped", f"{empty.role} message", 2)]
    marked = (*said[:2], p.flush(), p.rescue(), said[3])  # markers are never sent, and lose nothing
    assert len(wires.get(target).encode_request(p.Request(messages=marked, model="m")).losses) == len(losses) - 1


@pytest.mark.row("MSG-12")
@pytest.mark.finding("F-05")
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("origin", [*wires.names(), FOREIGN, None])
def test_reasoning_of_another_wire_is_not_sent_and_on_the_receipt(target: str, origin: str | None) -> None:
    thought = p.Reasoning("tokthought", signature="sigtok", wire=origin)
    messages = (p.user("hi"), p.assistant(thought, "so"), p.user("on"))
    encoded = wires.get(target).encode_request(p.Request(messages=messages))
    lost = [(x.kind, x.message, x.part) for x in encoded.losses if x.what == "reasoning"]
    if origin == target.partition(":")[0]:
        return  # what its own wire does with it is a matter of that wire and its variants
    assert lost == [("dropped", 1, 0)]
    assert "tokthought" not in _values(encoded.body)
    assert "sigtok" not in _values(encoded.body)


@pytest.mark.row("MSG-08")
@fifty
@given(messages=histories())
@over("target", TARGETS)
def test_nothing_foreign_is_sent(target: str, messages: tuple[p.Message, ...]) -> None:
    marked = tuple(
        message.replace(
            provider={FOREIGN: {"field": f"foreign{index}"}},
            metadata={"trace": f"meta{index}"},
            payload={"image_id": f"load{index}"},
        )
        for index, message in enumerate(messages)
    )
    encoded = wires.get(target).encode_request(p.Request(messages=marked))
    body = _values(encoded.body)
    for word in ("foreign", "meta0", "load0", FOREIGN, "sigtok"):
        assert word not in body
    for index, message in enumerate(marked):
        if not isinstance(message, (p.RescueMarker, p.FlushMarker)):
            assert any(x.message == index and x.what == "field" for x in encoded.losses)
        for position, part in enumerate(message.content):
            if isinstance(part, p.Reasoning):
                assert any(x.message == index and x.part == position and x.what == "reasoning" for x in encoded.losses)


@pytest.mark.row("MSG-07")
@fifty
@given(messages=histories())
@over("target", TARGETS)
def test_metadata_payload_tags_mode_and_source_change_no_body(target: str, messages: tuple[p.Message, ...]) -> None:
    wire = wires.get(target)
    changed = tuple(
        m.replace(metadata={"a": 1}, payload=[2], tags=("t", "u"), mode="tool", source="note", agent="b")
        for m in messages
    )
    plain, marked = (wire.encode_request(p.Request(messages=each)) for each in (messages, changed))
    assert plain.body == marked.body
    assert plain.losses == tuple(loss for loss in marked.losses if loss.what != "metadata")
    read = [m for m in messages if not isinstance(m, (p.ToolMessage, p.RescueMarker, p.FlushMarker))]
    kept = [p.Loss("dropped", "metadata", "'a': not among the keys that may leave")] if read else []
    assert [loss for loss in marked.losses if loss.what == "metadata"] == kept


PROOFS: dict[str, dict[str, Any]] = {
    "openai_responses": {"encrypted": "sigtok"},
    "anthropic_messages": {"signature": "sigtok"},
    "google_generate": {"signature": "sigtok"},
    "bedrock_converse": {"signature": "sigtok"},
    "cohere_chat": {},
    "ollama_chat": {},
}
"""The proof that reasoning of a wire carries there. Chat Completions has no field for reasoning but its vendors'."""


@pytest.mark.row("MSG-12")
@pytest.mark.finding("F-05")
@pytest.mark.parametrize("name", wires.names())
def test_reasoning_goes_back_to_its_own_wire_unmodified(name: str) -> None:
    thought = p.Reasoning('tok "thought"\n', wire=name, **PROOFS.get(name, {}))
    encoded = wires.get(name).encode_request(p.Request((p.user("hi"), p.assistant(thought, "so"), p.user("on"))))
    lost = [(x.kind, x.message) for x in encoded.losses if x.what == "reasoning"]
    if name not in PROOFS:
        assert lost == [("dropped", 1)]
        return
    [again] = [
        part
        for message in wires.get(name).decode_request(encoded.body).messages
        for part in message.content
        if isinstance(part, p.Reasoning)
    ]
    assert (again.text, again.signature, again.encrypted) == (thought.text, thought.signature, thought.encrypted)
    assert lost == []


@fifty
@given(messages=histories())
@over("target", TARGETS)
def test_repair_is_deterministic_and_settles(target: str, messages: tuple[p.Message, ...]) -> None:
    wire = wires.get(target)
    once = wire.encode_request(p.Request(messages=messages))
    assert wire.encode_request(p.Request(messages=messages)).body == once.body
    again = wire.encode_request(wire.decode_request(once.body).replace())
    assert json.loads(again.body) == json.loads(once.body)


@fifty
@given(messages=histories(), cuts=st.lists(st.integers(0, 8), max_size=3))
@over("target", TARGETS)
def test_growing_gives_what_encoding_at_once_gives(
    target: str, messages: tuple[p.Message, ...], cuts: list[int]
) -> None:
    wire = wires.get(target)
    encoder = wire.request_encoder(p.Request(tools=TOOLS))
    marks = sorted({min(cut, len(messages)) for cut in cuts} | {0, len(messages)})
    for start, end in itertools.pairwise(marks):
        encoder.append(*messages[start:end])
        at_once = wire.encode_request(p.Request(messages=messages[:end], tools=TOOLS))
        assert b"".join(encoder.chunks()) == at_once.body
        assert encoder.losses == at_once.losses


_TWO_CALLS = [p.assistant(tool_calls=[p.tool_call("f", {}, id=f"call0000{each}")]) for each in (0, 1)]
"""Two answers, one behind the other; the result of the first comes behind the second."""


@st.composite
def late_results(draw: Any) -> tuple[p.Message, ...]:
    """Calls whose results come late, out of order, or never, with answers and users between them."""
    messages: list[p.Message] = [p.user("go")]
    for number in range(draw(st.integers(2, 6))):
        asked = p.assistant("so" * draw(st.integers(0, 1)), tool_calls=[p.tool_call("f", {}, id=f"call{number:05d}")])
        of = draw(st.integers(0, max(0, number - 1)))
        result = p.tool("r", tool_call_id=f"call{of:05d}")
        messages.append(draw(st.sampled_from([asked, asked, result, result, p.user("on"), p.assistant("well")])))
    return tuple(messages)


@fifty
@given(messages=late_results(), cut=st.integers(1, 6))
@over("target", TARGETS)
@example((p.user("a"), *_TWO_CALLS, p.tool("r", tool_call_id="call00000")), 3)
def test_growing_gives_the_same_where_results_come_late(target: str, messages: tuple[p.Message, ...], cut: int) -> None:
    wire = wires.get(target)
    encoder = wire.request_encoder(p.Request(messages[:cut], model="m"))
    encoder.append(*messages[cut:])
    at_once = wire.encode_request(p.Request(messages, model="m"))
    assert b"".join(encoder.chunks()) == at_once.body
    assert encoder.losses == at_once.losses


@pytest.mark.row("MSG-05")
@pytest.mark.parametrize("target", TARGETS)
def test_markers_are_never_sent(target: str) -> None:
    messages = (p.user("one"), p.rescue("secret reason"), p.assistant("two"), p.flush(), p.user("three"))
    encoded = wires.get(target).encode_request(p.Request(messages=messages))
    plain = wires.get(target).encode_request(p.Request(messages=(messages[0], messages[2], messages[4])))
    assert encoded.body == plain.body
    assert b"secret" not in encoded.body


@pytest.mark.row("MSG-10")
@pytest.mark.parametrize("target", TARGETS)
def test_a_malformed_call_is_never_sent_as_a_call(target: str) -> None:
    messages = (
        p.user("go"),
        p.assistant("on it", tool_calls=[p.MalformedToolCall("<call>{raw text", "cut off", "search", "c1")]),
        p.tool("never ran", tool_call_id="c1"),
        p.user("well?"),
    )
    wire = wires.get(target)
    encoded = wire.encode_request(p.Request(messages=messages))
    decoded = wire.decode_request(encoded.body)
    assert not any(m.tool_calls or m.malformed_tool_calls or isinstance(m, p.ToolMessage) for m in decoded.messages)
    told = [m for m in decoded.messages if isinstance(m, p.UserMessage) and "<call>{raw text" in m.text]
    assert told
    assert {(x.message, x.kind) for x in encoded.losses} >= {(1, "converted"), (2, "converted")}


@pytest.mark.row("MSG-11")
@pytest.mark.conflict("C25")
@pytest.mark.parametrize("target", TARGETS)
def test_a_model_without_vision_gets_no_image(target: str) -> None:
    image = p.Image(p.Inline("iVBORw0KGgo="), "image/png")
    call = p.tool_call("look", {}, id="c12345678")
    messages = (
        p.user("see", image, image),
        p.assistant(tool_calls=[call]),
        p.tool("seen", image, tool_call_id=call.id),
        p.user("and?"),
    )
    encoded = wires.get(target).encode_request(p.Request(messages=messages), takes=())
    assert b"iVBORw0KGgo" not in encoded.body
    lost = [(x.message, x.part) for x in encoded.losses if x.what == "image" and x.kind == "dropped"]
    assert lost == [(0, 1), (0, 2), (2, 1)]
    assert messages[0].images == (image, image)


@pytest.mark.row("MSG-11")
def test_a_request_of_its_own_wire_is_stripped_too() -> None:
    url = "data:image/png;base64,iVBORw0KGgo="
    content = [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": url}}]
    body = {"model": "m", "messages": [{"role": "user", "content": content}]}
    request = wires.get("openai_chat").decode_request(body)
    encoded = wires.get("openai_chat").encode_request(request, takes=())
    assert b"iVBORw0KGgo" not in encoded.body
    assert [(x.message, x.part, x.what) for x in encoded.losses] == [(0, 1, "image")]


@pytest.mark.parametrize("target", TARGETS)
def test_a_longer_conversation_begins_with_the_same_bytes(target: str) -> None:
    """docs/spec/pains.md#10: prompt caches live on byte prefixes."""
    messages: list[p.Message] = [p.system("Be brief.")]
    for turn in range(6):
        call = p.tool_call("search", {"q": turn}, id=f"call{turn:05d}")
        messages += [
            p.user(f"q{turn}"),
            p.assistant(tool_calls=[call]),
            p.tool("r", tool_call_id=call.id),
            p.assistant("a"),
        ]
    wire = wires.get(target)
    bodies = [wire.encode_request(p.Request(messages=tuple(messages[: 2 + 4 * n]), tools=TOOLS)).body for n in range(6)]
    for shorter, longer in itertools.pairwise(bodies):
        assert longer.startswith(shorter.rstrip(b"]}"))


@pytest.mark.parametrize("target", wires.names())
def test_losses_raise(target: str) -> None:
    request = p.Request(messages=(p.user("hi"), p.assistant(p.Reasoning("r", wire=FOREIGN)), p.user("on")))
    with pytest.raises(p.LossError, match="reasoning") as caught:
        wires.get(target).encode_request(request, losses="raise")
    assert caught.value.losses


@pytest.mark.law(5)
@pytest.mark.recorded(share=8)
def test_recorded_requests_go_to_every_wire(exchange: Exchange) -> None:
    request = wires.get(exchange.wire).decode_request(exchange.record["request"])
    request = request.replace(model=request.model or "some-model")  # some wires name it in the address
    for target in TARGETS:
        if target != exchange.wire:
            encoded = wires.get(target).encode_request(request)
            assert _refused(target, encoded.body) == [], target


@pytest.mark.law(5)
@pytest.mark.recorded(share=4)
def test_a_turn_elsewhere_leaves_the_own_turns_alone(exchange: Exchange) -> None:
    """docs/spec/pains.md#7: A → B → A, where B added a turn, gives A's own turns byte for byte."""
    wire = wires.get(exchange.wire)
    request = wire.decode_request(exchange.record["request"])
    closed = _closed(request)
    before = b"".join(list(wire.request_encoder(closed).chunks()))
    other = wires.get("openai_chat" if exchange.wire != "openai_chat" else "ollama_chat")
    other.encode_request(closed)
    grown = closed.append(p.assistant("from elsewhere", p.Reasoning("r", wire=FOREIGN)), p.user("go on"))
    after = wire.encode_request(grown).body
    assert after.startswith(before.rstrip(b"]}"))


def _closed(request: p.Request) -> p.Request:
    """The request as an edited one, ended by a user so that no rule on the last message applies."""
    return request.replace(messages=(*request.messages, p.user("next")))


@pytest.mark.parametrize(
    "target",
    ["openai_chat", "openai_chat:mistral", "openai_responses", "anthropic_messages", "anthropic_messages:vertex"],
)
def test_a_rule_on_parallel_calls_goes_with_the_last_tool(target: str):
    body = {
        "model": "m",
        "parallel_tool_calls": False,
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "messages": [{"role": "user", "content": "q"}],
    }
    request = wires.get("openai_chat").decode_request(body).replace(tools=())
    encoded = wires.get(target).encode_request(request)
    assert b"parallel" not in encoded.body
    assert p.Loss("dropped", "parallel_tool_calls", "there are no tools to call") in encoded.losses


def test_a_stored_prompt_may_have_the_tools_that_are_chosen():
    body = {"prompt": {"id": "pmpt_1"}, "input": "q", "tool_choice": "required", "parallel_tool_calls": False}
    request = wires.get("openai_responses").decode_request(body).replace(model="m")
    sent = json.loads(wires.get("openai_responses").encode_request(request, losses="raise").body)
    assert (sent["tool_choice"], sent["parallel_tool_calls"]) == ("required", False)


USED = p.Usage(input=1, cache_read=0, cache_write=0, output=1, reasoning=0)


@pytest.mark.parametrize("target", [name for name in wires.names() if name not in {"openai_chat", "google_generate"}])
def test_of_alternatives_that_are_not_sent_nothing_else_is_lost(target: str):
    others = (p.assistant(p.Refusal("no"), p.Reasoning("h", wire="openai_chat")),)
    answer = p.assistant("a", finish_reason="stop", usage=USED)
    losses = wires.get(target).encode_response(p.Response(answer, others)).losses
    assert [loss.what.rstrip("s") for loss in losses if loss.what not in {"model", "response_id"}] == ["alternative"]


@pytest.mark.parametrize("model", ["claude-opus-4-8", "us.anthropic.claude-opus-4-8-v1:0"])
def test_a_budget_that_is_sent_as_an_effort_is_lost_once(model: str):
    request = p.Request((p.user("q"),), model, settings=p.Settings(reasoning_tokens=2048))
    encoded = wires.get("bedrock_converse").encode_request(request)
    body = json.loads(encoded.body)
    assert body["outputConfig"] == {"effort": "medium"}
    assert body["additionalModelRequestFields"] == {"thinking": {"type": "adaptive"}}
    assert [(loss.kind, loss.what) for loss in encoded.losses] == [("approximated", "reasoning_tokens")]


URL = p.Image(p.Url("https://a.example/a.png"), "image/png")
NAMED = p.File(p.Inline("AA=="), "application/pdf", "a/b.pdf")
THOUGHT = p.Reasoning("h", wire="anthropic_messages", signature="c2ln")


@pytest.mark.parametrize(
    ("target", "messages", "what", "place"),
    [
        (
            "google_generate",
            (p.user("q"), p.assistant(THOUGHT, "Look.", p.tool_call("f", {}, id="1")), p.tool("x", tool_call_id="1")),
            "tool call",
            2,
        ),
        ("bedrock_converse", (p.assistant("a"), p.user(URL, "a", NAMED)), "file name", 2),
        (
            "bedrock_converse",
            (p.assistant(p.tool_call("f", {}, id="1")), p.tool(URL, p.Json.of([1]), tool_call_id="1")),
            "json",
            1,
        ),
    ],
)
def test_a_receipt_names_parts_as_they_were_given(target: str, messages: tuple[p.Message, ...], what: str, place: int):
    wire = wires.get(target)
    encoder = wire.request_encoder(p.Request(messages[:1], "gemini-3-pro"))
    encoder.append(*messages[1:])
    for losses in (wire.encode_request(p.Request(messages, "gemini-3-pro")).losses, encoder.losses):
        assert [(loss.message, loss.part) for loss in losses if loss.what == what] == [(1, place)]


def test_a_receipt_counts_the_parts_that_another_vendor_wrote():
    content = [{"type": "musings", "musings": "m"}, {"type": "text", "text": "cut \ud800"}]
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}}
    answer = wires.get("openai_chat:vllm").decode_response(json.dumps({"id": "r", "choices": [choice]})).message
    encoded = wires.get("openai_chat").encode_request(p.Request((p.user("q"), answer, p.user("r")), "m"))
    assert [(loss.what, loss.part) for loss in encoded.losses] == [("opaque block", 0), ("text", 1)]


def _incomplete(reason: str) -> p.Response:
    body = {"id": "r", "status": "incomplete", "incomplete_details": {"reason": reason}, "output": []}
    return wires.get("openai_responses").decode_response(body)


@pytest.mark.parametrize("wire", ["openai_chat", "anthropic_messages", "google_generate", "bedrock_converse"])
def test_a_field_that_says_what_the_finish_reason_says_is_no_loss(wire: str) -> None:
    response = _incomplete("max_output_tokens")
    assert not any("incomplete_details" in loss.what for loss in wires.get(wire).encode_response(response).losses)
    losses = wires.get(wire).encode_response(_incomplete("a word of tomorrow")).losses
    assert any("incomplete_details" in loss.what for loss in losses)


def test_a_loss_of_a_whole_answer_is_of_the_response() -> None:
    response = p.Response(p.assistant("a"), (p.assistant("b"),))
    losses = wires.get("openai_responses").encode_response(response).losses
    assert [str(loss) for loss in losses] == ["response: alternative dropped (the wire gives one answer)"]
    assert [p.Loss("dropped", "alternative", "the wire gives one answer", whole="response")] == list(losses)
    stream = wires.get("openai_chat").stream_encoder()
    for event in replay_events(_incomplete("a word of tomorrow")):
        stream.feed(event)
    stream.finish()
    assert {loss.where for loss in stream.losses if loss.message is None} == {"response"}
