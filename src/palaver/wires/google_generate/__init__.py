"""Gemini's wire, ``POST …/models/{model}:generateContent``, of the Gemini API and of Vertex AI.

Source: docs/spec/wires.md#5; https://ai.google.dev/api/generate-content.

Stability: experimental.
"""

from palaver.wires._engine.wire import Wire
from palaver.wires.google_generate import decode, encode
from palaver.wires.google_generate.client_call import CALL

WIRE = Wire("google_generate", decode, encode, streams=f"{__name__}.stream", call=CALL)
