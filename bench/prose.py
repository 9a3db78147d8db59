"""Words, code and JSON for generated conversations.

Rules:

- Everything comes from one ``random.Random`` that the caller seeds: the same seed gives the same bytes.
- Text looks like what agents carry: sentences, lists, source code, listings, nested JSON. In a quarter of
  the texts one word in ten is not ASCII; line breaks, quotes, backslashes and tabs occur, because escapes
  cost time.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from random import Random

_WORDS = tuple(
    """
    the a of to and in is that for it as with on be by this are from at or an which not can if one all each when
    there their were will more about some time use how many then them these so make like into has look two write
    number people over call find part come made after back only round man year came show every good me give our
    under name very through just form sentence great think say help low line differ turn cause much mean before
    move right boy old too same tell does set three want air well also play small end put home read hand port
    large spell add even land here must big high such follow act why ask men change went light kind off need
    house picture try us again animal point mother world near build self earth father order invoice customer
    delivery refund account shipment payment report branch commit deploy database index query table column server
    request response token cache latency error retry timeout session message thread record field value schema
    """.split()
)
_FOREIGN = "größe naïve façade señor Überblick журнал 日本語 確認 données Straße résumé ✓ … —".split()
_VERBS = "search read write list create update delete fetch run check send book convert count".split()
_NOUNS = "file files order orders invoice customer flight weather page table query branch test mail".split()
_CODE = (
    "def {0}({1}: str, {2}: int = {n}) -> dict[str, object]:",
    '    if not {1}.startswith("{2}"):',
    '        raise ValueError(f"{1} is no {2}: {{{1}!r}}")',
    "    return {{'{0}': {1}, '{2}': [{n}, {2}]}}",
    "\tfor {1} in {2}_{0}[:{n}]:",
    "    # {0} {1} {2}: see C:\\{0}\\{1}.txt",
    "",
    'const {0} = await {1}.{2}({{ limit: {n}, cursor: "{2}" }});',
)


def tool_name(random: Random) -> str:
    """``search_orders``."""
    return f"{random.choice(_VERBS)}_{random.choice(_NOUNS)}"


def _words(random: Random, count: int, *, foreign: bool) -> list[str]:
    share = 0.1 if foreign else 0.0
    return [random.choice(_FOREIGN if random.random() < share else _WORDS) for _ in range(count)]


def text(random: Random, size: int) -> str:
    """Write paragraphs of about ``size`` characters."""
    pieces: list[str] = []
    length = 0
    foreign = random.random() < 0.25
    while length < size:
        words = _words(random, random.randint(4, 18), foreign=foreign)
        end = random.choice((". ", ". ", ". ", "? ", ".\n", ".\n\n- ", ', he said: "'))
        sentence = " ".join(words).capitalize() + end
        pieces.append(sentence)
        length += len(sentence)
    return "".join(pieces)[:size].rstrip() or "ok"


def code(random: Random, size: int) -> str:
    """Write numbered lines of source code of about ``size`` characters."""
    lines: list[str] = []
    length = 0
    while length < size:
        names = random.sample(_NOUNS, 3)
        line = random.choice(_CODE).format(*names, n=random.randint(1, 999))
        lines.append(f"{len(lines) + 1:>5}\t{line}")
        length += len(lines[-1]) + 1
    return "\n".join(lines)[: max(size, 20)]


def row(random: Random, *, foreign: bool) -> dict[str, Any]:
    """Make one record of a table."""
    return {
        "id": random.randint(1, 10**9),
        "name": " ".join(_words(random, 2, foreign=foreign)),
        "amount": round(random.uniform(0, 5000), 2),
        "active": random.random() < 0.7,
        "closed_at": None if random.random() < 0.5 else f"2025-0{random.randint(1, 9)}-1{random.randint(0, 9)}",
        "tags": random.sample(_NOUNS, random.randint(0, 3)),
    }


def rows(random: Random, size: int) -> dict[str, Any]:
    """Make a query result of about ``size`` characters of JSON."""
    made: list[dict[str, Any]] = []
    length = 40
    foreign = random.random() < 0.25
    while not made or length < size:
        made.append(row(random, foreign=foreign))
        length += len(json.dumps(made[-1], ensure_ascii=False))
    return {"total": len(made), "next_cursor": None, "rows": made}


def arguments(random: Random) -> dict[str, Any]:
    """Make the nested arguments of a tool call."""
    filters = [
        {"field": random.choice(_NOUNS), "op": random.choice(("eq", "gt", "in")), "value": random.randint(0, 9999)}
        for _ in range(random.choice((0, 0, 1, 2)))
    ]
    made: dict[str, Any] = {
        "path": f"src/{random.choice(_NOUNS)}/{random.choice(_WORDS)}.py",
        "query": text(random, random.randint(10, 40)),
        "limit": random.choice((10, 20, 100)),
    }
    if filters:
        made["where"] = {"all": filters, "sort": {"by": random.choice(_NOUNS), "descending": random.random() < 0.5}}
    if random.random() < 0.06:
        made["content"] = code(random, random.randint(80, 300))
    return made


def token(random: Random, size: int) -> str:
    """Make ``size`` random bytes as base64, as in signatures and images."""
    return base64.b64encode(random.randbytes(size)).decode()
