"""Every sample against every recogniser: what a file is claimed to be has to be proved."""

from __future__ import annotations

import json
from typing import Any

import pytest

from palaver import transcripts
from palaver.wires.detect import detect
from tests.transcripts.samples import FILES, IDS

pytestmark = pytest.mark.finding("F-72")


SAMPLES = [pytest.param(name, path, id=each) for (name, path), each in zip(FILES, IDS, strict=True)]


@pytest.mark.parametrize(("name", "path"), SAMPLES)
def test_no_other_recogniser_claims_a_sample(name, path):
    data = path.read_bytes()
    claims = {each.file_format: each.confidence for each in transcripts.detect(data, path.name)}
    assert set(claims) <= {name}
    for other in transcripts.names():
        detection = transcripts.get(other).detect(data, path.name)
        if other != name and detection is not None:
            assert detection.confidence < max(claims.values(), default=1.0)


@pytest.mark.parametrize(("name", "path"), SAMPLES)
def test_no_sample_is_taken_for_our_own_form(name, path):
    for line in (path.read_bytes(), *path.read_bytes().splitlines()[:5]):
        try:
            value: Any = json.loads(line)
        except ValueError:
            continue
        found = detect(value)
        if found is not None and found.kind == "canonical":
            assert set(value) <= {"role", "content"}  # which is a message of theirs and of ours


LANGFUSE = {
    "id": "trace",
    "name": "chat",
    "input": [{"role": "user", "content": "hi"}],
    "metadata": {"attributes": {"gen_ai.prompt.0.role": "user", "gen_ai.input.messages": "[]"}},
}


def test_a_trace_with_the_attributes_deeper_inside_is_no_span():
    for data in (json.dumps(LANGFUSE), json.dumps(LANGFUSE, indent=1), f"{json.dumps(LANGFUSE)}\n" * 2):
        assert transcripts.get("otel_genai").detect(data.encode()) is None
