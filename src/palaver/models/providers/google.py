"""Google's Gemini API, with a key from AI Studio. The model stands in the address.

Stability: experimental.
"""

from typing import Final

from palaver.models.endpoint import Counting
from palaver.models.providers.row import Provider, endpoint_for, key_in

ROWS: Final = (
    Provider(
        name="google",
        base="https://generativelanguage.googleapis.com",
        endpoints=(
            endpoint_for(
                "google",
                "google_generate",
                counting=Counting(
                    url="{base}/v1beta/models/{model}:countTokens",
                    inside=("generateContentRequest",),
                    adds={"model": "models/{model}"},
                    found=("totalTokens",),
                    page="https://ai.google.dev/api/tokens",
                ),
                metadata=False,  # https://github.com/googleapis/python-genai/issues/2296: labels are Vertex AI's
            ),
        ),
        keys=("GOOGLE_API_KEY", "GEMINI_API_KEY"),  # of both, Google's own clients take the first
        bases=("GOOGLE_GEMINI_BASE_URL",),
        credentials=key_in("x-goog-api-key"),
        page="https://ai.google.dev/gemini-api/docs/api-key",
    ),
)
