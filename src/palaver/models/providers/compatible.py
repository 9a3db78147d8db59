"""Servers that speak Chat Completions: one row each, and the variant in which they do.

Rules:

- A server that has no variant of its own speaks the plain one, ``compatible``: what every vendor takes.
- Servers on one's own machine need no key; the variables are those that the servers themselves read.
- llama.cpp counts a whole prompt, template, tools and media too. The tokenisers of other servers take texts, or leave
  media out, and so are no counts of a prompt.

Stability: experimental.
"""

from __future__ import annotations

from typing import Final

from msgspec import structs

from palaver.models.endpoint import Counting
from palaver.models.providers.row import Provider, endpoint_for

PLAIN: Final = "compatible"
"""The variant of a server of which nothing is known."""


def _hosted(name: str, base: str, key: str, page: str, *, variant: str = PLAIN, asked: bool = True) -> Provider:
    """A server that many use. ``asked``: it tells the usage of a stream when it is asked to, else of itself."""
    endpoint = endpoint_for(name, f"openai_chat:{variant}")
    return Provider(
        name=name,
        base=base,
        endpoints=(endpoint if asked else structs.replace(endpoint, stream_provider={}),),
        keys=(key,),
        bases=(f"{key.removesuffix('_API_KEY').removesuffix('_TOKEN')}_BASE_URL",),
        page=page,
    )


def _own(
    name: str, base: str, key: str, page: str, *, variant: str = PLAIN, counting: Counting | None = None
) -> Provider:
    return Provider(
        name=name,
        base=base,
        endpoints=(endpoint_for(name, f"openai_chat:{variant}", counting=counting),),
        keys=(key,),
        bases=(f"{key.removesuffix('_API_KEY')}_BASE_URL",),
        needs_key=False,
        probe="/models",
        page=page,
    )


ROWS: Final = (
    _hosted(
        "groq",
        "https://api.groq.com/openai/v1",
        "GROQ_API_KEY",
        "https://console.groq.com/docs/openai",
        variant="groq",
    ),
    _hosted(
        "deepseek",
        "https://api.deepseek.com",
        "DEEPSEEK_API_KEY",
        "https://api-docs.deepseek.com/",
        variant="deepseek",
    ),
    _hosted(
        "openrouter",
        "https://openrouter.ai/api/v1",
        "OPENROUTER_API_KEY",
        "https://openrouter.ai/docs/api-reference/overview",
        variant="openrouter",
    ),
    _hosted(
        "mistral",
        "https://api.mistral.ai/v1",
        "MISTRAL_API_KEY",
        "https://docs.mistral.ai/api",
        variant="mistral",
        asked=False,  # 422 for `stream_options` (openai/openai-agents-python#442)
    ),
    _hosted("xai", "https://api.x.ai/v1", "XAI_API_KEY", "https://docs.x.ai/docs/api-reference", variant="xai"),
    _hosted(
        "cerebras",
        "https://api.cerebras.ai/v1",
        "CEREBRAS_API_KEY",
        "https://inference-docs.cerebras.ai/resources/openai",
        variant="cerebras",
    ),
    _hosted(
        "zai",
        "https://api.z.ai/api/paas/v4",
        "ZAI_API_KEY",
        "https://docs.z.ai/api-reference/introduction",
        variant="zai",
    ),
    _hosted(
        "huggingface",
        "https://router.huggingface.co/v1",
        "HF_TOKEN",
        "https://huggingface.co/docs/inference-providers/index",
        variant="huggingface",
    ),
    _hosted(
        "moonshot",
        "https://api.moonshot.ai/v1",
        "MOONSHOT_API_KEY",
        "https://platform.moonshot.ai/docs/api/chat",
        variant="moonshot",
    ),
    _hosted(
        "minimax",
        "https://api.minimax.io/v1",
        "MINIMAX_API_KEY",
        "https://platform.minimax.io/docs/api-reference/text-openai-api",
    ),
    _hosted(
        "together",
        "https://api.together.xyz/v1",
        "TOGETHER_API_KEY",
        "https://docs.together.ai/docs/openai-api-compatibility",
    ),
    _hosted(
        "fireworks",
        "https://api.fireworks.ai/inference/v1",
        "FIREWORKS_API_KEY",
        "https://docs.fireworks.ai/tools-sdks/openai-compatibility",
    ),
    _hosted(
        "alibaba",
        "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        "DASHSCOPE_API_KEY",
        "https://www.alibabacloud.com/help/en/model-studio/compatibility-of-openai-with-dashscope",
    ),
    _hosted(
        "deepinfra",
        "https://api.deepinfra.com/v1/openai",
        "DEEPINFRA_API_KEY",
        "https://deepinfra.com/docs/openai_api",
    ),
    _hosted(
        "nvidia",
        "https://integrate.api.nvidia.com/v1",
        "NVIDIA_API_KEY",
        "https://docs.api.nvidia.com/nim/reference/llm-apis",
    ),
    _hosted(
        "sambanova",
        "https://api.sambanova.ai/v1",
        "SAMBANOVA_API_KEY",
        "https://docs.sambanova.ai/cloud/docs/capabilities/openai-compatibility",
    ),
    _own(
        "vllm",
        "http://127.0.0.1:8000/v1",
        "VLLM_API_KEY",
        "https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html",
        variant="vllm",
    ),
    _own(
        "llamacpp",
        "http://127.0.0.1:8080/v1",
        "LLAMA_API_KEY",
        "https://github.com/ggml-org/llama.cpp/tree/master/tools/server",
        counting=Counting(
            url="{base}/chat/completions/input_tokens",
            found=("input_tokens",),
            page="https://github.com/ggml-org/llama.cpp/tree/master/tools/server",
        ),
    ),
    _own(
        "lmstudio", "http://127.0.0.1:1234/v1", "LMSTUDIO_API_KEY", "https://lmstudio.ai/docs/app/api/endpoints/openai"
    ),
)
