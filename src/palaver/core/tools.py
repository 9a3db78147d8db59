"""Tool definitions: what the model may call.

Stability: stable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias, Unpack, cast, final

from msgspec import UNSET, Raw, UnsetType, field

from palaver.core import jsontext
from palaver.core.errors import MessageError
from palaver.core.type_checks import Checked
from palaver.core.value import Value

if TYPE_CHECKING:
    from palaver.core.changes import RawChanges, ToolChanges


@final
class Tool(Value, frozen=True, tag_field="type", tag="function", metaclass=Checked):
    """A function the model may call.

    ``parameters`` is JSON Schema; ``strict`` asks the provider to enforce it.

    ``custom`` marks a free-text tool, which has no parameters but may have a format (in
    ``provider``).
    """

    name: str
    description: str | None = None
    parameters_json: Raw | UnsetType = field(default=UNSET, name="parameters")
    strict: bool | None = None
    custom: bool = False

    def replace(self, **changes: Unpack[ToolChanges]) -> Self:
        """Return a copy with some fields changed by ``changes``. Raises ``MessageError``."""
        return self.__replace__(**changes)

    @classmethod
    def of(
        cls,
        name: str,
        description: str | None = None,
        parameters: dict[str, Any] | None = None,
        *,
        strict: bool | None = None,
        provider: dict[str, Any] | None = None,
    ) -> Self:
        """Define a tool from Python values.

        ``name`` is the name by which the model calls it, and ``description`` tells the model what it does.
        ``parameters`` is a JSON Schema of an object; without it, the tool declares no parameters. ``provider`` holds
        fields by wire. Raises ``MessageError`` for parameters that are not a dict or that JSON cannot express.
        """
        if parameters is not None and not isinstance(cast("object", parameters), dict):
            raise MessageError(f"parameters: expected a dict, got {type(parameters).__name__}")
        schema = UNSET if parameters is None else jsontext.checked(parameters, "parameters")
        made = cls(name, description, schema, strict)
        return made if provider is None else made.replace(provider=provider)

    @property
    def parameters(self) -> Any:
        """The JSON Schema of the arguments, parsed and frozen; ``None`` when there is none."""
        return None if self.parameters_json is UNSET else jsontext.view(self.parameters_json)


@final
class ProviderTool(Value, frozen=True, tag_field="type", tag="provider", metaclass=Checked):
    """A tool that the provider itself runs or defines, verbatim.

    It means something on ``wire`` only.
    """

    keeps_unknown: ClassVar[bool] = True

    wire: str
    raw_json: Raw = field(name="raw")

    def replace(self, **changes: Unpack[RawChanges]) -> Self:
        """Return a copy with some fields changed by ``changes``. Raises ``MessageError``."""
        return self.__replace__(**changes)

    @property
    def raw(self) -> Any:
        """The definition, parsed and frozen."""
        return jsontext.view(self.raw_json)


AnyTool: TypeAlias = Tool | ProviderTool
