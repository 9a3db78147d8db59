"""The Converse wire of Amazon Bedrock, ``POST /model/{id}/converse``. The model stands in the path, not in the body.

Source: docs/spec/wires.md#6; https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html.

Stability: experimental.
"""

from palaver.wires._engine.wire import Wire
from palaver.wires.bedrock_converse import decode, encode
from palaver.wires.bedrock_converse.client_call import CALL

WIRE = Wire("bedrock_converse", decode, encode, streams=f"{__name__}.stream", call=CALL)
