"""Real programs that resume a session which was another program's, offline, behind a gateway.

`palaver resume` writes it; what the program sends next is checked: the conversation in its order, with the calls and
their results, and the new prompt after it. ``make test-clients`` installs the programs.
"""

import shlex
import shutil
import subprocess
import sys

import pytest

from palaver import assistant, tool, tool_call, transcripts, user
from palaver.cli.session_places import PROGRAMS as PLACES
from palaver.core import canonical, jsontext
from palaver.core.messages import AssistantMessage, ToolMessage, UserMessage
from palaver.transcripts.conversation import transcript_of
from tests.gateway.clients.programs import PACKAGES, PROGRAMS, environment, run
from tests.gateway.clients.script import PROMPT, Script

if shutil.which("node") is None or not (PACKAGES / ".bin").is_dir():
    pytest.skip("needs node, and the programs that make test-clients installs", allow_module_level=True)

WIRES = {
    "claude-code": "anthropic_messages",
    "codex": "openai_responses",
    "gemini-cli": "google_generate",
    "qwen-code": "openai_chat",
    "opencode": "openai_chat",
}
"""What each program speaks itself, so that its model is sent what the program sent."""
CONVERSATION = (
    user("Is the north pier calm?"),
    assistant(
        "I look at both piers.",
        tool_call("Bash", {"command": "look north"}, id="call0000n"),
        tool_call("Bash", {"command": "look south"}, id="call0000s"),
        model="model-9",
        finish_reason="tool_calls",
    ),
    tool("flat water", tool_call_id="call0000n", tool_name="Bash"),
    tool("white crests", tool_call_id="call0000s", tool_name="Bash"),
    assistant("The north pier is calm, the south pier is not.", model="model-9"),
    user("And the lighthouse?"),
    assistant(tool_call("Bash", {"command": "look up"}, id="call0000u"), model="model-9", finish_reason="tool_calls"),
    tool("no light", tool_call_id="call0000u", tool_name="Bash"),
    assistant("The lighthouse is dark.", model="model-9"),
)
WANTED = [
    ("prompt", "Is the north pier calm?"),
    ("answer", "I look at both piers."),
    ("call", {"command": "look north"}),
    ("call", {"command": "look south"}),
    ("result", "flat water"),
    ("result", "white crests"),
    ("answer", "The north pier is calm, the south pier is not."),
    ("prompt", "And the lighthouse?"),
    ("call", {"command": "look up"}),
    ("result", "no light"),
    ("answer", "The lighthouse is dark."),
]
OWN = [each.file_format for each in PLACES]
OTHERS = [
    name
    for name in transcripts.names()
    if name not in OWN and transcripts.get(name).record_reader and transcripts.get(name).record_writer
]


def contents(messages):
    """Yield what stands in messages, in order: texts, calls and results."""
    for message in messages:
        match message:
            case ToolMessage():
                yield "result", canonical.encode(message).decode()
            case AssistantMessage():
                yield from (("answer", part.text) for part in message.content if getattr(part, "text", None))
                yield from (("call", jsontext.value(call.arguments_json)) for call in message.tool_calls)
            case UserMessage():
                yield "prompt", message.text


def in_order(wanted, given):
    """Return the first of ``wanted`` that does not come in ``given`` after those before it; ``None`` without one."""
    left = iter(given)
    for kind, value in wanted:
        if not any(kind == other and (value in found if kind != "call" else value == found) for other, found in left):
            return kind, value
    return None


def resumed(path, name, home):
    """Put a session where a program finds it, and return its id."""
    ran = subprocess.run(
        [sys.executable, "-m", "palaver", "resume", str(path), "--in", name],
        cwd=home,
        env={**environment(home), "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return shlex.split(ran.stdout)[-1]


@pytest.fixture
def asked(gateway, provider, tmp_path):
    """Write a conversation in a format, resume it in a program with a new prompt; return the requests with that."""

    def asked_(conversation, source, name):
        file_format = transcripts.get(source)
        home = tmp_path / "home"
        home.mkdir()
        file = tmp_path / f"session{file_format.extension}"
        file.write_bytes(file_format.write(transcript_of(conversation, title="Piers")).body)
        script = provider.respond = Script(WIRES[name])
        session = resumed(file, name, home)
        ran = run(PROGRAMS[name], gateway, script.wire.name, PROMPT, home, session=session)
        assert script.text in ran.stdout, (ran.returncode, ran.stdout[-2000:], ran.stderr[-2000:])
        script.check()
        return [each for each, body in script.requests if PROMPT.encode() in body]

    return asked_


@pytest.mark.parametrize("source", [*OWN, *(pytest.param(each, marks=pytest.mark.long) for each in OTHERS)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_session_of_another_program_goes_on(asked, name, source):
    requests = asked(CONVERSATION, source, name)
    sent = [list(contents(each.messages)) for each in requests]
    lacking = [in_order([*WANTED, ("prompt", PROMPT)], each) for each in sent]
    assert None in lacking, (lacking, sent)
    whole = requests[lacking.index(None)]
    calls = {call.id for message in whole.messages for call in message.tool_calls}
    assert {each.tool_call_id for each in whole.messages if isinstance(each, ToolMessage)} == calls


@pytest.mark.parametrize("source", ["pi"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_session_that_ended_in_a_call_goes_on(asked, name, source):
    requests = asked(CONVERSATION[:3], source, name)
    wanted = [*WANTED[:5], ("result", "No result: the tool call was not executed."), ("prompt", PROMPT)]
    lacking = [in_order(wanted, list(contents(each.messages))) for each in requests]
    assert None in lacking, (lacking, requests)
