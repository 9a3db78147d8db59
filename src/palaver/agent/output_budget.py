"""Marks in a prompt that say how many tokens the answer may take: ``+500k``, ``spend 2M tokens``.

Rules (docs/spec/kairo.md#D43, KAI-29):

- Three forms: ``+N`` at the beginning, ``+N`` at the end (a full stop may follow), and ``spend`` or ``use``
  ``N tokens`` anywhere. N is a decimal number and ``k``, ``m`` or ``b``; case does not matter.
- One function reads and strips. The form at the end wins over that at the beginning, that over the words; of several
  in one form the outermost, of the words the first. All of them are stripped, the winner or not.
- What is left is the prompt as it was, without space around it. It holds no mark.
- A pass over the words of the prompt; its length is all it costs.

Stability: experimental.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final, NamedTuple

_AMOUNT: Final = r"([0-9]{1,12}(?:\.[0-9]{1,12})?)([kmb])"
_PLUS: Final = re.compile(rf"\+{_AMOUNT}[.,:;!?]*", re.IGNORECASE)
_BARE: Final = re.compile(_AMOUNT, re.IGNORECASE)
_VERB: Final = re.compile(r"spend|use", re.IGNORECASE)
_NOUN: Final = re.compile(r"tokens?[.,:;!?]*", re.IGNORECASE)
_WORD: Final = re.compile(r"\S+\s*")
_UNITS: Final = {"k": 10**3, "m": 10**6, "b": 10**9}
_WORDS: Final = 3
"""``spend``, ``2M``, ``tokens``."""


class Budget(NamedTuple):
    """The budget of a prompt in tokens, if it names one, and the prompt without any mark."""

    tokens: int | None
    prompt: str


def parse(prompt: str) -> Budget:
    """Read the budget out of a prompt."""
    words: list[str] = []
    spent: int | None = None
    for word in _WORD.findall(prompt):
        words.append(word)
        if (found := _spelled(words)) is not None:
            del words[-_WORDS:]
            spent = found if spent is None else spent
    last = len(words)
    while last and _plus(words[last - 1]) is not None:
        last -= 1
    first = 0
    while first < last and _plus(words[first]) is not None:
        first += 1
    if last < len(words):
        spent = _plus(words[-1])
    elif first:
        spent = _plus(words[0])
    if first == 0 and last == len(words) and spent is None:
        return Budget(None, prompt.strip())
    return Budget(spent, "".join(words[first:last]).strip())


def _spelled(words: list[str]) -> int | None:
    if len(words) < _WORDS:
        return None
    verb, amount, noun = (word.rstrip() for word in words[-_WORDS:])
    if not _VERB.fullmatch(verb) or not _NOUN.fullmatch(noun):
        return None
    return _tokens(_BARE.fullmatch(amount))


def _plus(word: str) -> int | None:
    return _tokens(_PLUS.fullmatch(word.rstrip()))


def _tokens(match: re.Match[str] | None) -> int | None:
    return None if match is None else int(Decimal(match[1]) * _UNITS[match[2].lower()])
