"""Tools that a provider runs itself (a search of the web, a sandbox), asked of a model of another wire.

Rules:

- No other provider has such a tool under the same name and with the same results. By rule it is dropped, with a loss;
  or the request is refused; or the model's own tool of the same kind stands in for it (``ClientApi.server_tools``).
- A tool that stands in has its provider's defaults: what the client set of its own is on the receipt. What the model
  found comes as its text and its citations; the calls of its own tool stay at its provider.
- What nothing stands in for is dropped. The codec drops it.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, cast

from msgspec import UNSET

from palaver.core import jsontext, trusted
from palaver.core.errors import CapabilityError
from palaver.core.request import Loss
from palaver.core.tools import ProviderTool
from palaver.gateway.apis import API_OF
from palaver.gateway.client_api import ServerTool

if TYPE_CHECKING:
    from palaver.core.request import Request
    from palaver.core.tools import AnyTool

_NOTHING: Final[tuple[object, ...]] = (None, (), [])


def refuse_server_tools(request: Request, wire: str, model: str) -> None:
    """Raise ``CapabilityError`` for a request with tools of another wire than that of the model."""
    names = [_name(tool) for tool in request.tools if isinstance(tool, ProviderTool) and tool.wire != wire]
    names += [name for name, _ in _fields(request, wire)]
    if names:
        raise CapabilityError(f"{model} does not have the tools of another provider: {', '.join(names)}")


def substituted(request: Request, wire: str) -> tuple[Request, tuple[Loss, ...]]:
    """Return a request in which the tools of ``wire`` stand in for those of the same kind, and the losses."""
    own = {kind: each.written for kind, each in API_OF[wire].server_tools.items() if each.written is not None}
    losses = list[Loss]()
    tools: list[AnyTool] = []
    foreign = list[tuple[str, str, ProviderTool | None]]()
    foreign += [(name, kind, None) for name, kind in _fields(request, wire)]
    for each in request.tools:
        if isinstance(each, ProviderTool) and each.wire != wire:
            foreign.append((_name(each), _kind(each), each))
        else:
            tools.append(each)
    for name, kind, tool in foreign:
        if kind in own:
            made = trusted.ProviderTool(wire, jsontext.raw(own[kind]))
            tools += [made] if made not in tools else []
            losses.append(Loss("converted", name, f"the model's own tool for {kind}, as its provider sets it"))
        elif tool is not None:
            tools.append(tool)
    return (request.replace(tools=tuple(tools)), tuple(losses)) if losses else (request, ())


def _fields(request: Request, wire: str) -> Iterator[tuple[str, str]]:
    """Yield the fields of a request that are such tools, and their kinds."""
    for other, fields in request.provider.items() if request.provider_json is not UNSET else ():
        known = API_OF[other].server_fields if other != wire and other in API_OF else dict[str, str]()
        yield from ((name, kind) for name, kind in known.items() if fields.get(name) not in _NOTHING)


def _kind(tool: ProviderTool) -> str:
    """Return what a tool is for; empty where that is not known."""
    known = API_OF[tool.wire].server_tools if tool.wire in API_OF else dict[str, ServerTool]()
    names = _names(tool)
    return next((kind for kind, each in known.items() if any(each.names.fullmatch(name) for name in names)), "")


def _name(tool: ProviderTool) -> str:
    """Return what people call a tool: its name, its type, or the field that it is."""
    return next(iter(_names(tool)), "a tool without a name")


def _names(tool: ProviderTool) -> list[str]:
    found = tool.raw
    if not isinstance(found, Mapping) or not found:
        return []
    fields = cast("Mapping[str, object]", found)
    return [str(each) for each in (fields.get("name"), fields.get("type"), next(iter(fields))) if each]
