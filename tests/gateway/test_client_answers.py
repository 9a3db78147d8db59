"""What clients get of answers of models that speak another wire: fields, ends and order."""

import json
import time

import openai
import pytest

from palaver import Request, Response, Usage, assistant, user
from palaver.core.parts import Text
from tests.gateway.running import PROVIDERS
from tests.gateway.translated import BOTH, answers, ask

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
