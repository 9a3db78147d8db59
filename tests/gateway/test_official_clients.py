"""The official clients of every wire, through the gateway, to a model of every wire: a call, its result, and an answer.

What the model is sent is checked against the rules of its provider.
"""

import json

import anthropic
import boto3
import cohere
import httpx
import ollama
import openai
import pytest
from botocore.config import Config
from google import genai

from palaver import Response, Usage, assistant, tool_call, wires
from palaver.core.messages import ToolMessage
from palaver.core.parts import Text
from palaver.stream.replay_events import replay_events
from palaver.testing import rules
from tests.gateway.running import PROVIDERS
from tests.gateway.test_wires import STREAM_TYPES

ASKED, RESULT, DONE = "Is it raining in Husum?", "rain until six", "It rains until six."
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
ABOUT = "Tell the weather."
USAGE = Usage(input=20, output=5)
FIRST = Response(
    assistant(
        Text("Let me look."),
        tool_call("weather", {"city": "Husum"}, id="call00001"),
        model="model-1",
        usage=USAGE,
        finish_reason="tool_calls",
    )
)
SECOND = Response(assistant(Text(DONE), model="model-1", usage=USAGE, finish_reason="stop"))


class Script:
    """A model of a wire, which calls a tool and then answers."""

    def __init__(self, name, *, stream):
        self.wire, self.stream, self.requests = wires.get(name), stream, []

    def __call__(self, body):
        self.requests.append((self.wire.decode_request(body), body))
        answer = SECOND if any(isinstance(each, ToolMessage) for each in self.requests[-1][0].messages) else FIRST
        if not self.stream:
            return 200, {"content-type": "application/json"}, self.wire.encode_response(answer).body
        encoder = self.wire.stream_encoder()
        data = b"".join([encoder.feed(each) for each in replay_events(answer)]) + encoder.finish()
        return 200, {"content-type": STREAM_TYPES[self.wire.name]}, data


def openai_chat(url, model, *, stream):
    tools = [{"type": "function", "function": {"name": "weather", "description": ABOUT, "parameters": SCHEMA}}]
    said = [{"role": "user", "content": ASKED}]
    with openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:

        def ask():
            given = {"model": model, "messages": said, "tools": tools}
            if not stream:
                return client.chat.completions.create(**given).choices[0].message
            with client.chat.completions.stream(**given) as arriving:
                return arriving.get_final_completion().choices[0].message

        first = ask()
        (call,) = first.tool_calls
        said.append(first.model_dump(include={"role", "content", "tool_calls"}, exclude_none=True))
        said.append({"role": "tool", "tool_call_id": call.id, "content": RESULT})
        return json.loads(call.function.arguments), ask().content


def openai_responses(url, model, *, stream):
    tools = [{"type": "function", "name": "weather", "description": ABOUT, "parameters": SCHEMA, "strict": False}]
    said = [{"role": "user", "content": ASKED}]
    with openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:

        def ask():
            given = {"model": model, "input": said, "tools": tools}
            if not stream:
                return client.responses.create(**given)
            with client.responses.stream(**given) as arriving:
                return arriving.get_final_response()

        first = ask()
        (call,) = [each for each in first.output if each.type == "function_call"]
        said += [each.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for each in first.output]
        said.append({"type": "function_call_output", "call_id": call.call_id, "output": RESULT})
        return json.loads(call.arguments), ask().output_text


def anthropic_messages(url, model, *, stream):
    tools = [{"name": "weather", "description": ABOUT, "input_schema": SCHEMA}]
    said = [{"role": "user", "content": ASKED}]
    with anthropic.Anthropic(base_url=url, api_key="k", max_retries=0) as client:

        def ask():
            given = {"model": model, "messages": said, "tools": tools, "max_tokens": 99}
            if not stream:
                return client.messages.create(**given)
            with client.messages.stream(**given) as arriving:
                return arriving.get_final_message()

        first = ask()
        (call,) = [each for each in first.content if each.type == "tool_use"]
        said.append({"role": "assistant", "content": [each.to_dict() for each in first.content]})
        said.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": RESULT}]})
        return call.input, "".join(each.text for each in ask().content)


def google_generate(url, model, *, stream):
    types = genai.types
    declared = types.FunctionDeclaration(name="weather", description=ABOUT, parameters_json_schema=SCHEMA)
    config = types.GenerateContentConfig(tools=[types.Tool(function_declarations=[declared])])
    said = [types.Content(role="user", parts=[types.Part(text=ASKED)])]
    client = genai.Client(api_key="k", http_options={"base_url": url})

    def ask():
        given = {"model": model, "contents": said, "config": config}
        if not stream:
            return client.models.generate_content(**given).candidates[0].content.parts
        arrived = client.models.generate_content_stream(**given)
        return [part for each in arrived for part in (each.candidates[0].content.parts or [])]

    first = ask()
    (call,) = [each.function_call for each in first if each.function_call]
    said.append(types.Content(role="model", parts=first))
    answer = types.FunctionResponse(id=call.id, name=call.name, response={"result": RESULT})
    said.append(types.Content(role="user", parts=[types.Part(function_response=answer)]))
    done = "".join(each.text or "" for each in ask())
    client.close()
    return dict(call.args), done


def bedrock_converse(url, model, *, stream):
    config = Config(retries={"max_attempts": 0}, proxies={})
    keys = {"aws_access_key_id": "k", "aws_secret_access_key": "s", "region_name": "eu-central-1"}
    client = boto3.client("bedrock-runtime", endpoint_url=url, config=config, **keys)
    spec = {"name": "weather", "description": ABOUT, "inputSchema": {"json": SCHEMA}}
    said = [{"role": "user", "content": [{"text": ASKED}]}]

    def ask():
        given = {"modelId": model, "messages": said, "toolConfig": {"tools": [{"toolSpec": spec}]}}
        if not stream:
            return client.converse(**given)["output"]["message"]["content"]
        blocks = {}
        for event in client.converse_stream(**given)["stream"]:
            if found := event.get("contentBlockStart"):
                blocks[found["contentBlockIndex"]] = {"toolUse": {**found["start"]["toolUse"], "input": ""}}
            if found := event.get("contentBlockDelta"):
                delta = found["delta"]
                block = blocks.setdefault(found["contentBlockIndex"], {"text": ""})
                if "text" in delta:
                    block["text"] += delta["text"]
                else:
                    block["toolUse"]["input"] += delta["toolUse"]["input"]
        for each in blocks.values():
            if "toolUse" in each:
                each["toolUse"]["input"] = json.loads(each["toolUse"]["input"])
        return list(blocks.values())

    first = ask()
    (call,) = [each["toolUse"] for each in first if "toolUse" in each]
    result = {"toolResult": {"toolUseId": call["toolUseId"], "content": [{"text": RESULT}]}}
    said += [{"role": "assistant", "content": first}, {"role": "user", "content": [result]}]
    done = "".join(each.get("text", "") for each in ask())
    client.close()
    return call["input"], done


def cohere_chat(url, model, *, stream):
    http = httpx.Client()
    client = cohere.ClientV2(api_key="k", base_url=url, httpx_client=http)
    tools = [{"type": "function", "function": {"name": "weather", "description": ABOUT, "parameters": SCHEMA}}]
    said = [{"role": "user", "content": ASKED}]

    def ask():
        given = {"model": model, "messages": said, "tools": tools}
        if not stream:
            message = client.chat(**given).message
            text = "".join(each.text for each in message.content or [])
            return text, [(each.id, each.function.name, each.function.arguments) for each in message.tool_calls or []]
        text, calls = "", []
        for event in client.chat_stream(**given):
            if event.type == "content-delta":
                text += event.delta.message.content.text
            elif event.type == "tool-call-start":
                found = event.delta.message.tool_calls
                calls.append([found.id, found.function.name, found.function.arguments or ""])
            elif event.type == "tool-call-delta":
                calls[-1][2] += event.delta.message.tool_calls.function.arguments
        return text, calls

    _, ((id_, name, arguments),) = ask()
    call = {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}
    said += [{"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": id_, "content": RESULT}]
    done, _ = ask()
    http.close()
    return json.loads(arguments), done


def ollama_chat(url, model, *, stream):
    client = ollama.Client(host=url)
    tools = [{"type": "function", "function": {"name": "weather", "description": ABOUT, "parameters": SCHEMA}}]
    said = [{"role": "user", "content": ASKED}]

    def ask():
        if not stream:
            return client.chat(model=model, messages=said, tools=tools, stream=False).message
        pieces = [each.message for each in client.chat(model=model, messages=said, tools=tools, stream=True)]
        calls = [call for each in pieces for call in each.tool_calls or []]
        return ollama.Message(
            role="assistant", content="".join(each.content or "" for each in pieces), tool_calls=calls
        )

    first = ask()
    (call,) = first.tool_calls
    said += [first, {"role": "tool", "tool_name": call.function.name, "content": RESULT}]
    done = ask().content
    client._client.close()
    return dict(call.function.arguments), done


CLIENTS = {
    each.__name__: each
    for each in (
        openai_chat,
        openai_responses,
        anthropic_messages,
        google_generate,
        bedrock_converse,
        cohere_chat,
        ollama_chat,
    )
}


def _case(client, model_wire, *, stream):
    """A case; of whole answers, each client and each model has two by default."""
    apart = (list(CLIENTS).index(client) - list(PROVIDERS).index(model_wire)) % len(PROVIDERS)
    marks = () if stream or apart in {1, 3} else pytest.mark.long
    name = f"{client}-{model_wire}-{'streamed' if stream else 'whole'}"
    return pytest.param(client, model_wire, stream, marks=marks, id=name)


CASES = [
    _case(client, model_wire, stream=stream)
    for client in CLIENTS
    for model_wire in PROVIDERS
    for stream in (False, True)
]


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.row("GW-01")
@pytest.mark.parametrize(("client", "model_wire", "stream"), CASES)
def test_a_call_its_result_and_an_answer(gateway, provider, client, model_wire, stream):
    script = provider.respond = Script(model_wire, stream=stream)
    arguments, text = CLIENTS[client](gateway, model_wire, stream=stream)
    assert (arguments, text) == ({"city": "Husum"}, DONE)
    assert len(script.requests) == 2
    for request, body in script.requests:
        assert rules.check_request(model_wire, body) == []
        assert [each.name for each in request.tools] == ["weather"]
    result = next(each for each in script.requests[1][0].messages if isinstance(each, ToolMessage))
    assert RESULT in result.text or RESULT in json.dumps(json.loads(script.requests[1][1]))
