"""The call of the official client: ``client.chat.completions.create`` of openai.

Source: the signature in openai 3.52; a test holds the table against what is installed.

Stability: experimental.
"""

from typing import Final

from palaver.wires._engine.client_call import ClientCall, words

CALL: Final = ClientCall(
    arguments=words(
        "messages model audio frequency_penalty function_call functions logit_bias logprobs max_completion_tokens "
        "max_tokens metadata modalities n parallel_tool_calls prediction presence_penalty prompt_cache_key "
        "prompt_cache_retention reasoning_effort response_format safety_identifier seed service_tier stop store "
        "stream stream_options temperature tool_choice tools top_logprobs top_p user verbosity web_search_options"
    ),
    extra=("extra_body",),
)
