"""What a compaction says that it won is what the ledger measures next, and what the provider then counts.

The provider here counts as real ones do: text by its own tokeniser, media by the piece, and no reasoning of a turn that
is over. Its reports are all that the ledger is given of it.

Source: docs/spec/kairo.md#3.7 (I5, I6); law 9.
"""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from msgspec import Struct

import palaver as p
from palaver.agent import Agent, Compactor, compact
from palaver.core.errors import ContextOverflowError
from palaver.models.catalogue import Capabilities
from palaver.models.language_model import LanguageModel
from palaver.models.scripted import ScriptedModel
from palaver.threads.thread import Thread
from palaver.threads.view import EXPIRES_AGENT_STEP, EXPIRES_USER_PROMPT
from palaver.turn.events import ContextCompacted
from palaver.turn.journal import ReplayView
from tests.generated import examples

NAME = "scripted/model"
OTHER = "other/second"
THIRD = "third/one"
SUMMARY = "## State\nThey went on, and all is well so far."
IMAGE = p.Image(p.Inline("iVBORw0KGgo=" * 40), "image/png")
PROOF: dict[str, Any] = {"signature": "s" * 90, "wire": "anthropic_messages"}


class Provider(Struct, frozen=True):
    """Counts prompts. ``slope``: tokens for each of two sevenths of the text; ``fixed``: around every prompt."""

    slope: float
    fixed: int
    image: int

    def count(self, messages: Any) -> int:
        """Tokens of a prompt."""
        spoken = [at for at, m in enumerate(messages) if m.role == "user" and m.mode != "tool"]
        begins = spoken[-1] if spoken else -1
        text = media = 0
        for at, message in enumerate(messages):
            text += 20
            for part in message.content:
                match part:
                    case p.Image():
                        media += self.image
                    case p.Reasoning():
                        text += len(part.text) if at > begins else 0
                    case p.ToolCall():
                        text += len(part.arguments_json)
                    case _:
                        text += len(part.text)
        return round(self.slope * text * 2 / 7) + media + self.fixed


PROVIDERS = st.builds(
    Provider, slope=st.sampled_from([0.7, 0.9, 1.1]), fixed=st.sampled_from([0, 300]), image=st.just(1_000)
)
SIZES = st.sampled_from([60, 700, 3_000])


@st.composite
def conversations(draw: st.DrawFn, provider: Provider, *, reported: bool = True) -> list[p.Message]:
    """Turns with reasoning, images, tool rounds, and answers of several models, each reporting its prompt."""
    made: list[p.Message] = []

    def say(*parts: Any, name: str = NAME) -> None:
        sent = ReplayView()(thread_of(made).path())
        size = provider.count([*sent, p.assistant(*parts)]) - provider.count(sent)
        usage = p.Usage(input=provider.count(sent), output=size) if reported else None
        made.append(p.assistant(*parts, model=name, usage=usage))

    for turn in range(draw(st.integers(4, 9))):
        image = [IMAGE] if draw(st.integers(0, 4)) == 0 else []
        made.append(p.user(f"{turn}: " + "and what? " * (draw(SIZES) // 10), *image))
        if draw(st.integers(0, 3)) == 0:
            brief = draw(st.sampled_from([EXPIRES_AGENT_STEP, EXPIRES_USER_PROMPT]))
            made.append(p.user("for now " * (draw(SIZES) // 8), tags=(brief,), mode="tool"))
        name = draw(st.sampled_from([NAME, NAME, NAME, OTHER, THIRD])) if turn else NAME
        thought = p.Reasoning("thinking " * (draw(SIZES) // 3), **PROOF)
        if draw(st.booleans()):
            say(thought, p.ToolCall(f"c{turn}", "look", '{"at": 1}'), name=name)
            made.append(p.tool("seen it " * (draw(SIZES) // 8), tool_call_id=f"c{turn}"))
            say("so be it " * 9, name=name)
        else:
            say(thought, "answer " * (draw(SIZES) // 7), name=name)
    return made


def model(then: Any, window: int | None = None) -> LanguageModel:
    return ScriptedModel([], then=then, name=NAME, capabilities=Capabilities(window=window, max_output=1))


def summary_of(_: Any) -> str:
    return SUMMARY


def thread_of(messages: list[p.Message]) -> Thread:
    thread = Thread()
    thread.append(*messages)
    return thread


def taught(messages: Any, provider: Provider) -> bool:
    """Whether the model that is asked reported a prompt that tells of its tokeniser: no short one, and no images.

    Other models may have answered before and since.
    """
    whole = provider.count(messages)
    pictured = next((place for place, each in enumerate(messages) if IMAGE in each.content), len(messages))
    return any(
        each.role == "assistant"
        and each.model == NAME
        and each.usage is not None
        and provider.count(messages[:place]) > max(0.3 * whole, 500)
        for place, each in enumerate(messages[:pictured])
    )


def is_near(found: int, counted: int) -> bool:
    return abs(found - counted) <= 0.2 * counted + 150


@pytest.mark.finding("F-10")
@pytest.mark.row("KAI-08")
@given(data=st.data(), provider=PROVIDERS, share=st.sampled_from([0.2, 0.5, 0.8]), summed=st.booleans())
@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_after_is_what_is_measured_next_and_what_the_provider_counts(
    data: st.DataObject, provider: Provider, share: float, summed: bool
) -> None:
    thread = thread_of(data.draw(conversations(provider)))
    asked = model(summary_of)
    before = ReplayView()(thread.path())
    counted, tells = provider.count(before), taught(before, provider)

    async def compacted(*, to: int, trial: bool = False) -> Any:
        return await compact(thread, asked, to=to, summaries=summed, trial=trial)

    to = max(int(counted * share), 1)
    tried = anyio.run(lambda: compacted(to=to, trial=True))
    done = anyio.run(lambda: compacted(to=to))
    again = anyio.run(lambda: compacted(to=1, trial=True))
    assert (tried.before, tried.after) == (done.before, done.after)
    assert again.before == done.after
    if tells:
        assert is_near(done.before, counted)
        assert is_near(done.after, provider.count(ReplayView()(thread.path())))
    assert done.after < done.before or not done.changes
    assert not done.changes or done.changes[-1].after == done.after, "the record in the thread says another number"


@pytest.mark.finding("F-10")
@pytest.mark.row("KAI-08")
@given(data=st.data(), provider=PROVIDERS, reported=st.booleans(), share=st.sampled_from([0.4, 0.8, 1.1]))
@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_the_loop_says_what_the_next_report_says(
    data: st.DataObject, provider: Provider, reported: bool, share: float
) -> None:
    """The provider refuses what is too long for it, whatever anybody believes of its window."""
    thread = thread_of(data.draw(conversations(provider, reported=reported)))
    tells = taught(ReplayView()(thread.path()), provider)
    window = int(provider.count(ReplayView()(thread.path())) * share) + 600
    events: list[ContextCompacted] = []
    prompts: list[int] = []

    def answer(prompt: Any) -> Any:
        if "memory of an agent" in prompt.messages[0].text:
            return SUMMARY
        size = provider.count(prompt.messages)
        prompts.append(size)
        if size > window:
            return ContextOverflowError(NAME, "too long")
        return p.assistant("Done.", usage=p.Usage(input=size, output=2))

    run = anyio.run(
        lambda: Agent(model(answer, window * 2), middleware=[Compactor()]).run(
            "And now?", thread=thread, on_event=lambda e: events.append(e) if isinstance(e, ContextCompacted) else None
        )
    )
    assert run.ok, (run.reason, run.error)
    if events and tells:  # events arrive on their own time: the last one is of the last prompt
        assert is_near(events[-1].after, prompts[-1])
    assert all(event.after < event.before for event in events if event.changes)
    if len(prompts) > 1:  # it was asked again: with less
        assert events
        assert prompts[-1] < prompts[0]


@pytest.mark.finding("F-10")
@pytest.mark.row("KAI-08")
def test_reasoning_that_is_not_sent_is_not_won() -> None:
    thread = thread_of(
        [
            p.user("Task"),
            *[
                each
                for _ in range(10)
                for each in (
                    p.assistant("answer " * 200, reasoning=p.Reasoning("think " * 5_000, **PROOF)),
                    p.user("more " * 800),
                )
            ],
        ]
    )
    done = anyio.run(lambda: compact(thread, to=7_000))
    again = anyio.run(lambda: compact(thread, to=7_000, trial=True))
    assert done.after == again.before <= 7_000
    assert again.changes == ()


@pytest.mark.finding("F-10")
def test_a_prompt_that_was_too_long_is_not_sent_again_as_it_was() -> None:
    sizes: list[int] = []

    def answer(prompt: Any) -> Any:
        if "memory of an agent" in prompt.messages[0].text:
            return SUMMARY
        sizes.append(Provider(1.0, 0, 0).count(prompt.messages))
        return ContextOverflowError(NAME, "too long") if sizes[-1] > 12_000 else "Done."

    thread = thread_of([p.user("Task")])
    for _ in range(10):
        thread.append(p.assistant("answer " * 200, reasoning=p.Reasoning("think " * 1_000, **PROOF)))
        thread.append(p.user("more " * 800))
    run = anyio.run(lambda: Agent(model(answer), middleware=[Compactor()]).run("go on", thread=thread))
    assert run.ok
    assert sizes[1] <= sizes[0] // 2


@pytest.mark.finding("F-17")
def test_a_summary_of_a_summary_counts_all_that_went() -> None:
    thread = thread_of(
        [p.user("Task"), *[m for _ in range(30) for m in (p.assistant("I read it. " * 100), p.user("and? " * 90))]]
    )
    counts: list[Any] = []
    for to in (None, 1_000):
        anyio.run(lambda to=to: compact(thread, ScriptedModel(["Gist."]), to=to))
        counts += [m.payload["compaction"] for m in thread.path().messages if m.is_summary and not m.tags]
    first, second = counts
    assert second["messages"] > first["messages"]
    assert second["tokens"] > first["tokens"]


LEARNED = Provider(1.0, 0, 1_000)


def told(messages: list[p.Message], *parts: Any, name: str = NAME) -> p.Message:
    """An answer that reports its prompt."""
    sent = ReplayView()(thread_of(messages).path())
    size = LEARNED.count([*sent, p.assistant(*parts)]) - LEARNED.count(sent)
    return p.assistant(*parts, model=name, usage=p.Usage(input=LEARNED.count(sent), output=size))


def assert_weighed(messages: list[p.Message]) -> None:
    """Assert that a run and ``compact`` take the conversation for what the provider counts."""
    thread = thread_of(messages)
    counted = LEARNED.count(ReplayView()(thread.path()))
    found = anyio.run(lambda: compact(thread, model(None), to=1_000_000, trial=True)).before
    assert abs(found - counted) <= 0.1 * counted, (found, counted)


@pytest.mark.finding("F-10")
@pytest.mark.parametrize("brief", [EXPIRES_AGENT_STEP, EXPIRES_USER_PROMPT])
@pytest.mark.parametrize("image", [False, True])
def test_what_expired_is_not_counted(brief: str, image: bool) -> None:
    messages: list[p.Message] = [p.user("Task " * 2_000)]
    messages.append(told(messages, "Read. " * 300))
    messages.append(p.user("for now " * 3_000, *([IMAGE] * 3 if image else []), tags=(brief,), mode="tool"))
    messages.append(p.user("And?"))
    messages.append(told(messages, "Well. " * 300))
    assert_weighed([*messages, p.user("And now?")])


@pytest.mark.finding("F-10")
@pytest.mark.parametrize("names", [[OTHER] * 4, [OTHER, THIRD, OTHER], [OTHER, NAME, THIRD, THIRD]])
def test_what_other_models_thought_in_turns_that_are_over_is_not_counted(names: list[str]) -> None:
    messages: list[p.Message] = [p.user("Task " * 2_000)]
    messages.append(told(messages, "Read. " * 300))
    for name in names:
        messages.append(p.user("And?"))
        thought = p.Reasoning("thinking " * 1_500, **PROOF)
        messages.append(told(messages, thought, "Well. " * 100, name=name))
    assert_weighed([*messages, p.user("And now?")])
