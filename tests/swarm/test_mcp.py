"""Tools of MCP servers in a swarm: real servers, by the official SDK, and lists that fail."""

import sys
from pathlib import Path

import pytest

import palaver as p
from palaver.agent.functions import function_tool
from palaver.agent.mcp import mcp_tools, stdio
from palaver.swarm.mcp import McpSource
from tests.swarm.scripts import agent, at_work, calling, last, told

pytestmark = [pytest.mark.anyio, pytest.mark.share(2)]  # each starts a server

SERVER = Path(__file__).parents[1] / "agent" / "mcp_server.py"


def local(*arguments):
    return stdio(sys.executable, SERVER, *map(str, arguments))


def offered(prompt):
    return [tool.name for tool in prompt.tools]


def saying(name, arguments):
    """Call a tool, and then say what it gave."""

    def script(prompt):
        if isinstance(last(prompt), p.ToolMessage):
            return f"it gave {last(prompt).text}"
        return p.assistant(tool_calls=[p.tool_call(name, arguments, id="c1")])

    return script


def own() -> str:
    """A tool of the agent itself."""
    return "mine"


@pytest.mark.row("ASK-28")
async def test_a_servers_tools_stand_behind_the_agents_own_and_the_model_goes_on():
    async with mcp_tools(local()) as tools:
        a = agent("A", saying("mcp_echo", {"text": "hello"}), tools=[own], sources=[McpSource(tools)])
        async with at_work(a) as it:
            assert await it.session.complete("go") == "it gave hello"
            assert it.log == [
                'user/user"go"',
                "assistant[mcp_echo]",
                'tool(re:mcp_echo)"hello"',
                'assistant"it gave hello"',
            ]
        names = offered(a.model.asked[0])
        assert names[:2] == ["own", "mcp_echo"]
        assert "mcp_nothing" in names  # it has no parameters
        assert len(names) == len(set(names))
        (echo,) = [tool for tool in a.model.asked[0].tools if tool.name == "mcp_echo"]
        assert dict(echo.parameters["properties"]["text"])["type"] == "string"


@pytest.mark.row("ASK-28")
async def test_the_model_gets_the_error_of_a_tool():
    async with mcp_tools(local()) as tools:
        a = agent("A", saying("mcp_fails", {"text": "out of paper"}), sources=[McpSource(tools)])
        async with at_work(a) as it:
            assert await it.session.complete("go") == "it gave Error executing tool fails"
            assert it.session.messages[2].is_error


@pytest.mark.row("ASK-28")
async def test_two_servers_of_which_one_is_dead():
    async with mcp_tools({"up": local(), "down": stdio("sh", "-c", "exit 1")}) as tools:
        a = agent("A", saying("mcp_up__echo", {"text": "hello"}), sources=[McpSource(tools)])
        async with at_work(a) as it:
            assert await it.session.complete("hi") == "it gave hello"
            assert offered(a.model.asked[0]) == offered(a.model.asked[1])
            names = offered(a.model.asked[0])
            assert "mcp_up__echo" in names
            assert not [name for name in names if "down" in name]
            (error,) = await it.heard("agent", "error")
            assert "the MCP server 'down' has failed" in error.output["error"]
            await it.session.complete("again")
            assert len(await it.heard("agent", "error")) == 2


@pytest.mark.row("ASK-28")
async def test_a_server_that_has_changed_is_heard_after_an_update():
    async with mcp_tools(local()) as tools:
        source = McpSource(tools)

        def script(prompt):
            return calling("mcp_grows") if last(prompt).text == "grow" else "ok"

        a = agent("A", script, sources=[source])
        async with at_work(a) as it:
            await it.session.complete("grow")
            await it.session.complete("hi")
            assert "mcp_grown" not in offered(a.model.asked[-1])
            await source.update()
            await it.session.complete("hi")
            assert "mcp_grown" in offered(a.model.asked[-1])


# -- lists of a function -----------------------------------------------------------------------------------------------


class Listing:
    """Gives a tool for each client, and counts."""

    def __init__(self, *fails):
        self.asked, self._fails = [], list(fails)

    async def __call__(self, client):
        self.asked.append(client)
        if self._fails:
            raise self._fails.pop(0)

        def hello() -> str:
            """Say hello."""
            return f"hello {client}"

        return [function_tool(hello)]


@pytest.mark.row("ASK-28")
async def test_a_list_is_kept_for_each_session_until_it_is_updated():
    listing, heard = Listing(), []
    source = McpSource(
        listing,
        on_list=lambda client, tools: heard.append((client, [each.name for each in tools])),
        on_update=heard.append,
    )
    async with at_work(agent("A", saying("mcp_hello", {}), sources=[source])) as it:
        async with it.live.session("bob") as bob:
            assert await it.session.complete("go") == "it gave hello ann"
            assert await bob.complete("go") == "it gave hello bob"
            await it.session.complete("again")
            assert listing.asked == ["ann", "bob"]
            await source.update("ann")
            await it.session.complete("go")
            await bob.complete("go")
            assert listing.asked == ["ann", "bob", "ann"]
            await source.update()
            await bob.complete("go")
            await it.session.complete("go")
            assert listing.asked == ["ann", "bob", "ann", "bob", "ann"]
        async with it.live.session("bob") as bob:  # what was listed went with the session
            await bob.complete("go")
        assert listing.asked[-1] == "bob"
        assert len(listing.asked) == 6
    assert heard[:4] == [("ann", ["mcp_hello"]), ("bob", ["mcp_hello"]), "ann", ("ann", ["mcp_hello"])]
    assert heard[4] is None


@pytest.mark.row("ASK-28", "ASK-17")
async def test_s14_a_list_that_fails_is_left_out_reported_and_asked_for_again():
    listing = Listing(OSError("no route"), OSError("still none"))
    a = agent(sources=[McpSource(listing)], tools=[own])
    async with at_work(a) as it:
        assert await it.session.complete("one") == "echo:one"
        assert await it.session.complete("two") == "echo:two"
        assert await it.session.complete("three") == "echo:three"
        errors = [event.output["error"] for event in await it.heard("agent", "error")]
        assert told(a.model.asked[0].messages) == ['system"PA"', 'user/user"one"']
    assert errors == ["OSError: no route", "OSError: still none"]
    assert [offered(prompt) for prompt in a.model.asked] == [["own"], ["own"], ["own", "mcp_hello"]]
    assert listing.asked == ["ann"] * 3


async def test_a_long_name_is_cut_and_may_have_another_prefix():
    def a_function_with_quite_a_long_name_which_nobody_would_ever_type_() -> str:
        """Do nothing."""
        return ""

    tools = [function_tool(a_function_with_quite_a_long_name_which_nobody_would_ever_type_), function_tool(own)]
    a = agent(sources=[McpSource(lambda _: tools, prefix="desk-")])
    async with at_work(a) as it:
        await it.session.complete("hi")
    first, second = offered(a.model.asked[0])
    assert (len(first), second) == (64, "desk-own")
    assert first.startswith("desk-a_function")


@pytest.mark.row("ASK-30")
async def test_observers_that_raise_disturb_nothing():
    def broken(*_):
        raise OSError("disk full")

    source = McpSource(Listing(), on_list=broken, on_update=broken)
    async with at_work(agent(sources=[source])) as it:
        await source.update()
        assert await it.session.complete("hi") == "echo:hi"
