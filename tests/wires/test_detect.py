"""What a JSON value was written for is told by its structure; what cannot be told is said to be ambiguous."""

import json

import pytest

import palaver as p
from palaver.wires import detect
from tests.corpus import exchanges

CHAT_LIKE = ("openai_chat", "cohere_chat", "ollama_chat")
HI = {"role": "user", "content": "hi"}


def request(**fields):
    return {"model": "m", "messages": [HI], **fields}


def turn(*content):
    return {"model": "m", "messages": [{"role": "user", "content": list(content)}]}


@pytest.mark.parametrize(
    ("body", "wires"),
    [
        pytest.param(request(), CHAT_LIKE, id="what-three-wires-share"),
        pytest.param(request(max_tokens=9), ("openai_chat", "anthropic_messages", "cohere_chat"), id="a-limit"),
        pytest.param(request(model="gpt-5"), ("openai_chat",), id="a-model-decides"),
        pytest.param(request(model="openai/gpt-5", max_tokens=9), ("openai_chat",), id="a-router's-model"),
        pytest.param(request(model="command-a"), ("cohere_chat",), id="cohere's-model"),
        pytest.param(request(model="qwen3:8b"), ("ollama_chat",), id="a-model-with-a-tag"),
        pytest.param(request(model="claude-x", max_tokens=9), ("anthropic_messages",), id="claude"),
        pytest.param(request(n=1), ("openai_chat",), id="several-choices"),
        pytest.param(request(tool_choice="REQUIRED"), ("cohere_chat",), id="a-loud-tool-choice"),
        pytest.param(request(keep_alive="5m"), ("ollama_chat",), id="keep-alive"),
        pytest.param(request(max_tokens=9, system="be brief"), ("anthropic_messages",), id="system-beside"),
        pytest.param({"messages": [HI], "inferenceConfig": {}}, ("bedrock_converse",), id="casing"),
        pytest.param(turn({"text": "hi"}), ("bedrock_converse",), id="a-block-without-type"),
        pytest.param(turn({"type": "tool_result", "tool_use_id": "t"}), ("anthropic_messages",), id="a-result-block"),
        pytest.param(turn({"type": "input_audio"}), ("openai_chat",), id="a-recording"),
        pytest.param({"contents": [{"parts": [{"text": "hi"}]}]}, ("google_generate",), id="contents"),
        pytest.param({"model": "m", "input": "hi"}, ("openai_responses",), id="input"),
        pytest.param(request(unheard_of=1, model="gpt-5"), ("openai_chat",), id="a-field-nobody-knows"),
        pytest.param({"model": "m"}, (), id="no-messages"),
        pytest.param({"messages": "hi"}, (), id="messages-that-are-no-list"),
    ],
)
def test_a_request_is_detected_by_its_fields(body, wires):
    assert detect.request(body) == wires


@pytest.mark.parametrize(
    ("kind", "wires"),
    [({"a": 1}, ("ollama_chat",)), ('{"a": 1}', ("openai_chat", "cohere_chat"))],
    ids=["an-object", "text"],
)
def test_the_form_of_arguments_tells(kind, wires):
    call = {"id": "c", "function": {"name": "f", "arguments": kind}}
    assert detect.request(request(messages=[HI, {"role": "assistant", "tool_calls": [call]}])) == wires


@pytest.mark.parametrize(
    ("body", "wires"),
    [
        ({"id": "x", "object": "chat.completion", "choices": []}, ("openai_chat",)),
        ({"id": "x", "object": "response", "output": []}, ("openai_responses",)),
        ({"type": "message", "role": "assistant", "content": []}, ("anthropic_messages",)),
        ({"candidates": []}, ("google_generate",)),
        ({"output": {"message": {}}, "stopReason": "end_turn"}, ("bedrock_converse",)),
        ({"id": "x", "message": {}, "finish_reason": "COMPLETE"}, ("cohere_chat",)),
        ({"message": {}, "done": True}, ("ollama_chat",)),
        ({"error": {"message": "no", "type": "x", "param": None}}, ("openai_chat", "openai_responses")),
        ({"error": {"message": "no", "code": 404, "status": "NOT_FOUND"}}, ("google_generate",)),
        ({"type": "error", "error": {"type": "x", "message": "no"}}, ("anthropic_messages",)),
        ({"error": "no"}, ("ollama_chat",)),
        ({"message": "no"}, ("bedrock_converse", "cohere_chat")),
        ({"a": 1}, ()),
    ],
)
def test_a_response_and_an_error_are_detected_too(body, wires):
    assert detect.response(body) == wires


@pytest.mark.parametrize(
    ("items", "wires"),
    [
        ([HI], ("openai_chat", "anthropic_messages", "cohere_chat", "ollama_chat")),
        ([{"role": "developer", "content": "be brief"}], ("openai_chat",)),
        ([{"role": "user", "content": [{"text": "hi"}]}], ("bedrock_converse",)),
        ([{"role": "user", "parts": [{"text": "hi"}]}], ("google_generate",)),
        ([{"type": "message", **HI}], ("openai_responses",)),
        ([{"role": "user", "content": [{"type": "tool_result"}]}], ("anthropic_messages",)),
        ([], ()),
        ([1, 2], ()),
    ],
)
def test_a_bare_list_of_messages_is_detected(items, wires):
    found = detect.detect(items)
    assert (() if found is None else found.wires) == wires
    assert found is None or found.kind == "conversation"


def test_of_an_exchange_the_answer_may_decide():
    answer = {"message": {"role": "assistant", "content": "yes"}, "done": True}
    assert detect.detect({"request": request(), "response": answer}) == detect.Detected("exchange", ("ollama_chat",))
    assert detect.detect({"request": request(), "wire": "cohere_chat"}).wires == ("cohere_chat",)
    assert detect.detect({"request": request(), "wire": "google_generate"}).wires == CHAT_LIKE
    assert detect.detect({"request": request()}).wires == CHAT_LIKE


@pytest.mark.parametrize(
    "body",
    [{"palaver": 1}, HI, {"type": "request", "messages": []}, {"type": "response", "message": {"role": "assistant"}}],
)
def test_the_canonical_form_is_detected_first(body):
    assert detect.detect(body) == detect.Detected("canonical")


@pytest.mark.parametrize("value", [None, 3, "hi", [], {}, {"a": 1}])
def test_what_is_nothing_of_ours_is_none(value):
    assert detect.detect(value) is None


def test_only_the_wires_asked_for_are_considered():
    assert detect.detect(request(), ("cohere_chat",)).wires == ("cohere_chat",)
    assert detect.detect(request(), ("google_generate",)) is None


@pytest.mark.parametrize("half", ["request", "response"])
def test_every_recording_is_detected_or_ambiguous(exchange, half):
    body = exchange.record.get(half)
    if body is None or set(body) == {"contentType", "method", "pathname"}:  # a 200 that is no completion
        return
    found = detect.detect(body)
    assert found.kind == half
    assert exchange.wire in found.wires
    if exchange.record["status"] < 400 and half == "response":
        assert found.wires == (exchange.wire,)


def test_few_recorded_requests_are_ambiguous():
    files = [param.values[0] for param in exchanges()]
    if files == [None]:
        pytest.skip("the recorded corpus is absent; PALAVER_CORPUS names its folder")
    unsure = [file for file in files if len(detect.request(file.record["request"])) > 1]
    assert len(unsure) <= len(files) // 100


@pytest.mark.finding("F-72")
@pytest.mark.parametrize(
    "value",
    [
        {"role": "user", "message": {"content": [{"type": "text", "text": "hello"}]}},
        {"id": "msg_1", "sessionID": "s", "role": "assistant", "time": {"created": 1}, "modelID": "m", "cost": 0},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}], "id": "u"},
        {"role": "user", "content": {"type": "text"}},
    ],
)
def test_what_another_program_wrote_is_not_our_own_form(value):
    found = detect.detect(value)
    assert found is None or found.kind != "canonical"


@pytest.mark.finding("F-72")
def test_every_message_is_seen_as_our_own_form():
    for message in (p.system("a"), p.user("b"), p.assistant("c"), p.tool("d", tool_call_id="x"), p.rescue(), p.flush()):
        assert detect.detect(json.loads(p.dumps(message))).kind == "canonical"


@pytest.mark.finding("F-72")
def test_events_in_a_list_are_no_items_of_a_request():
    events = [{"type": "RUN_STARTED", "runId": "r"}, {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "Hi"}]
    assert "openai_responses" not in (getattr(detect.detect(events), "wires", ()))
    items = [{"type": "message", "role": "user", "content": "hi"}, {"type": "some_new_item"}]
    assert detect.detect(items).wires == ("openai_responses",)
