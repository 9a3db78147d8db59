"""What a prompt weighs and may weigh: chains, limits, the form of the answer, counters, and what results share."""

from __future__ import annotations

import base64
import struct
from typing import Any

import anyio
import pytest
import tiktoken

import palaver as p
from palaver.agent import Agent, Limits, function_tool
from palaver.context.plan import capacity
from palaver.core.errors import ContextOverflowError, OverloadedError
from palaver.models.catalogue import Capabilities, catalogue
from palaver.models.fallback import Fallback
from palaver.models.language_model import Prompt
from palaver.models.scripted import ScriptedModel
from palaver.threads import Thread
from palaver.tokens.tokenizers import Tiktoken
from palaver.turn.compaction import Compactor
from palaver.turn.events import ContextCompacted, Warned
from palaver.turn.middleware import RunContext
from palaver.turn.token_budget import TokenBudget
from tests.agent.scripts import assert_valid  # pyright: ignore[reportUnknownVariableType]

ENCODING = tiktoken.Encoding(
    "bytes", pat_str=r"\S+|\s+", mergeable_ranks={bytes([n]): n for n in range(256)}, special_tokens={}
)
"""A token for each byte."""
PNG = base64.b64encode(
    b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 2000, 1500) + b"\x08\x06\0\0\0"
).decode()


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: Any) -> Any:
    return request.param


def context(model: Any, thread: Any = None, **how: Any) -> Any:
    held = thread or Thread()
    return RunContext(
        agent="a",
        run="r",
        thread=held.id,
        deps=None,
        values={},
        path=held.path,
        emit=print,
        language_model=model,
        **how,
    )


LONG = "some words that say little. " * 1_000


def spoken(*runs: str, compactor: Compactor | None = None, limits: Limits | None = None, **can: Any) -> list[str]:
    """What is warned of in the runs of one conversation."""
    model = ScriptedModel([], then=lambda _: "Yes.", name="lab/small", capabilities=Capabilities(**can))
    agent = Agent(model, middleware=[compactor or Compactor()], limits=limits or Limits())
    thread, heard = Thread(), list[str]()

    async def work() -> None:
        previous = None
        for prompt in runs:
            how: dict[str, Any] = {"thread": thread} if previous is None else {"previous": previous}
            async with agent.stream(prompt, **how) as run:
                heard.extend([event.text async for event in run if isinstance(event, Warned)])
            previous = run.result

    anyio.run(work)
    return heard


def test_a_window_that_is_not_known_is_warned_of_once_with_how_to_set_it() -> None:
    heard = spoken("Hello.", LONG, LONG)
    assert len(heard) == 1
    assert "lab/small" in heard[0]
    assert "128,000" in heard[0]
    assert "Capabilities(window=…)" in heard[0]


@pytest.mark.parametrize(
    "how",
    [
        {"window": 50_000},
        {"compactor": Compactor(window=50_000)},
        {"limits": Limits(context_tokens=50_000)},
    ],
)
def test_a_window_that_somebody_set_is_not_warned_of(how: dict[str, Any]) -> None:
    assert spoken(LONG, **how) == []


def test_a_prompt_that_fits_any_window_is_not_warned_of() -> None:
    assert spoken("Hello.", "And then?") == []


def weighed(
    model: Any, *messages: Any, window: Any = None, counter: Any = None, limits: Limits | None = None, **prompt: Any
) -> Any:
    thread = Thread()
    thread.append(*messages)
    asked = Prompt(messages=thread.path().messages, **prompt)
    found = TokenBudget(model, window=window, counter=counter)
    around = context(model, thread, limits=limits or Limits())
    return found, asked, around, found.measure(asked, around)


def of(window: Any, *turns: Any, name: Any = "scripted", **how: Any) -> Any:
    return ScriptedModel(turns, name=name, capabilities=Capabilities(window=window, max_output=1_000), **how)


@pytest.mark.row("KAI-03")
def test_the_form_of_the_answer_is_part_of_the_prompt() -> None:
    schema = {"type": "object", "properties": {f"field {n}": {"type": "string"} for n in range(500)}}
    form = p.Settings(output=p.OutputFormat("json_schema", name="answer").replace(schema=schema))
    plain = weighed(of(None), p.user("Hi."))
    formed = weighed(of(None), p.user("Hi."), settings=form)
    assert formed[3].estimate - plain[3].estimate > 2_000


def test_a_counter_counts_in_place_of_the_estimate() -> None:
    text = "word " * 1_000
    counted = weighed(of(None), p.user(text), system=(p.system(text),), counter=Tiktoken(ENCODING))
    guessed = weighed(of(None), p.user(text), system=(p.system(text),))
    assert 2 * len(text) <= counted[3].estimate < 2.01 * len(text)
    assert guessed[3].estimate < len(text)
    assert list(counted[0].ledger.estimates) == [len(text)]


@pytest.mark.anyio
async def test_a_run_counts_with_the_counter_it_was_given() -> None:
    async def ran(**how: Any) -> Any:
        made = Agent(of(20_000, then="done"), middleware=[Compactor(**how)])
        async with made.stream("word " * 4_000) as running:
            return [event async for event in running if isinstance(event, ContextCompacted)]

    (compacted,) = await ran(counter=Tiktoken(ENCODING))
    assert compacted.before >= 15_000
    assert await ran() == []


def test_media_weigh_what_the_card_of_the_model_says() -> None:
    picture = p.user(p.Image(p.Inline(PNG)))
    known = {
        weighed(of(None, name=name), picture)[3].media
        for name in ("nobody/knows", *[f"{card.providers[0]}/{card.prefix}" for card in catalogue().cards])
    }
    assert len(known) > 1


def test_a_run_that_ends_at_a_context_has_no_more_room_than_that() -> None:
    found, asked, around, _ = weighed(of(200_000), p.user("Hi."), limits=Limits(context_tokens=5_000))
    assert found.capacity(asked, around) == 5_000
    free, asked, around, _ = weighed(of(200_000), p.user("Hi."))
    assert free.capacity(asked, around) == capacity(200_000, 1_000)


def test_of_a_chain_the_first_is_weighed_and_the_smallest_is_the_goal() -> None:
    chain = Fallback([of(200_000, name="openai/one"), Fallback([of(50_000, name="anthropic/two"), of(None)])])
    answer = p.assistant("It is.", model="one", usage=p.Usage(input=90_000, output=10))
    found, asked, around, measured = weighed(chain, p.user("Is it?"), answer, p.user("Sure?"))
    assert measured.tokens > 90_000, "what the first of the chain reports is heard"
    assert found.capacity(asked, around) == capacity(200_000, 1_000)
    assert found.goal(asked, measured) == capacity(50_000, 1_000)


@pytest.mark.anyio
async def test_a_chain_whose_second_model_reads_less_is_compacted_to_that() -> None:
    sizes: list[int] = []

    def second(prompt: Any) -> Any:
        if "<transcript>" in prompt.messages[-1].text:
            return "They talked."
        sizes.append(sum(len(message.text) for message in prompt.messages))
        return ContextOverflowError("w", "prompt is too long") if sizes[-1] > 100_000 else "done"

    def refused(_: Any) -> Any:
        return OverloadedError("w", "down", status=529)

    chain = Fallback([of(400_000, then=refused, name="one"), of(40_000, then=second, name="two")])
    thread = Thread()
    for n in range(60):
        thread.append(p.user(f"{n}: " + "text " * 1_600), p.assistant("Yes."))
    run = await Agent(chain, middleware=[Compactor(model=of(40_000, then=second))]).run("And?", thread=thread)
    assert run.ok, run.reason
    assert len(sizes) == 2
    assert sizes[0] > 400_000
    assert sizes[1] < 100_000


@pytest.mark.anyio
@pytest.mark.row("KAI-17")
@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("text", ["x", "語", "🙂 "])
async def test_many_huge_results_at_once_do_not_overflow_together(eager: Any, text: Any) -> None:
    @function_tool(effect="read")
    async def huge(n: int) -> str:
        """Get all."""
        await anyio.lowlevel.checkpoint()
        return f"{n}: " + text * 60_000

    calls = [p.ToolCall(f"c{n}", "huge", f'{{"n": {n}}}') for n in range(8)]
    model = of(60_000, p.assistant(*calls), "done")
    made = Agent(model, tools=[huge], middleware=[Compactor()], result_limit=None, eager=eager)
    run = await made.run("Get it.")
    assert run.ok
    asked = model.asked[1]
    assert_valid(asked.messages)
    found = TokenBudget(model, window=None, counter=None)
    around = context(model)
    assert found.measure(asked, around).tokens <= found.capacity(asked, around)
    results = [message for message in asked.messages if message.role == "tool"]
    assert len(results) == 8
    assert all("read_result" in each.text and len(each.text) > 300 for each in results)
