"""The names of the A2A SDK. Only this module imports it.

A missing package raises ``MissingPackageError``, which says what to install.

Stability: experimental.
"""

from __future__ import annotations

from palaver.core.errors import MissingPackageError

try:
    from a2a.client import (
        A2ACardResolver,
        A2AClientError,
        A2AClientTimeoutError,
        AgentCardResolutionError,
        Client,
        ClientCallContext,
        ClientConfig,
        ClientFactory,
    )
    from a2a.server.agent_execution import AgentExecutor, RequestContext
    from a2a.server.context import ServerCallContext
    from a2a.server.events import EventQueue
    from a2a.server.request_handlers import DefaultRequestHandler
    from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
    from a2a.server.tasks import InMemoryTaskStore, TaskStore, TaskUpdater
    from a2a.types import (
        AgentCapabilities,
        AgentCard,
        AgentInterface,
        AgentSkill,
        CancelTaskRequest,
        ContentTypeNotSupportedError,
        HTTPAuthSecurityScheme,
        InvalidParamsError,
        Message,
        Part,
        Role,
        SecurityRequirement,
        SecurityScheme,
        SendMessageRequest,
        StreamResponse,
        StringList,
        Task,
        TaskState,
        TaskStatus,
    )
    from a2a.utils.errors import A2A_ERROR_REASONS, A2AError, TaskNotFoundError, UnsupportedOperationError
    from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
except ImportError as error:
    raise MissingPackageError.of("A2A needs a2a-sdk", "a2a", error) from None

__all__ = [
    "A2A_ERROR_REASONS",
    "A2ACardResolver",
    "A2AClientError",
    "A2AClientTimeoutError",
    "A2AError",
    "AgentCapabilities",
    "AgentCard",
    "AgentCardResolutionError",
    "AgentExecutor",
    "AgentInterface",
    "AgentSkill",
    "CancelTaskRequest",
    "Client",
    "ClientCallContext",
    "ClientConfig",
    "ClientFactory",
    "ContentTypeNotSupportedError",
    "DefaultRequestHandler",
    "EventQueue",
    "HTTPAuthSecurityScheme",
    "InMemoryTaskStore",
    "InvalidParamsError",
    "Message",
    "MessageToDict",
    "ParseDict",
    "ParseError",
    "Part",
    "RequestContext",
    "Role",
    "SecurityRequirement",
    "SecurityScheme",
    "SendMessageRequest",
    "ServerCallContext",
    "StreamResponse",
    "StringList",
    "Task",
    "TaskNotFoundError",
    "TaskState",
    "TaskStatus",
    "TaskStore",
    "TaskUpdater",
    "UnsupportedOperationError",
    "create_agent_card_routes",
    "create_jsonrpc_routes",
    "create_rest_routes",
]
