"""What the gateway changes in a body that goes on: the name of the model, and not another byte."""

import json

import pytest
from hypothesis import given, strategies as st

from palaver.gateway import request_body
from palaver.gateway.request_body import with_model

SPACE = st.text(" \n\t\r", max_size=2)
KEYS = st.sampled_from(["a", "Model2", "models", "über", "stream", "messages", 'q"', "b\\"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just("model"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["model", "Model", "x"]), inner),
    max_leaves=6,
)


@st.composite
def written(draw):
    """A body, and what stands before and behind the value of its model."""
    fields = draw(st.lists(st.tuples(KEYS, VALUES), unique_by=lambda each: each[0], max_size=5))
    place = draw(st.integers(0, len(fields)))

    def field(name, value):
        # A name that needs an escape is written anew, so it stands behind the model only where it has none.
        key, text = json.dumps(name, ensure_ascii=False), json.dumps(value, ensure_ascii=draw(st.booleans()))
        return f"{draw(SPACE)}{key}{draw(SPACE)}:{draw(SPACE)}{text}{draw(SPACE)}"

    plain = [each for each in fields if "\\" not in json.dumps(each[0], ensure_ascii=False)]
    texts = [field(*each) for each in plain]
    before = "".join(each + "," for each in texts[:place]) + f'{draw(SPACE)}"model"{draw(SPACE)}:{draw(SPACE)}'
    after = draw(SPACE) + "".join("," + each for each in texts[place:])
    return f"{{{before}".encode(), f"{after}}}{draw(SPACE)}".encode()


@pytest.mark.row("GW-08")
@given(written(), st.text(min_size=1, max_size=8), st.text(min_size=1, max_size=8))
def test_only_the_name_is_replaced(body, old, new):
    before, after = body
    given_ = before + json.dumps(old).encode() + after
    made = with_model(given_, new)
    assert made == before + json.dumps(new, ensure_ascii=False).encode() + after or made == with_model(made, new)
    assert json.loads(made) == {**json.loads(given_), "model": new}
    assert with_model(made, new) == made


@pytest.mark.row("GW-01")
def test_a_body_whose_path_names_the_model_gets_the_name():
    assert json.loads(with_model(b"{}", "m")) == {"model": "m"}
    assert json.loads(with_model(b' {"a": 1}', "m")) == {"a": 1, "model": "m"}


def test_fields_of_other_hosts_are_left_out():
    body = b'{"anthropic_version": "vertex-2023-10-16", "messages": [ 1 ]}'
    assert json.loads(with_model(body, "m", ["anthropic_version"])) == {"messages": [1], "model": "m"}
    assert with_model(b'{"model":"m" }', "m", ["anthropic_version"]) == b'{"model":"m" }'


@pytest.mark.row("GW-40")
@pytest.mark.parametrize("body", [b'{"stream": false, "Stream": true}', b'{"STREAM": true}', b'{"\\u0073tream": true}'])
def test_what_a_server_may_take_for_a_field_that_is_read_is_left_out(body):
    found = json.loads(with_model(body[:-1] + b', "model": "m"}', "m"))
    assert {name for name in found if name.lower() == "stream"} <= {"stream"}


@pytest.mark.row("GW-40")
@pytest.mark.parametrize("name", ["m", "another"])
def test_a_body_is_decoded_once_however_many_models_are_named_inside(monkeypatch, name):
    decoder, decoded = request_body._FIELDS, []

    class Counting:
        def decode(self, body):
            decoded.append(len(body))
            return decoder.decode(body)

    monkeypatch.setattr(request_body, "_FIELDS", Counting())
    inside = ",".join(['{"model":"a"}'] * 1000)
    body = f'{{"metadata":[{inside}],"model":"m"}}'.encode()
    assert with_model(body, name) == body.replace(b'"m"', b'"%s"' % name.encode())
    assert decoded == [len(body)]
