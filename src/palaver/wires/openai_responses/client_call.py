"""The call of the official client: ``client.responses.create`` of openai.

Source: the signature in openai 3.52; a test holds the table against what is installed.

Stability: experimental.
"""

from typing import Final

from palaver.wires._engine.client_call import ClientCall, words

CALL: Final = ClientCall(
    arguments=words(
        "background context_management conversation include input instructions max_output_tokens max_tool_calls "
        "metadata model parallel_tool_calls previous_response_id prompt prompt_cache_key prompt_cache_retention "
        "reasoning safety_identifier service_tier store stream stream_options temperature text tool_choice tools "
        "top_logprobs top_p truncation user"
    ),
    extra=("extra_body",),
)
