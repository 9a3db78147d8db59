"""Any body gives a request or one ``DecodeError`` that names the place."""

import json

import pytest
from hypothesis import given, strategies as st

from palaver.core import canonical, jsontext
from palaver.core.errors import DecodeError
from palaver.core.parts import Opaque
from palaver.serve.ui import ag_ui, ai_sdk
from palaver.serve.ui.turns import UiRequest

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
)
WORDS = st.from_regex(
    "text|reasoning|dynamic-tool|tool-x|file|step-start|approval-(responded|requested)|output-(available|error)|user"
    "|assistant|system|tool|resolved|cancelled",
    fullmatch=True,
)
KEYS = st.from_regex(
    "type|text|state|toolCallId|toolName|input|output|approval|approved|reason|id|role|content|parts|toolCalls"
    "|function|name|arguments|mediaType|url|interruptId|status|payload",
    fullmatch=True,
)
SHAPED = st.recursive(
    SCALARS | WORDS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=6)
)
BODIES = st.fixed_dictionaries(
    {"id": st.just("c") | JSON, "threadId": st.just("t") | JSON, "runId": st.just("r") | JSON},
    optional={
        "messages": st.lists(st.dictionaries(KEYS, SHAPED, max_size=6), max_size=3) | JSON,
        "resume": SHAPED,
        "trigger": st.sampled_from(["submit-message", "regenerate-message"]) | JSON,
    },
)


@pytest.mark.parametrize("parse", [ai_sdk.parse, ag_ui.parse])
@given(
    body=st.binary(max_size=40)
    | JSON.map(lambda value: json.dumps(value).encode())
    | BODIES.map(lambda value: json.dumps(value).encode())
)
def test_a_body_is_read_or_refused(parse, body):
    try:
        request = parse(body)
    except DecodeError:
        return
    assert isinstance(request, UiRequest)
    for message in request.messages:
        set_fields = {name for name, value in jsontext.value(canonical.encode(message)).items() if value}
        assert set_fields <= {"role", "content", "id", "tool_call_id", "tool_name", "is_error"}
        assert not any(part.provider or isinstance(part, Opaque) for part in message.content)
