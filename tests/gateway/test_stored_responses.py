"""The state of the Responses API, for models whose provider keeps none; with the official client."""

import contextlib
import json
import re

import httpx
import openai
import pytest

from palaver import Response, Usage, assistant, tool_call, wires
from palaver.core.errors import NotFoundError
from palaver.core.parts import Text
from palaver.gateway import GatewayConfig, response_table
from palaver.gateway.database import open_database
from palaver.gateway.response_table import ResponseTable, input_items
from palaver.gateway.stored_responses import ResponseOptions
from palaver.stream.replay_events import replay_events
from tests.gateway.running import running, targets
from tests.store.postgres.server import CONNINFO, fresh_schema

MODEL = "anthropic_messages"


@pytest.fixture(scope="module")
def url(provider, tmp_path_factory):
    file = str(tmp_path_factory.mktemp("responses") / "gateway.db")
    with running(GatewayConfig(models=targets(provider.url), database=file, responses=ResponseOptions())) as url:
        yield url


@pytest.fixture
def client(url):
    with openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as opened:
        yield opened


def answers(provider, *content, wire=MODEL, stream=False):
    answer = Response(assistant(*content, model="m", usage=Usage(input=9, output=2), finish_reason="stop"))
    if stream:
        encoder = wires.get(wire).stream_encoder()
        provider.body = b"".join(map(encoder.feed, replay_events(answer))) + encoder.finish()
        provider.headers = {"content-type": "text/event-stream"}
    else:
        provider.body = wires.get(wire).encode_response(answer).body


def asked(provider, wire=MODEL):
    """What the model was asked last: the text of each message, or the name of the tool that it calls."""
    request = wires.get(wire).decode_request(provider.asked[-1][2])
    return [each.text or each.tool_calls[0].name for each in request.messages]


@pytest.mark.row("GW-17")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_response_continues_the_one_before_it(client, provider, stream):
    def ask(text, **options):
        if not stream:
            return client.responses.create(model=MODEL, input=text, **options)
        with client.responses.stream(model=MODEL, input=text, **options) as events:
            return events.get_final_response()

    answers(provider, Text("one"), stream=stream)
    first = ask("a", instructions="Be brief.")
    answers(provider, Text("two"), stream=stream)
    second = ask("b", previous_response_id=first.id)
    answers(provider, Text("three"), stream=stream)
    ask([{"role": "user", "content": "c"}], previous_response_id=second.id)
    assert asked(provider) == ["a", "one", "b", "two", "c"]
    ask("other", previous_response_id=first.id)
    assert asked(provider) == ["a", "one", "other"]
    assert len({first.id, second.id}) == 2
    assert second.previous_response_id == first.id
    assert client.responses.retrieve(second.id).output_text == "two"
    items = client.responses.input_items.list(first.id).data
    assert [each.content[0].text for each in items] == ["a"]


@pytest.mark.row("GW-17")
def test_the_result_of_a_call_is_sent_without_the_call(client, provider):
    answers(provider, tool_call("weather", {"city": "Husum"}, id="toolu_1"))
    tool = {"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": False}
    first = client.responses.create(model=MODEL, input="a", tools=[tool])
    (call,) = first.output
    answers(provider, Text("It rains."))
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
    got = client.responses.create(model=MODEL, input=[result], tools=[tool], previous_response_id=first.id)
    assert got.output_text == "It rains."
    assert asked(provider) == ["a", "weather", "rain"]


@pytest.mark.row("GW-17")
def test_a_conversation_continues_at_models_of_any_wire(client, provider):
    answers(provider, Text("one"))
    first = client.responses.create(model=MODEL, input="a")
    answers(provider, Text("two"), wire="openai_responses")
    second = client.responses.create(model="openai_responses", input="b", previous_response_id=first.id)
    assert asked(provider, "openai_responses") == ["a", "one", "b"]
    assert b"previous_response_id" not in provider.asked[-1][2]
    answers(provider, Text("three"), wire="google_generate")
    client.responses.create(model="google_generate", input="c", previous_response_id=second.id)
    assert asked(provider, "google_generate") == ["a", "one", "b", "two", "c"]


def test_an_id_of_the_provider_goes_to_the_provider(client, provider):
    answers(provider, Text("one"), wire="openai_responses")
    client.responses.create(model="openai_responses", input="b", previous_response_id="resp_of_openai")
    assert b"resp_of_openai" in provider.asked[-1][2]
    with pytest.raises(openai.BadRequestError, match="resp_of_openai"):
        client.responses.create(model=MODEL, input="b", previous_response_id="resp_of_openai")


@pytest.mark.row("GW-17")
def test_what_should_not_be_stored_is_not(client, provider):
    answers(provider, Text("one"))
    first = client.responses.create(model=MODEL, input="a", store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)
    with pytest.raises(openai.BadRequestError, match="not found"):
        client.responses.create(model=MODEL, input="b", previous_response_id=first.id)


@pytest.fixture(scope="module")
def keeping(provider, tmp_path_factory):
    """A gateway that stores the answers of OpenAI's own models, too."""
    file, options = str(tmp_path_factory.mktemp("all") / "gateway.db"), ResponseOptions(keep="all")
    with running(GatewayConfig(models=targets(provider.url), database=file, responses=options)) as url:
        yield url


STYLES = {
    "as OpenAI": lambda data: data,
    "without spaces": lambda data: data.replace(b"data: ", b"data:"),
    "with an end": lambda data: data + b"data: [DONE]\n\n",
}


@pytest.mark.row("GW-17")
@pytest.mark.parametrize("style", STYLES)
def test_streams_of_every_style_are_stored(keeping, provider, style):
    answers(provider, Text("one"), wire="openai_responses", stream=True)
    name = f"resp_{len(style)}"
    provider.body = re.sub(rb'"response":\{"id":"[^"]*"', b'"response":{"id":"%b"' % name.encode(), provider.body)
    provider.body = STYLES[style](provider.body)
    body = {"model": "openai_responses", "input": "a", "stream": True}
    assert httpx.post(f"{keeping}/v1/responses", json=body).content == provider.body
    assert httpx.get(f"{keeping}/v1/responses/{name}").status_code == 200


@pytest.mark.parametrize("id", [b"7", b"null", b'"\\ud800"', b"["])
def test_an_answer_whose_id_is_none_is_handed_on_and_not_stored(keeping, provider, caplog, id):
    provider.body = b'{"id":%b,"object":"response","output":[]}' % id
    got = httpx.post(f"{keeping}/v1/responses", json={"model": "openai_responses", "input": "a"})
    assert (got.status_code, got.content) == (200, provider.body)
    assert not [each for each in caplog.records if each.exc_info]


@pytest.mark.parametrize("id", ["\ud800", "a\0"])
def test_an_id_that_no_database_takes_is_unknown(url, id):
    body = json.dumps({"model": MODEL, "input": "a", "previous_response_id": id})
    got = httpx.post(f"{url}/v1/responses", content=body)
    assert got.status_code == 400, got.text


@pytest.mark.row("GW-17")
def test_a_response_can_be_deleted(client, provider):
    answers(provider, Text("one"))
    first = client.responses.create(model=MODEL, input="a")
    second = client.responses.create(model=MODEL, input="b", previous_response_id=first.id)
    with pytest.raises(openai.BadRequestError, match="synchronous"):
        client.responses.cancel(first.id)
    client.responses.delete(first.id)
    for call in (client.responses.retrieve, client.responses.delete, client.responses.cancel):
        with pytest.raises(openai.NotFoundError):
            call(first.id)
    with pytest.raises(openai.BadRequestError):  # of which a part is gone
        client.responses.create(model=MODEL, input="c", previous_response_id=second.id)


@pytest.mark.row("GW-17")
def test_a_conversation_of_the_api_grows_with_each_response(client, provider):
    answers(provider, Text("one"))
    made = client.conversations.create(
        metadata={"topic": "sea"}, items=[{"type": "message", "role": "user", "content": "before"}]
    )
    for text in ("a", "b"):
        client.responses.create(model=MODEL, input=text, conversation=made.id)
    assert asked(provider) == ["before", "a", "one", "b"]
    assert client.conversations.retrieve(made.id).metadata == {"topic": "sea"}
    shown = client.conversations.items.list(made.id, order="asc", limit=2)
    assert [each.content[0].text for each in shown.data] == ["before", "a"]
    assert shown.has_more
    assert [each.content[0].text for each in shown] == ["before", "a", "one", "b", "one"]
    client.conversations.items.create(made.id, items=[{"type": "message", "role": "user", "content": "after"}])
    assert client.conversations.items.list(made.id).data[0].content[0].text == "after"
    client.conversations.delete(made.id)
    with pytest.raises(openai.NotFoundError):
        client.conversations.retrieve(made.id)
    with pytest.raises(openai.BadRequestError):
        client.responses.create(model=MODEL, input="c", conversation=made.id)


@pytest.mark.row("GW-17")
@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.server)])
def test_another_key_finds_nothing(kind, tmp_path):
    with fresh_schema() if kind == "postgres" else contextlib.nullcontext() as schema:
        database = open_database(str(tmp_path / "g.db")) if schema is None else open_database(CONNINFO, schema=schema)
        table = ResponseTable(database)
        body = b'{"id":"resp_1","output":[{"type":"message","id":"x"},{"type":"reasoning","id":"r"}]}'
        table.add("resp_1", "key-1", own_input=input_items(b'"hi"'), response=body)
        made = table.create_conversation("key-1", {})
        assert bytes(table.find("resp_1", "key-1").response) == body
        assert [bytes(each) for each in table.history("resp_1", "key-1")] == [
            b'{"type":"message","role":"user","content":"hi"}',
            b'{"type":"message"}',
        ]
        for call in (table.find, table.history, table.delete):
            with pytest.raises(NotFoundError):
                call("resp_1", "key-2")
        for call in (table.conversation, table.delete_conversation):
            with pytest.raises(NotFoundError):
                call(made.id, "key-2")
        table.delete_before(-1)
        with pytest.raises(NotFoundError):
            table.find("resp_1", "key-1")
        database.close()


@contextlib.contextmanager
def table_in(kind, tmp_path):
    """Yield the table in a database of a kind, and the database."""
    with fresh_schema() if kind == "postgres" else contextlib.nullcontext() as schema:
        database = open_database(str(tmp_path / "g.db")) if schema is None else open_database(CONNINFO, schema=schema)
        yield ResponseTable(database), database
        database.close()


KINDS = ["sqlite", pytest.param("postgres", marks=pytest.mark.server)]


@pytest.mark.row("GW-17")
@pytest.mark.parametrize("kind", KINDS)
def test_an_id_that_a_provider_gives_twice_leads_to_nobody_elses_responses(kind, tmp_path):
    def body(text):
        return b'{"output":[{"type":"message","x":"%b"}]}' % text.encode()

    with table_in(kind, tmp_path) as (table, _):
        table.add("resp_1", "alice", own_input=[], response=body("first"))
        table.add("resp_2", "alice", own_input=[], response=body("second"), previous="resp_1")
        table.add("resp_1", "bob", own_input=[], response=body("of bob"))
        assert bytes(table.find("resp_1", "bob").response) == body("of bob")
        assert [b"of bob" in bytes(each) for each in table.history("resp_2", "alice")] == [False, False]
        table.delete("resp_1", "alice")
        with pytest.raises(NotFoundError):
            table.history("resp_2", "alice")
        assert table.find("resp_1", "bob")


def test_a_chain_that_leads_to_itself_is_not_found(tmp_path):
    with table_in("sqlite", tmp_path) as (table, _):
        table.add("resp_1", "", own_input=[], response=b"{}", previous="resp_2")
        table.add("resp_2", "", own_input=[], response=b"{}", previous="resp_1")
        with pytest.raises(NotFoundError):
            table.history("resp_2", "")


@pytest.mark.parametrize("kind", KINDS)
def test_responses_of_an_earlier_version_stay(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(response_table, "_MIGRATIONS", response_table._MIGRATIONS[:1])
    with table_in(kind, tmp_path) as (_, database):
        insert = "INSERT INTO {s}.stored_responses VALUES ('resp_1', 'alice', 1, NULL, ?, ?)"
        packed = response_table._packed(input_items(b'"hi"')), response_table.zstd.compress(b"{}")
        database.run(lambda it: it.rows(insert, *packed))
        monkeypatch.undo()
        found = ResponseTable(database).find("resp_1", "alice")
        assert (len(found.input), bytes(found.response)) == (1, b"{}")


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"model": "anthropic_messages", "previous_response_id": 3}'])
def test_a_body_that_is_no_request_is_a_400(url, body):
    assert httpx.post(f"{url}/v1/responses", content=body).status_code == 400
    assert httpx.post(f"{url}/v1/conversations", content=b"[").status_code == 400
    assert httpx.get(f"{url}/v1/responses/x", headers={"host": "evil.example"}).status_code == 421
