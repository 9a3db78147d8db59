"""The call of the official client: ``client.messages.create`` of anthropic.

Source: the signature in anthropic 2.11; a test holds the table against what is installed.

Stability: experimental.
"""

from typing import Final

from palaver.wires._engine.client_call import ClientCall, words

CALL: Final = ClientCall(
    arguments=words(
        "max_tokens messages model cache_control container inference_geo metadata output_config service_tier speed "
        "stop_sequences stream system thinking tool_choice tools"
    ),
    extra=("extra_body",),
)
