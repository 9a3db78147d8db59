"""Writing Converse bodies: what the service demands, and what is told about the rest.

Source: docs/spec/wires.md#6.1, #6.2, #6.5.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

import palaver as p
from palaver import wires
from palaver.testing import rules
from tests.wires.bedrock_converse.bodies import (
    ANSWER,
    MARK,
    PDF,
    RICH,
    SEARCH,
    asking,
    assistant,
    call,
    document,
    image,
    result,
    text,
    user,
)
from tests.wires.bedrock_converse.service import parsed, refusal

WIRE = wires.get("bedrock_converse")
FIND = p.Tool.of("search", "Find.", {"type": "object"})


def _encoded(request: p.Request, *told: str) -> dict[str, Any]:
    """The body, which the service would take; ``told`` are the losses, as ``kind what``."""
    encoded = WIRE.encode_request(request)
    body = json.loads(encoded.body)
    assert refusal(body) == ""
    assert rules.check_request("bedrock_converse", encoded.body) == []
    assert [f"{loss.kind} {loss.what}" for loss in encoded.losses] == list(told)
    return body


def _sent(*messages: p.Message, told: tuple[str, ...] = (), **fields: Any) -> list[dict[str, Any]]:
    return _encoded(p.Request(messages=messages, tools=(FIND,), **fields), *told)["messages"]


def _call(call_id: str = "t1", arguments: str = "{}") -> p.ToolCall:
    return p.ToolCall(call_id, "search", arguments)


# -- order --


def test_runs_of_one_role_are_one_message() -> None:
    sent = _sent(p.user("a"), p.user("b"), p.assistant("c"), p.assistant("d"), p.user("e"))
    assert sent == [user(text("a"), text("b")), assistant(text("c"), text("d")), user(text("e"))]


def test_results_of_a_turn_stand_together_before_what_the_user_says() -> None:
    sent = _sent(
        p.user("q"),
        p.assistant(tool_calls=[_call("a"), _call("b")]),
        p.tool("1", tool_call_id="a"),
        p.user("meanwhile"),
        p.tool({"n": 2}, tool_call_id="b", is_error=True),
        told=("converted tool result",),
    )
    assert sent[2] == user(result("a", text("1")), result("b", {"json": {"n": 2}}, status="error"), text("meanwhile"))


def test_the_first_message_is_the_users() -> None:
    assert _sent(p.assistant("hi"), p.user("x"), told=("converted first message",))[0]["role"] == "user"


def test_no_messages_at_all() -> None:
    assert len(_sent(told=("converted messages",))) == 1
    body = _encoded(p.Request(messages=(p.system("s"),)), "converted messages")
    assert body["system"] == [text("s")]


def test_blank_texts_are_left_out_and_no_message_is_empty() -> None:
    sent = _sent(
        p.user("q"),
        p.assistant(""),
        p.user("x", " "),
        p.assistant(),
        p.user(),
        told=("dropped text", "dropped text", "dropped assistant message", "dropped user message"),
    )
    assert sent == [user(text("q"), text("x"))]
    bare = p.Reasoning("r", wire="bedrock_converse")
    sent = _sent(p.user("q"), p.assistant(bare), p.user("x"), told=("converted assistant message", "dropped reasoning"))
    assert sent == [user(text("q")), assistant(text(".")), user(text("x"))]


def test_a_last_assistant_message_does_not_end_in_white_space() -> None:
    assert _sent(p.user("q"), p.assistant("a \n"), told=("converted text",))[-1] == assistant(text("a"))


def test_documents_beside_results_follow_in_a_message_of_their_own() -> None:
    said = (p.user("q"), p.assistant(tool_calls=[_call()]), p.tool("1", tool_call_id="t1"))
    sent = _sent(
        *said, p.user("see", p.File(p.Inline(PDF), "application/pdf", "Plan")), told=("converted user message",)
    )
    assert sent[2:] == [user(result("t1", text("1"))), assistant(text(".")), user(text("see"), document("Plan"))]
    assert _sent(*said, p.user("see"))[2:] == [user(result("t1", text("1")), text("see"))]


def test_documents_that_stood_beside_results_stay_there() -> None:
    body = asking(
        user(text("q")),
        assistant(call()),
        user(result("t1", text("1")), text("see"), document()),
        toolConfig={"tools": [SEARCH]},
    )
    assert json.loads(WIRE.encode_request(WIRE.decode_request(body).replace()).body) == body


@pytest.mark.parametrize("model", ["meta.llama3-70b-instruct-v1:0", "eu.mistral.pixtral-large-2502-v1:0"])
def test_some_families_take_nothing_beside_results(model: str) -> None:
    sent = _sent(
        p.user("q"),
        p.assistant(tool_calls=[_call()]),
        p.tool("1", tool_call_id="t1"),
        p.user("and"),
        model=model,
        told=("converted user message",),
    )
    assert [m["role"] for m in sent] == ["user", "assistant", "user", "assistant", "user"]


def test_later_system_messages_and_developers() -> None:
    body = _encoded(
        p.Request(messages=(p.developer("d"), p.system("s"), p.user("q"), p.system("later"))),
        "converted developer message",
        "converted system message",
    )
    assert body["system"] == [text("d"), text("s")]
    assert body["messages"] == [user(text("q"), text("[System]"), text("later"))]


# -- parts --


def test_documents_get_names_that_the_service_takes_each_once() -> None:
    def file(name: str | None) -> p.File:
        return p.File(p.Inline(PDF), "application/pdf", name)

    sent = _sent(
        p.user(
            "q", file("my_report  v2.pdf"), file("Plan [1]"), file("Plan [1]"), file("é"), file(None), file("x" * 300)
        ),
        told=("converted file name",) * 4,
    )
    names = [block["document"]["name"] for block in sent[0]["content"][1:]]
    assert names == ["my report v2", "Plan [1]", "Plan [1] 2", "document", "document 2", "x" * 200]


def test_a_document_gets_a_text_beside_it() -> None:
    sent = _sent(p.user(p.File(p.Inline(PDF), "application/pdf", "Plan")), told=("converted document",))
    assert [next(iter(block)) for block in sent[0]["content"]] == ["text", "document"]


@pytest.mark.parametrize(
    ("part", "block"),
    [
        (p.Image(p.Inline("iVBORw0KGgoAAAA="), "image/png"), image()),
        (p.Image(p.Url("s3://bucket/a.png")), image(s3Location={"uri": "s3://bucket/a.png"})),
        (p.Image(p.Inline("iVBORw0KGgoAAAA")), image()),
        (p.Image(p.Inline("AAAA"), "image/jpg"), {"image": {"format": "jpeg", "source": {"bytes": "AAAA"}}}),
        (p.Audio(p.Inline("AAAA"), "audio/x-wav"), {"audio": {"format": "wav", "source": {"bytes": "AAAA"}}}),
    ],
)
def test_media_that_the_service_takes(part: Any, block: dict[str, Any]) -> None:
    assert _sent(p.user("q", part))[0]["content"][1] == block


@pytest.mark.parametrize(
    "part",
    [
        p.Image(p.Url("https://example.com/a.png")),
        p.Image(p.Url("s3://bucket/a.bmp"), "image/bmp"),
        p.Image(p.Inline("AAAA"), "image/bmp"),
        p.Image(p.Inline("AAAA")),
        p.Image(p.Inline(""), "image/png"),
        p.Image(p.Inline("not base64!"), "image/png"),
        p.File(p.FileId("f1", "openai_chat")),
        p.Video(p.Blob("sha256:00"), "video/mp4"),
    ],
)
def test_media_that_it_does_not_take(part: Any) -> None:
    kind = "file" if isinstance(part, p.File) else "video" if isinstance(part, p.Video) else "image"
    assert _sent(p.user("q", part), told=(f"dropped {kind}",)) == [user(text("q"))]


def test_results_hold_media_objects_and_never_nothing() -> None:
    sent = _sent(
        p.user("q"),
        p.assistant(tool_calls=[_call("a"), _call("b"), _call("c")]),
        p.tool(p.Image(p.Inline("AAAA"), "image/png"), p.Json.of([1]), tool_call_id="a"),
        p.tool(tool_call_id="b"),
        p.tool("", p.Audio(p.Inline("AAAA"), "audio/wav"), tool_call_id="c", is_error=True),
        told=("converted json", "converted tool result", "converted tool result", "dropped text", "converted media"),
    )
    contents = [block["toolResult"]["content"] for block in sent[2]["content"] if "toolResult" in block]
    assert contents[0][1] == {"json": {"value": [1]}}
    assert contents[1] == [text("(no output)")]
    assert contents[2] == [text("(The result is attached below.)")]
    assert "audio" in sent[2]["content"][-1]


def test_arguments_are_objects() -> None:
    sent = _sent(
        p.user("q"),
        p.assistant(tool_calls=[_call("a", "[1]"), _call("b", "{bad"), _call("c", ""), _call("d e")]),
        told=("converted tool call ids", *("converted tool call",) * 1, *("converted arguments",) * 2),
    )
    inputs = [block["toolUse"]["input"] for block in sent[1]["content"]]
    assert inputs == [{"value": [1]}, {"INVALID_JSON": "{bad"}, {}, {}]
    assert sent[2]["content"][0]["toolResult"]["status"] == "error"


def test_reasoning_goes_back_only_with_a_proof() -> None:
    signed = p.Reasoning(" a ", "sig", wire="bedrock_converse")
    bare = p.Reasoning("b", wire="bedrock_converse")
    foreign = p.Reasoning("c", "sig", wire="anthropic_messages")
    said = (p.user("q"), p.assistant("x", signed, bare, foreign), p.user("r"))
    proof = {"reasoningContent": {"reasoningText": {"text": " a ", "signature": "sig"}}}
    assert _sent(*said, told=("dropped reasoning",) * 2)[1] == assistant(text("x"), proof)
    kept = WIRE.encode_request(p.Request(messages=said, model="us.amazon.nova-2-lite-v1:0"))
    assert {"reasoningContent": {"reasoningText": {"text": "b"}}} in json.loads(kept.body)["messages"][1]["content"]


def test_at_most_four_cache_points_and_none_first() -> None:
    mark = p.Opaque("bedrock_converse", p.Json.of(MARK).value_json)
    body = _encoded(
        p.Request(
            messages=(p.system("s", mark), p.user(mark, "a", mark, mark), p.assistant("b", mark), p.user("c", mark))
        ),
        "dropped cachePoint",
        "dropped cachePoint",
    )
    assert body["system"][1] == MARK
    assert [MARK in message["content"] for message in body["messages"]] == [True, True, False]


def test_citations_of_our_own_stand_on_the_assistants_text_only() -> None:
    cited = p.Text("a", (p.Citation(wire="bedrock_converse", raw_json=p.Json.of({"title": "t"}).value_json),))
    body = _encoded(p.Request(messages=(p.user(cited), p.assistant(cited), p.user("b"))), "dropped citations")
    assert body["messages"][0] == user(text("a"))
    assert body["messages"][1] == assistant(
        {"citationsContent": {"content": [text("a")], "citations": [{"title": "t"}]}}
    )


# -- tools and settings --


def test_tools_are_declared_when_the_history_needs_them() -> None:
    said = (p.user("q"), p.assistant(tool_calls=[_call()]), p.tool("1", tool_call_id="t1"))
    body = _encoded(p.Request(messages=said), "approximated tools")
    assert body["toolConfig"] == {
        "tools": [{"toolSpec": {"name": "search", "inputSchema": {"json": {"type": "object"}}}}]
    }


def test_choice_none_leaves_the_tools_out_where_it_can() -> None:
    settings = p.Settings(tool_choice=p.ToolChoice("none"))
    other = p.Tool.of("other", None, {"type": "object"})
    body = _encoded(p.Request(messages=(p.user("q"),), tools=(FIND, other), settings=settings), "converted tool_choice")
    assert "toolConfig" not in body
    said = (p.user("q"), p.assistant(tool_calls=[_call()]), p.tool("1", tool_call_id="t1"))
    body = _encoded(p.Request(messages=said, tools=(FIND, other), settings=settings), "approximated tool_choice")
    assert body["toolConfig"] == {"tools": [SEARCH]}


def test_a_growing_request_says_none_as_one_that_is_whole() -> None:
    settings = p.Settings(tool_choice=p.ToolChoice("none"))
    early = (p.user("q"), p.assistant("a"), p.user("b"))
    said = (*early, p.assistant(tool_calls=[_call()]), p.tool("1", tool_call_id="t1"))
    grown = WIRE.request_encoder(p.Request(messages=early, tools=(FIND,), settings=settings))
    assert b"toolConfig" not in b"".join(grown.chunks())
    for message in (p.assistant("c"), p.user("d"), *said[3:]):
        grown.append(message)
    said = (*early, p.assistant("c"), p.user("d"), *said[3:])
    assert (
        b"".join(grown.chunks()) == WIRE.encode_request(p.Request(messages=said, tools=(FIND,), settings=settings)).body
    )


@pytest.mark.parametrize(
    ("choice", "written", "told"),
    [
        (p.ToolChoice("auto"), {"auto": {}}, ()),
        (p.ToolChoice("required"), {"any": {}}, ()),
        (p.ToolChoice("required", ("search",)), {"tool": {"name": "search"}}, ()),
        (p.ToolChoice("required", ("nowhere",)), {"any": {}}, ("approximated tool_choice",)),
        (p.ToolChoice("auto", ("search",)), {"auto": {}}, ()),
    ],
)
def test_tool_choices(choice: p.ToolChoice, written: Any, told: tuple[str, ...]) -> None:
    request = p.Request(messages=(p.user("q"),), tools=(FIND,), settings=p.Settings(tool_choice=choice))
    assert _encoded(request, *told)["toolConfig"]["toolChoice"] == written


def test_schemas_are_those_of_objects() -> None:
    tools = (
        p.Tool.of("a"),
        p.Tool.of("b", "", {}),
        p.Tool("c", custom=True),
        p.ProviderTool("openai_chat", p.Json.of({}).value_json),
    )
    body = _encoded(p.Request(messages=(p.user("q"),), tools=tools), "converted tools", "dropped provider tool")
    schemas = [tool["toolSpec"]["inputSchema"]["json"]["type"] for tool in body["toolConfig"]["tools"]]
    assert schemas == ["object"] * 3


def test_settings_that_the_wire_lacks_are_on_the_receipt() -> None:
    settings = p.Settings(
        max_tokens=0,
        temperature=1.5,
        seed=1,
        frequency_penalty=0.1,
        effort="minimal",
        top_k=3,
        reasoning_tokens=9,
        stream=True,
        output=p.OutputFormat(kind="json"),
        parallel_tool_calls=False,
        stop=("", "x"),
    )
    body = _encoded(
        p.Request(
            messages=(p.user("q"),),
            settings=settings,
            provider_json=p.Json.of({"openai_chat": {"user": "me"}}).value_json,
        ),
        *("approximated max_tokens", "approximated temperature", "dropped reasoning_tokens", "approximated effort"),
        *(
            "dropped stop",
            "dropped output",
            "dropped top_k",
            "dropped seed",
            "dropped frequency_penalty",
        ),
        *("dropped parallel_tool_calls", "dropped user"),
    )
    assert body["inferenceConfig"] == {"maxTokens": 1, "temperature": 1.0, "stopSequences": ["x"]}


def test_a_known_family_gets_the_settings_it_reads() -> None:
    settings = p.Settings(top_k=3, reasoning_tokens=2000, effort="high")
    body = _encoded(p.Request(messages=(p.user("q"),), settings=settings, model="us.anthropic.claude-opus-4-5-v1:0"))
    assert body["additionalModelRequestFields"] == {
        "thinking": {"type": "enabled", "budget_tokens": 2000},
        "top_k": 3,
    }
    assert body["outputConfig"] == {"effort": "high"}


def test_a_schema_goes_as_text_inside_the_text_format() -> None:
    output = p.OutputFormat(
        kind="json_schema", schema_json=p.Json.of({"type": "object"}).value_json, name="N", strict=True
    )
    body = _encoded(p.Request(messages=(p.user("q"),), settings=p.Settings(output=output)), "dropped output strict")
    inner = body["outputConfig"]["textFormat"]["structure"]["jsonSchema"]
    assert (json.loads(inner["schema"]), inner["name"]) == ({"type": "object"}, "N")


# -- growing, and coming back --


def test_own_turns_come_back_after_a_turn_elsewhere() -> None:
    """A → B → A: what this wire said before stays byte for byte, marks and signatures in place."""
    request = WIRE.decode_request(RICH)
    before = json.loads(WIRE.encode_request(request).body)
    elsewhere = p.assistant("b", p.Reasoning("r", wire="openai_chat"), model="other")
    after = json.loads(WIRE.encode_request(request.append(elsewhere, p.user("more"))).body)
    assert after["messages"][: len(before["messages"])] == before["messages"]
    assert {**after, "messages": ()} == {**before, "messages": ()}


def test_appending_gives_what_encoding_at_once_gives() -> None:
    messages = (
        p.user("q", p.File(p.Inline(PDF), "application/pdf", "Plan")),
        p.assistant("a", tool_calls=[_call("a")]),
        p.assistant("b"),
        p.tool("1", tool_call_id="a"),
        p.assistant("c"),
        p.user("d", p.File(p.Inline(PDF), "application/pdf", "Plan")),
    )
    grown = WIRE.request_encoder(p.Request(tools=(FIND,)))
    for message in messages:
        grown.append(message)
        list(grown.chunks())
    whole = WIRE.encode_request(p.Request(messages=messages, tools=(FIND,)))
    assert json.loads(b"".join(grown.chunks())) == json.loads(whole.body)
    assert rules.check_request("bedrock_converse", whole.body) == []


# -- responses --


def test_a_foreign_response_is_one_that_the_client_reads() -> None:
    message = p.assistant(
        "hi",
        p.Reasoning("r", wire="openai_chat"),
        tool_calls=[_call()],
        finish_reason="tool_calls",
        model="m",
        response_id="i",
        usage=p.Usage(input=3, output=4, reasoning=2, cache_read=1),
    )
    encoded = WIRE.encode_response(p.Response(message=message))
    read = parsed(encoded.body)
    assert read["output"]["message"] == assistant(text("hi"), call())
    assert (read["stopReason"], read["metrics"]) == ("tool_use", {"latencyMs": 0})
    assert read["usage"] == {"inputTokens": 3, "outputTokens": 6, "totalTokens": 10, "cacheReadInputTokens": 1}
    assert {f"{loss.kind} {loss.what}" for loss in encoded.losses} == {
        "dropped reasoning",
        "dropped model",
        "dropped response_id",
    }
    assert rules.check_response("bedrock_converse", encoded.body) == []


USED = p.Usage(input=1, output=1)


@pytest.mark.parametrize(
    ("reason", "word"), [("stop", "end_turn"), ("length", "max_tokens"), ("content_filter", "content_filtered")]
)
def test_finish_words(reason: Any, word: str) -> None:
    encoded = WIRE.encode_response(p.Response(message=p.assistant("x", finish_reason=reason, usage=USED)))
    assert json.loads(encoded.body)["stopReason"] == word
    assert encoded.losses == ()


def test_a_finish_reason_without_a_word_is_on_the_receipt() -> None:
    encoded = WIRE.encode_response(p.Response(message=p.assistant("x", finish_reason="pause", usage=USED)))
    assert [loss.what for loss in encoded.losses] == ["finish_reason"]


def test_an_edited_response_keeps_its_bare_reasoning() -> None:
    bare = {"reasoningContent": {"reasoningText": {"text": "r"}}}
    body = {**ANSWER, "output": {"message": assistant(bare, text("x"))}}
    assert json.loads(WIRE.encode_response(WIRE.decode_response(body).replace()).body) == {
        **body,
        "stopReason": "tool_use",
    }
