"""One provider's file becomes another's, with a receipt; the two never mix."""

import json
import os

import pytest
from msgspec import structs

import palaver as p
from palaver import wires
from palaver.transcripts import TranscriptFormat

HI = {"role": "user", "content": "hi"}
ANSWER = {
    "id": "x",
    "object": "chat.completion",
    "created": 1,
    "model": "gpt-5",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hello"}}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
}


def test_a_request_becomes_a_request_and_the_receipt_stands_apart(run, saved, chat):
    done = run("convert", saved(chat), "--to", "ollama_chat")
    assert done.code == 0
    assert [m["content"] for m in done.json["messages"]] == ["hi", "yes", "hi"]
    assert (
        done.err.splitlines()[0] == "openai_chat → ollama_chat: a request of 3 messages, 1 thing not carried as it was"
    )
    assert done.err.splitlines()[3].split()[:4] == ["dropped", "name", "1", "messages[0]"]


def test_a_response_becomes_a_response(run, saved):
    done = run("convert", saved(ANSWER), "--to", "ollama_chat")
    assert done.code == 0
    assert done.json["message"]["content"] == "hello"
    assert done.json["done"] is True


def test_an_exchange_becomes_the_whole_conversation(run, saved):
    done = run(
        "convert", saved({"request": {"model": "gpt-5", "messages": [HI]}, "response": ANSWER}), "--to", "palaver"
    )
    assert done.code == 0
    _, *messages = map(json.loads, done.out.splitlines())
    assert [m["role"] for m in messages] == ["user", "assistant"]


@pytest.mark.parametrize(
    ("beside", "note"),
    [
        (
            {"response": {"error": {"message": "no credit", "type": "x"}}},
            "the answer is an error and is left out: no",
        ),
        ({"stream": "data: {}\n\n"}, "the answer is left out: openai_chat: the stream broke off"),
        ({"response": None}, "there is no answer"),
    ],
)
def test_an_answer_that_is_none_is_left_out_with_a_note(run, saved, beside, note):
    done = run("convert", saved({"request": {"model": "gpt-5", "messages": [HI]}, **beside}), "--to", "ollama_chat")
    assert done.code == 0
    assert len(done.json["messages"]) == 1
    assert f"body.json: {note}" in done.err


def test_a_bare_list_of_messages_becomes_a_request(run, saved):
    done = run("convert", saved([{"role": "developer", "content": "be brief"}, HI]), "--to", "openai_chat")
    assert done.code == 0
    assert len(done.json["messages"]) == 2


def test_the_same_wire_gives_the_same_values(run, saved, chat):
    assert run("convert", saved(chat), "--to", "openai_chat").json == chat


def test_a_variant_is_fitted_though_its_wire_is_the_same(run, saved):
    body = {"model": "gpt-5", "messages": [{"role": "developer", "content": "be brief"}, HI]}
    done = run("convert", saved(body), "--to", "openai_chat:groq")
    assert done.json["messages"][0]["role"] == "system"
    assert "developer" in done.err


def test_the_canonical_form_is_read_back_by_itself(run, saved, chat):
    first = run("convert", saved(chat), "--to", "palaver")
    assert first.err.splitlines()[0].endswith("nothing lost")
    again = run("convert", saved(first.out, "body.jsonl"), "--to", "openai_chat")
    assert again.json == chat
    assert run("convert", saved(ANSWER), "--to", "palaver").json["type"] == "response"
    response = saved(run("convert", saved(ANSWER), "--to", "palaver").out, "response.json")
    assert run("convert", response, "--to", "openai_chat").json == ANSWER


def test_one_message_of_the_canonical_form_is_a_conversation(run, saved):
    line = '{"role":"user","content":[{"type":"text","text":"hi"}]}'
    for text, content in ((line, "hi"), (f"{line}\n{line}\n", "hi\n\nhi"), (f"\ufeff{line}\n", "hi")):
        done = run("convert", saved(text), "--to", "ollama_chat")
        assert done.code == 0, done.err
        assert done.json["messages"] == [{"role": "user", "content": content}]


def test_numbers_are_written_as_they_were(run, saved):
    text = '{"model":"gpt-5","messages":[{"role":"user","content":"\u2028"}],"temperature":2.0,"top_p":5e-1}'
    done = run("convert", saved(text), "--to", "openai_chat", "--pretty")
    assert done.code == 0, done.err
    assert '"temperature": 2.0' in done.out
    assert '"top_p": 5e-1' in done.out
    assert '"content": "\u2028"' in done.out


def test_text_that_cannot_be_indented_stays_one_line(run, saved):
    body = {"model": "gpt-5", "messages": [{"role": "user", "content": "\ud800"}]}
    done = run("convert", saved(body), "--to", "openai_chat", "--pretty")
    assert (done.code, done.out.count("\n")) == (0, 1)
    assert done.json == body


# -- the receipt ---------------------------------------------------------------------------------------------------


def test_a_receipt_is_json_when_asked(run, saved, chat):
    done = run("convert", saved(chat), "--to", "ollama_chat", "--losses", "json")
    (loss,) = json.loads(done.err)
    assert loss.keys() == {"kind", "what", "why", "where", "message", "part"}
    assert (loss["what"], loss["message"], loss["part"]) == ("name", 0, None)
    assert run("convert", saved(chat), "--to", "openai_chat", "--losses", "json").err == "[]\n"


def test_losses_can_be_refused_and_then_nothing_is_written(run, saved, chat, tmp_path):
    out = tmp_path / "out.json"
    out.write_text("before")
    done = run("convert", saved(chat), "--to", "ollama_chat", "--losses", "raise", "-o", out)
    assert (done.code, done.out, out.read_text()) == (1, "", "before")
    assert "nothing was written" in done.err
    assert "messages[0]" in done.err
    assert run("convert", saved(chat), "--to", "openai_chat", "--losses", "raise", "-o", out).code == 0


# -- which wire ----------------------------------------------------------------------------------------------------


def test_an_ambiguous_file_says_what_it_may_be(run, saved):
    thought = {"role": "assistant", "content": [{"type": "thinking", "thinking": "t"}, {"type": "text", "text": "x"}]}
    body = saved({"model": "m", "messages": [HI, thought]})
    done = run("convert", body, "--to", "palaver")
    assert (done.code, done.out) == (1, "")
    assert done.err.endswith("this request may be openai_chat or cohere_chat; choose one with --from\n")
    assert run("convert", body, "--to", "palaver", "--from", "cohere_chat").code == 0
    assert run("convert", body, "--to", "palaver", "--from", "openai_chat:groq").err.startswith("openai_chat:groq → ")


def test_every_wire_converts_to_every_other(run, saved, chat):
    for source in wires.names():
        body = saved(run("convert", saved(chat), "--to", source).out, f"{source}.json")
        for target in wires.names():
            assert run("convert", body, "--from", source, "--to", target).code == 0


# -- a file of its own ---------------------------------------------------------------------------------------------


def test_a_file_is_written_whole_and_keeps_its_mode(run, saved, chat, tmp_path):
    out = tmp_path / "out.json"
    out.write_text("before")
    out.chmod(0o640)
    link = tmp_path / "link.json"
    link.symlink_to(out)
    done = run("convert", saved(chat), "--to", "openai_chat", "-o", link)
    assert (done.code, done.out) == (0, "")
    assert json.loads(out.read_bytes()) == chat
    assert link.is_symlink()
    assert out.stat().st_mode & 0o777 == 0o640
    assert sorted(f.name for f in tmp_path.iterdir()) == ["body.json", "link.json", "out.json"]


def test_a_file_may_be_replaced_by_its_conversion(run, saved, chat):
    body = saved(chat)
    assert run("convert", body, "--to", "ollama_chat", "-o", body).code == 0
    assert json.loads(body.read_bytes())["messages"][0] == HI


def test_what_is_no_plain_file_is_written_to(run, saved, chat):
    assert run("convert", saved(chat), "--to", "ollama_chat", "-o", os.devnull).code == 0
    assert not os.path.isfile(os.devnull)  # noqa: PTH113 (it is still a device)


def test_a_place_that_cannot_be_written_is_one_line(run, saved, chat, tmp_path):
    done = run("convert", saved(chat), "--to", "ollama_chat", "-o", tmp_path / "none" / "out.json")
    assert done.code == 1
    assert done.err == f"palaver: {tmp_path}/none/out.json: no such file or directory\n"


def test_the_model_that_a_body_is_to_name(run, saved):
    gemini = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
    unnamed = run("convert", saved(gemini), "--from", "google_generate", "--to", "anthropic_messages")
    assert unnamed.json["model"] == "unspecified"
    assert "model" in unnamed.err
    named = run("convert", saved(gemini), "--from", "google_generate", "--to", "anthropic_messages", "--model", "m-1")
    assert named.json["model"] == "m-1"
    assert "unspecified" not in named.err
    answered = p.Request(messages=(p.user("hi"), p.assistant("yes", model="gpt-5"), p.user("and?")))
    file = saved(p.dump_conversation(answered).decode())
    assert run("convert", file, "--to", "openai_chat").json["model"] == "gpt-5"
    assert run("convert", file, "--to", "openai_chat", "--model", "m-1").json["model"] == "m-1"
    assert b"model" not in run("convert", file, "--to", "palaver").out.encode().splitlines()[0]


@pytest.mark.finding("F-76")
@pytest.mark.parametrize("body", [{"model": "m", "messages": [HI]}, {"messages": [HI]}, [HI]])
def test_a_file_that_all_candidates_read_alike_is_of_the_likeliest(run, saved, body):
    done = run("convert", saved(body), "--to", "palaver")
    assert done.code == 0
    assert done.out == run("convert", saved(body), "--to", "palaver", "--from", "openai_chat").out


@pytest.mark.finding("F-71")
def test_messages_that_cannot_be_read_are_on_the_receipt(run, tmp_path):
    bad = {"role": "user", "content": [{"type": "text", "value": 1}]}
    path = tmp_path / "training.jsonl"
    path.write_text(f"{json.dumps({'messages': [HI, bad]})}\n" * 2)
    done = run("convert", path, "--to", "anthropic_messages", "--conversation", "1")
    assert "dropped       message" in done.err
    done = run("convert", path, "--to", "pi", "-o", f"{tmp_path}/out/")
    assert done.code == 0
    assert "2 things not carried" in done.err
    assert run("convert", path, "--to", "openai_messages").out.encode() == path.read_bytes()


@pytest.mark.finding("F-71")
@pytest.mark.parametrize("command", [("convert", "--to", "pi"), ("show",), ("import",)])
def test_a_file_that_yields_nothing_is_an_error(run, tmp_path, command):
    bad = {"messages": [{"role": "user", "content": [{"type": "text", "value": "hello"}]}]}
    path = tmp_path / "lf.jsonl"
    path.write_text(f"{json.dumps(bad)}\n" * 3)
    done = run(*command, path)
    assert done.code != 0
    assert "no message of it can be read: line 1" in done.err
    if command == ("import",):
        assert "no thread" in run("threads").err


@pytest.mark.finding("F-72")
@pytest.mark.parametrize(
    ("text", "like"),
    [
        (json.dumps({"id": "m", "sessionID": "s", "role": "user", "time": {}}), "a message of opencode"),
        (
            json.dumps([{"type": "RUN_STARTED"}, {"type": "TEXT_MESSAGE_START", "role": "assistant"}]),
            "events of AG-UI",
        ),
        (f"{json.dumps({'a': 1})}\n" * 2, "lines of JSON, the first an object with a"),
    ],
)
def test_a_file_of_no_known_format_is_described(run, tmp_path, text, like):
    path = tmp_path / "file.json"
    path.write_text(text)
    done = run("convert", path, "--to", "palaver")
    assert (done.code, done.out) == (1, "")
    assert like in done.err


@pytest.mark.finding("F-72")
def test_events_of_ag_ui_in_a_list_are_no_messages_even_when_they_are_named_so(run, tmp_path):
    path = tmp_path / "file.json"
    path.write_text(json.dumps([{"type": "RUN_STARTED"}, {"type": "TEXT_MESSAGE_START", "role": "assistant"}]))
    done = run("convert", "--from", "ag_ui", "--to", "openai_messages", str(path))
    assert (done.code, done.out) == (1, "")
    assert "RUN_STARTED: events are read one to a line, not in a list" in done.err


@pytest.mark.parametrize("target", ["codex", "claude_code", "openai_messages"])
def test_a_receipt_counts_both_sides(run, saved, target, tmp_path):
    image = p.Image.from_bytes(b"\x89PNG\r\n\x1a\n", "image/png")
    call = p.ToolCall("c1", "f", "{}")
    said = [p.user("look", image), p.assistant("so", call), p.tool("done", tool_call_id="c1"), p.assistant("good")]
    (tmp_path / "talk.jsonl").write_bytes(p.dump_conversation(p.Request(messages=tuple(said))))
    done = run("convert", "talk.jsonl", "--to", target, "-o", "out.jsonl")
    assert "\n  messages 4 → 4, calls 1 → 1, results 1 → 1, images 1 → 1, texts 4 → 4\n" in done.err


def test_joined_messages_are_no_loss_and_the_counts_say_so(run, saved):
    body = {"model": "gpt-5", "messages": [HI, HI, {"role": "assistant", "content": "ho"}]}
    done = run("convert", saved(body), "--to", "bedrock_converse", "--from", "openai_chat")
    assert done.code == 0
    assert done.err.splitlines()[:2] == [
        "openai_chat → bedrock_converse: a request of 3 messages, the counts differ",
        "  messages 3 → 2, calls 0 → 0, results 0 → 0, images 0 → 0, texts 3 → 3",
    ]


def test_fewer_than_were_given_is_never_nothing_lost(run, saved, monkeypatch, tmp_path):
    """A format that forgets a message, and its receipt with it."""
    real = TranscriptFormat.write_many

    def forgets(self, given, **options):
        written = real(self, given, **options)
        return structs.replace(written, chunks=tuple(written.body.splitlines(keepends=True)[:-1]), losses=())

    monkeypatch.setattr(TranscriptFormat, "write_many", forgets)
    (tmp_path / "talk.jsonl").write_bytes(p.dump_conversation(p.Request(messages=(p.user("a"), p.assistant("b")))))
    done = run("convert", "talk.jsonl", "--to", "pi", "-o", "out.jsonl")
    assert done.err.splitlines()[0] == "palaver → pi: 1 file, the counts differ"
    assert "messages 2 → 1," in done.err.splitlines()[1]
    (tmp_path / "out.jsonl").unlink()
    assert run("convert", "talk.jsonl", "--to", "pi", "-o", "out.jsonl", "--losses", "raise").code == 1
    assert not (tmp_path / "out.jsonl").exists()
