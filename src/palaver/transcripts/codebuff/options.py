"""The ``providerOptions`` of Codebuff (those of the AI SDK), and ``provider`` of messages and parts.

Rules:

- Two levels, both objects: ``{provider: {option: JSON}}``. Any other value is kept as it is, without a meaning.
- A wire writes the fields under its own name into its bodies. So only options in the wire's own spelling go there; the
  others stay under the name of the provider in the AI SDK, which is not a wire's name.
- Notes of a wire are never among the options that a provider is sent.
- A value that would not come back the same is kept whole, as it is.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import UNSET, Raw

from palaver.core import jsontext
from palaver.core.messages import BOOKKEEPING
from palaver.core.parts import Reasoning
from palaver.transcripts.extension_slot import SLOT
from palaver.transcripts.fields import as_object, string

if TYPE_CHECKING:
    from palaver.core.value import Value

_NAMES: Final = {"openaiCompatible": "openai_chat"}
_SDK: Final = {wire: name for name, wire in _NAMES.items()}
_OPTIONS: Final = {
    ("anthropic", "cacheControl"): ("anthropic_messages", "cache_control"),
    ("google", "thoughtSignature"): ("google_generate", "thoughtSignature"),
}
_BACK: Final = {there: here for here, there in _OPTIONS.items()}
_PROOFS: Final = {
    "anthropic": ("anthropic_messages", "signature", "redactedData"),
    "bedrock": ("bedrock_converse", "signature", "redactedData"),
    "google": ("google_generate", "thoughtSignature", None),
    "openai": ("openai_responses", None, "reasoningEncryptedContent"),
}
"""Provider: its wire, the option with the signature, the option with the encrypted text."""


class Proof(NamedTuple):
    """The proof of a reasoning part, and the provider that gave it."""

    provider: str
    wire: str
    signature: str | None
    encrypted: str | None


def proof_of(options: Raw | None) -> Proof | None:
    """Return the proof among the options of a reasoning part."""
    for name, raw in (as_object(options) if options is not None else {}).items():
        wire, signs, encrypts = _PROOFS.get(name, ("", None, None))
        stored = as_object(raw)
        signature = None if signs is None else string(stored, signs)
        encrypted = None if encrypts is None else string(stored, encrypts)
        if signature is not None or encrypted is not None:
            return Proof(name, wire, signature, encrypted)
    return None


def provider_read(
    options: Raw | None, proof: Proof | None = None, *, reasoning: bool = False
) -> tuple[dict[str, dict[str, Any]], bool]:
    """Return ``provider`` for these options, and whether they come back the same."""
    given = {} if options is None else as_object(options)
    if not given:
        return {}, False
    given.pop(SLOT, None)
    if any(jsontext.kind(raw) != "an object" or name.startswith(BOOKKEEPING) for name, raw in given.items()):
        return {}, False
    read: dict[str, dict[str, Any]] = {}
    for name, raw in given.items():
        for key, each in as_object(raw).items():
            if proof is not None and name == proof.provider and key in _PROOFS[name][1:]:
                continue
            there = (_NAMES.get(name, name), key)
            wire, option = (name, key) if reasoning else _OPTIONS.get((name, key), there)
            read.setdefault(wire, {})[option] = jsontext.own(each)
    again = _written(read, proof, reasoning=reasoning)
    return (read, True) if jsontext.equal(jsontext.raw(given), jsontext.raw(again)) else ({}, False)


def options_of(of: Value, extra: str) -> dict[str, dict[str, Any]]:
    """Return the options of a message or part."""
    stored = {} if of.provider_json is UNSET else jsontext.fields(of.provider_json)
    provider = {
        name: dict(as_object(raw)) for name, raw in stored.items() if name != extra and not name.startswith(BOOKKEEPING)
    }
    return _written(provider, _proof(of) if isinstance(of, Reasoning) else None, reasoning=isinstance(of, Reasoning))


def _proof(part: Reasoning) -> Proof | None:
    name = next((name for name, (wire, *_) in _PROOFS.items() if wire == part.wire), None)
    if name is None or (part.signature is None and part.encrypted is None):
        return None
    return Proof(name, part.wire or "", part.signature, part.encrypted)


def _written(provider: dict[str, dict[str, Any]], proof: Proof | None, *, reasoning: bool) -> dict[str, dict[str, Any]]:
    options: dict[str, dict[str, Any]] = {}
    for name, stored in provider.items():
        for key, each in stored.items():
            here = (_SDK.get(name, name), key)
            sdk, option = (name, key) if reasoning else _BACK.get((name, key), here)
            options.setdefault(sdk, {})[option] = each
    if proof is not None:
        _, signs, encrypts = _PROOFS[proof.provider]
        said = {signs: proof.signature, encrypts: proof.encrypted}
        options.setdefault(proof.provider, {}).update(
            {key: each for key, each in said.items() if key is not None and each is not None}
        )
    return options
