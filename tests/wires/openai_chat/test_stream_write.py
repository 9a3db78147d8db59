"""Writing streams of Chat Completions: laws 4 and 5, and what the official client makes of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import openai
import pytest
from hypothesis import given, strategies as st
from msgspec import UNSET, Raw, structs
from openai.lib.streaming.chat import ChatCompletionStreamState

import palaver as p
from palaver import wires
from palaver.core import events as e, jsontext
from palaver.core.errors import StreamError
from palaver.core.request import Response
from palaver.stream.replay_events import replay_events
from palaver.testing import strategies
from tests.corpus import Exchange
from tests.loopback import serve
from tests.wires import stream_laws as laws
from tests.wires.openai_chat.streams import CHOICES, HEAD, ROLE, SAME, STOP, USAGE, called, chunk, sse, whole

NAME = "openai_chat"
WIRE = wires.get(NAME)


def written(events: Iterable[e.Event], variant: str | None = None) -> tuple[bytes, tuple[p.Loss, ...]]:
    encoder = wires.get(NAME, variant=variant).stream_encoder()
    data = b"".join([encoder.feed(event) for event in events])
    return data + encoder.finish(), encoder.losses


def frames(data: bytes) -> list[Any]:
    found = [frame.removeprefix("data: ") for frame in data.decode().split("\n\n")[:-1]]
    return [frame if frame == "[DONE]" else json.loads(frame) for frame in found]


# -- own streams -----------------------------------------------------------------------------------

NOT_SAID = {
    "no finish": "every chunk has a finish reason, null until the end",
    "thinking that holds a reference": "thinking is said as text",
}
"""What a stream cannot say of its own wire's answers."""


@pytest.mark.law(4)
@pytest.mark.parametrize("name", sorted(SAME.keys() - NOT_SAID))
def test_a_stream_goes_back_as_it_came(name: str):
    events, response = laws.read(NAME, SAME[name][0])
    assert isinstance(response, Response)
    laws.check_back(NAME, events, response)


@pytest.mark.law(4)
def test_choices_go_back():
    events, response = laws.read(NAME, CHOICES)
    assert isinstance(response, Response)
    laws.check_back(NAME, events, response)


def test_what_a_stream_cannot_say():
    data, losses = written(laws.read(NAME, SAME["no finish"][0])[0])
    assert losses == ()
    assert laws.answer(NAME, data).message.finish_reason_raw is None
    data, losses = written(laws.read(NAME, SAME["thinking that holds a reference"][0])[0])
    assert [loss.what for loss in losses] == ["thinking"]
    assert laws.answer(NAME, data).message.reasoning == "ab"


@pytest.mark.law(4)
@pytest.mark.recorded(NAME, has="stream")
def test_a_recorded_stream_goes_back_as_it_came(exchange: Exchange):
    data = exchange.record["stream"].encode()
    events, response = laws.read(NAME, data)
    again, losses = written(events)
    if isinstance(response, StreamError):
        error = laws.failure(NAME, again)
        assert (error.kind, error.code, error.body) == (response.kind, response.code, response.body)
        assert error.response.message.content == response.response.message.content
        return
    found = laws.answer(NAME, again)
    if response.message.finish_reason_raw is UNSET:  # see NOT_SAID
        message = structs.replace(found.message, finish_reason_raw=UNSET)
        found = structs.replace(found, message=message)
    assert losses == ()
    assert found == response


def test_events_of_the_providers_go_out_again():
    other = {"type": "ping", "at": 1.0}
    events, _ = laws.read(NAME, sse(ROLE, other, 'event: state\ndata: {"a":1}', STOP))
    data, _ = written([*events, e.ProviderEvent("anthropic_messages", "ping", data_json=Raw(b"{}"))])
    assert b'data: {"type":"ping","at":1.0}\n\n' in data
    assert b'event: state\ndata: {"a":1}\n\n' in data
    assert b"event: ping" not in data
    assert data.count(b"ping") == 1


def test_an_event_whose_name_no_stream_can_have():
    data, _ = written([e.ProviderEvent(NAME, "a\nb", data_json=Raw(b'{"x":1}'))])
    assert data.startswith(b'data: {"x":1}\n\n')


# -- answers of every wire -------------------------------------------------------------------------


def plain(response: Response) -> Response:
    """An answer without what only one of the two forms holds.

    A stream has no index of calls but its own, and no message without a role; several texts become one either way, but
    the empty one between two is not told apart; nor are lists that hold one text.
    """

    def message(found: p.AssistantMessage) -> p.AssistantMessage:
        return found.replace(content=[_plain_part(part) for part in found.content])

    return structs.replace(
        response,
        message=message(response.message),
        alternatives=tuple([message(each) for each in response.alternatives]),
    )


def _plain_part(part: Any) -> Any:
    held = part.provider.get(NAME, {})
    if isinstance(part, (p.ToolCall, p.MalformedToolCall)) and "index" in held:
        left = {key: value for key, value in held.items() if key != "index"}
        return part.replace(provider={NAME: left}) if left else structs.replace(part, provider_json=UNSET)
    return part


def unlisted(losses: Iterable[p.Loss]) -> set[tuple[str, str]]:
    """Losses, by what and how. Lists of texts count once."""
    return {(loss.kind, loss.what) for loss in losses}


@pytest.mark.law(4)
@pytest.mark.recorded(has=("answer", "stream"), share=4)
def test_any_recorded_answer_streams_as_it_is_written_whole(exchange: Exchange):
    events = laws.recorded(exchange)
    if not events:
        return  # a stream that failed
    response = laws.assembled(events)
    body = WIRE.encode_response(response)
    data, losses = written(events)
    expected, found = WIRE.decode_response(body.body), laws.answer(NAME, data)
    if response.origin == NAME and response.message.finish_reason_raw is UNSET:  # see NOT_SAID
        found = structs.replace(found, message=structs.replace(found.message, finish_reason_raw=UNSET))
    assert plain(found) == plain(expected)
    assert unlisted(losses) == unlisted(body.losses)


@pytest.mark.parametrize("variant", ["groq", "deepseek", "openrouter", "mistral", "ollama"])
@pytest.mark.parametrize("name", ["reasoning", "reasoning_content", "reasoning details", "a list of thinking and text"])
def test_reasoning_goes_where_a_vendor_reads_it(variant: str, name: str):
    response = WIRE.decode_response(SAME[name][1])
    wire = wires.get(NAME, variant=variant)
    body = wire.encode_response(response)
    data, _ = written(replay_events(response), variant)
    decoder = wire.stream_decoder()
    decoder.feed(data)
    found, expected = decoder.finish().message, wire.decode_response(body.body).message
    if variant == "deepseek":  # takes it with calls only, and whether one follows is not known
        assert found.text == expected.text
        return
    assert [(type(part), getattr(part, "text", "")) for part in found.content] == [
        (type(part), getattr(part, "text", "")) for part in expected.content
    ]


def test_text_behind_a_call_is_listed():
    answer = p.assistant(p.Text("a"), p.tool_call("f", {}, id="c0"), p.Text("b"), finish_reason="tool_calls")
    data, losses = written(replay_events(Response(answer)))
    whole_losses = WIRE.encode_response(Response(answer)).losses
    assert unlisted(losses) == unlisted(whole_losses) == {("converted", "order of parts"), ("converted", "text")}
    assert laws.answer(NAME, data).message.text == "ab"


def test_custom_calls_may_be_cut_anywhere():
    text = json.dumps('a "quoted"\n\\ back\\slash \u2028 end"')
    call = p.ToolCall("c0", "f", text, custom=True)
    response = Response(p.AssistantMessage(content=(call,), finish_reason="tool_calls"))
    for size in range(1, len(text) + 1):
        data, losses = written(replay_events(response, size=size))
        assert losses == ()
        (found,) = laws.answer(NAME, data).message.tool_calls
        assert (found.custom, jsontext.value(found.arguments_json)) == (True, jsontext.value(text))


# -- what the official client makes of it ----------------------------------------------------------


def client_reads(data: bytes) -> Any:
    """The answer that the official client assembles, read over HTTP: by its stream helper, and chunk by chunk."""
    messages: Any = [{"role": "user", "content": "hi"}]
    with serve(data, data) as server, openai.OpenAI(base_url=server.url, api_key="k", max_retries=0) as client:
        with client.chat.completions.stream(model="m", messages=messages) as stream:
            final = stream.get_final_completion()
        state: Any = ChatCompletionStreamState()
        with client.chat.completions.create(model="m", messages=messages, stream=True) as stream:
            for each in stream:
                state.handle_chunk(each)
        assert state.get_final_completion() == final
    return final.model_dump(exclude_unset=True, warnings=False)


def same(data: bytes, response: Response) -> None:
    """The client's answer, decoded, says what the answer says; it adds an index to calls and parses them."""
    found = client_reads(data)
    for choice in found["choices"]:
        choice["message"].pop("parsed", None)
        for call in choice["message"].get("tool_calls") or ():
            call.pop("index", None)
            call["function"].pop("parsed_arguments", None)
        if choice["message"].get("tool_calls") is None:
            choice["message"].pop("tool_calls", None)
    decoded = WIRE.decode_response(found)
    expected = (response.message, *response.alternatives)
    for one, other in zip((decoded.message, *decoded.alternatives), expected, strict=True):
        assert [structs.replace(part, provider_json=UNSET) for part in one.content] == [
            structs.replace(part, provider_json=UNSET) for part in other.content
        ]
        assert one.finish_reason == other.finish_reason
    assert decoded.usage == response.usage
    assert (decoded.id, decoded.model) == (response.id, response.model)


FOREIGN = {
    "a text": p.assistant("Hello", finish_reason="stop"),
    "two calls": p.assistant(
        p.Text("I look."),
        p.tool_call("f", {"a": 1}, id="c0"),
        p.tool_call("g", {}, id="c1"),
        finish_reason="tool_calls",
    ),
    "a call without arguments": p.AssistantMessage(content=(p.ToolCall("c0", "f"),), finish_reason="tool_calls"),
    "a refusal": p.assistant(p.Refusal("I won't."), finish_reason="refusal"),
    "nothing": p.AssistantMessage(finish_reason="stop"),
    "an empty text": p.assistant("", finish_reason="stop"),
    "odd text": p.assistant("\u2028\x00\r\n\U0001f600é data: [DONE]\n\n", finish_reason="stop"),
    "reasoning of another wire": p.assistant(p.Reasoning("hm", "sig", wire="x"), p.Text("a"), finish_reason="stop"),
}


@pytest.mark.law(4)
@pytest.mark.parametrize("name", FOREIGN)
def test_the_official_client_reads_a_foreign_answer(name: str):
    message = FOREIGN[name].replace(model="m", usage=p.Usage(input=3, output=4), response_id="r1")
    data, losses = written(replay_events(Response(message), size=3))
    assert frames(data)[-1] == "[DONE]"
    same(data, WIRE.decode_response(WIRE.encode_response(Response(message)).body))
    assert unlisted(losses) == unlisted(WIRE.encode_response(Response(message)).losses)


@pytest.mark.law(4)
@pytest.mark.parametrize(
    "name",
    [
        "text",
        "odd text",
        "an empty answer",
        "a refusal",
        "a call",
        "text and a call",
        "reasoning_content",
        "two calls, interleaved",
        "reasoning details that are summaries",
        "log probabilities",
        "a recording",
        "usage in every chunk",
    ],
)
def test_the_official_client_reads_its_own_stream(name: str):
    events, response = laws.read(NAME, SAME[name][0])
    assert isinstance(response, Response)
    data, _ = written(events)
    same(data, response)


@pytest.mark.law(4)
def test_the_official_client_reads_annotations():
    found = client_reads(written(laws.read(NAME, SAME["annotations"][0])[0])[0])["choices"][0]["message"]
    assert [each["url_citation"]["url"] for each in found["annotations"]] == ["https://a.test", "https://b.test"]


@pytest.mark.law(4)
def test_the_official_client_reads_choices():
    events, response = laws.read(NAME, CHOICES)
    assert isinstance(response, Response)
    same(written(events)[0], response)


@pytest.mark.law(4)
@pytest.mark.recorded(NAME, has="stream")
def test_the_official_client_reads_recorded_streams(exchange: Exchange):
    if "snowflake" in exchange.file.name:
        return  # it has no finish reason to compare
    events, response = laws.read(NAME, exchange.record["stream"].encode())
    if isinstance(response, StreamError):
        return  # an error; what the client makes of one is tested below
    same(written(events)[0], response)


# -- anything --------------------------------------------------------------------------------------


@pytest.mark.law(7)
@given(st.lists(strategies.events(), max_size=12), st.sampled_from([None, "mistral", "ollama", "openrouter"]))
def test_any_events_make_a_stream(events: list[e.Event], variant: str | None):
    own = [event for event in events if not isinstance(event, e.ProviderEvent)]
    data, _ = written(own, variant)
    decoder = wires.get(NAME, variant=variant).stream_decoder()
    told = decoder.feed(data) + decoder.close()
    corrupt = [event for event in told if isinstance(event, e.Failed) and event.kind == "corrupt"]
    assert corrupt == []
    assert data.endswith(b"data: [DONE]\n\n") == (b'"finish_reason":"' in data and b'data: {"error"' not in data)


# -- the chunks ------------------------------------------------------------------------------------


def test_chunks_are_those_that_openai_sends():
    message = p.assistant(p.Text("ab"), p.tool_call("f", {}, id="c0"), finish_reason="tool_calls")
    message = message.replace(model="m", usage=p.Usage(input=9, output=4), response_id="r1")
    data, losses = written(replay_events(Response(message)))
    assert losses == ()
    head = {"id": "r1", "object": "chat.completion.chunk", "created": 0, "model": "m"}

    def said(delta: Any, finish: Any = None) -> Any:
        return {**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]}

    call = {"index": 0, "id": "c0", "type": "function", "function": {"name": "f", "arguments": ""}}
    assert frames(data) == [
        said({"role": "assistant"}),
        said({"content": "ab"}),
        said({"tool_calls": [call]}),
        said({"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}),
        said({"refusal": None}),
        said({}, "tool_calls"),
        {**head, "choices": [], "usage": USAGE},
        "[DONE]",
    ]


def test_text_goes_out_as_it_comes():
    encoder = WIRE.stream_encoder()
    encoder.feed(e.Start(Response(p.AssistantMessage())))
    encoder.feed(e.PartStart(0, p.Text("")))
    for piece in ("a", "b"):
        (found,) = frames(encoder.feed(e.TextDelta(0, piece)))
        assert found["choices"][0]["delta"] == {"content": piece}


# -- failure ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "failed",
    [
        e.Failed("provider", "overloaded", "529", Raw(b'{"type":"error"}')),
        e.Failed("torn", "it broke off"),
        e.Failed("corrupt", "no JSON"),
        None,
    ],
)
def test_a_failure_is_an_error_to_the_official_client(failed: e.Failed | None):
    events: list[e.Event] = [
        e.Start(Response(p.AssistantMessage(model="m"))),
        e.PartStart(0, p.Text("")),
        e.TextDelta(0, "so far"),
    ]
    data, _ = written([*events, *([failed] if failed else [])])
    assert b"[DONE]" not in data
    error = laws.failure(NAME, data)
    assert error.kind == "provider"
    assert error.response.message.text == "so far"
    assert error.code == (
        failed.code
        if failed and failed.code
        else "server_error"
        if failed and failed.kind == "provider"
        else "stream_error"
    )
    with pytest.raises(openai.APIError) as caught:
        client_reads(data)
    assert (failed.reason if failed else "ended before") in caught.value.message


def test_the_providers_own_error_goes_out_again():
    raw = {"error": {"message": "no such tool", "code": "tool_use_failed", "failed_generation": "<f>"}}
    events, found = laws.read(NAME, sse(ROLE, chunk({"content": "a"}), raw))
    data, _ = written(events)
    assert frames(data)[-1] == raw
    assert isinstance(found, StreamError)
    assert laws.failure(NAME, data).body == found.body


def test_nothing_follows_the_end():
    encoder = WIRE.stream_encoder()
    events, _ = laws.read(NAME, SAME["text"][0])
    data = b"".join([encoder.feed(event) for event in events]) + encoder.finish()
    assert data.endswith(b"data: [DONE]\n\n")
    assert encoder.finish() == encoder.feed(e.TextDelta(0, "x")) == b""


def test_an_answer_that_was_not_streamed():
    body = whole({"content": None, "tool_calls": [called("f", '{"a')]}, "tool_calls", usage=USAGE, x_new=[1])
    response = WIRE.decode_response(body)
    data, losses = written(replay_events(response))
    assert losses == ()
    assert laws.answer(NAME, data) == response
    assert HEAD["object"].encode() in data
