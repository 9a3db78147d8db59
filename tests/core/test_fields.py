"""Rows F01 to F94 of the field table: each has a constructor or an accessor, shown here."""

import json
from collections.abc import Callable
from typing import get_args

import pytest
from msgspec import UNSET, Raw

import palaver
from palaver import (
    Audio,
    Blob,
    Citation,
    File,
    FileId,
    FlushMarker,
    Image,
    Inline,
    Json,
    MalformedToolCall,
    Message,
    Opaque,
    Reasoning,
    Refusal,
    RescueMarker,
    ServerToolResult,
    Text,
    ToolCall,
    Url,
    Usage,
    Video,
    assistant,
    developer,
    dumps,
    flush,
    loads,
    rescue,
    system,
    tool,
    tool_call,
    user,
)
from palaver.core import messages, parts

PNG = b"\x89PNG\r\n\x1a\n"
PIXEL = Image.from_bytes(PNG)
CALL = tool_call("f", {"b": 1, "a": [2.0]}, id="call_1")
ROLES = ("system", "developer", "user", "assistant", "tool", "rescue", "flush")


def refused(build: Callable[[], object], error: type[Exception] = palaver.MessageError) -> bool:
    try:
        build()
    except error:
        return True
    return False


def kept(message: Message) -> bool:
    return loads(dumps(message)) == message


def written(message: Message) -> dict:
    return json.loads(dumps(message))


ROWS: dict[str, Callable[[], object]] = {
    # A. the message as a whole
    "F01": lambda: all(not hasattr(user(), name) for name in ("temperature", "stop_sequence")),
    "F02": lambda: tuple(cls().role for cls in messages.MESSAGE_CLASSES) == ROLES,
    "F03": lambda: refused(lambda: setattr(user("a"), "id", "1"), AttributeError),
    "F04": lambda: user("a", id="1") == user("a", id="1") != user("a", id="2"),
    "F05": lambda: len({dumps(user(payload=p)) for p in (UNSET, None, {}, "")}) == 4,
    "F06": lambda: user(payload={"a": 1, "b": 2}) == user(payload={"b": 2, "a": 1}),
    "F07": lambda: dumps(loads('{"role":"user","new":[1.50]}')) == b'{"role":"user","new":[1.50]}',
    # B. roles
    "F10": lambda: user("a").role == "user",
    "F11": lambda: assistant("a").role == "assistant",
    "F12": lambda: system("a", "b").text == "ab" and refused(lambda: system(PIXEL)),
    "F13": lambda: developer("a").role == "developer",
    "F14": lambda: tool("a").role == "tool" and user("a", mode="tool", source="rescue").text == "a",
    "F15": lambda: rescue("why").reason == "why" and rescue("why").content == (),
    "F16": lambda: flush().reason == "" and flush().content == (),
    # C. message fields
    "F20": lambda: user().id is None and kept(user(id="A-b_C")),
    "F21": lambda: user().agent is None and user(agent="triage").agent == "triage",
    "F22": lambda: user().mode is None and [user(mode=m).mode for m in ("user", "tool")],
    "F23": lambda: user(tags=["B", "A", "B"]).tags == ("B", "A", "B"),
    "F24": lambda: user().sent_at is None and kept(user(sent_at=1700000000000)),
    "F25": lambda: user(source="continuation:x").source == "continuation:x",
    "F26": lambda: (user().payload, user(payload=None).payload) == (UNSET, None),
    "F27": lambda: user().metadata == {} and user(metadata={"a": 1}).metadata == {"a": 1},
    "F28": lambda: user().verbatim is False and user(verbatim=True).verbatim is True,
    "F29": lambda: not hasattr(user(), "time_to_live") and kept(user(tags=("expires:agent-step",))),
    "F30": lambda: (
        user(provider={"x": {"a": 1}}).provider["x"] == {"a": 1}
        and Text("a").replace(provider={"x": {}}).provider == {"x": {}}
    ),
    "F31": lambda: (
        assistant().usage is None
        and Usage(input=1, cache_read=2, output=3) + Usage(input=1, cache_write=1, reasoning=4)
        == Usage(input=2, cache_read=2, cache_write=1, output=3, reasoning=4)
    ),
    "F32": lambda: assistant(model="m").model == "m",
    "F33": lambda: (
        written(assistant(finish_reason="stop", finish_reason_raw="end_turn"))
        == {"role": "assistant", "finish_reason": "stop", "finish_reason_raw": "end_turn"}
    ),
    "F34": lambda: assistant(response_id="r").response_id == "r",
    "F35": lambda: tool(tool_call_id=" é ").tool_call_id == " é " and not hasattr(user(), "tool_name"),
    "F36": lambda: tool(tool_name="f").tool_name == "f" and tool().tool_name is None,
    "F37": lambda: not any("token" in name for name in messages.UserMessage.__struct_fields__),
    # D. content and parts
    "F40": lambda: user(" a ").content == (Text(" a "),) and user(" a ").text == " a ",
    "F41": lambda: assistant("a", CALL, "b").content == (Text("a"), CALL, Text("b")),
    "F42": lambda: user() != user("") and user("").content == (Text(""),),
    "F43": lambda: kept(user("\ud800")) and user("\ud800").text == "\ud800",
    "F44": lambda: kept(assistant(Reasoning("t", signature="s", encrypted="e", wire="w"))),
    "F45": lambda: user(PIXEL).images == assistant(PIXEL).images == tool(PIXEL).images == (PIXEL,),
    "F46": lambda: (
        len(get_args(parts.MediaSource)) == 4
        and all(kept(user(Image(source))) for source in (Inline("AA=="), Url("u"), FileId("f", "w"), Blob("sha256:0")))
    ),
    "F47": lambda: (
        PIXEL.media_type == "image/png"
        and Image.from_url("https://x/a.webp?b").media_type == "image/webp"
        and Image.from_bytes(b"?").media_type is None
        and Image.from_bytes(PNG, "image/x").media_type == "image/x"
    ),
    "F48": lambda: kept(user(Audio(Url("u"), "audio/wav"), Video(Inline("AA")))),
    "F49": lambda: File(Url("u"), "application/pdf", "a.pdf").name == "a.pdf",
    "F50": lambda: kept(assistant(Refusal("no"))),
    "F51": lambda: kept(assistant(Text("a", (Citation(url="u", start=0, end=1, raw_json=Raw(b"1")),)))),
    "F52": lambda: Opaque("w", Raw(b'{"a":1}')).raw == {"a": 1} and kept(user(Opaque("w", Raw(b"[2.0]")))),
    # E. tool calls and results
    "F60": lambda: assistant("a", CALL).tool_calls == (CALL,) and refused(lambda: user(CALL)),
    "F61": lambda: assistant(tool_calls=[CALL]).tool_calls[0].id == "call_1",
    "F62": lambda: ToolCall("1", "My Tool!").name == "My Tool!",
    "F63": lambda: (
        CALL.arguments_json == '{"b":1,"a":[2.0]}'
        and CALL.arguments == {"b": 1, "a": [2.0]}
        and ToolCall("1", "f", "").arguments == {}
        and refused(lambda: ToolCall("1", "f", "[]").arguments, palaver.ArgumentsError)
    ),
    "F64": lambda: set(written(assistant(CALL))["content"][0]) == {"type", "id", "name", "arguments_json"},
    "F65": lambda: (
        ToolCall("1", "f", provider_executed=True).provider_executed
        and kept(assistant(ServerToolResult("1", Raw(b"{}"), "w")))
    ),
    "F66": lambda: assistant(MalformedToolCall("{", "cut off", "f", "1")).malformed_tool_calls[0].raw,
    "F67": lambda: tool_call("f", {"size": 3, "path": "a.txt"}, id="1").described == "path: a.txt, size: 3",
    "F68": lambda: (
        [type(each) for each in Json(Raw(b"[true,1,1.0,null]")).value] == [bool, int, float, type(None)]
        and Json.of(1) != Json.of(1.0) != Json.of(True)
    ),
    "F69": lambda: tool("a", {"b": 1}, PIXEL).content == (Text("a"), Json.of({"b": 1}), PIXEL),
    "F70": lambda: tool("a").is_error is False and tool("a", is_error=True).is_error is True,
    "F71": lambda: tool("a", tool_call_id=CALL.id).tool_call_id == CALL.id and kept(tool("a")),
    # F. convenience properties
    "F80": lambda: user("a", PIXEL, "b").text == "ab" and flush().text == "",
    "F81": lambda: (
        assistant(Reasoning("a"), "x", Reasoning("b")).reasoning == "a\n\nb" and assistant("x").reasoning is None
    ),
    "F82": lambda: user(PIXEL, "a", Image(Url("u"))).images == (PIXEL, Image(Url("u"))),
    "F83": lambda: assistant(CALL, MalformedToolCall("", "")).tool_calls == (CALL,),
    "F84": lambda: user(source="summarization").is_summary and not user(source="note").is_summary,
    # G. factories
    "F90": lambda: system("a", "b", agent="x").content == (Text("a"), Text("b")),
    "F91": lambda: user("a", PIXEL, "b").content == (Text("a"), PIXEL, Text("b")),
    "F92": lambda: assistant("a", tool_calls=[CALL], reasoning="r").content == (Reasoning("r"), Text("a"), CALL),
    "F93": lambda: tool("a", tool_call_id="1", tool_name="f", is_error=True).tool_name == "f",
    "F94": lambda: all(
        made.id is None and made.sent_at is None
        for made in (system(), developer(), user(), assistant(), tool(), rescue(), flush())
    ),
}


@pytest.mark.row("MSG-02")
@pytest.mark.parametrize("row", ROWS)
def test_field(row):
    assert ROWS[row]()


@pytest.mark.row("MSG-05")
def test_markers_hold_no_parts():
    for cls, build in ((RescueMarker, rescue), (FlushMarker, flush)):
        assert cls.__annotations__["content"] == "tuple[()]"
        assert refused(lambda cls=cls: cls(content=(Text("a"),)))
        assert refused(lambda build=build: build().replace(content="a"))
        assert loads(dumps(build())).content == ()
    with pytest.raises(palaver.DecodeError, match="content: expected an empty array"):
        loads(b'{"role":"flush","content":[{"type":"text","text":""}]}')
