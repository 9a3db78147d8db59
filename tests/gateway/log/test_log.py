"""The log of a running gateway: every exchange once, the very bytes, whatever dies."""

import concurrent.futures
import contextlib
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from queue import Queue

import httpx
import pytest
from hypothesis import given, strategies as st
from msgspec import structs

from palaver import Request, user, wires
from palaver.core.errors import PalaverError
from palaver.gateway import Translation, gateway_app
from palaver.gateway.database import open_database
from palaver.gateway.keys import KeySettings
from palaver.gateway.log import component, spool
from palaver.gateway.log.logged import encode
from palaver.gateway.log.options import LogOptions
from palaver.gateway.log.redaction import Redaction
from palaver.gateway.log.sink import Sink
from palaver.gateway.log.spool import segments
from palaver.gateway.log.writer import Writer
from palaver.gateway.record import decode_answer
from palaver.gateway.usage import UsageLedger
from palaver.store.store import Query
from tests.gateway.log.logs import Places, answered, exchange, until
from tests.gateway.running import PROVIDERS, running, targets
from tests.gateway.test_streams import pieces_of
from tests.gateway.test_wires import STREAM_TYPES, answer_of, body_of, path_of

PAIRS = [(wire, wire) for wire in PROVIDERS] + [
    ("anthropic_messages", "openai_chat"),
    ("openai_responses", "anthropic_messages"),
    ("openai_chat", "google_generate"),
]


@pytest.fixture(scope="module")
def logged(provider, tmp_path_factory):
    """A gateway with a log: its address, and where the log is."""
    places = Places(tmp_path_factory.mktemp("log"))
    with running(places.config(targets(provider.url))) as url:
        yield url, places


def read(places, id):
    """Return an exchange, as soon as it is in the table."""

    def find():
        with contextlib.suppress(PalaverError), places.exchanges() as found:
            return found.read(id)

    return until(find)


@pytest.mark.row("GW-33")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("client_wire", "model_wire"), PAIRS)
def test_the_bytes_of_both_sides_are_logged(logged, provider, client_wire, model_wire, stream):
    url, places = logged
    body, provider.body = body_of(client_wire, model_wire, stream=stream), answer_of(model_wire, stream=stream)
    provider.headers = {"content-type": STREAM_TYPES[model_wire] if stream else "application/json"}
    headers = {"authorization": "Bearer secret-of-the-client", "user-agent": "tests"}
    got = httpx.post(f"{url}{path_of(client_wire, model_wire, stream=stream)}", content=body, headers=headers)
    assert got.status_code == 200, got.text
    found = read(places, got.headers["palaver-exchange"])
    assert (found.bodies.request, found.bodies.sent) == (body, provider.asked[0][2])
    assert (found.bodies.received, found.bodies.returned) == (provider.body, got.content)
    summary = found.summary
    assert (summary.api, summary.asked, summary.outcome) == (client_wire, summary.asked, "answered")
    assert (summary.model, summary.input, summary.output) == (f"{PROVIDERS[model_wire][0]}/model-1", 10, 4)
    assert found.receipt.headers["user-agent"] == "tests"
    assert b"secret-of-the-client" not in b"".join(each.read_bytes() for each in places.folder.glob("*.db*"))
    with places.opened_store() as store:
        answer = store.path(summary.thread, summary.entry)[-1].message
        assert (answer.text, answer.metadata["exchange"]) == ("It will.", summary.id)
    if client_wire != model_wire and not stream:
        assert len(found.receipt.losses) == int(got.headers.get("palaver-losses", 0))


@pytest.mark.row("GW-33")
@pytest.mark.parametrize("content", [True, False])
def test_an_answer_without_usage_is_logged_with_the_estimate_that_is_counted(provider, tmp_path, content):
    places = Places(tmp_path)
    provider.headers = {"content-type": "text/event-stream"}
    provider.body = b"".join(pieces_of("openai_chat", "It rains. ", "It will rain."))
    body = body_of("openai_chat", "openai_chat", stream=True)
    config = structs.replace(places.config(targets(provider.url), content=content), keys=KeySettings(required=False))
    with running(config) as url:
        got = httpx.post(f"{url}/v1/chat/completions", content=body)
        found = read(places, got.headers["palaver-exchange"]).summary
    with contextlib.closing(open_database(places.database)) as database:
        (counted,) = UsageLedger(database).sums()
    assert (found.input, found.output, found.estimated) == (counted.input_tokens, counted.output_tokens, True)
    assert found.input > 0 < found.output


@pytest.mark.row("GW-33")
def test_a_stream_that_breaks_off_is_logged_as_far_as_it_came(logged, provider):
    url, places = logged
    provider.headers, provider.pieces = {"content-type": "text/event-stream"}, Queue()
    provider.pieces.put(pieces_of("anthropic_messages", "alpha")[0])
    provider.pieces.put(None)
    body = body_of("openai_chat", "anthropic_messages", stream=True)
    got = httpx.post(f"{url}/v1/chat/completions", content=body)
    found = read(places, got.headers["palaver-exchange"])
    assert (found.summary.outcome, found.bodies.returned) == ("failed", got.content)
    assert found.summary.error == "StreamError"
    with places.opened_store() as store:
        assert store.path(found.summary.thread, found.summary.entry)[-1].message.text == "alpha"


@pytest.mark.row("GW-33")
def test_an_answer_that_the_client_does_not_wait_for_is_logged(logged, provider):
    url, places = logged
    provider.headers, provider.pieces = {"content-type": "text/event-stream"}, Queue()
    provider.pieces.put(pieces_of("anthropic_messages", "alpha")[0])
    body = body_of("anthropic_messages", "anthropic_messages", stream=True)
    path = path_of("anthropic_messages", "anthropic_messages", stream=True)
    with httpx.stream("POST", f"{url}{path}", content=body) as response:
        next(response.iter_raw())
    found = read(places, response.headers["palaver-exchange"])
    assert found.summary.outcome == "cancelled"
    assert b"alpha" in found.bodies.received


def test_a_refusal_is_logged_with_its_reason(logged, provider):
    url, places = logged
    provider.status, provider.body = 429, b'{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}'
    body = body_of("anthropic_messages", "anthropic_messages", stream=False)
    got = httpx.post(f"{url}/v1/messages", content=body)
    found = read(places, got.headers["palaver-exchange"])
    assert (found.summary.status, found.summary.outcome, found.summary.thread) == (429, "refused", None)
    assert "slow down" in found.receipt.attempts[0].error
    assert found.bodies.returned == got.content


SECRET = "sk-abcdefghijklmnopqrstuvwxyz0123456789"
VIRTUAL = f"plv-{'a1B2c3D' * 7}"


def everything(places):
    files = [each for each in places.folder.rglob("*") if each.is_file()]
    return b"".join(each.read_bytes() for each in files)


@pytest.mark.row("GW-35")
@pytest.mark.parametrize(
    ("options", "absent"),
    [
        ({"redact": ["Husum-[0-9]+"]}, [SECRET, VIRTUAL, "Husum-4711"]),
        ({"bodies": False}, [SECRET]),
        ({"content": False}, [SECRET, "Husum-4711", "Is it", "It will"]),
    ],
    ids=["patterns", "messages only", "figures only"],
)
def test_what_should_not_be_kept_is_never_on_the_disk(provider, tmp_path, options, absent):
    places = Places(tmp_path)
    question = f"Is it dry in Husum-4711? {SECRET} {VIRTUAL}"
    body = wires.get("openai_chat").encode_request(Request(messages=(user(question),), model="openai_chat")).body
    provider.body = wires.get("openai_chat").encode_response(answered(f"It will be. {SECRET}")).body
    places.folder.joinpath("gateway.db").mkdir()  # so that the spool cannot be emptied
    with running(places.config(targets(provider.url), **options)) as url:
        headers = {"session_id": SECRET, **({"user-agent": "Husum-4711"} if "redact" in options else {})}
        got = httpx.post(f"{url}/v1/chat/completions", content=body, headers=headers)
        assert SECRET in got.text
        (folder,) = places.spool.iterdir()
        spooled = b"".join(each.read_bytes() for each in segments(folder))
    assert spooled
    assert not [each for each in absent if each.encode() in spooled]
    places.folder.joinpath("gateway.db").rmdir()
    with running(places.config(targets(provider.url), **options)):
        found = read(places, got.headers["palaver-exchange"])
    assert (found.bodies is None) == ("redact" not in options)
    assert (found.summary.input, found.summary.output) == (1000, 20)
    assert not [each for each in absent if each.encode() in everything(places)]
    with places.opened_store() as store:
        assert len(list(store.threads())) == (0 if "content" in options else 1)


@pytest.mark.row("GW-35")
@pytest.mark.parametrize("client", ["openai_chat", "anthropic_messages"])
def test_what_several_events_of_a_stream_hold_is_masked(provider, tmp_path, client):
    places = Places(tmp_path)
    provider.headers = {"content-type": "text/event-stream"}
    provider.body = b"".join(pieces_of("openai_chat", f"It is {SECRET[:12]}", SECRET[12:30], f"{SECRET[30:]} there"))
    body = body_of(client, "openai_chat", stream=True)
    with running(places.config(targets(provider.url))) as url:
        got = httpx.post(f"{url}{path_of(client, 'openai_chat', stream=True)}", content=body)
        assert SECRET[12:30] in got.text
        found = read(places, got.headers["palaver-exchange"])
    for wire, data in (("openai_chat", found.bodies.received), (client, found.bodies.returned)):
        assert SECRET[12:30].encode() not in data
        assert "REDACTED" in decode_answer(wire, data, stream=True).message.text
    with places.opened_store() as store:
        answer = store.path(found.summary.thread, found.summary.entry)[-1].message
        assert answer.text.startswith("It is REDACTED")
        assert answer.text.endswith(" there")


MASKED_TEXT = f"Müller, /home/eva/diary, 123-45-6789, 😀x and {SECRET} too"
PATTERNS = ["Müller", "[0-9]{3}-[0-9]{2}-[0-9]{4}", "/home/[a-z]+/diary", "😀x"]


def slashed(text):
    return json.dumps(text).replace("/", "\\/")


def spelled(text):
    units = text.encode("utf-16-be").hex()
    return '"' + "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)) + '"'


@pytest.mark.row("GW-35")
@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("write", [json.dumps, slashed, spelled])
def test_what_json_writes_with_escapes_is_masked(write, times):
    body = f"It is {MASKED_TEXT}."
    for _ in range(times):
        body = f'{{"a": {write(body)}, "b": "c\\\\d"}}'
    redact = Redaction(PATTERNS)
    masked = redact(body.encode())
    assert len(masked) == len(body.encode())
    for _ in range(times):
        masked = json.loads(masked)["a"]
    assert re.fullmatch(r"It is R[A-Z]*, R[A-Z]*, R[A-Z]*, R[A-Z]* and R[A-Z]* too\.", masked)
    assert redact(b'{"a": "x\\ny \\ud800 c:\\\\u"}') == b'{"a": "x\\ny \\ud800 c:\\\\u"}'


@given(st.text('\\"/abfnrtu019\n\ud83d😀é \0', max_size=30), st.text("abnu1é/", min_size=1, max_size=3), st.booleans())
def test_text_is_masked_wherever_it_is_in_json(text, secret, ascii_only):
    redact = Redaction([re.escape(secret)], keys=False)
    body = json.dumps({"K": text}, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    masked = redact(body)
    if secret in text:
        assert secret not in json.loads(masked.decode("utf-8", "surrogatepass"))["K"]
    elif secret.encode() not in body and "\\" not in text:
        assert masked == body
    assert json.loads(masked.decode("utf-8", "surrogatepass"))


@pytest.mark.row("GW-35")
def test_the_title_of_a_thread_and_the_receipt_of_an_exchange_are_masked(provider, tmp_path):
    places = Places(tmp_path)
    provider.body = wires.get("ollama_chat").encode_response(answered("Calm.")).body
    picture = {"type": "image_url", "image_url": {"url": "s123-45-6789://x.png"}}
    content = [{"type": "text", "text": "I am Müller"}, picture]
    body = {"model": "ollama_chat", "messages": [{"role": "user", "content": content}]}
    config = structs.replace(
        places.config(targets(provider.url), redact=PATTERNS), translation=Translation(fetch_images=True)
    )
    with running(config) as url:
        got = httpx.post(f"{url}/v1/chat/completions", content=json.dumps(body))  # which writes \u00fc
        found = read(places, got.headers["palaver-exchange"])
    assert any("REDACTED" in each.why for each in found.receipt.losses)
    assert b"123-45-6789" not in everything(places)
    with places.opened_store() as store:
        assert [each.title for each in store.threads()] == ["I am REDACTEDRED"]


@pytest.mark.row("GW-35")
def test_what_is_large_is_masked_beside_the_loop(provider, tmp_path, monkeypatch):
    threads, real = {}, Redaction.body

    def body(redact, data, client):
        threads[len(data) > component.LARGE] = threading.current_thread()
        return real(redact, data, client)

    monkeypatch.setattr(Redaction, "body", body)
    places = Places(tmp_path)
    provider.body = wires.get("openai_chat").encode_response(answered(f"Calm. {SECRET}")).body
    with running(places.config(targets(provider.url))) as url:
        for size in (1, component.LARGE):
            request = Request(messages=(user(SECRET + "x" * size),), model="openai_chat")
            asked = wires.get("openai_chat").encode_request(request).body
            got = httpx.post(f"{url}/v1/chat/completions", content=asked)
            found = read(places, got.headers["palaver-exchange"])
            assert SECRET.encode() not in found.bodies.request + found.bodies.received
    assert threads[True] is not threads[False]


@pytest.mark.row("GW-36")
def test_a_full_spool_refuses_clients_or_drops_what_it_logs(provider, tmp_path):
    places = Places(tmp_path)
    tmp_path.joinpath("gateway.db").mkdir()
    body, provider.body = body_of("openai_chat", "openai_chat", stream=False), answer_of("openai_chat", stream=False)
    with running(places.config(targets(provider.url), max_spool=1000)) as url:
        statuses = [httpx.post(f"{url}/v1/chat/completions", content=body) for _ in range(4)]
        assert [each.status_code for each in statuses] == [200, 503, 503, 503]
        assert "log" in statuses[-1].json()["error"]["message"]
    provider.asked.clear()
    with running(places.config(targets(provider.url), max_spool=1000, when_full="drop")) as url:
        statuses = [httpx.post(f"{url}/v1/chat/completions", content=body) for _ in range(4)]
        assert [each.status_code for each in statuses] == [200] * 4
        assert len(provider.asked) == 4
    tmp_path.joinpath("gateway.db").rmdir()
    with running(places.config(targets(provider.url), max_spool=1000)) as url, places.exchanges() as found:
        until(lambda: len(found.recent(10)) == 2)
        for _ in range(3):  # it is full after each, until that is written
            until(lambda: httpx.post(f"{url}/v1/chat/completions", content=body).status_code == 200)


@pytest.mark.row("GW-36")
def test_traffic_goes_on_while_the_store_is_away_and_everything_arrives(provider, tmp_path):
    places = Places(tmp_path)
    places.store = str(tmp_path / "mounted" / "store.db")
    body, provider.body = body_of("openai_chat", "openai_chat", stream=False), answer_of("openai_chat", stream=False)
    ids = []
    with running(places.config(targets(provider.url))) as url, httpx.Client() as client:

        def ask():
            ids.append(client.post(f"{url}/v1/chat/completions", content=body).headers["palaver-exchange"])

        ask()
        until(lambda: any(places.spool.parent.glob("gateway.db*")))  # the writer tries
        for _ in range(19):
            ask()
        tmp_path.joinpath("mounted").mkdir()
        read(places, ids[-1])
        locks = [sqlite3.connect(each, isolation_level=None) for each in (places.database, places.store)]
        for each in locks:
            each.execute("BEGIN IMMEDIATE")
        for _ in range(20):
            ask()
        for each in locks:
            each.execute("ROLLBACK")
            each.close()
        for each in ids:
            assert read(places, each).summary.thread is not None
    with places.opened_store() as store:
        assert store.verify().ok
        assert len(list(store.threads())) == len(ids) == 40


@contextlib.contextmanager
def gateway_process(places, provider, *, sync=False):
    """A gateway as a process of its own."""
    file = places.folder / "gateway.toml"
    file.write_text(
        f'database = "{places.database}"\n[log]\nstore = "{places.store}"\nspool = "{places.spool}"\n'
        f"sync = {str(sync).lower()}\n[models]\n"
        f'fast = {{ model = "openai/m", wire = "openai_chat", url = "{provider.url}/v1", key = "PALAVER_TEST_KEY" }}\n',
        "utf-8",
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "palaver", "gateway", str(file), "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PALAVER_TEST_KEY": "k"},
    )
    try:
        yield process, process.stdout.readline().split()[0]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.row("GW-36")
@pytest.mark.parametrize("sync", [False, True], ids=["written", "synced"])
def test_what_a_client_got_whole_is_in_the_log_once_after_a_kill(provider, tmp_path, sync):
    places = Places(tmp_path)
    provider.body = wires.get("openai_chat").encode_response(answered("calm")).body
    got, names = [], set()

    def converse(url, name):
        messages = []
        with httpx.Client() as client, contextlib.suppress(httpx.HTTPError):
            for turn in range(1000):
                messages.append({"role": "user", "content": f"{name} {turn}"})
                body = json.dumps({"model": "fast", "messages": messages})
                response = client.post(f"{url}/v1/chat/completions", content=body)
                assert response.status_code == 200
                got.append(response.headers["palaver-exchange"])
                names.add(name)
                messages.append({"role": "assistant", "content": "calm"})

    with gateway_process(places, provider, sync=sync) as (process, url):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            done = [pool.submit(converse, url, f"boat {each}") for each in range(8)]
            until(lambda: len(got) > 150)
            os.kill(process.pid, signal.SIGKILL)
        for each in done:
            each.result()
    assert len(got) > 150
    with running(places.config()):
        until(lambda: len(list(places.spool.iterdir())) == 1)
        with places.exchanges() as found:
            logged = [each.id for each in found.recent(10_000)]
    assert set(got) <= set(logged)
    assert len(logged) == len(set(logged)) <= len(got) + 8
    with places.opened_store() as store:
        assert store.verify().ok
        threads = list(store.threads())
        assert len(names) <= len(threads) <= 8
        assert all(set(each.branches) == {"main"} for each in threads)
        said = [hit.entry.message for hit in store.search(Query(text="calm", role="assistant", limit=10_000))]
        assert {each.metadata["exchange"] for each in said} == set(logged)
        assert len(said) == len(logged)


@pytest.mark.row("GW-36")
@pytest.mark.parametrize("altered", ["a record", "a length", "nothing"])
def test_a_spool_that_was_altered_loses_nothing(tmp_path, altered):
    places = Places(tmp_path)
    body = Request(messages=(user("Well?"),), model="m")
    several = [exchange("openai_chat", body, answered(str(each))) for each in range(4)]
    framed = [spool.framed(encode(each)) for each in several]
    data = bytearray(b"".join(framed))
    place = len(framed[0]) + {"a record": 40, "a length": 2, "nothing": 0}[altered]
    data[place] ^= 1 if altered != "nothing" else 0
    folder = places.spool / "of-a-process-that-died"
    folder.mkdir(parents=True)
    (folder / "00000000.spool").write_bytes(data + (b"torn" if altered == "nothing" else bytes(4096)))
    writer_stops = threading.Event()
    writer_stops.set()
    lock = spool.lock_folder(folder)
    Writer(folder, lock, lambda: Sink(LogOptions(store=places.store), places.database), changed=print).run(writer_stops)
    with places.exchanges() as found:
        logged = {each.id for each in found.recent(10)}
    rejected = (places.spool / "rejected").read_bytes()
    kept = {"a record": [1], "a length": [1, 2, 3], "nothing": []}[altered]
    assert logged == {each.id for number, each in enumerate(several) if number not in kept}
    assert all(framed[each][80:] in rejected for each in kept)
    assert not folder.exists()


def test_a_pattern_that_cannot_be_read_is_refused_at_the_start(tmp_path):
    with pytest.raises(PalaverError, match=r"redact\[0\]"):
        gateway_app(Places(tmp_path).config(redact=["(?=x)"]))
