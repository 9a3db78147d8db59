"""A chain of models: which failures go on to the next, who rests, and what is told."""

import anyio
import pytest

import palaver as p
from palaver.core.errors import (
    AuthenticationError,
    CapabilityError,
    ContextOverflowError,
    DecodeError,
    MessageError,
    OverloadedError,
    ProviderError,
    RateLimitError,
    StreamError,
    TimedOutError,
    TransportError,
)
from palaver.core.events import TextDelta
from palaver.models.catalogue import Capabilities
from palaver.models.fallback import HOPS, Fallback
from palaver.models.language_model import Notice, Prompt, complete
from palaver.models.scripted import Broken, ScriptedModel

PROMPT = Prompt(messages=(p.user("Hi"),))
WELL = "Hello."


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


class Time:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def failing(error, name="a/one", **fields):
    return ScriptedModel([], name=name, then=error, **fields)


def well(name="b/two", **fields):
    return ScriptedModel([], name=name, then=WELL, **fields)


async def asked(chain, *, stream=True, told=None, prompt=PROMPT):
    async with chain.session().ask(prompt, stream=stream, on_notice=told) as answer:
        return await answer.finish()


TORN = StreamError("", "cut", kind="torn", response=p.Response(p.assistant("")))
ON = [
    TransportError("refused"),
    TimedOutError("late", phase="first_token"),
    TORN,
    DecodeError("an HTML page"),
    OverloadedError("w", "busy", status=529),
    RateLimitError("w", "slow down", status=429),
    AuthenticationError.no_key("a", ("A_KEY",)),
    AuthenticationError("w", "wrong key", status=401),
    ContextOverflowError("w", "too long", status=400),
    CapabilityError("no images"),
    ProviderError("w", "no such model", status=404),
    ProviderError("w", "no credit", status=402),
    ProviderError("w", "Your credit balance is too low to access the API.", code="invalid_request_error", status=400),
    ProviderError("w", "You exceeded your plan.", code="insufficient_quota", status=400),
    ProviderError("w", "no credit", status=429),
]
STOP = [
    ProviderError("w", "bad request", status=400),
    ProviderError("w", "unprocessable", status=422),
    ProviderError("w", "an error inside an answer"),
    MessageError("built wrongly"),
]


@pytest.mark.anyio
@pytest.mark.parametrize("error", ON, ids=lambda error: f"{type(error).__name__}-{getattr(error, 'status', '')}")
async def test_what_another_model_may_do_better_goes_on_to_it(error):
    notices = []
    first, second = failing(error), well()
    reply = await asked(Fallback([first, second]), told=notices.append)
    assert reply.response.message.text == WELL
    assert reply.model == "b/two"
    unsent = isinstance(error, CapabilityError) or "no API key" in str(error)
    assert reply.attempts == (1 if unsent else 2)
    assert notices == [Notice(kind="fallback", model="a/one", error=error, attempt=1)]
    assert len(first.asked) == len(second.asked) == 1


@pytest.mark.anyio
@pytest.mark.parametrize("error", STOP, ids=lambda error: f"{type(error).__name__}-{getattr(error, 'status', '')}")
async def test_what_was_asked_wrongly_is_raised_and_nobody_else_is_asked(error):
    second = well()
    with pytest.raises(type(error)) as caught:
        await asked(Fallback([failing(error), second]))
    assert caught.value is error
    assert second.asked == []
    assert str(error).startswith(f"a/one: {type(error).__name__}: ")


def test_every_class_of_error_has_a_hop():
    assert set(HOPS.values()) == {"rest", "next", "bigger", "stop"}


@pytest.mark.anyio
async def test_when_all_fail_the_last_error_is_raised_and_names_the_others():
    last = OverloadedError("w", "busy", status=503)
    models = [
        failing(TransportError("refused")),
        failing(DecodeError("expected a string", path="id", source="openai_chat"), "b/two"),
        failing(last, "c/three"),
    ]
    for chain in (Fallback(models, rest=0.0), Fallback([models[0], Fallback(models[1:], rest=0.0)], rest=0.0)):
        for _ in range(2):
            with pytest.raises(OverloadedError) as caught:
                await asked(chain)
            assert caught.value is last
            assert str(last) == (
                "3 models failed: a/one: TransportError: refused; "
                "b/two: DecodeError: openai_chat: id: expected a string; "
                "c/three: OverloadedError: w: the provider answered 503: busy"
            )
            assert repr(last) == f"OverloadedError({str(last)!r})"
    assert (last.status, last.message) == (503, "busy")
    with pytest.raises(DecodeError, match=r"^2 models failed: c/three: .*; b/two: .*: expected a string$"):
        await asked(Fallback([models[2], models[1]]))


def test_a_chain_of_none_is_refused():
    with pytest.raises(MessageError):
        Fallback([])


# -- before anything was given out --


@pytest.mark.anyio
async def test_an_answer_that_breaks_before_content_is_given_by_the_next_model():
    chain = Fallback([failing(Broken(p.assistant())), well()])
    async with chain.session().ask(PROMPT) as answer:
        events = [event async for event in answer]
        reply = await answer.finish()
    assert [event.text for event in events if isinstance(event, TextDelta)] == [WELL]
    assert reply.model == "b/two"


async def _take(answer, got):
    async for event in answer:
        got.append(event)


@pytest.mark.anyio
async def test_nothing_goes_on_after_something_was_given_out():
    second = well()
    chain = Fallback([failing(Broken(p.assistant("Hel"))), second])
    got = []
    async with chain.session().ask(PROMPT) as answer:
        with pytest.raises(StreamError) as caught:
            await _take(answer, got)
    assert any(isinstance(event, TextDelta) for event in got)
    assert caught.value.response.message.text == "Hel"
    assert second.asked == []


@pytest.mark.anyio
async def test_the_whole_is_not_another_model_s_once_a_part_was_given_out():
    second = well()
    chain = Fallback([failing(Broken(p.assistant("Hel"))), second])
    async with chain.session().ask(PROMPT) as answer:
        await anext(answer)
        with pytest.raises(StreamError):
            await answer.finish()
    assert second.asked == []


@pytest.mark.anyio
async def test_who_only_waits_for_the_whole_gets_it_from_the_next_model():
    reply = await asked(Fallback([failing(Broken(p.assistant("Hel"))), well()]))
    assert reply.response.message.text == WELL
    assert (await complete(Fallback([failing(TORN), well()]), PROMPT.request())).model == "b/two"


@pytest.mark.anyio
async def test_each_event_is_given_out_once_and_finish_gives_the_whole():
    chain = Fallback([well()])
    async with chain.session().ask(PROMPT) as answer:
        assert answer.so_far is not None
        events = [event async for event in answer]
        assert [event async for event in answer] == []
        assert (await answer.finish()).response.message.text == WELL
    async with well().session().ask(PROMPT) as plain:
        assert events == [event async for event in plain]


@pytest.mark.anyio
async def test_being_cancelled_is_no_failure():
    second = well()
    chain = Fallback([ScriptedModel([], then=WELL, delay=60), second])
    with anyio.move_on_after(0.02) as scope:
        await asked(chain)
    assert scope.cancelled_caught
    assert second.asked == []


# -- resting --


@pytest.mark.anyio
async def test_a_model_that_failed_rests_and_is_asked_again_later():
    time = Time()
    first = ScriptedModel([TransportError("refused"), "Back."], name="a/one")
    chain = Fallback([first, well()], rest=60, clock=time)
    session = chain.session()
    answers = []
    for moment in (100, 159, 161):
        time.now = moment
        async with session.ask(PROMPT) as answer:
            answers.append((await answer.finish()).model)
    assert answers == ["b/two", "b/two", "a/one"]
    assert len(first.asked) == 2


@pytest.mark.anyio
async def test_a_model_rests_as_long_as_its_provider_says_and_for_all_conversations():
    time = Time()
    limited = RateLimitError("w", "slow", status=429, retry_after=300)
    chain = Fallback([ScriptedModel([limited, "Back."], name="a/one"), well()], rest=60, clock=time)
    assert (await asked(chain)).model == "b/two"
    time.now += 299
    assert (await asked(chain)).model == "b/two"
    time.now += 2
    assert (await asked(chain)).model == "a/one"


@pytest.mark.anyio
async def test_a_resting_model_is_asked_when_nobody_else_is_left():
    chain = Fallback(
        [
            ScriptedModel([TransportError("refused"), "Back."], name="a/one"),
            ScriptedModel(["Second.", OverloadedError("w", "busy")], name="b/two"),
        ],
        clock=Time(),
    )
    assert [(await asked(chain)).model for _ in range(2)] == ["b/two", "a/one"]


@pytest.mark.anyio
@pytest.mark.parametrize("error", [ContextOverflowError("w", "too long"), CapabilityError("no images")])
async def test_a_model_for_which_the_prompt_was_too_much_does_not_rest(error):
    first = ScriptedModel([error, "Short."], name="a/one")
    chain = Fallback([first, well()], clock=Time())
    assert [(await asked(chain)).model for _ in range(2)] == ["b/two", "a/one"]


@pytest.mark.anyio
async def test_what_was_too_long_is_not_asked_of_a_model_known_to_read_as_little():
    overflow = ContextOverflowError("w", "too long")
    same = well("b/same", capabilities=Capabilities(window=100))
    bigger = well("c/bigger", capabilities=Capabilities(window=200))
    chain = Fallback([failing(overflow, capabilities=Capabilities(window=100)), same, bigger])
    assert (await asked(chain)).model == "c/bigger"
    assert same.asked == []
    chain = Fallback([failing(overflow, capabilities=Capabilities(window=100)), same])
    with pytest.raises(ContextOverflowError) as caught:
        await asked(chain)
    assert caught.value is overflow
    chain = Fallback([failing(overflow), same])
    assert (await asked(chain)).model == "b/same"


@pytest.mark.anyio
async def test_seconds_count_from_the_first_model_asked():
    time = Time()

    def fails(_):
        time.now += 2
        return TransportError("refused")

    chain = Fallback([ScriptedModel([fails], name="a/one"), well()], clock=time)
    reply = await asked(chain)
    assert reply.seconds == 2


def test_a_chain_is_named_by_its_models_and_can_what_its_first_can():
    chain = Fallback([well("a/one", capabilities=Capabilities(window=5)), well()])
    assert chain.name == "a/one > b/two"
    assert chain.capabilities.window == 5
    assert repr(chain) == "Fallback(a/one > b/two)"
