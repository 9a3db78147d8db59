"""What may be said to a session: texts, parts and messages. Anything else is refused at the call."""

import anyio
import pytest

import palaver as p
from palaver.core.errors import MessageError
from palaver.swarm import Policy, RateLimited, Scheduled, Swarm, connect
from palaver.swarm.extras.entry import complete
from tests.swarm.scripts import agent, at_work, last
from tests.swarm.slow import Callers, Slow

pytestmark = [pytest.mark.anyio, pytest.mark.finding("F-46")]

IMAGE = p.Image.from_url("https://example.org/y.png")
GIVEN = {
    "an image": (IMAGE, (IMAGE,)),
    "a text and an image": (["what is it?", IMAGE], (p.Text("what is it?"), IMAGE)),
    "a tuple": ((IMAGE, IMAGE), (IMAGE, IMAGE)),
    "a message": (p.user("what?", IMAGE, tags=("seen",)), (p.Text("what?"), IMAGE)),
}
WAYS = {
    "complete": lambda session, given: session.complete(given),
    "execute": lambda session, given: session.execute(given),
    "run": lambda session, given: session.run(given),
    "consult": lambda session, given: session.consult("A", given),
    "rated": lambda session, given: RateLimited(session).complete(given),
    "scheduled": lambda session, given: Scheduled(session).complete(given),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize(("given", "content"), GIVEN.values(), ids=GIVEN)
async def test_a_model_is_sent_the_parts_that_were_said(way, given, content):
    a = agent("A", lambda _: "ok")
    async with at_work(a) as it:
        assert await way(it.session, given) == "ok"
    assert last(a.model.asked[0]).content == content


@pytest.mark.parametrize(("given", "content"), GIVEN.values(), ids=GIVEN)
async def test_parts_are_committed(given, content):
    a = agent("A", lambda _: "ok")
    async with at_work(a) as it:
        assert await it.session.commit_user(given)
        (kept,) = it.session.messages
        assert (kept.content, kept.agent, kept.mode) == (content, "A", "user")
        await it.session.complete("and now?")
    assert [message.content for message in a.model.asked[0].messages[1:]] == [content, (p.Text("and now?"),)]


async def test_fields_of_a_message_are_kept_and_its_payload_is_that_of_the_turn():
    async with at_work(agent("A", lambda _: "ok")) as it:
        await it.session.complete(p.user("what?", tags=("seen",), payload={"id": 1}))
        await it.session.complete(p.user("what?", payload={"id": 1}), {"id": 2})
        assert [message.payload for message in it.session.user_history] == [{"id": 1}, {"id": 2}]
        assert it.session.user_history[0].tags == ("seen",)


async def test_policies_read_the_text_of_what_was_said():
    policy = Policy("polite", validate_input=lambda text, _: "bad" not in text, ban_message="no")
    async with at_work(agent("A", lambda _: "ok"), policies=[policy]) as it:
        assert await it.session.complete(["a bad word", IMAGE]) == "no"
        assert await it.session.complete(["a word", IMAGE]) == "ok"


WRONG = [
    None,
    5,
    b"x",
    bytearray(b"x"),
    ["x", b"y"],
    [],
    {"text": "x"},
    p.assistant("x"),
    p.tool_call("f", {}, id="call-1"),
    object(),
]


@pytest.mark.parametrize("way", [*WAYS.values(), lambda session, given: session.commit_user(given)])
@pytest.mark.parametrize("wrong", WRONG, ids=range(len(WRONG)))
async def test_anything_else_is_refused_at_the_call(way, wrong):
    async with at_work(agent("A")) as it:
        with pytest.raises(MessageError, match="message"):
            await way(it.session, wrong)
        assert it.session.messages == ()
        assert not it.session.busy
        assert await it.session.complete("x") == "echo:x"


async def test_a_wrong_message_beside_others_that_wait_fails_alone():
    slow = Slow()
    async with at_work(agent("A", slow)) as it, anyio.create_task_group() as group:
        scheduled, callers = Scheduled(it.session), Callers(group)
        await callers.says(scheduled.complete, "one")
        await callers.says(scheduled.complete, "two")
        with pytest.raises(MessageError):
            await scheduled.complete(b"three")
        slow.go.set()
        assert await callers.settled() == ["answer:one", "answer:two"]


@pytest.mark.parametrize(
    "say",
    [
        lambda session: session.emit(b"x"),
        lambda session: session.commit_assistant(b"x"),
        lambda session: session.commit_system(None),
        lambda session: session.commit_developer(5),
    ],
)
async def test_what_must_be_a_text_is_one(say):
    async with at_work(agent("A")) as it:
        with pytest.raises(MessageError, match="text: expected a string"):
            await say(it.session)
        assert it.session.messages == ()


@pytest.mark.parametrize("wrong", [None, 5, b"ann", ("ann",)])
async def test_the_id_of_a_client_is_a_text(wrong):
    async with Swarm("shop", [agent("A")]).start() as live:
        for call in (live.session, lambda client: connect(live, client, print)):
            with pytest.raises(TypeError, match="client"):
                call(wrong)
        with pytest.raises(TypeError, match="client"):
            await complete(live, "hi", wrong)
        assert live.clients == ()


@pytest.mark.parametrize("wrong", [5, b"1"])
async def test_the_name_of_a_turn_is_a_text(wrong):
    async with at_work(agent("A")) as it:
        with pytest.raises(TypeError, match="run"):
            await it.session.complete("hi", run=wrong)


@pytest.mark.finding("F-49")
async def test_the_last_text_of_an_agent_is_one_that_somebody_was_shown():
    slow = Slow()
    policy = Policy("polite", validate_output=lambda text, _: "secret" not in text, ban_message="no")
    async with at_work(agent("A", slow), policies=[policy]) as it, anyio.create_task_group() as group:
        callers = Callers(group)
        await callers.says(it.session.complete, "q")
        await it.session.cancel()
        slow.go.set()
        assert await callers.settled() == [""]
        assert it.session.last_assistant is None
        assert await it.session.complete("secret") == "no"
        assert it.session.last_assistant == "no"
        assert [message.text for message in it.session.assistant_history] == ["no"]
        assert [m.text for m in it.session.messages if m.role == "assistant"] == ["answer:q", "answer:secret", "no"]


@pytest.mark.finding("F-16")
@pytest.mark.parametrize("given", ["", " \n", [""], p.user(), p.user(" ")], ids=repr)
async def test_a_client_that_says_nothing_is_refused_and_no_model_is_asked(given):
    a = agent("A", lambda _: "ok")
    async with at_work(a) as it:
        with pytest.raises(MessageError, match="the text is empty"):
            await it.session.complete(given)
        assert it.session.messages == ()
        assert a.model.asked == []
        with pytest.raises(MessageError, match="the text is empty"):
            await it.session.complete(given, {"id": 1})  # no model sees a payload
        assert await it.session.complete(IMAGE) == "ok"


async def test_a_program_may_say_nothing_and_a_turn_goes_on():
    async with at_work(agent("A", lambda _: "ok")) as it:
        assert await it.session.execute("") == "ok"
