"""Ollama, on one's own machine: its own wire by default, Chat Completions for those who ask.

Rules:

- ``OLLAMA_HOST`` is written in many ways (``0.0.0.0``, ``:11435``, ``box``, ``https://box``); a missing scheme is
  ``http``, a missing host this machine, and a missing port 11434, or the scheme's where a scheme was written.

Stability: experimental.
"""

from typing import Final

from palaver.models.providers.row import Provider, endpoint_for

_PORTS: Final = {"http": 80, "https": 443}


def host(text: str) -> str:
    """The address that ``OLLAMA_HOST`` stands for. ``0.0.0.0``, where a server listens, is asked as this machine."""
    scheme, written, rest = text.strip().rstrip("/").rpartition("://")
    scheme = scheme if written else "http"
    place, slash, path = rest.partition("/")
    name, colon, port = place.rpartition(":")
    if not colon or port.endswith("]"):
        name, port = place, ""
    port = port or str(_PORTS.get(scheme, 443) if written else 11434)
    name = "127.0.0.1" if name in {"", "0.0.0.0"} else name  # noqa: S104 (what is written, not what is listened on)
    return f"{scheme}://{name}:{port}{slash}{path}"


ROWS: Final = (
    Provider(
        name="ollama",
        base="http://127.0.0.1:11434",
        endpoints=(
            endpoint_for("ollama", "ollama_chat"),
            endpoint_for("ollama", "openai_chat:ollama", "{base}/v1/chat/completions"),
        ),
        keys=("OLLAMA_API_KEY",),
        bases=("OLLAMA_HOST",),
        needs_key=False,
        clean=host,
        probe="/api/version",
        page="https://docs.ollama.com/api",
    ),
)
