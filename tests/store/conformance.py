"""The suite that every store must pass, with the rows of the specifications that each check proves."""

import pytest

from palaver.testing import stores

_ROWS = {
    stores.messages_are_stamped_when_they_join: ("MSG-06", "CBF-05"),
    stores.messages_come_back_equal: ("CBF-04", "CBF-06", "DAS-05", "DAS-06", "DAS-11", "MSG-09", "MSG-10"),
    stores.what_was_acknowledged_is_there_after_opening_again: ("ASK-29", "DAS-29"),
    stores.clients_do_not_see_each_other: ("ASK-02",),
    stores.threads_are_known_by_any_name: ("ASK-29", "DAS-29"),
}
_FINDINGS = {
    stores.what_is_copied_keeps_its_times: "F-07",
    stores.a_blob_that_a_message_names_is_there: "F-103",
    stores.what_cannot_be_read_back_is_refused: "F-01",
    stores.a_bad_record_closes_nothing_else: "F-01",
    stores.generated_bad_records_close_nothing_else: "F-01",
    stores.what_is_asked_with_a_wrong_type_is_refused: "F-16",
    stores.odd_values_are_refused_or_come_back_equal: "F-01",
    stores.what_is_no_json_closes_nothing_else: "F-01",
}


def _marks(check):
    marks = [pytest.mark.row(*_ROWS[check])] if check in _ROWS else []
    return [*marks, pytest.mark.finding(_FINDINGS[check])] if check in _FINDINGS else marks


CHECKS = [pytest.param(check, id=check.__name__, marks=_marks(check)) for check in stores.CHECKS]
