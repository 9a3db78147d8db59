"""What every store must do: one suite, run on every store (law 8).

Rules:

- A check is a function that takes a ``Place`` and raises ``AssertionError`` with what is wrong. ``CHECKS`` lists them;
  the first line of each docstring is the promise. A test suite runs them so::

      @pytest.mark.parametrize("check", stores.CHECKS, ids=stores.name_of)
      def test_conformance(check, tmp_path):
          check(lambda: SQLiteStore(tmp_path / "palaver.db"))

- A ``Place`` opens another handle on the same data each time it is called, as another process would. A store in memory
  gives the same object each time.
- ``palaver.testing.stores_machine`` makes random calls on several handles, and compares with a model.

Stability: experimental.
"""

from __future__ import annotations

from typing import Final

from palaver.testing.stores.messages import (
    a_path_leads_from_the_first_message_to_a_leaf,
    a_rewind_removes_nothing,
    forks_share_and_go_their_own_way,
    messages_are_stamped_when_they_join,
    messages_come_back_equal,
    places_never_change,
    what_was_acknowledged_is_there_after_opening_again,
)
from palaver.testing.stores.place import REFUSED, Check, Place, name_of
from palaver.testing.stores.poison import (
    a_bad_record_closes_nothing_else,
    generated_bad_records_close_nothing_else,
    odd_values_are_refused_or_come_back_equal,
    what_cannot_be_read_back_is_refused,
    what_is_no_json_closes_nothing_else,
)
from palaver.testing.stores.search import (
    a_blob_that_a_message_names_is_there,
    blobs_are_kept_once,
    searches_can_be_narrowed,
    verify_finds_a_sound_store_sound,
    words_are_found,
)
from palaver.testing.stores.threads import (
    entries_can_be_copied_as_they_are,
    threads_are_known_by_any_name,
    threads_are_listed_by_their_last_change,
    what_is_asked_with_a_wrong_type_is_refused,
    what_is_copied_keeps_its_times,
    what_is_deleted_is_gone,
    what_is_known_of_a_thread_can_change,
)
from palaver.testing.stores.writers import (
    a_key_makes_an_append_safe_to_repeat,
    a_rebase_is_done_or_not_done,
    an_append_is_whole_or_not_at_all,
    clients_do_not_see_each_other,
    one_of_many_wins,
    the_second_writer_is_told,
    writers_at_once_lose_nothing,
)

CHECKS: Final[tuple[Check, ...]] = (
    messages_are_stamped_when_they_join,
    messages_come_back_equal,
    what_was_acknowledged_is_there_after_opening_again,
    places_never_change,
    a_path_leads_from_the_first_message_to_a_leaf,
    forks_share_and_go_their_own_way,
    a_rewind_removes_nothing,
    a_rebase_is_done_or_not_done,
    the_second_writer_is_told,
    a_key_makes_an_append_safe_to_repeat,
    an_append_is_whole_or_not_at_all,
    writers_at_once_lose_nothing,
    one_of_many_wins,
    clients_do_not_see_each_other,
    threads_are_known_by_any_name,
    what_is_known_of_a_thread_can_change,
    threads_are_listed_by_their_last_change,
    what_is_asked_with_a_wrong_type_is_refused,
    what_is_deleted_is_gone,
    entries_can_be_copied_as_they_are,
    what_is_copied_keeps_its_times,
    words_are_found,
    searches_can_be_narrowed,
    blobs_are_kept_once,
    a_blob_that_a_message_names_is_there,
    verify_finds_a_sound_store_sound,
    what_cannot_be_read_back_is_refused,
    odd_values_are_refused_or_come_back_equal,
    a_bad_record_closes_nothing_else,
    generated_bad_records_close_nothing_else,
    what_is_no_json_closes_nothing_else,
)
"""Every check, in the order in which a new store is best made to pass them."""

__all__ = [
    "CHECKS",
    "REFUSED",
    "Check",
    "Place",
    "a_bad_record_closes_nothing_else",
    "a_blob_that_a_message_names_is_there",
    "a_key_makes_an_append_safe_to_repeat",
    "a_path_leads_from_the_first_message_to_a_leaf",
    "a_rebase_is_done_or_not_done",
    "a_rewind_removes_nothing",
    "an_append_is_whole_or_not_at_all",
    "blobs_are_kept_once",
    "clients_do_not_see_each_other",
    "entries_can_be_copied_as_they_are",
    "forks_share_and_go_their_own_way",
    "messages_are_stamped_when_they_join",
    "messages_come_back_equal",
    "name_of",
    "one_of_many_wins",
    "places_never_change",
    "searches_can_be_narrowed",
    "the_second_writer_is_told",
    "threads_are_known_by_any_name",
    "threads_are_listed_by_their_last_change",
    "verify_finds_a_sound_store_sound",
    "what_cannot_be_read_back_is_refused",
    "what_is_asked_with_a_wrong_type_is_refused",
    "what_is_copied_keeps_its_times",
    "what_is_deleted_is_gone",
    "what_is_known_of_a_thread_can_change",
    "what_is_no_json_closes_nothing_else",
    "what_was_acknowledged_is_there_after_opening_again",
    "words_are_found",
    "writers_at_once_lose_nothing",
]
