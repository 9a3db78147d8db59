"""Measure the gateway against its peers, and print one table.

Rules:

- Every contender is a process of its own with one worker, before one provider's server (``gateway_upstream.py``) and
  behind one load generator (``gateway_load.py``), each a process too. Contenders run in turns, round by round; a ratio
  is taken within a round.
- *CPU* is what the contender's processes used (user and system, of ``/proc``), divided by requests, or by pieces of a
  stream: what a core can carry, whatever else the machine does. *Requests a second* are those of 32 connections that
  ask without a pause. *Added* is the latency of requests that begin at fixed times, at half of that rate, less the
  latency of the same requests without a gateway.
- ``palaver`` logs every exchange, also in a process of its own, whose CPU counts; the peers log nothing.
- ``bare proxy`` is Starlette and httpx and reads nothing: what a gateway made of these can reach at most.
- ``palaver, two processes`` are two gateways with one database and one store, each asked by half of the connections,
  which one load generator for each of them opens. On two cores everything shares the processors with them.
- *Memory after 100,000 requests* is what one gateway and the writer of its log take, after 1,000 and after 100,000.
- Each connection of an agent is a conversation of its own, of 300 messages at first, which grows by two with each
  request, to 400. Its first request is translated whole.
- LiteLLM is installed by ``make bench BENCH=gateway`` in an environment of its own, Portkey's gateway by npm in
  ``gateway_peers``. What is not installed is skipped by name. Portkey translates no Messages to Chat Completions.
- ``make bench BENCH=gateway`` runs everything and writes ``bench/results/gateway.json`` and ``gateway.md``. A run of
  part of it (``--quick``, ``--only``, ``--with``, ``--rounds``) prints and writes nothing, unless ``-o`` names a
  folder.
- The exit code is 1 when a row failed. A target that was missed is a result, and the table shows it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gateway_data as data
import report
from measure import Row, Spread, describe

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
PALAVER = Path(sys.executable).with_name("palaver")
LITELLM = Path(os.environ.get("PALAVER_BENCH_LITELLM") or HERE.parent / ".venv-litellm") / "bin/litellm"
PORTKEY = Path(os.environ.get("PALAVER_BENCH_NODE") or HERE / "gateway_peers/node_modules") / (
    "@portkey-ai/gateway/build/start-server.js"
)
_TICK = os.sysconf("SC_CLK_TCK")
_CONNECTIONS = 32
_PACED = 8
_PACED_SECONDS = 5
_SETTLING = 1.0
"""Seconds in which what is done behind the answers ends, such as the writing of a log."""
_LONGEST = 300
"""Seconds that a load may take."""

Command = Callable[[int, str, Path], list[str]]
"""Makes a command from a port, the address of the provider's server, and a folder for files."""


@dataclass(frozen=True)
class Gateway:
    """A contender. ``wires`` says whether it gives Anthropic's Messages to a model of Chat Completions."""

    name: str
    command: Command
    headers: Callable[[str], str] = lambda _: ""
    missing: Callable[[], str] = lambda: ""
    wires: bool = True
    environment: dict[str, str] = field(default_factory=dict[str, str])
    at_least: float | None = None
    """The target of the small request: so many times palaver's CPU."""
    processes: int = 1
    share: float = 1.0
    """What it is sent of the requests of a case: a slow one need not take minutes."""


def _palaver(config: str) -> Command:
    def command(port: int, upstream: str, folder: Path) -> list[str]:
        target = f'{{ model = "local/m", url = "{upstream}/v1", wire = "openai_chat" }}'
        text = f"{config.replace('FOLDER', str(folder))}\n[models]\nm = {target}\n"
        (folder / "gateway.toml").write_text(text, "utf-8")
        return [str(PALAVER), "gateway", str(folder / "gateway.toml"), "--port", str(port)]

    return command


def _bare(port: int, upstream: str, _: Path) -> list[str]:
    return [sys.executable, str(HERE / "gateway_bare.py"), str(port), upstream]


def _litellm(port: int, upstream: str, folder: Path) -> list[str]:
    parameters = f"{{model: openai/m, api_base: {upstream}/v1, api_key: any}}"
    # Else it asks a model of OpenAI through Responses, where the client speaks Messages.
    settings = "litellm_settings: {use_chat_completions_url_for_anthropic_messages: true}"
    text = f"model_list:\n- model_name: m\n  litellm_params: {parameters}\n{settings}\n"
    (folder / "litellm.yaml").write_text(text, "utf-8")
    return [str(LITELLM), "--config", str(folder / "litellm.yaml"), "--port", str(port), "--num_workers", "1"]


def _portkey(port: int, _: str, __: Path) -> list[str]:
    return ["node", str(PORTKEY), "--headless", f"--port={port}"]


_LOGGED = _palaver('database = "FOLDER/gateway.db"\n[log]\nstore = "FOLDER/store.db"\nspool = "FOLDER/spool"')
GATEWAYS = (
    Gateway("palaver", _LOGGED),
    Gateway("palaver, no log", _palaver("")),
    Gateway("palaver, two processes", _LOGGED, processes=2),
    Gateway("bare proxy", _bare, wires=False),
    Gateway(
        "litellm",
        _litellm,
        missing=lambda: "" if LITELLM.exists() else "not installed",
        environment={"LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"},
        share=0.25,
        at_least=15,
    ),
    Gateway(
        "portkey",
        _portkey,
        lambda upstream: f"x-portkey-provider: openai\r\nx-portkey-custom-host: {upstream}/v1\r\n",
        lambda: "" if PORTKEY.exists() and shutil.which("node") else "not installed",
        wires=False,
    ),
)


@dataclass(frozen=True)
class Case:
    """A kind of request. ``count`` is how many are sent without a pause; ``targets`` are palaver's, by the figure."""

    name: str
    wire: str
    agent: bool
    stream: bool
    count: int
    targets: dict[str, float] = field(default_factory=dict[str, float])


CASES = (
    Case("1. Small chat", data.CHAT, agent=False, stream=False, count=3000, targets={"p50": 1.0, "p99": 5.0}),
    Case("2. Small chat, other wire", data.MESSAGES, agent=False, stream=False, count=2000),
    Case("3. Agent of 400 messages", data.CHAT, agent=True, stream=False, count=640),
    Case("4. Agent, other wire", data.MESSAGES, agent=True, stream=False, count=640, targets={"p50": 3.0}),
    Case("5. Stream of 200 pieces", data.CHAT, agent=False, stream=True, count=640, targets={"cpu": 30.0}),
    Case("6. Stream, other wire", data.MESSAGES, agent=False, stream=True, count=320, targets={"cpu": 30.0}),
)

Figures = dict[str, float]
FIGURES = (
    ("cpu", "CPU", "µs", False),
    ("rate", "requests a second", "/s", True),
    ("p50", "added, median", "ms", False),
    ("p99", "added, 99th percentile", "ms", False),
    ("first", "added to the first bytes", "ms", False),
    ("memory", "memory", "MB", False),
)
"""The key, the words, the unit, and whether more is better."""


@contextlib.contextmanager
def started(
    arguments: list[str], environment: dict[str, str] | None = None, *, output: int = subprocess.DEVNULL
) -> Iterator[subprocess.Popen[str]]:
    """Run a process, and end it with all that it started."""
    process = subprocess.Popen(
        arguments,
        stdout=output,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        env={**os.environ, **(environment or {})},
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def free_port() -> int:
    """Return a port that nothing uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(port: int, process: subprocess.Popen[str], seconds: float = 120) -> None:
    """Wait until a port is served. Raises ``RuntimeError``."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise RuntimeError("it did not start")


def used(processes: list[subprocess.Popen[str]]) -> tuple[float, float]:
    """Return the CPU seconds and the MB of processes and of all that they started."""
    found: dict[int, list[str]] = {}
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            with contextlib.suppress(OSError):
                found[int(each.name)] = (each / "stat").read_text().rpartition(")")[2].split()
    family = {each.pid for each in processes}
    while more := {pid for pid, fields in found.items() if int(fields[1]) in family} - family:
        family |= more  # a process of another session, such as the log's writer, is a child still
    known = [found[pid] for pid in family if pid in found]
    seconds = sum(int(fields[11]) + int(fields[12]) for fields in known) / _TICK
    return seconds, sum(int(fields[21]) for fields in known) * os.sysconf("SC_PAGE_SIZE") / 1e6


def load(ports: list[int], file: Path, connections: int, count: int, rate: float | None = None) -> dict[str, Any]:
    """Run a load generator for each port, with a share of the load. Raises ``RuntimeError`` when an answer failed."""
    share, more = len(ports), [] if rate is None else [str(rate / len(ports))]
    figures = [str(connections // share), str(count // share), *more]
    running = [
        subprocess.Popen(
            [sys.executable, str(HERE / "gateway_load.py"), str(port), str(file), *figures],
            stdout=subprocess.PIPE,
            text=True,
        )
        for port in ports
    ]
    every = [json.loads(each.communicate(timeout=_LONGEST)[0]) for each in running]
    failed = sum(each["failed"] for each in every)
    if failed or not all(each["whole"] for each in every):
        raise RuntimeError(f"{failed} of {count} requests failed")
    return {
        "seconds": max(each["seconds"] for each in every),
        "whole": sorted(value for each in every for value in each["whole"]),
        "first": sorted(value for each in every for value in each["first"]),
    }


def quantile(values: list[float], share: float) -> float:
    """Return a quantile of sorted values."""
    return values[min(len(values) - 1, int(len(values) * share))]


def measure(gateway: Gateway, case: Case, upstream: int, folder: Path, count: int) -> Figures:
    """Measure one contender once."""
    address = f"http://127.0.0.1:{upstream}"
    own, direct = folder / "own.json", folder / "direct.json"
    headers = gateway.headers(address)
    own.write_text(data.requests(case.wire, agent=case.agent, stream=case.stream, headers=headers), "utf-8")
    direct.write_text(data.requests(data.CHAT, agent=case.agent, stream=case.stream), "utf-8")
    with contextlib.ExitStack() as stack:
        ports, processes = list[int](), list[subprocess.Popen[str]]()
        for _ in range(gateway.processes):
            ports.append(free_port())
            command = gateway.command(ports[-1], address, folder)
            processes.append(stack.enter_context(started(command, gateway.environment)))
            wait_for(ports[-1], processes[-1])
        load(ports, own, _CONNECTIONS, max(_CONNECTIONS, count // 10))
        time.sleep(_SETTLING)
        before, _ = used(processes)
        busy = load(ports, own, _CONNECTIONS, count)
        time.sleep(_SETTLING)
        after, memory = used(processes)
        rate = len(busy["whole"]) / busy["seconds"]
        paced = max(50, int(min(count, rate / 2 * _PACED_SECONDS)))
        through = load(ports, own, _PACED, paced, rate / 2)
    without = load([upstream], direct, _PACED, paced, rate / 2)
    return {
        "cpu": (after - before) / len(busy["whole"]) * 1e6 / (data.TOKENS if case.stream else 1),
        "rate": rate,
        "p50": quantile(through["whole"], 0.5) - quantile(without["whole"], 0.5),
        "p99": quantile(through["whole"], 0.99) - quantile(without["whole"], 0.99),
        "first": quantile(through["first"], 0.5) - quantile(without["first"], 0.5),
        "memory": memory,
    }


def rows_of(
    case: Case, contenders: list[Gateway], upstream: int, folder: Path, *, rounds: int, count: int
) -> list[Row]:
    """Measure a case, and return its lines."""
    found: dict[str, list[Figures]] = {each.name: [] for each in contenders}
    errors: dict[str, str] = {}
    for _ in range(rounds):
        for each in contenders:
            if each.name in errors or each.missing() or not _takes_part(each, case):
                continue
            print(f"{case.name}: {each.name}", file=sys.stderr)
            try:
                share = max(2 * _CONNECTIONS, int(count * each.share))
                found[each.name].append(measure(each, case, upstream, folder, share))
            except (RuntimeError, OSError, ValueError, subprocess.SubprocessError) as error:
                errors[each.name] = describe(error)
    return [
        _row(case, each, figure, found, errors.get(each.name, ""))
        for figure in FIGURES
        if figure[0] != "first" or case.stream
        for each in contenders
        if _takes_part(each, case)
    ]


def _takes_part(gateway: Gateway, case: Case) -> bool:
    return (gateway.wires or case.wire == data.CHAT) and (gateway.processes == 1 or case is CASES[0])


def memory_rows(upstream: int, folder: Path, count: int) -> list[Row]:
    """Return the line about memory after very many requests."""
    file, port = folder / "own.json", free_port()
    file.write_text(data.requests(data.CHAT, agent=False, stream=False), "utf-8")
    row = Row(f"7. Memory after {count:,} requests", "palaver", "MB more than after 1,000")
    print(row.case, file=sys.stderr)
    with started(_LOGGED(port, f"http://127.0.0.1:{upstream}", folder)) as process:
        wait_for(port, process)
        load([port], file, _CONNECTIONS, 1000)
        _, before = used([process])
        load([port], file, _CONNECTIONS, count - 1000)
        _, after = used([process])
    row.value = Spread([after - before])
    return [row]


def _row(
    case: Case, each: Gateway, figure: tuple[str, str, str, bool], found: dict[str, list[Figures]], error: str
) -> Row:
    own, base = found[each.name], found["palaver"]
    key, words, unit, more = figure
    unit = "µs a piece" if key == "cpu" and case.stream else unit
    row = Row(f"{case.name}: {words}", each.name, unit, error=error, skipped=each.missing())
    if row.error or row.skipped:
        return row
    row.value = Spread([each_round[key] for each_round in own])
    if own is base:
        if (most := case.targets.get(key)) is not None:
            row.target, row.met = f"≤ {most:g} {unit}", row.value.median <= most
        return row
    both = [(one[key], ours[key]) for one, ours in zip(own, base, strict=False)]
    row.ratio = Spread([ours / one if more else one / ours for one, ours in both])
    if key == "cpu" and each.at_least is not None and case is CASES[0]:
        row.target, row.met = f"≥ {each.at_least:g}×", row.ratio.median >= each.at_least
    return row


def main() -> int:
    """Measure, print, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a fifth of the requests, one round")
    parser.add_argument("--only", default="", help="the numbers of the cases")
    parser.add_argument("--with", dest="chosen", action="append", help="the name of a contender, besides palaver")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("-o", type=Path, default=None, help="the folder for the results")
    options = parser.parse_args()
    rounds = options.rounds or (1 if options.quick else 3)
    contenders = [each for each in GATEWAYS if not options.chosen or each.name in {"palaver", *options.chosen}]
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "answers.json").write_text(data.answers(), "utf-8")
        command = [sys.executable, str(HERE / "gateway_upstream.py"), str(folder / "answers.json")]
        with started(command, output=subprocess.PIPE) as provider:
            assert provider.stdout is not None
            upstream = int(provider.stdout.readline())
            for case in CASES:
                if not options.only or case.name[0] in options.only:
                    count = max(2 * _CONNECTIONS, case.count // (5 if options.quick else 1))
                    rows += rows_of(case, contenders, upstream, folder, rounds=rounds, count=count)
            if not options.only or "7" in options.only:
                rows += memory_rows(upstream, folder, 10_000 if options.quick else 100_000)
    about = {
        "benchmark": "gateway",
        "data": "Requests of two messages, of a conversation that grows to 400, and streams of 200 pieces.",
        "rounds": rounds,
        "versions": report.versions(),
    }
    report.show(rows, about)
    part = options.quick or options.only or options.chosen or options.rounds
    if options.o or not part:
        report.write(options.o or RESULTS, rows, about)
    return int(any(row.error for row in rows))


if __name__ == "__main__":
    sys.exit(main())
