"""Conversations that are translated turn by turn: what is sent is what would be sent at once."""

import gc
import json
import tracemalloc

import httpx
import pytest

from palaver import wires
from palaver.gateway.conversations import Conversations, cost_of
from palaver.gateway.recent_bodies import common_prefix
from palaver.models.names import model
from tests.gateway.test_wires import answer_of, body_of, path_of

MODEL = model("local/m", url="http://127.0.0.1:1/v1", wire="openai_chat")


def messages_body(*texts, system="Be brief."):
    roles = ("user", "assistant")
    said = [{"role": roles[place % 2], "content": text} for place, text in enumerate(texts)]
    return json.dumps({"model": "openai_chat", "max_tokens": 9, "system": system, "messages": said}).encode()


def test_turns_send_what_a_first_request_would_send(gateway, provider):
    provider.body, provider.headers = answer_of("openai_chat", stream=False), {"content-type": "application/json"}
    turns = [
        messages_body("one"),
        messages_body("one", "two", "three"),
        messages_body("one", "two", "three", "four", "five"),
        messages_body("one", "other", "three", "four", "five", "six", "seven"),
        messages_body("one", "other", "three", system="Be long."),
    ]
    for each in turns:
        assert httpx.post(f"{gateway}/v1/messages", content=each).status_code == 200
    for body, (_, _, sent) in zip(turns, provider.asked, strict=True):
        request = wires.get("anthropic_messages").decode_request(body).replace(model="model-1")
        alone = wires.get("openai_chat").encode_request(request.replace(original=None)).body
        assert json.loads(sent)["messages"] == json.loads(alone)["messages"]


def test_the_conversation_that_shares_most_is_continued():
    known = Conversations()
    begun = tuple("abcdefg")
    for words in ((*begun, *"hijk"), (*begun, *"lmno")):
        conversation = known.take(MODEL, "anthropic_messages", messages_body(*words))
        conversation.request(messages_body(*words))
        known.give_back(MODEL, "anthropic_messages", conversation)
    longer = messages_body(*begun, *"lmnopq")
    taken = known.take(MODEL, "anthropic_messages", longer)
    assert taken.body == messages_body(*begun, *"lmno")
    again = known.take(MODEL, "anthropic_messages", longer)
    assert again.body != taken.body, "one that is in use is nobody else's"


@pytest.mark.parametrize("size", [1, 3000], ids=["small bodies", "large bodies"])
def test_the_memory_of_what_is_remembered_is_bounded(size):
    known = Conversations(limit=1_000_000)
    texts = [f"{number:04}" * size for number in range(400)]
    tracemalloc.start()
    for text in texts:
        body = json.dumps({"messages": [{"role": "user", "content": text}], "model": "m", "max_tokens": 9}).encode()
        conversation = known.take(MODEL, "anthropic_messages", body)
        conversation.request(body)
        known.give_back(MODEL, "anthropic_messages", conversation)
    gc.collect()  # a conversation and its session know each other
    memory, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    kept = [each for group in known._recent._known.values() for each in group]
    assert memory < 1_200_000
    assert texts[-1].encode() in kept[-1].body
    assert 1_000_000 - cost_of(body) < sum(cost_of(each.body) for each in kept) <= 1_000_000


def test_a_model_at_the_place_of_one_that_is_gone_does_not_get_its_conversations(monkeypatch):
    monkeypatch.setattr("palaver.gateway.conversations.id", lambda _: 1, raising=False)
    known, body = Conversations(), messages_body("one")
    conversation = known.take(MODEL, "anthropic_messages", body)
    conversation.request(body)
    known.give_back(MODEL, "anthropic_messages", conversation)
    other = model("local/m", url="http://127.0.0.1:2/v1", wire="openai_chat")
    assert known.take(other, "anthropic_messages", body) is not conversation


@pytest.mark.parametrize("at", [0, 1, 500, 999, 1000])
def test_the_common_beginning_of_two_bodies(at):
    one = bytes(1000)
    assert common_prefix(one, one[:at] + b"x" + one[at:]) == at
    assert common_prefix(one[:at], one) == at


@pytest.mark.parametrize("client_wire", ["openai_responses", "google_generate", "bedrock_converse"])
def test_other_wires_are_translated_again_and_again(gateway, provider, client_wire):
    provider.body, provider.headers = answer_of("openai_chat", stream=False), {"content-type": "application/json"}
    body = body_of(client_wire, "openai_chat", stream=False)
    for _ in range(3):
        path = path_of(client_wire, "openai_chat", stream=False)
        assert httpx.post(f"{gateway}{path}", content=body).status_code == 200
    first, *others = [sent for _, _, sent in provider.asked]
    assert others == [first, first]
