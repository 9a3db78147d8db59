"""Provider data as the packages of the AI SDK name it: ``{package: {key: value}}``, and the proofs in it.

Rules (docs/spec/dialects.md#7, #10):

- The package names the wire. A proof of reasoning becomes the proof of that part; the format keeps the rest.
- If several packages have data, the proof is that of the first known one with a proof.

Stability: experimental.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar, cast

from palaver.core import jsontext, trusted
from palaver.core.errors import PalaverError
from palaver.core.messages import BOOKKEEPING
from palaver.core.parts import Audio, File, Image, Inline, Reasoning, Text, ToolCall, Video
from palaver.transcripts.fields import inner, string

if TYPE_CHECKING:
    from collections.abc import Mapping

    from palaver.core.jsontext import Fields
    from palaver.core.parts import AnyPart


AnyMedia: TypeAlias = Image | Audio | Video | File
P = TypeVar("P", bound="Text | ToolCall | Image | Audio | Video | File")

_ABSOLUTE: Final = re.compile(r"(?!https?:)[a-zA-Z][a-zA-Z0-9+.-]*:.|https?://[^/?#\s]")


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
    """The proof in provider data. ``item`` is the id of the item in a response of OpenAI."""

    wire: str | None = None
    signature: str | None = None
    encrypted: str | None = None
    item: str | None = None


def proof_of(metadata: Fields) -> Proof:
    """Return the proof in provider data: that of the first known package with a proof."""
    found = Proof()
    for package, known in _PROOFS.items():
        stored = inner(metadata, package)
        proof = Proof(
            known.wire,
            string(stored, known.signature),
            string(stored, known.encrypted),
            string(stored, _ITEM) if known.wire == "openai_responses" else None,
        )
        if any(proof[1:]):
            return proof
        if package in metadata and found.wire is None:
            found = Proof(known.wire)
    return found


def metadata_of(proof: Proof) -> dict[str, dict[str, Any]]:
    """Return provider data with a proof; empty when there is no package for its wire."""
    package = PACKAGES.get(proof.wire or "")
    if package is None:
        return {}
    known = _PROOFS[package]
    given = ((known.signature, proof.signature), (known.encrypted, proof.encrypted), (_ITEM, proof.item))
    stored = {key: each for key, each in given if key and each is not None}
    return {package: stored} if stored else {}


def rest_of(metadata: Fields, proof: Proof) -> dict[str, Any]:
    """Return provider data without its proof."""
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


def proof_in(part: AnyPart) -> Proof:
    """Return the proof of a part: of its reasoning, or Google's mark beside a text or a call."""
    if isinstance(part, Reasoning):
        named = part.provider.get(part.wire or "", {}).get("id")
        return Proof(part.wire, part.signature, part.encrypted, named if isinstance(named, str) else None)
    signature = part.provider.get("google_generate", {}).get("thoughtSignature")
    return Proof("google_generate", signature) if isinstance(signature, str) else Proof()


def marked(part: P, metadata: Fields, file_format: str) -> P:
    """Return a text, call or file with its provider data: Google's mark in the wire's field, the rest beside it."""
    proof = proof_of(metadata)
    mark: dict[str, Any] = {}
    if proof.wire == "google_generate" and proof.signature is not None:
        mark = {proof.wire: {"thoughtSignature": proof.signature}}
    stored = {**part.provider, **mark, **_beside(file_format, part, rest_of(metadata, proof if mark else Proof()))}
    return cast("P", part.replace(provider=stored)) if stored else part


def reasoning(text: str, metadata: Fields, file_format: str) -> Reasoning:
    """Return reasoning with its proof; the rest of its provider data is kept beside it."""
    proof = proof_of(metadata)
    made = trusted.Reasoning(text, proof.signature, proof.encrypted, proof.wire)
    stored = _beside(file_format, made, rest_of(metadata, proof))
    if proof.item is not None and proof.wire is not None:
        stored[proof.wire] = {"id": proof.item}
    return made.replace(provider=stored) if stored else made


def provider_data(part: AnyPart, file_format: str) -> dict[str, Any]:
    """Return the provider data of a part: its proof, and other kept data."""
    made: dict[str, Any] = dict(kept_beside(part, file_format).get("providerMetadata", {}))
    for package, stored in metadata_of(proof_in(part)).items():
        made[package] = {**made.get(package, {}), **stored}
    return made


def kept_beside(part: AnyPart, file_format: str) -> Mapping[str, Any]:
    """Return the kept data of a part for which we have no field."""
    return part.provider.get(BOOKKEEPING + file_format, {})


def _beside(file_format: str, part: AnyPart, rest: Mapping[str, Any]) -> dict[str, Any]:
    stored = dict(kept_beside(part, file_format))
    if rest:
        stored["providerMetadata"] = dict(rest)
    return {BOOKKEEPING + file_format: stored} if stored else {}


# -- files -------------------------------------------------------------------------------------------------------------

_MEDIA: Final[dict[str, type[Image | Audio | Video]]] = {"image": Image, "audio": Audio, "video": Video}


def media(
    url: str, media_type: str | None, name: str | None, file_format: str, reference: Fields | None = None
) -> AnyMedia:
    """Return the part of a file; ``reference`` is the provider's name of the file."""
    source: Any = trusted.Url(url)
    for package, raw in (reference or {}).items():
        if jsontext.kind(raw) == "a string":
            source = trusted.FileId(jsontext.text(raw), _PROOFS[package].wire if package in _PROOFS else package)
            break
    else:
        if url[:5].lower() == "data:":
            try:
                found = File.from_data_uri(url)
            except PalaverError:
                found = trusted.File(source)
            source, media_type = found.source, media_type or found.media_type
    cls = _MEDIA.get((media_type or "").partition("/")[0])
    if cls is None:
        return trusted.File(source, media_type, name=name)
    if name is None:
        return cls(source, media_type)
    return cls(source, media_type).replace(provider={BOOKKEEPING + file_format: {"name": name}})


def name_of(part: AnyMedia, file_format: str) -> str | None:
    """Return the name of a file."""
    named = part.name if isinstance(part, File) else kept_beside(part, file_format).get("name")
    return named if isinstance(named, str) else None


def media_type_of(part: AnyMedia) -> str:
    """Return the media type of a part; without one, that of its kind."""
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


_STANDARD: Final = str.maketrans("-_", "+/")


def data_url(part: AnyMedia) -> str | None:
    """Return the ``data:`` URL of an inline file, in JavaScript's alphabet; ``None`` for invalid base64."""
    if not isinstance(part.source, Inline) or not part.source.valid:
        return None
    return f"data:{media_type_of(part)};base64,{part.source.data.translate(_STANDARD)}"


def is_absolute(url: str) -> bool:
    """Return whether a URL is one that a program can fetch."""
    return _ABSOLUTE.match(url) is not None
