"""Models: what answers a prompt, over HTTP, from a script, or from a recording.

Stability: experimental.
"""

from palaver.models.capabilities import Capabilities
from palaver.models.cost import Prices
from palaver.models.credentials import ApiKey, NoKey
from palaver.models.fallback import Fallback
from palaver.models.http import Http, Timeouts
from palaver.models.http_model import Model
from palaver.models.language_model import Answer, LanguageModel, Notice, Prompt, Reply, Session, complete
from palaver.models.names import answering, available, model
from palaver.models.retry import Retry
from palaver.models.scripted import Broken, ScriptedModel

__all__ = [
    "Answer",
    "ApiKey",
    "Broken",
    "Capabilities",
    "Fallback",
    "Http",
    "LanguageModel",
    "Model",
    "NoKey",
    "Notice",
    "Prices",
    "Prompt",
    "Reply",
    "Retry",
    "ScriptedModel",
    "Session",
    "Timeouts",
    "answering",
    "available",
    "complete",
    "model",
]
