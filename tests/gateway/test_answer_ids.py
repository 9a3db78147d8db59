"""Ids of translated answers: each is there once, whatever the model's server gives."""

import json
import re

import pytest
from msgspec import structs

from palaver import Request, Response, assistant, tool_call, user
from palaver.core.parts import Text
from tests.gateway.running import PROVIDERS
from tests.gateway.translated import BOTH, ask

IDS = {
    "openai_chat": r'"id":"(chatcmpl-[0-9a-f]{32})"',
    "openai_responses": r'"response":\{"id":"(resp_[0-9a-f]{32})"|\A\{"id":"(resp_[0-9a-f]{32})"',
    "anthropic_messages": r'"id":"(msg_[0-9a-f]{32})"',
    "google_generate": r'"responseId":"([0-9a-f]{32})"',
    "cohere_chat": r'"id":"([0-9a-f]{32})"',
}
"""Where each wire has the id of an answer."""
PAIRS = [(client, other) for client in IDS for other in PROVIDERS if client != other]
SAME = Response(assistant(Text("Fine."), tool_call("look", {}, id="call00001"), model="m", finish_reason="tool_calls"))


@pytest.mark.row("GW-09")
@BOTH
@pytest.mark.parametrize("given", [None, "same-1"])
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_no_two_answers_have_one_id(gateway, provider, pair, stream, given):
    answer = structs.replace(SAME, message=SAME.message.replace(response_id=given))
    found = []
    for _ in range(2):
        got, _ = ask(gateway, provider, pair, Request((user("Why?"),)), answer, stream=stream)
        ids = {next(filter(None, each.groups())) for each in re.finditer(IDS[pair[0]], got.text)}
        assert len(ids) == 1, got.text
        assert got.headers["palaver-exchange"].replace("-", "") in ids.copy().pop()
        found += ids
    assert len(set(found)) == 2


@pytest.mark.row("GW-09")
@BOTH
def test_no_two_items_of_responses_have_one_id(gateway, provider, stream):
    found = set()
    for _ in range(2):
        pair = ("openai_responses", "anthropic_messages")
        got, _ = ask(gateway, provider, pair, Request((user("Why?"),)), SAME, stream=stream)
        body = json.loads(got.text.split("data: ")[-1])["response"] if stream else got.json()
        items = [each["id"] for each in body["output"]]
        assert [each.partition("_")[0] for each in items] == ["msg", "fc"]
        if stream:
            assert set(re.findall(r'"item_id":"([^"]*)"', got.text)) == set(items)
        found |= set(items)
    assert len(found) == 4
