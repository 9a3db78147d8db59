"""The call of the official client: ``ClientV2.chat`` of cohere.

Source: the signature in cohere 7.3; a test holds the table against what is installed.

Stability: experimental.
"""

from typing import Final

from palaver.wires._engine.client_call import ClientCall, words

CALL: Final = ClientCall(
    arguments=words(
        "model messages tools strict_tools documents citation_options response_format safety_mode max_tokens "
        "stop_sequences temperature seed frequency_penalty presence_penalty k p logprobs tool_choice thinking "
        "priority"
    ),
    extra=("request_options", "additional_body_parameters"),
    unsaid=words("stream"),
)
