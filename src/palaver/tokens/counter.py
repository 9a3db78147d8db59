"""The contract of a local token counter, and the counter by estimate.

Rules:

- A counter is local and pure. ``palaver.models.token_count`` asks the provider instead; ``Calibration`` learns the
  difference.
- A message is the sum of its parts, and 0 without any; the overhead of a message is added when a prompt is measured.
  All text is counted as text: user text, reasoning, arguments of calls, results. Media and encrypted parts are
  estimated by every counter alike (D29).
- Tool definitions are counted as their JSON, which approximates what providers make of them.

Stability: experimental.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Protocol, final

from palaver.core import canonical
from palaver.core.messages import Message
from palaver.core.parts import Json, MalformedToolCall, Reasoning, Refusal, Text, ToolCall
from palaver.core.tools import AnyTool
from palaver.tokens.estimate import estimate, estimate_tools
from palaver.tokens.media import MediaRates


class Counter(Protocol):
    """Counts tokens. ``name`` names the method, for logs and records: ``estimate``, ``tiktoken o200k_base``."""

    @property
    @abstractmethod
    def name(self) -> str:
        """How it counts."""
        ...

    @abstractmethod
    def count(self, message: Message, /) -> int:
        """Return the tokens of ``message``; 0 for one without parts."""
        ...

    @abstractmethod
    def count_tools(self, tools: Iterable[AnyTool], /) -> int:
        """Return the tokens of the definitions of ``tools``."""
        ...


@final
class EstimateCounter(Counter):
    """Counts by the length of texts, without a tokenizer. ``rates`` are what media cost on the model."""

    def __init__(self, *, rates: MediaRates | None = None) -> None:
        """Keep the rates."""
        self._rates = rates

    @property
    def name(self) -> str:
        """How it counts."""
        return "estimate"

    def count(self, message: Message, /) -> int:
        """Return the tokens of ``message``, by estimate."""
        return estimate(message, self._rates)

    def count_tools(self, tools: Iterable[AnyTool], /) -> int:
        """Return the tokens of the definitions of ``tools``, by estimate."""
        return estimate_tools(tools)

    def __repr__(self) -> str:
        """Say what it is."""
        return "EstimateCounter()"


class TextCounter(Counter):
    """Counts texts with a function, and estimates other parts. ``rates`` are what media cost on the model."""

    def __init__(self, name: str, tokens: Callable[[str], int], *, rates: MediaRates | None = None) -> None:
        """Keep the function; ``tokens`` returns the tokens of one text."""
        self._name = name
        self._tokens = tokens
        self._rates = rates

    @property
    def name(self) -> str:
        """How it counts."""
        return self._name

    def count(self, message: Message, /) -> int:
        """Return the tokens of a message: counted for texts, and estimated for other parts."""
        total, rest = 0, list[Any]()
        for part in message.content:
            text = _text(part)
            if text is None:
                rest.append(part)
            elif text:
                total += self._tokens(text)
        return total + estimate(message.replace(content=tuple(rest)), self._rates) if rest else total

    def count_tools(self, tools: Iterable[AnyTool], /) -> int:
        """Tokens of the definitions of tools, as JSON."""
        return sum([self._tokens(canonical.encode(tool).decode()) for tool in tools])

    def __repr__(self) -> str:
        """Say what it is."""
        return f"{type(self).__name__}({self.name})"


def _text(part: Any) -> str | None:
    """Return the text of a part; ``None`` for a part without text."""
    match part:
        case Text() | Refusal():
            return part.text
        case Reasoning():
            return part.text or None
        case ToolCall():
            return part.arguments_json
        case MalformedToolCall():
            return part.raw
        case Json():
            return bytes(part.value_json).decode()
        case _:
            return None
