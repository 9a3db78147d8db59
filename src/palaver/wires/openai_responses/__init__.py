"""The Responses wire, ``POST /v1/responses``.

Source: docs/spec/wires.md#3; https://platform.openai.com/docs/api-reference/responses.

Stability: experimental.
"""

from palaver.wires._engine.wire import Wire
from palaver.wires.openai_responses import decode, encode
from palaver.wires.openai_responses.client_call import CALL

WIRE = Wire("openai_responses", decode, encode, streams=f"{__name__}.stream", call=CALL)
