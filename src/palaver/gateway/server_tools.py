"""Tools that a provider runs itself (a search of the web, a sandbox), asked of a model of another wire.

No other provider has such a tool under the same name and with the same results, so nothing stands in for one: by rule
it is dropped, with a loss, or the request is refused. The codec drops it.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, cast

from msgspec import UNSET

from palaver.core.errors import CapabilityError
from palaver.core.tools import ProviderTool

if TYPE_CHECKING:
    from palaver.core.request import Request

_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "openai_chat": ("web_search_options", "plugins"),
    "anthropic_messages": ("mcp_servers",),
}
"""Fields of a request that are such tools. https://openrouter.ai/docs/features/web-search has ``plugins``."""
_NOTHING: Final[tuple[object, ...]] = (None, (), [])


def refuse_server_tools(request: Request, wire: str, model: str) -> None:
    """Raise ``CapabilityError`` for a request with tools of another wire than that of the model."""
    names = [_name(tool) for tool in request.tools if isinstance(tool, ProviderTool) and tool.wire != wire]
    for other, fields in request.provider.items() if request.provider_json is not UNSET else ():
        names += [name for name in _FIELDS.get(other, ()) if other != wire and fields.get(name) not in _NOTHING]
    if names:
        raise CapabilityError(f"{model} does not have the tools of another provider: {', '.join(names)}")


def _name(tool: ProviderTool) -> str:
    """Return what people call a tool: its name, its type, or the field that it is."""
    found = tool.raw
    if not isinstance(found, Mapping) or not found:
        return "a tool without a name"
    fields = cast("Mapping[str, object]", found)
    return str(fields.get("name") or fields.get("type") or next(iter(fields)))
