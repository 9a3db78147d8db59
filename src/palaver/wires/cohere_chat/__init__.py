"""Cohere's wire, ``POST /v2/chat``.

Source: docs/spec/wires.md#7; https://docs.cohere.com/v2/reference/chat.

Stability: experimental.
"""

from palaver.wires._engine.wire import Wire
from palaver.wires.cohere_chat import decode, encode
from palaver.wires.cohere_chat.client_call import CALL

WIRE = Wire("cohere_chat", decode, encode, streams=f"{__name__}.stream", call=CALL)
