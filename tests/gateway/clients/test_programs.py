"""Real programs through the gateway, each against a scripted model of each wire, offline.

The output of the program is checked, and what the model's server was sent: that it follows the rules of its wire, and
holds the prompt and the results of the calls. ``make test-clients`` installs the programs.
"""

import shutil

import pytest

from palaver import Response, Usage, assistant, tool_call, wires
from palaver.core import canonical
from palaver.core.messages import ToolMessage
from palaver.core.parts import Text
from palaver.stream.replay_events import replay_events
from palaver.testing import rules
from tests.gateway.clients.programs import PACKAGES, PROGRAMS, run
from tests.gateway.log.logs import Places
from tests.gateway.running import PROVIDERS, running, targets
from tests.gateway.test_wires import STREAM_TYPES

if shutil.which("node") is None or not (PACKAGES / ".bin").is_dir():
    pytest.skip("needs node, and the programs that make test-clients installs", allow_module_level=True)

PROMPT = "Is the harbour calm?"
DONE = "The harbour is calm."


def answered(*content, calls=(), finish="stop"):
    usage = Usage(input=1000, output=20)
    return Response(assistant(*content, *calls, model="model-1", usage=usage, finish_reason=finish))


class Script:
    """Answers as a model would: calls first, if there are any, and text when their results came."""

    def __init__(self, wire, first=(), failures=()):
        self.wire, self.first, self.failures, self.requests = wires.get(wire), first, list(failures), []

    def __call__(self, body):
        request = self.wire.decode_request(body)
        self.requests.append((request, body))
        if self.failures:
            return self.failures.pop(0)
        results = [each for each in request.messages if isinstance(each, ToolMessage)]
        offered = {getattr(each, "name", None) for each in request.tools}
        calls = [each for each in self.first if each.name in offered]
        answer = answered(calls=calls, finish="tool_calls") if calls and not results else answered(Text(DONE))
        return self.written(answer, request, body)

    def written(self, answer, request, body):
        stream = request.settings.stream is not False and (
            request.settings.stream or self.wire.name in {"google_generate", "bedrock_converse"}
        )
        if not stream:
            return 200, {"content-type": "application/json"}, self.wire.encode_response(answer).body
        encoder = self.wire.stream_encoder()
        data = b"".join([encoder.feed(each) for each in replay_events(answer)]) + encoder.finish()
        return 200, {"content-type": STREAM_TYPES[self.wire.name]}, data

    def check(self):
        for _, body in self.requests:
            assert rules.check_request(self.wire.name, body) == []
        assert any(PROMPT.encode() in body for _, body in self.requests)


@pytest.fixture
def asked(gateway, provider, tmp_path):
    def asked_(name, script):
        provider.respond = script
        ran = run(PROGRAMS[name], gateway, script.wire.name, PROMPT, tmp_path)
        script.check()
        assert DONE in ran.stdout, (ran.returncode, ran.stdout[-2000:], ran.stderr[-2000:])
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


@pytest.mark.parametrize("wire", ["openai_chat", "anthropic_messages", "google_generate"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_server_that_is_busy_once_is_asked_again(asked, name, wire):
    busy = (429, {"content-type": "application/json", "retry-after": "0"}, b'{"error": {"message": "slow down"}}')
    script = Script(wire, failures=[busy])
    asked(name, script)
    assert len(script.requests) > 1


class ManyTurns(Script):
    """Calls a tool once a turn, then answers."""

    def __init__(self, wire, program, turns):
        super().__init__(wire)
        self.program, self.turns = program, turns

    def __call__(self, body):
        request = self.wire.decode_request(body)
        self.requests.append((request, body))
        done = sum(isinstance(each, ToolMessage) for each in request.messages)
        answer = answered(Text(DONE))
        if done < self.turns and self.program.tool in {getattr(each, "name", None) for each in request.tools}:
            call = tool_call(self.program.tool, self.program.arguments(f"echo pier {done}"), id=f"call0000{done}")
            answer = answered(Text(f"Turn {done}."), calls=[call], finish="tool_calls")
        message = answer.message.replace(response_id=f"msg_{len(self.requests)}")
        return self.written(answer.replace(message=message), request, body)


@pytest.mark.row("GW-33")
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_turns_of_a_program_are_one_thread_in_the_log(provider, tmp_path, name):
    places = Places(tmp_path / "log")
    places.folder.mkdir()
    provider.respond = ManyTurns("anthropic_messages", PROGRAMS[name], 4)
    home = tmp_path / "home"
    home.mkdir()
    with running(places.config(targets(provider.url))) as url:
        ran = run(PROGRAMS[name], url, "anthropic_messages", PROMPT, home)
    assert DONE in ran.stdout, ran.stderr[-2000:]
    with places.exchanges() as found:
        logged = [found.read(each.id) for each in reversed(found.recent(50))]
    with places.opened_store() as store:
        (thread,) = [each for each in store.threads() if each.length > 8]
        assert set(thread.branches) == {"main"}
        assert [each.message.text for each in store.path(thread.id)][-1] == DONE
    sizes = [len(each.bodies.request) for each in logged if each.summary.thread == thread.id]
    assert len(sizes) == 5
