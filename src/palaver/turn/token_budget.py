"""What the next prompt of a conversation weighs, what it may weigh, and what its results may take of the rest.

Rules (D26, D29, KAI-03, KAI-17; docs/spec/kairo.md#2.4; golden ``tool_result_budget``):

- The provider's report of the last prompt counts, and the estimate of what came since (``context.Ledger``).
- Of a chain of models the first is asked: its window, its settings, its reports. When a prompt was too long for the
  chain, the smallest window in it counts. ``Limits.context_tokens`` bounds the room too. What was refused is
  remembered.
- The results of a turn together get 35 % of what is left, between 256 and 8192 tokens, in equal shares of 96 to 2048.
  A token is four bytes of UTF-8; media are neither counted nor cut.
- A result of more than 20,000 characters is compressed first. The metadata of a result say what it was given.

Stability: experimental.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from palaver.context.ledger import Ledger, Measure, has_usage_report, prompt_of
from palaver.context.plan import capacity
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
"""Bytes of UTF-8 behind the first one of a code point."""
_KEY: Final = "tool_result_budget_"


class Share(Struct, frozen=True):
    """What one result may take, in tokens, and what was left of the window when the model had answered."""

    tokens: int
    remaining: int


class Fitted(Struct, frozen=True):
    """A result within its share. ``cut`` says whether its text was shortened; ``metadata`` are the six keys."""

    cut: Limited
    metadata: dict[str, Any]


def shares(remaining: int, results: int) -> tuple[int, int]:
    """Tokens that the results of a turn may take: all of them together, and each; ``remaining`` is the free window."""
    total = min(max(max(remaining, 0) * _PERCENT // 100, _TOTAL[0]), _TOTAL[1])
    even = total // max(results, 1)
    return total, even if even < _EACH[0] else min(even, _EACH[1])


class TurnBudget:
    """Gives shares to the results of one turn, in the order in which they come."""

    def __init__(self, remaining: int) -> None:
        """Begin a turn with so many tokens left of the window."""
        self.remaining = max(remaining, 0)
        self._taken = 0
        self._given = 0

    def answered(self, tokens: int) -> None:
        """Count the answer that makes the calls. What began before the answer was whole has its shares already."""
        if not self._given:
            self.remaining = max(self.remaining - tokens, 0)

    def share(self, results: int | None) -> Share:
        """The share of the next result; ``results`` is how many the turn has, ``None`` while that is not known.

        While it is not known (reads that begin early), each may take a quarter of what those before it left.
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

    ``whole`` is all of its text where ``content`` is a shortened form of it already. A result that the loop cuts to
    fewer characters, to ``limit``, is left to it.
    """
    original = kept = _tokens(content)
    cut = Limited(content)
    if original > share.tokens:
        said, note, at = "\n".join(_texts(content)), "", 0
        shorter = (Text(compress(said)), *_media(content)) if whole is None and len(said) > _LONG else content
        kept = min(_tokens(shorter), share.tokens)
        if _tokens(shorter) > share.tokens:
            note = f"\n...[truncated by ToolResultBudget: originalTokens={original}, keptTokens={share.tokens}]"
            shorter, at = _beginning(shorter, share.tokens * _PER_TOKEN, note)
        shown = "\n".join(_texts(shorter[: at + 1]))
        if whole is not None or limit is None or tool_output.count(shown) - len(note) <= limit:
            whole = said if whole is None else whole
            cut = Limited(shorter, whole, at, tool_output.count(_common(shown, whole)))
    return Fitted(
        cut,
        {
            f"{_KEY}applied": original > share.tokens,
            f"{_KEY}remaining_tokens": share.remaining,
            f"{_KEY}per_result_tokens": share.tokens,
            f"{_KEY}original_tokens": original,
            f"{_KEY}kept_tokens": kept,
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
    """The beginning of the text, of so many bytes, with a note, all media, and the place of the note."""
    kept: list[ToolPart] = []
    at: int | None = None
    for part in content:
        text = text_of(part)
        if text is None:
            kept.append(part)
        elif at is None and _bytes(text) <= size:
            kept.append(part)
            size -= _bytes(text)
        elif at is None:
            at = len(kept)
            kept.append(Text(_head(text, size) + note))
    return tuple(kept), at or 0


def _common(one: str, other: str) -> str:
    """The text with which both begin."""
    differs = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))
    return one[:differs]


def _head(text: str, size: int) -> str:
    """The beginning of a text, of at most so many bytes, that ends between two characters."""
    encoded = text[: size + 1].encode("utf-8", "surrogatepass")
    end = min(size, len(encoded))
    while 0 < end < len(encoded) and encoded[end] in _CONTINUING:  # inside of a code point
        end -= 1
    head = encoded[:end].decode("utf-8", "surrogatepass")
    characters = tool_output.count(head)
    piece, _ = tool_output.cut(text[: len(head) + 1], 0, characters)
    return head if len(piece) <= len(head) else tool_output.cut(head, 0, characters - 1)[0]


# --- weighing ---------------------------------------------------------------------------------------------------------


_OF_OVERFLOW: Final = 0.9
"""How much of a prompt that was too long is taken to fit."""


class TokenBudget:
    """Weighs the prompts of one conversation, from run to run. ``window`` is what the caller says of the model."""

    def __init__(self, model: LanguageModel | None, *, window: int | None, counter: Counter | None) -> None:
        """Know nothing yet."""
        self._chain = _flat(model)
        first = self._chain[0].name if self._chain else None
        self.ledger = Ledger(first, rates=None if first is None else rates_of(first), counter=counter)
        self.fixed = 0
        self._window = window
        self._head: tuple[object, ...] | None = None
        self._most: int | None = None
        self._turn: TurnBudget | None = None

    def measure(self, prompt: Prompt, context: RunContext) -> Measure:
        """What a prompt weighs. Costs what is new in it."""
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
        """What a prompt may weigh, in tokens."""
        known = (self._of(self._chain[0] if self._chain else None, prompt), context.limits.context_tokens, self._most)
        return max(min([size for size in known if size is not None]), 1)

    def goal(self, prompt: Prompt, measured: Measure) -> int:
        """What a prompt shall weigh that was too long: half of it, or what the smallest window of the chain takes."""
        return min([measured.tokens // 2, *[self._of(each, prompt) for each in self._chain]])

    def overflowed(self, measured: Measure) -> None:
        """So much was too long."""
        self._most = max(int(measured.tokens * _OF_OVERFLOW), 1)

    def _of(self, model: LanguageModel | None, prompt: Prompt) -> int:
        can = Capabilities() if model is None else model.capabilities
        settings = merge_settings(model.settings, prompt.settings) if isinstance(model, Model) else prompt.settings
        return capacity(self._window or can.window, can.max_output, settings)

    # -- what results may take -------------------------------------------------------------------------------------

    def answered(self, message: AssistantMessage) -> None:
        """Count the answer to the prompt that was measured last: its calls have less of the window."""
        if self._turn is not None:
            self._turn.answered(round(estimate(message) * self.ledger.calibration.scale))

    def turn(self, context: RunContext) -> TurnBudget:
        """The budget of the results that the model is sent next."""
        if self._turn is None:
            self._turn = TurnBudget(self.capacity(Prompt(messages=()), context) - self._read(context))
        return self._turn

    def _read(self, context: RunContext) -> int:
        """Tokens of the conversation, where calls are run whose answer came in an earlier run."""
        path = context.path()
        last = next((e.message for e in reversed(path) if isinstance(e.message, AssistantMessage)), None)
        if last is not None and last.usage is not None and has_usage_report(last):
            return prompt_of(last.usage) + (last.usage.output or 0)
        return round(sum(map(estimate, context.messages())) * self.ledger.calibration.scale)


def _flat(model: LanguageModel | None) -> tuple[LanguageModel, ...]:
    """The models of a chain, in the order in which they are asked."""
    if isinstance(model, Fallback):
        return tuple([each for one in model.models for each in _flat(one)])
    return () if model is None else (model,)
