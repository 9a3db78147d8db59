"""What a request and an answer keep on their way between two wires."""

import json
import re

import httpx
import pytest
from msgspec import structs

from palaver import Request, Response, Settings, Tool, Usage, assistant, model, system, tool, tool_call, user, wires
from palaver.core import jsontext
from palaver.core.parts import Reasoning, Refusal, Text
from palaver.core.request import OutputFormat, ToolChoice
from palaver.core.tools import ProviderTool
from palaver.gateway import GatewayConfig, Translation
from palaver.testing.rules import check_request
from tests.gateway.running import PROVIDERS, running, targets
from tests.gateway.test_wires import answer_of, decoded, path_of
from tests.gateway.translated import BOTH, PAIRS, answers, ask, asked, written

ANSWER = Response(assistant(Text("Fine."), model="model-1", finish_reason="stop"))
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


# -- thinking --------------------------------------------------------------------------------------

THINKING = {
    "effort": Settings(effort="high"),
    "budget": Settings(reasoning_tokens=8192, max_tokens=20_000),
    "adaptive": Settings(reasoning_tokens=-1),
    "off": Settings(reasoning_tokens=0),
}


@pytest.mark.row("GW-11")
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_thinking_is_asked_for_as_the_table_of_wires_says(gateway, provider, pair):
    client, other = pair
    for settings in THINKING.values():
        request = Request((user("Why?"),), settings=settings)
        got, sent = ask(gateway, provider, pair, request, ANSWER)
        assert check_request(other, sent) == []
        read = wires.get(client).decode_request(asked(client, "m", request)).settings  # what its wire can say of it
        direct = wires.get(other).encode_request(Request((user("Why?"),), model="model-1", settings=read))
        there, wanted = (wires.get(other).decode_request(each).settings for each in (sent, direct.body))
        assert (there.effort, there.reasoning_tokens) == (wanted.effort, wanted.reasoning_tokens)
        lost = [each for each in direct.losses if each.what in {"effort", "reasoning_tokens"}]
        assert int(got.headers.get("palaver-losses", "0")) >= len(lost)


@pytest.mark.row("GW-11")
@pytest.mark.parametrize("client", [each for each in PROVIDERS if not each.startswith("openai")])
def test_openai_is_asked_for_a_summary_where_the_client_wants_thinking(gateway, provider, client):
    _, sent = ask(
        gateway, provider, (client, "openai_responses"), Request((user("Why?"),), settings=THINKING["effort"]), ANSWER
    )
    fields = wires.get("openai_responses").decode_request(sent).provider["openai_responses"]
    assert fields["reasoning"] == {"summary": "auto"}
    assert fields["include"] == ["reasoning.encrypted_content"]
    assert fields["store"] is False
    _, sent = ask(gateway, provider, (client, "openai_responses"), Request((user("Why?"),)), ANSWER)
    fields = wires.get("openai_responses").decode_request(sent).provider["openai_responses"]
    assert fields == {"store": False}


@pytest.mark.row("GW-11")
def test_google_and_anthropic_are_asked_for_the_text_of_their_thoughts(gateway, provider):
    request = Request((user("Why?"),), settings=THINKING["budget"])
    _, sent = ask(
        gateway, provider, ("openai_chat", "google_generate"), request.replace(settings=THINKING["effort"]), ANSWER
    )
    assert b'"includeThoughts":true' in sent
    _, sent = ask(gateway, provider, ("google_generate", "anthropic_messages"), request, ANSWER)
    assert b'"display":"summarized"' in sent


# -- names and ids of tools ------------------------------------------------------------------------

NAMES = ("files.read/one", "files.read:one", "x" * 100, "plain")


def with_tools(*names, **settings):
    first = names[0]
    call = tool_call(first, {"city": "Husum"}, id="id.of/the client:" + "9" * 60)
    return Request(
        (
            user("Go."),
            assistant(tool_calls=[call]),
            tool("done", tool_call_id=call.id, tool_name=first),
            user("Again."),
        ),
        tools=tuple(Tool(each, "It does.", jsontext.raw(SCHEMA)) for each in names),
        settings=Settings(**settings),
    )


@pytest.mark.row("GW-14")
@BOTH
@pytest.mark.parametrize("model", [each for each in PROVIDERS if each != "cohere_chat"])
def test_names_and_ids_that_a_model_does_not_take_are_mapped_and_mapped_back(gateway, provider, model, stream):
    client = "cohere_chat"  # which takes any name and any id
    pattern = wires.get(model).capabilities.tool_name
    _, sent = ask(gateway, provider, (client, model), with_tools(*NAMES), ANSWER)
    assert check_request(model, sent) == []
    there = wires.get(model).decode_request(sent)
    spelled = [each.name for each in there.tools]
    assert len(set(spelled)) == len(NAMES)
    assert all(pattern.fullmatch(each) for each in spelled)
    (called,) = [call for each in there.messages if each.role == "assistant" for call in each.tool_calls]
    assert called.name == spelled[0]
    assert next(each for each in there.messages if each.role == "tool").tool_call_id == called.id
    calls = [tool_call(name, {"n": place}, id=f"call{place}") for place, name in enumerate(spelled)]
    answer = Response(assistant(tool_calls=calls, model="model-1", finish_reason="tool_calls"))
    got, again = ask(gateway, provider, (client, model), with_tools(*NAMES), answer, stream=stream)
    assert [each.name for each in wires.get(model).decode_request(again).tools] == spelled, "the same each time"
    back = decoded(client, got.content, stream=stream)
    assert [each.name for each in back.message.tool_calls] == list(NAMES)


@pytest.mark.row("GW-14")
@pytest.mark.parametrize("model", [each for each in PROVIDERS if each != "google_generate"])
def test_a_tool_that_must_be_called_is_mapped_too(gateway, provider, model):
    request = with_tools("files.read", tool_choice=ToolChoice("required", ("files.read",)))
    _, sent = ask(gateway, provider, ("google_generate", model), request, ANSWER)
    there = wires.get(model).decode_request(sent)
    (name,) = [each.name for each in there.tools]
    choice = there.settings.tool_choice
    assert choice is None or set(choice.names) <= {name}
    assert b"files.read" not in sent or model == "cohere_chat"


@pytest.mark.row("GW-14")
@BOTH
@pytest.mark.parametrize("model", ["google_generate", "ollama_chat"])
def test_a_call_without_an_id_gets_one_that_no_other_call_has(gateway, provider, model, stream):
    bodies = {
        "google_generate": b'{"candidates":[{"content":{"role":"model","parts":[{"functionCall":{"name":"weather",'
        b'"args":{"city":"Husum"}}}]},"finishReason":"STOP"}]}',
        "ollama_chat": b'{"model":"m","created_at":"2026-01-01T00:00:00Z","message":{"role":"assistant","content":"",'
        b'"tool_calls":[{"function":{"name":"weather","arguments":{"city":"Husum"}}}]},"done":true}',
    }
    ids = set()
    for _ in range(2):
        body = bodies[model]
        body = b"data: " + body + b"\r\n\r\n" if stream and model == "google_generate" else body
        got, _ = ask(gateway, provider, ("openai_chat", model), Request((user("Go."),)), body, stream=stream)
        (found,) = decoded("openai_chat", got.content, stream=stream).message.tool_calls
        assert found.arguments == {"city": "Husum"}
        ids.add(found.id)
    assert len(ids) == 2
    assert all(re.fullmatch(r"call_[0-9a-f]{24}", each) for each in ids)


# -- cache marks -----------------------------------------------------------------------------------

LONG = "A long text that is worth caching. " * 400
CLAUDE = "anthropic.claude-opus-4-6"
EPHEMERAL = {"type": "ephemeral"}
POINT = {"cachePoint": {"type": "default"}}
MESSAGES = {
    "anthropic_messages": [
        {"role": "user", "content": [{"type": "text", "text": LONG, "cache_control": EPHEMERAL}]},
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": "And?"},
    ],
    "bedrock_converse": [
        {"role": "user", "content": [{"text": LONG}, POINT]},
        {"role": "assistant", "content": [{"text": "Yes."}]},
        {"role": "user", "content": [{"text": "And?"}]},
    ],
}


def claude(provider, wire, **translation):
    """A gateway that knows one Claude, as ``m``."""
    target = structs.replace(targets(provider.url)[wire], model=f"{PROVIDERS[wire][0]}/{CLAUDE}")
    return running(GatewayConfig(models={"m": target}, translation=Translation(**translation)))


@pytest.mark.row("GW-15")
@pytest.mark.parametrize(
    ("client", "model", "mark"),
    [
        ("anthropic_messages", "bedrock_converse", b'{"cachePoint":{"type":"default"}}'),
        ("bedrock_converse", "anthropic_messages", b'"cache_control":{"type":"ephemeral"}'),
    ],
)
def test_cache_marks_are_carried(provider, client, model, mark):
    answers(provider, model, ANSWER)
    body = {"model": "m", "max_tokens": 9, "messages": MESSAGES[client]}
    with claude(provider, model) as url:
        got = httpx.post(f"{url}{path_of(client, 'm', stream=False)}", json=body)
    assert got.status_code == 200, got.text
    assert provider.asked[0][2].count(mark) == 1
    assert check_request(model, provider.asked[0][2]) == []


@pytest.mark.row("GW-15")
@pytest.mark.parametrize("cache", ["carry", "set"])
def test_cache_marks_are_set_for_clients_that_have_none_where_the_configuration_says_so(provider, cache):
    answers(provider, "bedrock_converse", ANSWER)
    request = Request((system(LONG), user(LONG), assistant("Yes."), user("And?")))
    with claude(provider, "bedrock_converse", cache=cache) as url:
        httpx.post(f"{url}/v1/chat/completions", content=asked("openai_chat", "m", request))
    assert (b"cachePoint" in provider.asked[0][2]) == (cache == "set")
    assert check_request("bedrock_converse", provider.asked[0][2]) == []


# -- server tools ----------------------------------------------------------------------------------

SEARCHES = {
    "anthropic_messages": {"type": "web_search_20250305", "name": "web_search"},
    "openai_responses": {"type": "web_search"},
    "google_generate": {"googleSearch": {}},
}


@pytest.mark.row("GW-16")
@pytest.mark.parametrize("client", SEARCHES)
def test_a_tool_of_another_provider_is_dropped_with_a_loss(gateway, provider, client):
    tools = (ProviderTool(client, jsontext.raw(SEARCHES[client])),)
    got, sent = ask(gateway, provider, (client, "cohere_chat"), Request((user("Go."),), tools=tools), ANSWER)
    assert b"earch" not in sent
    assert int(got.headers["palaver-losses"]) >= 1


@pytest.mark.row("GW-16")
@pytest.mark.parametrize("client", SEARCHES)
def test_a_tool_of_another_provider_is_refused_by_rule(provider, client):
    request = Request((user("Go."),), tools=(ProviderTool(client, jsontext.raw(SEARCHES[client])),))
    with claude(provider, "bedrock_converse", server_tools="refuse") as url:
        got = httpx.post(f"{url}{path_of(client, 'm', stream=False)}", content=asked(client, "m", request))
    assert (got.status_code, provider.asked) == (400, [])
    assert re.search("web_search|googleSearch", got.json()["error"]["message"])


KINDS = {
    "openai_responses": ({"type": "web_search"}, {"type": "code_interpreter", "container": {"type": "auto"}}),
    "anthropic_messages": ({"type": "web_search_20250305", "name": "web_search"}, None),
    "google_generate": ({"googleSearch": {}}, {"codeExecution": {}}),
}
ASKED_FOR = {
    "openai_responses": ({"type": "web_search_preview", "user_location": None}, {"type": "code_interpreter"}),
    "anthropic_messages": (
        {"type": "web_search_20260209", "name": "web_search", "max_uses": 3},
        {"type": "code_execution_20250825", "name": "code_execution"},
    ),
    "google_generate": ({"google_search": {}}, {"codeExecution": {}}),
}


@pytest.mark.row("GW-16")
@pytest.mark.parametrize("model_wire", KINDS)
@pytest.mark.parametrize("client", ASKED_FOR)
@pytest.mark.parametrize("kind", [0, 1], ids=["web search", "running code"])
def test_the_tool_of_a_model_stands_in_for_one_of_the_same_kind(provider, client, model_wire, kind):
    if client == model_wire:
        return
    request = Request((user("Go."),), tools=(ProviderTool(client, jsontext.raw(ASKED_FOR[client][kind])),))
    with claude(provider, model_wire, server_tools="substitute") as url:
        answers(provider, model_wire, ANSWER)
        got = httpx.post(f"{url}{path_of(client, 'm', stream=False)}", content=asked(client, "m", request))
    assert got.status_code == 200, got.text
    tools = json.loads(provider.asked[0][2]).get("tools", [])
    written = KINDS[model_wire][kind]
    assert tools == ([] if written is None else [written])
    assert int(got.headers["palaver-losses"]) >= 1


@pytest.mark.row("GW-16")
def test_a_field_of_a_request_is_a_tool_too(provider):
    with claude(provider, "google_generate", server_tools="substitute") as url:
        answers(provider, "google_generate", ANSWER)
        body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "web_search_options": {}}
        assert httpx.post(f"{url}/v1/chat/completions", json=body).status_code == 200
    assert json.loads(provider.asked[0][2])["tools"] == [{"googleSearch": {}}]


# -- settings --------------------------------------------------------------------------------------


@pytest.mark.row("GW-18")
@pytest.mark.parametrize("client", [each for each in PROVIDERS if each != "anthropic_messages"])
def test_the_limit_of_tokens_that_a_wire_demands_is_that_of_the_catalogue(provider, client):
    answers(provider, "anthropic_messages", ANSWER)
    target = structs.replace(targets(provider.url)["anthropic_messages"], model="anthropic/claude-opus-4-6")
    with running(GatewayConfig(models={"m": target})) as url:
        got = httpx.post(
            f"{url}{path_of(client, 'm', stream=False)}", content=asked(client, "m", Request((user("?"),)))
        )
    assert got.status_code == 200, got.text
    sent = wires.get("anthropic_messages").decode_request(provider.asked[0][2])
    assert sent.settings.max_tokens == model("anthropic/claude-opus-4-6").capabilities.max_output


def _choices(settings):
    output = settings.output
    return output and (output.kind, output.schema_json), settings.tool_choice


@pytest.mark.row("GW-19")
@pytest.mark.parametrize(("client", "other"), PAIRS)
def test_a_schema_and_a_choice_of_tools_arrive_or_are_counted_as_lost(gateway, provider, client, other):
    for request in (
        Request((user("JSON, please."),), settings=Settings(output=OutputFormat.of(SCHEMA, name="place"))),
        with_tools("plain", tool_choice=ToolChoice("required")),
        with_tools("plain", tool_choice=ToolChoice("none")),
    ):
        body = asked(client, other, request)
        expected = wires.get(client).decode_request(body).settings
        got, sent = ask(gateway, provider, (client, other), request, ANSWER)
        assert check_request(other, sent) == []
        there = wires.get(other).decode_request(sent)
        assert _choices(there.settings) == _choices(expected) or int(got.headers["palaver-losses"]) > 0


@pytest.mark.row("GW-21")
@BOTH
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_the_reason_of_the_end_and_the_tokens_of_the_cache_arrive(gateway, provider, pair, stream):
    client, other = pair
    usage = Usage(input=10, output=4, cache_read=100, cache_write=20)
    for reason in ("stop", "length", "refusal", "tool_calls"):
        part = tool_call("plain", {}, id="call1") if reason == "tool_calls" else Text("Fine.")
        answer = Response(assistant(part, model="model-1", usage=usage, finish_reason=reason))
        there = decoded(other, written(other, answer, stream=stream), stream=stream)
        got, _ = ask(gateway, provider, pair, Request((user("Go."),)), answer, stream=stream)
        direct = decoded(client, written(client, structs.replace(there, original=None), stream=stream), stream=stream)
        back = decoded(client, got.content, stream=stream)
        assert back.finish_reason == direct.finish_reason
        for name in ("input", "output", "cache_read", "cache_write"):
            assert getattr(back.usage, name, None) == getattr(direct.usage, name, None)


@pytest.mark.row("GW-21")
@BOTH
@pytest.mark.parametrize("client", PROVIDERS)
def test_a_refusal_reaches_every_client(gateway, provider, client, stream):
    answer = Response(assistant(Refusal("I will not."), model="model-1", finish_reason="refusal"))
    for other in ("openai_responses", "openai_chat"):
        if client == other:
            continue
        got, _ = ask(gateway, provider, (client, other), Request((user("Go."),)), answer, stream=stream)
        back = decoded(client, got.content, stream=stream)
        assert [each.text for each in back.message.content] == ["I will not."]


# -- reasoning in text -----------------------------------------------------------------------------


@pytest.mark.row("GW-22")
@BOTH
@pytest.mark.parametrize("client", PROVIDERS)
def test_reasoning_that_a_local_model_writes_as_text_is_reasoning(provider, client, stream):
    answer = Response(assistant(Text("<think>It may rain.</think>It will."), model="model-1", finish_reason="stop"))
    answers(provider, "openai_chat", answer, stream=stream)
    plain = targets(provider.url)["openai_chat"]
    target = structs.replace(plain, model="local/m", wire="openai_chat:vllm", text_calls="text")
    body = asked(client, "m", Request((user("Will it rain?"),)), stream=stream)
    with running(GatewayConfig(models={"m": target})) as url:
        got = httpx.post(f"{url}{path_of(client, 'm', stream=stream)}", content=body)
    back = decoded(client, got.content, stream=stream)
    thoughts = "".join([each.text for each in back.message.content if isinstance(each, Reasoning)])
    assert (thoughts, back.message.text) == ("It may rain.", "It will.")


# -- parallel calls --------------------------------------------------------------------------------


@pytest.mark.row("GW-23")
@BOTH
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_parallel_calls_are_kept_unless_the_client_forbids_them(gateway, provider, pair, stream):
    client, other = pair
    calls = [tool_call("plain", {"city": each}, id=f"call_{each}") for each in ("Husum", "Kiel")]
    answer = Response(assistant(tool_calls=calls, model="model-1", finish_reason="tool_calls"))
    for parallel in (None, False):
        request = with_tools("plain", parallel_tool_calls=parallel, tool_choice=ToolChoice("auto"))
        got, sent = ask(gateway, provider, pair, request, answer, stream=stream)
        back = decoded(client, got.content, stream=stream)
        forbids = wires.get(client).decode_request(asked(client, "m", request)).settings.parallel_tool_calls is False
        wanted = calls[:1] if forbids else calls
        assert [each.arguments for each in back.message.tool_calls] == [each.arguments for each in wanted]
        if forbids and other in {"openai_chat", "openai_responses", "anthropic_messages"}:
            assert wires.get(other).decode_request(sent).settings.parallel_tool_calls is False


HI = {
    "openai_chat": {"messages": [{"role": "user", "content": "hi"}]},
    "anthropic_messages": {"max_tokens": 99, "messages": [{"role": "user", "content": "hi"}]},
    "google_generate": {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
}
REPEATED = {
    "background": False,
    "parallel_tool_calls": True,
    "reasoning": {"effort": "medium", "summary": None},
    "service_tier": "default",
    "store": False,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}, "verbosity": "medium"},
    "tool_choice": "auto",
    "tools": [],
    "top_p": 1.0,
    "truncation": "disabled",
    "metadata": {},
}
"""What every answer of the Responses API says again of its request."""


@pytest.mark.row("GW-09")
@pytest.mark.parametrize("client_wire", HI)
def test_what_an_answer_repeats_of_its_request_is_no_loss(gateway, provider, client_wire):
    text = {"type": "output_text", "text": "Hi.", "annotations": [], "logprobs": []}
    message = {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": [text]}
    usage = {"input_tokens": 9, "output_tokens": 1, "total_tokens": 10}
    answer = {"id": "r", "object": "response", "created_at": 1, "status": "completed", "model": "m", **REPEATED}
    provider.headers = {"content-type": "application/json"}
    provider.body = json.dumps({**answer, "output": [message], "usage": usage}).encode()
    path = path_of(client_wire, "openai_responses", stream=False)
    got = httpx.post(f"{gateway}{path}", json={"model": "openai_responses", **HI[client_wire]})
    assert got.status_code == 200
    assert "Hi." in got.text
    assert "palaver-losses" not in got.headers


@pytest.mark.row("GW-09")
def test_probabilities_that_a_client_asks_for_are_a_loss(gateway, provider):
    answer = json.loads(answer_of("openai_chat", stream=False))
    for choice in answer["choices"]:
        choice["logprobs"] = {"content": [{"token": "Hi", "logprob": -0.1, "bytes": None, "top_logprobs": []}]}
    provider.headers = {"content-type": "application/json"}
    provider.body = json.dumps(answer).encode()
    body = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}], "generationConfig": {"responseLogprobs": True}}
    path = path_of("google_generate", "openai_chat", stream=False)
    got = [httpx.post(f"{gateway}{path}", json=each) for each in (body, {**body, "generationConfig": {}})]
    losses = [int(each.headers.get("palaver-losses", "0")) for each in got]
    assert losses[0] > losses[1]
