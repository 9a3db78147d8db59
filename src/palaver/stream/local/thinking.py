"""Which tags stand around reasoning, and the split of a whole text.

Rules of ``split_thinking``, which reads what was stored as one string:

- Every ``<think>`` up to the next ``</think>`` is reasoning. Case matters, and nothing nests: a second opening tag is
  reasoning like its neighbours.
- Each piece of reasoning is trimmed, empty ones are dropped, the others are joined by a blank line.
- What no tag closes is reasoning up to the end. A closing tag that closes nothing is text.
- The answer is everything else, joined without a separator, and trimmed.

Stability: experimental.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Pair(NamedTuple):
    """The tags around reasoning."""

    opens: str
    closes: str


THINK: Final = Pair("<think>", "</think>")
REASONING: Final[dict[str, Pair | None]] = {
    "none": None,
    "think": THINK,
    "bracket": Pair("[THINK]", "[/THINK]"),
    "channel": Pair("<|channel>thought", "<channel|>"),
}
"""Pairs by name: Qwen, DeepSeek, Hermes and LFM2; Magistral (mistral-common v13); Gemma 4."""


def split_thinking(text: str) -> tuple[str | None, str]:
    """The reasoning, ``None`` when there is none, and the answer."""
    thoughts: list[str] = []
    answers: list[str] = []
    at = 0
    while True:
        start = text.find(THINK.opens, at)
        if start < 0:
            answers.append(text[at:])
            break
        answers.append(text[at:start])
        start += len(THINK.opens)
        end = text.find(THINK.closes, start)
        if end < 0:
            thoughts.append(text[start:])
            break
        thoughts.append(text[start:end])
        at = end + len(THINK.closes)
    kept = [thought for thought in map(str.strip, thoughts) if thought]
    return "\n\n".join(kept) if kept else None, "".join(answers).strip()
