"""Messages inside pydantic models and FastAPI bodies."""

import dataclasses
import json
import subprocess
import sys
import warnings
from typing import Annotated

import pydantic
import pydantic_core
import pytest
from fastapi import Body, FastAPI
from hypothesis import given, settings

import palaver
from palaver import Image, Message, Request, Text, Url, Usage, UserMessage, assistant, user
from palaver.core import messages
from palaver.testing import strategies
from tests.generated import examples


class Chat(pydantic.BaseModel):
    title: str
    messages: list[Message]


with warnings.catch_warnings():
    # It may announce another HTTP client than the one installed; that is between the two of them.
    warnings.simplefilter("ignore")
    from fastapi.testclient import TestClient


CHAT = Chat(
    title="a",
    messages=[
        user("hi", Image(Url("https://example.org/a.png")), metadata={"a": [1, 2.5]}),
        assistant("b", usage=Usage(input=1)),
        palaver.flush(),
    ],
)


def test_a_model_reads_and_writes_the_canonical_form():
    text = CHAT.model_dump_json()
    assert json.loads(text)["messages"] == [json.loads(palaver.dumps(m)) for m in CHAT.messages]
    assert Chat.model_validate_json(text) == CHAT
    assert Chat.model_validate(CHAT.model_dump()) == CHAT
    assert Chat.model_validate(CHAT.model_dump(mode="json")) == CHAT


def test_unknown_fields_are_kept():
    message = {"role": "user", "content": [{"type": "hologram", "z": 1}], "new": {"a": None}}
    chat = Chat.model_validate({"title": "", "messages": [message]})
    assert chat.model_dump()["messages"] == [message]
    assert json.loads(chat.model_dump_json())["messages"] == [message]


@pytest.mark.parametrize(
    "wrong", [{"role": "bot"}, {"role": "user", "id": 5}, "hi", 5, None, {}, {"role": float("inf")}]
)
def test_what_does_not_fit_is_a_validation_error(wrong):
    with pytest.raises(pydantic.ValidationError):
        Chat.model_validate({"title": "", "messages": [wrong]})


@pytest.mark.finding("F-06")
@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ({"role": "user", "content": 3}, ("user", "content")),
        ({"role": "user", "content": [{"type": "text", "text": 4}]}, ("user", "content", 0, "text")),
        ({"role": "bot"}, ()),
        ({}, ()),
        (5, ()),
    ],
)
@pytest.mark.parametrize("hint", [Message, Message | None])
def test_a_bad_message_is_one_error_at_its_place(hint, wrong, place):
    with pytest.raises(pydantic.ValidationError) as caught:
        pydantic.TypeAdapter(hint).validate_json(json.dumps(wrong))
    (error,) = caught.value.errors()
    assert error["loc"] == place
    assert " at 0x" not in str(caught.value)


@pytest.mark.finding("F-06")
def test_a_union_that_no_tag_tells_apart_names_its_classes():
    with pytest.raises(pydantic.ValidationError) as caught:
        pydantic.TypeAdapter(Text | Url).validate_python({"type": "text", "text": 4})
    assert "Text()" in str(caught.value)
    assert " at 0x" not in str(caught.value)


@pytest.mark.finding("F-06")
def test_the_schema_of_a_message_names_its_discriminator():
    schema = pydantic.TypeAdapter(Message).json_schema()
    assert schema["discriminator"]["propertyName"] == "role"
    assert len(schema["oneOf"]) == len(messages.MESSAGE_CLASSES)


@pytest.mark.finding("F-06")
def test_a_bare_message_is_the_body_of_a_route():
    app = FastAPI()

    @app.post("/any")
    def any_message(message: Message) -> Message:
        return message

    @app.post("/user")
    def user_message(message: UserMessage) -> UserMessage:
        return message

    @app.post("/optional")
    def optional_message(message: Message | None = None) -> Message | None:
        return message

    client = TestClient(app)
    sent = json.loads(palaver.dumps(user("hi", payload={"a": 1})))
    for path, place in (("/any", ["user"]), ("/user", []), ("/optional", ["user"])):
        assert client.post(path, json=sent).json() == sent
        answer = client.post(path, json={"role": "user", "content": 3})
        assert answer.status_code == 422
        assert [each["loc"] for each in answer.json()["detail"]] == [["body", *place, "content"]]
    assert client.post("/optional").json() is None


@pytest.mark.finding("F-06")
def test_fields_are_listed_as_those_of_a_dataclass():
    message = user("hi")
    names = [each.name for each in dataclasses.fields(message)]
    assert names == list(message.__struct_fields__)
    assert dataclasses.replace(message, id="a") == message.replace(id="a")


def test_the_error_gives_the_reason():
    with pytest.raises(pydantic.ValidationError, match="palaver: id: expected a string, got a num"):
        pydantic.TypeAdapter(UserMessage).validate_python({"role": "user", "id": 5})


@pytest.mark.parametrize(
    "value",
    [Text("a"), Usage(input=1), Url("u"), palaver.Tool("f"), Request(messages=(user("a"),))],
)
def test_other_classes_work_alone(value):
    adapter = pydantic.TypeAdapter(type(value))
    assert adapter.validate_python(value) is value
    assert adapter.validate_python(adapter.dump_python(value)) == value
    assert adapter.validate_json(adapter.dump_json(value)) == value
    assert adapter.json_schema()["type"] == "object"


def test_a_number_that_pydantic_cannot_write_is_refused():
    message = palaver.loads(b'{"role":"user","payload":1e400}')
    with pytest.raises(Exception, match="a number out of the range of a double"):
        pydantic.TypeAdapter(UserMessage).dump_json(message)
    with pytest.raises(pydantic_core.PydanticSerializationError):
        Chat(title="", messages=[message]).model_dump_json()


@settings(max_examples=examples(50), deadline=None)
@given(strategies.any_messages(newer=True))
def test_instances_pass_unchanged(message):
    adapter = pydantic.TypeAdapter(Message)
    assert adapter.validate_python(message) is message


def test_a_fastapi_body_and_answer():
    app = FastAPI()

    @app.post("/echo")
    def echo(message: Annotated[Message, Body()]) -> Message:
        return message.replace(agent="echo")

    @app.post("/chat")
    def chat(chat: Chat) -> Chat:
        return chat

    client = TestClient(app)
    sent = user("hi", payload={"a": 1})
    json_body = {"content-type": "application/json"}
    answer = client.post("/echo", content=palaver.dumps(sent), headers=json_body)
    assert palaver.loads(answer.content) == sent.replace(agent="echo")
    assert client.post("/echo", json={"role": "bot"}).status_code == 422
    assert Chat.model_validate(client.post("/chat", json=CHAT.model_dump()).json()) == CHAT
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    assert schemas["UserMessage"]["properties"]["role"] == {"enum": ["user"]}
    assert "Chat" in schemas


def test_palaver_does_not_import_pydantic():
    code = "import sys, palaver; sys.exit('pydantic_core' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
