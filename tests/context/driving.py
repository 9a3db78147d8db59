"""Conversations of agents, and a model with scripted answers, for the generator of a compaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st
from msgspec import structs

import palaver as p
from palaver.context import Compacted, Plan, Stage, SummaryRequest, compaction_flow, plan_of

SUMMARY = "## Task and intent\nMend the parser."
TAG = "last one stays"


def asked(number: int, calls: int = 1, size: int = 400) -> list[p.Message]:
    """Return a round: an answer that calls tools, and the results."""
    ids = [f"c{number:04d}{letter:04d}" for letter in range(calls)]
    made = [p.tool_call("read", {"path": f"/a/{each}"}, id=each) for each in ids]
    answer = p.assistant(f"step {number}", reasoning=f"thought {number}", tool_calls=made, id=f"a{number}")
    return [answer, *[p.tool("X" * size, tool_call_id=each, tool_name="read", id=f"r{each}") for each in ids]]


def one_task(rounds: int = 12, *, size: int = 400) -> list[p.Message]:
    """Return a run with one user message, and a last round that the model has not seen."""
    messages: list[p.Message] = [p.user("Mend the parser in /src/parse.py.", id="u0")]
    for number in range(rounds):
        messages += asked(number, size=size)
    return messages


def driven(
    plan: Plan, stage: Stage | Sequence[Stage], *answers: str | Exception
) -> tuple[Compacted, list[SummaryRequest]]:
    """Run a compaction. Answers are given in turn; the last one repeatedly."""
    questions: list[SummaryRequest] = []
    compaction = compaction_flow(plan, [stage] if isinstance(stage, Stage) else stage)
    try:
        questions.append(next(compaction))
        while True:
            answer = answers[min(len(questions), len(answers)) - 1]
            give = compaction.throw if isinstance(answer, Exception) else compaction.send
            questions.append(give(answer))  # type: ignore[arg-type]
    except StopIteration as stop:
        return stop.value, questions


def shown(question: SummaryRequest) -> str:
    """Return the text for the model."""
    return question.request.messages[1].text


def filled(messages: Sequence[p.Message], share: float = 1.0, **fields: Any) -> Plan:
    """Return a plan that fills this share of its capacity."""
    weight = max(1, plan_of(messages, capacity=1).sum)
    return plan_of(messages, capacity=max(1, int(weight / share)), **fields)


@st.composite
def conversations(draw: Any, max_size: int = 14) -> list[p.Message]:
    """Draw conversations as agents have them: users, notes, rounds of calls, earlier summaries, marked messages."""
    messages: list[p.Message] = []
    kinds = st.sampled_from(["user", "user", "note", "round", "round", "round", "said", "system", "summary"])
    for number in range(draw(st.integers(0, max_size))):
        marked: dict[str, Any] = {"verbatim": draw(st.integers(0, 7)) == 0, "id": f"m{number}"}
        if draw(st.integers(0, 5)) == 0:
            marked["tags"] = (TAG,)
        text = f"said {number} " + "x" * draw(st.sampled_from([0, 10, 300, 3000]))
        match draw(kinds):
            case "user":
                messages.append(p.user(text, **marked))
            case "note":
                messages.append(p.user(text, mode="tool", source="note", **marked))
            case "said":
                messages.append(p.assistant(text, **marked))
            case "system":
                messages.append(p.system(text, **marked))
            case "summary":
                messages.append(p.user(text, mode="tool", source="compaction", **marked))
            case _:
                size = draw(st.sampled_from([0, 20, 400, 4000]))
                each = asked(number, draw(st.integers(1, 3)), size)
                at: int = draw(st.integers(0, len(each) - 1))
                each[at] = structs.replace(each[at], verbatim=marked["verbatim"])
                messages += each
    return messages
