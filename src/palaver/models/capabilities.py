"""What a model can see and do, as data.

Rules:

- A capability that is missing is met in one of two ways, as the caller asks: what needs it is left out or said in
  another way, with a ``Loss`` (``missing="drop"``), or refused with a ``CapabilityError`` (``"refuse"``).
- ``None`` is "not known": what is not known is sent, and the provider decides.

Stability: experimental.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct, structs

from palaver.core.type_checks import check_arguments
from palaver.wires._engine.capabilities import MEDIA_KINDS, MediaKind

Missing: TypeAlias = Literal["drop", "refuse"]


class Capabilities(Struct, frozen=True, kw_only=True):
    """What a model takes and gives. Sizes are in tokens.

    ``media``: the kinds it can see. ``structured``: the form of answer that it can be held to: any JSON Schema, any
    JSON, or none. ``prefill``: it goes on with an assistant message that ends the prompt.
    """

    media: frozenset[MediaKind] = frozenset(MEDIA_KINDS)
    tools: bool = True
    parallel_tools: bool = True
    reasoning: bool | None = None
    structured: Literal["json_schema", "json"] | None = "json_schema"
    streaming: bool = True
    prefill: bool = False
    window: int | None = None
    max_output: int | None = None

    def __post_init__(self) -> None:
        """Refuse values of another type. Raises ``MessageError``, which names the field."""
        check_arguments("Capabilities", Capabilities, structs.asdict(self))
