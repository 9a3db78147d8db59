"""The Chat Completions wire, ``POST /v1/chat/completions``, and the vendors that speak it with an accent.

Source: docs/spec/wires.md#2; https://platform.openai.com/docs/api-reference/chat.

Stability: experimental.
"""

from palaver.wires.openai_chat import decode, encode
from palaver.wires.openai_chat.accents import ACCENTS
from palaver.wires.wire import Wire

WIRE = Wire("openai_chat", decode, encode, streams=f"{__name__}.stream")
ACCENTED = {
    name: Wire("openai_chat", decode, encode, streams=f"{__name__}.stream", speech=accent.speech, accent=name)
    for name, accent in ACCENTS.items()
}
