"""Objects of the official clients as bodies: pydantic models of answers and chunks, and dictionaries that hold such.

Rules:

- A model is read by what was set on it, and by the texts that its class sets by default: a role, a type.
- An object may be the body, or stand anywhere inside one: an answer among the messages of the next request.
- What a client leaves out of a body (``NOT_GIVEN``, ``omit``) is left out.
- What a client adds to an answer for its caller, such as the parsed text, is not read (``_CLIENT_FIELDS``): no provider
  sends it, and one refuses a request that holds it. Values in plain dictionaries are taken as they are.
- A raw response (``with_raw_response``) is read by the body that came. Of the events of openai's
  ``chat.completions.stream()``, those with a chunk are the chunk, and the others, which are made from it, are none.
- A class of answers, such as ``response_format=Boat``, is refused: it is for a client's own ``parse``.
- boto3 and others have bytes where the body has base64.

Stability: experimental.
"""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Protocol, cast, get_args, get_origin, runtime_checkable

from palaver.core import jsontext
from palaver.core.errors import DecodeError, excerpt

if TYPE_CHECKING:
    from collections.abc import Sequence


@runtime_checkable
class ClientObject(Protocol):
    """A ``ChatCompletion``, a ``Message``, a chunk of a stream: whatever pydantic made."""

    def model_dump_json(
        self, *, by_alias: bool, exclude_unset: bool, exclude: dict[str, Any] | None, warnings: bool
    ) -> str:
        """Write the object as JSON."""
        ...


_TEXTS: Final[frozenset[type]] = frozenset({bytes, str, bytearray, memoryview})
_LEFT_OUT: Final = frozenset({"NotGiven", "Omit"})
"""The classes by which openai and anthropic say that a field is not sent."""
_BLOBS: Final = frozenset({"bytes", "redactedContent", "data", "thoughtSignature", "images"})
"""Where boto3, google-genai and ollama have bytes, and the body has base64."""


_CLIENT_FIELDS: Final[dict[str, frozenset[str]]] = {
    "openai": frozenset({"parsed", "parsed_arguments", "snapshot"}),
    "anthropic": frozenset({"parsed_output", "snapshot"}),
    "google": frozenset({"automatic_function_calling_history", "parsed", "sdk_http_response"}),
}
"""The fields that a client adds to what the provider sent, by the package of the class that declares them. Those of
cohere and ollama add none."""


def source(body: Any) -> bytes:
    """The JSON text of a body, also of a client's object, and of a body with such objects inside.

    Raises ``DecodeError`` for what is no JSON.
    """
    if body.__class__ in _TEXTS:
        return jsontext.source(cast("bytes", body))
    if _is_object(body):
        return _written(body).encode()
    raw = getattr(getattr(body, "http_response", None), "content", None)
    if isinstance(raw, bytes):
        return jsontext.source(raw)
    try:
        return jsontext.source(body)
    except DecodeError:
        if not isinstance(body, dict):
            raise
        return jsontext.source(cast("dict[str, Any]", _opened(cast("object", body), jsontext.DEEPEST)))


_HELPER_EVENTS: Final = "openai.lib.streaming.chat."
"""The module of the events that openai's helper makes from the chunks of a stream."""


def chunk_of(event: Any) -> Any:
    """The chunk in an event of a client's helper, or the event itself; ``None`` for one that only repeats chunks."""
    made = type(event).__module__.startswith(_HELPER_EVENTS)
    return getattr(event, "chunk", None) if made else event


def _is_object(value: object) -> bool:
    return isinstance(value, ClientObject) and not isinstance(value, type)


def _written(made: ClientObject) -> str:
    """Return a client's object with the fields that are set, and with the texts that its classes set themselves."""
    try:
        # Clients make objects unchecked, and pydantic would warn of every value that is not as their classes say.
        text = made.model_dump_json(
            by_alias=True, exclude_unset=True, exclude=_client_fields(type(made)), warnings=False
        )
    except Exception as error:  # whatever the library of the object raises
        raise DecodeError(f"{type(made).__name__} cannot be written: {excerpt(str(error), 120)}") from error
    if not isinstance(cast("object", text), str):
        raise DecodeError(f"{type(made).__name__} cannot be written: {excerpt(repr(text), 120)} is not a text")
    if not _sets_constants(type(made)):
        return text
    body = jsontext.value(text)
    return jsontext.encode(body).decode() if _add_constants(made, body) else text


@cache
def _client_fields(kind: type) -> dict[str, Any] | None:
    """Return what pydantic leaves out of an object of a class: ``{"choices": {"__all__": {"message": …}}}``."""
    return _fields_in(kind, {}) or None


def _fields_in(annotation: Any, known: dict[type, dict[str, Any]]) -> dict[str, Any]:
    """Return the fields that clients add, in a class or in the classes that a type is made of.

    ``known`` has the classes that were read; one that holds itself is there, with nothing yet.
    """
    found: dict[str, Any] = {}
    fields: dict[str, Any] | None = getattr(annotation, "model_fields", None)
    if fields is None:
        for each in get_args(annotation):
            _merge(found, _fields_in(each, known))
        return {"__all__": found} if found and get_origin(annotation) in (list, tuple) else found
    if annotation not in known:
        known[annotation] = found
        names = {name for each in annotation.__mro__ for name in _own_client_fields(each)}
        inner = {name: True if name in names else _fields_in(field.annotation, known) for name, field in fields.items()}
        found.update((name, each) for name, each in inner.items() if each)
    return known[annotation]


def _own_client_fields(kind: type) -> frozenset[str]:
    """Return the fields that a client adds, of a class of its own.

    A class of the user has those of its bases, and so has a generic one that pydantic makes in the user's module
    (``ParsedChatCompletion[Form]``).
    """
    names = _CLIENT_FIELDS.get(kind.__module__.partition(".")[0], frozenset())
    return names & getattr(kind, "model_fields", {}).keys()


def _merge(found: dict[str, Any], more: dict[str, Any]) -> None:
    """Add to ``found`` what ``more`` leaves out."""
    for name, inner in more.items():
        if inner is True or found.get(name) is True:
            found[name] = True
        else:
            found[name] = dict(found.get(name, {}))
            _merge(found[name], inner)


@cache
def _sets_constants(kind: type) -> bool:
    """Whether a class, or one that its fields may hold, has a text by default. Classes of answers have none."""
    seen: set[type] = set()
    pending: list[Any] = [kind]
    while pending:
        found = pending.pop()
        pending.extend(get_args(found))
        if not isinstance(found, type) or found in seen:
            continue
        seen.add(found)
        for field in getattr(found, "model_fields", {}).values():
            if isinstance(field.default, str):
                return True
            pending.append(field.annotation)
    return False


def _add_constants(made: object, body: object) -> bool:
    """Add to ``body`` the texts that classes of ``made`` set by default: a role, a type. Return whether there were any.

    A class such as ``ModelContent`` of google-genai has its role by default, and pydantic counts it as unset.
    """
    if isinstance(body, list):
        pairs = zip(cast("Sequence[object]", made), cast("list[object]", body), strict=False) if _is_list(made) else ()
        found = [_add_constants(one, other) for one, other in pairs]
        return any(found)
    if not isinstance(body, dict):
        return False
    fields, added = cast("dict[str, object]", body), False
    if isinstance(made, dict):
        inner = cast("dict[str, object]", made)
        found = [_add_constants(inner[key], value) for key, value in fields.items() if key in inner]
        return any(found)
    for name, field in getattr(type(made), "model_fields", {}).items():
        key = field.serialization_alias or field.alias or name
        if key in fields:
            added = _add_constants(getattr(made, name, None), fields[key]) or added
        elif isinstance(field.default, str):
            fields[key], added = field.default, True
    return added


def _is_list(made: object) -> bool:
    return isinstance(made, list | tuple)


def _opened(value: object, levels: int, key: object = None) -> object:
    """A value whose client objects, at so many levels, are JSON values."""
    if not levels:
        return value
    if isinstance(value, dict):
        items = cast("dict[object, object]", value).items()
        return {name: _opened(each, levels - 1, name) for name, each in items if type(each).__name__ not in _LEFT_OUT}
    if isinstance(value, list | tuple):
        return [_opened(each, levels - 1, key) for each in cast("list[object]", value)]
    if _is_object(value):
        return jsontext.value(_written(cast("ClientObject", value)).encode())
    if isinstance(value, type) and hasattr(value, "model_json_schema"):
        raise _class_error(value.__name__, key)
    if isinstance(value, bytes) and key in _BLOBS:
        return b64encode(value).decode()
    return value


def _class_error(name: str, key: object) -> DecodeError:
    form = f'{{"type": "json_schema", "json_schema": {{"name": "{name}", "schema": {name}.model_json_schema()}}}}'
    return DecodeError(
        f"{name} is a class, which only a client's own parse() takes; pass its JSON Schema in the provider's form: "
        f"{form} as response_format of openai_chat",
        path=key if isinstance(key, str) else "",
    )
