"""The model of a thread, so that ``run`` and ``chat`` continue it without ``--model``.

- Before each turn the model is kept in the thread's metadata, under ``cli``: the name as it was typed, with the address
  and the wire of ``--url`` and ``--wire``. User, password and keys in an address are left out.
- In a thread of another program, it is the model that the last answer names, where the catalogue knows its provider.
- A typed model that names no provider is one of the server of the thread's address (``--url``).
- What is typed comes first, then the thread's model, then ``PALAVER_MODEL``.

Stability: experimental.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click
import msgspec
from msgspec import structs

from palaver.cli import agent_options, key_store, stores
from palaver.cli.stored_model import METADATA, ThreadModel, stored_in
from palaver.core.errors import NotFoundError, excerpt
from palaver.core.messages import AssistantMessage
from palaver.models import names, providers
from palaver.models.redaction import bare_url

if TYPE_CHECKING:
    from palaver.cli.agent_options import AgentOptions
    from palaver.cli.stores import Address
    from palaver.store.store import Store
    from palaver.store.stored_thread import StoredThread


def from_options(options: AgentOptions) -> ThreadModel:
    """Return the model that ``options``, else ``PALAVER_MODEL``, name."""
    return ThreadModel(options.model or _default(), options.url, options.wire)


def keep(thread: StoredThread, model: ThreadModel) -> None:
    """Keep ``model`` in the metadata of ``thread``."""
    kept = msgspec.to_builtins(structs.replace(model, url=None if model.url is None else bare_url(model.url)))
    metadata = thread.store.info(thread.id).metadata
    if metadata.get(METADATA) != kept:
        thread.store.update(thread.id, metadata={**metadata, METADATA: kept})


def complete(options: AgentOptions) -> AgentOptions:
    """Return ``options`` with the model of the thread that they continue, unless they name one of a provider.

    Raises ``click.UsageError`` when the last answer names a model of an unknown provider, and nothing else names one.
    """
    if not (options.last or options.thread) or not stores.exists(options.location):
        return options
    if options.model and (options.url or agent_options.is_demo(options.model) or _provider(options.model)):
        return options
    with stores.open_existing(options.location) as store:
        try:
            found = stores.find_address(store, options.thread or stores.last_thread(store))
        except NotFoundError:  # it will be created, or refused
            return options
        known = stored_in(found) or (None if options.model else _answered(store, found))
    if known is None or (options.url is not None and known.url is None):
        return options
    if options.model and known.url is None:
        return options
    name = (options.model or known.model).removeprefix(f"{key_store.SERVER}/") if known.url else known.model
    return options._replace(model=name, url=options.url or known.url, wire=options.wire or known.wire)


def _provider(name: str) -> bool:
    """Return whether a name is that of a provider's model."""
    provider, slash, _ = name.partition("/")
    return bool(slash) and provider in providers.PROVIDERS


def _default() -> str:
    return os.environ.get(names.DEFAULT, "").strip()


def _answered(store: Store, found: Address) -> ThreadModel | None:
    """Return the model of the last answer."""
    messages = [entry.message for entry in stores.message_entries(store, found)]
    answered = [each.model for each in messages if isinstance(each, AssistantMessage) and each.model]
    if not answered:
        return None
    name, _ = agent_options.model_info(answered[-1])
    if name.partition("/")[0] in providers.PROVIDERS:
        return ThreadModel(name)
    if _default():
        return None
    raise click.UsageError(
        f"no model is given; {excerpt(name)!r} answered last in thread {stores.short(found.info.id)}, "
        "which does not say whose model that is: name it, --model provider/id"
    )
