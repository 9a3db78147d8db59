"""The Chat Completions wire, ``POST /v1/chat/completions``, and the vendors that speak it with a variant.

Source: docs/spec/wires.md#2; https://platform.openai.com/docs/api-reference/chat.

Stability: experimental.
"""

from palaver.wires._engine.wire import Wire
from palaver.wires.openai_chat import decode, encode
from palaver.wires.openai_chat.client_call import CALL
from palaver.wires.openai_chat.variants import VARIANTS, reasoning_fields, row

WIRE = Wire("openai_chat", decode, encode, streams=f"{__name__}.stream", call=CALL)


def with_variant(name: str) -> Wire:
    """The wire of a vendor, with the capabilities of its row."""
    reader = decode.Reader(reasoning_fields(name))
    return Wire(
        "openai_chat",
        reader,
        encode,
        streams=f"{__name__}.stream",
        call=CALL,
        capabilities=row(name).capabilities,
        variant=name,
    )


WITH_VARIANTS = {name: with_variant(name) for name in VARIANTS}
