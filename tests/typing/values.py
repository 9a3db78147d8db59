"""The types of values, for type checkers. Never run: pyright and mypy read it in strict mode."""

from typing import assert_never, assert_type

from msgspec import UnsetType

import palaver
from palaver import (
    AssistantMessage,
    DeveloperMessage,
    FlushMarker,
    Image,
    Message,
    Request,
    RescueMarker,
    Response,
    SystemMessage,
    Text,
    Tool,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from palaver.core.messages import FinishReason, Role

assert_type(palaver.system("a"), SystemMessage)
assert_type(palaver.developer("a"), DeveloperMessage)
assert_type(palaver.user("a", Image.from_url("u"), agent="x"), UserMessage)
assert_type(palaver.assistant("a", tool_calls=[ToolCall("1", "f")]), AssistantMessage)
assert_type(palaver.tool("a", {"b": 1}, tool_call_id="1"), ToolMessage)
assert_type(palaver.rescue("why"), RescueMarker)
assert_type(palaver.flush(), FlushMarker)
assert_type(palaver.tool_call("f", {"a": 1}, id="1"), ToolCall)
assert_type(palaver.user().replace(id="1"), UserMessage)
assert_type(Image.from_bytes(b""), Image)
assert_type(Tool.of("f"), Tool)

assert_type(palaver.loads(b"{}"), Message)
assert_type(palaver.loads(b"{}", Request), Request)
assert_type(palaver.loads(b"{}", Text), Text)
assert_type(palaver.dumps(palaver.user()), bytes)
assert_type(palaver.load_conversation(b""), Request)
assert_type(palaver.content_hash(palaver.user()), str)


def roles(message: Message) -> str:
    assert_type(message.text, str)
    assert_type(message.role, Role)
    assert_type(message.tool_calls, tuple[ToolCall, ...])
    match message:
        case SystemMessage() | DeveloperMessage():
            return message.text
        case UserMessage():
            return str(len(message.images))
        case AssistantMessage():
            assert_type(message.usage, Usage | None)
            assert_type(message.finish_reason, FinishReason | None)
            assert_type(message.finish_reason_raw, str | UnsetType | None)
            return message.model or ""
        case ToolMessage():
            return message.tool_name or ""
        case RescueMarker() | FlushMarker():
            return message.reason
        case _:
            assert_never(message)


def user_parts(message: UserMessage) -> str:
    for part in message.content:
        match part:
            case Text(text):
                assert_type(text, str)
            case palaver.Image() | palaver.Audio() | palaver.Video() | palaver.File():
                return part.media_type or ""
            case palaver.Opaque(wire):
                return wire
            case _:
                assert_never(part)
    return ""


def answers(response: Response) -> None:
    assert_type(response.message, AssistantMessage)
    assert_type(response.usage, Usage | None)


# Each line below is an error for both checkers, and an unneeded ignore is one too. So the ignores are the tests; the
# reason follows each.

frozen = palaver.user("a")
frozen.id = "1"  # type: ignore[misc]  # frozen
Text("a").text = "b"  # type: ignore[misc]  # frozen
UserMessage(())  # type: ignore[call-arg, arg-type]  # keyword-only
palaver.user(ToolCall("1", "f"))  # type: ignore[arg-type]  # role
UserMessage(content=(ToolCall("1", "f"),))  # type: ignore[arg-type]  # role
palaver.user("a").model  # type: ignore[attr-defined]   # noqa: B018 (no such field)


class Mine(UserMessage, frozen=True):  # type: ignore[misc]  # final
    pass


assert_type(Text("a").replace(text="b"), Text)
assert_type(palaver.assistant().replace(content=["a"], tags=["t"], metadata={"k": 1}, model="m"), AssistantMessage)
# A change that is not allowed is an error at its line.
palaver.user().replace(model="m")  # type: ignore[call-arg]
Text("a").replace(text=3)  # type: ignore[arg-type]
