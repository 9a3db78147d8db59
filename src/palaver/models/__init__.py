"""Models: they answer prompts over HTTP, from a script, or from a recording.

Recordings are made and replayed by ``palaver.models.replay``, which loads a server and so is not loaded here.

Stability: experimental.
"""

from palaver.core.errors import (
    AuthenticationError,
    CapabilityError,
    ContextOverflowError,
    OverloadedError,
    RateLimitError,
    TimedOutError,
    TransportError,
)
from palaver.models.ask import Askable, ResponseStream, SyncModel, SyncResponseStream
from palaver.models.catalogue import Capabilities, CatalogueRow, Prices, catalogue_rows
from palaver.models.endpoint import ApiKey, NoKey
from palaver.models.failures import Retry
from palaver.models.fallback import Fallback
from palaver.models.http import Http, Timeouts
from palaver.models.http_model import Model
from palaver.models.language_model import Answer, LanguageModel, Notice, Prompt, Reply, Session, complete
from palaver.models.names import available, local_servers, model
from palaver.models.scripted import Broken, FunctionModel, ScriptedModel
from palaver.models.server_models import list_models

__all__ = [
    "Answer",
    "ApiKey",
    "Askable",
    "AuthenticationError",
    "Broken",
    "Capabilities",
    "CapabilityError",
    "CatalogueRow",
    "ContextOverflowError",
    "Fallback",
    "FunctionModel",
    "Http",
    "LanguageModel",
    "Model",
    "NoKey",
    "Notice",
    "OverloadedError",
    "Prices",
    "Prompt",
    "RateLimitError",
    "Reply",
    "ResponseStream",
    "Retry",
    "ScriptedModel",
    "Session",
    "SyncModel",
    "SyncResponseStream",
    "TimedOutError",
    "Timeouts",
    "TransportError",
    "available",
    "catalogue_rows",
    "complete",
    "list_models",
    "local_servers",
    "model",
]
