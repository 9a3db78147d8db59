"""The official clients read reasoning of another wire's model, and send it back as they got it."""

import anthropic
import openai
import pytest
from google import genai

from tests.gateway.test_reasoning import PROOFS, THOUGHT, answer_by
from tests.gateway.translated import answers

TOOL = {"type": "object", "properties": {"city": {"type": "string"}}}


@pytest.fixture(params=["whole", "streamed"])
def stream(request):
    return request.param == "streamed"


def proof_of(model):
    (proof,) = PROOFS[model].values()
    return proof.encode()


@pytest.mark.row("GW-12")
@pytest.mark.row("GW-13")
@pytest.mark.parametrize("model", ["openai_responses", "bedrock_converse"])
def test_the_client_of_anthropic(gateway, provider, stream, model):
    tools = [{"name": "weather", "input_schema": TOOL}]
    messages = [{"role": "user", "content": "Will it rain?"}]
    with anthropic.Anthropic(base_url=gateway, api_key="k", max_retries=0) as client:
        for _ in range(2):
            answers(provider, model, answer_by(model), stream=stream)
            asked = {"model": model, "messages": messages, "max_tokens": 99, "tools": tools}
            if stream:
                with client.messages.stream(**asked) as events:
                    got = events.get_final_message()
            else:
                got = client.messages.create(**asked)
            thought, text, call = got.content
            assert (thought.type, thought.thinking, text.text) == ("thinking", THOUGHT, "It will.")
            result = {"type": "tool_result", "tool_use_id": call.id, "content": "rain"}
            messages += [{"role": "assistant", "content": got.content}, {"role": "user", "content": [result]}]
    assert proof_of(model) in provider.asked[0][2]


@pytest.mark.row("GW-12")
@pytest.mark.row("GW-13")
@pytest.mark.parametrize("model", ["anthropic_messages", "bedrock_converse"])
def test_the_client_of_responses(gateway, provider, stream, model):
    tools = [{"type": "function", "name": "weather", "parameters": TOOL, "strict": False}]
    items = [{"role": "user", "content": "Will it rain?"}]
    with openai.OpenAI(base_url=f"{gateway}/v1", api_key="k", max_retries=0) as client:
        for _ in range(2):
            answers(provider, model, answer_by(model), stream=stream)
            asked = {"model": model, "input": items, "tools": tools}
            if stream:
                with client.responses.stream(**asked) as events:
                    got = events.get_final_response()
            else:
                got = client.responses.create(**asked)
            thought, text, call = got.output
            assert "\n\n".join(each.text for each in thought.summary) == THOUGHT
            assert text.content[0].text == "It will."
            items += [each.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for each in got.output]
            items.append({"type": "function_call_output", "call_id": call.call_id, "output": "rain"})
    assert proof_of(model) in provider.asked[0][2]


@pytest.mark.row("GW-12")
@pytest.mark.row("GW-13")
@pytest.mark.parametrize("model", ["anthropic_messages", "openai_responses"])
def test_the_client_of_chat_completions_which_has_no_proofs(gateway, provider, stream, model):
    tools = [{"type": "function", "function": {"name": "weather", "parameters": TOOL}}]
    messages = [{"role": "user", "content": "Will it rain?"}]
    with openai.OpenAI(base_url=f"{gateway}/v1", api_key="k", max_retries=0) as client:
        for _ in range(2):
            answers(provider, model, answer_by(model), stream=stream)
            asked = {"model": model, "messages": messages, "tools": tools}
            if stream:
                with client.chat.completions.stream(**asked) as events:
                    thought = "".join(
                        each.chunk.choices[0].delta.model_extra.get("reasoning_content", "")
                        for each in events
                        if each.type == "chunk" and each.chunk.choices
                    )
                    got = events.get_final_completion().choices[0].message
            else:
                got = client.chat.completions.create(**asked).choices[0].message
                thought = got.model_extra["reasoning_content"]
            assert (thought, got.content) == (THOUGHT, "It will.")
            (call,) = got.tool_calls
            function = {"name": call.function.name, "arguments": call.function.arguments}
            plain = {"id": call.id, "type": "function", "function": function}
            messages += [
                {"role": "assistant", "content": got.content, "tool_calls": [plain]},
                {"role": "tool", "tool_call_id": call.id, "content": "rain"},
            ]
    assert proof_of(model) in provider.asked[0][2]


@pytest.mark.row("GW-12")
@pytest.mark.row("GW-13")
@pytest.mark.parametrize("model", ["anthropic_messages", "openai_responses"])
def test_the_client_of_google(gateway, provider, stream, model):
    declared = genai.types.FunctionDeclaration(name="weather", parameters_json_schema=TOOL)
    config = {"tools": [genai.types.Tool(function_declarations=[declared])]}
    contents = [genai.types.UserContent("Will it rain?")]
    with genai.Client(api_key="k", http_options={"base_url": gateway}) as client:
        for _ in range(2):
            answers(provider, model, answer_by(model), stream=stream)
            asked = {"model": model, "contents": contents, "config": config}
            if stream:
                chunks = list(client.models.generate_content_stream(**asked))
                parts = [part for each in chunks for part in each.candidates[0].content.parts or ()]
            else:
                parts = client.models.generate_content(**asked).candidates[0].content.parts
            assert "".join(each.text for each in parts if each.thought and each.text) == THOUGHT
            (call,) = [each.function_call for each in parts if each.function_call]
            result = genai.types.FunctionResponse(id=call.id, name=call.name, response={"output": "rain"})
            contents += [
                genai.types.ModelContent(parts),
                genai.types.UserContent([genai.types.Part(function_response=result)]),
            ]
    assert proof_of(model) in provider.asked[0][2]
