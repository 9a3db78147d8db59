"""An MCP server of ours, read by the official client: over stdio from the real command, and over HTTP."""

import asyncio
import json
import math
import os
import sys
from urllib.parse import quote

import anyio
import httpx
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from pydantic import AnyUrl

from palaver import Image, MessageError, assistant, tool_call, user
from palaver.agent import Agent, ToolContext, function_tool
from palaver.agent.mcp import Progress
from palaver.cli import main
from palaver.models import FunctionModel
from palaver.serve.mcp import McpServer
from palaver.store import open_store
from palaver.store.memory import MemoryStore
from tests.swarm.served import served

pytestmark = pytest.mark.anyio
PNG = b"\x89PNG\r\n\x1a\n...."


@pytest.fixture
def anyio_backend():
    return "asyncio"


@function_tool(effect="read")
def tide(harbour: str) -> dict:
    """Return the tide."""
    return {"harbour": harbour, "high": "18:42"}


@function_tool(effect="read")
def chart() -> Image:
    """Return a chart."""
    return Image.from_bytes(PNG)


@function_tool
def book(berth: int) -> str:
    """Book a berth."""
    return f"booked {berth}"


@function_tool(effect="read")
def broken() -> str:
    """Fail."""
    raise ValueError("no tide")


@function_tool(effect="read")
async def ending(how: str) -> str:
    """End more than the call."""
    raise {"exit": SystemExit(3), "cancel": asyncio.CancelledError(), "other": BaseExceptionGroup("g", [SystemExit()])}[
        how
    ]


HALF = "a\ud83d"
ODD_PROGRESS = [
    Progress("8"),
    Progress(None),
    Progress(True),
    Progress(math.nan),
    Progress(8, math.inf),
    Progress(10**400),
    Progress(8, message=8),
]
"""What no client can read."""


@function_tool(effect="read")
def halves(kind: str) -> str | dict:
    """Return half a character."""
    if kind == "error":
        raise ValueError(HALF)
    return {"json": {"a": HALF}, "text": HALF}[kind]


@function_tool(effect="read")
async def counting(context: ToolContext) -> str:
    """Show progress."""
    context.emit("one")
    context.emit(object())
    context.emit({"left": HALF})
    await anyio.to_thread.run_sync(context.emit, HALF)
    context.emit(Progress(7, total=9, message="seven"))
    for wrong in ODD_PROGRESS:
        context.emit(wrong)
    return "done"


def client_of(server, mode="auto"):
    return Client(server._server, mode=mode)


async def call(client, name, **arguments):
    result = await client.call_tool(name, arguments)
    return result.is_error, "".join(getattr(each, "text", "") for each in result.content)


async def test_tools_keep_their_names_schemas_and_results():
    async with client_of(McpServer(tools=[tide, chart, book, broken])) as client:
        listed = {each.name: each for each in (await client.list_tools()).tools}
        assert list(listed) == ["tide", "chart", "book", "broken"]
        assert listed["tide"].input_schema["properties"]["harbour"]["type"] == "string"
        assert (listed["tide"].annotations.read_only_hint, listed["book"].annotations.read_only_hint) == (True, False)
        result = await client.call_tool("tide", {"harbour": "Husum"})
        assert result.structured_content == {"harbour": "Husum", "high": "18:42"}
        (image,) = (await client.call_tool("chart", {})).content
        assert (image.type, image.mime_type) == ("image", "image/png")
        assert await call(client, "broken") == (True, "ValueError: no tide")
        failed, text = await call(client, "tide", harbor="Husum")
        assert failed
        assert "harbour" in text
        assert (await call(client, "nope"))[0]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_tool_that_ends_itself_ends_its_call_alone(mode):
    async with client_of(McpServer(tools=[ending, tide]), mode) as client:
        assert await call(client, "ending", how="exit") == (True, "The tool ended itself: SystemExit 3")
        assert await call(client, "ending", how="cancel") == (True, "An operation that the tool awaited was cancelled.")
        assert (await call(client, "ending", how="other"))[0]
        assert (await call(client, "tide", harbour="Husum"))[0] is False


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_result_with_half_a_character_is_sent_with_a_mark_in_its_place(mode):
    async with client_of(McpServer(tools=[halves]), mode) as client:
        assert await call(client, "halves", kind="text") == (False, "a\ufffd")
        assert await call(client, "halves", kind="error") == (True, "ValueError: a\ufffd")
        result = await client.call_tool("halves", {"kind": "json"})
        assert result.structured_content == {"a": "a\ufffd"}
        assert json.loads(result.content[0].text) == result.structured_content


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_what_a_tool_emits_is_shown_to_a_client_that_asks_for_progress(mode, caplog):
    heard = []

    async def progress(done, total, message):
        heard.append((done, total, message))

    async with client_of(McpServer(tools=[counting]), mode) as client:
        assert await call(client, "counting") == (False, "done")
        result = await client.call_tool("counting", {}, progress_callback=progress)
        await anyio.wait_all_tasks_blocked()
    assert (result.is_error, result.content[0].text) == (False, "done")
    json_text = '{"left":"a\\ufffd"}'
    assert heard == [(1, None, "one"), (2, None, json_text), (3, None, "a\ufffd"), (7, 9, "seven")]
    assert "not sent to the client: progress: object is not a JSON value" in caplog.text
    assert caplog.text.count("not sent to the client: Progress(") == 2 * len(ODD_PROGRESS)


@pytest.mark.parametrize(("mode", "code"), [("auto", -32602), ("legacy", -32002)])
@pytest.mark.parametrize("uri", ["palaver://thread/none", "palaver://other", "file:///etc/hosts"])
async def test_a_resource_that_does_not_exist_is_an_error_of_the_protocol(mode, code, uri, tmp_path, caplog):
    store = open_store(tmp_path / "s.db")
    store.open("half").append(user(HALF))
    async with client_of(McpServer(store=store), mode) as client:
        with pytest.raises(MCPError, match=r"^(there is )?no (thread|resource) ") as raised:
            await client.read_resource(uri)
        assert (raised.value.code, raised.value.data) == (code, {"uri": uri})
        (contents,) = (await client.read_resource("palaver://thread/half")).contents
        assert contents.text == "0 user: a\ufffd"
        store.close()
        with pytest.raises(MCPError, match="closed"):
            await client.read_resource("palaver://thread/half")
        with pytest.raises(MCPError, match="closed"):
            await client.list_resources()
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    ("policy", "runs"), [("ask", False), ("deny", False), ("allow", True), ({"book": "allow"}, True)]
)
async def test_what_does_more_than_read_runs_only_where_it_is_allowed(policy, runs):
    async with client_of(McpServer(tools=[tide, book], policy=policy)) as client:
        failed, text = await call(client, "book", berth=7)
        assert (failed, text) == (False, "booked 7") if runs else failed
        assert (await call(client, "tide", harbour="Husum"))[0] is False


async def test_a_store_is_searched_and_read_and_never_changed():
    store = MemoryStore()
    store.open("t1").append(user("Where is the Elbe?"), assistant("In Hamburg."))
    store.open("t2").append(*(user(f"word {n} " + "x" * 2000) for n in range(60)))
    async with client_of(McpServer(store=store)) as client:
        assert (await call(client, "search_conversations", words="elbe"))[1] == "[t1] user: Where is the Elbe?"
        assert "t1" in (await call(client, "list_threads"))[1]
        assert (await call(client, "read_thread", thread="t1"))[
            1
        ] == "0 user: Where is the Elbe?\n\n1 assistant: In Hamburg."
        assert (await call(client, "read_thread", thread="t1", start=1))[1] == "1 assistant: In Hamburg."
        long = (await call(client, "read_thread", thread="t2", count=50))[1]
        assert "more characters)" in long
        assert long.endswith("(10 more messages: start=50)")
        assert (await call(client, "read_thread", thread="none"))[0]
        resources = (await client.list_resources()).resources
        assert {each.uri for each in resources} == {"palaver://thread/t1", "palaver://thread/t2"}
        (contents,) = (await client.read_resource("palaver://thread/t1")).contents
        assert "In Hamburg." in contents.text


@pytest.mark.parametrize("id", ["a b", "ä/ö", "x%20y", "?q=1#f", "a&b=c", "mcp:mcp"])
async def test_a_thread_is_read_by_the_uri_that_was_listed_whatever_its_id(id):
    store = MemoryStore()
    store.open(id).append(user("Moin."))
    async with client_of(McpServer(store=store)) as client:
        (listed,) = (await client.list_resources()).resources
        assert listed.uri.isascii()
        for uri in (listed.uri, str(AnyUrl(listed.uri)), f"palaver://thread/{quote(id, safe='')}"):
            (contents,) = (await client.read_resource(uri)).contents
            assert contents.text == "0 user: Moin."


async def test_an_agent_is_asked_and_its_conversations_go_on():
    store = MemoryStore()
    agent = Agent(FunctionModel(lambda prompt: f"{len(prompt.messages)} {prompt.messages[-1].text}"))
    heard = []

    async def progress(done, total, message):
        heard.append(message)

    async with client_of(McpServer(ask=agent, store=store)) as client:
        assert await call(client, "ask", message="hi") == (False, "1 hi")
        result = await client.call_tool("ask", {"message": "and"}, progress_callback=progress)
        assert result.content[0].text == "3 and"
        assert await call(client, "ask", message="hi", conversation="other") == (False, "1 hi")
    assert "".join(heard) == "3 and"
    assert sorted(info.id for info in store.threads()) == ["mcp:mcp", "mcp:other"]


async def test_a_client_continues_no_thread_that_is_not_its_own():
    store = MemoryStore()
    store.open("private").append(user("my secret"))
    agent = Agent(FunctionModel(lambda prompt: " ".join(message.text for message in prompt.messages)))
    async with client_of(McpServer(ask=agent, store=store)) as client:
        assert await call(client, "ask", message="hi", conversation="private") == (False, "hi")
        assert (await call(client, "ask", message="hi", conversation="x" * 200))[0]
    assert len(store.path("private")) == 1


async def test_an_agent_without_a_store_remembers_the_conversation():
    class Own(Agent):
        pass

    agent = Own(FunctionModel(lambda prompt: f"{len(prompt.messages)}"))
    async with client_of(McpServer(ask=agent)) as client:
        assert [(await call(client, "ask", message="hi"))[1] for _ in range(2)] == ["1", "3"]


async def test_a_call_that_waits_and_a_run_that_fails_are_errors(caplog):
    def answer(prompt):
        if prompt.messages[-1].text == "fail":
            raise ValueError("no tide")
        return assistant(tool_calls=[tool_call("book", {"berth": 7}, id="b")])

    agent = Agent(FunctionModel(answer), tools=[book], policy="ask")
    async with client_of(McpServer(ask=agent)) as client:
        failed, text = await call(client, "ask", message="book")
        assert failed
        assert "waits for an approval of book" in text
        assert await call(client, "ask", message="fail", conversation="b") == (True, "The run failed.")
    assert "no tide" in caplog.text


def test_a_server_of_nothing_and_names_that_clash_are_refused():
    with pytest.raises(MessageError, match="needs tools"):
        McpServer()
    with pytest.raises(MessageError, match="two tools are named 'tide'"):
        McpServer(tools=[tide, tide])
    with pytest.raises(MessageError, match="bok"):
        McpServer(tools=[book], policy={"bok": "allow"})


async def test_it_is_served_over_http_and_refuses_other_hosts():
    async with served(McpServer(tools=[tide]).http_app()) as (url, _):
        async with Client(f"{url}/mcp") as client:
            assert (await call(client, "tide", harbour="Husum"))[0] is False
        async with httpx.AsyncClient() as other:
            response = await other.post(f"{url}/mcp", json={}, headers={"host": "evil.example"})
        assert response.status_code in {403, 421}


FILE = """
from palaver.agent import Agent, function_tool
from palaver.models import ScriptedModel

@function_tool(effect="read")
def tide(harbour: str) -> str:
    "Return the tide."
    return "18:42"

desk = Agent(ScriptedModel([], then=lambda prompt: f"Moin {len(prompt.messages)}."), name="desk")
"""


async def test_the_command_serves_threads_tools_and_an_agent_over_stdio(tmp_path):
    with open_store(tmp_path / "s.db") as store:
        store.open("t1").append("Where is the Elbe?")
    (tmp_path / "desk.py").write_text(FILE)

    def command(*options):
        arguments = ["-m", "palaver", "mcp", *options, "--ask", "desk.py", "--store", str(tmp_path / "s.db")]
        environment = {**os.environ}
        return StdioServerParameters(command=sys.executable, args=arguments, cwd=tmp_path, env=environment)

    with anyio.fail_after(120):
        async with Client(stdio_client(command("--threads", "--tools", "desk.py:tide"))) as client:
            names = [each.name for each in (await client.list_tools()).tools]
            assert names == ["tide", "search_conversations", "list_threads", "read_thread", "ask"]
            assert await call(client, "tide", harbour="Husum") == (False, "18:42")
            assert "Elbe" in (await call(client, "search_conversations", words="elbe"))[1]
            assert await call(client, "ask", message="hi") == (False, "Moin 1.")
        async with Client(stdio_client(command())) as client:
            assert [each.name for each in (await client.list_tools()).tools] == ["ask"]
            assert await call(client, "ask", message="again") == (False, "Moin 3.")
    with open_store(tmp_path / "s.db") as store:
        assert {info.id for info in store.threads()} >= {"t1", "desk/mcp:mcp"}


@pytest.mark.parametrize("address", ["9000", "0.0.0.0:9000", "x:y"])
def test_a_wrong_address_is_refused(address, capsys):
    assert main(["mcp", "--tools", "files", "--http", address]) == 2
    assert address in capsys.readouterr().err
