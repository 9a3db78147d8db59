"""What the Responses wire makes of messages that it did not write (law 5, docs/spec/wires.md#3.3, #9)."""

# pyright: basic, reportArgumentType=false

import json
from typing import Any

import pytest
from hypothesis import given
from msgspec import Raw
from openai.types.responses import Response

import palaver as p
from palaver import wires
from palaver.testing import rules
from tests.wires.histories import histories
from tests.wires.openai_responses.fixtures import HOSTED, OUTPUT, PNG, RESPONSE, TOOLS, answer, asked
from tests.wires.openai_responses.forms import normal_items

WIRE = wires.get("openai_responses")
NAME = "openai_responses"


def encoded(*messages: p.Message, **fields: Any) -> tuple[dict[str, Any], list[str]]:
    made = WIRE.encode_request(p.Request(messages=messages, model="m", **fields))
    assert rules.check_request(NAME, made.body) == []
    return json.loads(made.body), [f"{loss.what} {loss.kind}" for loss in made.losses]


def items(*messages: p.Message, **fields: Any) -> list[dict[str, Any]]:
    return encoded(*messages, **fields)[0]["input"]


def said(*parts: Any) -> list[dict[str, Any]]:
    """The items of one answer between two user messages."""
    return items(p.user("hi"), p.AssistantMessage(content=parts), p.user("bye"))[1:-1]


def own(*output: dict[str, Any]) -> p.AssistantMessage:
    return WIRE.decode_response(answer(*output)).message


# -- plain messages --------------------------------------------------------------------------------


def test_plain_messages_are_easy_messages():
    assert items(p.system("s"), p.developer("d"), p.user("u"), p.assistant("a")) == [
        {"role": "system", "content": "s"},
        {"role": "developer", "content": "d"},
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": "a"},
    ]


def test_texts_that_stand_together_are_one_message():
    assert said(p.Text("a"), p.Text("b"), p.Refusal("no"), p.ToolCall("c", "f", "{}"), p.Text("d"))[:3] == [
        {
            "type": "message",
            "role": "assistant",
            "content": [
                {"type": "output_text", "text": "a", "annotations": []},
                {"type": "output_text", "text": "b", "annotations": []},
                {"type": "refusal", "refusal": "no"},
            ],
        },
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"role": "assistant", "content": "d"},
    ]


def test_a_text_put_behind_an_item_is_a_message_of_its_own():
    answered = own(OUTPUT[1])
    longer = answered.replace(content=(*answered.content, p.Text("more")))
    assert items(p.user("hi"), longer)[1:] == [OUTPUT[1], {"role": "assistant", "content": "more"}]


def test_calls_and_results():
    assert items(
        p.user("go"),
        p.assistant(
            tool_calls=[p.tool_call("f", {"a": 1}, id="c1"), p.tool_call("sql", "SELECT", id="c2", custom=True)]
        ),
        p.tool({"b": 2}, tool_call_id="c1"),
        p.tool("rows", tool_call_id="c2", is_error=True),
    )[1:] == [
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a":1}'},
        {"type": "custom_tool_call", "call_id": "c2", "name": "sql", "input": "SELECT"},
        {"type": "function_call_output", "call_id": "c1", "output": '{"b":2}'},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "Error: rows"},
    ]


def test_media():
    (message,) = items(
        p.user(
            "see",
            p.Image(p.Inline(PNG)),
            p.Image(p.Url("https://a.example/a.png")),
            p.File(p.Inline("JVBERi0="), "application/pdf"),
            p.File(p.Url("https://a.example/a.pdf"), name="a.pdf"),
            p.File(p.FileId("file_1", NAME)),
        )
    )
    assert message["content"][1:] == [
        {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "auto"},
        {"type": "input_image", "image_url": "https://a.example/a.png", "detail": "auto"},
        {"type": "input_file", "file_data": "data:application/pdf;base64,JVBERi0=", "filename": "document"},
        {"type": "input_file", "file_url": "https://a.example/a.pdf", "filename": "a.pdf"},
        {"type": "input_file", "file_id": "file_1"},
    ]


@pytest.mark.parametrize(
    "part",
    [
        p.Audio(p.Inline("AA=="), "audio/mpeg"),
        p.Video(p.Url("https://a.example/a.mp4")),
        p.Image(p.Inline("AA=="), "image/bmp"),
        p.File(p.Inline("AA=="), "audio/mpeg"),
        p.File(p.Inline("AA==")),
        p.File(p.Url("https://a.example/a.mp3")),
        p.Image(p.FileId("file_1", "anthropic_messages")),
        p.Image(p.Blob("sha256:00")),
    ],
)
def test_media_that_the_wire_does_not_take(part: Any):
    body, losses = encoded(p.user("see", part))
    assert body["input"] == [{"role": "user", "content": "see"}]
    assert losses == [f"{type(part).__name__.lower()} dropped"]


def test_the_assistant_shows_no_images():
    _, losses = encoded(p.user("draw"), p.assistant("here", p.Image(p.Inline(PNG), "image/png")))
    assert losses == ["image dropped"]


@pytest.mark.parametrize(
    "messages", [(), (p.rescue("x"),), (p.assistant(p.Reasoning("r", wire="elsewhere")),), (p.AssistantMessage(),)]
)
def test_nothing_to_say(messages: tuple[p.Message, ...]):
    body, losses = encoded(*messages)
    assert body["input"] == [{"role": "user", "content": "(The conversation begins.)"}]
    assert "messages converted" in losses


# -- reasoning and what it led to (docs/spec/wires.md#3.3.2) -----------------------------------------------------

REASONING, MESSAGE, CALL, _ = OUTPUT
RESULT = p.tool("ok", tool_call_id="call_1")


def without(message: p.AssistantMessage, kind: type) -> p.AssistantMessage:
    return message.replace(content=tuple(part for part in message.content if not isinstance(part, kind)))


def test_reasoning_goes_back_with_what_it_led_to():
    assert normal_items(items(p.user("hi"), own(*OUTPUT[:3]), RESULT)[1:4]) == normal_items(OUTPUT[:3])


def test_without_its_reasoning_an_item_has_no_id():
    body, losses = encoded(p.user("hi"), without(own(*OUTPUT[:3]), p.Reasoning), RESULT)
    message, call = body["input"][1:3]
    assert (message.get("id"), message["phase"]) == (None, "commentary")
    assert (call.get("id"), call["namespace"]) == (None, "eyes")
    assert losses == ["item id dropped"]


def test_without_its_reasoning_a_call_of_the_provider_is_nothing():
    body, losses = encoded(p.user("hi"), without(own(REASONING, *HOSTED[3:5], MESSAGE), p.Reasoning))
    assert [item.get("type") for item in body["input"]] == [None, "message"]
    assert losses.count("server tool call dropped") == 1  # one line: they are alike, and of one message
    assert losses.count("server tool result dropped") == 1


def test_items_without_reasoning_keep_their_ids():
    assert items(p.user("hi"), own(MESSAGE, CALL), RESULT)[1:3] == [MESSAGE, CALL]


@pytest.mark.parametrize("behind", [(), (p.user("bye"),)])
def test_reasoning_that_led_to_nothing_is_dropped(behind: tuple[p.Message, ...]):
    body, losses = encoded(p.user("hi"), own(REASONING), *behind)
    assert all(item.get("type") != "reasoning" for item in body["input"])
    assert losses == ["reasoning dropped"]


def test_reasoning_may_lead_to_the_next_message():
    assert normal_items(items(p.user("hi"), own(REASONING), own(MESSAGE))[1:]) == normal_items([REASONING, MESSAGE])


BARE: dict[str, Any] = {"type": "reasoning", "id": "rs_2", "summary": []}
TOLD = {**BARE, "content": [{"type": "reasoning_text", "text": "hm"}]}


@pytest.mark.parametrize(
    ("reasoning", "store", "sent"),
    [
        (REASONING, False, True),
        (BARE, None, True),
        (BARE, True, True),
        (BARE, False, False),
        (TOLD, False, True),
        ({"type": "reasoning", "summary": [], "encrypted_content": "gAAA"}, False, True),
        ({"type": "reasoning", "summary": []}, None, False),
    ],
)
def test_reasoning_that_the_provider_cannot_read_is_dropped(reasoning: Any, store: bool | None, sent: bool):
    fields = {} if store is None else {"provider_json": Raw(json.dumps({NAME: {"store": store}}).encode())}
    found = items(p.user("hi"), own(reasoning, MESSAGE), **fields)[1:]
    assert (normal_items([reasoning])[0] in normal_items(found)) is sent
    assert found[-1].get("id") == ("msg_1" if sent or "id" not in reasoning else None)


def test_reasoning_built_by_hand_is_no_proof():
    assert said(p.Reasoning("hm", wire=NAME), p.Text("a")) == [{"role": "assistant", "content": "a"}]


def test_reasoning_of_other_wires_is_dropped_or_written_as_text():
    history = p.user("hi"), p.assistant(p.Reasoning("hm", signature="s", wire="anthropic_messages"), "a")
    assert encoded(*history)[1] == ["reasoning dropped"]
    told = WIRE.encode_request(p.Request(messages=history), reasoning_as_text=True)
    assert b"hm" in told.body


# -- pairs -------------------------------------------------------------------------------------------


def test_a_malformed_call_is_written_as_text():
    body, losses = encoded(p.user("go"), p.assistant(p.MalformedToolCall("{{", "no JSON", "f", "c")))
    assert "{{" in body["input"][-1]["content"][-1]["text"]
    assert losses == ["malformed tool call converted"]


def test_ids_that_are_too_long_are_rewritten_alike():
    call, result = items(
        p.user("go"), p.assistant(tool_calls=[p.tool_call("f", "{}", id="x" * 65)]), p.tool("r", tool_call_id="x" * 65)
    )[1:]
    assert call["call_id"] == result["call_id"]
    assert call["call_id"].startswith("call_")


NATIVE: dict[str, dict[str, Any]] = {
    "shell_call": {
        "type": "shell_call",
        "id": "sh",
        "call_id": "n",
        "action": {"commands": ["ls"]},
        "status": "completed",
    },
    "local_shell_call": {
        "type": "local_shell_call",
        "id": "ls",
        "call_id": "n",
        "status": "completed",
        "action": {"type": "exec", "command": ["ls"], "env": {}},
    },
    "apply_patch_call": {
        "type": "apply_patch_call",
        "id": "ap",
        "call_id": "n",
        "status": "completed",
        "operation": {"type": "delete_file", "path": "x"},
    },
    "computer_call": {
        "type": "computer_call",
        "id": "cu",
        "call_id": "n",
        "status": "completed",
        "pending_safety_checks": [],
        "action": {"type": "screenshot"},
    },
}


@pytest.mark.parametrize(
    ("kind", "result", "output"),
    [
        (
            "shell_call",
            p.tool("a.txt", tool_call_id="n"),
            {"output": [{"stdout": "a.txt", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]},
        ),
        ("local_shell_call", p.tool("a.txt", tool_call_id="n"), {"id": "n", "output": "a.txt"}),
        (
            "apply_patch_call",
            p.tool("gone", tool_call_id="n", is_error=True),
            {"status": "failed", "output": "Error: gone"},
        ),
        (
            "computer_call",
            p.tool(p.Image(p.Url("https://a.example/a.png")), tool_call_id="n"),
            {"output": {"type": "computer_screenshot", "image_url": "https://a.example/a.png"}},
        ),
    ],
)
def test_a_native_call_gets_a_native_result(kind: str, result: p.ToolMessage, output: Any):
    assert items(p.user("go"), own(NATIVE[kind]), result)[1:] == [
        NATIVE[kind],
        {"type": f"{kind}_output", "call_id": "n", **output},
    ]


def test_a_native_call_whose_result_fits_a_function_only_is_one():
    body, losses = encoded(p.user("go"), own(NATIVE["computer_call"]))
    assert [item["type"] for item in body["input"][1:]] == ["function_call", "function_call_output"]
    assert body["input"][1]["name"] == "computer"
    assert "computer_call converted" in losses


def test_results_may_answer_calls_that_the_provider_keeps():
    result = p.tool("r", tool_call_id="c")
    kept = Raw(b'{"openai_responses":{"previous_response_id":"resp_1"}}')
    assert items(result, provider_json=kept) == [{"type": "function_call_output", "call_id": "c", "output": "r"}]
    assert items(result)[0]["role"] == "user"


# -- the head ----------------------------------------------------------------------------------------


def test_instructions_go_back_where_they_came_from():
    decoded = WIRE.decode_request({"model": "m", "instructions": "old", "input": "hi"})
    edited = decoded.replace(messages=(decoded.messages[0].replace(content=(p.Text("new"),)), p.user("ho")))
    body = json.loads(WIRE.encode_request(edited).body)
    assert (body["instructions"], body["input"]) == ("new", [{"role": "user", "content": "ho"}])


def test_instructions_that_do_not_lead_are_an_item():
    first, _ = WIRE.decode_request({"instructions": "late", "input": "hi"}).messages
    assert items(p.user("hi"), first)[1] == {"role": "system", "content": "late"}


def test_two_instructions_are_one_and_an_item():
    first, _ = WIRE.decode_request({"instructions": "a", "input": "hi"}).messages
    body, _ = encoded(first, first, p.user("hi"))
    assert (body["instructions"], body["input"][0]) == ("a", {"role": "system", "content": "a"})


def test_settings():
    settings = p.Settings(
        max_tokens=50,
        temperature=0,
        stop=("x",),
        seed=1,
        top_k=2,
        frequency_penalty=1,
        presence_penalty=1,
        stream=True,
        output=p.OutputFormat("json_schema", Raw(b'{"type":"object"}'), "answer", "An answer.", strict=True),
    )
    body, losses = encoded(p.user("hi"), settings=settings)
    assert (body["max_output_tokens"], body["temperature"], body["stream"]) == (50, 0, True)
    assert body["text"]["format"] == {
        "type": "json_schema",
        "name": "answer",
        "description": "An answer.",
        "schema": {"type": "object"},
        "strict": True,
    }
    assert losses == [f"{key} dropped" for key in ("stop", "seed", "frequency_penalty", "presence_penalty", "top_k")]


def test_sampling_is_refused_beside_an_effort():
    body, losses = encoded(p.user("hi"), settings=p.Settings(effort="high", temperature=1, top_p=0.5))
    assert body["reasoning"] == {"effort": "high"}
    assert losses == ["temperature dropped", "top_p dropped"]
    assert encoded(p.user("hi"), settings=p.Settings(effort="none", temperature=1))[1] == []


def test_json_must_be_asked_for():
    wanted = p.Settings(output=p.OutputFormat("json"))
    assert encoded(p.user("as JSON"), settings=wanted)[0]["text"] == {"format": {"type": "json_object"}}
    body, losses = encoded(p.user("hi"), settings=wanted)
    assert "text" not in body
    assert losses == ["output dropped"]


def test_tools():
    tools = (
        p.Tool.of("f", "F.", {"type": "object"}),
        p.Tool("sql", custom=True),
        p.ProviderTool("anthropic_messages", Raw(b"{}")),
        p.Tool.of("b d", strict=True, provider={"anthropic_messages": {"cache_control": {}}}),
    )
    choice = p.Settings(tool_choice=p.ToolChoice("required", ("sql", "b d")))
    body, losses = encoded(p.user("hi"), tools=tools, settings=choice)
    assert body["tools"] == [
        {"type": "function", "name": "f", "description": "F.", "parameters": {"type": "object"}, "strict": False},
        {"type": "custom", "name": "sql"},
        {"type": "function", "name": "b_d", "parameters": None, "strict": True},
    ]
    assert body["tool_choice"] == {
        "type": "allowed_tools",
        "mode": "required",
        "tools": [{"type": "custom", "name": "sql"}, {"type": "function", "name": "b_d"}],
    }
    assert sorted(losses) == ["cache_control dropped", "provider tool dropped", "tool name converted"]


def test_a_choice_among_no_tools():
    body, losses = encoded(p.user("hi"), settings=p.Settings(tool_choice=p.ToolChoice("required")))
    assert "tool_choice" not in body
    assert losses == ["tool_choice dropped"]


def test_fields_of_other_wires_are_on_the_receipt():
    foreign = Raw(b'{"anthropic_messages":{"container":"c"}}')
    assert encoded(p.user("hi"), provider_json=foreign)[1] == ["container dropped"]


def test_own_tools_keep_their_form():
    decoded = WIRE.decode_request(asked({"role": "user", "content": "hi"}, tools=TOOLS))
    assert json.loads(WIRE.encode_request(decoded.replace(model="other")).body)["tools"] == TOOLS


# -- responses ---------------------------------------------------------------------------------------

REASONS = ["stop", "length", "tool_calls", "content_filter", "refusal", "pause", "error", "other", None]


@pytest.mark.law(5)
@pytest.mark.parametrize("reason", REASONS)
@given(messages=histories())
def test_any_answer_is_accepted_by_the_official_client(reason: Any, messages: tuple[p.Message, ...]):
    for message in messages:
        if not isinstance(message, p.AssistantMessage):
            continue
        made = WIRE.encode_response(p.Response(message.replace(finish_reason=reason)))
        Response.model_validate_json(made.body)
        assert rules.check_response(NAME, made.body) == []


@pytest.mark.parametrize("reason", [*REASONS[:5], "error", "other"])
def test_a_foreign_answer_reads_back(reason: Any):
    message = p.assistant(
        *([p.Refusal("no")] if reason == "refusal" else ["yes"]),
        tool_calls=[p.tool_call("f", {}, id="c")] if reason == "tool_calls" else (),
        finish_reason=reason,
        model="m",
        response_id="r",
        usage=p.Usage(input=1, cache_read=2, cache_write=3, output=4, reasoning=5),
    )
    made = WIRE.encode_response(p.Response(message))
    found = WIRE.decode_response(made.body).message
    assert made.losses == ()
    assert (found.finish_reason, found.text, found.model, found.response_id) == (reason, message.text, "m", "r")
    assert found.usage is not None
    assert found.usage + p.Usage() == message.usage


def test_a_reason_without_a_word_is_approximated():
    made = WIRE.encode_response(p.Response(p.assistant("a", finish_reason="pause")))
    assert [str(loss) for loss in made.losses] == [
        "messages[0]: finish_reason approximated ('pause' has no equivalent; “incomplete” was sent)"
    ]


def test_an_answer_of_our_own_with_an_odd_type_is_written():
    odd = answer({"type": None, "role": "assistant", "content": "x"})
    assert json.loads(WIRE.encode_response(WIRE.decode_response(odd).replace()).body)["output"] == odd["output"]


def test_further_answers_are_dropped():
    made = WIRE.encode_response(p.Response(p.assistant("a"), (p.assistant("b"),)))
    assert [loss.what for loss in made.losses] == ["alternative"]


def test_an_edited_answer_of_our_own():
    decoded = WIRE.decode_response(RESPONSE)
    body = json.loads(WIRE.encode_response(decoded.replace()).body)
    assert body == RESPONSE
    stopped = decoded.replace(message=decoded.message.replace(finish_reason="length"))
    body = json.loads(WIRE.encode_response(stopped).body)
    assert (body["status"], body["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
