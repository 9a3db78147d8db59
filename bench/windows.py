"""Case: a run of many turns in a small window, and what each way of keeping it small sends.

Rules:

- The provider is in the process (``provider.py``) and the same for all: what a contender sends are the bodies of its
  own client, palaver's ``Model`` or OpenAI's. The run begins with five messages: the task, a fact that is marked
  verbatim in palaver and stands there as any other message in the peers, and a word to begin.
- Nobody cuts a result when it comes: palaver's limit of 6,000 characters is lifted.
- The window has 64,000 tokens, of which ``palaver.context.plan`` leaves ``ROOM`` for a prompt. Whoever takes a size in
  tokens is given the same: a trigger of 85 % of it to summarise from (palaver's ``SUMMARY_ONLY`` has that), all of it
  to trim to. Whoever counts messages gets as many as fit on the average. All else is the default, or as guides show.
- The cached share is that of bytes that stand at the beginning of a request as they stood in the one before, among all
  that were sent, to summarise too. Compared is what a model reads, tools first, so that the order of keys in a body
  does not count. It is what a provider's cache could serve, not what one does.
- A request that does not begin with all of the one before is a break of the prefix. For who compacts now and then that
  is the number of compactions; who moves the window breaks it each turn.
- The run is the same each time: it is made once, and has no spread.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import prefixes
import provider
from measure import Row, Spread, describe
from provider import FACT, GO, TASK, YES, Provider
from rounds import loop
from runners import FOUND, SYSTEM, following

import palaver
from palaver.agent.agent import Agent
from palaver.context.compaction import DEFAULT, SUMMARY_ONLY
from palaver.context.plan import capacity
from palaver.models.catalogue import Capabilities
from palaver.models.endpoint import Endpoint
from palaver.models.http import Http
from palaver.models.http_model import Model
from palaver.testing.rules import check_request
from palaver.turn.compaction import Compactor
from palaver.turn.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from palaver.context.plan import Stage

WINDOW = 64_000
OUTPUT = 8_192
ROOM = capacity(WINDOW, OUTPUT)
TRIGGER = int(SUMMARY_ONLY.share * ROOM)
NEWEST = 20
"""Messages that stay behind a summary: the default of ``SummarizationMiddleware``."""
FITTING = 60
"""Messages of this run that fit, on the average."""
_FOREVER = 1_000_000


@dataclass(frozen=True)
class Way:
    """A way to keep a run within its window. ``play`` runs it against a provider, and gives the answer."""

    name: str
    play: Callable[[Provider], Awaitable[str]]
    note: str = ""


# -- palaver -----------------------------------------------------------------------------------------------------------


def _palaver(stages: Sequence[Stage] | None, window: int = WINDOW) -> Callable[[Provider], Awaitable[str]]:
    async def play(given: Provider) -> str:
        import httpx

        async with httpx.AsyncClient(transport=given.transport(httpx)) as client, Http(client) as http:
            model = Model(
                name=f"none/{provider.MODEL}",
                id=provider.MODEL,
                endpoint=Endpoint(provider_name="none", wire="openai_chat", url="https://provider.invalid/v1/chat"),
                capabilities=Capabilities(window=window, max_output=OUTPUT),
                http=http,
            )
            agent = Agent(
                model,
                instructions=SYSTEM,
                tools=[provider.tool()],
                limits=Limits(iterations=_FOREVER),
                middleware=[] if stages is None else [Compactor(stages)],
                result_limit=None,
                stream=False,
            )
            run = await agent.run(
                [
                    palaver.user(TASK),
                    palaver.assistant(YES),
                    palaver.user(FACT, verbatim=True),
                    palaver.assistant(YES),
                    palaver.user(GO),
                ]
            )
            return run.text

    return play


# -- peers -------------------------------------------------------------------------------------------------------------


def _langchain(middleware: Callable[[Any], Any]) -> Callable[[Provider], Awaitable[str]]:
    async def play(given: Provider) -> str:
        import httpx2
        from langchain.agents import create_agent
        from langchain_core.messages import AIMessage, HumanMessage
        from langchain_openai import ChatOpenAI

        http = httpx2.AsyncClient(transport=given.transport(httpx2))
        model: Any = ChatOpenAI(model=provider.MODEL, api_key="none", http_async_client=http, max_retries=0)  # type: ignore[arg-type]
        made: Any = create_agent(model, tools=[provider.tool()], system_prompt=SYSTEM, middleware=[middleware(model)])
        said = [HumanMessage(TASK), AIMessage(YES), HumanMessage(FACT), AIMessage(YES), HumanMessage(GO)]
        state = await made.ainvoke({"messages": said}, {"recursion_limit": _FOREVER})
        return state["messages"][-1].text

    return play


def _summarization(most: int | None) -> Callable[[Any], Any]:
    """With ``most`` tokens of what is to be summarised; 4,000 is the default."""

    def middleware(model: Any) -> Any:
        from langchain.agents.middleware import SummarizationMiddleware

        trigger = ("tokens", TRIGGER)
        return SummarizationMiddleware(model, trigger=trigger, keep=("messages", NEWEST), trim_tokens_to_summarize=most)

    return middleware


def _trimming(_model: Any) -> Any:
    from langchain.agents.middleware import before_model
    from langchain_core.messages import RemoveMessage, trim_messages
    from langgraph.graph.message import REMOVE_ALL_MESSAGES

    def trim(state: Any, runtime: Any) -> Any:  # noqa: ARG001 (it is called so)
        newest = trim_messages(
            state["messages"],
            strategy="last",
            token_counter="approximate",  # noqa: S106 (no password)
            max_tokens=ROOM,
            start_on=("human", "ai"),
        )
        return {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), *newest]}

    return before_model(trim)


def _pydantic_ai(processor: Callable[[Any], Any]) -> Callable[[Provider], Awaitable[str]]:
    async def play(given: Provider) -> str:
        from pydantic_ai import Agent as PydanticAgent
        from pydantic_ai.capabilities import ProcessHistory
        from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai import OpenAIProvider
        from pydantic_ai.usage import UsageLimits

        model = OpenAIChatModel(provider.MODEL, provider=OpenAIProvider(openai_client=given.client()))
        capabilities = [ProcessHistory(processor(model))]
        made: Any = PydanticAgent(model, instructions=SYSTEM, tools=[provider.tool()], capabilities=capabilities)
        said: list[Any] = []
        for text in (TASK, FACT):
            said += [ModelRequest.user_text_prompt(text), ModelResponse([TextPart(YES)])]
        limits = UsageLimits(request_limit=None)
        run = await made.run(GO, message_history=said, usage_limits=limits)
        return run.output

    return play


def _newest(count: int) -> Callable[[Any], Any]:
    def processor(_model: Any) -> Any:
        async def keep(messages: list[Any]) -> list[Any]:
            return messages[-count:]

        return keep

    return processor


def _summarised(model: Any) -> Any:
    from pydantic_ai import Agent as PydanticAgent

    summariser = PydanticAgent(model, instructions="Summarise this conversation.")

    async def keep(messages: list[Any]) -> list[Any]:
        if len(messages) <= FITTING:
            return messages
        old = await summariser.run("Summarise the conversation so far.", message_history=messages[:-NEWEST])
        return [*old.new_messages(), *messages[-NEWEST:]]

    return keep


WAYS = (
    Way("palaver, Compactor()", _palaver(DEFAULT)),
    Way("palaver, Compactor((SUMMARISE,))", _palaver((SUMMARY_ONLY,))),
    Way("palaver, Compactor(), in a window twice as large", _palaver(DEFAULT, 2 * WINDOW)),
    Way("palaver, nothing is done, in a window without end", _palaver(None)),
    Way("langchain SummarizationMiddleware", _langchain(_summarization(4_000))),
    Way("langchain SummarizationMiddleware, trim_tokens_to_summarize=None", _langchain(_summarization(None))),
    Way("langchain trim_messages in before_model", _langchain(_trimming)),
    Way(f"pydantic-ai ProcessHistory, the last {FITTING} messages", _pydantic_ai(_newest(FITTING))),
    Way("pydantic-ai ProcessHistory, a summary", _pydantic_ai(_summarised)),
)


# -- what came of it ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sent:
    """What a run sent. Sizes in bytes, all requests but for what names its kind."""

    size: int
    shared: int
    tokens: int
    breaks: int
    summaries: int
    largest: int
    refused: int
    visible: float
    task: bool
    fact: bool


def sent(given: Provider) -> Sent:
    """Look at the bodies of a run."""
    seen = ["\n".join(provider.pieces(json.loads(body))).encode() for body in given.bodies]
    shared = breaks = 0
    for before, after in pairwise(seen):
        both = prefixes.common(before, after)
        shared, breaks = shared + both, breaks + (both < len(before))
    asked = ["\n".join(provider.pieces(json.loads(body))) for body in given.summaries]
    last = given.bodies[-1].decode()
    return Sent(
        size=sum(map(len, seen)) + sum(len(each.encode()) for each in asked),
        shared=shared,
        tokens=given.tokens,
        breaks=breaks,
        summaries=len(asked),
        largest=given.largest,
        refused=sum(bool(check_request("openai_chat", body)) for body in (*given.bodies, *given.summaries)),
        visible=sum(map(_visible, given.bodies)) / len(given.bodies),
        task=TASK in last,
        fact=FACT in last,
    )


def _visible(body: bytes) -> int:
    """How many results can be read in a request as they came."""
    messages = [each for each in json.loads(body)["messages"] if each["role"] == "tool"]
    return sum(each["content"] == provider.result(following(each["tool_call_id"]) - 1) for each in messages)


def played(way: Way, turns: int) -> Sent:
    """Run it. Raises what the run raises, and ``ValueError`` where it did not look at everything."""
    given = Provider(turns)
    if loop().run_until_complete(way.play(given)) != FOUND:
        msg = "the run did not come to its answer"
        raise ValueError(msg)
    if len(given.bodies) != turns + 1:
        msg = f"{len(given.bodies)} requests were sent, not {turns + 1}"
        raise ValueError(msg)
    return sent(given)


NOTES = (
    (
        "Case 1: peers count the whole list before each call; palaver and `SummarizationMiddleware` also look at "
        "what the provider reported. A tokeniser counts exactly what a provider of OpenAI's models counts; all "
        "others estimate. How far palaver's estimates are off stands in [estimates.md](estimates.md)."
    ),
    (
        "Case 2: `trim_messages` and `messages[-n:]` drop what is old, and promise nothing: not the task, nor the "
        "pairs of calls and results (pydantic-ai drops results that lost their call when it sends). palaver's "
        "times hold the promises of its stages, and exclude the estimates, which its ledger has; peers count when "
        "they are asked."
    ),
    (
        "Case 3: `Compactor()` clears results from 80 % of what a prompt may take, and labels and calls stay, so that "
        "it comes again after some turns: that is the number of its breaks. What it clears can be read back; what a "
        "summary leaves out can be searched for."
    ),
    (
        "Case 3: shares are of all that was sent: who sends more of what stood there before has the larger share. "
        "The bytes that did not stand there before are what a cache leaves to pay in full."
    ),
    (
        "Case 3: the scripted summary repeats neither task nor fact. A real model may well repeat them: no peer "
        "promises it. By default `SummarizationMiddleware` cuts what is summed up to 4,000 tokens that begin with "
        "a user message; in a run of many calls there is none, so no model is asked, and what stands for the past "
        "is the sentence 'Previous conversation was too long to summarize.'. A row without that limit asks."
    ),
    (
        "Case 3: palaver's tools `read_result` and `search_history` are in its requests, and are never called: "
        "what was cleared could be read back. A request counts as one that a provider would refuse by "
        "`palaver.testing.rules`; the size is not among those rules."
    ),
    (
        "Case 4: the results of the tool are longer than in the benchmark of agents, so its times do not compare "
        "with those there; palaver cuts the longest at 6,000 characters, which is its default, and peers do not. "
        "Where a difference of slow runs is less than their spread, it says nothing."
    ),
)
"""What stands under the table."""

_COLUMNS: tuple[tuple[str, str, Callable[[Sent], float]], ...] = (
    ("bytes that stood so in the request before", "%", lambda found: 100 * found.shared / found.size),
    ("bytes sent that did not", "MB", lambda found: (found.size - found.shared) / 1e6),
    ("bytes sent in all", "MB", lambda found: found.size / 1e6),
    ("tokens sent in all", "million", lambda found: found.tokens / 1e6),
    ("the largest prompt", "thousand tokens", lambda found: found.largest / 1e3),
    ("results that are whole in a request, on the average", "results", lambda found: found.visible),
    ("requests that break the prefix", "requests", lambda found: found.breaks),
    ("requests that a provider would refuse", "requests", lambda found: found.refused),
)


def run(turns: int) -> list[Row]:
    """Run each way once, and look at it from all sides."""
    found: dict[str, Sent | str] = {}
    for way in WAYS:
        try:
            found[way.name] = played(way, turns)
        except Exception as error:  # noqa: BLE001 (whatever a peer raises belongs into its row)
            found[way.name] = describe(error)
    return [
        _row(f"3. {turns} turns: {title}", unit, way, value, found) for title, unit, value in _COLUMNS for way in WAYS
    ]


def _row(title: str, unit: str, way: Way, value: Callable[[Sent], float], found: dict[str, Sent | str]) -> Row:
    row, mine, base = Row(title, way.name, unit), found[way.name], found[WAYS[0].name]
    if isinstance(mine, str):
        row.error = mine
        return row
    row.value = Spread([value(mine)])
    if isinstance(base, Sent) and way is not WAYS[0] and value(base):
        row.ratio = Spread([value(mine) / value(base)])
    if unit == "%":
        kept = f"last request: task {'there' if mine.task else 'gone'}, fact {'there' if mine.fact else 'gone'}"
        row.note = f"{kept}; {mine.summaries} summaries asked for"
    return row
