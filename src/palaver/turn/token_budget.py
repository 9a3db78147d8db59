"""The size of the next prompt, the size that it may have, and the share of each tool result.

Rules (D26, D29, KAI-03, KAI-17; docs/spec/kairo.md#2.4; golden ``tool_result_budget``):

- The size is the provider's report of the last prompt plus an estimate of what is new (``context.Ledger``).
- In a chain of models the first one counts: its window, settings and reports. After a prompt was too long for the
  chain, its smallest window counts. ``Limits.context_tokens`` bounds the size too. Refused sizes are remembered.
- A window that is not known is assumed: 128,000 tokens. It is no bound for a prompt that a user wrote (``widen``); the
  provider knows the real one.
- The results of a turn together get 35 % of the free window, between 256 and 8192 tokens, in equal shares of 96 to
  2048. A token is four bytes of UTF-8; media are neither counted nor cut.
- A result of more than 20,000 characters is compressed first. The metadata of a result have its share.

Stability: experimental.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from palaver.context.ledger import Ledger, Measure, has_usage_report, prompt_of
from palaver.context.plan import WINDOW, capacity
from palaver.core.messages import AssistantMessage
from palaver.core.parts import Text, ToolPart
from palaver.models.catalogue import Capabilities, rates_of
from palaver.models.encoded_prompt import merge_settings
from palaver.models.fallback import Fallback
from palaver.models.http_model import Model
from palaver.models.language_model import LanguageModel, Prompt
from palaver.tokens.counter import Counter
from palaver.tokens.estimate import estimate
from palaver.turn import tool_output
from palaver.turn.middleware import RunContext
from palaver.turn.tool_output import Limited, compress, text_of

# --- result budget ----------------------------------------------------------------------------------------------------


_PERCENT: Final = 35
_TOTAL: Final = (256, 8192)
_EACH: Final = (96, 2048)
_PER_TOKEN: Final = 4
"""Bytes of a token, roughly."""
_LONG: Final = 20_000
"""Characters above which a result is compressed."""
_CONTINUING: Final = range(0x80, 0xC0)
"""UTF-8 bytes after the first one of a code point."""
_KEY: Final = "tool_result_budget_"


class Share(Struct, frozen=True):
    """The share of one result in tokens, and the free window after the model's answer."""

    tokens: int
    remaining: int


class Fitted(Struct, frozen=True):
    """A result within its share. ``cut`` has the content; ``metadata`` are the six keys about the share."""

    cut: Limited
    metadata: dict[str, Any]


def shares(remaining: int, results: int) -> tuple[int, int]:
    """Tokens for the results of a turn: for all together, and for each; ``remaining`` is the free window."""
    total = min(max(max(remaining, 0) * _PERCENT // 100, _TOTAL[0]), _TOTAL[1])
    even = total // max(results, 1)
    return total, even if even < _EACH[0] else min(even, _EACH[1])


class TurnBudget:
    """Assigns shares to the results of one turn, in their order."""

    def __init__(self, remaining: int) -> None:
        """Start a turn with so many free tokens."""
        self.remaining = max(remaining, 0)
        self._taken = 0
        self._given = 0

    def answered(self, tokens: int) -> None:
        """Count the answer with the calls. Shares that were assigned before it was complete stay."""
        if not self._given:
            self.remaining = max(self.remaining - tokens, 0)

    def share(self, results: int | None) -> Share:
        """Return the share of the next result; ``results`` is how many the turn has, ``None`` while that is not known.

        While it is not known (early reads), each gets a quarter of what is left.
        """
        total, even = shares(self.remaining, results or 1)
        free = max(total - self._taken, 0)
        others = 4 if results is None else max(results - self._given, 1)
        return Share(min(even, free // others), self.remaining)

    def took(self, tokens: int) -> None:
        """Count a result of so many tokens."""
        self._taken += tokens
        self._given += 1


def fit(content: tuple[ToolPart, ...], whole: str | None, share: Share, limit: int | None) -> Fitted:
    """Cut a result to its share.

    ``whole`` is the full text if ``content`` is a shortened form already. A result that the loop will cut to fewer
    characters, to ``limit``, is not cut here.
    """
    original = kept_tokens = _tokens(content)
    cut = Limited(content)
    if original > share.tokens:
        text, note, at = "\n".join(_texts(content)), "", 0
        shorter = (Text(compress(text)), *_media(content)) if whole is None and len(text) > _LONG else content
        kept_tokens = min(_tokens(shorter), share.tokens)
        if _tokens(shorter) > share.tokens:
            note = f"\n...[truncated by ToolResultBudget: originalTokens={original}, keptTokens={share.tokens}]"
            shorter, at = _beginning(shorter, share.tokens * _PER_TOKEN, note)
        shown = "\n".join(_texts(shorter[: at + 1]))
        if whole is not None or limit is None or tool_output.count(shown) - len(note) <= limit:
            whole = text if whole is None else whole
            cut = Limited(shorter, whole, at, tool_output.count(_common(shown, whole)))
    return Fitted(
        cut,
        {
            f"{_KEY}applied": original > share.tokens,
            f"{_KEY}remaining_tokens": share.remaining,
            f"{_KEY}per_result_tokens": share.tokens,
            f"{_KEY}original_tokens": original,
            f"{_KEY}kept_tokens": kept_tokens,
            f"{_KEY}truncated_count": int(original > share.tokens),
        },
    )


def _texts(content: tuple[ToolPart, ...]) -> list[str]:
    return [text for part in content if (text := text_of(part)) is not None]


def _media(content: tuple[ToolPart, ...]) -> list[ToolPart]:
    return [part for part in content if text_of(part) is None]


def _tokens(content: tuple[ToolPart, ...]) -> int:
    return -(-sum([_bytes(text) for text in _texts(content)]) // _PER_TOKEN)


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _beginning(content: tuple[ToolPart, ...], size: int, note: str) -> tuple[tuple[ToolPart, ...], int]:
    """The first ``size`` bytes of the text, a note, all media, and the index of the note."""
    parts: list[ToolPart] = []
    at: int | None = None
    for part in content:
        text = text_of(part)
        if text is None:
            parts.append(part)
        elif at is None and _bytes(text) <= size:
            parts.append(part)
            size -= _bytes(text)
        elif at is None:
            at = len(parts)
            parts.append(Text(_head(text, size) + note))
    return tuple(parts), at or 0


def _common(one: str, other: str) -> str:
    """The common prefix."""
    differs = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))
    return one[:differs]


def _head(text: str, size: int) -> str:
    """The longest prefix of at most ``size`` bytes that ends between two characters."""
    encoded = text[: size + 1].encode("utf-8", "surrogatepass")
    end = min(size, len(encoded))
    while 0 < end < len(encoded) and encoded[end] in _CONTINUING:  # inside a code point
        end -= 1
    head = encoded[:end].decode("utf-8", "surrogatepass")
    characters = tool_output.count(head)
    piece, _ = tool_output.cut(text[: len(head) + 1], 0, characters)
    return head if len(piece) <= len(head) else tool_output.cut(head, 0, characters - 1)[0]


# --- weighing ---------------------------------------------------------------------------------------------------------


_OF_OVERFLOW: Final = 0.9
"""The part of an overlong prompt that is assumed to fit."""


class TokenBudget:
    """Measures the prompts of one conversation, from run to run. ``window`` overrides that of the model."""

    def __init__(self, model: LanguageModel | None, *, window: int | None, counter: Counter | None) -> None:
        """Start without measurements."""
        self._chain = _flat(model)
        first = self._chain[0].name if self._chain else None
        self.ledger = Ledger(first, rates=None if first is None else rates_of(first), counter=counter)
        self.fixed = 0
        self._window = window
        self.assumed = WINDOW
        """The window of models whose window is not known."""
        self._head: tuple[object, ...] | None = None
        self._most: int | None = None
        self._turn: TurnBudget | None = None

    def measure(self, prompt: Prompt, context: RunContext) -> Measure:
        """Return the size of a prompt. Costs what is new in it."""
        path, messages, ledger = context.path(), prompt.messages, self.ledger
        head, before = (prompt.system, prompt.tools, prompt.settings.output), self._head
        if before is None or any(mine is not its for mine, its in zip(before, head, strict=True)):
            self._head = head
            self.fixed = ledger.fixed(*head)
        if before is None:
            ledger.recall(path, messages, fixed=self.fixed)
        measured = ledger.measure(messages, fixed=self.fixed, anchor=ledger.anchored(path, messages))
        room = self.capacity(prompt, context)
        self._turn = TurnBudget(room - measured.tokens)
        return measured

    # -- what a prompt may weigh -----------------------------------------------------------------------------------

    def capacity(self, prompt: Prompt, context: RunContext) -> int:
        """Return the tokens that a prompt may have."""
        return max(min([self._first(prompt), *self._bounds(context)]), 1)

    def is_assumed(self, prompt: Prompt, context: RunContext) -> bool:
        """Return whether the capacity follows from an assumed window."""
        known = self._window or (self._chain[0].capabilities.window if self._chain else None)
        first = self._first(prompt)
        return known is None and all(first < bound for bound in self._bounds(context))

    @property
    def knows_windows(self) -> bool:
        """Whether the window of each model of the chain is known."""
        windows = [None if each is None else each.capabilities.window for each in self._chain or (None,)]
        return self._window is not None or None not in windows

    def widen(self) -> None:
        """Assume a window of twice the size."""
        self.assumed *= 2

    def _first(self, prompt: Prompt) -> int:
        return self._of(self._chain[0] if self._chain else None, prompt)

    def _bounds(self, context: RunContext) -> list[int]:
        """What bounds a prompt besides the window."""
        return [size for size in (context.limits.context_tokens, self._most) if size is not None]

    def goal(self, prompt: Prompt, measured: Measure) -> int:
        """Return the target size of a prompt that was too long: half of it, or the smallest window of the chain."""
        return min([measured.tokens // 2, *[self._of(each, prompt) for each in self._chain]])

    def overflowed(self, measured: Measure) -> None:
        """Record that a prompt of this size was too long."""
        self._most = max(int(measured.tokens * _OF_OVERFLOW), 1)

    def _of(self, model: LanguageModel | None, prompt: Prompt) -> int:
        can = Capabilities() if model is None else model.capabilities
        settings = merge_settings(model.settings, prompt.settings) if isinstance(model, Model) else prompt.settings
        return capacity(self._window or can.window or self.assumed, can.max_output, settings)

    # -- what results may take -------------------------------------------------------------------------------------

    def answered(self, message: AssistantMessage) -> None:
        """Count the answer to the prompt that was measured last."""
        if self._turn is not None:
            self._turn.answered(round(estimate(message) * self.ledger.calibration.scale))

    def turn(self, context: RunContext) -> TurnBudget:
        """Return the budget of the next results."""
        if self._turn is None:
            self._turn = TurnBudget(self.capacity(Prompt(messages=()), context) - self._read(context))
        return self._turn

    def _read(self, context: RunContext) -> int:
        """Tokens of the conversation, for calls whose answer came in an earlier run."""
        path = context.path()
        last = next((e.message for e in reversed(path) if isinstance(e.message, AssistantMessage)), None)
        if last is not None and last.usage is not None and has_usage_report(last):
            return prompt_of(last.usage) + (last.usage.output or 0)
        return round(sum(map(estimate, context.messages())) * self.ledger.calibration.scale)


def _flat(model: LanguageModel | None) -> tuple[LanguageModel, ...]:
    """The models of a chain, in order."""
    if isinstance(model, Fallback):
        return tuple([each for one in model.models for each in _flat(one)])
    return () if model is None else (model,)
