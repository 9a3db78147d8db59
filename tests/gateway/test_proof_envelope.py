"""Envelopes: of an alphabet that every wire takes, exact, and harmless when somebody else made them."""

import base64
import json
import re

import httpx
import pytest
from hypothesis import given, strategies as st

from palaver import Response, assistant, user, wires
from palaver.core.parts import Reasoning
from palaver.gateway.proof_envelope import MARKER, Sealed, digest_of, of_reasoning, seal, unseal
from palaver.gateway.reasoning_memory import ReasoningMemory
from tests.gateway.test_wires import ASKED, path_of
from tests.gateway.translated import answers, asked

TEXT = st.text(st.characters(codec="utf-8"), max_size=40)


@pytest.mark.row("GW-13")
@given(TEXT, st.none() | TEXT, st.none() | TEXT, st.booleans())
def test_what_is_sealed_comes_out_and_is_letters_and_digits(text, signature, encrypted, with_text):
    part = Reasoning(text, signature, encrypted, "w").replace(provider={"w": {"x": "~?>/"}})
    envelope = seal([of_reasoning(part, "w", with_text=with_text)])
    assert re.fullmatch("[A-Za-z0-9]+", envelope)
    assert len(envelope) % 4 == 0
    (found,) = unseal(envelope)
    assert found.reasoning(found.text if with_text else text) == part


def envelope_of(value):
    text = "palaver1:" + json.dumps(value)
    return base64.b64encode((text + " " * (-len(text) % 3)).encode()).decode()


FORGED = {
    "cut": MARKER + "AAA",
    "no base64": MARKER + "!!",
    "no JSON": base64.b64encode(b"palaver1:[{]").decode(),
    "no list": envelope_of({"wire": "w"}),
    "another type": envelope_of([{"wire": 5}]),
    "a deep one": base64.b64encode(b"palaver1:" + b"[" * 99_999).decode(),
    "no such wire": envelope_of([{"wire": "x" * 999, "text": "t"}]),
    "fields that are no object": envelope_of([{"wire": "anthropic_messages", "fields": "[]", "text": "t"}]),
    "fields of another kind": envelope_of([{"wire": "anthropic_messages", "fields": '{"x": 1}', "text": "t"}]),
    "fields of its own": envelope_of(
        [{"wire": "anthropic_messages", "fields": '{"anthropic_messages": {"type": "text"}}', "text": "t"}]
    ),
    "half a character": envelope_of([{"wire": "anthropic_messages", "signature": "\ud800", "text": "\udfff"}]),
    "a call": envelope_of([{"wire": "google_generate", "fields": '{"google_generate": {}}', "call": True}]),
    "nothing": envelope_of([]),
}


@pytest.mark.row("GW-13")
@pytest.mark.parametrize("envelope", FORGED.values(), ids=FORGED)
def test_a_forged_envelope_breaks_nothing(gateway, provider, envelope):
    thought = Reasoning("Hm.", signature=envelope, wire="anthropic_messages")
    request = ASKED.replace(messages=(user("Hi"), assistant(thought, "Yes."), user("And?")))
    for model in ("anthropic_messages", "bedrock_converse", "google_generate"):
        answers(provider, model, Response(assistant("Fine.", model="m", finish_reason="stop")))
        url = f"{gateway}{path_of('anthropic_messages', model, stream=False)}"
        body = asked("anthropic_messages", model, request.replace(settings=request.settings.replace(max_tokens=9)))
        got = httpx.post(url, content=body, verify=False)
        assert got.status_code == 200, got.text
        assert MARKER.encode() not in provider.asked[0][2]
        assert wires.get(model).decode_request(provider.asked[0][2]).messages[-1].text == "And?"


def test_other_text_is_no_envelope():
    assert unseal(None) == unseal("") == unseal("EqoB") == ()
    assert digest_of("a") != digest_of("b")
    assert unseal(seal([Sealed("w")])) == (Sealed("w"),)


@pytest.mark.row("GW-13")
def test_a_memory_forgets_what_was_used_least_recently():
    memory = ReasoningMemory(10_000)
    for name in (b"a", b"b", b"c"):
        memory.remember(name, [Reasoning("x" * 2500)])
        assert memory.find(b"a")
    memory.remember(b"d", [Reasoning("x" * 2500)])
    assert [bool(memory.find(name)) for name in (b"a", b"b", b"c", b"d")] == [True, False, True, True]
    memory.remember(b"e", [Reasoning("x" * 20_000)])
    assert not memory.find(b"e")
    assert memory.find(b"a")
