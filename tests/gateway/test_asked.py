"""What a model is asked when the client speaks another wire: what is refused, and fields that mean the same."""

import json

import httpx
import openai
import pytest

import palaver as p
from palaver.gateway.config import GatewayConfig
from palaver.gateway.translation import Translation
from tests.gateway.running import PROVIDERS, running, targets
from tests.gateway.test_wires import path_of
from tests.gateway.translated import answers

HI = [{"role": "user", "content": "Hi"}]
FILE = {"type": "image", "source": {"type": "file", "file_id": "file_1"}}
PARTS = {"file": {"role": "user", "parts": [{"text": "Hi"}, {"fileData": {"fileUri": "files/a", "mimeType": "a/b"}}]}}
SECRET = "https://generativelanguage.googleapis.com/v1beta/files/a"
STORED = [
    ("openai_responses", {"prompt": {"id": "pmpt_1"}}, "prompt"),
    ("openai_responses", {"input": [{"type": "item_reference", "id": "msg_1"}]}, "item_reference"),
    (
        "openai_responses",
        {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "file-1"}]}]},
        "file_id",
    ),
    (
        "openai_chat",
        {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}]},
        "file_id",
    ),
    ("anthropic_messages", {"max_tokens": 9, "messages": [{"role": "user", "content": [FILE]}]}, "file_id"),
    ("google_generate", {"contents": [PARTS["file"]]}, "fileData"),
    ("google_generate", {"contents": [{"parts": [{"fileData": {"fileUri": SECRET}}]}]}, "fileData"),
    (
        "google_generate",
        {"contents": [{"parts": [{"text": "Hi"}]}], "cachedContent": "cachedContents/a"},
        "cachedContent",
    ),
    (
        "bedrock_converse",
        {
            "messages": [
                {
                    "role": "user",
                    "content": [{"image": {"format": "png", "source": {"s3Location": {"uri": "s3://b/a.png"}}}}],
                }
            ]
        },
        "s3Location",
    ),
]


def post(gateway, client, model, body):
    fields = body if client in {"google_generate", "bedrock_converse"} else {"model": model, **body}
    return httpx.post(f"{gateway}{path_of(client, model, stream=False)}", json=fields)


@pytest.mark.parametrize(("client", "body", "field"), STORED, ids=[f"{each[0]}-{each[2]}" for each in STORED])
def test_content_that_only_the_clients_provider_has_is_refused(gateway, provider, client, body, field):
    got = post(gateway, client, "cohere_chat", body)
    assert (got.status_code, provider.asked) == (400, [])
    assert field in got.text
    answers(provider, client, p.Response(message=p.assistant("Yes")))
    assert post(gateway, client, client, body).status_code == 200


@pytest.mark.parametrize(
    ("client", "body", "field"),
    [
        ("openai_responses", {}, "input"),
        ("openai_responses", {"instructions": "Be brief."}, "input"),
        ("openai_chat", {"messages": []}, "messages"),
        ("anthropic_messages", {"messages": [], "max_tokens": 9, "system": "Be brief."}, "messages"),
        ("google_generate", {"contents": []}, "contents"),
    ],
)
def test_a_request_without_a_message_is_refused(gateway, provider, client, body, field):
    got = post(gateway, client, "cohere_chat", body)
    assert (got.status_code, provider.asked) == (400, [])
    assert field in got.text


@pytest.mark.parametrize(
    ("client", "body"),
    [
        ("openai_chat", {"messages": HI, "web_search_options": {}}),
        (
            "anthropic_messages",
            {"messages": HI, "max_tokens": 9, "mcp_servers": [{"type": "url", "url": "https://x", "name": "x"}]},
        ),
        ("openai_responses", {"input": "Hi", "tools": [{"type": "web_search"}]}),
        ("google_generate", {"contents": [{"parts": [{"text": "Hi"}]}], "tools": [{"googleSearch": {}}]}),
    ],
)
@pytest.mark.parametrize("rule", ["drop", "refuse"])
def test_tools_that_a_provider_runs_are_refused_wherever_they_stand(provider, rule, client, body):
    config = GatewayConfig(models=targets(provider.url), translation=Translation(server_tools=rule))
    answers(provider, "cohere_chat", p.Response(message=p.assistant("Yes")))
    with running(config) as gateway:
        got = post(gateway, client, "cohere_chat", body)
    assert got.status_code == (400 if rule == "refuse" else 200)
    assert len(provider.asked) == (rule == "drop")


def test_no_tools_are_sent_to_ollama_where_none_may_be_called(gateway, provider):
    answers(provider, "ollama_chat", p.Response(message=p.assistant("Yes")))
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    for choice in ("none", "auto"):
        provider.asked.clear()
        post(gateway, "openai_chat", "ollama_chat", {"messages": HI, "tools": tools, "tool_choice": choice})
        ((_, _, sent),) = provider.asked
        assert ("tools" in json.loads(sent)) == (choice == "auto")


FUNCTIONS = [{"name": "add", "description": "Add.", "parameters": {"type": "object", "properties": {}}}]
CALLS = p.Response(message=p.assistant(p.ToolCall("toolu_1", "add", '{"a":1}'), finish_reason="tool_calls"))


@pytest.mark.parametrize("model", [each for each in PROVIDERS if each != "openai_chat"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_functions_of_chat_completions_are_tools(gateway, provider, model, stream):
    answers(provider, model, CALLS, stream=stream)
    history = [
        *HI,
        {"role": "assistant", "content": None, "function_call": {"name": "add", "arguments": "{}"}},
        {"role": "function", "name": "add", "content": "3"},
    ]
    with openai.OpenAI(base_url=f"{gateway}/v1", api_key="k", max_retries=0) as client:
        found = client.chat.completions.create(
            model=model, messages=history, functions=FUNCTIONS, function_call="auto", stream=stream
        )
        if stream:
            choices = [chunk.choices[0] for chunk in found if chunk.choices]
            calls = [each.delta.function_call for each in choices if each.delta.function_call]
            assert "".join(each.arguments or "" for each in calls).replace(" ", "") == '{"a":1}'
            assert not any(each.delta.tool_calls for each in choices)
            name, reason = calls[0].name, choices[-1].finish_reason
        else:
            message, reason = found.choices[0].message, found.choices[0].finish_reason
            name = message.function_call.name
            assert json.loads(message.function_call.arguments) == {"a": 1}
            assert not message.tool_calls
    assert (name, reason) == ("add", "function_call")
    ((_, _, sent),) = provider.asked
    assert "Add." in sent.decode() if isinstance(sent, bytes) else "Add." in str(sent)


@pytest.mark.parametrize(("choice", "sent"), [("none", "none"), ("auto", "auto"), ({"name": "add"}, "tool")])
def test_a_choice_among_functions_is_one_among_tools(gateway, provider, choice, sent):
    answers(provider, "anthropic_messages", p.Response(message=p.assistant("Yes")))
    body = {"messages": HI, "functions": FUNCTIONS, "function_call": choice}
    assert post(gateway, "openai_chat", "anthropic_messages", body).status_code == 200
    ((_, _, asked),) = provider.asked
    assert json.loads(asked)["tool_choice"]["type"] == sent


@pytest.mark.parametrize("functions", [{"name": "f"}, [{}], [3], "f"])
def test_functions_that_are_none_are_refused(gateway, provider, functions):
    got = post(gateway, "openai_chat", "anthropic_messages", {"messages": HI, "functions": functions})
    assert (got.status_code, provider.asked) == (400, [])
    assert got.json()["error"]["param"].startswith("functions")


def test_the_number_of_answers_goes_to_the_wire_that_has_one(gateway, provider):
    body = {"candidates": [{"index": at, "content": {"parts": [{"text": f"{at}"}]}} for at in range(3)]}
    answers(provider, "google_generate", json.dumps(body).encode())
    got = post(gateway, "openai_chat", "google_generate", {"messages": HI, "n": 3, "top_p": 0.5})
    assert [each["message"]["content"] for each in got.json()["choices"]] == ["0", "1", "2"]
    ((_, _, sent),) = provider.asked
    assert json.loads(sent)["generationConfig"] == {"topP": 0.5, "candidateCount": 3}
    provider.asked.clear()
    answers(provider, "openai_chat", p.Response(message=p.assistant("Yes")))
    config = {"generationConfig": {"candidateCount": 2}, "contents": [{"parts": [{"text": "Hi"}]}]}
    post(gateway, "google_generate", "openai_chat", config)
    ((_, _, sent),) = provider.asked
    assert json.loads(sent)["n"] == 2
