"""What every bus must do: one suite, run on every bus.

Rules:

- A check is an asynchronous function that takes a ``Make`` and raises ``AssertionError`` with what is wrong. ``CHECKS``
  lists them; the first line of each docstring is the promise. A test suite runs them so::

      @pytest.mark.parametrize("check", buses.CHECKS, ids=buses.name_of)
      async def test_conformance(check, anyio_backend):
          await check(LocalBus)

- ``Make`` gives a new bus, not entered, that nobody has published to. A check calls it once.
- Nothing is measured in time; what must happen is waited for, ``PATIENCE`` seconds at most.

Stability: experimental.
"""

from __future__ import annotations

from typing import Final

from palaver.testing.buses.delivery import (
    a_subscription_begins_when_it_is_entered,
    a_test_is_asked_last,
    an_event_is_seen_once,
    clients_may_have_odd_names,
    events_of_a_client_come_in_order,
    every_field_filters,
    messages_survive,
    one_event_can_be_waited_for,
    what_cannot_be_written_is_refused,
    what_was_kept_can_be_replayed,
    what_was_sent_since_a_time_can_be_replayed,
)
from palaver.testing.buses.listeners import (
    a_full_queue_can_end_a_subscription,
    a_full_queue_loses_what_was_said,
    a_listener_can_be_closed,
    a_listener_can_hear_one_event,
    a_listener_can_neither_break_nor_delay,
    a_listener_may_publish,
    a_subscription_can_be_closed,
    an_error_or_a_cancellation_goes_through,
    handlers_of_one_listener_never_overlap,
    listeners_hear_the_rest_at_the_end,
    the_end_of_a_bus_is_told,
)
from palaver.testing.buses.place import ODD, PATIENCE, Check, Make, name_of, numbers, raises, rest, said, take, until

CHECKS: Final[tuple[Check, ...]] = (
    a_subscription_begins_when_it_is_entered,
    events_of_a_client_come_in_order,
    every_field_filters,
    a_test_is_asked_last,
    one_event_can_be_waited_for,
    a_full_queue_loses_what_was_said,
    a_full_queue_can_end_a_subscription,
    a_listener_can_neither_break_nor_delay,
    handlers_of_one_listener_never_overlap,
    a_listener_may_publish,
    a_listener_can_hear_one_event,
    what_was_kept_can_be_replayed,
    what_was_sent_since_a_time_can_be_replayed,
    an_event_is_seen_once,
    a_subscription_can_be_closed,
    a_listener_can_be_closed,
    the_end_of_a_bus_is_told,
    listeners_hear_the_rest_at_the_end,
    an_error_or_a_cancellation_goes_through,
    messages_survive,
    clients_may_have_odd_names,
    what_cannot_be_written_is_refused,
)
"""Every check, in the order in which a new bus is best made to pass them."""

__all__ = [
    "CHECKS",
    "ODD",
    "PATIENCE",
    "Check",
    "Make",
    "a_full_queue_can_end_a_subscription",
    "a_full_queue_loses_what_was_said",
    "a_listener_can_be_closed",
    "a_listener_can_hear_one_event",
    "a_listener_can_neither_break_nor_delay",
    "a_listener_may_publish",
    "a_subscription_begins_when_it_is_entered",
    "a_subscription_can_be_closed",
    "a_test_is_asked_last",
    "an_error_or_a_cancellation_goes_through",
    "an_event_is_seen_once",
    "clients_may_have_odd_names",
    "events_of_a_client_come_in_order",
    "every_field_filters",
    "handlers_of_one_listener_never_overlap",
    "listeners_hear_the_rest_at_the_end",
    "messages_survive",
    "name_of",
    "numbers",
    "one_event_can_be_waited_for",
    "raises",
    "rest",
    "said",
    "take",
    "the_end_of_a_bus_is_told",
    "until",
    "what_cannot_be_written_is_refused",
    "what_was_kept_can_be_replayed",
    "what_was_sent_since_a_time_can_be_replayed",
]
