"""The options of `palaver run`, as people's fingers expect them."""

import json

import pytest

import palaver as p
from palaver.cli.code_block import code_blocks
from palaver.cli.run import command
from tests.cli.provider import MODEL, delta, provider, says

CUT = [delta(content="Here:\n\n```py\nprint("), delta("length"), b"data: [DONE]\n\n"]
CUT_NUMBER = [delta(content="12"), delta("length"), b"data: [DONE]\n\n"]
FILTERED = [delta(content="I"), delta("content_filter"), b"data: [DONE]\n\n"]


@pytest.mark.parametrize(
    ("how", "answer", "asked", "why"),
    [
        (("-x",), CUT, 1, "length: the answer was cut at the model's output limit"),
        (("--extract-last",), FILTERED, 1, "blocked: the provider's content filter"),
        (("--schema", "name"), says('{"name": 1}'), 5, "invalid output: $.name: 1 is not of type 'string'"),
        (("--schema", "name"), CUT, 1, "length: the answer was cut at the model's output limit"),
        (("--schema", '{"type":"integer"}'), CUT_NUMBER, 1, "length: the answer was cut at the model's output limit"),
    ],
    ids=["extract", "extract-last", "schema", "cut-schema", "cut-number"],
)
def test_a_result_that_is_missing_is_one_line_that_says_why(run, monkeypatch, how, answer, asked, why):  # noqa: PLR0917 (its table)
    with provider(*[answer] * asked * 2) as there:
        for name, value in there.env.items():
            monkeypatch.setenv(name, value)
        done = run("run", "hi", "-m", MODEL, "-t", "harbour", *how)
        assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
        assert done.err.startswith(f"palaver: {why}")
        line, _, command = done.err.strip().partition("; to read the answer: palaver ")
        assert answer[0] is not CUT[0] or "cut at the model's output limit" in line
        shown = run(*command.split()).out
        done = run("run", "hi", "-m", MODEL, "-n", *how)
    said = json.loads(answer[0].decode().removeprefix("data: "))["choices"][0]["delta"]["content"]
    assert said.split()[-1] in shown
    assert (done.code, done.out, done.err) == (1, "", f"{line}\n{said}\n")


@pytest.mark.parametrize(
    ("typed", "sent"),
    [
        (["END", "1"], ["END", "1"]),
        (['["a","b"]', "c"], ["a", "b", "c"]),
        (['"a"', "null", "{}", "[", '"'], ["a", "null", "{}", "[", '"']),
    ],
)
def test_a_setting_is_json_where_it_takes_that_json_or_else_text(typed, sent):
    pairs = [word for each in typed for word in ("-o", "stop", each)]
    with command.make_context("run", ["hi", "-o", "effort", "1", "-o", "seed", "7", *pairs]) as context:
        settings = context.params["settings"]
    assert settings == p.Settings(stop=tuple(sent), effort="1", seed=7)


def test_short_options_reach_the_model(process):
    with provider(says("ok")) as there:
        done = process(
            "run",
            "hi",
            "-m",
            MODEL,
            "-s",
            "Be brief.",
            "-o",
            "temperature",
            "0.5",
            "-o",
            "max_tokens",
            "9",
            "-o",
            "stop",
            "END",
            "-o",
            "stop",
            "1",
            **there.env,
        )
    assert (done.code, done.out) == (0, "ok\n")
    asked = there.asked[0]
    assert asked["messages"][0] == {"role": "system", "content": "Be brief."}
    assert (asked["temperature"], asked["max_tokens"], asked["stop"]) == (0.5, 9, ["END", "1"])


@pytest.mark.parametrize(
    ("pair", "cause"),
    [
        (("temprature", "1"), "did you mean temperature?"),
        (("temperature", "hot"), "temperature: expected"),
        (("xyz", "1"), "no setting 'xyz'"),
        (("output", "1"), "no setting 'output'"),
        (("stop", '["a", 1]'), "stop: expected texts in the list, got 1"),
    ],
)
def test_a_wrong_setting_is_refused(run, pair, cause):
    done = run("run", "hi", "-m", "demo", "-o", *pair)
    assert done.code == 2
    assert cause in done.err


def test_continue_goes_on_in_the_thread_that_changed_last(process):
    with provider(says("one"), says("two")) as there:
        assert process("run", "first", "-m", MODEL, **there.env).code == 0
        assert process("run", "second", "-m", MODEL, "-c", **there.env).code == 0
    assert [each["content"] for each in there.asked[1]["messages"]] == ["first", "one", "second"]


def test_continue_without_a_thread_says_so(run):
    done = run("run", "hi", "-m", "demo", "-c")
    assert (done.code, "there is no thread to continue" in done.err) == (1, True)
    assert run("run", "hi", "-m", "demo", "-c", "-t", "x").code == 2


def test_a_server_at_an_address_is_asked_by_its_own_name(process):
    with provider(says("ok")) as there:
        done = process("run", "hi", "-m", "openai/gpt-oss-20b", "--url", f"{there.url}/v1", NO_PROXY="*")
    assert (done.code, done.out) == (0, "ok\n")
    assert there.asked[0]["model"] == "openai/gpt-oss-20b"


def test_an_address_without_a_model_says_how_to_list_them(process):
    done = process("run", "hi", "--url", "http://127.0.0.1:9/v1", PALAVER_MODEL="")
    assert done.code == 2
    assert "palaver models --url http://127.0.0.1:9/v1" in done.err


@pytest.mark.parametrize("schema", ["name, year int, note: one", f"name: {'long ' * 99}, year int, note", None])
def test_a_schema_gives_one_line_of_json(process, saved, schema):
    answer = {"name": "Elbe", "year": 1891, "note": "old"}
    if schema is None:
        schema = str(saved(json.dumps({"type": "object", "properties": {"name": {"type": "string"}}}), "s.json"))
    with provider(says(json.dumps(answer))) as there:
        done = process("run", "Which boat?", "-m", MODEL, "--schema", schema, **there.env)
    assert done.code == 0, done.err
    assert json.loads(done.out) == answer
    assert there.asked[0]["response_format"]["type"] == "json_schema"


@pytest.mark.parametrize(
    ("schema", "cause"),
    [
        ("{", "the schema"),
        ("missing.json", "no such file"),
        ("name text", "is not NAME"),
        (",", "no field"),
        ("name, name int", "the field 'name' stands twice"),
        ("title: short, in English, year int", "which stand on lines of their own where a description holds commas"),
        ("[1]", "is not NAME"),
        ('{"type": "text"}', "$.type: 'text' is not valid"),
        ('{"properties": {"a": {"$ref": "#/$defs/no"}}}', "the reference '#/$defs/no' leads nowhere"),
    ],
)
def test_a_wrong_schema_is_refused(run, schema, cause):
    done = run("run", "hi", "-m", "demo", "--schema", schema)
    assert (done.code, cause in done.err) == (2, True), done.err


def test_extract_prints_the_first_code_block(process):
    with provider(says("Here:\n\n```py\nprint(1)\n```\n\n```\ntwo\n```\n"), says("none")) as there:
        assert process("run", "code", "-m", MODEL, "-x", **there.env).out == "print(1)\n"
        assert process("run", "code", "-m", MODEL, "-x", **there.env).out == "none\n"


def test_extract_json_and_schema_exclude_each_other(run):
    assert run("run", "hi", "-m", "demo", "-x", "--json").code == 2
    assert run("run", "hi", "-m", "demo", "-x", "--schema", "a").code == 2


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("none", []),
        ("```\na\n```", ["a\n"]),
        ("~~~~\n```\n~~~\n~~~~", ["```\n~~~\n"]),
        ("  ```py\n    x\n  ```", ["  x\n"]),
        ("```\nopen", ["open\n"]),
        ("``` a`b\ntext", []),
        ("````\n```\n````\n```\nb\n```", ["```\n", "b\n"]),
    ],
)
def test_code_blocks_are_those_of_commonmark(text, blocks):
    assert code_blocks(text) == blocks


@pytest.mark.parametrize(
    ("alias", "written"),
    [("anthropic", b"max_tokens"), ("gemini", b"contents"), ("openai-chat", b"messages"), ("claude", b"parentUuid")],
)
def test_a_form_may_be_named_shortly(run, saved, alias, written):
    saved('{"messages": [{"role": "user", "content": "hi"}], "model": "m"}', "a.json")
    done = run("convert", "a.json", "--from", "chat", "--to", alias)
    assert done.code == 0, done.err
    assert written.decode() in done.out


def test_a_thread_may_be_named_like_an_address(process):
    for prompt in ("one", "two"):
        assert process("run", prompt, "-m", "demo", "-t", "ann@example.com", "--approve", "allow").code == 0
    assert "ann@example.com" in process("threads", "--json").out
    assert process("run", "three", "-m", "demo", "-t", "ann@example.com@nowhere").code == 1


def test_a_thread_continues_with_its_model_and_server(process):
    with provider(says("one"), says("two"), says("three"), says("four")) as there:
        first = process("run", "a", "-m", "qwen", "--url", there.url, "-t", "x")
        assert (first.code, first.out) == (0, "one\n")
        assert process("run", "b", "-c").out == "two\n"
        assert process("run", "c", "-t", "x", PALAVER_MODEL="anthropic/claude-opus-4-8").out == "three\n"
        chatted = process("chat", "-t", "x", data=b"/model server/other\nd\n/quit\n")
        assert chatted.code == 0
        assert [body["model"] for body in there.asked] == ["qwen", "qwen", "qwen", "other"]
        assert process("export", "x", "--as", "openai_chat").json["model"] == "other"
    assert process("run", "d", "-t", "y").code == 2  # a new thread has no model


def test_a_thread_continues_with_the_model_that_was_chosen_last(process):
    with provider(says("one"), says("two"), says("three"), says("four")) as there:
        env = {**there.env, "PALAVER_MODEL": MODEL}
        assert process("run", "a", "-t", "x", **env).out == "one\n"
        process("chat", "-t", "x", data=b"/model vllm/other\nb\n/quit\n", **env)
        assert process("run", "c", "-c", **env).out == "three\n"
        assert process("run", "d", "-c", "-m", MODEL, **env).out == "four\n"
    assert [body["model"] for body in there.asked] == ["m", "other", "other", "m"]
    exported = process("export", "x", "--as", "anthropic_messages")
    assert (exported.json["model"], "unspecified" in exported.err) == ("m", False)


def test_a_password_or_key_in_an_address_is_not_kept(process):
    with provider(says("one"), says("two")) as there:
        address = there.url.replace("http://", "http://ann:secret-1@") + "/v1?api_key=secret-2&region=eu"
        assert process("run", "a", "-m", "q", "--url", address, "-t", "x").code == 0
        assert process("run", "b", "-t", "x").out == "two\n"
    thread = process("export", "x").out
    assert f"{there.url}/v1?region=eu" in thread
    assert "secret" not in thread


def test_a_thread_from_elsewhere_continues_with_the_model_of_its_last_answer(process, kept):
    kept(lambda store: store.append(store.create("x").id, [p.user("a"), p.assistant("b", model="gpt-5")]))
    done = process("run", "more", "-c", PALAVER_MODEL="", OPENAI_API_KEY="", PALAVER_CONFIG="nowhere")
    assert (done.code, "set OPENAI_API_KEY" in done.err) == (2, True)
    assert process("export", "x", "--as", "openai_chat").json["model"] == "gpt-5"


def test_a_thread_whose_model_has_no_known_provider_says_so(process, kept):
    kept(lambda store: store.append(store.create("x").id, [p.user("a"), p.assistant("b", model="mine")]))
    done = process("run", "more", "-t", "x", PALAVER_MODEL="")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "'mine' answered last in thread x" in done.err
    with provider(says("ok")) as there:
        assert process("run", "more", "-t", "x", PALAVER_MODEL=MODEL, **there.env).out == "ok\n"
