"""A conformance suite for buses.

- A check is an async function that takes a ``MakeBus`` and raises ``AssertionError``. ``CHECKS`` lists the checks; the
  first line of each docstring is the promise. Run them in a test suite like this::

      @pytest.mark.parametrize("check", buses.CHECKS, ids=buses.name_of)
      async def test_conformance(check, anyio_backend):
          await check(LocalBus)

- ``MakeBus`` returns a new bus, not entered, without events. A check calls it once.
- Checks measure no time. They wait for an event for at most ``TIMEOUT`` seconds.

Stability: experimental.
"""

from __future__ import annotations

from typing import Final

from palaver.testing.buses.delivery import (
    a_subscription_begins_when_it_is_entered,
    a_test_runs_last,
    an_event_is_seen_once,
    clients_may_have_odd_names,
    events_of_a_client_come_in_order,
    events_since_a_time_can_be_replayed,
    every_field_filters,
    messages_survive,
    one_event_can_be_waited_for,
    stored_events_can_be_replayed,
    unencodable_events_are_refused,
)
from palaver.testing.buses.helpers import (
    ODD,
    TIMEOUT,
    Check,
    MakeBus,
    event_of,
    name_of,
    numbers,
    raises,
    rest,
    take,
    until,
)
from palaver.testing.buses.listeners import (
    a_full_queue_can_end_a_subscription,
    a_full_queue_drops_and_counts_events,
    a_listener_can_be_closed,
    a_listener_can_neither_break_nor_delay,
    a_listener_can_take_one_event,
    a_listener_may_publish,
    a_subscription_can_be_closed,
    an_error_or_a_cancellation_goes_through,
    handlers_of_one_listener_never_overlap,
    listeners_get_the_remaining_events_at_the_end,
    the_end_of_a_bus_reaches_everybody,
)

CHECKS: Final[tuple[Check, ...]] = (
    a_subscription_begins_when_it_is_entered,
    events_of_a_client_come_in_order,
    every_field_filters,
    a_test_runs_last,
    one_event_can_be_waited_for,
    a_full_queue_drops_and_counts_events,
    a_full_queue_can_end_a_subscription,
    a_listener_can_neither_break_nor_delay,
    handlers_of_one_listener_never_overlap,
    a_listener_may_publish,
    a_listener_can_take_one_event,
    stored_events_can_be_replayed,
    events_since_a_time_can_be_replayed,
    an_event_is_seen_once,
    a_subscription_can_be_closed,
    a_listener_can_be_closed,
    the_end_of_a_bus_reaches_everybody,
    listeners_get_the_remaining_events_at_the_end,
    an_error_or_a_cancellation_goes_through,
    messages_survive,
    clients_may_have_odd_names,
    unencodable_events_are_refused,
)
"""Every check, in a good order for developing a new bus."""

__all__ = [
    "CHECKS",
    "ODD",
    "TIMEOUT",
    "Check",
    "MakeBus",
    "a_full_queue_can_end_a_subscription",
    "a_full_queue_drops_and_counts_events",
    "a_listener_can_be_closed",
    "a_listener_can_neither_break_nor_delay",
    "a_listener_can_take_one_event",
    "a_listener_may_publish",
    "a_subscription_begins_when_it_is_entered",
    "a_subscription_can_be_closed",
    "a_test_runs_last",
    "an_error_or_a_cancellation_goes_through",
    "an_event_is_seen_once",
    "clients_may_have_odd_names",
    "event_of",
    "events_of_a_client_come_in_order",
    "events_since_a_time_can_be_replayed",
    "every_field_filters",
    "handlers_of_one_listener_never_overlap",
    "listeners_get_the_remaining_events_at_the_end",
    "messages_survive",
    "name_of",
    "numbers",
    "one_event_can_be_waited_for",
    "raises",
    "rest",
    "stored_events_can_be_replayed",
    "take",
    "the_end_of_a_bus_reaches_everybody",
    "unencodable_events_are_refused",
    "until",
]
