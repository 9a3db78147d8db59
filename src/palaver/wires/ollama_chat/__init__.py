"""Ollama's own wire, ``POST /api/chat``.

Source: docs/spec/wires.md#8; https://github.com/ollama/ollama/blob/main/docs/api.md.

Stability: experimental.
"""

from palaver.wires._engine.wire import Wire
from palaver.wires.ollama_chat import decode, encode
from palaver.wires.ollama_chat.client_call import CALL

WIRE = Wire("ollama_chat", decode, encode, streams=f"{__name__}.stream", call=CALL)
