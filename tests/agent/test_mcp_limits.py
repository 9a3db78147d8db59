"""MCP servers that send without end: the session is left at a limit, and one error says so. Real servers, that lie."""

# pyright: basic

import contextlib
import io
import json
import re
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any, cast

import pytest

from palaver.agent import mcp_session
from palaver.agent.mcp import http, mcp_tools, stdio
from palaver.core.errors import ToolError
from palaver.core.parts import ToolCall
from palaver.stream.frames import LimitedLines
from tests.loopback import listening

pytestmark = [
    pytest.mark.finding("F-105"),
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore:Async generator 'httpx2:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:Async generator 'httpcore2:ResourceWarning"),
]

LIMIT = 1 << 20
BUFFERS = 32 << 20
"""More than the sockets between two processes hold."""
ENDLESS = 1 << 27
"""What a server sends that is not left; it ends, so that a test without a limit fails and does not hang."""
PATIENCE = 60.0
TOOL = {"name": "t", "inputSchema": {"type": "object", "properties": {}}}


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture(autouse=True)
def _limit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(mcp_session, "LIMIT", LIMIT)


def answer_to(asked: dict[str, Any]) -> dict[str, Any]:
    """What an honest server answers."""
    match asked["method"]:
        case "initialize":
            version = asked["params"]["protocolVersion"]
            info = {"name": "liar", "version": "1"}
            said = {"result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}}
        case "tools/list":
            said = {"result": {"tools": [TOOL]}}
        case _:
            said = {"error": {"code": -32601, "message": "no such method"}}
    return {"jsonrpc": "2.0", "id": asked["id"], **said}


PIECE = b"x" * 65536
LIES: dict[str, tuple[dict[str, str], bytes, bytes]] = {
    "whole": ({"Content-Type": "application/json"}, b'{"jsonrpc":"2.0","id":1,"result":{"x":"', PIECE),
    "line": ({"Content-Type": "text/event-stream"}, b"data: ", PIECE),
    "events": ({"Content-Type": "text/event-stream"}, b"", b"event: ping\ndata: {}\n\n" * 1000),
    "comments": ({"Content-Type": "text/event-stream"}, b"", b": nothing\n" * 1000),
    "packed": ({"Content-Type": "application/json", "Content-Encoding": "gzip"}, b"\x1f\x8b\x08" + bytes(7), PIECE),
}


class Liar:
    """How much of the lie was taken."""

    def __init__(self) -> None:
        self.url = ""
        self.sent = 0


@contextlib.contextmanager
def lying(lie: str, to: str) -> Iterator[Liar]:
    headers, begin, piece = LIES[lie]
    liar = Liar()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if "id" not in asked:
                self.answer(202, b"")
            elif asked["method"] == to:
                with contextlib.suppress(OSError):
                    self.lie()
                self.close_connection = True
            else:
                self.answer(200, json.dumps(answer_to(asked)).encode())

        def do_GET(self) -> None:
            self.answer(405, b"")

        def do_DELETE(self) -> None:
            self.answer(200, b"")

        def answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def lie(self) -> None:
            self.send_response(200)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(begin)
            while liar.sent < ENDLESS:
                self.wfile.write(piece)
                liar.sent += len(piece)

    with listening(Handler) as url:
        liar.url = f"{url}/mcp"
        yield liar


async def called(tools: Any, context: Any) -> str:
    """Call the only tool; give the text of the error."""
    (tool,) = tools
    with pytest.raises(ToolError) as raised:
        await tool.run(tool.check(ToolCall("1", tool.definition.name, "{}")), context)
    return str(raised.value)


@pytest.mark.parametrize("lie", LIES)
async def test_an_endless_answer_over_http_ends_at_the_limit(lie: str, context: Callable[..., Any]):
    said = "compressed" if lie == "packed" else "more than 1048576 bytes|exceed"
    with lying(lie, "tools/call") as liar:
        async with mcp_tools(http(liar.url), timeout=PATIENCE) as tools:
            text = await called(tools, context())
    assert re.search(said, text), text
    assert liar.sent < LIMIT + BUFFERS


@pytest.mark.parametrize("lie", ["whole", "line"])
async def test_an_endless_list_of_tools_is_the_error_of_the_server(lie: str):
    with lying(lie, "tools/list") as liar:
        async with mcp_tools(http(liar.url), timeout=PATIENCE) as tools:
            (status,) = tools.statuses.values()
    assert status.state == "failed"
    assert liar.sent < LIMIT + BUFFERS


PROGRAM = """
import json, sys
sys.path.insert(0, {path!r})
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    if asked["method"] == {to!r}:
        for _ in range({pieces}):
            sys.stdout.write("x" * 65536)
            sys.stdout.flush()
        continue
    result = (
        {{"protocolVersion": asked["params"].get("protocolVersion"), "capabilities": {{"tools": {{}}}},
          "serverInfo": {{"name": "liar", "version": "1"}}}}
        if asked["method"] == "initialize"
        else {{"tools": [{{"name": "t", "inputSchema": {{"type": "object", "properties": {{}}}}}}]}}
    )
    known = asked["method"] in ("initialize", "tools/list")
    said = {{"result": result}} if known else {{"error": {{"code": -32601, "message": "no such method"}}}}
    print(json.dumps({{"jsonrpc": "2.0", "id": asked["id"], **said}}), flush=True)
"""


def program(to: str):
    return stdio(sys.executable, "-c", PROGRAM.format(path="", to=to, pieces=ENDLESS // 65536))


async def test_an_endless_line_over_stdio_ends_at_the_limit(context: Callable[..., Any]):
    async with mcp_tools(program("tools/call"), timeout=PATIENCE) as tools:
        text = await called(tools, context())
    assert "the server sent a line of more than 1048576 bytes" in text


async def test_an_endless_line_in_place_of_a_greeting_is_the_error_of_the_server():
    async with mcp_tools(program("initialize"), timeout=PATIENCE) as tools:
        (status,) = tools.statuses.values()
    assert status.error == "the server sent a line of more than 1048576 bytes"


def test_only_the_end_of_what_a_server_writes_to_its_stderr_is_read():
    class Log(io.BytesIO):
        taken = 0

        def read(self, size: int | None = -1) -> bytes:
            data = super().read(size)
            self.taken += len(data)
            return data

    log = Log(b"e" * (4 << 20) + b"\nno such file\n")
    told = mcp_session._told(OSError("Connection closed"), cast("Any", log))
    assert told == "Connection closed (no such file)"
    assert log.taken <= 8000


@pytest.mark.parametrize(
    ("chunks", "text"),
    [
        ([b"abc\n", b"defgh\n"], "abc\ndefgh\n"),
        ([b"ab", b"cd", b"e\nf"], "abcde\nf"),
        (["é€".encode()[:2], "é€".encode()[2:4], "é€".encode()[4:] + b"\n"], "é€\n"),
        ([b"abcdef"], None),
        ([b"abc", b"def"], None),
        ([b"a\nbcdefg\nh"], None),
        ([b"a\nbc", b"defg\n"], None),
    ],
)
def test_lines_up_to_the_limit_are_decoded(chunks: list[bytes], text: str | None):
    over: list[str] = []
    lines = LimitedLines("strict", 5, over.append)
    decoded = "".join(lines.decode(chunk) for chunk in [*chunks, b"more\n"])
    if text is None:
        assert over == ["a line of more than 5 bytes"]
    else:
        assert (decoded, over) == (text + "more\n", [])
