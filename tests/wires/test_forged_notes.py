"""Notes are ours, but anybody can write them into a message: forged ones give a body or one error of ours."""

from __future__ import annotations

import contextlib
import random
import re
from pathlib import Path
from typing import Any

import pytest

import palaver as p
from palaver import wires
from palaver.core.messages import BOOKKEEPING
from tests.folding import over

SOURCE = Path(wires.__file__).parent
READ = re.compile(r'notes\w*(?:\([^)]*\))?(?:\.get\(|\[)"(\w+)"|"(\w+)" (?:not )?in \w*notes')
NAMES = sorted(
    {name for path in SOURCE.rglob("*.py") for each in READ.findall(path.read_text("utf-8")) for name in each if name}
)
VALUES: list[Any] = [None, True, 5, 0.5, "", "x", "VALIDATED", [], [[]], [{}], ["a"], [5], {}, {"id": 5}, {"type": []}]


def _forged(rng: random.Random, wire: str) -> dict[str, Any]:
    return {BOOKKEEPING + wire: {name: rng.choice(VALUES) for name in rng.sample(NAMES, 4)}}


def _message(rng: random.Random, wire: str) -> p.Message:
    note = lambda: _forged(rng, wire)  # noqa: E731
    parts = [
        p.Text("a").replace(provider=note()),
        p.Reasoning("b", "c2ln", wire=wire).replace(provider=note()),
        p.tool_call("f", {"x": 1}, id="c1").replace(provider=note()),
    ]
    made = rng.choice(
        [
            lambda: p.user("q").replace(provider=note()),
            lambda: p.system("s").replace(provider=note()),
            lambda: p.assistant(*rng.sample(parts, rng.randint(1, 3))).replace(provider=note()),
            lambda: p.tool("r", tool_call_id="c1").replace(provider=note()),
        ]
    )
    return made()


def test_there_are_notes_to_forge() -> None:
    assert {"field", "type", "cited", "mode", "joined", "choice"} <= set(NAMES)


@pytest.mark.law(6)
@pytest.mark.parametrize("wire", wires.names())
@over("seed", range(120))
def test_forged_notes_give_a_body_or_one_error(wire: str, seed: int) -> None:
    rng = random.Random(f"{wire} {seed}")
    messages = tuple(_message(rng, wire) for _ in range(rng.randint(1, 4)))
    tool = p.Tool("f").replace(provider=_forged(rng, wire))
    settings = p.Settings(tool_choice=p.ToolChoice("auto"), reasoning_tokens=2048, max_tokens=9000)
    request = p.Request(messages, "m", (tool,), settings).replace(provider=_forged(rng, wire))
    codec = wires.get(wire)
    for each in (request, request.replace(origin=wire)):
        with contextlib.suppress(p.PalaverError):
            codec.encode_request(each)
    answer = p.assistant("a", p.tool_call("f", {"x": 1}, id="c1")).replace(provider=_forged(rng, wire))
    for each in (p.Response(answer), p.Response(answer, origin=wire)):
        with contextlib.suppress(p.PalaverError):
            codec.encode_response(each)
