"""The body of a request, as the arguments of an official client's call."""

import json

import pytest

from palaver import Request, Settings, user, wires
from tests.loopback import serve

openai = pytest.importorskip("openai")
REQUEST = Request((user("Hi"),), "m", settings=Settings(max_tokens=9))
ANSWER = {
    "id": "c",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hello."}}],
}


@pytest.mark.parametrize("wire", wires.names())
def test_fields_are_the_body(wire):
    encoded = wires.get(wire).encode_request(REQUEST)
    assert encoded.fields == json.loads(encoded.body)
    assert encoded.fields is not encoded.fields


def test_a_client_sends_them_and_what_it_returns_is_read():
    with serve(json.dumps(ANSWER).encode(), content_type="application/json") as server:
        client = openai.OpenAI(api_key="-", base_url=server.url)
        answer = client.chat.completions.create(**wires.get("openai").encode_request(REQUEST).fields)
        assert wires.get("openai").decode_response(answer).text == "Hello."
        assert json.loads(server.requests[0][1])["messages"] == [{"role": "user", "content": "Hi"}]
