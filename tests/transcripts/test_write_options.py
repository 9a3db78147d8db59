"""Options of writing: a misspelt or ill-typed one is refused by its name, by every format."""

# What is wrong is given on purpose.
# pyright: basic, reportCallIssue=false

import pytest

from palaver import transcripts
from palaver.core.errors import MessageError
from palaver.threads.thread import Thread
from palaver.transcripts.conversation import Transcript

pytestmark = pytest.mark.finding("F-01")

WRITTEN = [name for name in transcripts.names() if transcripts.get(name).record_writer is not None]


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize("given", [{"history": "some"}, {"branch": 5}, {"carry": "yes"}, {"losses": "ignore"}])
def test_an_option_of_the_wrong_type_is_refused_by_its_name(name, given):
    (field,) = given
    file_format, conversation = transcripts.get(name), Transcript(Thread("t"))
    with pytest.raises(MessageError, match=f"{field}: expected "):
        file_format.write(conversation, **given)
    with pytest.raises(MessageError, match=f"{field}: expected "):
        file_format.write_many([conversation], **given)


@pytest.mark.parametrize("name", WRITTEN)
def test_a_misspelt_option_is_refused(name):
    with pytest.raises(TypeError, match="cary"):
        transcripts.get(name).write(Transcript(Thread("t")), cary=True)
