"""Write streams of Chat Completions.

Stability: experimental.
"""

from __future__ import annotations

from palaver.wires.stream_encoder import StreamEncoder


class Encoder(StreamEncoder):
    """One stream of Chat Completions."""
