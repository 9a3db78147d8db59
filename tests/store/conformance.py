"""The suite that every store must pass, with the rows of the specifications that each check proves."""

import pytest

from palaver.testing import stores

_ROWS = {
    stores.messages_are_stamped_when_they_join: ("MSG-06", "CBF-05"),
    stores.messages_come_back_equal: ("CBF-04", "CBF-06", "DAS-05", "DAS-06", "DAS-11", "MSG-09", "MSG-10"),
    stores.acknowledged_data_survives_reopening: ("ASK-29", "DAS-29"),
    stores.clients_are_isolated: ("ASK-02",),
    stores.thread_ids_may_be_any_text: ("ASK-29", "DAS-29"),
}
_FINDINGS = {
    stores.copies_keep_their_times: "F-07",
    stores.a_blob_that_a_message_names_is_there: "F-103",
    stores.unreadable_values_are_refused: "F-01",
    stores.a_bad_record_hides_no_other_message: "F-01",
    stores.generated_bad_records_hide_no_other_message: "F-01",
    stores.arguments_of_a_wrong_type_are_refused: "F-16",
    stores.odd_values_are_refused_or_come_back_equal: "F-01",
    stores.invalid_json_hides_no_other_message: "F-01",
}


def _marks(check):
    marks = [pytest.mark.row(*_ROWS[check])] if check in _ROWS else []
    return [*marks, pytest.mark.finding(_FINDINGS[check])] if check in _FINDINGS else marks


CHECKS = [pytest.param(check, id=check.__name__, marks=_marks(check)) for check in stores.CHECKS]
