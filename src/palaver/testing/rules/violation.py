"""One broken provider rule, and how a body becomes a list of them.

- A body is bytes, text or parsed JSON. Bytes and text must be one JSON value (RFC 8259): `NaN`,
  `Infinity` and a lone comma are refused here because every provider refuses them.
- Numbers and booleans are strict: `true` is no number, `1.0` is no integer.
- Checking never raises on a wrong body and never changes it. The shape is checked first, then every
  order rule; an order rule looks only at what has the shape it needs, so one mistake is reported
  once.

Stability: experimental.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias, cast

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Fields: TypeAlias = dict[str, Json]
Body: TypeAlias = bytes | str | Mapping[str, object]


class Violation(NamedTuple):
    """One place in a body that a provider would refuse.

    `where` is a path such as `messages[3].content[0].text` (empty for the whole body), `rule` a
    citation such as docs/spec/wires.md#4.3.1` or an issue reference, `detail` says what was found.

    Stability: experimental.
    """

    where: str
    rule: str
    detail: str


Shape: TypeAlias = Callable[[Json, str, str], Iterator[Violation]]
Rule: TypeAlias = Callable[[Fields], Iterator[Violation]]

JSON_TEXT = "RFC 8259"


def _refuse(token: str) -> Json:
    message = f"{token} is no JSON number"
    raise ValueError(message)


def parse(body: Body) -> Json | Violation:
    """Return the JSON value of a body, or the violation that it is not JSON.

    Stability: experimental.
    """
    if not isinstance(body, bytes | str):
        return cast("Fields", dict(body))
    try:
        return cast("Json", json.loads(body, parse_constant=_refuse))
    except (ValueError, RecursionError) as error:
        return Violation("", JSON_TEXT, f"not JSON: {error}"[:200])


def check(body: Body, shape: Shape, rules: Iterable[Rule]) -> list[Violation]:
    """Return every violation of `shape` and then of each of `rules`, in that order.

    Stability: experimental.
    """
    value = parse(body)
    if isinstance(value, Violation):
        return [value]
    found = list(shape(value, "", JSON_TEXT))
    if isinstance(value, dict):
        for rule in rules:
            found.extend(rule(value))
    return found
