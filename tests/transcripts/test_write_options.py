"""Options of writing: a misspelt or ill-typed one is refused by its name, by every format."""

# What is wrong is given on purpose.
# pyright: basic, reportCallIssue=false

import pytest

from palaver import transcripts
from palaver.core.errors import MessageError
from palaver.core.factories import developer, system, user
from palaver.threads.thread import Thread
from palaver.transcripts.conversation import Transcript, transcript_of

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


@pytest.mark.parametrize("name", ["codex", "vercel_ui", "qwen_code", "opencode", "codebuff", "kairo_a2a"])
@pytest.mark.parametrize("message", [user("x"), system("x"), developer("x")], ids=["user", "system", "developer"])
def test_a_time_that_the_file_holds_is_not_on_the_receipt(name, message):
    at = 1_767_355_200_000
    given = [user("a", sent_at=at), message.replace(agent="k", sent_at=at + 1000), user("b", sent_at=at + 2000)]
    file_format = transcripts.get(name)
    written = file_format.write(transcript_of(given), carry=False)
    again = [entry.message for each in file_format.read(written.body) for entry in each.thread.entries]
    found = [each for each in again if each.text == "x" and each.sent_at == at + 1000]
    assert bool(found) != ("sent at" in {loss.what for loss in written.losses if loss.message == 1})
