"""People in the place of a model: questions, answers, and what becomes of questions that nobody waits for."""

import gc
import weakref

import anyio
import pytest
from trio.testing import MockClock

from palaver.swarm import SwarmAgent, navigation
from palaver.swarm.extras.operator import Operator
from tests.swarm.scripts import agent, at_work, calling

pytestmark = pytest.mark.anyio

MOCKED = pytest.mark.parametrize("anyio_backend", [("trio", {"clock": MockClock(autojump_threshold=0)})], ids=["trio"])


def person(operator, **more):
    return SwarmAgent("human", operator=operator, **more)


@pytest.mark.row("ASK-28")
async def test_a_person_answers_and_both_are_kept():
    desk = Operator()
    async with at_work(person(desk)) as it:

        async def sit():
            async for question in desk.inbox:
                assert (question.client, question.place.agent, question.text) == ("ann", "human", "anybody there?")
                assert desk.pending == (question,)
                assert question.answer("I am")
                assert not question.answer("twice")
                return

        async with anyio.create_task_group() as group:
            group.start_soon(sit)
            assert await it.session.complete("anybody there?") == "I am"
        assert it.log == ['user/user"anybody there?"', 'assistant"I am"']
        assert it.session.messages[1].source == "operator"
        assert desk.pending == ()


@pytest.mark.row("ASK-28")
@MOCKED
async def test_nobody_answers_in_time():
    desk = Operator(timeout=90)
    async with at_work(person(desk)) as it:
        began = anyio.current_time()
        assert await it.session.complete("hello?") == ""
        assert anyio.current_time() - began == pytest.approx(90)
        assert it.log == ['user/user"hello?"']
        assert desk.pending == ()
        async with anyio.create_task_group() as group:  # what is not answered is not in the inbox any more

            async def sit():
                question = await desk.take()
                assert question.text == "and now?"
                question.answer("now")

            group.start_soon(sit)
            assert await it.session.complete("and now?") == "now"


@pytest.mark.row("ASK-28")
async def test_a_new_message_disposes_of_the_question_before_it():
    desk = Operator(timeout=None)
    answers = []
    async with at_work(person(desk)) as it:

        async def say(text):
            answers.append(await it.session.complete(text))

        async with anyio.create_task_group() as group:
            group.start_soon(say, "one")
            first = await desk.take()
            await it.session.cancel()
            assert first.is_open  # a late answer is kept, though nobody is told it
            group.start_soon(say, "two")
            second = await desk.take()
            assert not first.is_open
            assert not first.answer("late")
            assert second.answer("in time")
    assert answers == ["", "in time"]


@pytest.mark.row("ASK-28")
async def test_a_late_answer_is_stored_and_not_emitted():
    desk = Operator(timeout=None)
    answers = []
    async with at_work(person(desk)) as it:

        async def say():
            answers.append(await it.session.complete("one"))

        async with anyio.create_task_group() as group:
            group.start_soon(say)
            first = await desk.take()
            await it.session.cancel()
        assert first.answer("late")
        await anyio.wait_all_tasks_blocked()
        assert answers == [""]
        assert it.log == ['user/user"one"', 'assistant"late" #discarded']


@pytest.mark.row("ASK-28", "ASK-30")
async def test_a_connector_that_raises_fails_the_turn_and_the_next_is_answered():
    broken = [True]

    def ring(question):
        if broken:
            raise OSError("the bell is cut")
        question.answer("yes?")

    async with at_work(person(Operator(on_question=ring))) as it:
        with pytest.raises(OSError, match="the bell is cut"):
            await it.session.complete("one")
        broken.clear()
        assert await it.session.complete("two") == "yes?"


async def test_a_question_that_nobody_takes_leaves_nothing():
    left = []
    desk = Operator(timeout=0, on_question=lambda question: left.append(weakref.ref(question)))
    async with at_work(person(desk)) as it:
        assert [await it.session.complete("hi") for _ in range(3)] == ["", "", ""]
        await anyio.wait_all_tasks_blocked()
    gc.collect()
    assert [each() for each in left] == [None, None, None]


async def test_clients_and_desks_do_not_disturb_each_other():
    desk = Operator()
    taken = []

    async def sit(name):
        async for question in desk.inbox:
            taken.append(question.client)
            question.answer(f"{question.client} by somebody" if name else "")

    async with at_work(person(desk)) as it, it.live.session("bob") as bob:
        got = {}

        async def say(session):
            got[session.client] = await session.complete("hi")

        async with anyio.create_task_group() as desks:
            for name in "xy":
                desks.start_soon(sit, name)
            async with anyio.create_task_group() as group:
                for session in (it.session, bob):
                    group.start_soon(say, session)
            desks.cancel_scope.cancel()
    assert got == {"ann": "ann by somebody", "bob": "bob by somebody"}
    assert sorted(taken) == ["ann", "bob"]


async def test_a_session_that_closes_disposes_of_its_question():
    desk = Operator(timeout=None)
    got = []
    async with at_work(person(desk)) as it:

        async def say():
            got.append(await it.session.complete("hi"))

        async with anyio.create_task_group() as group:
            group.start_soon(say)
            question = await desk.take()
            await it.session.close()
        await anyio.wait_all_tasks_blocked()
        assert not question.is_open
        assert desk.pending == ()
    assert got == [""]


@pytest.mark.row("ASK-28")
async def test_an_operator_without_a_message_gets_the_clients_last_one():
    desk = Operator()
    first = agent("A", lambda _: calling("to_human"), tools=[navigation("human")])
    async with at_work(first, person(desk)) as it, anyio.create_task_group() as group:

        async def sit():
            question = await desk.take()
            question.answer(f"you said: {question.text}")

        group.start_soon(sit)
        assert await it.session.complete("a person, please") == "you said: a person, please"
