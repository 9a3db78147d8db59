"""What joins the log without asking a model, and what is read back.

Source: docs/spec/agent-swarm-kit.md#2.1, #2.2, #2.6, #3.7.
"""

import pytest
from msgspec import UNSET

import palaver as p
from palaver.core.errors import NavigationError, SwarmError
from palaver.swarm import Call, Hooks, tool
from tests.swarm.scripts import agent, at_work, branching, calling, told

pytestmark = pytest.mark.anyio

COMMITS = {
    "user": (
        lambda it, _: it.commit_user("  hi ", payload={"n": 1}),
        p.UserMessage(content=(p.Text("hi"),), agent="A", mode="user").replace(payload={"n": 1}),
        ("commit-user-message", {"message": "  hi "}),
    ),
    "user without a payload": (
        lambda it, _: it.commit_user("hi"),
        p.UserMessage(content=(p.Text("hi"),), agent="A", mode="user").replace(payload=None),
        ("commit-user-message", {"message": "hi"}),
    ),
    "user, by a tool": (
        lambda it, _: it.commit_user(" hi", mode="tool"),
        p.UserMessage(content=(p.Text("hi"),), agent="A", mode="tool"),
        ("commit-user-message", {"message": " hi"}),
    ),
    "assistant": (
        lambda it, _: it.commit_assistant(" yes\n"),
        p.AssistantMessage(content=(p.Text("yes"),), agent="A", mode="tool"),
        ("commit-assistant-message", {"message": " yes\n"}),
    ),
    "system": (
        lambda it, _: it.commit_system(" be brief "),
        p.SystemMessage(content=(p.Text("be brief"),), agent="A", mode="tool"),
        ("commit-system-message", {"message": " be brief "}),
    ),
    "developer": (
        lambda it, _: it.commit_developer(" note "),
        p.DeveloperMessage(content=(p.Text("note"),), agent="A", mode="tool"),
        ("commit-developer-message", {"message": " note "}),
    ),
    "tool output": (
        lambda it, call: it.commit_tool_output(call, "  as it is "),
        lambda call: p.ToolMessage(
            content=(p.Text("  as it is "),), tool_call_id=call, tool_name="f", agent="A", mode="tool"
        ),
        lambda call: ("commit-tool-output", {"toolId": call, "content": "  as it is "}),
    ),
    "flush": (
        lambda it, _: it.commit_flush(),
        p.FlushMarker(agent="A", mode="tool"),
        ("commit-flush", {}),
    ),
}


@pytest.mark.row("ASK-01")
@pytest.mark.parametrize("kind", COMMITS)
async def test_a_commit_stores_exactly_this_and_says_so(kind):
    commit, stored, told_by = COMMITS[kind]
    a = agent()
    async with at_work(a) as it:
        (call,) = await it.session.commit_tool_request([("f", {"x": 1})])
        before = len(it.seen)
        assert await commit(it.session, call)
        message = it.session.messages[-1]
        expected = stored(call) if callable(stored) else stored
        type, input = told_by(call) if callable(told_by) else told_by  # noqa: A001 (the field's words)
        await it.events()
        new = [event for event in it.seen[before:] if event.type == type]
        assert [(event.source, event.agent) for event in new] == [("agent", "A"), ("session", None)]
        assert all(dict(event.input) == input for event in new)
    assert message.replace(id=None, sent_at=None) == expected
    assert (message.payload is not UNSET) == (message.role == "user" and message.mode == "user")
    assert not a.model.asked


@pytest.mark.row("ASK-01")
async def test_committed_calls_get_ids_and_keep_their_arguments():
    async with at_work(agent()) as it:
        ids = await it.session.commit_tool_request([("f", {"x": 1}), ("g", {})])
        message = it.session.messages[-1]
        assert [(call.id, call.name, dict(call.arguments)) for call in message.tool_calls] == [
            (ids[0], "f", {"x": 1}),
            (ids[1], "g", {}),
        ]
        assert all(len(each) == len("call_") + 9 and each.startswith("call_") for each in ids)
        stored = p.AssistantMessage(content=(p.Text(""), *message.tool_calls), agent="A", mode="tool")
        assert message.replace(id=None, sent_at=None) == stored
        (event, _) = [event for event in await _all(it) if event.type == "commit-tool-request"]
        assert event.input == {"request": [{"toolName": "f", "params": {"x": 1}}, {"toolName": "g", "params": {}}]}


async def _all(it):
    await it.events()
    return it.seen


@pytest.mark.row("ASK-01")
@pytest.mark.parametrize(
    "commit",
    [
        lambda it, agent: it.commit_user("x", agent=agent),
        lambda it, agent: it.commit_assistant("x", agent=agent),
        lambda it, agent: it.commit_system("x", agent=agent),
        lambda it, agent: it.commit_developer("x", agent=agent),
        lambda it, agent: it.commit_tool_output("c", "x", agent=agent, allow_unknown=True),
        lambda it, agent: it.commit_tool_request([("f", {})], agent=agent),
        lambda it, agent: it.commit_flush(agent=agent),
        lambda it, agent: it.commit_stop_tools(agent=agent),
    ],
)
async def test_a_commit_for_an_agent_that_is_not_active_does_nothing(commit):
    async with at_work(agent("A"), agent("B")) as it:
        assert not await commit(it.session, "B")
        assert it.log == []
        with pytest.raises(NavigationError, match="no agent 'C'"):
            await commit(it.session, "C")
        assert await it.session.change_to("B")
        assert await commit(it.session, "B")


@pytest.mark.row("ASK-01")
async def test_k20_a_result_of_no_call_is_an_error():
    async with at_work(agent()) as it:
        with pytest.raises(SwarmError, match="no call 'nope'"):
            await it.session.commit_tool_output("nope", "x")
        assert await it.session.commit_tool_output("nope", "x", allow_unknown=True)


@pytest.mark.row("ASK-01")
async def test_a_message_that_a_tool_commits_inherits_the_payload():
    @tool
    async def note(call: Call) -> None:
        assert call.place.payload == {"from": "web"}
        await call.commit("ok")
        await call.session.commit_user("and this")
        await call.emit("done")

    async with at_work(agent("A", lambda _: calling("note"), tools=[note])) as it:
        await it.session.complete("hi", {"from": "web"})
        assert [message.payload for message in it.session.user_history] == [{"from": "web"}] * 2
        assert it.session.payload is None


@pytest.mark.row("ASK-01")
async def test_a_message_said_inside_a_turn_brings_its_own_payload():
    asked = {}

    @tool
    async def ask(call: Call) -> None:
        await call.commit("ok")
        asked["before"] = call.session.payload
        await call.session.complete("more", {"from": "tool"})

    class Known(Hooks):
        def on_execute(self, place, text, mode):
            asked["hook"] = place.payload

    async with at_work(agent("A", branching(ask=calling("ask")), tools=[ask], hooks=Known())) as it:
        assert await it.session.complete("ask", {"from": "web"}) == "answer:more"
        assert asked == {"before": {"from": "web"}, "hook": {"from": "tool"}}
        assert [message.payload for message in it.session.user_history] == [{"from": "web"}, {"from": "tool"}]


@pytest.mark.row("ASK-02")
async def test_everything_said_is_read_back():
    async with at_work(agent()) as it:
        session = it.session
        assert (session.last_user, session.last_assistant, session.last_tool, session.last_system) == (None,) * 4
        await session.complete("one")
        (call,) = await session.commit_tool_request([("f", {})])
        await session.commit_tool_output(call, "result")
        await session.commit_system("")
        await session.commit_user("typed by a tool", mode="tool")
        await session.commit_flush()
        await session.complete("two")
        assert told(session.user_history) == ['user/user"one"', 'user/user"two"']
        assert told(session.assistant_history) == ['assistant"echo:one"', "assistant[f]", 'assistant"echo:two"']
        assert (session.last_user, session.last_assistant, session.last_tool, session.last_system) == (
            "two",
            "echo:two",
            "result",
            "",
        )
