"""Counters over tokenisers: exact for text, whatever it says and however long, and the same estimate for the rest.

The encodings are small ones made here: nothing is fetched.
"""

import json
import subprocess
import sys

import pytest
import tiktoken
import tokenizers
from hypothesis import given, strategies as st
from tiktoken_ext import openai_public
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from palaver import assistant, system, tool, user
from palaver.core.errors import DecodeError, MessageError, MissingPackageError, TransportError, UnknownNameError
from palaver.core.messages import RescueMarker
from palaver.core.parts import Image, Reasoning, ToolCall
from palaver.core.tools import Tool
from palaver.testing import strategies
from palaver.tokens import Counter, EstimateCounter, MediaRates, estimate, estimate_tools
from palaver.tokens.tokenizers import MAX_PIECE, HuggingFace, Tiktoken, pieces

MERGED = [" the", "the", "th", "he", " a", "aa", "aaaa", "  ", "    ", "--", "----", "ing"]


RANKS = {
    text: rank
    for rank, text in enumerate([*(bytes([byte]) for byte in range(256)), *(text.encode() for text in MERGED)])
}


def encoding(name):
    """An encoding of OpenAI's that splits text as it does, but knows few tokens; nothing is fetched."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(openai_public, "load_tiktoken_bpe", lambda *_, **__: RANKS)
        pattern = openai_public.ENCODING_CONSTRUCTORS[name]()["pat_str"]
    return tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=RANKS, special_tokens={"<|endoftext|>": len(RANKS)})


def byte_level():
    vocabulary = {letter: place for place, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    vocabulary.update({"th": 256, "the": 257})
    made = Tokenizer(models.BPE(vocabulary, [("t", "h"), ("th", "e")]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<|im_start|>"])
    return made


ENCODINGS = {name: encoding(name) for name in ("r50k_base", "cl100k_base", "o200k_base")}
SMALL = Tiktoken(ENCODINGS["cl100k_base"])
HUGGING = HuggingFace(byte_level())
COUNTERS = [EstimateCounter(), SMALL, HUGGING]


@pytest.fixture(params=COUNTERS, ids=lambda counter: counter.name)
def counter(request) -> Counter:
    return request.param


@given(strategies.any_messages() | strategies.markers())
def test_any_message_has_a_count_and_one_without_parts_has_none(message):
    for counter in COUNTERS:
        count = counter.count(message)
        assert count >= 0
        assert count == counter.count(message)
        assert message.content or count == 0


@given(st.lists(strategies.tools(), max_size=3))
def test_definitions_of_tools_count_one_by_one(tools):
    for counter in COUNTERS:
        assert counter.count_tools(tools) == sum(counter.count_tools([each]) for each in tools)
        assert bool(counter.count_tools(tools)) is bool(tools)


@given(st.text(max_size=200))
def test_a_text_counts_as_many_tokens_as_the_library_gives(text):
    assert SMALL.count(user(text)) == len(ENCODINGS["cl100k_base"].encode(text, disallowed_special=()))
    assert HUGGING.count(user(text)) == len(byte_level().encode(text).ids)


def test_every_kind_of_text_counts_and_the_rest_is_estimated():
    def tokens(text):
        return len(ENCODINGS["cl100k_base"].encode_ordinary(text))

    image = Image.from_bytes(b"\x89PNG", "image/png")
    assert SMALL.count(system("Be brief.")) == tokens("Be brief.")
    assert SMALL.count(assistant(Reasoning("the thing"), "the")) == tokens("the thing") + tokens("the")
    assert SMALL.count(assistant(ToolCall("c1", "look", '{"a": 1}'))) == tokens('{"a": 1}')
    assert SMALL.count(tool("found it", tool_call_id="c1")) == tokens("found it")
    assert SMALL.count(tool({"a": [1, 2]}, tool_call_id="c1")) == tokens('{"a":[1,2]}')
    assert SMALL.count(user("the", image)) == tokens("the") + estimate(user(image))
    assert SMALL.count(assistant(Reasoning("", encrypted="gAAA"))) == estimate(
        assistant(Reasoning("", encrypted="gAAA"))
    )
    assert SMALL.count(RescueMarker()) == 0
    definition = Tool.of("look", "Look.", {"type": "object"})
    assert SMALL.count_tools([definition]) > tokens("Look.")


def test_the_estimate_is_the_default():
    message = assistant("the thing", ToolCall("c1", "look", "{}"))
    definition = Tool.of("look", "Look.", {"type": "object"})
    assert EstimateCounter().count(message) == estimate(message)
    assert EstimateCounter().count_tools([definition]) == estimate_tools([definition])
    assert (EstimateCounter().name, repr(EstimateCounter())) == ("estimate", "EstimateCounter()")


def test_media_cost_what_the_rates_of_the_model_say():
    image = user(Image.from_url("https://x/y.png"))
    rates = MediaRates(image=77)
    for counter in (
        EstimateCounter(rates=rates),
        Tiktoken(ENCODINGS["cl100k_base"], rates=rates),
        HuggingFace(byte_level(), rates=rates),
    ):
        assert counter.count(image) == 77


def test_special_tokens_in_a_text_are_text():
    assert SMALL.count(user("<|endoftext|>")) == len(ENCODINGS["cl100k_base"].encode_ordinary("<|endoftext|>")) > 1
    assert len(byte_level().encode("<|im_start|>").ids) == 1
    assert HUGGING.count(user("<|im_start|>")) == len("<|im_start|>")


def test_lone_surrogates_count(counter):
    assert counter.count(user("a\ud800b")) >= 1
    assert SMALL.count(user("a\ud800b")) == SMALL.count(user("a\ufffdb"))


# -- long texts --------------------------------------------------------------------------------------------------------


@given(st.text(st.sampled_from("aZé一 \n\t-_1'"), max_size=60), st.integers(1, 20))
def test_pieces_are_the_text(text, most):
    found = list(pieces(text, most))
    assert "".join(found) == text
    assert all(len(piece) <= most for piece in found)
    assert "" not in found or text == ""


WORDS = st.text(st.sampled_from("aZé一_1"), min_size=1, max_size=4)
GAPS = st.sampled_from([" ", " ", "  ", "\n", " \n ", "\t", " -", "' "])


@pytest.mark.parametrize("name", ENCODINGS)
@given(data=st.data())
def test_pieces_that_end_between_words_count_like_the_whole(name, data):
    text = "".join(data.draw(st.lists(st.builds(str.__add__, WORDS, GAPS), max_size=30)))
    library = ENCODINGS[name]
    found = list(pieces(text, 24))
    ends = [len("".join(found[: place + 1])) for place in range(len(found) - 1)]
    between = all(text[end] == " " and _word(text[end - 1]) and _word(text[end + 1 : end + 2]) for end in ends)
    counted = sum(len(library.encode_ordinary(piece)) for piece in found)
    whole = len(library.encode_ordinary(text))
    assert counted == whole if between else counted >= whole - 1


def _word(letter):
    return letter.isalnum() or letter == "_"


def test_prose_is_cut_between_words():
    text = "the thing is a thing " * 5000
    found = list(pieces(text))
    assert len(found) > 2
    assert all(piece.startswith(" ") for piece in found[1:])
    assert SMALL.count(user(text)) == len(ENCODINGS["cl100k_base"].encode_ordinary(text))


@pytest.mark.parametrize("run", [" ", "\t", "\n", "a", "-", "_", "é", "aZ"])
@pytest.mark.parametrize("name", [*ENCODINGS, "byte level"])
@pytest.mark.share(2)
def test_a_long_run_is_counted(name, run):
    # a million spaces are more than the pattern of o200k can read at once: tiktoken breaks off with a panic
    text = run * (1_000_000 // len(run))
    counter = Tiktoken(ENCODINGS[name]) if name in ENCODINGS else HUGGING
    cut = -(-len(text) // MAX_PIECE)
    piece = counter.count(user(run * (MAX_PIECE // len(run))))
    assert piece * (cut - 1) <= counter.count(user(text)) <= piece * cut


# -- what is not there -------------------------------------------------------------------------------------------------


def test_an_encoding_is_named_or_that_of_a_model(monkeypatch):
    asked = []

    def get_encoding(name):
        asked.append(name)
        return encoding(name)

    monkeypatch.setattr(tiktoken, "get_encoding", get_encoding)
    assert Tiktoken("cl100k_base").name == "tiktoken cl100k_base"
    assert Tiktoken("gpt-4o").name == "tiktoken o200k_base"
    assert asked == ["cl100k_base", "o200k_base"]
    with pytest.raises(UnknownNameError, match="cl100k_base"):
        Tiktoken("nothing")


def test_an_encoding_that_cannot_be_fetched_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nobody listens there
    with pytest.raises(TransportError, match=r"r50k_base.*TIKTOKEN_CACHE_DIR"):
        Tiktoken("r50k_base")


def test_a_tokeniser_is_read_from_its_file(tmp_path):
    file = tmp_path / "tokenizer.json"
    byte_level().save(str(file))
    assert HuggingFace(file).count(user("the the")) == HUGGING.count(user("the the")) == 3
    assert HuggingFace(str(file)).name == "tokenizers tokenizer.json"
    assert repr(HUGGING) == "HuggingFace(tokenizers BPE)"
    file.write_text(json.dumps({"model": 1}), "utf-8")
    for path in (file, tmp_path / "none.json"):
        with pytest.raises(DecodeError, match=path.name):
            HuggingFace(path)


def test_the_tokeniser_that_is_given_stays_as_it_is():
    given_one = byte_level()
    given_one.enable_truncation(2)
    given_one.enable_padding(length=50)
    counter = HuggingFace(given_one)
    assert counter.count(user("a b c d")) == 7
    assert len(given_one.encode("a b c d").ids) == 50
    assert given_one.encode_special_tokens is False


def test_a_tokeniser_with_parts_in_python_is_refused():
    class Mine:
        def pre_tokenize(self, text):
            """Leave it."""

    given_one = byte_level()
    given_one.pre_tokenizer = tokenizers.pre_tokenizers.PreTokenizer.custom(Mine())
    with pytest.raises(MessageError, match="copied"):
        HuggingFace(given_one)


@pytest.mark.parametrize(("library", "made"), [("tiktoken", Tiktoken), ("tokenizers", HuggingFace)])
def test_a_library_that_is_not_installed_names_the_extra(monkeypatch, library, made):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingPackageError, match=rf"{library}.*palaver\[tokenizers\]"):
        made("x")


def test_counters_load_nothing_before_they_are_made():
    code = "import sys, palaver.tokens.tokenizers; print({'tiktoken', 'tokenizers', 'regex'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout.strip() == b"set()"
