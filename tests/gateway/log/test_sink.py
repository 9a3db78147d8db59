"""Exchanges in the store and in the table: each message once, the very bytes, and nothing twice."""

from uuid import UUID

import pytest
from hypothesis import given, settings, strategies as st
from msgspec import structs

from palaver import Request, Usage, assistant, system, user
from palaver.core.errors import NotFoundError, UnavailableError
from palaver.core.request import Loss
from palaver.gateway.database import open_database
from palaver.gateway.log import exchanges, logged
from palaver.gateway.log.exchanges import Exchanges
from palaver.gateway.log.logged import LoggedAttempt
from palaver.gateway.log.options import LogOptions
from palaver.gateway.log.sink import Sink
from palaver.store.postgres import PostgresStore
from palaver.threads.ids import now_ms
from tests.gateway.log.logs import answered, exchange, write
from tests.store.postgres.server import CONNINFO, fresh_schema

SYSTEM = system("You are a sailor. " * 400)


def turns(count, *, wire="anthropic_messages", start=(), name=""):
    """Exchanges of a conversation that is sent whole each time."""
    messages = [SYSTEM, *start]
    for place in range(count):
        messages.append(user(f"{name} question {place}"))
        answer = answered(f"{name} answer {place}")
        yield exchange(wire, Request(messages=tuple(messages), model="fast"), answer)
        messages.append(assistant(f"{name} answer {place}"))


def texts(store, thread, branch="main"):
    return [each.message.text for each in store.path(thread, branch)]


@pytest.mark.row("GW-33")
def test_a_conversation_that_is_sent_whole_each_turn_is_one_thread_of_new_messages(sink, places):
    several = list(turns(40))
    threads = {write(sink, each).thread for each in several}
    assert len(threads) == 1
    with places.opened_store() as store:
        (thread,) = threads
        info = store.info(thread)
        assert (info.title, info.tags, info.length, set(info.branches)) == ("question 0", ("gateway",), 81, {"main"})
        assert texts(store, thread)[1:4] == [" question 0", " answer 0", " question 1"]
        assert store.path(thread)[-1].message.metadata["exchange"] == several[-1].id
        assert store.verify().ok
    sent = sum(len(each.request) for each in several)
    stored = sum(len(row[0]) for row in sink._database.run(lambda it: it.rows("SELECT bodies FROM {s}.log_exchanges")))
    assert stored < sent / 40


@pytest.mark.row("GW-33")
def test_the_bytes_of_both_sides_come_back(sink, monkeypatch):
    monkeypatch.setattr(exchanges, "_FULL", 7)
    several = list(turns(20))
    for place, each in enumerate(several):
        write(sink, each)
        if place == 10:
            sink.exchanges = Exchanges(sink._database)  # as after a start: nothing is in memory
    for each in several:
        found = sink.exchanges.read(each.id)
        assert (found.bodies.request, found.bodies.received) == (each.request, each.received)
        assert (found.bodies.sent, found.bodies.returned) == (each.request, each.received)


BODY = st.lists(st.sampled_from([b"", b"a", b"one piece " * 9, b"another " * 12, bytes(range(99))]), max_size=4).map(
    b"".join
)


@settings(max_examples=60)
@given(st.lists(st.tuples(BODY, st.none() | BODY, BODY, st.none() | BODY, st.booleans()), max_size=6))
def test_any_bytes_come_back(tmp_path_factory, several):
    database = open_database(str(tmp_path_factory.mktemp("any") / "g.db"))
    table = Exchanges(database)
    given = [
        exchange("openai_chat", request, None, sent=sent, received=received, returned=returned, translated=translated)
        for request, sent, received, returned, translated in several
    ]
    for each in given:
        table.add([(each, logged.Figures(), exchanges.conversations.Placed())])
    for each in given:
        found = table.read(each.id).bodies
        assert (found.request, found.received) == (each.request, each.received)
        assert found.sent == (each.request if each.sent is None else each.sent)
        assert found.returned == (each.received if each.returned is None else each.returned)
    database.close()


@st.composite
def conversations(draw):
    """Exchanges that begin histories, continue them, edit them, and end well or not."""
    made, several = [()], []
    for place in range(draw(st.integers(1, 8))):
        history = draw(st.sampled_from(made))
        history = history[: draw(st.integers(0, len(history)))]
        asked = (*history, user(draw(st.sampled_from("abc"))))
        answer = draw(st.sampled_from("xy"))
        outcome = draw(st.sampled_from(["answered", "answered", "answered", "cancelled", "failed"]))
        request = Request(messages=(system("Be brief."), *asked), model="fast")
        given = exchange("openai_chat", request, answered(answer), outcome=outcome, id=str(UUID(int=place)))
        several.append(
            structs.replace(given, at=given.at + place, received=b"" if outcome == "failed" else given.received)
        )
        made.append((*asked, assistant(answer)))
    return several


def state(sink):
    """All that a sink has written."""
    threads = {each.id: (each, list(sink._store.read(each.id))) for each in sink._store.threads()}
    links = sink._database.run(lambda it: it.rows("SELECT * FROM {s}.log_links ORDER BY link"))
    return threads, links, [sink.exchanges.read(each.id) for each in sink.exchanges.recent(100)]


def write_in_vain(sink, data):
    """Write a batch to the store, and not to the database, as if the process had died between them."""

    def fail(_):
        raise UnavailableError("the process dies")

    add, sink.exchanges.add = sink.exchanges.add, fail
    with pytest.raises(UnavailableError):
        sink.write(data)
    sink.exchanges.add = add


@pytest.mark.row("GW-36")
@settings(max_examples=40, deadline=None)
@given(conversations(), st.integers(0, 8), st.booleans())
def test_a_batch_writes_what_its_exchanges_write_one_by_one(tmp_path_factory, several, cut, died):
    folder = tmp_path_factory.mktemp("batches")
    data = [logged.encode(each) for each in several]
    found = []
    for name in ("single", "batch"):
        sink = Sink(LogOptions(store=str(folder / f"{name}.db")), str(folder / f"{name}-g.db"))
        for batch in [data[:cut], data[cut:]] if name == "batch" else [[each] for each in data]:
            if died and name == "batch" and batch:
                write_in_vain(sink, batch)
            sink.write(batch, again=died)
        found.append(state(sink))
        sink.close()
    assert found[0] == found[1]


@pytest.mark.row("GW-33")
def test_a_history_that_differs_in_the_middle_is_a_branch_there(sink, places):
    first = list(turns(3))
    for each in first:
        write(sink, each)
    edited = (SYSTEM, user(" question 0"), assistant(" answer 0"), user("another one"))
    other = exchange("anthropic_messages", Request(messages=edited, model="fast"), answered("another answer"))
    thread = write(sink, other).thread
    with places.opened_store() as store:
        info = store.info(thread)
        (branch,) = set(info.branches) - {"main"}
        assert texts(store, thread)[1:] == [" question 0", " answer 0", "another one", "another answer"]
        assert texts(store, thread, branch)[-1] == " answer 2"
        assert info.length == 9
    (*_, continued) = turns(4)
    assert write(sink, continued).thread == thread
    with places.opened_store() as store:
        assert texts(store, thread, branch)[-1] == " answer 3"
        assert texts(store, thread)[-1] == "another answer"


def test_the_same_question_and_the_same_examples_begin_threads_of_their_own(sink):
    examples = (user("2+2"), assistant("4"))
    found = [write(sink, each).thread for _ in range(3) for each in turns(1, start=examples)]
    assert len(set(found)) == 3


def test_two_callers_never_share_a_thread(sink):
    one = [write(sink, each).thread for each in turns(2)]
    other = [write(sink, structs.replace(each, caller="key-2")).thread for each in turns(2)]
    assert len({*one, *other}) == 2


@pytest.mark.row("GW-36")
def test_an_exchange_that_is_written_again_changes_nothing(sink, places):
    several = list(turns(3))
    for each in several:
        write(sink, each)
    with places.opened_store() as store:
        before = [(each, store.read(each.id)) for each in store.threads()]
    for each in several:
        write(sink, each)
    last = several[-1].id  # as if the process had died between store and table
    entry = sink.exchanges.find(last).entry
    sink._database.run(lambda it: it.rows("DELETE FROM {s}.log_exchanges WHERE id = ?", last))
    sink._database.run(lambda it: it.rows("DELETE FROM {s}.log_links WHERE entry = ?", entry))
    for each in several:
        sink.write([logged.encode(each)], again=True)
    with places.opened_store() as store:
        assert [(each, store.read(each.id)) for each in store.threads()] == before
    assert len(sink.exchanges.recent(100)) == 3


def test_a_partial_answer_is_on_a_branch_of_its_own(sink, places):
    one, two = turns(2)
    thread = write(sink, one).thread
    assert write(sink, structs.replace(two, outcome="cancelled")).thread == thread
    with places.opened_store() as store:
        assert texts(store, thread)[-1] == " question 1"
        assert texts(store, thread, f"partial-{two.id[-12:]}")[-1] == " answer 1"
    again = structs.replace(two, id=one.id[:-4] + "0000")
    assert write(sink, again).thread == thread
    with places.opened_store() as store:
        assert texts(store, thread)[-1] == " answer 1"


@pytest.mark.parametrize("outcome", ["refused", "failed"])
def test_an_exchange_without_an_answer_is_in_the_table_only(sink, places, outcome):
    (one,) = turns(1)
    failed = structs.replace(one, outcome=outcome, received=b"", status=502, error="TransportError: refused")
    assert write(sink, failed).thread is None
    found = sink.exchanges.read(failed.id)
    assert (found.summary.error, found.summary.status) == ("TransportError: refused", 502)
    assert found.bodies.request == one.request
    with places.opened_store() as store:
        assert list(store.threads()) == []


@pytest.mark.parametrize("body", [b"{", b"", b'{"messages": 3}'])
def test_a_request_that_cannot_be_read_is_kept_as_bytes(sink, body):
    found = write(
        sink, exchange("anthropic_messages", body, None, outcome="refused", status=400, model=None, wire=None)
    )
    assert sink.exchanges.read(found.id).bodies.request == body


@pytest.mark.row("GW-34")
def test_an_exchange_costs_what_the_catalogue_says_of_the_model_that_answered(sink):
    usage = Usage(input=1_000_000, output=100_000, cache_read=1_000_000)
    answer = answered("x", usage=usage)
    request = Request(messages=(user("Hi"),), model="fast")
    found = write(sink, exchange("anthropic_messages", request, answer, model="anthropic/claude-sonnet-4-5"))
    assert (found.input, found.output, found.cache_read) == (1_000_000, 100_000, 1_000_000)
    assert found.cost == pytest.approx(logged.figures("anthropic/claude-sonnet-4-5", usage).cost)
    assert found.cost > 0
    assert write(sink, exchange("anthropic_messages", request, answer, model="own/unknown")).cost is None


@pytest.mark.row("GW-09")
def test_the_receipt_is_there_whole(sink):
    (one,) = turns(1)
    losses = [Loss("dropped", "thinking", "unknown there"), Loss("converted", "image", "as text", 3, 1)]
    attempts = [LoggedAttempt("a/b", "openai_chat", "RateLimitError: slow"), LoggedAttempt("c/d", "openai_chat")]
    each = structs.replace(one, losses=losses, attempts=attempts, translated=True, headers={"user-agent": "x"})
    write(sink, each)
    found = sink.exchanges.read(each.id)
    assert (found.receipt.losses, found.receipt.attempts) == (losses, attempts)
    assert found.receipt.headers == {"user-agent": "x"}
    assert found.summary.losses == 2


def test_an_exchange_is_named_by_the_end_of_its_id(sink):
    one, two = turns(2)
    write(sink, one)
    write(sink, two)
    assert sink.exchanges.find(one.id[-12:]).id == one.id
    for unknown in ("", "%", "____", "nothing", one.id[:6]):
        with pytest.raises(NotFoundError):
            sink.exchanges.find(unknown)


@pytest.mark.row("GW-35")
def test_what_is_older_than_it_may_be_is_deleted_and_the_rest_can_be_read(places):
    options = LogOptions(store=places.store, keep_days=1)
    sink = Sink(options, places.database)
    old = [write(sink, each).id for each in turns(3)]
    now = now_ms()
    new = [structs.replace(each, at=now, id=each.id[:-3] + "abc") for each in turns(2, name="new")]
    for each in new:
        write(sink, each)
    with places.opened_store() as store:
        store.create("of somebody else", title="stays")
    assert sink.retain() == len(old)
    assert {each.id for each in sink.exchanges.recent(100)} == {each.id for each in new}
    for each in new:
        assert sink.exchanges.read(each.id).bodies.request == each.request
    sink.close()
    with places.opened_store() as store:
        assert store.info("of somebody else").title == "stays"
        assert store.verify().ok


@pytest.mark.server
def test_the_log_is_the_same_in_postgresql(monkeypatch):
    with fresh_schema() as schema:
        monkeypatch.setattr("palaver.gateway.log.sink.open_database", lambda at: open_database(at, schema=schema))
        monkeypatch.setattr(
            "palaver.gateway.log.sink.open_store",
            lambda at: PostgresStore(at, schema=f"{schema} store"),
        )
        sink = Sink(LogOptions(store=CONNINFO, keep_days=1), CONNINFO)
        several = list(turns(5))
        assert len({write(sink, each).thread for each in several}) == 1
        assert sink.exchanges.read(several[-1].id).bodies.request == several[-1].request
        assert sink._store.verify().ok
        assert sink.exchanges.delete_before(now_ms()) == 5
        sink._database.run(lambda it: it.rows(f'DROP SCHEMA IF EXISTS "{schema} store" CASCADE'))
        sink.close()
