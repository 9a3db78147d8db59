"""Tools of real MCP servers, run by the official SDK: over stdio, and over streamable HTTP on loopback (DAS-30)."""

import contextlib
import json
import socket
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from palaver.agent import Agent
from palaver.agent.mcp import Progress, http, mcp_tools, stdio
from palaver.core.errors import ToolError
from palaver.core.factories import assistant, tool_call
from palaver.core.parts import Audio, File, Image, Json, Text, ToolCall
from palaver.models import ScriptedModel
from palaver.turn.tool import InvalidArgumentsError

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.share(2),  # each starts a server
    # The SDK's HTTP client leaves the generator of a stream that it has done with to the collector; trio says so.
    pytest.mark.filterwarnings("ignore:Async generator 'httpx2:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:Async generator 'httpcore2:ResourceWarning"),
]
SERVER = Path(__file__).with_name("mcp_server.py")
PATIENCE = 30.0  # for a busy machine; nothing waits for it


def local(*arguments, **options):
    return stdio(sys.executable, SERVER, *map(str, arguments), **options)


def named(tools, name):
    return next(tool for tool in tools if tool.name.endswith(f"__{name}"))


async def call(tool, context, arguments="", **options):
    checked = tool.check(ToolCall("c1", tool.name, arguments))
    with anyio.fail_after(PATIENCE):
        return await tool.run(checked, context(tool.name, arguments, **options))


async def until(holds):
    with anyio.fail_after(PATIENCE):
        while not holds():  # noqa: ASYNC110 (what happens in another process has no event)
            await anyio.sleep(0.02)


async def written(path, line):
    """Wait until the server has written a line to its log."""
    await until(lambda: path.exists() and line in path.read_text().splitlines())


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@contextlib.contextmanager
def serving(port):
    """A server that speaks HTTP, and its URL."""
    process = subprocess.Popen([sys.executable, SERVER, "--http", str(port)], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert process.poll() is None, "the server did not start"
                assert time.monotonic() < deadline
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def served():
    """The URL of a server that speaks HTTP."""
    with serving(free_port()) as url:
        yield url


def opener(server):
    @asynccontextmanager
    async def open_them(**options):
        async with mcp_tools(server, name="My Files", timeout=PATIENCE, **options) as tools:
            yield tools

    return open_them


@pytest.fixture
def opened(served):
    """Open the tools of the server over HTTP."""
    return opener(http(served))


@pytest.fixture(params=["stdio", "http"])
def either(request):
    """Open the tools of the server over either transport."""
    return opener(local() if request.param == "stdio" else http(request.getfixturevalue("served")))


@pytest.mark.row("DAS-30")
async def test_names_schemas_and_results_of_a_real_server(either, context):
    async with either() as tools:
        status = tools.statuses["My Files"]
        assert (status.state, status.error) == ("connected", None)
        assert [tool.name for tool in tools][:4] == [
            "my_files__echo",
            "my_files__add_numbers",
            "my_files__add_numbers_2",
            "my_files__nothing",
        ]
        assert {tool.scope for tool in tools} == {"My Files"}
        echo = named(tools, "echo")
        assert echo.definition.description == "Say it again."
        assert echo.definition.parameters["properties"] == {"text": {"title": "Text", "type": "string"}}
        assert (await call(echo, context, '{"text": "grüß dich 👋"}')).content == (Text("grüß dich 👋"),)
        assert (await call(named(tools, "add_numbers"), context, '{"a": 3}')).content == (Json.of({"sum": 4}),)
        assert (await call(named(tools, "add_numbers_2"), context, '{"a": 3}')).content == (Text("4"),)
        assert not (await call(named(tools, "nothing"), context)).is_error
        with pytest.raises(InvalidArgumentsError, match="'my_files__echo': text: 3 is not of type 'string'"):
            await call(echo, context, '{"text": 3}')


@pytest.mark.row("DAS-30")
async def test_media_are_kept_as_parts(opened, context):
    async with opened() as tools:
        output = await call(named(tools, "media"), context)
    text, image, audio, inside, pdf, link = output.content
    assert text == Text("grüß dich 👋")
    assert isinstance(image, Image)
    assert (image.media_type, image.source.bytes[:4]) == ("image/png", b"\x89PNG")
    assert isinstance(audio, Audio)
    assert audio.source.bytes == b"ID3"
    assert inside == Text("[resource: file:///a.txt]\ninside")
    assert isinstance(pdf, File)
    assert (pdf.name, pdf.media_type, pdf.source.bytes) == ("b.pdf", "application/pdf", b"%PDF-")
    assert link == Text("[resource: notes (file:///notes.md)]")


@pytest.mark.finding("F-106")
async def test_no_pattern_of_a_server_is_matched_by_backtracking(opened, context):
    async with opened() as tools:
        match = named(tools, "match")
        assert (await call(match, context, '{"text": "aaa"}')).content == (Text("aaa"),)
        with pytest.raises(InvalidArgumentsError, match="does not match"):
            match.check(ToolCall("c", match.name, '{"text": "' + "a" * 60 + '!"}'))
        (session,) = tools._sessions
        schema = session._client.session._tool_output_schemas["match"]
        assert schema["properties"]["result"]["type"] == "string"
        assert "pattern" not in schema["properties"]["result"], "the SDK checks the results of the server by it"


@pytest.mark.row("DAS-30")
async def test_an_error_of_the_server_is_an_error_result(opened, context):
    async with opened() as tools:
        output = await call(named(tools, "fails"), context, '{"text": "no"}')
    assert output.is_error
    assert "fails" in output.content[0].text


async def test_hints_are_believed_only_when_trusted(opened):
    async with opened() as tools:
        assert {tool.effect for tool in tools} == {"write"}
        assert not any(tool.is_repeatable for tool in tools)
    async with opened(trust_hints=True, call_timeout=7.0, limit=99) as tools:
        assert (named(tools, "echo").effect, named(tools, "add_numbers").effect) == ("read", "write")
        assert [tool.name for tool in tools if tool.is_repeatable] == ["my_files__echo", "my_files__add_numbers"]
        assert {(tool.timeout, tool.limit) for tool in tools} == {(7.0, 99)}


async def test_progress_is_emitted(either, context):
    emitted = []
    async with either() as tools:
        assert (await call(named(tools, "slow"), context, emitted=emitted)).content == (Text("done"),)
        await until(lambda: len(emitted) == 2)
    assert sorted(emitted, key=lambda each: each.progress) == [Progress(1, 2, "step 1"), Progress(2, 2, "step 2")]


async def test_a_cancelled_call_is_cancelled_at_the_server(context, tmp_path):
    log = tmp_path / "log"
    async with mcp_tools(local("--log", log), timeout=PATIENCE) as tools:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, named(tools, "hangs"), context)
            await written(log, "hangs began")
            tasks.cancel_scope.cancel()
        await written(log, "hangs cancelled")
        assert (await call(named(tools, "echo"), context, '{"text": "still here"}')).content == (Text("still here"),)


async def test_tools_are_called_from_many_tasks_at_once(opened, context):
    heard = []

    async def ask(tool, text):
        heard.append((await call(tool, context, f'{{"text": "{text}"}}')).content[0].text)

    async with opened() as tools, anyio.create_task_group() as tasks:
        for number in range(10):
            tasks.start_soon(ask, named(tools, "echo"), number)
    assert sorted(heard, key=int) == [str(number) for number in range(10)]


@pytest.mark.row("DAS-30")
async def test_a_dead_and_an_absent_server_do_not_hurt_the_third(served, context):
    servers = {
        "good": http(served),
        "dead": stdio("sh", "-c", "echo no such database >&2; exit 1"),
        "absent": stdio("/nonexistent/server"),
        "refused": http("http://127.0.0.1:1/mcp"),
    }
    async with mcp_tools(servers, timeout=PATIENCE) as tools:
        assert {tool.scope for tool in tools} == {"good"}
        states = {name: status.state for name, status in tools.statuses.items()}
        assert states == {"good": "connected", "dead": "failed", "absent": "failed", "refused": "failed"}
        assert "no such database" in tools.statuses["dead"].error
        assert "/nonexistent/server" in tools.statuses["absent"].error
        assert (await call(named(tools, "echo"), context, '{"text": "x"}')).content == (Text("x"),)


@pytest.mark.row("DAS-30")
async def test_a_server_that_never_answers_is_given_up():
    async with mcp_tools({"mute": stdio("sh", "-c", "cat > /dev/null")}, timeout=0.2) as tools:
        assert len(tools) == 0
        assert (tools.statuses["mute"].state, tools.statuses["mute"].error) == ("failed", "no answer within 0.2 s")


@pytest.mark.parametrize(
    ("printed", "line"), [("hello", "hello"), ("{}", "{}"), (r"\377", "\N{REPLACEMENT CHARACTER}")]
)
async def test_a_line_that_is_no_message_is_the_error_of_a_server_that_does_not_open(caplog, printed, line):
    async with mcp_tools({"odd": stdio("sh", "-c", f"printf '{printed}\\n'")}, timeout=PATIENCE) as tools:
        status = tools.statuses["odd"]
    assert (status.state, status.error) == (
        "failed",
        f"Connection closed; it printed a line that is no message: {line!r}",
    )
    assert not [each for each in caplog.records if each.exc_info]


async def test_a_line_that_is_no_message_is_a_warning_of_a_server_that_opens(caplog, context):
    greets = stdio("sh", "-c", f'echo welcome; echo again; exec "{sys.executable}" "{SERVER}"')
    async with mcp_tools({"loud": greets}, timeout=PATIENCE) as tools:
        assert (await call(named(tools, "echo"), context, '{"text": "x"}')).content == (Text("x"),)
    logged = [(each.name, each.getMessage()) for each in caplog.records if each.levelname in {"WARNING", "ERROR"}]
    assert logged == [
        ("palaver.agent.mcp", "MCP server loud: it printed a line that is no message: 'welcome'"),
    ]


async def test_a_session_that_died_is_opened_anew_and_the_call_that_killed_it_is_not_repeated(context, tmp_path):
    log = tmp_path / "log"
    async with mcp_tools(local("--log", log), timeout=PATIENCE) as tools:
        with pytest.raises(ToolError, match="disconnected during the call"):
            await call(named(tools, "dies"), context)
        assert (await call(named(tools, "echo"), context, '{"text": "again"}')).content == (Text("again"),)
    assert log.read_text().splitlines() == ["started", "dies", "started", "echo again"]


async def test_a_server_that_cannot_be_opened_again_is_an_error(context, tmp_path):
    script = tmp_path / "server.py"
    script.write_text(f"import runpy\nrunpy.run_path({str(SERVER)!r}, run_name='__main__')")
    async with mcp_tools(stdio(sys.executable, script), name="gone", timeout=PATIENCE) as tools:
        script.unlink()
        with pytest.raises(ToolError):
            await call(named(tools, "dies"), context)
        with pytest.raises(ToolError, match=r"The MCP server 'gone' is not available: .*No such file"):
            await call(named(tools, "echo"), context, '{"text": "x"}')
        assert tools.statuses["gone"].state == "failed"


async def test_a_list_that_changed_is_said_and_fetched_when_asked(context):
    async with mcp_tools(local(), timeout=PATIENCE) as tools:
        before = tools.tools
        await call(named(tools, "grows"), context)
        await until(lambda: tools.changed)
        assert tools.tools is before
        await tools.refresh()
        assert not tools.changed
        assert named(tools, "grown").name == "mcp__grown"


async def test_an_error_of_the_application_is_raised_as_it_is():
    with pytest.raises(ZeroDivisionError):
        async with mcp_tools(local(), timeout=PATIENCE):
            raise ZeroDivisionError


@pytest.mark.row("DAS-30")
async def test_what_is_sent_is_the_original_name_and_no_empty_arguments(context, tmp_path):
    sent = tmp_path / "sent"
    server = stdio("sh", "-c", 'tee "$0" | "$1" "$2"', sent, sys.executable, SERVER)
    async with mcp_tools(server, timeout=PATIENCE) as tools:
        await call(named(tools, "add_numbers"), context, '{"a": 3}')
        await call(named(tools, "nothing"), context, "{}")
    requests = [json.loads(line) for line in sent.read_text().splitlines()]
    asked = [each["params"] for each in requests if each.get("method") == "tools/call"]
    assert [each["name"] for each in asked] == ["Add-Numbers", "nothing"]
    assert [each.get("arguments", "absent") for each in asked] == [{"a": 3}, "absent"]


async def test_a_server_that_was_started_anew_is_found_again(context):
    port = free_port()
    async with contextlib.AsyncExitStack() as stack:
        with serving(port) as url:
            tools = await stack.enter_async_context(mcp_tools(http(url), timeout=PATIENCE, trust_hints=True))
            assert (await call(named(tools, "echo"), context, '{"text": "a"}')).content == (Text("a"),)
        with pytest.raises(ToolError, match="The MCP server 'mcp' is not available: "):
            await call(named(tools, "echo"), context, '{"text": "b"}')
        with serving(port):
            assert (await call(named(tools, "echo"), context, '{"text": "c"}')).content == (Text("c"),)


async def test_an_agent_calls_the_tools_of_a_server(opened):
    script = [assistant(tool_call("my_files__media", {}, id="c1")), "done"]
    async with opened() as tools:
        run = await Agent(ScriptedModel(script), tools=tools).run("go")
    result = next(message for message in run.messages if message.role == "tool")
    assert [type(part) for part in result.content[:3]] == [Text, Image, Audio]
    assert not result.is_error


async def test_headers_and_environment_are_sent_and_never_shown(tmp_path):
    log = tmp_path / "log"
    server = stdio("sh", "-c", 'echo "started $PALAVER_TEST" > "$0"', log, env={"PALAVER_TEST": "secret"})
    assert "secret" not in repr(server) + repr(http("http://x", headers={"authorization": "secret"}))
    async with mcp_tools(server, timeout=PATIENCE):
        pass
    assert log.read_text().splitlines() == ["started secret"]
