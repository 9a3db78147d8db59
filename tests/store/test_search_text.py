import os
import sqlite3
from contextlib import closing

import pytest
from hypothesis import example, given, strategies as st
from msgspec import Raw

from palaver import (
    File,
    FlushMarker,
    Image,
    Json,
    MalformedToolCall,
    Opaque,
    Reasoning,
    Refusal,
    RescueMarker,
    StoreError,
    assistant,
    system,
    tool,
    tool_call,
    user,
)
from palaver.store import search_text
from palaver.store.search_text import MAX_BYTES, MAX_QUERY, MAX_TEXT, MAX_WORD, Terms
from palaver.testing.strategies import any_messages, odd_text

POSTGRES = os.environ.get("PALAVER_POSTGRES", "host=127.0.0.1 user=postgres dbname=test")

# -- what is searched --------------------------------------------------------------------------------------------------

SEARCHED = [
    (system("be brief"), "be brief"),
    (user("hello", File.from_bytes(b"x", "text/plain").replace(name="plan.txt")), "hello\nplan.txt"),
    (user("look", Image.from_bytes(b"picture")), "look"),
    (assistant(Reasoning("hmm", signature="proof", encrypted="secret"), "yes"), "hmm\nyes"),
    (assistant(Refusal("I will not")), "I will not"),
    (
        assistant(tool_call("find", '{"a\\u0062c": "one\\ntwo", "n": [48213, 5E-6, true, null]}', id="c")),
        "find\none\ntwo\n48213\n5E-6",
    ),
    (assistant(tool_call("find", "", id="c")), "find\n"),
    (assistant(tool_call("find", "{broken", id="c")), "find\n{broken"),
    (assistant(tool_call("run", "ls -l", id="c", custom=True)), "run\nls -l"),
    (assistant(MalformedToolCall('{"city": "Hus', "not JSON", name="weather")), 'weather\n{"city": "Hus'),
    (assistant(Opaque("elsewhere", Raw(b'{"type": "x", "text": "hidden"}'))), ""),
    (tool(Json(Raw(b'{"b": {"c": "deep"}, "d": "last"}')), id="c1"), "deep\nlast"),
    (RescueMarker(reason="lost the thread"), "lost the thread"),
    (FlushMarker(reason="start again"), "start again"),
    (user("before " + "QUJD" * 300 + " after"), "before   after"),
    (user("a" * 999), "a" * 999),
    (user("a" * (MAX_TEXT - 5), "second"), "a"),
]


@pytest.mark.parametrize(("message", "text"), SEARCHED[:-1])
def test_what_somebody_said_is_searched(message, text):
    assert search_text.searchable_text(message) == text


def test_provider_fields_are_not_searched():
    assert (
        search_text.searchable_text(user("hello").replace(provider_json=Raw(b'{"elsewhere": {"note": "hidden"}}')))
        == "hello"
    )


def test_only_the_beginning_of_a_message_is_searched():
    text = search_text.searchable_text(user("a " * (MAX_TEXT // 2 - 3), "second", "third"))
    assert len(text) <= MAX_TEXT
    assert text.endswith("\nsecon")
    assert len(search_text.searchable_text(user(*["b " * MAX_TEXT] * 3))) == MAX_TEXT


@given(any_messages(newer=True))
def test_every_message_has_a_text(message):
    assert len(search_text.searchable_text(message)) <= MAX_TEXT


# -- words -------------------------------------------------------------------------------------------------------------

WORDS = {
    "": "",
    " \t\n": "",
    "!?…": "",
    "Hello, World": "hello world",
    "snake_case": "snake case",
    "src/main.py:12": "src main py 12",
    "don't": "don t",
    "1e5 3.14": "1e5 3 14",
    "a\x00b\x1fc\x7fd": "a b c d",
    "a\u00a0b\u2028c\u3000d": "a b c d",
    "Été ETE e\u0301te\u0301": "ete ete ete",
    "Straße STRASSE": "strasse strasse",
    "İstanbul ISTANBUL": "istanbul istanbul",
    "ΣΊΣΥΦΟΣ": "σισυφοσ",
    "Ёлка й": "елка и",
    "שָׁלוֹם": "שלום",
    "مُحَمَّد": "محمد",
    "ﬁne Ａ１ ² ㎏": "fine a1 2 kg",
    "soft\u00adhyphen join\u200ded zero\u200bwidth": "softhyphen joined zero width",
    "❤\ufe0f 1\ufe0f\u20e3": "1",
    "東京タワー": "東 京 タ ワ ー",
    "v2の新機能": "v2 の 新 機 能",
    "か\u3099 が ｶﾞ": "が が ガ",
    "ขอบคุณ": "ข อ บ ค ุ ณ",
    "서울에서": "서울에서",
    "हिन्दी की का": "हिन्दी की का",
    "a\ud800b": "a b",
    "𝐁old": "bold",
}


@pytest.mark.parametrize("text", WORDS)
def test_a_text_has_its_words(text):
    assert search_text.normalize(text) == WORDS[text]
    assert search_text.words(text) == WORDS[text].split()


@given(odd_text(40) | st.text(max_size=40))
def test_normal_text_is_normal(text):
    normal = search_text.normalize(text)
    assert search_text.normalize(normal) == normal
    assert normal == " ".join(search_text.words(text))
    assert all(char == " " or not char.isascii() or char in "abcdefghijklmnopqrstuvwxyz0123456789" for char in normal)


@given(st.text(st.characters(max_codepoint=0x7F)), st.text(st.characters(max_codepoint=0x7F)))
def test_text_in_ascii_and_in_other_characters_is_read_alike(before, after):
    assert search_text.words(f"{before} é {after}") == [*search_text.words(before), "e", *search_text.words(after)]


@pytest.mark.parametrize("letter", ["a", "é", "\U00010428"])
def test_a_long_word_counts_by_its_beginning(letter):
    (word,) = search_text.words(letter * 3 * MAX_WORD)
    assert len(word) == MAX_WORD
    assert search_text.matches(search_text.parse(letter * 2 * MAX_WORD), word)
    assert not search_text.matches(search_text.parse(letter * (MAX_WORD - 1)), word)


def test_a_normal_text_ends_with_a_whole_word():
    normal = search_text.normalize("\U00020000" * MAX_TEXT)
    assert MAX_BYTES - 5 <= len(normal.encode()) <= MAX_BYTES
    assert set(search_text.words("\U00020000" * MAX_TEXT)) == {"\U00020000"}
    whole = "abc " * (MAX_BYTES // 4)
    assert search_text.normalize(whole) == whole.strip()


# -- queries -----------------------------------------------------------------------------------------------------------

QUERIES = {
    "": (),
    "One two": (" one ", " two "),
    '"one TWO" three': (" one two ", " three "),
    "be*": (" be",),
    "be**": (" be",),
    "*be": (" be ",),
    "b*e": (" b e ",),
    "foo_ba*": (" foo ba",),
    "foo_*": (" foo ",),
    "be *": (" be ",),
    '"to be*"': (" to be ",),
    '"to be': (" to be ",),
    'one"two three"four': (" one ", " two three ", " four "),
    '"" one': (" one ",),
    "snake_case": (" snake case ",),
    "foo-bar": (" foo bar ",),
    "東京*": (" 東 京 ",),
    "cafe\u0301*": (" cafe",),
    "a AND NOT b": (" a ", " and ", " not ", " b "),
    "one One ONE": (" one ",),
    "text:x ^y (z) a|b 'c'": (" text x ", " y ", " z ", " a b ", " c "),
}


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_is_read(query):
    assert search_text.parse(query) == Terms(QUERIES[query])


@pytest.mark.parametrize("query", ["*", '"', '""', "  ", "_ -", "\U0001f600", "\ud800"])
def test_a_query_without_a_word_is_refused(query):
    with pytest.raises(StoreError, match="there is no word in the query"):
        search_text.parse(query)


def test_a_query_has_a_limit():
    assert len(search_text.parse("a " * (MAX_QUERY // 2)).needles) == 1
    with pytest.raises(StoreError, match="the query has 10,001 characters; 10,000 are the most"):
        search_text.parse("a" * (MAX_QUERY + 1))


@pytest.mark.parametrize(
    ("query", "text", "found"),
    [
        ("", "", True),
        ("be", "to be or", True),
        ("be", "best", False),
        ("be*", "the best", True),
        ("be*", "maybe", False),
        ("or to", "to be or", True),
        ("or missing", "to be or", False),
        ('"be or"', "to be or", True),
        ('"to or"', "to be or", False),
        ('"be o"', "to be or", False),
        ("be_o*", "to be or", True),
        ("京都", "東京都", True),
        ("東都", "東京都", False),
    ],
)
def test_a_query_matches(query, text, found):
    assert search_text.matches(search_text.parse(query), search_text.normalize(text)) is found


# -- every index says the same -----------------------------------------------------------------------------------------

SYLLABLES = [
    "a",
    "b",
    "ab",
    "E",
    "é",
    "e\u0301",
    "1e5",
    "3.14",
    "007",
    "ß",
    "京",
    "都",
    "が",
    "ข",
    "서울",
    "की",
    "x_y",
    "-",
]
SYLLABLES += [
    "'",
    '"',
    "\\",
    ":",
    "&",
    "\u200d",
    "\U0001f600",
    "\ud800",
    "\x00",
    "q" * 300,
    "\U00010428",
    "http://a.b/c",
]
texts = st.lists(st.sampled_from(SYLLABLES) | st.sampled_from([" ", "\n"]), max_size=14).map("".join) | odd_text(30)
queries = st.lists(st.sampled_from([*SYLLABLES, " ", "*", '"']), min_size=1, max_size=6).map("".join)


def asked(query):
    try:
        return search_text.parse(query)
    except StoreError:
        return None


@pytest.fixture(scope="module")
def fts5():
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        db.execute("CREATE VIRTUAL TABLE t USING fts5 (text, content='', tokenize='ascii')")

        def find(text, terms):
            normal = search_text.normalize(text)
            db.execute("INSERT INTO t (rowid, text) VALUES (1, ?)", (normal,))
            found = db.execute("SELECT rowid FROM t WHERE t MATCH ?", (search_text.fts5(terms),)).fetchall()
            db.execute("INSERT INTO t (t, rowid, text) VALUES ('delete', 1, ?)", (normal,))
            assert db.execute("SELECT count(*) FROM t").fetchone() in {(0,), (1,)}
            return found == [(1,)]

        yield find


@pytest.fixture(scope="module")
def tsquery():
    psycopg = pytest.importorskip("psycopg")
    try:
        db = psycopg.connect(POSTGRES, autocommit=True, connect_timeout=30)
    except psycopg.OperationalError as error:
        pytest.skip(f"no PostgreSQL: {error}")

    def find(text, terms):
        query = "SELECT array_to_tsvector(%s::text[]) @@ %s::text::tsquery"
        return db.execute(query, (search_text.words(text), search_text.tsquery(terms))).fetchone() == (True,)

    with db:
        yield find


@given(texts, queries)
@example("ab " * 20_000 + "last", '"ab last"')
@example("京" * 20_000 + "都", "京都")
@example("q" * 3_000, "q" * 2_000)
@example("x" + "é" * 3_000, "xé*")
def test_sqlite_finds_what_matches(fts5, text, query):
    if terms := asked(query):
        assert fts5(text, terms) is search_text.matches(terms, search_text.normalize(text))


@pytest.mark.server
@given(texts, queries)
@example("q" * 3_000, "q" * 2_000)
@example("x" + "\U00010428" * 3_000, "x\U00010428*")
def test_postgres_finds_where_all_words_occur(tsquery, text, query):
    if terms := asked(query):
        single = [needle for phrase in terms.needles for needle in apart(phrase)]
        assert tsquery(text, terms) is search_text.matches(Terms(tuple(single)), search_text.normalize(text))


@pytest.mark.server
@given(texts, queries)
@example("京" * 20_000 + "都", "京都")
def test_postgres_loses_nothing_that_matches(tsquery, text, query):
    terms = asked(query)
    if terms and search_text.matches(terms, search_text.normalize(text)):
        assert tsquery(text, terms)


def apart(needle):
    """The needles of the words of a phrase."""
    *whole, last = needle[1:].split(" ")
    return [f" {word} " for word in whole] + ([f" {last}"] if last else [])


@pytest.mark.server
def test_postgres_takes_the_largest_text_and_the_longest_query(tsquery):
    letters = [chr(0x10428 + n) for n in range(40)]
    text = " ".join(a + b + c + d for a in letters for b in letters for c in letters for d in letters[:1])
    assert tsquery(text, search_text.parse(letters[3] * 3 + letters[0]))
    numbers = " ".join(map(str, range(1_950)))
    assert len(numbers) < MAX_QUERY
    assert tsquery(numbers, search_text.parse(numbers))
    assert not tsquery(numbers, search_text.parse("99999"))


def test_sqlite_takes_the_longest_query(fts5):
    numbers = " ".join(map(str, range(1_950)))
    assert fts5(numbers, search_text.parse(numbers))
    assert fts5(numbers, search_text.parse(f'"{numbers}"'))


# -- excerpts ----------------------------------------------------------------------------------------------------------

LONG = "one two three four five six seven eight nine ten " * 6


@pytest.mark.parametrize(
    ("query", "text", "excerpt"),
    [
        ("x", "", ""),
        ("", "short  text\n\n here ", "short text here"),
        ("nowhere", "short text", "short text"),
        ("a", "a" + " " * 300 + "b", "a…"),
        ("art", "heart " * 20 + "art", "…heart art"),
        ("q" * 300 + "_end", "one two " * 10 + "q" * 400 + " end", "…one two " + "q" * 39 + "…"),
        ("text", "  Some\n\tTEXT\u3000here ", "Some TEXT here"),
        ("zehn", LONG + "Zehn " + LONG, "…nine ten Zehn one two three four five six…"),
        ("zéhn", "é " * 90 + "ZE\u0301HN, é!", "…é é é é é ZE\u0301HN, é!"),
        ("tenn*", LONG + "tennis", "…nine ten tennis"),
        (
            "京都",
            "東京。" * 40 + "京都へ行く。" + "東京。" * 40,
            "…" + "東京。" * 4 + "京都へ行く。" + "東京。" * 9 + "東京…",
        ),
    ],
)
def test_an_excerpt_shows_the_first_match_as_it_was_written(query, text, excerpt):
    assert search_text.excerpt(search_text.parse(query), text, 48) == excerpt


@given(
    st.text(max_size=300),
    st.sampled_from(["needle", "nådel", "針", "เข็ม", "바늘", "и\u0301гла"]),
    st.text(max_size=300),
)
def test_an_excerpt_holds_what_was_found(before, word, after):
    terms = search_text.parse(word)
    found = search_text.excerpt(terms, f"{before} {word} {after}", 80)
    assert search_text.matches(terms, search_text.normalize(found))
    assert len(found) <= 80 + len("……")
