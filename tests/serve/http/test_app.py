"""A swarm over HTTP: the official client against a real server."""

import json
import signal
import socket

import anyio
import httpx
import pytest
from anyio.lowlevel import checkpoint

from palaver.core.errors import SwarmError, TransportError
from palaver.models.scripted import ScriptedModel
from palaver.serve.http import HttpApp, Limits, live_history
from palaver.serve.workers import Dispatcher, LocalDispatcher, PendingTurn
from palaver.store.memory import MemoryStore
from palaver.swarm import Event, LocalBus, Swarm, SwarmAgent
from tests.swarm.served import let_others_run, served

pytestmark = pytest.mark.anyio

JSON = {"content-type": "application/json"}


def told(text):
    """The events of a stream: name, data, id."""
    events = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if fields:
            events.append((fields["event"], json.loads(fields["data"]), fields.get("id")))
    return events


async def streamed(http, client, text, **more):
    headers = {"accept": "text/event-stream"}
    answer = await http.post(f"/v1/clients/{client}/messages", json={"text": text, **more}, headers=headers)
    assert answer.headers["content-type"].startswith("text/event-stream")
    return told(answer.text)


async def test_a_message_is_answered_with_its_run_and_its_agent(office):
    async with office() as o:
        answer = await o.post("ann", "hi", run="r1", payload={"from": "web"})
        assert (answer.status_code, answer.json()) == (200, {"run": "r1", "answer": "you said hi", "agent": "desk"})
        named = (await o.post("ann", "again")).json()
        assert named["run"]
        assert named["answer"] == "you said again"


@pytest.mark.finding("F-16")
@pytest.mark.parametrize("text", ["", " \n"])
async def test_an_empty_text_is_refused(office, text):
    async with office() as o:
        answer = await o.post("ann", text, payload={"id": 1})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "decode")
        assert "the text is empty" in answer.json()["error"]["message"]


async def test_the_agent_is_the_one_that_the_turn_was_handed_to(office):
    async with office() as o:
        assert (await o.post("ann", "to sales")).json()["agent"] == "sales"
        assert (await o.post("bob", "hi")).json()["agent"] == "desk"


async def test_a_run_is_answered_once(office):
    async with office() as o:
        first = (await o.post("ann", "hi", run="r1")).json()
        assert (await o.post("ann", "hi", run="r1")).json()["answer"] == first["answer"]
        said = (await o.http.get("/v1/clients/ann/messages")).json()["messages"]
        assert [each["text"] for each in said] == ["hi", "you said hi"]


async def test_a_stream_tells_what_happens_and_then_the_answer(office):
    async with office() as o:
        events = await streamed(o.http, "ann", "one two three", run="r1")
        names = [name for name, _, _ in events]
        assert "".join(data["output"]["text"] for name, data, _ in events if name == "agent.delta") == (
            "you said one two three"
        )
        assert names[-1] == "answer"
        assert names[-2] == "execution.commit-execution-end"
        assert events[-1][1] == {"run": "r1", "answer": "you said one two three", "agent": "desk"}
        assert {data["run"] for name, data, _ in events[:-1]} == {"r1"}


async def test_a_stream_tells_a_hand_over(office):
    async with office() as o:
        events = await streamed(o.http, "ann", "to sales")
        changed = [data["input"]["agentName"] for name, data, _ in events if name == "swarm.set-agent-name"]
        assert changed == ["sales"]
        assert "agent.commit-tool-output" in [name for name, _, _ in events]
        assert not [name for name, _, _ in events if name.startswith("history.")]
        assert events[-1][1]["agent"] == "sales"


async def test_history_is_what_people_may_see(office):
    store = MemoryStore()
    async with office(store=store) as o:
        assert (await o.http.get("/v1/clients/ann/messages")).json() == {"messages": []}
        assert [*store.threads()] == []
        await o.post("ann", "to sales")
        await o.post("ann", "thanks")
        said = (await o.http.get("/v1/clients/ann/messages")).json()["messages"]
        assert [(each["role"], each["agent"]) for each in said] == [
            ("user", "desk"), ("assistant", "sales"), ("user", "sales"), ("assistant", "sales"),
        ]  # fmt: skip
        assert said[0]["text"] == "to sales"
        assert all(each["sent_at"] for each in said)


async def test_events_from_a_place(office):
    async with office() as o:
        await o.post("ann", "one")
        await o.post("bob", "other")
        async with o.http.stream("GET", "/v1/clients/ann/events?since=0") as stream:
            seen, text = [], ""
            async for piece in stream.aiter_text():
                text += piece
                seen = told(text[: text.rfind("\n\n") + 2])
                if any(name == "session.execute" for name, _, _ in seen):
                    break
        assert {data["client"] for _, data, _ in seen} == {"ann"}
        places = [int(place) for _, _, place in seen]
        assert places == sorted(places)
        last = {"Last-Event-ID": str(places[3])}
        for query in ("", "?since=0"):  # a browser that connects again asks for the same address
            async with o.http.stream("GET", f"/v1/clients/ann/events{query}", headers=last) as stream:
                async for piece in stream.aiter_text():
                    assert int(told(piece)[0][2]) == places[4]
                    break


async def test_cancel_answers_the_turn_under_way(office, held):
    answers = []
    async with office(held=held) as o, anyio.create_task_group() as tasks:

        async def ask():
            answers.append((await o.post("ann", "to person")).json()["answer"])

        assert (await o.http.delete("/v1/clients/ann/turn")).json() == {"cancelled": False}
        tasks.start_soon(ask)
        await held.asked.wait()
        assert (await o.http.delete("/v1/clients/ann/turn")).json() == {"cancelled": True}
    assert answers == [""]


# -- connections that break -------------------------------------------------------------------------------------------


async def hang_up(o, held, query, accept="application/json"):
    """Ask, and break the connection when the turn is under way."""
    async with anyio.create_task_group() as tasks:

        async def ask():
            body = {"text": "to person", "run": "r1"}
            await o.http.post(f"/v1/clients/ann/messages{query}", json=body, headers={"accept": accept})

        tasks.start_soon(ask)
        await held.asked.wait()
        await let_others_run()
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
async def test_a_connection_that_breaks_cancels_nothing(office, held, accept):
    async with office(held=held) as o:
        await hang_up(o, held, "", accept)
        held.let.set()
        assert (await o.post("ann", "to person", run="r1")).json()["answer"].startswith("held")
        assert len(held.heard) == 1


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
async def test_a_connection_that_breaks_cancels_where_it_was_asked_for(office, held, accept):
    async with office(held=held) as o, o.live.bus.subscribe() as events:
        await hang_up(o, held, "?cancel=disconnect", accept)
        with anyio.fail_after(60):
            async for event in events:
                if event.type == "cancel-output":
                    break
        assert (await o.post("ann", "to person", run="r1")).json()["answer"] == ""


async def test_a_slow_reader_of_a_stream_costs_a_bounded_queue(office):
    """A reader that takes nothing: events are lost and counted, and the stream ends by the I/O timeout."""
    async with office(limits=Limits(events=8, io_timeout=0.5)) as o:
        port = int(o.url.rpartition(":")[2])
        with socket.socket() as raw:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            raw.connect(("127.0.0.1", port))
            raw.sendall(b"GET /v1/clients/ann/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            session = await o.live.open("ann")
            reader = await o.reader("ann")
            with anyio.fail_after(60):
                while not reader.inbox.closed:
                    session.publish("ticker", "x" * 100_000)
                    await anyio.sleep(0.001)
                    assert len(reader.inbox._waiting) <= 8
            assert reader.dropped
            await session.close()
        assert (await o.http.get("/health")).status_code == 200


async def test_a_slow_reader_learns_how_many_events_it_lost(office):
    async with office(limits=Limits(events=8)) as o:
        session = await o.live.open("ann")
        async with o.http.stream("GET", "/v1/clients/ann/events") as stream:
            await o.reader("ann")
            for number in range(20):
                session.publish("ticker", number)
            text = ""
            async for piece in stream.aiter_text():
                text += piece
                if '"payload":19' in text and text.endswith("\n\n"):
                    break
        await session.close()
        events = told(text)
        lost = sum(data["count"] for name, data, _ in events if name == "lost")
        assert lost == 12
        shown = [data["input"]["payload"] for name, data, _ in events if name == "ticker.ticker"]
        assert shown == [*range(20 - len(shown), 20)]


# -- limits -----------------------------------------------------------------------------------------------------------


async def test_too_many_requests_are_refused_until_the_bucket_fills(office):
    async with office(limits=Limits(rate=0.01, burst=2)) as o:
        codes = [(await o.post("ann", str(n))).status_code for n in range(3)]
        assert codes == [200, 200, 429]
        refused = await o.post("ann", "more")
        assert refused.json()["error"]["code"] == "rate_limit"
        assert 90 <= int(refused.headers["retry-after"]) <= 100
        assert (await o.post("bob", "hi")).status_code == 200


async def test_too_many_waiting_messages_are_refused(office, held):
    async with office(held=held, limits=Limits(waiting=1)) as o, anyio.create_task_group() as tasks:
        tasks.start_soon(o.post, "ann", "to person")
        await held.asked.wait()
        for headers in ({}, {"accept": "text/event-stream"}):
            refused = await o.http.post("/v1/clients/ann/messages", json={"text": "more"}, headers=headers)
            assert (refused.status_code, refused.json()["error"]["code"]) == (429, "busy")
            assert refused.headers["retry-after"] == "1"
        assert (await o.post("bob", "hi")).status_code == 200
        held.let.set()


async def test_what_the_desk_refuses_is_busy_too(office, held):
    async with office(held=held, most=1) as o, anyio.create_task_group() as tasks:
        tasks.start_soon(o.post, "ann", "to person")
        await held.asked.wait()
        refused = await o.post("ann", "more", run="r2")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert refused.json() == {
            "error": {"code": "busy", "message": "the queue of the client 'ann' is full (limit: 1)"}, "run": "r2"
        }  # fmt: skip
        held.let.set()


async def test_too_many_streams_are_refused(office):
    async with office(limits=Limits(streams=1)) as o:
        async with o.http.stream("GET", "/v1/clients/ann/events"):
            assert (await o.http.get("/v1/clients/ann/events")).status_code == 429
        with anyio.fail_after(60):
            while o.front._turns.limiter._streams:
                await checkpoint()


async def chunks():
    for _ in range(20):
        yield b"x" * 100


async def test_the_head_of_a_stream_is_no_stream(office):
    async with office(limits=Limits(streams=1)) as o:
        for _ in range(3):
            head = await o.http.head("/v1/clients/ann/events", timeout=60)
            assert (head.status_code, head.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")


@pytest.mark.parametrize("content", [b"x" * 2000, chunks])
async def test_a_body_that_is_too_long_is_refused(office, content):
    async with office(limits=Limits(body=1000)) as o:
        body = content() if callable(content) else content
        refused = await o.http.post("/v1/clients/ann/messages", content=body, headers=JSON)
        assert (refused.status_code, refused.json()["error"]) == (
            413, {"code": "too_large", "message": "a message may have at most 1,000 bytes"}
        )  # fmt: skip


@pytest.mark.finding("S-15")
@pytest.mark.parametrize(
    ("body", "where"),
    [
        (b'{"text": "\\ud800"}', "text: it has a lone surrogate"),
        (b'{"text": "hi", "payload": {"a": ["\\udc00 x"]}}', "payload: it has a lone surrogate"),
        (b'{"text": 5}', "$.text"),
        (b'{"text": "hi', "truncated"),
    ],
)
async def test_a_body_that_cannot_be_read_is_refused_with_the_field(office, body, where):
    async with office() as o:
        refused = await o.http.post("/v1/clients/ann/messages", content=body, headers=JSON)
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "decode")
        assert where in refused.json()["error"]["message"]
        assert not (await o.http.get("/v1/clients/ann/messages")).json()["messages"]


async def test_an_answer_that_takes_too_long_is_found_by_its_run(office, held):
    async with office(held=held, limits=Limits(timeout=0.05)) as o:
        late = await o.post("ann", "to person", run="r1")
        assert (late.status_code, late.json()["error"]["code"], late.json()["run"]) == (504, "timed_out", "r1")
        held.let.set()
        with anyio.fail_after(60):
            while (found := await o.post("ann", "to person", run="r1")).status_code == 504:
                pass
        assert found.json()["answer"].startswith("held")


def test_buckets_and_counters_do_not_grow_with_clients():
    from palaver.serve.http.access import ClientLimiter

    async def many():
        limiter = ClientLimiter(Limits(clients=100))
        for number in range(1000):
            limiter.admit(f"client{number}")
            with limiter.pending(f"client{number}"):
                pass
        return len(limiter._buckets), len(limiter._pending)

    assert anyio.run(many) == (100, 0)


@pytest.mark.parametrize("wrong", [{"rate": 0}, {"events": 0}, {"timeout": -1}, {"burst": float("nan")}])
def test_limits_that_nobody_could_live_with(wrong):
    with pytest.raises(SwarmError, match=f"limits: {next(iter(wrong))} must be more than 0"):
        Limits(**wrong)


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "request: Input data was truncated"),
        (b"[]", "request: Expected `object`"),
        (b"{}", "missing required field `text`"),
        (b'{"text": 3}', "Expected `str`, got `int` - at `$.text`"),
        (b'{"text": "a", "txt": 1}', "unknown field `txt`"),
        (b'{"text": "a", "run": "a b"}', "request: run: expected 1 to 128 ASCII letters"),
        (b'{"text": "\\ud800"}', "request: "),
        (b'{"text": "a", "payload": %b%b}' % (b"[" * 100_000, b"]" * 100_000), "request: "),
        (b'{"text": "\xff"}', "request: "),
    ],
)
async def test_a_body_that_is_no_message(office, body, said):
    async with office() as o:
        refused = await o.http.post("/v1/clients/ann/messages", content=body, headers=JSON)
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "decode")
        assert said in refused.json()["error"]["message"]


@pytest.mark.parametrize("client", ["shared", "a%20b", "%C3%A4", "x" * 129, "a%0Ab", "a*", "a%3E"])
async def test_a_client_that_may_not_be_called_so(office, client):
    async with office() as o:
        for refused in (await o.post(client, "hi"), await o.http.get(f"/v1/clients/{client}/messages")):
            assert (refused.status_code, refused.json()["error"]["code"]) == (400, "decode")
            assert refused.json()["error"]["message"].startswith("request: client: ")


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nowhere", 404, "not_found"),
        ("PUT", "/v1/clients/ann/messages", 405, "method"),
        ("GET", "/v1/clients/ann/events?since=x", 400, "decode"),
        ("GET", f"/v1/clients/ann/events?since={'9' * 19}", 400, "decode"),
        ("GET", f"/v1/clients/ann/events?since={'9' * 5000}", 400, "decode"),
        ("POST", "/v1/clients/ann/messages?cancel=maybe", 400, "decode"),
    ],
)
async def test_every_error_has_one_shape(office, method, path, status, code):
    async with office() as o:
        refused = await o.http.request(method, path, content=b'{"text": "hi"}', headers=JSON)
        assert (refused.status_code, refused.json()["error"]["code"]) == (status, code)
        assert set(refused.json()["error"]) == {"code", "message"}


async def test_an_error_of_the_model_is_sent_with_its_code(office):
    agent = SwarmAgent("desk", ScriptedModel([TransportError("gone"), TransportError("gone")], then=lambda _: "hi"))
    async with office(given=[agent]) as o:
        refused = await o.post("ann", "hi", run="r1")
        assert refused.status_code == 502
        assert refused.json() == {"error": {"code": "transport", "message": "gone"}, "run": "r1"}
        assert (await streamed(o.http, "ann", "hi", run="r2"))[-1][:2] == ("error", refused.json() | {"run": "r2"})
        assert (await o.post("ann", "hi")).status_code == 200


async def test_a_foreign_error_is_logged_and_not_sent(office, caplog):
    def broken(prompt):
        raise ZeroDivisionError("a secret")

    async with office(given=[SwarmAgent("desk", ScriptedModel([], then=broken))]) as o:
        refused = await o.post("ann", "hi")
        assert (refused.status_code, refused.json()["error"]["code"]) == (500, "internal")
        assert "secret" not in refused.text
        assert "a secret" in caplog.text


async def test_a_history_that_fails_gives_an_error_of_the_same_shape(caplog):
    async def broken(client):
        raise ZeroDivisionError("a secret")

    async with Swarm("s", [SwarmAgent("a", ScriptedModel([]))]).start() as live, LocalDispatcher(live) as desk:
        transport = httpx.ASGITransport(HttpApp(desk, history=broken))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            refused = await http.get("/v1/clients/ann/messages")
    assert (refused.status_code, refused.json()["error"]["code"]) == (500, "internal")
    assert "secret" not in refused.text
    assert "a secret" in caplog.text


async def test_a_body_that_is_cut_off_is_no_error_of_the_server(office, caplog):
    sent = []

    async def receive():
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/clients/ann/messages",
        "query_string": b"",
        "headers": headers,
    }
    async with office() as o:
        await o.front(scope, receive, send)
    assert sent[0]["status"] == 499
    assert not caplog.records


# -- who may ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shown", [None, "Bearer other", "Basic s3cret", "s3cret", "Bearer"])
async def test_without_the_token_nothing_is_answered(office, shown):
    async with office(token="s3cret") as o:
        headers = {} if shown is None else {"authorization": shown}
        refused = await o.http.get("/v1/clients/ann/messages", headers=headers)
        assert (refused.status_code, refused.json()["error"]["code"]) == (401, "authentication")
        assert refused.headers["www-authenticate"] == "Bearer"
        assert (await o.http.get("/health")).json() == {"status": "ok"}


@pytest.mark.parametrize("token", ["s3cret", "geheim-voilà", "\udcff"])
async def test_with_the_token(office, token):
    shown = f"Bearer {token}".encode(errors="surrogateescape")  # as a shell gives it to curl
    async with office(token=token, headers={b"authorization": shown}) as o:
        assert (await o.post("ann", "hi")).json()["answer"] == "you said hi"


async def test_closing_ends_every_stream(office):
    async with office() as o, o.http.stream("GET", "/v1/clients/ann/events") as stream:
        o.front.close()
        with anyio.fail_after(60):
            assert await stream.aread() == b""


async def test_a_stream_that_is_open_when_the_server_stops_ends_with_its_answer(office, held):
    async with office(held=held) as o, served(o.front) as (url, server):
        server.config.timeout_graceful_shutdown = 60
        events = []
        async with (
            httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as http,
            anyio.create_task_group() as tasks,
        ):

            async def ask():
                events.extend(await streamed(http, "ann", "to person"))

            tasks.start_soon(ask)
            await held.asked.wait()
            server.handle_exit(signal.SIGTERM, None)
            with anyio.fail_after(60):
                while server.servers[0].is_serving():
                    await checkpoint()
            held.let.set()
        assert events[-1][0] == "answer"
        assert events[-1][1]["answer"].startswith("held")


async def test_a_server_that_stopped_ends_no_stream_of_another(office):
    async with office() as o:
        async with served(o.front) as (_, other):
            other.handle_exit(signal.SIGTERM, None)
        assert (await streamed(o.http, "ann", "one"))[-1][0] == "answer"


async def test_no_stream_begins_while_the_server_stops(office):
    async with office() as o:
        o.front.close()
        body, headers = {"text": "hi"}, {"accept": "text/event-stream"}
        for refused in (
            await o.http.get("/v1/clients/ann/events", timeout=60),
            await o.http.post("/v1/clients/ann/messages", json=body, headers=headers),
        ):
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "closed")
        assert (await o.post("ann", "hi")).status_code == 200


class Ahead(Dispatcher):
    """A desk whose answers come before the events of their turns, as over a network."""

    def __init__(self, bus):
        self._bus = bus

    @property
    def bus(self):
        return self._bus

    async def __aenter__(self):
        self._tasks = await anyio.create_task_group().__aenter__()
        return self

    async def __aexit__(self, *error):
        await self._tasks.__aexit__(*error)

    async def ask(self, client, text, *, payload=None, run=None, timeout=None):  # noqa: ASYNC109
        self._tasks.start_soon(self._tell, client, run)
        return f"heard {text}"

    async def cancel(self, client):
        return False

    async def pending(self, client):
        return PendingTurn()

    async def decide(self, client, decisions, *, run=None, timeout=None):  # noqa: ASYNC109
        return ""

    async def _tell(self, client, run):
        for source, kind, output in (
            ("swarm", "get-agent-name", {"activeAgent": "far"}),
            ("swarm", "wait-for-output", {}),
            ("execution", "commit-execution-end", {}),
        ):
            await anyio.wait_all_tasks_blocked()
            self._bus.publish(Event(source=source, type=kind, client=client, run=run, output=output))


async def test_events_that_come_after_the_answer_are_waited_for():
    async with LocalBus() as bus, Ahead(bus) as desk:
        transport = httpx.ASGITransport(HttpApp(desk))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            answer = await http.post("/v1/clients/ann/messages", json={"text": "hi", "run": "r1"})
            assert answer.json() == {"run": "r1", "answer": "heard hi", "agent": "far"}
            names = [name for name, _, _ in await streamed(http, "ann", "hi", run="r2")]
            assert names[-2:] == ["execution.commit-execution-end", "answer"]


def test_the_front_answers_on_trio_too():
    """Nothing in it is asyncio's: asked through ASGI, without a server."""

    async def ask():
        agent = SwarmAgent("desk", ScriptedModel([], then=lambda _: "hello"))
        async with Swarm("office", [agent]).start() as live, LocalDispatcher(live) as desk:
            app = HttpApp(desk, history=live_history(live))
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http:
                answer = await http.post("/v1/clients/ann/messages", json={"text": "hi"})
                said = await http.get("/v1/clients/ann/messages")
                return answer.json()["answer"], len(said.json()["messages"])

    assert anyio.run(ask, backend="trio") == ("hello", 2)


@pytest.mark.parametrize("client", ["a%2Fb", "a%25b", "a%20b"])
async def test_a_name_that_no_client_may_have_is_named_in_the_error(office, client):
    async with office() as o:
        for answer in (
            await o.http.get(f"/v1/clients/{client}/messages"),
            await o.http.post(f"/v1/clients/{client}/messages", json={"text": "hi"}),
        ):
            assert answer.status_code == 400
            assert "expected 1 to 128 ASCII letters, digits" in answer.text
        assert (await o.http.get("/v1/clients/ann/nothing")).status_code == 404
