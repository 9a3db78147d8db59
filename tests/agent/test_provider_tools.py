"""Tools that a provider runs are offered beside those that run here."""

import json

from msgspec import Raw

import palaver as p
from palaver import wires
from palaver.agent import Agent
from palaver.core.jsontext import encode
from palaver.models import ScriptedModel

SEARCH = {"type": "web_search_20250305", "name": "web_search"}


def look(what: str) -> str:
    """Look."""
    return what


def test_a_tool_of_the_provider_is_offered_and_its_calls_need_no_answer():
    tool = p.ProviderTool("anthropic_messages", Raw(encode(SEARCH)))
    searched = p.ToolCall("srv_1", "web_search", '{"query": "tide"}', provider_executed=True)
    model = ScriptedModel([p.assistant(searched, "High water at 18:42.")])
    run = Agent(model, tools=[look, tool]).sync.run("When?")
    assert run.ok
    assert [message.role for message in run.messages] == ["user", "assistant"]
    sent = wires.get("anthropic_messages").encode_request(model.asked[0].request("m"))
    assert SEARCH in json.loads(sent.body)["tools"]
    assert [each.name for each in model.asked[0].tools if isinstance(each, p.Tool)] == ["look"]
