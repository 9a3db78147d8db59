"""A model is asked directly: a text in, a response out, with and without ``await``."""

import asyncio
import inspect
import os
import signal
import subprocess
import sys
import threading
import warnings

import pytest
from anyio import to_thread

from palaver import (
    Image,
    LossError,
    LossWarning,
    MessageError,
    Reasoning,
    Refusal,
    Request,
    Response,
    Settings,
    StreamError,
    Text,
    assistant,
    user,
)
from palaver.core.events import Finish, TextDelta
from palaver.models import Broken, Fallback, FunctionModel, ScriptedModel
from tests.loopback import serve
from tests.models.asking import at

pytestmark = pytest.mark.anyio


async def test_a_text_is_answered_with_a_response():
    scripted = ScriptedModel(["Hello."])
    response = await scripted.ask("Hi")
    assert isinstance(response, Response)
    assert response.text == "Hello."
    assert [message.text for message in scripted.asked[0].messages] == ["Hi"]


@pytest.mark.parametrize(
    ("prompt", "sent"),
    [
        ("Hi", [user("Hi", mode="user")]),
        (["Look:", Image.from_url("https://example.com/a.png")], None),
        (user("Hi"), [user("Hi")]),
        ([user("Hi"), assistant("Yes?"), user("Go")], [user("Hi"), assistant("Yes?"), user("Go")]),
        (Request((user("Hi"),), settings=Settings(max_tokens=3)), [user("Hi")]),
    ],
)
async def test_a_prompt_is_text_parts_messages_or_a_request(prompt, sent):
    scripted = ScriptedModel(["ok"])
    await scripted.ask(prompt)
    asked = scripted.asked[0]
    assert sent is None or list(asked.messages) == sent
    assert sent is not None or len(asked.messages[0].content) == 2
    assert asked.settings.max_tokens == (3 if isinstance(prompt, Request) else None)


async def test_instructions_and_settings_reach_the_model():
    scripted = ScriptedModel(["ok"])
    request = Request((user("Hi"),), settings=Settings(max_tokens=3, temperature=0))
    await scripted.ask(request, instructions="Be brief.", settings=Settings(max_tokens=9))
    asked = scripted.asked[0]
    assert [each.text for each in asked.system] == ["Be brief."]
    assert (asked.settings.max_tokens, asked.settings.temperature) == (9, 0)


@pytest.mark.parametrize("prompt", [3, None, b"x", [b"x"], [user("a"), "b"], {"role": "user"}])
async def test_a_prompt_of_another_type_is_refused(prompt):
    with pytest.raises(MessageError, match=r"^(prompt|a prompt)"):
        await ScriptedModel(["x"]).ask(prompt)


@pytest.mark.parametrize(("name", "given"), [("instructions", 5), ("settings", {}), ("tools", "x"), ("losses", "rais")])
async def test_an_argument_of_another_type_is_refused(name, given):
    with pytest.raises(MessageError, match=name):
        await ScriptedModel(["x"]).ask("Hi", **{name: given})
    with pytest.raises(MessageError, match=name):
        ScriptedModel(["x"]).stream("Hi", **{name: given})


async def test_a_stream_gives_events_and_then_the_response():
    stream = ScriptedModel(["Hello there."]).stream("Hi")
    with pytest.raises(MessageError, match="incomplete"):
        _ = stream.response
    events = [event async for event in stream]
    assert any(isinstance(event, TextDelta) for event in events)
    assert isinstance(events[-1], Finish)
    assert stream.response.text == "Hello there."
    assert [event async for event in stream] == []


async def test_a_stream_in_a_block_may_be_left_early_and_finished():
    async with ScriptedModel(["Hello."]).stream("Hi") as stream:
        await anext(stream)
        assert (await stream.finish()).text == "Hello."
    async with ScriptedModel(["Hello."]).stream("Hi") as stream:
        await anext(stream)
    assert [event async for event in stream] == []


async def test_the_text_stream_leaves_reasoning_out():
    answer = assistant(Reasoning("hm"), Text("One "), Text("two"), Refusal("no"))
    assert "".join([text async for text in ScriptedModel([answer]).stream("Hi").text_stream]) == "One two"


async def test_a_broken_stream_raises_what_broke_it():
    stream = ScriptedModel([Broken(assistant("Half"))]).stream("Hi")
    with pytest.raises(StreamError):
        async for _ in stream:
            pass


@pytest.mark.parametrize(
    "made",
    [
        lambda: ScriptedModel(["yes"]),
        lambda: FunctionModel(lambda _: "yes"),
        lambda: Fallback([ScriptedModel(["yes"])]),
    ],
)
async def test_every_model_can_be_asked(made):
    assert (await made().ask("Hi")).text == "yes"
    assert await to_thread.run_sync(lambda: made().sync.ask("Hi").text) == "yes"


def test_a_fallback_takes_names():
    assert Fallback(["openai/gpt-5", "anthropic/claude-opus-4-8"]).name == "openai/gpt-5 > anthropic/claude-opus-4-8"


# -- losses ----------------------------------------------------------------------------------------


UNSENDABLE = [user("Hi", Image.from_url("https://example.com/a.png"))]


ANSWER = b'{"message": {"role": "assistant", "content": "ok"}, "done": true, "done_reason": "stop"}'


@pytest.fixture
def server():
    with serve(ANSWER, ANSWER, ANSWER, content_type="application/json") as serving:
        yield serving


async def test_a_loss_is_a_warning(server):
    with pytest.warns(LossWarning, match=r"messages\[0\].content\[1\]: image dropped"):
        response = await at(server.url, wire="ollama_chat").ask(UNSENDABLE)
    assert response.text == "ok"


def test_a_warning_names_the_line_of_the_caller(server):
    asked = at(server.url, wire="ollama_chat").sync
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        asked.ask(UNSENDABLE)
        with asked.stream(UNSENDABLE) as stream:
            list(stream)
        list(asked.stream(UNSENDABLE).text_stream)
    assert {each.filename for each in caught} == {__file__}
    assert len({each.lineno for each in caught}) == len(caught) == 3


async def test_a_warning_of_a_stream_names_the_line_of_the_caller(server):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        async for _ in at(server.url, wire="ollama_chat").stream(UNSENDABLE).text_stream:
            pass
    assert [each.filename for each in caught] == [__file__]


async def test_a_loss_is_an_error_before_anything_is_sent(server):
    asked = at(server.url, wire="ollama_chat")
    with pytest.raises(LossError, match="image dropped"):
        await asked.ask(UNSENDABLE, losses="raise")
    assert not server.requests
    await asked.ask(UNSENDABLE, losses="ignore")
    assert len(server.requests) == 1


async def test_an_approximation_is_no_warning():
    body = (
        b'{"id": "m", "type": "message", "role": "assistant", "model": "c", "content": [], "stop_reason": "end_turn"}'
    )
    with serve(body, content_type="application/json") as server:
        await at(server.url, wire="anthropic_messages").ask("Hi", losses="raise")
        assert b'"max_tokens"' in server.requests[0][1]


# -- without await ---------------------------------------------------------------------------------


def test_sync_asks_and_streams():
    scripted = ScriptedModel(["one", "two", "three"])
    assert scripted.sync.ask("Hi").text == "one"
    with scripted.sync.stream("Hi") as stream:
        assert [event.text for event in stream if isinstance(event, TextDelta)] == ["two"]
        assert stream.response.text == "two"
    assert list(scripted.sync.stream("Hi").text_stream) == ["three"]
    assert scripted.sync.name == "scripted/model"


def test_sync_methods_have_the_parameters_of_the_async_ones():
    scripted = ScriptedModel([])
    for name in ("ask", "stream"):
        ours, theirs = inspect.signature(getattr(scripted.sync, name)), inspect.signature(getattr(scripted, name))
        assert list(ours.parameters) == list(theirs.parameters)
        assert getattr(scripted.sync, name).__doc__ == getattr(scripted, name).__doc__


def test_sync_works_where_an_event_loop_runs():
    async def cell():
        return ScriptedModel(["yes"]).sync.ask("Hi").text

    assert asyncio.run(cell()) == "yes"


def test_sync_inside_the_background_loop_is_refused():
    inner = ScriptedModel(["inner"])

    async def asks(_):
        return inner.sync.ask("Hi")

    with pytest.raises(MessageError, match="await the async method"):
        FunctionModel(asks).sync.ask("Hi")


def test_sync_raises_what_was_raised_and_goes_on():
    with pytest.raises(ZeroDivisionError):
        ScriptedModel([ZeroDivisionError()]).sync.ask("Hi")
    with pytest.raises(StreamError), ScriptedModel([Broken(assistant("Half"))]).sync.stream("Hi") as stream:
        list(stream)
    assert ScriptedModel(["still"]).sync.ask("Hi").text == "still"


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_an_exit_reaches_the_caller_and_the_loop_survives(kind):
    def leaves(_):
        raise kind

    with pytest.raises(kind):
        FunctionModel(leaves).sync.ask("Hi")
    assert ScriptedModel(["still"]).sync.ask("Hi").text == "still"


def test_an_error_of_the_block_is_raised_as_it_is():
    with pytest.raises(ZeroDivisionError), ScriptedModel(["Hi"]).sync.stream("Hi"):
        raise ZeroDivisionError


def test_threads_share_the_background_loop():
    scripted, answers = ScriptedModel([str(n) for n in range(8)]), []
    threads = [threading.Thread(target=lambda: answers.append(scripted.sync.ask("Hi").text)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [str(n) for n in range(8)]


INTERRUPTED = """
import anyio, sys
from palaver.models import FunctionModel

async def waits(_):
    print("waiting", flush=True)
    try:
        await anyio.sleep(3600)
    finally:
        print("cleaned up", flush=True)

try:
    FunctionModel(waits).sync.ask("Hi")
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_an_interruption_cancels_the_call_and_waits_for_it():
    process = subprocess.Popen([sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate()[0] == "cleaned up\ninterrupted\n"
    assert process.returncode == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_starts_a_loop_of_its_own():
    code = """
import os
from palaver.models import ScriptedModel
print(ScriptedModel(["parent"]).sync.ask("Hi").text, flush=True)
child = os.fork()
if not child:
    print(ScriptedModel(["child"]).sync.ask("Hi").text, flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "parent\nchild\n"
    assert run.stderr == ""
