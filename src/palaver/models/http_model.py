"""A provider's model, over HTTP: a wire, an endpoint, credentials and capabilities. Data; there is no class per vendor.

Stability: experimental.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import final

from msgspec import Struct, structs

from palaver import wires
from palaver.core.request import Settings
from palaver.core.type_checks import check_arguments
from palaver.models.answer import HttpAnswer
from palaver.models.capabilities import Capabilities, Missing
from palaver.models.encoded_prompt import PromptEncoder
from palaver.models.endpoint import Credentials, Endpoint
from palaver.models.http import Sender, Timeouts
from palaver.models.language_model import OnNotice, Prompt, Session
from palaver.models.retry import Clock, Retry
from palaver.models.text_calls import TextCallSession


class Model(Struct, frozen=True, kw_only=True):
    """What is asked, where, as whom, and how patiently; a ``LanguageModel``.

    ``name`` is what people call it (``openai/gpt-…``), ``id`` what is sent. ``settings`` are defaults: each field that
    a prompt leaves open. ``missing`` says what becomes of what the model cannot see or do. Without ``http`` it shares
    the connections of the event loop. ``text_calls`` names the format in which the model writes calls and reasoning as
    text (``palaver.stream.local.names()``), where its server does not read them. ``metadata`` names the keys of the
    messages' metadata that may be sent to the provider; what is not named stays here.
    """

    name: str
    id: str
    endpoint: Endpoint
    credentials: Credentials | None = None
    capabilities: Capabilities = Capabilities()
    settings: Settings = Settings()
    retry: Retry = Retry()
    timeouts: Timeouts = Timeouts()
    missing: Missing = "drop"
    http: Sender | None = None
    clock: Clock = Clock()
    text_calls: str | None = None
    metadata: Collection[str] = frozenset()

    def __post_init__(self) -> None:
        """Refuse values of another type. Raises ``MessageError``, which names the field."""
        check_arguments("Model", Model, structs.asdict(self))

    def session(self) -> Session:
        """Begin a conversation. Raises ``UnknownNameError`` for a wire or a format that there is not."""
        session = _Session(self)
        return session if self.text_calls is None else TextCallSession(session, self.text_calls)


def prompt_encoder(model: Model) -> PromptEncoder:
    """What encodes the prompts of one conversation. Raises ``UnknownNameError`` as ``Model.session`` does."""
    return PromptEncoder(
        wires.get(model.endpoint.wire),
        model.endpoint,
        id=model.id,
        settings=model.settings,
        capabilities=model.capabilities,
        missing=model.missing,
        metadata=model.metadata if model.endpoint.metadata else (),
    )


@final
class _Session(Session):
    """One conversation: remembers what it wrote."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._encoder = prompt_encoder(model)

    def ask(self, prompt: Prompt, *, stream: bool = True, on_notice: OnNotice | None = None) -> HttpAnswer:
        return HttpAnswer(self._model, self._encoder, prompt, stream=stream, on_notice=on_notice)
