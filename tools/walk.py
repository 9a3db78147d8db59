"""Count the modules that one walks through to follow a piece of work, and the calls that cross them.

- `python tools/walk.py` prints a row for each walk: a run of an agent and a turn of a swarm (two streamed answers of a
  server on loopback and one tool call, each), and a conversion by the command line.
- `python tools/walk.py agent --modules` lists the modules of one walk, each with the functions entered there.

A walk is done twice and counted the second time, so imports and caches are not in it. Only code of Palaver counts; a
call crosses modules when caller and callee stand in different files. Calls through other libraries are charged to the
last frame of Palaver below them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import palaver
from palaver.agent import Agent
from palaver.models import LanguageModel, model
from palaver.swarm import Swarm, SwarmAgent

HERE = str(Path(palaver.__file__).parent) + "/"


def tide(harbour: str) -> str:
    """Say when the water is high in a harbour."""
    return f"high water in {harbour} at 18:42"


def _chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return (
        b"data: %b\n\n"
        % json.dumps(
            {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
        ).encode()
    )


ANSWER = "High water is at 18:42."
CALL = {
    "index": 0,
    "id": "call_1",
    "type": "function",
    "function": {"name": "tide", "arguments": '{"harbour":"Husum"}'},
}
BODIES = (
    _chunk({"role": "assistant", "tool_calls": [CALL]}) + _chunk({}, "tool_calls") + b"data: [DONE]\n\n",
    _chunk({"role": "assistant", "content": ANSWER}) + _chunk({}, "stop") + b"data: [DONE]\n\n",
)


@contextlib.contextmanager
def _model() -> Iterator[LanguageModel]:
    """Give a model whose server, on loopback, streams the two answers in turn."""
    waiting = list(BODIES)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            self.wfile.write(waiting.pop(0))

        def log_message(self, format: str, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield model("openai-chat/example", url=f"http://127.0.0.1:{server.server_port}", key="none")
        finally:
            server.shutdown()
            thread.join()


def _expect(text: str | None) -> None:
    if text != ANSWER:
        raise RuntimeError(text)


def agent() -> None:
    """Run an agent: two answers and one tool call."""
    with _model() as asked:
        work = Agent(asked, tools=[tide], policy="allow").run("When can we enter Husum?")
        _expect(asyncio.run(work).text)  # in this thread, which is the one that is profiled


def swarm() -> None:
    """Take one turn of a swarm: two answers and one tool call."""

    async def turn(asked: LanguageModel) -> str:
        one = Swarm("harbour", [SwarmAgent("office", asked, tools=[tide], stream=True)])
        async with one.start() as live, live.session("ann") as session:
            return await session.complete("When can we enter Husum?")

    with _model() as asked:
        _expect(asyncio.run(turn(asked)))


def convert() -> None:
    """Convert a chat of three messages to another wire by the command line, its kind detected."""
    from palaver.cli import main  # noqa: PLC0415 -- other walks do not need it

    chat = [
        {"role": "user", "content": "When can we enter Husum?"},
        {"role": "assistant", "content": "At 18:42."},
        {"role": "user", "content": "Thank you."},
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chat.json"
        path.write_text(json.dumps({"model": "gpt-5", "messages": chat, "max_completion_tokens": 100}))
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as errors:
            code = main(["convert", str(path), "--to", "anthropic_messages", "-o", str(path.with_name("out"))])
        if code:
            raise RuntimeError(errors.getvalue())


WALKS: dict[str, Callable[[], None]] = {"agent": agent, "convert": convert, "swarm": swarm}


class Walk:
    """What was entered while a function ran: functions by their code, and calls from one module into another."""

    def __init__(self) -> None:
        self.functions: Counter[CodeType] = Counter()
        self.crossings = 0

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        """Count one event of the profiler."""
        if event != "call" or not frame.f_code.co_filename.startswith(HERE):
            return
        self.functions[frame.f_code] += 1
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(HERE):
            caller = caller.f_back
        if caller is not None and caller.f_code.co_filename != frame.f_code.co_filename:
            self.crossings += 1

    def modules(self) -> dict[str, int]:
        """Return the number of functions entered in each module, by its path inside the package."""
        return dict(Counter(code.co_filename.removeprefix(HERE) for code in self.functions).most_common())


def measure(work: Callable[[], None]) -> Walk:
    """Return what was entered while the work was done for a second time."""
    work()
    walk = Walk()
    sys.setprofile(walk)
    try:
        work()
    finally:
        sys.setprofile(None)
    return walk


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Count modules, functions and calls across modules of a walk.")
    parser.add_argument("walks", nargs="*", choices=[*WALKS, []], help="all of them unless named")
    parser.add_argument("--modules", action="store_true", help="list the modules, with the functions entered in each")
    chosen = parser.parse_args(arguments)
    print(f"{'walk':<10}{'modules':>9}{'functions':>11}{'calls across modules':>22}")
    for name in chosen.walks or WALKS:
        walk = measure(WALKS[name])
        modules = walk.modules()
        print(f"{name:<10}{len(modules):>9}{len(walk.functions):>11}{walk.crossings:>22}")
        if chosen.modules:
            print(*(f"  {count:>4}  {module}" for module, count in modules.items()), sep="\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
