"""What a notebook shows of values, by IPython's own formatter."""

import json
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from IPython.core.formatters import DisplayFormatter
from msgspec import Raw

from palaver import (
    Audio,
    Image,
    Json,
    MalformedToolCall,
    Opaque,
    Reasoning,
    Refusal,
    Request,
    Response,
    Text,
    Usage,
    assistant,
    flush,
    system,
    tool,
    tool_call,
    user,
    wires,
)
from palaver.agent import Agent
from palaver.models import ScriptedModel
from palaver.store.memory import MemoryStore
from palaver.testing import strategies
from palaver.threads import Thread

PNG = b"\x89PNG\r\n\x1a\n...."
EVIL = '<script>alert("x")</script><img src=x onerror=alert(1)>'
FORMATTER = DisplayFormatter()
VOID = {"img", "br", "input"}


def shown(value):
    data, _ = FORMATTER.format(value)
    assert data["text/plain"] == repr(value)
    return data["text/html"]


class Balanced(HTMLParser):
    """Checks that each element is closed, and keeps their names and attributes."""

    def __init__(self, html):
        super().__init__()
        self.open, self.names, self.attributes = [], set(), []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.names.add(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def values():
    call = tool_call("weather", {"city": EVIL}, id="c1")
    messages = [
        system(EVIL),
        user(
            EVIL,
            Image.from_bytes(PNG),
            Image.from_url("https://example.com/<a>.png"),
            Audio.from_bytes(b"RIFF....WAVE"),
        ),
        assistant(Reasoning(EVIL), Text(EVIL), Refusal(EVIL), tool_calls=[call]),
        assistant(MalformedToolCall(EVIL, EVIL, EVIL, "c2"), Opaque("openai_chat", Raw(json.dumps([EVIL]).encode()))),
        tool(Json.of({"a": EVIL}), EVIL * 50, tool_call_id="c1", tool_name=EVIL, is_error=True),
        flush(),
    ]
    thread, store = Thread(), MemoryStore()
    thread.append(*messages)
    stored = store.open("t")
    stored.append(*messages)
    request = Request(tuple(messages), EVIL)
    return {
        **{f"{each.role} {place}": each for place, each in enumerate(messages)},
        **{f"{type(part).__name__} {at}": part for each in messages for at, part in enumerate(each.content)},
        "request": request,
        "response": Response(messages[2]),
        "receipt": wires.get("ollama_chat").encode_request(request),
        "usage": Usage(input=1200, output=3, reasoning=0),
        "thread": thread,
        "path": thread.path(),
        "stored thread": stored,
        "run": Agent(ScriptedModel([EVIL])).sync.run(EVIL),
        "failed run": Agent(ScriptedModel([ValueError(EVIL)])).sync.run("hi"),
    }


@pytest.mark.parametrize("name", values())
def test_html_is_escaped_closed_and_loads_nothing(name):
    html = shown(values()[name])
    found = Balanced(html)
    assert found.names <= {"div", "details", "summary", "pre", "table", "tr", "td", "img", "audio"}
    addresses = [value for attribute, value in found.attributes if attribute in {"src", "href"}]
    assert all(each.startswith("data:") for each in addresses)
    assert not [attribute for attribute, _ in found.attributes if attribute.startswith("on")]


@given(strategies.any_messages())
def test_every_message_can_be_shown(message):
    Balanced(shown(message))


def test_a_run_shows_its_outcome_and_its_error():
    html = shown(Agent(ScriptedModel([ValueError("no key")])).sync.run("hi"))
    assert "failed" in html
    assert "ValueError: no key" in html


def test_a_picture_is_shown_and_a_remote_one_only_named():
    html = shown(user(Image.from_bytes(PNG), Image.from_url("https://example.com/a.png")))
    assert re.search(r'<img src="data:image/png;base64,', html)
    assert "(image image/png: https://example.com/a.png)" in html
    assert re.search(r'<img src="data:image/png;base64,', shown(Image.from_bytes(PNG)))


def test_a_receipt_lists_its_losses():
    request = Request((user("hi", Image.from_url("https://example.com/a.png")),))
    html = shown(wires.get("ollama_chat").encode_request(request))
    assert "messages[0].content[1]" in html
    assert "not taken as url" in html


def test_of_a_long_conversation_the_last_messages_are_shown():
    thread = Thread()
    thread.append(*(f"message {n}." for n in range(150)))
    html = shown(thread)
    assert "50 earlier messages" in html
    assert "message 49." not in html
    assert "message 149." in html
