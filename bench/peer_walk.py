"""Count the walk of `tools/walk.py agent` through pydantic-ai: the same server, two streamed answers and one tool call.

`python bench/peer_walk.py` runs in an environment that has `pydantic-ai-slim[openai]`. It prints the modules that are
entered, the functions, and the calls that cross modules: of pydantic-ai alone, and with the client that it uses.
Counted is what `tools/walk.py` counts: a second run, and a caller is the last frame of the packages that are counted.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType, FrameType

ANSWER = "High water is at 18:42."
CALL = {
    "index": 0,
    "id": "call_1",
    "type": "function",
    "function": {"name": "tide", "arguments": '{"harbour":"Husum"}'},
}


def _chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return b"data: %b\n\n" % json.dumps({**head, "choices": [choice]}).encode()


BODIES = (
    _chunk({"role": "assistant", "tool_calls": [CALL]}) + _chunk({}, "tool_calls") + b"data: [DONE]\n\n",
    _chunk({"role": "assistant", "content": ANSWER}) + _chunk({}, "stop") + b"data: [DONE]\n\n",
)


class _Server(BaseHTTPRequestHandler):
    bodies: ClassVar[Iterator[bytes]] = cycle(BODIES)

    def do_POST(self) -> None:
        """Answer with the next stream."""
        self.rfile.read(int(self.headers["content-length"]))
        body = next(self.bodies)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


def _agent(address: str) -> Any:
    peer = importlib.import_module("pydantic_ai")
    models = importlib.import_module("pydantic_ai.models.openai")
    providers = importlib.import_module("pydantic_ai.providers.openai")
    agent = peer.Agent(models.OpenAIChatModel("m", provider=providers.OpenAIProvider(base_url=address, api_key="k")))

    @agent.tool_plain  # type: ignore[untyped-decorator]
    def tide(harbour: str) -> str:
        return f"high water in {harbour} at 18:42"

    return agent


class _Walk:
    def __init__(self, packages: list[str]) -> None:
        self.folders = [f"{Path(str(importlib.import_module(name).__file__)).parent}/" for name in packages]
        self.functions: Counter[CodeType] = Counter()
        self.crossings = 0

    def _counts(self, frame: FrameType | None) -> bool:
        return frame is not None and any(frame.f_code.co_filename.startswith(each) for each in self.folders)

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        if event != "call" or not self._counts(frame):
            return
        self.functions[frame.f_code] += 1
        caller = frame.f_back
        while caller is not None and not self._counts(caller):
            caller = caller.f_back
        self.crossings += caller is not None and caller.f_code.co_filename != frame.f_code.co_filename


def main() -> None:
    """Print a row for pydantic-ai, and one with its client."""
    server = HTTPServer(("127.0.0.1", 0), _Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    agent = _agent(f"http://127.0.0.1:{server.server_port}/v1")

    async def run() -> None:
        async with agent.run_stream("When can we enter Husum?") as result:
            if await result.get_output() != ANSWER:
                raise RuntimeError("another answer")

    asyncio.run(run())
    print(f"{'walk':<24}{'modules':>9}{'functions':>11}{'calls across modules':>22}")
    for packages in (["pydantic_ai"], ["pydantic_ai", "openai"]):
        walk = _Walk(packages)
        sys.setprofile(walk)
        try:
            asyncio.run(run())
        finally:
            sys.setprofile(None)
        modules = {code.co_filename for code in walk.functions}
        print(f"{' and '.join(packages):<24}{len(modules):>9}{len(walk.functions):>11}{walk.crossings:>22}")


if __name__ == "__main__":
    main()
