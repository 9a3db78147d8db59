"""Exact counters: tiktoken's encodings, and tokenizers of Hugging Face.

Rules:

- The libraries are the extra ``tokenizers``. Each is imported when a counter of its kind is made; a missing one is one
  clear error. Making a counter may take a second, and tiktoken downloads a new encoding: without network, pass an
  ``Encoding`` or fill its cache (``TIKTOKEN_CACHE_DIR``).
- ``<|endoftext|>`` in a message is ordinary text.
- Texts are encoded in pieces of at most 32,768 characters: tiktoken panics on about 300,000 spaces, and before 0.13
  took quadratic time on a run without a break. A piece ends before a space between two words, where OpenAI's patterns
  split anyway; a run without one is cut, which may cost a token or two.
- Lone surrogates count as the replacement character.

Source: https://github.com/openai/tiktoken (issues 15, 195), https://huggingface.co/docs/tokenizers.

Stability: experimental.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from palaver.core.errors import (
    DecodeError,
    MessageError,
    MissingPackageError,
    TransportError,
    UnknownNameError,
    excerpt,
)
from palaver.tokens.counter import TextCounter
from palaver.tokens.media import MediaRates

if TYPE_CHECKING:
    import tiktoken
    import tokenizers

MAX_PIECE: Final = 32_768
"""The most characters that are read at once."""
_BREAK: Final = re.compile(r"(?<=\w)(?= \w)")
"""A place before a single space between two words; no token of an encoding crosses it."""
_SEARCHED: Final = 2_048
"""The characters at the end of a piece in which a break is searched."""


@final
class Tiktoken(TextCounter):
    """Counts with an encoding of tiktoken: ``"o200k_base"``, the id of a model (``"gpt-4o"``), or an ``Encoding``.

    Raises ``MissingPackageError`` when tiktoken is not installed, ``UnknownNameError`` for a name that it does not
    know, ``TransportError`` where the encoding cannot be fetched.
    """

    def __init__(self, encoding: str | tiktoken.Encoding, *, rates: MediaRates | None = None) -> None:
        """Load the encoding, which may fetch it."""
        library = _library("tiktoken")
        found: Any = _encoding(library, encoding) if isinstance(encoding, str) else encoding

        def tokens(text: str) -> int:
            return sum([len(found.encode_ordinary(piece)) for piece in pieces(text)])

        super().__init__(f"tiktoken {found.name}", tokens, rates=rates)


@final
class HuggingFace(TextCounter):
    """Counts with a tokeniser of Hugging Face: the path of a ``tokenizer.json``, or a ``tokenizers.Tokenizer``.

    The tokeniser that is given is copied; neither padding nor truncation counts. Raises ``MissingPackageError``
    when the library is not installed, ``MessageError`` when the tokeniser has parts in Python, and ``DecodeError`` for
    a file that is not a tokeniser.
    """

    def __init__(self, tokeniser: str | Path | tokenizers.Tokenizer, *, rates: MediaRates | None = None) -> None:
        """Read or copy the tokeniser."""
        library = _library("tokenizers")
        if isinstance(tokeniser, str | Path):
            name, found = Path(tokeniser).name, _read(library, Path(tokeniser))
        else:
            found = _copy(library, tokeniser)
            name = type(found.model).__name__
        found.no_padding()
        found.no_truncation()
        found.encode_special_tokens = True

        def tokens(text: str) -> int:
            return sum([len(found.encode(piece, add_special_tokens=False).ids) for piece in pieces(text)])

        super().__init__(f"tokenizers {name}", tokens, rates=rates)


def pieces(text: str, max_length: int = MAX_PIECE) -> Iterator[str]:
    """The text in pieces of at most ``max_length`` characters, cut before a space between words where possible."""
    text = _without_surrogates(text)
    start = 0
    while len(text) - start > max_length:
        end = start + max_length
        places = _BREAK.finditer(text, max(start + 1, end - _SEARCHED), end + 2)
        cut = max((place.start() for place in places), default=end)
        yield text[start:cut]
        start = cut
    yield text[start:]


def _without_surrogates(text: str) -> str:
    """The text without lone surrogates."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingPackageError.of(f"counting with {name} needs its package", "tokenizers", error) from None


def _encoding(library: Any, name: str) -> Any:
    """The encoding of that name, or of the model of that name."""
    try:
        encoding = name if name in library.list_encoding_names() else library.encoding_name_for_model(name)
    except KeyError:
        known = ", ".join(library.list_encoding_names())
        raise UnknownNameError(f"tiktoken has no encoding or model {name!r}; the encodings are {known}") from None
    try:
        return library.get_encoding(encoding)
    except Exception as error:
        hint = "tiktoken fetches it once; fill TIKTOKEN_CACHE_DIR where there is a network, or give an Encoding"
        raise TransportError(f"the encoding {encoding} cannot be loaded: {hint} ({_reason(error)})") from error


def _read(library: Any, path: Path) -> Any:
    try:
        return library.Tokenizer.from_str(path.read_text("utf-8"))
    except Exception as error:  # the library raises nothing more special
        raise DecodeError(f"not a tokeniser file: {_reason(error)}", source=str(path)) from error


def _copy(library: Any, tokeniser: Any) -> Any:
    try:
        return library.Tokenizer.from_str(tokeniser.to_str())
    except Exception as error:  # as above
        raise MessageError(f"the tokeniser cannot be copied: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    return excerpt(str(error), 120) or type(error).__name__
