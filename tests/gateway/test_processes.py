"""Several processes of one gateway, which share their limits through one database."""

import os
import signal
import subprocess
import sys
import threading
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest

from palaver import Usage
from palaver.gateway.database import open_database
from palaver.gateway.keys import GatewayKeys
from palaver.gateway.limits import parse_limit
from palaver.gateway.usage import UsageLedger
from tests.gateway.databases import KINDS, location
from tests.gateway.log.logs import until
from tests.gateway.test_limits import JSON, answer_with

PROCESSES = 4
THREADS = 2
"""Of each process, in this test: so many exchanges are in progress at a time."""


@contextmanager
def processes(config, text):
    """Yield the ids and the addresses of processes that serve a configuration."""
    config.write_text(text, "utf-8")
    script = Path(__file__).with_name("serve_processes.py")
    ran = subprocess.Popen(
        [sys.executable, script, config, str(PROCESSES)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PALAVER_TEST_KEY": "secret-1", "NO_PROXY": "127.0.0.1"},
    )
    with ran:
        found = [ran.stdout.readline().split() for _ in range(PROCESSES)]
        yield [(int(each), f"http://127.0.0.1:{port}") for each, port in found]
        ran.stdin.close()
        assert ran.wait(60) == 0


def hammer(served, secret, *, kill=None):
    """Ask all processes at once until each refuses; return how many requests were answered."""
    answered, refused = [], []

    def work(url):
        with httpx.Client(headers={"authorization": f"Bearer {secret}"}, timeout=60) as client:
            while True:
                try:
                    got = client.post(f"{url}/v1/chat/completions", content=b'{"model": "m", "messages": []}')
                except httpx.TransportError:
                    assert kill is not None
                    return
                if got.status_code != 200:
                    refused.append(got.status_code)
                    return
                answered.append(url)
                if kill is not None and len(answered) >= 40:
                    os.kill(kill, signal.SIGKILL)

    threads = [threading.Thread(target=work, args=[url]) for _, url in served for _ in range(THREADS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert set(refused) == {429}
    return len(answered)


def requests_of(key, place):
    """Return how many requests of a key the database knows."""
    with closing(open_database(place)) as database:
        return sum(each.requests for each in UsageLedger(database).sums(key=key))


@pytest.mark.row("GW-32")
@pytest.mark.parametrize("kind", KINDS)
def test_processes_never_pass_a_limit_together(provider, tmp_path, kind):
    provider.headers, provider.body = JSON, answer_with("openai_chat", Usage(input=10, output=150))
    with location(kind, tmp_path) as place:
        with closing(open_database(place)) as database:
            keys = GatewayKeys(database)
            many = keys.create("many", limits=[parse_limit("requests", "120/month")]).secret
            few = keys.create("few", limits=[parse_limit("requests", "3/month")]).secret
            tokens = keys.create("tokens", limits=[parse_limit("tokens", "8k/month")]).secret
            killed = keys.create("killed", limits=[parse_limit("requests", "96/month")]).secret
        config = f"""
            database = "{place}"
            [keys]
            required = true
            [models]
            m = {{ model = "openai/m", url = "{provider.url}", wire = "openai_chat", key = "PALAVER_TEST_KEY" }}
        """
        with processes(tmp_path / "gateway.toml", config) as served:
            assert 110 <= hammer(served, many) <= 120
            assert len(provider.asked) <= 120
            # A process may refuse what another still holds of so small a limit; together they never pass it.
            allowed = hammer(served, few)
            assert 1 <= allowed <= 3
            # Before a process is killed: it loses what it has not written.
            until(lambda: requests_of("few", place) == allowed)
            # Nothing is reserved of the output, so what is in progress at the limit is what may pass it.
            assert 7000 <= hammer(served, tokens) * 160 <= 8000 + PROCESSES * THREADS * 160
            before = len(provider.asked)
            # What a process had of the limit when it was killed is lost, and is at most a share and a half.
            assert hammer(served, killed, kill=served[0][0]) >= 96 - 12 * 1.5 - THREADS
            assert len(provider.asked) - before <= 96
        assert requests_of("few", place) == allowed
        assert requests_of("many", place) <= 120
