"""A conversation with a model: what is sent, what is written again, what comes back."""

import asyncio
import itertools
import json
import os
import subprocess
import sys
import threading
import time

import anyio
import pytest
from msgspec import structs

from palaver import assistant, system, tool, user, wires
from palaver.core.errors import CapabilityError, MessageError, ProviderError, StreamError
from palaver.core.parts import Image, Reasoning, ToolCall
from palaver.core.request import Settings
from palaver.models import Capabilities, LanguageModel, Prompt, Retry, Timeouts
from palaver.stream.assembler import Assembler
from palaver.threads.thread import ListPrefix
from palaver.wires._engine.encoder import RequestEncoder
from tests.models.asking import HI, Waits, at, told
from tests.models.faults import HELLO, WHOLE, delta, endless, error, says, serve, sse, streams

pytestmark = pytest.mark.anyio


class Key:
    """Credentials that count how often they are asked."""

    def __init__(self):
        self.asked = 0

    async def headers(self, call):
        self.asked += 1
        assert call.headers["content-type"] == "application/json"
        return {"Authorization": f"Bearer sk-secret-{self.asked}"}


async def test_a_stream_and_a_whole_answer_give_equal_events(anyio_backend):
    began = time.monotonic()
    with serve(streams(*HELLO, **{"x-request-id": "req_1"}), says(WHOLE, request_id="req_2")) as server:
        model: LanguageModel = at(server.url)
        events, streamed = await told(model)
        told_whole, whole = await told(model, stream=False)
    for given, reply in ((events, streamed), (told_whole, whole)):
        assembler = Assembler("openai_chat")
        assembler.extend(given)
        assert assembler.finish() == reply.response
        assert reply.response.message.text == "Hello"
        assert (reply.model, reply.wire, reply.attempts, reply.losses) == ("test/m", "openai_chat", 1, ())
        assert 0 < reply.first_token_seconds <= reply.seconds <= time.monotonic() - began
    assert (streamed.request_id, whole.request_id) == ("req_1", "req_2")
    assert [json.loads(asked.body)["stream"] for asked in server.asked] == [True, False]
    assert server.connections == 1


async def test_the_endpoint_says_where_and_what(anyio_backend):
    provider = {
        "stream_url": "URL/v1/{model}:stream",
        "headers": {"X-Version": "7"},
        "names_model": False,
        "stream_field": False,
        "provider": {"openai_chat": {"store": False, "seed": 1}},
        "stream_provider": {"openai_chat": {"stream_options": {"include_usage": True}}},
    }
    with serve(streams(*HELLO), says(WHOLE)) as server:
        provider["stream_url"] = provider["stream_url"].replace("URL", server.url)
        model = at(server.url, provider=provider, credentials=Key(), settings=Settings(temperature=0.5, max_tokens=9))
        prompt = HI.replace(settings=Settings(max_tokens=7), provider={"openai_chat": {"user": "u"}})
        await told(model, prompt)
        await told(model, prompt, stream=False)
    first, second = server.asked
    assert (first.path, second.path) == ("/v1/m:stream", "/v1/m")
    assert first.headers["x-version"] == "7"
    assert first.headers["content-length"] == str(len(first.body))
    assert first.headers["authorization"] == "Bearer sk-secret-1"
    said = json.loads(first.body)
    assert said.pop("stream_options") == {"include_usage": True}
    assert said == json.loads(second.body)
    assert said["temperature"] == 0.5
    assert (said["max_tokens"] if "max_tokens" in said else said["max_completion_tokens"]) == 7
    assert (said["store"], said["user"]) == (False, "u")
    assert "stream" not in said


async def test_credentials_are_asked_for_each_request_and_never_shown(anyio_backend):
    key = Key()
    leak = says(error("Incorrect key sk-secret-2"), 401)
    with serve(says(error("x"), 500), leak) as server, pytest.raises(ProviderError) as caught:
        await told(at(server.url, credentials=key))
    assert key.asked == 2
    assert "sk-secret" not in f"{caught.value} {caught.value.body} {caught.value.message}"


async def test_a_key_that_no_header_can_hold_is_not_shown(anyio_backend):
    class Key:
        def __init__(self, key):
            self.key = key

        async def headers(self, call):
            return {"authorization": f"Bearer {self.key}"}

    with serve(streams(*HELLO)) as server:
        for credentials in (Key("sk-secret\n"), Key("sk-secret–ü")):
            with pytest.raises(MessageError, match="cannot be sent") as caught:
                await told(at(server.url, credentials=credentials))
            assert "secret" not in str(caught.value)
            assert caught.value.__suppress_context__
    assert server.asked == []


async def test_an_address_that_is_none(anyio_backend):
    for url in ("nothing", "ftp://host", "http://host:port"):
        with pytest.raises(MessageError, match="URL"):
            await told(at(url))


# -- growth --


class Counted:
    """Counts the messages that a wire writes."""

    def __init__(self, monkeypatch):
        self.turned = 0
        self.made = 0
        turn, init = RequestEncoder._turn, RequestEncoder.__init__

        def counted(encoder, placed, *, final):
            self.turned += len(placed)
            return turn(encoder, placed, final=final)

        def made(encoder, *args, **more):
            self.made += 1
            init(encoder, *args, **more)

        monkeypatch.setattr(RequestEncoder, "_turn", counted)
        monkeypatch.setattr(RequestEncoder, "__init__", made)


SYSTEM = (system("Be brief."),)


def history(turns):
    for number in range(turns):
        yield user(f"question {number}")
        yield assistant(f"answer {number}")


@pytest.mark.parametrize("windows", [True, False], ids=["windows", "tuples"])
async def test_a_turn_encodes_what_is_new(windows, anyio_backend, monkeypatch):
    counted = Counted(monkeypatch)
    messages = list(history(200))
    with serve(says(WHOLE)) as server:
        session = at(server.url).session()
        for turn in range(6):
            messages.append(user(f"and {turn}?"))
            prompt = Prompt(messages=ListPrefix(messages) if windows else tuple(messages), system=SYSTEM)
            before = counted.turned
            await told(None, prompt, stream=False, session=session)
            if turn:
                assert counted.turned - before <= 4
            messages.append(assistant("Hello"))
    assert counted.made == 1
    bodies = [asked.body for asked in server.asked]
    for turn, (one, next_one) in enumerate(itertools.pairwise(bodies)):
        assert next_one.startswith(one[:-2]), turn
    assert len(json.loads(bodies[-1])["messages"]) == 1 + 400 + 11


async def test_another_head_or_another_past_is_encoded_anew(anyio_backend, monkeypatch):
    counted = Counted(monkeypatch)
    messages = list(history(3))
    first = Prompt(messages=ListPrefix(messages), system=SYSTEM)
    with serve(says(WHOLE)) as server:
        session = at(server.url).session()
        for prompt in [
            first,
            first.replace(messages=ListPrefix([user("another thread"), *messages])),
            first.replace(system=(system("Be long."),)),
            first.replace(settings=Settings(seed=1)),
            first.replace(provider={"openai_chat": {"user": "u"}}),
            first.replace(messages=messages[:2]),
            first.replace(messages=[user("other"), *messages]),
        ]:
            before = counted.made
            await told(None, prompt, stream=False, session=session)
            assert counted.made == before + 1
            body = (
                wires.get("openai_chat")
                .encode_request(prompt.replace(settings=structs.replace(prompt.settings, stream=False)).request("m"))
                .body
            )
            assert json.loads(server.asked[-1].body) == json.loads(body)
        equal = prompt.replace(system=(system("Be brief."),), settings=Settings())
        before = counted.made
        await told(None, equal, stream=False, session=session)
        assert counted.made == before


async def test_a_list_that_the_caller_changes_is_no_continuation(anyio_backend):
    messages = [user("one")]
    with serve(says(WHOLE)) as server:
        session = at(server.url).session()
        await told(None, Prompt(messages=messages), stream=False, session=session)
        messages[0] = user("two")
        await told(None, Prompt(messages=messages), stream=False, session=session)
    assert b"two" in server.asked[1].body
    assert b"one" not in server.asked[1].body


async def test_losses_count_from_the_first_message(anyio_backend):
    image = Image.from_bytes(b"\x89PNG\r\n\x1a\n", "image/png")
    messages = [user("look", image), assistant(Reasoning("hm", wire="anthropic_messages"), "so")]
    prompt = Prompt(messages=messages, system=(*SYSTEM, *SYSTEM))
    with serve(says(WHOLE)) as server:
        model = at(server.url, capabilities=Capabilities(media=frozenset()))
        _, reply = await told(model, prompt, stream=False)
    assert {(loss.message, loss.what) for loss in reply.losses} == {(0, "image"), (1, "reasoning")}


async def test_what_the_model_cannot_do_is_left_out_or_refused(anyio_backend):
    call = assistant(ToolCall("call_1", "f", "{}"))
    prompt = Prompt(messages=[user("go"), call, tool("done", tool_call_id="call_1")], system=SYSTEM)
    can = Capabilities(tools=False)
    with serve(says(WHOLE)) as server:
        _, reply = await told(at(server.url, capabilities=can), prompt, stream=False)
        with pytest.raises(CapabilityError):
            await told(at(server.url, capabilities=can, missing="refuse"), prompt, stream=False)
    assert {(loss.message, loss.what) for loss in reply.losses} == {(1, "tool call"), (2, "tool result")}
    assert len(server.asked) == 1
    assert b"tool_calls" not in server.asked[0].body


async def test_a_retry_sends_the_same_bytes_again(anyio_backend):
    long = Prompt(messages=[user("x" * 30_000), assistant("y" * 30_000)] * 6 + [user("?")])
    with serve(says(error("x"), 500), streams(*HELLO)) as server:
        _, reply = await told(at(server.url), long)
    assert reply.attempts == 2
    assert len(server.asked[0].body) > 360_000
    assert server.asked[0].body == server.asked[1].body
    assert "transfer-encoding" not in server.asked[0].headers


async def test_a_body_that_cannot_be_encoded_leaves_the_session_usable(anyio_backend, monkeypatch):
    messages = [user("one")]
    with serve(says(WHOLE)) as server:
        session = at(server.url).session()
        await told(None, Prompt(messages=ListPrefix(messages)), stream=False, session=session)
        messages.append(assistant("Hello"))
        append = RequestEncoder.append
        monkeypatch.setattr(RequestEncoder, "append", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            await told(None, Prompt(messages=ListPrefix(messages)), stream=False, session=session)
        monkeypatch.setattr(RequestEncoder, "append", append)
        await told(None, Prompt(messages=ListPrefix(messages)), stream=False, session=session)
    assert len(json.loads(server.asked[-1].body)["messages"]) == 2


# -- reading --


async def test_events_come_as_they_arrive(anyio_backend):
    told_three = threading.Event()
    with serve(streams(delta("Hel"), told_three, *HELLO[1:])) as server:
        async with at(server.url).session().ask(HI) as answer:
            assert answer.so_far.message.text == "Hel"
            with anyio.fail_after(60):  # the rest is sent when these were read
                first = [await anext(answer) for _ in range(3)]
            told_three.set()
            assert first[2].text == "Hel"
            reply = await answer.finish()
            rest = [event async for event in answer]
    assert rest[0].text == "lo"
    assert reply.response == answer.so_far


async def test_usage_behind_the_finish_reason_is_kept(anyio_backend):
    counted = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    chunk = {"id": "a1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": []}
    usage = sse({**chunk, "usage": counted})
    with serve(streams(*HELLO[:3], usage, HELLO[3], sse("{oops"), end="stall")) as server:
        _, reply = await told(at(server.url))
    assert reply.response.usage.input == 3


async def test_the_time_that_the_caller_takes_is_not_counted(anyio_backend):
    with serve(streams(delta("Hel"), 0.05, *HELLO[1:])) as server:
        model = at(server.url, timeouts=Timeouts(idle=1.5))
        async with model.session().ask(HI) as answer:
            async for _ in answer:
                await anyio.sleep(0.5)
            assert (await answer.finish()).response.message.text == "Hello"


async def test_an_answer_is_read_inside_its_block(anyio_backend):
    answer = at("http://127.0.0.1:1").session().ask(HI)
    assert answer.so_far is None
    with pytest.raises(MessageError, match="async with"):
        await anext(answer)
    with serve(streams(delta("Hel"), end="stall")) as server:
        async with at(server.url).session().ask(HI) as answer:
            pass
        while answer._events:
            await anext(answer)
        with pytest.raises(MessageError, match="async with"):
            await answer.finish()


async def test_an_error_is_raised_again(anyio_backend):
    with serve(streams(delta("Hel"))) as server:
        async with at(server.url).session().ask(HI) as answer:
            for _ in range(2):
                with pytest.raises(StreamError):
                    await answer.finish()
    assert answer.so_far.message.text == "Hel"


async def test_an_unwrapped_stream(anyio_backend):
    class Reversed:
        def __init__(self):
            self.held = b""

        def feed(self, data):
            self.held += data
            return b""

        def finish(self):
            return self.held[::-1]

    with serve(streams(b"".join(HELLO)[::-1], content_type="application/json")) as server:
        _, reply = await told(at(server.url, provider={"unwrap": Reversed}))
    assert reply.response.message.text == "Hello"


async def test_a_model_that_does_not_stream(anyio_backend):
    with serve(says(WHOLE)) as server:
        _, reply = await told(at(server.url, capabilities=Capabilities(streaming=False)))
    assert reply.response.message.text == "Hello"
    assert json.loads(server.asked[0].body)["stream"] is False


# -- leaving --


@pytest.mark.parametrize("way", ["break", "cancel", "raise", "timeout"])
async def test_leaving_closes_the_connection(way, anyio_backend):
    with serve(endless(delta("Hel"), delta("x"), every=0.005)) as server:

        async def leave(scope):
            async with at(server.url).session().ask(HI) as answer:
                count = 0
                async for _ in answer:
                    count += 1
                    if count < 9:
                        continue
                    if way == "break":
                        break
                    if way == "raise":
                        raise KeyError
                    if way == "cancel":
                        scope.cancel()

        try:
            with anyio.move_on_after(0.5 if way == "timeout" else 60) as scope:
                await leave(scope)
        except KeyError:
            assert way == "raise"
        left = await anyio.to_thread.run_sync(lambda: server.left.wait(60))
    assert left


async def test_being_cancelled_while_waiting_closes_the_connection(anyio_backend):
    with serve(streams(end="stall")) as server:
        async with anyio.create_task_group() as group:
            group.start_soon(told, at(server.url))
            assert await anyio.to_thread.run_sync(lambda: server.arrived.wait(60))
            group.cancel_scope.cancel()
        assert await anyio.to_thread.run_sync(lambda: server.left.wait(60))
    assert len(server.asked) == 1


def test_a_task_that_asyncio_cancels_closes_the_connection():
    async def main():
        task = asyncio.create_task(told(at(server.url)))
        await asyncio.to_thread(server.arrived.wait, 60)
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(server.left.wait, 60)

    with serve(streams(delta("Hel"), end="stall")) as server:
        asyncio.run(main())


async def test_an_endless_answer_is_not_read_ahead(anyio_backend):
    with serve(endless(delta("x" * 1000))) as server:
        async with at(server.url).session().ask(HI) as answer:
            await anext(answer)
            held = -1
            while server.sent != held:  # until all buffers on the way are full
                held = server.sent
                assert held < 20_000_000
                await anyio.sleep(0.1)
        assert await anyio.to_thread.run_sync(lambda: server.left.wait(60))


@pytest.mark.row("KAI-22")
@pytest.mark.row("D24")
async def test_one_budget_for_a_call(anyio_backend):
    waits = Waits()
    with serve(says(error("x"), 500)) as server, pytest.raises(ProviderError):
        await told(at(server.url, waits, retry=Retry(attempts=5, jitter=0.0)))
    assert len(server.asked) == 5
    assert waits == [1, 2, 4, 8]


@pytest.mark.row("KAI-23")
@pytest.mark.row("D33")
async def test_no_body_is_written_anywhere(anyio_backend, tmp_path, monkeypatch):
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.setenv(name, str(tmp_path))
    opened = []

    def watch(event, args):
        if event == "open" and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            opened.append(args[0])

    with serve(says(error("x"), 500), streams(*HELLO)) as server:
        model = at(server.url)
        await told(model)
        watching = True
        sys.addaudithook(lambda event, args: watch(event, args) if watching else None)
        await told(model, HI.replace(messages=[user("x" * 100_000)]))
        watching = False
    assert opened == []
    assert list(tmp_path.iterdir()) == []


def test_httpx_is_not_imported_before_it_is_used():
    code = "import sys, palaver.models; sys.exit('httpx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


async def test_calls_and_results_go_on(anyio_backend):
    """The shape of a loop: a call, its result, an answer."""
    messages = [user("hi")]
    with serve(says(WHOLE)) as server:
        session = at(server.url).session()
        for _ in range(3):
            await told(None, Prompt(messages=ListPrefix(messages)), stream=False, session=session)
            number = len(messages)
            messages += [assistant(ToolCall(f"call_{number}", "f", "{}")), tool(f"call_{number}", "done")]
    for one, next_one in itertools.pairwise(server.asked):
        assert next_one.body.startswith(one.body[:-2])
