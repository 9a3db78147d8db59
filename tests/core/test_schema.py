"""The JSON Schema of the canonical form: current, and true of what is written."""

import json
from pathlib import Path

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings

from palaver import DecodeError
from palaver.core import canonical
from palaver.testing import strategies
from tests.generated import examples

COMMITTED = Path(__file__).parents[2] / "docs" / "reference" / "palaver.schema.json"
SCHEMA = canonical.schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
slow = settings(
    max_examples=examples(80),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.mark.finding("F-92")
def test_the_committed_schema_is_current():
    current = COMMITTED.read_bytes() == canonical.schema_json()
    assert current, "the canonical form changed; run: palaver schema > docs/reference/palaver.schema.json"


def test_the_schema_is_a_schema_and_says_its_version():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$id"] == "urn:palaver:schema:1"


def test_unknown_fields_have_no_place_of_their_own_and_are_allowed():
    text = canonical.schema_json()
    assert b'"extra"' not in text
    assert b"additionalProperties" not in text


@slow
@given(strategies.any_messages(newer=True))
def test_every_written_message_is_valid(message):
    VALIDATOR.validate(json.loads(canonical.encode(message)))


@slow
@given(strategies.requests(newer=True))
def test_every_written_conversation_is_valid(request):
    for line in canonical.dump_conversation(request).splitlines():
        VALIDATOR.validate(json.loads(line))
    VALIDATOR.validate(json.loads(canonical.encode(request)))


@pytest.mark.parametrize(
    "wrong",
    [
        {"role": "bot"},
        {"role": "user", "content": "hi"},
        {"role": "user", "content": [{"type": "text"}]},
        {"role": "user", "sent_at": "now"},
        {"role": "flush", "content": [{"type": "text", "text": ""}]},
        {"role": "user", "content": [{"type": "image", "source": {"kind": "url"}}]},
    ],
)
def test_what_the_reader_refuses_is_invalid(wrong):
    assert not VALIDATOR.is_valid(wrong)
    with pytest.raises(DecodeError):
        canonical.decode(json.dumps(wrong))
