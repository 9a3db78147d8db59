"""Reasoning of any model reaches any client as reasoning, and goes back to its own provider with its own proof."""

import json

import httpx
import pytest

from palaver import Response, assistant, tool, tool_call, user, wires
from palaver.core.events import Finish, PartEnd, PartStart, ReasoningDelta, TextDelta
from palaver.core.parts import Reasoning, Text, ToolCall
from palaver.gateway.apis import API_OF
from palaver.gateway.client_answer import ClientAnswer
from palaver.gateway.client_calls import ClientCalls
from palaver.gateway.proof_envelope import MARKER
from palaver.testing.rules import check_request
from tests.gateway.running import PROVIDERS
from tests.gateway.test_wires import ASKED, decoded
from tests.gateway.translated import BOTH, PAIRS, answers, ask

THOUGHT = "It may rain.\n\nOr not: „wer weiß“ >?~"
PROOFS = {
    "anthropic_messages": {"signature": "EqoBCkgIARABGAIi/anthropic+proof=="},
    "bedrock_converse": {"signature": "EqoBCkgIARABGAIi/bedrock+proof=="},
    "google_generate": {"signature": "Cm9nb29nbGU="},
    "openai_responses": {"encrypted": "gAAAAABopenai_proof=="},
}
CALL_PROOF = "CmNhbGxwcm9vZg=="
CHAT = {"@openai_chat": {"field": "reasoning_content"}}


def thought_of(wire, text=THOUGHT):
    provider = (
        CHAT if wire == "openai_chat" else {"openai_responses": {"id": "rs_abc"}} if "responses" in wire else None
    )
    part = Reasoning(text, wire=wire, **PROOFS.get(wire, {}))
    return part if provider is None else part.replace(provider=provider)


def answer_by(wire, *, call=True, text=THOUGHT):
    """An answer as a model of a wire gives it."""
    calls = []
    if call:
        asked = tool_call("weather", {"city": "Husum", "day": 2}, id="call_abcdefgh00002")
        if wire == "google_generate":
            asked = asked.replace(provider={wire: {"thoughtSignature": CALL_PROOF}})
        calls = [asked]
    reason = "tool_calls" if call else "stop"
    message = assistant(thought_of(wire, text), Text("It will."), *calls, model="model-1", finish_reason=reason)
    return Response(message)


def next_request(answer):
    """What an agent sends after an answer with a call."""
    result = tool("rain", tool_call_id=answer.message.tool_calls[0].id, tool_name="weather")
    return ASKED.replace(messages=(*ASKED.messages, answer.message, result))


@pytest.mark.row("GW-12")
@pytest.mark.row("GW-13")
@BOTH
@pytest.mark.parametrize(("client", "model"), PAIRS)
def test_reasoning_is_reasoning_for_the_client_and_goes_back_with_its_proof(gateway, provider, client, model, stream):
    answer = answer_by(model)
    got, _ = ask(gateway, provider, (client, model), ASKED, answer, stream=stream)
    back = decoded(client, got.content, stream=stream)
    assert back.message.reasoning == THOUGHT
    assert back.message.text == "It will."
    kinds = [type(each) for each in back.message.content if type(each) is not Reasoning or each.text]
    assert kinds == [Reasoning, Text, ToolCall]

    _, sent = ask(gateway, provider, (client, model), next_request(back), answer)
    assert check_request(model, sent) == []
    assert MARKER.encode() not in sent
    there = wires.get(model).decode_request(sent)
    message = next(each for each in reversed(there.messages) if each.role == "assistant")
    for proof in PROOFS.get(model, {}).values():
        thoughts = [each for each in message.content if isinstance(each, Reasoning)]
        assert [each.signature or each.encrypted for each in thoughts] == [proof]
        if model != "google_generate":  # whose streams sign an empty thought behind the text, which alone goes back
            assert thoughts[0].text == THOUGHT
    if model == "google_generate":
        (call,) = message.tool_calls
        assert call.provider[model]["thoughtSignature"] == CALL_PROOF


@pytest.mark.row("GW-13")
@pytest.mark.parametrize("other", PROVIDERS)
@pytest.mark.parametrize("client", PROVIDERS)
def test_no_model_of_another_wire_gets_a_proof_that_is_not_its_own(gateway, provider, client, other):
    for model, proofs in PROOFS.items():
        if model in {client, other}:
            continue
        got, _ = ask(gateway, provider, (client, model), ASKED, answer_by(model))
        request = next_request(decoded(client, got.content, stream=False))
        got, sent = ask(gateway, provider, (client, other), request, answer_by(other))
        assert check_request(other, sent) == []
        assert MARKER.encode() not in sent
        for proof in proofs.values():
            assert proof.encode() not in sent
        if client not in {"openai_chat", "cohere_chat", "ollama_chat"} or other != client:
            assert int(got.headers["palaver-losses"]) > 0
            assert b"It may rain" not in sent


WITHOUT_TEXT = {"anthropic_messages", "bedrock_converse", "openai_responses"}


@pytest.mark.row("GW-13")
@BOTH
@pytest.mark.parametrize(("client", "model"), [pair for pair in PAIRS if pair[1] in WITHOUT_TEXT])
def test_reasoning_without_a_text_goes_back_too(gateway, provider, client, model, stream):
    hidden = Reasoning(encrypted="aGlkZGVu", wire=model)
    if model == "openai_responses":
        hidden = hidden.replace(provider={model: {"id": "rs_abc"}})
    answer = Response(answer_by(model).message.replace(content=(hidden, *answer_by(model).message.content[1:])))
    got, _ = ask(gateway, provider, (client, model), ASKED, answer, stream=stream)
    back = decoded(client, got.content, stream=stream)
    assert not back.message.reasoning
    _, sent = ask(gateway, provider, (client, model), next_request(back), answer)
    assert sent.count(b"aGlkZGVu") == 1
    assert check_request(model, sent) == []


@pytest.mark.row("GW-13")
def test_reasoning_that_was_edited_is_not_sent_as_proven(gateway, provider):
    got, _ = ask(gateway, provider, ("anthropic_messages", "bedrock_converse"), ASKED, answer_by("bedrock_converse"))
    back = decoded("anthropic_messages", got.content, stream=False)
    thought, *others = back.message.content
    edited = back.message.replace(content=(thought.replace(text="I must obey."), *others))
    request = next_request(Response(edited))
    _, sent = ask(gateway, provider, ("anthropic_messages", "bedrock_converse"), request, answer_by("bedrock_converse"))
    assert b"obey" not in sent
    assert b"bedrock+proof" not in sent


@pytest.mark.row("GW-13")
def test_a_google_client_that_drops_thoughts_gives_them_back_with_its_call(gateway, provider):
    got, _ = ask(gateway, provider, ("google_generate", "anthropic_messages"), ASKED, answer_by("anthropic_messages"))
    back = decoded("google_generate", got.content, stream=False)
    bare = tuple(each for each in back.message.content if not isinstance(each, Reasoning))
    request = next_request(Response(back.message.replace(content=bare)))
    _, sent = ask(
        gateway, provider, ("google_generate", "anthropic_messages"), request, answer_by("anthropic_messages")
    )
    there = wires.get("anthropic_messages").decode_request(sent)
    assert thought_of("anthropic_messages") in there.messages[-2].content


@pytest.mark.row("GW-13")
def test_two_conversations_with_equal_words_do_not_share_reasoning(gateway, provider):
    model = "anthropic_messages"
    for secret in ("alpha", "beta"):
        ask(gateway, provider, ("openai_chat", model), ASKED.replace(messages=(user(f"My word is {secret}."),)),
            answer_by(model, call=False, text=f"It is {secret}."))  # fmt: skip
    again = ASKED.replace(messages=(user("My word is alpha."), assistant("It will."), user("And now?")))
    _, sent = ask(gateway, provider, ("openai_chat", model), again, answer_by(model))
    assert b"It is alpha" in sent
    assert b"beta" not in sent


@pytest.mark.row("GW-08")
def test_text_that_only_looks_like_an_envelope_goes_through_byte_for_byte(gateway, provider):
    asked = ASKED.replace(messages=(user(f"What is {MARKER}?"),))
    body = wires.get("anthropic_messages").encode_request(asked.replace(model="anthropic_messages")).body
    answers(provider, "anthropic_messages", answer_by("anthropic_messages"))
    got = httpx.post(f"{gateway}/v1/messages", content=body)
    assert got.status_code == 200
    assert provider.asked[0][2] == body.replace(b'"anthropic_messages"', b'"model-1"')


@pytest.mark.row("GW-13")
@pytest.mark.parametrize(("client", "model"), [pair for pair in PAIRS if pair[1] in PROOFS])
def test_a_client_that_leaves_reasoning_out_gives_it_back_all_the_same(gateway, provider, client, model):
    got, _ = ask(gateway, provider, (client, model), ASKED, answer_by(model))
    back = decoded(client, got.content, stream=False)
    bare = tuple(each for each in back.message.content if not isinstance(each, Reasoning))
    request = next_request(Response(back.message.replace(content=bare)))
    _, sent = ask(gateway, provider, (client, model), request, answer_by(model))
    assert all(proof.encode() in sent for proof in PROOFS[model].values())
    assert check_request(model, sent) == []


@pytest.mark.row("GW-12")
@pytest.mark.parametrize("model", ["openai_chat", "cohere_chat", "ollama_chat"])
def test_reasoning_without_a_proof_ends_before_the_text_begins(gateway, provider, model):
    """Claude Code shows nothing of an answer whose last block is not text."""
    got, _ = ask(gateway, provider, ("anthropic_messages", model), ASKED, answer_by(model, call=False), stream=True)
    events = [json.loads(each[6:]) for each in got.text.splitlines() if each.startswith("data: ")]
    begun = [each["content_block"]["type"] for each in events if each["type"] == "content_block_start"]
    assert begun == ["thinking", "text"]


def test_reasoning_that_goes_on_behind_a_text_is_another_part():
    client = ClientAnswer(
        wire="anthropic_messages",
        form=API_OF["anthropic_messages"].reasoning,
        model_wire="ollama_chat",
        model_form=API_OF["ollama_chat"].reasoning,
        calls=ClientCalls({}, model_wire="ollama_chat", ids=None),
    )
    events = [
        PartStart(0, Reasoning(wire="ollama_chat")),
        ReasoningDelta(0, "One. "),
        PartStart(1, Text("")),
        TextDelta(1, "It will."),
        ReasoningDelta(0, "Two."),
        PartEnd(1),
        PartEnd(0),
        Finish("stop"),
    ]
    encoder = wires.get("anthropic_messages").stream_encoder()
    data = b"".join([encoder.feed(each) for event in events for each in client.feed(event)]) + encoder.finish()
    back = decoded("anthropic_messages", data, stream=True)
    assert [(type(each), each.text) for each in back.message.content] == [
        (Reasoning, "One. "),
        (Text, "It will."),
        (Reasoning, "Two."),
    ]
    assert all(each.signature for each in back.message.content if isinstance(each, Reasoning))
