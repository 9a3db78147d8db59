"""Which variant a recorded address speaks: rows of data, first match wins.

Rules that one vendor or one model family enforces belong to a variant. A body does not name its
vendor, and on two wires not even its model, so whoever holds an exchange with its address finds the
variant here.

Stability: experimental.
"""

from __future__ import annotations

_ADDRESSES: dict[str, tuple[tuple[str, str], ...]] = {
    "openai_chat": (
        ("api.openai.com", "openai"),
        (".openai.azure.com", "azure"),
        ("api.groq.com", "groq"),
        ("api.mistral.ai", "mistral"),
        ("openrouter.ai", "openrouter"),
        ("api.deepseek.com", "deepseek"),
        ("api.cerebras.ai", "cerebras"),
        ("api.z.ai", "zai"),
        ("api.x.ai", "xai"),
        ("api.moonshot", "moonshot"),
        ("router.huggingface.co", "huggingface"),
        ("snowflakecomputing.com", "snowflake"),
        (":11434", "ollama"),
    ),
    "openai_responses": (
        ("api.openai.com", "openai"),
        ("api.deepseek.com", "deepseek"),
        ("openrouter.ai", "openrouter"),
        ("bedrock-mantle", "bedrock"),
    ),
    "anthropic_messages": (("claude-3", "claude-3"),),
    "google_generate": (("/gemini-3", "gemini-3"),),
    "bedrock_converse": (
        ("anthropic.", "anthropic"),
        ("amazon.", "amazon"),
        ("meta.", "meta"),
        ("mistral.", "mistral"),
        ("qwen.", "qwen"),
        ("writer.", "writer"),
        ("moonshot.", "moonshot"),
        ("openai.", "openai"),
        ("google.", "google"),
    ),
}
_OTHER = "other"


def variant_of(wire: str, address: str) -> str | None:
    """Return the variant that the server at an address speaks.

    An unknown host, and an unknown Bedrock family, is `other`. Wires and models without variants
    give `None`.

    Stability: experimental.
    """
    rows = _ADDRESSES.get(wire, ())
    _, _, path = address.partition("/model/")
    place = path if wire == "bedrock_converse" else address
    for needle, variant in rows:
        if needle in place:
            return variant
    return _OTHER if wire in ("openai_chat", "openai_responses", "bedrock_converse") else None
