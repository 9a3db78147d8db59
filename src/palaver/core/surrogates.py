"""Halves of characters, and what a provider gets in their place.

Rules (CBF-14, docs/spec/message-fields.md#F43, docs/spec/dialects.md#0.12):

- Text that was cut inside of a UTF-16 pair holds half a character. Python and JSON can express it, as a code point and
  an escape; UTF-8 cannot, and many parsers refuse the escape. So a message keeps it, and a body has U+FFFD in its
  place.
- Two halves that stand side by side, as code points, are the character that they make.

Stability: experimental.
"""

from __future__ import annotations

import re
from typing import Final

_ESCAPE: Final = re.compile(
    r"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)


def paired(text: str) -> str:
    """Join halves of surrogate pairs that stand side by side; a lone one stays."""
    return _joined(text, "surrogatepass")


def sayable(text: str) -> str:
    """A text that UTF-8 can express: pairs joined, and U+FFFD for each half that stands alone."""
    return _joined(text, "replace")


def _joined(text: str, lone: str) -> str:
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", lone)
    return text


def sayable_json(text: str) -> str:
    """JSON text whose strings UTF-8 can express: ``sayable``, and U+FFFD for each escape that is half a character."""
    text = sayable(text)
    if "\\u" not in text:
        return text
    return _ESCAPE.sub(lambda found: found[0] if found[1] is None else "\\ufffd", text)
