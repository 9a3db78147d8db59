"""Conflicts between the five documents, as far as values alone settle them.

Those that need a wire, a thread or a transcript format have their tests there.
"""

import pytest

import palaver
from palaver import (
    FileId,
    Image,
    Inline,
    Json,
    MalformedToolCall,
    MessageError,
    Reasoning,
    ToolCall,
    Url,
    assistant,
    dumps,
    flush,
    loads,
    rescue,
    system,
    tool,
    user,
    wires,
)
from palaver.core import messages

ACCESSORS = (
    "text",
    "reasoning",
    "images",
    "tool_calls",
    "client_tool_calls",
    "malformed_tool_calls",
    "is_summary",
    "metadata",
    "payload",
    "provider",
)

pytestmark = pytest.mark.row("MSG-16")


@pytest.mark.conflict("C1")
def test_c1_seven_roles_and_an_eighth_is_a_typed_error():
    assert len({cls().role for cls in messages.MESSAGE_CLASSES}) == 7
    with pytest.raises(palaver.DecodeError, match="unknown role 'critic'"):
        loads('{"role":"critic"}')


@pytest.mark.conflict("C2")
def test_c2_every_member_has_the_same_accessors():
    for cls in messages.MESSAGE_CLASSES:
        for name in ACCESSORS:
            getattr(cls(), name)
        assert (cls().text, cls().images, cls().tool_calls) == ("", (), ())


@pytest.mark.conflict("C3")
def test_c3_a_change_is_a_copy_and_unknown_keys_stay():
    message = loads('{"role":"user","extra_key":[1]}')
    changed = message.replace(agent="a")
    assert message.agent is None
    assert dumps(changed) == b'{"role":"user","agent":"a","extra_key":[1]}'


@pytest.mark.conflict("C4")
def test_c4_what_was_not_set_is_not_written():
    assert dumps(user()) == b'{"role":"user"}'
    assert dumps(tool()) == b'{"role":"tool"}'


@pytest.mark.conflict("C7")
def test_c7_one_system_role_with_text_in_any_position():
    conversation = palaver.Request(messages=(system("a"), user("b"), system("c")))
    again = palaver.load_conversation(palaver.dump_conversation(conversation))
    assert [message.role for message in again.messages] == ["system", "user", "system"]


@pytest.mark.conflict("C8")
def test_c8_a_rescue_prompt_is_a_user_message():
    prompt = user("Start the conversation", mode="tool", source="rescue")
    assert (prompt.role, prompt.mode, prompt.source) == ("user", "tool", "rescue")
    assert rescue("why").content == ()


@pytest.mark.conflict("C9")
def test_c9_no_id_is_invented_and_any_is_kept():
    assert user().id is None
    assert loads(dumps(user(id="3F2504E0-4F89"))).id == "3F2504E0-4F89"


@pytest.mark.conflict("C11")
def test_c11_only_what_compaction_made_is_a_summary():
    sources = ("compaction", "summarization", "continuation:x", "rescue", "repair", "note", None)
    assert [user(source=each).is_summary for each in sources] == [True] * 2 + [False] * 5


@pytest.mark.conflict("C12")
def test_c12_metadata_and_payload_are_two_fields():
    message = user(metadata={"trace": 1}, payload={"image_id": 2})
    assert (message.metadata, message.payload) == ({"trace": 1}, {"image_id": 2})
    assert palaver.content_hash(message) == palaver.content_hash(user())
    for name in wires.names():
        bodies = {wires.get(name).encode_request(palaver.Request(messages=(each,))).body for each in (message, user())}
        assert len(bodies) == 1


@pytest.mark.conflict("C13")
def test_c13_provider_fields_are_apart_and_change_no_neutral_field():
    plain = user("a")
    marked = plain.replace(provider={"anthropic_messages": {"cache_control": {}}})
    assert marked.replace(provider_json=plain.provider_json) == plain
    assert marked.text == plain.text


@pytest.mark.conflict("C14")
def test_c14_call_id_and_tool_name_are_both_optional():
    for made in (tool("a"), tool("a", tool_name="f"), tool("a", tool_call_id="1")):
        assert loads(dumps(made)) == made


@pytest.mark.conflict("C15")
def test_c15_call_ids_are_strings_untouched():
    call = ToolCall("toolu_01\u2028 É", "f")
    assert loads(dumps(assistant(call))).tool_calls[0].id == call.id


@pytest.mark.conflict("C16")
def test_c16_content_is_parts_and_text_is_the_string():
    assert user("a", Image(Url("u")), "b").text == "ab"
    assert len(user("a", Image(Url("u")), "b").content) == 3


@pytest.mark.conflict("C17")
def test_c17_nothing_is_trimmed():
    assert loads(dumps(user("  a\n"))).text == "  a\n"


@pytest.mark.conflict("C18")
def test_c18_one_order_for_text_images_and_calls():
    parts = (palaver.Text("a"), ToolCall("1", "f"), Image(Url("u")), palaver.Text("b"))
    assert loads(dumps(assistant(*parts))).content == parts


@pytest.mark.conflict("C19")
def test_c19_reasoning_and_its_proof_stay_together():
    part = Reasoning("why", signature="s", encrypted="e", wire="anthropic_messages")
    assert loads(dumps(assistant(part))).content == (part,)


@pytest.mark.conflict("C20")
def test_c20_media_comes_from_one_of_four_places():
    for source in (Inline("AA=="), Url("u"), FileId("f", "w"), palaver.Blob("sha256:0")):
        assert loads(dumps(user(Image(source)))).images[0].source == source
    with pytest.raises(palaver.DecodeError, match=r"content\[0\]\.source: missing"):
        loads('{"role":"user","content":[{"type":"image"}]}')


@pytest.mark.conflict("C21")
def test_c21_only_the_assistant_calls():
    for build in (user, system, tool, palaver.developer):
        with pytest.raises(MessageError, match="cannot hold ToolCall"):
            build(ToolCall("1", "f"))


@pytest.mark.conflict("C22")
def test_c22_the_text_of_arguments_is_the_truth():
    written = '{ "b": 1.0, "a": 5e-06 }'
    call = loads(dumps(assistant(ToolCall("1", "f", written)))).tool_calls[0]
    assert call.arguments_json == written
    assert call.arguments == {"b": 1.0, "a": 5e-06}
    assert palaver.tool_call("f", {"b": 1, "a": 2}, id="1").arguments_json == '{"b":1,"a":2}'


@pytest.mark.conflict("C23")
def test_c23_a_malformed_call_is_a_part_at_its_place_and_no_call():
    message = assistant("a", MalformedToolCall('{"a":', "cut off", "f", "1"), ToolCall("2", "g"))
    again = loads(dumps(message))
    assert again == message
    assert [call.id for call in again.tool_calls] == ["2"]
    assert again.malformed_tool_calls[0].raw == '{"a":'


@pytest.mark.conflict("C24")
def test_c24_a_result_has_typed_outputs_and_a_string_is_one():
    assert tool("a").content == (palaver.Text("a"),)
    assert tool({"a": 1}, "b").content == (Json.of({"a": 1}), palaver.Text("b"))
    assert tool().content == ()


@pytest.mark.conflict("C28")
def test_c28_tags_are_free():
    tags = ("SYSTEM", "USER_PROMPT", "expires:agent-step", "", "SYSTEM")
    assert loads(dumps(user(tags=tags))).tags == tags


@pytest.mark.row("MSG-05")
def test_flush_says_nothing():
    assert (flush().text, flush().reason, flush().content) == ("", "", ())
