"""A session of a swarm for code that is not async: the same methods, without ``await``.

``with swarm.sync.start() as live, live.session("ann") as session: session.complete("Hello")``. Tools and hooks run on
the background event loop of ``palaver.models.sync``.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from palaver.models.sync import SyncContext, on_loop, sync_method
from palaver.swarm.session import Session

if TYPE_CHECKING:
    from palaver.turn.approvals import ApprovalRequest


class SyncSession(SyncContext[Session]):
    """One client in a swarm. Made by ``SyncLiveSwarm.session``; entered by ``with``.

    The parameters are those of ``Session``.
    """

    complete = sync_method(Session.complete)
    execute = sync_method(Session.execute)
    run = sync_method(Session.run)
    consult = sync_method(Session.consult)
    emit = sync_method(Session.emit)
    cancel = sync_method(Session.cancel)
    decide = sync_method(Session.decide)
    change_to = sync_method(Session.change_to)
    change_to_default = sync_method(Session.change_to_default)
    change_to_previous = sync_method(Session.change_to_previous)
    close = sync_method(Session.close)

    @property
    def agent(self) -> str:
        """The name of the active agent."""
        return self.wrapped.agent

    @property
    def closed(self) -> bool:
        """Whether the session is over."""
        return self.wrapped.closed

    def pending(self) -> tuple[ApprovalRequest, ...]:
        """Return the calls that wait for a decision."""
        return on_loop(self.wrapped.pending)
