"""Real programs through the gateway, each against a scripted model of each wire, offline.

The output of the program is checked, and what the model's server was sent: that it follows the rules of its wire, and
holds the prompt and the results of the calls. ``make test-clients`` installs the programs.
"""

import dataclasses
import os
import shutil
import signal
import time
from base64 import b64encode
from queue import Queue

import pytest

from palaver import Response, Usage, assistant, tool_call, wires
from palaver.core import canonical
from palaver.core.events import Failed, PartStart, Start, TextDelta
from palaver.core.messages import ToolMessage
from palaver.core.parts import Reasoning, Text
from palaver.gateway import GatewayConfig
from tests.gateway.clients.programs import PACKAGES, PNG, PROGRAMS, run, started
from tests.gateway.clients.script import COUNTED, DONE, PROMPT, SMALL, Script, answered, is_count
from tests.gateway.log.logs import Places
from tests.gateway.running import PROVIDERS, running, targets
from tests.gateway.test_wires import STREAM_TYPES

if shutil.which("node") is None or not (PACKAGES / ".bin").is_dir():
    pytest.skip("needs node, and the programs that make test-clients installs", allow_module_level=True)

THOUGHT = "Look at the water first."
PROOF = "cHJvb2Y="
LONG = " ".join(f"wave{number}" for number in range(3000))


@pytest.fixture
def asked(gateway, provider, tmp_path):
    def asked_(name, script, *, image=None):
        provider.respond = script
        ran = run(PROGRAMS[name], gateway, script.wire.name, PROMPT, tmp_path, image=image)
        script.check()
        assert script.text[-200:] in ran.stdout, (ran.returncode, ran.stdout[-2000:], ran.stderr[-2000:])
        return ran

    return asked_


@pytest.mark.parametrize("wire", PROVIDERS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_plain_answer(asked, name, wire):
    asked(name, Script(wire))


@pytest.mark.parametrize("wire", PROVIDERS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_two_calls_at_once_and_their_results(asked, name, wire):
    program = PROGRAMS[name]
    words = ("north-pier", "south-pier")
    calls = [tool_call(program.tool, program.arguments(f"echo {each}"), id=f"call0000{each[0]}") for each in words]
    script = Script(wire, calls)
    asked(name, script)
    told = next(each for each, _ in script.requests if any(isinstance(one, ToolMessage) for one in each.messages))
    results = {each.tool_call_id: canonical.encode(each) for each in told.messages if isinstance(each, ToolMessage)}
    assert len(results) == len(words)
    assert all(any(word.encode() in each for each in results.values()) for word in words)


@pytest.mark.parametrize("wire", PROVIDERS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_server_that_is_busy_once_is_asked_again(asked, name, wire):
    busy = (429, {"content-type": "application/json", "retry-after": "0"}, b'{"error": {"message": "slow down"}}')
    script = Script(wire, failures=[busy])
    asked(name, script)
    assert len(script.requests) > 1


def calls_of(program):
    return [tool_call(program.tool, program.arguments("echo north-pier"), id="call00001")]


@pytest.mark.row("GW-12", "GW-13")
@pytest.mark.parametrize("wire", PROVIDERS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_reasoning_before_a_call_goes_back_to_its_model(asked, name, wire):
    """The proof of the reasoning goes back with the result, whatever the program carries."""
    thought = Reasoning(THOUGHT, signature=PROOF if wire in _SIGNED else None, wire=wire)
    if wire == "openai_responses":
        thought = Reasoning(THOUGHT, encrypted=PROOF, wire=wire)
    script = Script(wire, calls_of(PROGRAMS[name]), thought=thought)
    asked(name, script)
    told = next(body for each, body in script.requests if any(isinstance(one, ToolMessage) for one in each.messages))
    if wire != OWN_WIRES.get(name) and (wire in _SIGNED or wire == "openai_responses"):
        assert PROOF.encode() in told


OWN_WIRES = {"claude-code": "anthropic_messages", "codex": "openai_responses", "gemini-cli": "google_generate"}
"""The wires that go through as they are: what the program leaves out is its own choice."""
_SIGNED = {"anthropic_messages", "google_generate", "bedrock_converse"}


@pytest.mark.parametrize("wire", PROVIDERS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_long_stream(asked, name, wire):
    asked(name, Script(wire, text=LONG))


@pytest.mark.parametrize("wire", PROVIDERS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_an_image(asked, name, wire):
    script = Script(wire)
    asked(name, script, image=PNG)
    assert any(b64encode(PNG[:30]).rstrip(b"=")[:36] in body for _, body in script.requests)


@pytest.mark.parametrize("wire", PROVIDERS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_stream_that_fails_in_its_middle_is_asked_again_or_told(gateway, provider, tmp_path, name, wire):
    """The program ends: it has asked again and shows the answer, or says that something failed."""
    script = Script(wire)
    encoder = script.wire.stream_encoder()
    events = [Start(Response(assistant(model="model-1"))), PartStart(0, Text("")), TextDelta(0, "The harbour ")]
    begun = b"".join(map(encoder.feed, events)) + encoder.feed(Failed("provider", "the model is overloaded"))
    broken = (200, {"content-type": STREAM_TYPES[wire]}, begun + encoder.finish())
    script.failures = [broken]
    provider.respond = script
    ran = run(PROGRAMS[name], gateway, wire, PROMPT, tmp_path)
    script.check()
    assert DONE in ran.stdout or ran.returncode or "overloaded" in ran.stdout + ran.stderr, (ran.stdout, ran.stderr)


@pytest.mark.parametrize("wire", PROVIDERS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_turn_that_is_cancelled_cancels_the_model(gateway, provider, tmp_path, name, wire):
    encoder = wires.get(wire).stream_encoder()
    events = [Start(Response(assistant(model="model-1"))), PartStart(0, Text("")), TextDelta(0, "The harbour ")]
    provider.headers, provider.pieces = {"content-type": STREAM_TYPES[wire]}, Queue()
    provider.pieces.put(b"".join(map(encoder.feed, events)))
    with started(PROGRAMS[name], gateway, wire, PROMPT, tmp_path) as process:
        until = time.monotonic() + 60
        while not provider.asked and process.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        assert provider.asked, "the model was not asked"
        os.killpg(process.pid, signal.SIGTERM)
        assert provider.gone.wait(60)


class ManyTurns(Script):
    """Calls a tool once a turn, then answers."""

    usage = SMALL

    def __init__(self, wire, program, turns):
        super().__init__(wire)
        self.program, self.turns = program, turns

    def __call__(self, body):
        if is_count(self.wire.name, body):
            return 200, {"content-type": "application/json"}, COUNTED
        request = self.wire.decode_request(body)
        self.requests.append((request, body))
        done = sum(isinstance(each, ToolMessage) for each in request.messages)
        answer = answered(Text(DONE))
        if done < self.turns and self.program.tool in {getattr(each, "name", None) for each in request.tools}:
            call = tool_call(self.program.tool, self.program.arguments(f"echo pier {done}"), id=f"call0000{done}")
            answer = answered(Text(f"Turn {done}."), calls=[call], finish="tool_calls", usage=self.usage)
        message = answer.message.replace(response_id=f"msg_{len(self.requests)}")
        return self.written(answer.replace(message=message), request, body)


class Compacted(ManyTurns):
    """Fills the window turn by turn, until it is asked for a summary; ``asks`` are words of the program that do so."""

    usage = Usage(input=90_000, output=20)

    def __init__(self, wire, program, asks):
        super().__init__(wire, program, 3)
        self.asks, self.grown, self.asked, self.continued = asks, [], [], []

    def __call__(self, body):
        if is_count(self.wire.name, body):
            return 200, {"content-type": "application/json"}, COUNTED
        request = self.wire.decode_request(body)
        if self.asks in request.messages[-1].text:
            self.requests.append((request, body))
            self.asked.append(request)
            return self.written(answered(Text(SUMMARY), usage=self.usage), request, body)
        if SUMMARY.encode() in body:
            self.requests.append((request, body))
            self.continued.append(request)
            return self.written(answered(Text(DONE)), request, body)
        if not self.asked and request.tools:
            self.grown.append(request)
        return super().__call__(body)


SUMMARY = "The boats lie at the north pier."
SUMMARY_PROMPTS = {
    "claude-code": "Respond with TEXT ONLY",
    "codex": "CONTEXT CHECKPOINT COMPACTION",
    "gemini-cli": "<state_snapshot>",
    "qwen-code": "<state_snapshot>",
    "opencode": "Here is the conversation so far",
}
"""What each program says when it compacts. Each does so by itself when the model's usage says that the window is full.

Gemini CLI does so only between two prompts, and asks a model of Google by its name: the gateway needs a pattern.
"""


@pytest.mark.parametrize("wire", PROVIDERS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_conversation_that_is_compacted_goes_on(provider, tmp_path, name, wire):
    program = PROGRAMS[name]
    script = provider.respond = Compacted(wire, program, SUMMARY_PROMPTS[name])
    script.streams = lambda request: request.settings.stream or "stream" in provider.asked[-1][0]
    models = targets(provider.url)
    with running(GatewayConfig(models={**models, "gemini-*": models[wire]})) as url:
        ran = run(program, url, wire, PROMPT, tmp_path, compact=True)
        if name == "gemini-cli":
            again = dataclasses.replace(program, start=lambda *given: resumed(*program.start(*given)))
            ran = run(again, url, wire, "And the pier?", tmp_path, compact=True)
    if wire != OWN_WIRES.get(name):
        script.check()
    assert script.asked, "the program did not compact"
    before = texts_of(script.grown[-1].messages) | texts_of(script.asked[0].messages[:-1])
    after = texts_of(script.continued[0].messages)
    assert any(SUMMARY in each for each in after)
    assert before - after, "everything is still there"
    assert DONE in ran.stdout, (ran.returncode, ran.stdout[-2000:], ran.stderr[-2000:])


def resumed(arguments, variables):
    return ["--resume", "latest", *arguments], variables


def texts_of(messages):
    """Return what was said in a conversation, without instructions."""
    return {each.text for each in messages if each.role not in {"system", "developer"}}


@pytest.mark.row("GW-33")
@pytest.mark.parametrize("wire", PROVIDERS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_turns_of_a_program_are_one_thread_in_the_log(provider, tmp_path, name, wire):
    places = Places(tmp_path / "log")
    places.folder.mkdir()
    provider.respond = ManyTurns(wire, PROGRAMS[name], 4)
    home = tmp_path / "home"
    home.mkdir()
    with running(places.config(targets(provider.url))) as url:
        ran = run(PROGRAMS[name], url, wire, PROMPT, home)
    assert DONE in ran.stdout, ran.stderr[-2000:]
    with places.exchanges() as found:
        logged = [found.read(each.id) for each in reversed(found.recent(50))]
    with places.opened_store() as store:
        (thread,) = [each for each in store.threads() if each.length > 8]
        assert set(thread.branches) == {"main"}
        assert [each.message.text for each in store.path(thread.id)][-1] == DONE
    sizes = [len(each.bodies.request) for each in logged if each.summary.thread == thread.id]
    assert len(sizes) == 5
