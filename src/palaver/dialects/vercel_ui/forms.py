"""The tables of UI messages: which parts and keys there are, and where a provider's proofs stand.

Rules (dialects.md 10):

- Provider data of a part is ``{package: {key: value}}``; the package names the wire. What is proof of reasoning becomes
  that of the part; what has no field of ours stays with the part under ``provider["@vercel_ui"]``.
- The name of a tool is what stands behind ``tool-`` in the type of its part, dashes and all.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from palaver.core import jsontext
from palaver.core.errors import PalaverError
from palaver.core.messages import BOOKKEEPING
from palaver.core.parts import Audio, File, FileId, Image, Url, Video
from palaver.dialects.fields import inner, string

if TYPE_CHECKING:
    from collections.abc import Mapping

    from palaver.core.jsontext import Fields
    from palaver.core.messages import FinishReason
    from palaver.core.parts import AnyPart

AnyMedia: TypeAlias = Image | Audio | Video | File

NAME: Final = "vercel_ui"
TOOL: Final = "tool-"
DATA: Final = "data-"
OURS: Final = "data-palaver"
"""The type of the part that stands where there is nothing that a model may be sent."""
DENIED: Final = "Tool call execution denied."

MESSAGE: Final = frozenset(("id", "role", "metadata", "parts"))
OLD_MESSAGE: Final = MESSAGE | {
    "annotations",
    "content",
    "createdAt",
    "data",
    "experimental_attachments",
    "reasoning",
    "revisionId",
    "toolInvocations",
}
"""Keys of version 4."""

_PROVIDER: Final = frozenset(("type", "providerMetadata"))
TOOL_KEYS: Final = frozenset(
    (
        "type",
        "toolCallId",
        "title",
        "toolMetadata",
        "state",
        "input",
        "rawInput",
        "inputEncoding",
        "output",
        "errorText",
        "providerExecuted",
        "callProviderMetadata",
        "resultProviderMetadata",
        "preliminary",
        "approval",
    )
)
PARTS: Final = {
    "text": _PROVIDER | {"text", "state", "citations"},
    "reasoning": _PROVIDER | {"id", "text", "state", "reasoning", "details"},
    "reasoning-file": _PROVIDER | {"mediaType", "url"},
    "file": _PROVIDER | {"mediaType", "filename", "url", "providerReference", "mimeType", "data"},
    "source-url": _PROVIDER | {"sourceId", "url", "title"},
    "source-document": _PROVIDER | {"sourceId", "mediaType", "title", "filename"},
    "source": frozenset(("type", "source")),
    "custom": _PROVIDER | {"kind"},
    "step-start": frozenset(("type",)),
    "steering-message": frozenset(("type", "id", "parts")),
    "dynamic-tool": TOOL_KEYS | {"toolName", "dynamic"},
    "tool-invocation": frozenset(("type", "toolInvocation")),
}
OPAQUE: Final = {
    "source-url": ("sourceId", "url"),
    "source-document": ("sourceId", "mediaType", "title"),
    "custom": ("kind",),
    "reasoning-file": ("mediaType", "url"),
}
"""Parts that are kept as they are, with what they must say; ``data-…`` are others."""
UNFINISHED: Final = frozenset(("input-available", "approval-requested", "approval-responded"))

FINISH: Final[dict[str, FinishReason]] = {
    "stop": "stop",
    "length": "length",
    "tool-calls": "tool_calls",
    "content-filter": "content_filter",
    "error": "error",
    "other": "other",
    "unknown": "other",
}


class _Proof(NamedTuple):
    wire: str
    signature: str = ""
    encrypted: str = ""


_PROOFS: Final = {
    "anthropic": _Proof("anthropic_messages", "signature", "redactedData"),
    "bedrock": _Proof("bedrock_converse", "signature", "redactedData"),
    "openai": _Proof("openai_responses", "", "reasoningEncryptedContent"),
    "azure": _Proof("openai_responses", "", "reasoningEncryptedContent"),
    "google": _Proof("google_generate", "thoughtSignature"),
    "vertex": _Proof("google_generate", "thoughtSignature"),
}
_ITEM: Final = "itemId"
PACKAGES: Final = {proof.wire: package for package, proof in reversed(_PROOFS.items())}
"""The package that writes the data of a wire."""


class Proof(NamedTuple):
    """What provider data proves. ``item`` is the id of the item in a response of OpenAI."""

    wire: str | None = None
    signature: str | None = None
    encrypted: str | None = None
    item: str | None = None


def proof_of(metadata: Fields) -> Proof:
    """The proof in provider data: that of the first package that we know and that has one."""
    found = Proof()
    for package, known in _PROOFS.items():
        held = inner(metadata, package)
        proof = Proof(
            known.wire,
            string(held, known.signature),
            string(held, known.encrypted),
            string(held, _ITEM) if known.wire == "openai_responses" else None,
        )
        if any(proof[1:]):
            return proof
        if package in metadata and found.wire is None:
            found = Proof(known.wire)
    return found


def metadata_of(proof: Proof) -> dict[str, dict[str, Any]]:
    """Provider data that says a proof; empty where there is no package for its wire."""
    package = PACKAGES.get(proof.wire or "")
    if package is None:
        return {}
    known = _PROOFS[package]
    given = ((known.signature, proof.signature), (known.encrypted, proof.encrypted), (_ITEM, proof.item))
    held = {key: each for key, each in given if key and each is not None}
    return {package: held} if held else {}


def rest_of(metadata: Fields, proof: Proof) -> dict[str, Any]:
    """Provider data without its proof."""
    said = metadata_of(proof)
    rest: dict[str, Any] = {}
    for package, raw in metadata.items():
        if package not in said or jsontext.kind(raw) != "an object":
            rest[package] = jsontext.value(raw)
            continue
        known = said[package]
        left = {key: jsontext.value(each) for key, each in jsontext.fields(raw).items() if key not in known}
        if left:
            rest[package] = left
    return rest


def beside(rest: Mapping[str, Any], **more: str | None) -> dict[str, dict[str, Any]]:
    """What a part keeps that has no field of ours."""
    held: dict[str, Any] = {key: each for key, each in more.items() if each is not None}
    if rest:
        held["providerMetadata"] = dict(rest)
    return {BOOKKEEPING + NAME: held} if held else {}


def kept_beside(part: AnyPart) -> Mapping[str, Any]:
    """The reverse of ``beside``."""
    return part.provider.get(BOOKKEEPING + NAME, {})


_MEDIA: Final[dict[str, type[Image | Audio | Video]]] = {"image": Image, "audio": Audio, "video": Video}


def media(url: str, media_type: str | None, name: str | None, reference: Fields) -> AnyMedia:
    """The part that a file is."""
    source: Any = Url(url)
    for package, raw in reference.items():
        if jsontext.kind(raw) == "a string":
            source = FileId(jsontext.text(raw), _PROOFS[package].wire if package in _PROOFS else package)
            break
    else:
        if url[:5].lower() == "data:":
            try:
                found = File.from_data_uri(url)
            except PalaverError:
                found = File(source)
            source, media_type = found.source, media_type or found.media_type
    cls = _MEDIA.get((media_type or "").partition("/")[0])
    if cls is None:
        return File(source, media_type, name=name)
    return cls(source, media_type) if name is None else cls(source, media_type).replace(provider=beside({}, name=name))


def media_type_of(part: AnyMedia) -> str:
    """The media type of a part; where it has none, that of its kind."""
    if part.media_type is not None:
        return part.media_type
    match part:
        case Image():
            return "image/*"
        case Audio():
            return "audio/*"
        case Video():
            return "video/*"
        case File():
            return "application/octet-stream"
