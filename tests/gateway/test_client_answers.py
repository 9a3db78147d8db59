"""What clients get of answers of models that speak another wire: fields, ends and order."""

import json
import time
from queue import Queue

import httpx
import openai
import pytest
from msgspec import structs

from palaver import Request, Response, Tool, Usage, assistant, tool, tool_call, user
from palaver.core import jsontext
from palaver.core.errors import StreamError
from palaver.core.parts import Reasoning, Refusal, Text
from palaver.gateway import GatewayConfig
from palaver.gateway.reasoning_memory import is_random
from palaver.gateway.stored_responses import ResponseOptions
from tests.gateway.running import PROVIDERS, running, targets
from tests.gateway.test_wires import decoded, path_of
from tests.gateway.translated import BOTH, answers, ask, asked

OTHERS = [each for each in PROVIDERS if each != "openai_chat"]
FINE = Response(assistant(Text("Fine."), model="model-1", usage=Usage(input=10, output=4), finish_reason="stop"))
ASKED = Request((user("How are you?"),))


def data_of(text):
    """The objects of a stream of server-sent events."""
    return [json.loads(each[6:]) for each in text.splitlines() if each.startswith("data: {")]


# -- usage in streams of Chat Completions --------------------------------------------------------


@pytest.mark.row("GW-09")
@pytest.mark.parametrize("options", [{}, {"stream_options": {"include_usage": False}}, {"stream_options": None}])
@pytest.mark.parametrize("model", OTHERS)
def test_each_chunk_of_a_plain_chat_stream_has_a_choice(gateway, provider, model, options):
    answers(provider, model, FINE, stream=True)
    with openai.OpenAI(base_url=f"{gateway}/v1", api_key="k", max_retries=0) as client:
        chunks = client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": "Hi"}], stream=True, **options
        )
        assert "".join([each.choices[0].delta.content or "" for each in chunks]) == "Fine."


@pytest.mark.row("GW-09")
def test_fields_of_a_server_of_chat_stand_in_chunks_with_a_choice(provider):
    model = "openai_chat"
    answers(provider, model, FINE, stream=True)
    provider.body = provider.body.replace(b'"object"', b'"vendor":{"a":1},"object"')
    target = structs.replace(targets(provider.url)[model], text_calls="hermes")
    with running(GatewayConfig(models={model: target})) as url:
        got = httpx.post(
            f"{url}/v1/chat/completions",
            json={"model": model, "messages": [{"role": "user", "content": "Hi"}], "stream": True},
        )
    chunks = data_of(got.text)
    assert all(each["choices"] for each in chunks)
    assert chunks[-1]["vendor"] == {"a": 1}


@pytest.mark.row("GW-09")
@pytest.mark.parametrize("model", OTHERS)
def test_a_chat_stream_tells_usage_where_the_client_asks_for_it(gateway, provider, model):
    got, _ = ask(gateway, provider, ("openai_chat", model), ASKED, FINE, stream=True)
    *chunks, last = data_of(got.text)
    assert all(each["choices"] for each in chunks)
    assert (last["choices"], last["usage"]["total_tokens"]) == ([], 14)


# -- the time of an answer -------------------------------------------------------------------------


@pytest.mark.row("GW-09")
@BOTH
@pytest.mark.parametrize("model", ["anthropic_messages", "google_generate", "cohere_chat", "ollama_chat"])
@pytest.mark.parametrize("client", ["openai_chat", "openai_responses", "ollama_chat"])
def test_an_answer_has_the_time_when_it_was_given(gateway, provider, client, model, stream):
    if client == model:
        return
    before = int(time.time())
    got, _ = ask(gateway, provider, (client, model), ASKED, FINE, stream=stream)
    bodies = [got.json()] if not stream else data_of(got.text) or [json.loads(each) for each in got.text.splitlines()]
    bodies = [each.get("response", each) for each in bodies if not each.get("type", "").endswith((".delta", ".done"))]
    if client == "ollama_chat":
        assert not any(each["created_at"].startswith("1970") for each in bodies)
        return
    field = "created" if client == "openai_chat" else "created_at"
    times = {each[field] for each in bodies if field in each}
    assert len(times) == 1
    assert before <= times.pop() <= time.time()


@pytest.mark.row("GW-09")
def test_the_time_that_a_model_names_stays(gateway, provider):
    told = FINE.replace(message=FINE.message.replace(sent_at=1_700_000_000_000))
    got, _ = ask(gateway, provider, ("openai_responses", "openai_chat"), ASKED, told)
    assert got.json()["created_at"] == 1_700_000_000


# -- signatures of Gemini, for clients that send no reasoning back ----------------------------------

SIGNED = {
    "calls": [
        {"functionCall": {"name": "weather", "args": {"city": "Husum"}}, "thoughtSignature": "U0lHTkFUVVJF"},
        {"functionCall": {"name": "weather", "args": {"city": "Kiel"}}},
    ],
    "calls with ids": [
        {"functionCall": {"name": "weather", "args": {}, "id": "a1"}, "thoughtSignature": "U0lHTkFUVVJF"},
    ],
    "a thought and calls": [
        {"text": "Where?", "thought": True},
        {"functionCall": {"name": "weather", "args": {"city": "Husum"}}, "thoughtSignature": "U0lHTkFUVVJF"},
    ],
    "a text": [{"text": "It "}, {"text": "rains.", "thoughtSignature": "U0lHTkFUVVJF"}],
    "a thought and a text": [
        {"text": "Where?", "thought": True},
        {"text": "It rains."},
        {"text": "", "thoughtSignature": "U0lHTkFUVVJF"},
    ],
    "a text and calls": [
        {"text": "I look.", "thoughtSignature": "VEVYVA=="},
        {"functionCall": {"name": "weather", "args": {}}, "thoughtSignature": "U0lHTkFUVVJF"},
    ],
}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS = (Tool("weather", "It does.", jsontext.raw(SCHEMA)),)


def gemini(parts, *, stream):
    """An answer of Gemini; ids of answers do not repeat."""
    gemini.count += 1
    about = {"modelVersion": "gemini-3-pro-preview", "responseId": f"r{gemini.count}"}
    pieces = [[each] for each in parts] if stream else [parts]
    bodies = [{"candidates": [{"content": {"role": "model", "parts": each}, "index": 0}], **about} for each in pieces]
    bodies[-1]["candidates"][0]["finishReason"] = "STOP"
    if not stream:
        return json.dumps(bodies[0]).encode()
    return b"".join([b"data: %b\r\n\r\n" % json.dumps(each).encode() for each in bodies])


gemini.count = 0


@pytest.mark.row("GW-13")
@BOTH
@pytest.mark.parametrize("kept", [False, True], ids=["stripped", "kept"])
@pytest.mark.parametrize("parts", SIGNED.values(), ids=SIGNED)
@pytest.mark.parametrize("client", [each for each in PROVIDERS if each != "google_generate"])
def test_signatures_of_gemini_go_back_for_a_client_that_has_none(gateway, provider, client, parts, *, kept, stream):
    model = "google_generate"
    request = Request((user("Does it rain?"),), tools=TOOLS)
    got, _ = ask(gateway, provider, (client, model), request, gemini(parts, stream=stream), stream=stream)
    message = decoded(client, got.content, stream=stream).message
    if not kept:
        message = message.replace(content=tuple(each for each in message.content if not isinstance(each, Reasoning)))
    results = [tool("rain", tool_call_id=each.id, tool_name=each.name) for each in message.tool_calls]
    again = request.replace(messages=(*request.messages, message, *(results or [user("And now?")])))
    _, sent = ask(gateway, provider, (client, model), again, gemini(parts, stream=False))
    back = json.loads(sent)["contents"][1]["parts"]
    expected = [each for each in parts if not each.get("thought")]
    signatures = [(each.get("text"), each.get("thoughtSignature")) for each in back]
    assert [each for each in signatures if each[1]] == [
        (each.get("text"), each["thoughtSignature"]) for each in expected if "thoughtSignature" in each
    ]
    assert "".join([each.get("text", "") for each in back]) == "".join([each.get("text", "") for each in expected])


@pytest.mark.parametrize(
    "call_id",
    ["call_0", "call_000000000001", "call_0000000000ab", "searchdocuments", "functions.getWeatherForecast:0", "w2", "",
     "call_get_weather_forecast_of_city_2", "D681PevKs"],
)  # fmt: skip
def test_an_id_that_may_come_again_is_not_taken_for_a_random_one(call_id):
    assert not is_random(call_id)


@pytest.mark.parametrize(
    "call_id",
    ["call_dcf60e09014d4746bf972110", "toolu_01A09q90qw90lq917835lq9", "call_9ZzK0vUqJx3mB7wT1aYc2dEf",
     "0e02b2c3-d479-4cc3-98c4-dc0c0c07398f", "tooluse_kZJMlvQmRJ6eAyJE5GIl7Q", "chatcmpl-tool-3f2a9b1c8d7e4f60"],
)  # fmt: skip
def test_a_random_id_is_known_as_one(call_id):
    assert is_random(call_id)


@pytest.mark.row("GW-13")
@pytest.mark.parametrize("call_id", ["call_000000000001", "functions.searchDocuments"])
def test_a_call_id_that_repeats_brings_no_reasoning_of_another_conversation(gateway, provider, call_id):
    pair = ("openai_chat", "anthropic_messages")
    call = tool_call("weather", {}, id=call_id.replace(".", "_"))
    thought = Reasoning("My secret is alpha.", signature="cHJvb2Y=", wire="anthropic_messages")
    ask(gateway, provider, pair, Request((user("I am A."),)), Response(assistant(thought, call)))
    asked = (user("I am B."), assistant(call), tool("rain", tool_call_id=call.id, tool_name="weather"))
    _, sent = ask(gateway, provider, pair, Request(asked), FINE)
    assert b"alpha" not in sent


# -- why an answer ended --------------------------------------------------------------------------

REFUSED = {
    "anthropic_messages": "refusal",
    "openai_chat": "content_filter",
    "openai_responses": "incomplete",
    "google_generate": "SAFETY",
    "bedrock_converse": "content_filtered",
    "cohere_chat": "ERROR_TOXIC",
}
"""The word of each wire for an answer that was refused or filtered; Ollama has none."""
WORDS = {
    "anthropic_messages": ("stop_reason",),
    "openai_chat": ("choices", 0, "finish_reason"),
    "openai_responses": ("status",),
    "google_generate": ("candidates", 0, "finishReason"),
    "bedrock_converse": ("stopReason",),
    "cohere_chat": ("finish_reason",),
}


@pytest.mark.row("GW-21")
@BOTH
@pytest.mark.parametrize("content", [(), (Text("I"),)], ids=["empty", "begun"])
@pytest.mark.parametrize("client", REFUSED)
@pytest.mark.parametrize("model", [each for each in REFUSED if each != "openai_responses"])
def test_an_answer_that_was_refused_or_filtered_is_no_complete_one(
    gateway, provider, client, model, content, *, stream
):
    if client == model:
        return
    reason = "refusal" if model == "anthropic_messages" else "content_filter"
    answer = Response(assistant(*content, model="m", finish_reason=reason))
    got, _ = ask(gateway, provider, (client, model), ASKED, answer, stream=stream)
    back = decoded(client, got.content, stream=stream)
    assert back.message.finish_reason in {"refusal", "content_filter"}
    assert back.message.finish_reason_raw == REFUSED[client]
    if not stream:
        found = got.json()
        for key in WORDS[client]:
            found = found[key]
        assert found == REFUSED[client]


@pytest.mark.row("GW-21")
@BOTH
@pytest.mark.parametrize("client", [each for each in REFUSED if each != "google_generate"])
def test_a_prompt_that_gemini_blocked_is_filtered(gateway, provider, client, stream):
    body = json.dumps({"promptFeedback": {"blockReason": "SAFETY"}}).encode()
    answer = b"data: %b\r\n\r\n" % body if stream else body
    got, _ = ask(gateway, provider, (client, "google_generate"), ASKED, answer, stream=stream)
    assert decoded(client, got.content, stream=stream).message.finish_reason_raw == REFUSED[client]


@pytest.mark.row("GW-21")
@BOTH
@pytest.mark.parametrize("client", ["openai_chat", "openai_responses"])
def test_a_refusal_that_the_client_can_read_ends_with_stop(gateway, provider, client, stream):
    model = "openai_responses" if client == "openai_chat" else "openai_chat"
    answer = Response(assistant(Refusal("I will not."), model="m", finish_reason="refusal"))
    got, _ = ask(gateway, provider, (client, model), ASKED, answer, stream=stream)
    back = decoded(client, got.content, stream=stream)
    assert back.message.finish_reason_raw in {"stop", "completed"}
    assert Refusal in map(type, back.message.content)


@pytest.mark.row("GW-21")
@pytest.mark.parametrize("client", [each for each in PROVIDERS if each != "google_generate"])
def test_an_answer_that_failed_with_nothing_in_it_is_an_error(gateway, provider, client):
    body = {"candidates": [{"content": {}, "finishReason": "MALFORMED_FUNCTION_CALL", "index": 0}]}
    answers(provider, "google_generate", json.dumps(body).encode())
    got = httpx.post(
        f"{gateway}{path_of(client, 'google_generate', stream=False)}", content=asked(client, "google_generate", ASKED)
    )
    assert got.status_code >= 500
    answers(provider, "google_generate", b"data: %b\r\n\r\n" % json.dumps(body).encode(), stream=True)
    got = httpx.post(
        f"{gateway}{path_of(client, 'google_generate', stream=True)}",
        content=asked(client, "google_generate", ASKED, stream=True),
    )
    with pytest.raises(StreamError, match="holds nothing"):
        decoded(client, got.content, stream=True)


# -- calls that a model writes as text -----------------------------------------------------------


HERMES = '<tool_call>{"name": "weather", "arguments": {"city": "Husum"}}</tool_call>'


@pytest.mark.row("GW-21")
@BOTH
@pytest.mark.parametrize("model", ["openai_chat", "anthropic_messages", "ollama_chat"])
@pytest.mark.parametrize("client", PROVIDERS)
def test_calls_that_a_model_writes_as_text_come_whole(provider, client, model, stream):
    target = structs.replace(targets(provider.url)[model], text_calls="hermes")
    answer = Response(assistant(Text(HERMES), model="m", finish_reason="stop"))
    with running(GatewayConfig(models={model: target})) as url:
        got, _ = ask(url, provider, (client, model), Request((user("Rain?"),), tools=TOOLS), answer, stream=stream)
    message = decoded(client, got.content, stream=stream).message
    (call,) = message.tool_calls
    assert (call.name, call.arguments, message.finish_reason) == ("weather", {"city": "Husum"}, "tool_calls")


# -- items of Responses ---------------------------------------------------------------------------


def chat_stream(*deltas, reason="stop"):
    """A stream of Chat Completions."""
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "m"}
    choices = [*({"index": 0, "delta": each} for each in deltas), {"index": 0, "delta": {}, "finish_reason": reason}]
    return b"".join([b"data: %b\n\n" % json.dumps({**head, "choices": [each]}).encode() for each in choices]) + (
        b"data: [DONE]\n\n"
    )


def ollama_stream(*messages, reason="stop"):
    """A stream of Ollama."""
    head = {"model": "m", "created_at": "2026-01-01T00:00:00Z"}
    lines = [{**head, "message": {"role": "assistant", **each}, "done": False} for each in messages]
    lines.append({**head, "message": {"role": "assistant", "content": ""}, "done": True, "done_reason": reason})
    return b"".join([json.dumps(each).encode() + b"\n" for each in lines])


ORDERS = {
    "ollama, two calls": (
        "ollama_chat",
        ollama_stream(
            {"content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}]},
            {"content": "", "tool_calls": [{"function": {"name": "g", "arguments": {}}}]},
        ),
        ["function_call", "function_call"],
    ),
    "ollama, calls before text": (
        "ollama_chat",
        ollama_stream({"content": "", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}, {"content": "Hi"}),
        ["function_call", "message"],
    ),
    "reasoning around a text": (
        "openai_chat",
        chat_stream(
            {"role": "assistant", "reasoning_content": "think"},
            {"content": "message"},
            {"reasoning_content": "again"},
            {"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
            reason="tool_calls",
        ),
        ["reasoning", "message", "reasoning", "function_call"],
    ),
}


@pytest.mark.row("GW-10")
@pytest.mark.parametrize(("model", "answer", "kinds"), ORDERS.values(), ids=ORDERS)
def test_the_final_response_holds_the_items_of_the_stream(gateway, provider, model, answer, kinds):
    request = Request((user("Go."),), tools=TOOLS)
    got, _ = ask(gateway, provider, ("openai_responses", model), request, answer, stream=True)
    events = data_of(got.text)
    done = {each["output_index"]: each["item"] for each in events if each["type"] == "response.output_item.done"}
    items = [done[each] for each in range(len(done))]
    assert [each["type"] for each in items] == kinds
    assert events[-1]["response"]["output"] == items


@pytest.mark.row("GW-10")
@BOTH
@pytest.mark.parametrize("client", PROVIDERS)
def test_an_empty_text_is_left_out_beside_a_call(gateway, provider, client, stream):
    if client == "ollama_chat":
        return
    call = {"content": "", "tool_calls": [{"function": {"name": "weather", "arguments": {}}}]}
    whole = {"model": "m", "message": {"role": "assistant", **call}, "done": True, "done_reason": "stop"}
    answer = ollama_stream(call) if stream else json.dumps(whole).encode()
    got, _ = ask(gateway, provider, (client, "ollama_chat"), ASKED, answer, stream=stream)
    content = decoded(client, got.content, stream=stream).message.content
    assert [type(each).__name__ for each in content] == ["ToolCall"]


@pytest.mark.row("GW-10")
@BOTH
@pytest.mark.parametrize("client", PROVIDERS)
def test_an_answer_of_an_empty_text_arrives(gateway, provider, client, stream):
    model = "ollama_chat" if client != "ollama_chat" else "openai_chat"
    empty = Response(assistant(Text(""), model="m", finish_reason="stop"))
    got, _ = ask(gateway, provider, (client, model), ASKED, empty, stream=stream)
    back = decoded(client, got.content, stream=stream).message
    assert (back.text, back.finish_reason) == ("", "stop")


@pytest.mark.row("GW-21")
@BOTH
@pytest.mark.parametrize(("reason", "status"), [("length", "incomplete"), ("stop", "completed")])
def test_the_message_of_a_cut_response_is_incomplete(gateway, provider, reason, status, stream):
    answer = Response(assistant(Text("It will"), model="m", finish_reason=reason))
    got, _ = ask(gateway, provider, ("openai_responses", "anthropic_messages"), ASKED, answer, stream=stream)
    events = data_of(got.text) if stream else []
    body = events[-1]["response"] if stream else got.json()
    assert (body["status"], [each["status"] for each in body["output"]]) == (status, [status])
    done = [each["item"]["status"] for each in events if each["type"] == "response.output_item.done"]
    assert done == [status] * stream


# -- what an answer of Responses repeats ------------------------------------------------------------

ECHO = {
    "instructions": "Be brief.",
    "max_output_tokens": 99,
    "metadata": {"run": "7"},
    "parallel_tool_calls": False,
    "reasoning": {"effort": "low"},
    "temperature": 0.2,
    "text": {"format": {"type": "text"}, "verbosity": "low"},
    "tool_choice": "required",
    "tools": [{"type": "function", "name": "weather", "description": None, "parameters": SCHEMA, "strict": False}],
    "top_p": 0.9,
    "truncation": "auto",
    "user": "u1",
}


def responded(url, provider, model, *, stream, **fields):
    """The responses in an answer to a client of Responses, and the status."""
    answers(provider, model, FINE, stream=stream)
    got = httpx.post(f"{url}/v1/responses", json={"model": model, "input": "Hi", "stream": stream, **fields})
    if not stream:
        return [got.json()], got.status_code
    return [each["response"] for each in data_of(got.text) if "response" in each], got.status_code


@pytest.mark.row("GW-21")
@BOTH
@pytest.mark.parametrize("model", [each for each in PROVIDERS if each != "openai_responses"])
def test_a_response_repeats_the_fields_of_the_request(gateway, provider, model, stream):
    found, _ = responded(gateway, provider, model, stream=stream, **ECHO)
    assert len(found) == (3 if stream else 1)
    for each in found:
        assert {name: each[name] for name in ECHO} == ECHO


@pytest.mark.row("GW-21")
@BOTH
def test_a_response_to_a_plain_request_has_the_defaults(gateway, provider, stream):
    found, _ = responded(gateway, provider, "anthropic_messages", stream=stream, metadata=None, tools=[])
    for each in found:
        fields = ("instructions", "metadata", "parallel_tool_calls", "tool_choice", "tools")
        assert [each[name] for name in fields] == [None, {}, True, "auto", []]


@pytest.mark.row("GW-17")
@BOTH
def test_a_stored_response_repeats_the_fields_of_the_request(provider, tmp_path, stream):
    models = targets(provider.url)
    config = GatewayConfig(models=models, database=str(tmp_path / "gateway.db"), responses=ResponseOptions())
    with running(config) as url:
        (*_, found), _ = responded(url, provider, "anthropic_messages", stream=stream, **ECHO)
        stored = httpx.get(f"{url}/v1/responses/{found['id']}").json()
        (*_, second), _ = responded(
            url, provider, "anthropic_messages", stream=stream, previous_response_id=found["id"], user="u2"
        )
    assert stored == found
    assert {name: stored[name] for name in ECHO} == ECHO
    assert (second["previous_response_id"], second["user"]) == (found["id"], "u2")


@pytest.mark.row("GW-21")
@BOTH
def test_a_response_in_the_background_is_refused(gateway, provider, stream):
    (found, *_), status = responded(gateway, provider, "anthropic_messages", stream=False, background=True)
    assert (status, found["error"]["type"]) == (400, "invalid_request_error")
    assert "background" in found["error"]["message"]
    assert provider.asked == []
    assert responded(gateway, provider, "anthropic_messages", stream=stream, background=False)[1] == 200


# -- streams of Google without events ----------------------------------------------------------------


@pytest.mark.row("GW-10")
@pytest.mark.parametrize("query", ["", "?alt=json", "?$alt=json;enum-encoding=int", "?alt=sse"])
@pytest.mark.parametrize("model", PROVIDERS)
def test_a_stream_of_google_is_a_list_where_no_events_are_asked_for(gateway, provider, model, query):
    answers(provider, model, FINE, stream=True)
    url = f"{gateway}{path_of('google_generate', model, stream=True).partition('?')[0]}{query}"
    got = httpx.post(url, content=asked("google_generate", model, ASKED, stream=True))
    events = query == "?alt=sse"
    kind = "text/event-stream" if events else "application/json"
    assert got.headers["content-type"].startswith(kind)
    items = data_of(got.text) if events else got.json()
    assert "".join([each["candidates"][0]["content"]["parts"][0]["text"] for each in items]) == "Fine."
    assert items[-1]["candidates"][0]["finishReason"] == "STOP"
    if model == "google_generate":
        assert items == data_of(provider.body.decode())
        assert provider.asked[0][0].endswith("?alt=sse")


@pytest.mark.row("GW-10")
@pytest.mark.parametrize("model", ["google_generate", "anthropic_messages"])
def test_each_item_of_a_list_of_google_leaves_before_the_next_one_came(gateway, provider, model):
    answers(provider, model, FINE, stream=True)
    provider.pieces = Queue()
    begun, end = provider.body.split(b"Fine.", 1)
    begun += b"Fine." + end[: end.index(b"\n\n") + 2 if b"\r\n\r\n" not in end else end.index(b"\r\n\r\n") + 4]
    provider.pieces.put(begun)
    url = f"{gateway}{path_of('google_generate', model, stream=True).partition('?')[0]}"
    body = asked("google_generate", model, ASKED, stream=True)
    with httpx.stream("POST", url, content=body) as response:
        chunks, got = response.iter_raw(), b""
        while b"Fine." not in got:
            got += next(chunks)
        provider.pieces.put(provider.body[len(begun) :])
        provider.pieces.put(b"")
        got += b"".join(chunks)
    assert json.loads(got)[0]["candidates"][0]["content"]["parts"] == [{"text": "Fine."}]


@pytest.mark.row("GW-10")
def test_what_goes_wrong_in_a_list_of_google_stands_in_it(gateway, provider):
    answers(provider, "anthropic_messages", FINE, stream=True)
    provider.body = provider.body[: provider.body.index(b"event: message_delta")]
    url = f"{gateway}{path_of('google_generate', 'anthropic_messages', stream=True).partition('?')[0]}"
    got = httpx.post(url, content=asked("google_generate", "anthropic_messages", ASKED, stream=True))
    *_, last = got.json()
    assert last["error"]["code"] == 500
