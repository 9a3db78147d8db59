"""The call of the official client: ``Client.chat`` of ollama.

Source: the signature in ollama 0.6; a test holds the table against what is installed.

Stability: experimental.
"""

from typing import Final

from palaver.wires._engine.client_call import ClientCall, words

CALL: Final = ClientCall(
    arguments=words("model messages tools stream think logprobs top_logprobs format options keep_alive"),
)
