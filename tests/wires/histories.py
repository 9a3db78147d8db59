"""Unusual histories: every part type, every source, broken pairs, odd ids.

Every part has a unique token, so that a test can check whether it arrived or was reported.
"""

from __future__ import annotations

import binascii
from typing import Any

from hypothesis import strategies as st

import palaver as p
from palaver.core.pairs import client_calls

FOREIGN = "some_other_wire"
IDS = ("c1", "c2", "call:x.y z", "", "x" * 70, "c1")
NAMES = ("search", "read file", "ns.tool", "9lives", "f" * 80)
BLANKS = ("", " ", "\n")
PNG = b"\x89PNG\r\n\x1a\n"


class Tokens:
    """Returns a new token each time."""

    def __init__(self) -> None:
        self.count = 0

    def new(self) -> str:
        self.count += 1
        return f"tok{self.count:04d}x"


def _inline(token: str, magic: bytes = PNG) -> p.Inline:
    return p.Inline(binascii.b2a_base64(magic + token.encode(), newline=False).decode())


def _media(draw: Any, tokens: Tokens) -> Any:
    token = tokens.new()
    cls, media_type, magic = draw(
        st.sampled_from(
            [
                (p.Image, "image/png", PNG),
                (p.Image, "image/tiff", b"II*\x00"),
                (p.Audio, "audio/wav", b"RIFF0000WAVE"),
                (p.Video, "video/mp4", b"0000ftypmp42"),
                (p.File, "application/pdf", b"%PDF-1.7"),
                (p.File, "application/x-odd", b"odd"),
            ]
        )
    )
    source = draw(st.sampled_from(["inline", "url", "file_id", "blob"]))
    where: Any = {
        "inline": lambda: _inline(token, magic),
        "url": lambda: p.Url(f"https://example.com/{token}.{media_type.partition('/')[2]}"),
        "file_id": lambda: p.FileId(token, FOREIGN),
        "blob": lambda: p.Blob(f"sha256:{token}"),
    }[source]()
    known = draw(st.booleans())
    name = {"name": f"{token}.pdf"} if cls is p.File and draw(st.booleans()) else {}
    return cls(where, media_type if known else None, **name)


def _text(draw: Any, tokens: Tokens) -> p.Text:
    if draw(st.integers(0, 5)) == 0:
        return p.Text(draw(st.sampled_from(BLANKS)))
    text = p.Text(tokens.new() + draw(st.sampled_from(["", " ", "\u2028", "\ud800", "é"])))
    if draw(st.integers(0, 4)) == 0:
        text = text.replace(citations=(p.Citation(wire=FOREIGN, url=f"https://example.com/{tokens.new()}"),))
    return text


def _json(draw: Any, tokens: Tokens) -> Any:
    token = tokens.new()
    return draw(st.sampled_from([{"a": [1, 2.5, token]}, [token], token]))


def _call(draw: Any, tokens: Tokens) -> p.ToolCall:
    call_id, name = draw(st.sampled_from(IDS)), draw(st.sampled_from(NAMES))
    token = tokens.new()
    texts = [f'{{"q": "{token}", "n": 5e-06}}', f'["{token}"]', f'{{"q": "{token}', f'"{token}"']
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return p.tool_call(name, token, id=call_id, custom=True)
    if kind == 1:
        return p.ToolCall(f"srv_{token}", name, f'{{"q":"{token}"}}', provider_executed=True).replace(
            provider={FOREIGN: {"type": "x"}}
        )
    return p.ToolCall(call_id, name, draw(st.sampled_from(texts)))


def _assistant_part(draw: Any, tokens: Tokens) -> Any:
    kind = draw(st.integers(0, 9))
    if kind < 3:
        return _text(draw, tokens)
    if kind < 6:
        return _call(draw, tokens)
    token = tokens.new()
    return {
        6: lambda: p.Reasoning(token, signature=f"sig{token}", wire=draw(st.sampled_from([FOREIGN, None]))),
        7: lambda: p.MalformedToolCall(f"<tool {token}", "no end tag", draw(st.sampled_from([None, "search"])), "m1"),
        8: lambda: p.Refusal(token),
        9: lambda: draw(
            st.sampled_from(
                [
                    p.Opaque(FOREIGN, p.Json.of({"type": "odd", "t": token}).value_json),
                    p.ServerToolResult(f"srv_{token}", p.Json.of({"t": token}).value_json, FOREIGN),
                ]
            )
        ),
    }[kind]()


def _user_part(draw: Any, tokens: Tokens) -> Any:
    kind = draw(st.integers(0, 5))
    if kind < 3:
        return _text(draw, tokens)
    if kind < 5:
        return _media(draw, tokens)
    return p.Opaque(FOREIGN, p.Json.of({"type": "odd", "t": tokens.new()}).value_json)


def _tool_part(draw: Any, tokens: Tokens) -> Any:
    kind = draw(st.integers(0, 5))
    if kind < 2:
        return _text(draw, tokens)
    if kind < 4:
        return p.Json.of(_json(draw, tokens))
    return _media(draw, tokens)


@st.composite
def histories(draw: Any, max_size: int = 8) -> tuple[p.Message, ...]:
    """Draw a list of messages in any order, with whole or broken pairs."""
    tokens = Tokens()
    messages: list[p.Message] = []
    for _ in range(draw(st.integers(0, max_size))):
        role = draw(
            st.sampled_from(["system", "developer", "user", "user", "assistant", "assistant", "tool", "tool", "mark"])
        )
        if role == "system":
            messages.append(p.system(_text(draw, tokens)))
        elif role == "developer":
            messages.append(p.developer(_text(draw, tokens)))
        elif role == "user":
            messages.append(p.user(*[_user_part(draw, tokens) for _ in range(draw(st.integers(0, 3)))]))
        elif role == "assistant":
            parts = [_assistant_part(draw, tokens) for _ in range(draw(st.integers(0, 4)))]
            messages.append(p.assistant(*parts))
            answered = [call for call in client_calls(messages[-1]) if draw(st.integers(0, 3))]
            messages += [_result(draw, tokens, call.id) for call in answered]
        elif role == "tool":
            messages.append(_result(draw, tokens, draw(st.sampled_from([*IDS, None]))))
        else:
            messages.append(draw(st.sampled_from([p.rescue("failed"), p.flush()])))
    return tuple(messages)


def _result(draw: Any, tokens: Tokens, call_id: str | None) -> p.ToolMessage:
    parts = [_tool_part(draw, tokens) for _ in range(draw(st.integers(0, 2)))]
    return p.tool(*parts, tool_call_id=call_id, is_error=draw(st.booleans()))


def carriers(messages: tuple[p.Message, ...]) -> list[tuple[int, int, str]]:
    """Return each part with a token: message, part, and the text that shows its arrival."""
    found: list[tuple[int, int, str]] = []
    for index, message in enumerate(messages):
        for position, part in enumerate(message.content):
            shown = _shown(part)
            if shown:
                found.append((index, position, shown))
    return found


def _shown(part: Any) -> str:
    match part:
        case p.Text(text) | p.Refusal(text):
            return text.strip()[:8]
        case p.Reasoning(text=text):
            return text
        case p.ToolCall() | p.MalformedToolCall():
            text = part.arguments_json if isinstance(part, p.ToolCall) else part.raw
            return text[text.index("tok") :][:8]
        case p.Json() | p.Opaque() | p.ServerToolResult():
            raw = {p.Json: "value_json", p.Opaque: "raw_json", p.ServerToolResult: "output_json"}[type(part)]
            text = bytes(getattr(part, raw)).decode()
            return text[text.index("tok") :][:8]
        case _:
            source = part.source
            match source:
                case p.Inline(data):
                    return data
                case p.Url(url):
                    return url
                case p.FileId(file_id):
                    return file_id
                case p.Blob(digest):
                    return digest


def results_of(body: Any) -> list[Any]:
    """Return the contents of the tool results of a body, in order, on any wire."""
    found: list[Any] = []

    def walk(node: Any) -> None:
        if isinstance(node, list):
            for each in node:
                walk(each)
        elif isinstance(node, dict):
            if node.get("role") == "tool":
                found.append(node.get("content"))
            elif node.get("type") == "function_call_output":
                found.append(node["output"])
            elif node.get("type") == "tool_result":
                found.append(node.get("content"))
            for key, each in node.items():
                if key == "functionResponse":
                    found.append((each["response"], *each.get("parts", ())))
                elif key == "toolResult":
                    found.append(each["content"])
                else:
                    walk(each)

    walk(body)
    return found
