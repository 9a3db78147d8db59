"""A conformance suite for stores (law 8).

- A check is a function that takes an ``OpenHandle`` and raises ``AssertionError``. ``CHECKS`` lists the checks; the
  first line of each docstring is the promise. Run them in a test suite like this::

      @pytest.mark.parametrize("check", stores.CHECKS, ids=stores.name_of)
      def test_conformance(check, tmp_path):
          check(lambda: SQLiteStore(tmp_path / "palaver.db"))

- An ``OpenHandle`` opens another handle on the same data with each call, as another process would. A store in memory
  returns the same object each time.
- ``palaver.testing.stores_machine`` makes random calls on several handles and compares them with a model.

Stability: experimental.
"""

from __future__ import annotations

from typing import Final

from palaver.testing.stores.helpers import REFUSED, Check, OpenHandle, name_of
from palaver.testing.stores.messages import (
    a_path_leads_from_the_first_message_to_a_leaf,
    a_rewind_removes_nothing,
    acknowledged_data_survives_reopening,
    forks_share_their_past,
    messages_are_stamped_when_they_join,
    messages_come_back_equal,
    positions_never_change,
)
from palaver.testing.stores.poison import (
    a_bad_record_hides_no_other_message,
    generated_bad_records_hide_no_other_message,
    invalid_json_hides_no_other_message,
    odd_values_are_refused_or_come_back_equal,
    unreadable_values_are_refused,
)
from palaver.testing.stores.search import (
    a_blob_that_a_message_names_is_there,
    blobs_are_stored_once,
    search_finds_words,
    searches_can_be_narrowed,
    verify_accepts_a_sound_store,
)
from palaver.testing.stores.threads import (
    a_deleted_thread_is_gone,
    arguments_of_a_wrong_type_are_refused,
    copies_keep_their_times,
    entries_can_be_copied_unchanged,
    entries_of_several_threads_are_added_at_once,
    thread_ids_may_be_any_text,
    thread_metadata_can_change,
    threads_are_listed_by_their_last_change,
)
from palaver.testing.stores.writers import (
    a_key_makes_an_append_safe_to_repeat,
    a_rebase_is_atomic,
    a_stale_writer_gets_a_conflict,
    an_append_is_atomic,
    clients_are_isolated,
    concurrent_writers_lose_nothing,
    one_of_many_writers_wins,
)

CHECKS: Final[tuple[Check, ...]] = (
    messages_are_stamped_when_they_join,
    messages_come_back_equal,
    acknowledged_data_survives_reopening,
    positions_never_change,
    a_path_leads_from_the_first_message_to_a_leaf,
    forks_share_their_past,
    a_rewind_removes_nothing,
    a_rebase_is_atomic,
    a_stale_writer_gets_a_conflict,
    a_key_makes_an_append_safe_to_repeat,
    an_append_is_atomic,
    concurrent_writers_lose_nothing,
    one_of_many_writers_wins,
    clients_are_isolated,
    thread_ids_may_be_any_text,
    thread_metadata_can_change,
    threads_are_listed_by_their_last_change,
    arguments_of_a_wrong_type_are_refused,
    a_deleted_thread_is_gone,
    entries_can_be_copied_unchanged,
    entries_of_several_threads_are_added_at_once,
    copies_keep_their_times,
    search_finds_words,
    searches_can_be_narrowed,
    blobs_are_stored_once,
    a_blob_that_a_message_names_is_there,
    verify_accepts_a_sound_store,
    unreadable_values_are_refused,
    odd_values_are_refused_or_come_back_equal,
    a_bad_record_hides_no_other_message,
    generated_bad_records_hide_no_other_message,
    invalid_json_hides_no_other_message,
)
"""Every check, in a good order for developing a new store."""

__all__ = [
    "CHECKS",
    "REFUSED",
    "Check",
    "OpenHandle",
    "a_bad_record_hides_no_other_message",
    "a_blob_that_a_message_names_is_there",
    "a_deleted_thread_is_gone",
    "a_key_makes_an_append_safe_to_repeat",
    "a_path_leads_from_the_first_message_to_a_leaf",
    "a_rebase_is_atomic",
    "a_rewind_removes_nothing",
    "a_stale_writer_gets_a_conflict",
    "acknowledged_data_survives_reopening",
    "an_append_is_atomic",
    "arguments_of_a_wrong_type_are_refused",
    "blobs_are_stored_once",
    "clients_are_isolated",
    "concurrent_writers_lose_nothing",
    "copies_keep_their_times",
    "entries_can_be_copied_unchanged",
    "entries_of_several_threads_are_added_at_once",
    "forks_share_their_past",
    "invalid_json_hides_no_other_message",
    "messages_are_stamped_when_they_join",
    "messages_come_back_equal",
    "name_of",
    "one_of_many_writers_wins",
    "positions_never_change",
    "search_finds_words",
    "searches_can_be_narrowed",
    "thread_ids_may_be_any_text",
    "thread_metadata_can_change",
    "threads_are_listed_by_their_last_change",
    "unreadable_values_are_refused",
    "verify_accepts_a_sound_store",
]
