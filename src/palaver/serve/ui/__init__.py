"""Live protocols of web front ends, over an agent or a swarm (extra ``serve``).

``AiSdkEndpoint`` speaks the UI message stream of the AI SDK, which ``useChat`` reads; ``AgUiEndpoint`` speaks AG-UI. ::

    from palaver.serve.ui import AiSdkEndpoint

    chat = AiSdkEndpoint(agent, store=store)
    app = FastAPI(routes=chat.routes("/api/chat"))

Stability: experimental.
"""

from palaver.core.errors import MissingPackageError

try:
    from palaver.serve.ui.ag_ui import AgUiEndpoint
    from palaver.serve.ui.ai_sdk import AiSdkEndpoint
    from palaver.serve.ui.endpoint import UiEndpoint
    from palaver.serve.ui.turns import Turn, UiRequest
except ImportError as error:
    raise MissingPackageError.of("UI endpoints need starlette", "serve", error) from error

__all__ = ["AgUiEndpoint", "AiSdkEndpoint", "Turn", "UiEndpoint", "UiRequest"]
