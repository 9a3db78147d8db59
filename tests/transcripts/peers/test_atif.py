"""Harbor's own models take what we write, and forbid what they do not know."""

from __future__ import annotations

import json

import pytest

from palaver import transcripts
from palaver.core import factories
from palaver.core.messages import ToolMessage
from palaver.core.parts import Text
from palaver.core.usage import Usage
from tests.transcripts.samples import FILES, IDS, origin
from tests.transcripts.test_atif import ATIF, everything, read, transcript_of

harbor = pytest.importorskip("harbor.models.trajectories", reason="harbor is not installed")
validator = pytest.importorskip("harbor.utils.trajectory_validator", reason="harbor is not installed")


def accepted(written, tmp_path, *, new=True):
    """Harbor's validator reads the file, with what lies beside it."""
    for name, data in written.beside.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    path = tmp_path / "trajectory.json"
    path.write_bytes(written.body)
    judge = validator.TrajectoryValidator()
    judge.validate(path)
    elsewhere = "referenced image file does not exist"  # a path that a conversation from elsewhere names
    assert [each for each in judge.get_errors() if elsewhere not in each or any(map(each.count, written.beside))] == []
    return harbor.Trajectory.model_validate_json(written.body) if new else None


@pytest.mark.parametrize(("name", "path"), FILES, ids=IDS)
def test_every_conversation_of_every_format_is_accepted(name, path, tmp_path):
    if name == "atif":
        pytest.skip("not from elsewhere")
    for transcript in transcripts.get(name).read(path.read_bytes(), origin(path)):
        for carry in (True, False):
            accepted(ATIF.write(transcript, carry=carry), tmp_path)


@pytest.mark.parametrize("carry", [True, False])
def test_every_kind_of_part_is_accepted(carry, tmp_path):
    made = accepted(ATIF.write(transcript_of(everything()), carry=carry), tmp_path)
    assert made.final_metrics.total_prompt_tokens == 16
    assert made.has_multimodal_content()


def test_an_empty_conversation_is_accepted(tmp_path):
    accepted(ATIF.write(transcript_of([])), tmp_path)


def test_a_file_that_was_added_to_and_edited_is_accepted(tmp_path):
    whole, helper = read()
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "north.png").write_bytes(b"")
    whole.thread.append(ToolMessage(content=(Text("late"),), tool_call_id="call_b"))
    whole.thread.append(factories.assistant("More").replace(usage=Usage(input=1, output=2)))
    written = ATIF.write_many([whole, helper])
    accepted(written, tmp_path, new=False)  # half a character of the file's own stays in it
    made = harbor.Trajectory.model_validate(json.loads(written.body))
    assert made.final_metrics.total_steps == len(made.steps) == 6
    assert [each.trajectory_id for each in made.subagent_trajectories] == ["helper-1"]


def test_what_harbor_writes_is_read_and_written_back():
    step = harbor.Step(step_id=1, source="user", message="hi")
    answer = harbor.Step(
        step_id=2,
        source="agent",
        message="ho",
        tool_calls=[harbor.ToolCall(tool_call_id="a", function_name="f", arguments={"x": 1})],
        observation=harbor.Observation(results=[harbor.ObservationResult(source_call_id="a", content="y")]),
        metrics=harbor.Metrics(prompt_tokens=9, cached_tokens=4, completion_tokens=1),
    )
    theirs = harbor.Trajectory(agent=harbor.Agent(name="a", version="1"), steps=[step, answer])
    data = json.dumps(theirs.to_json_dict(), indent=2).encode()
    (transcript,) = ATIF.read(data)
    assert [each.message.role for each in transcript.thread.path()][1:-1] == ["user", "assistant", "tool"]
    assert ATIF.write(transcript).body == data
