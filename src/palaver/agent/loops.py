"""Whether a run goes round in circles: a level, and a warning for the model.

Rules (docs/spec/kairo.md#2.7, KAI-14):

- ``seen`` takes a turn when it is over: its calls and their results. ``none`` is all well, ``warn`` a text for the
  model, ``stop`` a reason to ask for the final answer. A warning never keeps a tool from running (D7).
- ``RULES`` is the table of what is looked at: the same round again and again; the same call in each of the last turns;
  two calls in turn; how often a tool is called in a time; no progress; arguments that grow; and, where it is asked for,
  how often one call is among the last few. The worst level counts, the first rule that gives it speaks.
- Progress is a call or a result that was not there before. A tool that writes is no progress by itself, and one that
  reads is, as long as it reads something new.
- While one rule goes on to give one level, its text is given once.
- Tools that are meant to be called again and again are named (``polling``), and not looked at. A turn of nothing else
  ends every row.
- Times are seconds of any clock that does not go back; they are given, never read.
- What is remembered is bounded: a few turns, the signatures of the last calls and results, and for each of the last
  tools as many times as can matter. A turn costs its calls and results, never the history.

When a model calls again what it called just now (DAS-07, DAS-23):

- The signature of a call is its tool and its arguments as canonical JSON: ``"1"`` is not ``1``, the order of keys and
  the spelling of the text do not matter. Arguments that are no JSON are signed by their bytes. No arguments are ``{}``.
- A round is the calls of one answer; their order does not matter. A round that equals the one before is not run: the
  first time its calls are answered (``told``), the second time in a row the final answer is asked for.
- Tools that are meant to be called again and again (polling) are left out by the caller. A round of which nothing is
  left is a round all the same: after it, nothing is called again.
- Pure; a turn costs its calls, not the history.

Stability: experimental.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final, Literal, TypeAlias

from msgspec import UNSET, Struct, structs

from palaver.core import codec, jsontext
from palaver.core.errors import DecodeError
from palaver.core.messages import ToolMessage
from palaver.core.parts import MalformedToolCall, Text, ToolCall

# --- repetition -------------------------------------------------------------------------------------------------------


Repeated: TypeAlias = Literal["", "answer", "final"]

_NO_ARGUMENTS: Final = b"{}"
_SHORT: Final = 1000
"""Characters of arguments whose signature is remembered for a while."""


class Repetition(Struct, frozen=True):
    """The round before: its signature, how often in a row it came again, and whether all its calls failed."""

    key: bytes = b""
    times: int = 0
    failed: bool = False


def signature(call: ToolCall | MalformedToolCall) -> bytes:
    """16 bytes that calls share when they call the same tool with the same arguments."""
    if isinstance(call, MalformedToolCall):
        return _signed(call.name or "", b"malformed", _bytes(call.raw))
    if len(call.arguments_json) <= _SHORT:
        return _short(call.name, call.arguments_json)
    return _signed(call.name, b"call", _canonical(call.arguments_json))


@lru_cache(maxsize=64)
def _short(name: str, arguments: str) -> bytes:
    """The signature of a short call is asked for twice, before and after it is run."""
    return _signed(name, b"call", _canonical(arguments))


def _signed(name: str, kind: bytes, arguments: bytes) -> bytes:
    head = _bytes(name)
    return hashlib.blake2b(b"%b %d %b%b" % (kind, len(head), head, arguments), digest_size=16).digest()


def _canonical(text: str) -> bytes:
    if not text or text.isspace():
        return _NO_ARGUMENTS
    data = _bytes(text)
    try:
        return jsontext.normal(data)
    except DecodeError:
        return data


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def round_key(signatures: Iterable[bytes]) -> bytes:
    """What rounds of the same calls share, in whatever order; ``b""`` for a round of none."""
    return b"".join(sorted(signatures))


def repeated(before: Repetition, calls: Iterable[ToolCall | MalformedToolCall]) -> tuple[Repetition, Repeated]:
    """Whether a round, before it is run, equals the one before, and what is to be done: ``""`` is to run it."""
    key = round_key(map(signature, calls))
    if not key or key != before.key:
        return Repetition(key), ""
    again = structs.replace(before, times=before.times + 1)
    return again, "answer" if again.times == 1 else "final"


def ran(round_: Repetition, *, failed: bool) -> Repetition:
    """The round was run; ``failed`` when all of its calls failed."""
    return structs.replace(round_, failed=failed)


def told(name: str, *, failed: bool) -> str:
    """What the model is told in place of running a call again."""
    if failed:
        return (
            f"You already called {name} with the same arguments and it failed - its error is in the conversation "
            "above. Call it with other arguments, use another tool, or give the final answer."
        )
    return (
        f"You already called {name} with the same arguments - its result is in the conversation above. Use that "
        "result, or call with other arguments."
    )


# --- loops ------------------------------------------------------------------------------------------------------------


Level: TypeAlias = Literal["none", "warn", "stop"]

_SEVERITY: Final[Mapping[Level, int]] = {"none": 0, "warn": 1, "stop": 2}
_REMEMBERED: Final = 256
"""Signatures in a generation; two generations are kept."""
_TOOLS: Final = 64
_SINGLE: Final = 16
"""Bytes of the key of a turn with one call."""


class Thresholds(Struct, frozen=True, kw_only=True):
    """From when on a rule speaks; pairs are (warn, stop), and 0 leaves a rule out.

    ``same_round`` and ``same_call`` count turns in a row, ``alternating`` the turns of an A, B, A, B, …, ``calls`` the
    calls of one tool in ``seconds``, ``idle`` turns without progress, ``growing`` turns whose arguments grow, to twice
    their size at least. ``among`` is (warn, stop, of how many calls).
    """

    same_round: tuple[int, int] = (3, 5)
    same_call: int = 4
    alternating: int = 6
    calls: tuple[int, int] = (50, 100)
    seconds: float = 600.0
    idle: int = 10
    growing: int = 4
    among: tuple[int, int, int] = (0, 0, 0)


class Turn(Struct, frozen=True):
    """What is remembered of a turn: the key of its calls, and the characters of their arguments."""

    key: bytes
    size: int


class Watch(Struct, frozen=True):
    """What is remembered of a run. A value: ``seen`` gives the next one."""

    turns: tuple[Turn, ...] = ()
    streak: int = 0
    chains: Mapping[bytes, int] = {}
    """In how many turns in a row each call of the last turn was."""
    times: Mapping[str, tuple[float, ...]] = {}
    last: tuple[bytes, ...] = ()
    most: int = 0
    """How often the commonest call of the turn is among the last."""
    busiest: tuple[int, str] = (0, "")
    """How often the tool of the turn that was called most was called, and its name."""
    idle: int = 0
    new_call: bool = True
    known: frozenset[bytes] = frozenset()
    older: frozenset[bytes] = frozenset()
    said: tuple[str, Level] = ("", "none")
    """The rule that spoke last turn, and its level."""


class Seen(Struct, frozen=True):
    """What a turn looks like. ``text`` is for the model, given when ``rule`` begins to speak on this ``level``."""

    level: Level = "none"
    rule: str = ""
    text: str | None = None


_WELL: Final = Seen()
Call: TypeAlias = ToolCall | MalformedToolCall


def seen(
    watch: Watch,
    calls: Sequence[Call],
    outcomes: Sequence[ToolMessage | None] = (),
    *,
    now: float = 0.0,
    polling: frozenset[str] = frozenset(),
    thresholds: Thresholds = Thresholds(),  # noqa: B008 (frozen)
) -> tuple[Watch, Seen]:
    """Take a turn that is over. ``outcomes`` are the results of ``calls``, in their order; ``None`` is one not run."""
    if not calls:
        return watch, _WELL
    results = (*outcomes, *[None] * (len(calls) - len(outcomes)))
    looked = [(call, result) for call, result in zip(calls, results, strict=False) if call.name not in polling]
    if not looked:
        ended = structs.replace(
            watch, turns=(), streak=0, chains={}, last=(), most=0, busiest=(0, ""), said=("", "none")
        )
        return ended, _WELL
    watch = _taken(watch, looked, now, thresholds)
    found = _WELL
    for name, judge, text in RULES:
        level = judge(watch, thresholds)
        if level != "none" and _SEVERITY[level] > _SEVERITY[found.level]:
            found = Seen(level, name, text.format(watch=watch, tool=watch.busiest[1]))
    said = (found.rule, found.level)
    if said != watch.said:
        return structs.replace(watch, said=said), found
    return watch, found if found.text is None else structs.replace(found, text=None)


# -- taking a turn ---------------------------------------------------------------------------------------------------


def _taken(watch: Watch, looked: list[tuple[Call, ToolMessage | None]], now: float, limits: Thresholds) -> Watch:
    signed = [signature(call) for call, _ in looked]
    key = round_key(signed)
    turn = Turn(key, sum([len(_arguments(call)) for call, _ in looked]))
    results = [_result(sign, result) for sign, (_, result) in zip(signed, looked, strict=True) if result is not None]
    new = {*signed, *results}
    known, older = _remembered(watch, new)
    new = new - watch.known - watch.older
    new_call = not new.isdisjoint(signed)
    last = (*watch.last, *signed)[-limits.among[2] :] if limits.among[2] else ()
    times, busiest = _counted(watch.times, [call.name or "" for call, _ in looked], now, limits)
    return structs.replace(
        watch,
        turns=(*watch.turns, turn)[-max(limits.alternating, limits.growing, 1) :],
        streak=watch.streak + 1 if watch.turns and watch.turns[-1].key == key else 1,
        chains={sign: watch.chains.get(sign, 0) + 1 for sign in signed},
        times=times,
        last=last,
        most=max([last.count(sign) for sign in set(signed)]) if last else 0,
        busiest=busiest,
        idle=0 if new else watch.idle + 1,
        new_call=new_call,
        known=known,
        older=older,
    )


def _arguments(call: Call) -> str:
    return call.raw if isinstance(call, MalformedToolCall) else call.arguments_json


def _result(sign: bytes, result: ToolMessage) -> bytes:
    """What results of one call share when they say the same."""
    content = result.content
    if len(content) == 1 and type(part := content[0]) is Text and part.provider_json is UNSET and not part.citations:
        said = b"text" + part.text.encode("utf-8", "surrogatepass")
    else:
        said = codec.encode(ToolMessage(content=content))
    return hashlib.blake2b(b"%b%d%b" % (sign, result.is_error, said), digest_size=16).digest()


def _remembered(watch: Watch, found: set[bytes]) -> tuple[frozenset[bytes], frozenset[bytes]]:
    known = watch.known | found
    return (known, watch.older) if len(known) <= _REMEMBERED else (frozenset(found), watch.known)


def _counted(
    before: Mapping[str, tuple[float, ...]], names: list[str], now: float, limits: Thresholds
) -> tuple[Mapping[str, tuple[float, ...]], tuple[int, str]]:
    """The times at which tools were called, the tools of this turn last; and the busiest of them."""
    if not any(limits.calls):
        return {}, (0, "")
    times = dict(before)
    busiest = (0, "")
    for name in dict.fromkeys(names):
        called = (*times.pop(name, ()), *[now] * names.count(name))[-max(limits.calls) :]
        if called[0] <= now - limits.seconds:
            called = tuple([at for at in called if at > now - limits.seconds])
        times[name] = called
        busiest = max(busiest, (len(times[name]), name))
    while len(times) > _TOOLS:
        del times[next(iter(times))]
    return times, busiest


# -- rules -----------------------------------------------------------------------------------------------------------


def _at(count: int, warn: int, stop: int) -> Level:
    if stop and count >= stop:
        return "stop"
    return "warn" if warn and count >= warn else "none"


def _same_round(watch: Watch, limits: Thresholds) -> Level:
    return _at(watch.streak, *limits.same_round)


def _same_call(watch: Watch, limits: Thresholds) -> Level:
    return "none" if watch.new_call else _at(max(watch.chains.values()), 0, limits.same_call)


def _alternating(watch: Watch, limits: Thresholds) -> Level:
    if not limits.alternating or len(watch.turns) < limits.alternating:
        return "none"
    keys = [turn.key for turn in watch.turns[-limits.alternating :]]
    if keys[2:] != keys[:-2] or keys[0] == keys[1]:
        return "none"
    return "stop" if all(len(key) == _SINGLE for key in keys) else "none"


def _calls(watch: Watch, limits: Thresholds) -> Level:
    return _at(watch.busiest[0], *limits.calls)


def _idle(watch: Watch, limits: Thresholds) -> Level:
    return _at(watch.idle, limits.idle, 0)


def _growing(watch: Watch, limits: Thresholds) -> Level:
    if not limits.growing or len(watch.turns) < limits.growing:
        return "none"
    sizes = [turn.size for turn in watch.turns[-limits.growing :]]
    if not sizes[0] or sizes[-1] < 2 * sizes[0]:
        return "none"
    return "warn" if all(one <= other for one, other in pairwise(sizes)) else "none"


def _among(watch: Watch, limits: Thresholds) -> Level:
    return _at(watch.most, *limits.among[:2])


RULES: Final[tuple[tuple[str, Callable[[Watch, Thresholds], Level], str], ...]] = (
    ("same_round", _same_round, "The same calls were made {watch.streak} times in a row. Their results are above."),
    ("same_call", _same_call, "The same call was made in each of the last turns. Its result is above."),
    ("alternating", _alternating, "The same two calls follow each other again and again. Their results are above."),
    ("calls", _calls, "{tool} was called {watch.busiest[0]} times in a short time. Is there a shorter way?"),
    ("idle", _idle, "The last {watch.idle} turns called nothing new and learned nothing new. Try something else."),
    ("growing", _growing, "The arguments of the calls grow from turn to turn. Say less, or do it in pieces."),
    ("among", _among, "The same call was made {watch.most} times in the last few. Its result is above."),
)
"""What is looked at: the name of a rule, the rule, and what it tells the model."""
