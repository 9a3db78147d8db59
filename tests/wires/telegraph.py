"""A small wire of our own: lines of text, no tools, no streams. It shows the minimum of a wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from palaver.core import jsontext
from palaver.core.messages import AssistantMessage, SystemMessage, UserMessage
from palaver.core.parts import Text
from palaver.core.request import Request, Response
from palaver.wires._engine import json_fields
from palaver.wires._engine.capabilities import WireCapabilities
from palaver.wires._engine.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Sequence

    from msgspec import Raw

    from palaver.core.pairs import Placed
    from palaver.wires._engine.encode_state import Context

NAME: Final = "telegraph"


class Decode:
    """Reads ``{"lines": [{"who", "text"}]}`` and ``{"line": text}``."""

    @staticmethod
    def request(body: bytes, /) -> Request:
        rest = jsontext.fields(body)
        lines = json_fields.need_items(rest, "lines")
        return Request(messages=tuple(json_fields.each(lines, "lines", _line)), origin=NAME)

    @staticmethod
    def response(body: bytes, /) -> Response:
        text = json_fields.need_text(jsontext.fields(body), "line")
        return Response(message=AssistantMessage(content=(Text(text),), finish_reason="stop"), origin=NAME)


def _line(raw: Raw) -> UserMessage | AssistantMessage:
    rest = jsontext.fields(raw)
    text = (Text(json_fields.need_text(rest, "text")),)
    return UserMessage(content=text) if json_fields.need_text(rest, "who") == "you" else AssistantMessage(content=text)


class Encode:
    """Writes the same."""

    CAPABILITIES = WireCapabilities(
        names_model=False, later_system=False, developer=False, refusal=False, error_flag=False
    )
    LIST = "lines"

    @staticmethod
    def hoists(_message: SystemMessage, _context: Context, /) -> bool:
        return True

    @staticmethod
    def head(_request: Request, system: Sequence[SystemMessage], _context: Context, /) -> dict[str, Any]:
        return {"about": " ".join(message.text for message in system)} if system else {}

    @staticmethod
    def turn(messages: Sequence[Placed], context: Context, /) -> list[Any]:
        written: list[Any] = []
        for item in messages:
            if isinstance(item.message, UserMessage | AssistantMessage):
                who = "you" if isinstance(item.message, UserMessage) else "me"
                written.append({"who": who, "text": item.message.text})
            else:
                context.lose("dropped", item.message.role, "there is no such line", item.index)
        return written

    @staticmethod
    def response(response: Response, _context: Context, /) -> dict[str, Any]:
        return {"line": response.message.text}


WIRE: Final = Wire(NAME, Decode, Encode)
