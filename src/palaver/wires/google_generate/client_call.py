"""The call of the official client: ``client.models.generate_content`` of google-genai.

Source: the signature in google-genai 3.4; a test holds the table against what is installed.

Stability: experimental.
"""

from typing import Final

from palaver.wires._engine.client_call import ClientCall, words

CONFIG: Final = words(
    "audioTimestamp audioTranscriptionConfig cachedContent candidateCount enableEnhancedCivicAnswers frequencyPenalty "
    "imageConfig labels logprobs maxOutputTokens mediaResolution modelArmorConfig modelSelectionConfig "
    "presencePenalty responseJsonSchema responseLogprobs responseMimeType responseModalities responseSchema "
    "routingConfig safetySettings seed serviceTier speechConfig stopSequences store systemInstruction temperature "
    "thinkingConfig toolConfig tools topK topP"
)
"""The fields of ``types.GenerateContentConfig``."""

CALL: Final = ClientCall(
    arguments=words("model contents"),
    extra=("config", "httpOptions", "extraBody"),
    config="config",
    config_fields=CONFIG,
    flattened="generationConfig",
    unsaid=words("stream"),
)
