"""The Messages wire, ``POST /v1/messages``, also spoken by Vertex, Bedrock (``invoke``) and Foundry.

Source: docs/spec/wires.md#4; https://docs.anthropic.com/en/api/messages.

Stability: experimental.
"""

from palaver.wires._engine.wire import Wire
from palaver.wires.anthropic_messages import decode, encode
from palaver.wires.anthropic_messages.client_call import CALL
from palaver.wires.anthropic_messages.encode import VARIANTS

WIRE = Wire("anthropic_messages", decode, encode, streams=f"{__name__}.stream", call=CALL)
WITH_VARIANTS = {
    name: Wire(
        "anthropic_messages",
        decode,
        encode,
        streams=f"{__name__}.stream",
        call=CALL,
        capabilities=capabilities,
        variant=name,
    )
    for name, capabilities in VARIANTS.items()
}
