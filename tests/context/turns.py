"""The accuracy of estimates on recorded traffic: each recorded prompt, predicted, beside the provider's count.

Rules:

- A recorded request continues an earlier one of the same test when it begins with its messages, has the same tools,
  endpoint and model, and the next message is an answer. Its prompt is predicted by a ledger that has learned from the
  answers so far.
- No prediction uses its own report. `seeded` predicts with a calibration from all other conversations on the same
  endpoint and model; `apart=function` also leaves out similar ones.
- `kind` names the difficulty. `image`: images that are in the messages; `other media`: images elsewhere, documents,
  recordings, videos; both if they are new, or anywhere in a prompt that is estimated whole. `provider tools`: tools run
  at the provider, whose texts are not visible. All else is `text`.
- The tokens of images and pages, `RATES`, were fitted to these same recordings, so errors on media are those of a fit,
  and not of a forecast. The constants of `tokens.estimate` and `tokens.calibration` were chosen on them, too.
"""

from __future__ import annotations

import base64
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

from palaver import wires
from palaver.context.ledger import Ledger, has_usage_report, prompt_of
from palaver.core.errors import PalaverError
from palaver.core.messages import AssistantMessage, Message
from palaver.core.parts import Image, Inline, Media, Opaque, ServerToolResult
from palaver.core.request import Request
from palaver.core.tools import ProviderTool
from palaver.tokens.calibration import Calibration
from palaver.tokens.estimate import estimate_tools
from palaver.tokens.media import MediaRates

RATES: Final = (
    ("gemini-3", MediaRates(base=1090, piece=0, image=1090, page=540, document=540)),
    ("gemini", MediaRates(base=258, piece=0, image=258, page=258, document=258)),
    ("claude|nova", MediaRates(page=2100, document=2100)),
    (
        "gpt-5|gpt-4.1|codex",
        MediaRates(side=32, piece=1.2, max_long_edge=None, max_tokens=1843, page=600, document=600),
    ),
    (
        "gpt-4o",
        MediaRates(side=512, piece=170, base=85, max_long_edge=2048, max_short_edge=768, page=600, document=600),
    ),
)


class Exchange(NamedTuple):
    wire: str
    endpoint: str
    test: str
    turn: int
    request: Request
    answer: AssistantMessage

    @property
    def reported(self) -> int:
        return prompt_of(self.answer.usage) if self.answer.usage else 0

    @property
    def fixed(self) -> int:
        return estimate_tools(self.request.tools, self.request.settings.output)

    @property
    def served(self) -> bool:
        """Whether tools run, or may have run, at the provider."""
        held = [part for message in self.request.messages for part in message.content]
        return (
            any(isinstance(tool, ProviderTool) for tool in self.request.tools)
            or any(isinstance(part, ServerToolResult | Opaque) for part in held)
            or not has_usage_report(self.answer)
        )


class Guess(NamedTuple):
    """A predicted prompt. `how` is `anchored`, `whole` (no anchor, as after a compaction) or `seeded`."""

    how: str
    wire: str
    kind: str
    test: str
    tokens: int
    reported: int

    @property
    def error(self) -> float:
        return abs(self.tokens - self.reported) / self.reported


def recorded(folder: Path) -> list[Exchange]:
    """Return every exchange that reports its prompt, in the order of its test."""
    found = [each for file in sorted((folder / "wires").glob("*/*.json")) if (each := _read(file)) is not None]
    return sorted(found, key=lambda each: (each.wire, each.test, each.turn))


def _read(file: Path) -> Exchange | None:
    record = json.loads(file.read_bytes())
    if record["status"] != 200:
        return None
    wire = wires.get(record["wire"])
    try:
        request = wire.decode_request(record["request"])
        answer = _answer(wire, record)
    except PalaverError:
        return None
    if answer.usage is None or prompt_of(answer.usage) == 0:
        return None
    test, _, rest = file.stem.rpartition("--")
    path = re.sub(r":?-?(stream\w*|generateContent)(\?.*)?$", "", record["path"], flags=re.IGNORECASE)
    return Exchange(wire.name, f"{path} {request.model or ''}", test, int(rest.split("-")[0]), request, answer)


def _answer(wire: Any, record: dict[str, Any]) -> AssistantMessage:
    if "response" in record:
        return wire.decode_response(record["response"]).message
    decoder = wire.stream_decoder()
    raw = record.get("stream_base64")
    decoder.feed(record["stream"].encode() if raw is None else base64.b64decode(raw))
    return decoder.finish().message


@cache
def rates_of(endpoint: str) -> MediaRates | None:
    return next((rates for pattern, rates in RATES if re.search(pattern, endpoint)), None)


def _kind(messages: Iterable[Message], *, served: bool) -> str:
    if served:
        return "provider tools"
    media = [part for message in messages for part in message.content if isinstance(part, Media)]
    if all(isinstance(part, Image) and isinstance(part.source, Inline) for part in media):
        return "image" if media else "text"
    return "other media"


def _before(each: Exchange, earlier: list[tuple[Exchange, Ledger]]) -> tuple[Exchange, Ledger] | None:
    request = each.request
    for last, ledger in reversed(earlier):
        size = len(last.request.messages)
        if (
            len(request.messages) > size
            and isinstance(request.messages[size], AssistantMessage)
            and request.messages[:size] == last.request.messages
            and (each.endpoint, request.tools, request.settings.output)
            == (last.endpoint, last.request.tools, last.request.settings.output)
        ):
            return last, ledger
    return None


def conversation(exchanges: list[Exchange], start: Calibration) -> Iterator[tuple[Guess | None, Calibration]]:
    """Follow the exchanges of one test: the prediction for each, and what was learned by then."""
    earlier: list[tuple[Exchange, Ledger]] = []
    for each in exchanges:
        messages: tuple[Message, ...] = each.request.messages
        before = _before(each, earlier)
        anchor = None
        ledger = Ledger(calibration=start, rates=rates_of(each.endpoint)) if before is None else before[1]
        if before is not None:
            place = len(before[0].request.messages)
            usage = before[0].answer.usage
            messages = (*messages[:place], messages[place].replace(usage=usage), *messages[place + 1 :])
            anchor = place if has_usage_report(before[0].answer) else None
        measure = ledger.measure(messages, fixed=each.fixed, anchor=anchor)
        guess = None
        if before is not None:
            new = messages[len(before[0].request.messages) :]
            kind = _kind(new, served=each.served or before[0].served)
            guess = Guess("anchored", each.wire, kind, each.test, measure.tokens, each.reported)
            whole = ledger.measure(messages, fixed=each.fixed)
            yield guess._replace(how="whole", tokens=whole.tokens), ledger.calibration
        if not each.served:
            ledger.learn(measure, each.answer)
        earlier.append((each, ledger))
        yield guess, ledger.calibration


def _tests(exchanges: list[Exchange]) -> list[list[Exchange]]:
    tests: dict[tuple[str, str], list[Exchange]] = defaultdict(list)
    for each in exchanges:
        tests[each.wire, each.test].append(each)
    return list(tests.values())


def following(exchanges: list[Exchange]) -> list[Guess]:
    """Return each prompt after the first answer of its conversation, by a ledger without knowledge of the model."""
    return [guess for test in _tests(exchanges) for guess, _ in conversation(test, Calibration()) if guess is not None]


def seeded(exchanges: list[Exchange], *, apart: Callable[[Exchange], str] = attrgetter("test")) -> list[Guess]:
    """Return each prompt, and each after a first answer, by what all other conversations with the model taught."""
    groups: dict[tuple[str, str, bool], list[Exchange]] = defaultdict(list)
    for each in exchanges:
        groups[each.wire, each.endpoint, bool(each.request.tools)].append(each)
    guesses: list[Guess] = []
    for group in groups.values():
        for name in {apart(each) for each in group}:
            others = [each for each in group if apart(each) != name]
            if others:
                learned = _learned(others)
                for test in _tests([each for each in group if apart(each) == name]):
                    guesses += _alone(test, learned)
                    for guess, _ in conversation(test, learned):
                        if guess is not None and guess.how == "anchored":
                            guesses.append(guess._replace(how="anchored, seeded"))
    return guesses


def function(each: Exchange) -> str:
    """Return the test function: conversations of one are similar."""
    return each.test.partition("-")[0]


def _learned(exchanges: list[Exchange]) -> Calibration:
    known = Calibration()
    for test in _tests(exchanges):
        *_, (_, known) = conversation(test, known)
    return known


def _alone(test: list[Exchange], known: Calibration) -> Iterator[Guess]:
    for each in test:
        measure = Ledger(calibration=known, rates=rates_of(each.endpoint)).measure(
            each.request.messages, fixed=each.fixed
        )
        kind = _kind(each.request.messages, served=each.served)
        yield Guess("seeded", each.wire, kind, each.test, measure.tokens, each.reported)
