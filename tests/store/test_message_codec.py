"""A message as bytes: the same message has the same bytes, and comes back as it was."""

import base64
import os

import pytest
from hypothesis import example, given, strategies as st

import palaver as p
from palaver.core.errors import DamageError, DecodeError, NotFoundError
from palaver.store import message_codec
from palaver.testing import strategies
from palaver.threads import Entry, Thread

PICTURE = p.Image.from_bytes(bytes(range(256)) * 20)


def back(message, packed, entry):
    blobs = {each.digest: message_codec.decompress(each.digest, each.encoding, each.data) for each in packed.media}
    body = message_codec.decompress(packed.body.digest, packed.body.encoding, packed.body.data)
    stamps = message_codec.stamps_for(message) | packed.marks
    return message_codec.unpack(body, entry.id, stamps, entry.message.sent_at, blobs.__getitem__)


@pytest.mark.law(1)
@pytest.mark.row("CBF-04", "CBF-06", "DAS-06", "DAS-11", "MSG-09", "MSG-10")
@given(strategies.any_messages(newer=True))
def test_a_message_comes_back_stamped(message):
    (entry,) = Thread().append(message)
    assert back(message, message_codec.pack(message), entry) == entry.message


@given(strategies.any_messages(newer=True))
@example(p.user("x", sent_at=2**70))
def test_an_entry_is_kept_as_it_was(message):
    """Copying an entry loses no stamp, and gives the bytes of the message that was given, where it had none."""
    (entry,) = Thread().append(message)
    bare, stamps = message_codec.unstamped(entry)
    if message.id is None and message.sent_at is None:
        assert message_codec.pack(bare).body.digest == message_codec.pack(message).body.digest
        assert stamps == message_codec.STAMPED_ID | message_codec.STAMPED_TIME
    packed = message_codec.pack(bare)
    blobs = {each.digest: message_codec.decompress(*each[:3]) for each in packed.media}
    text = message_codec.decompress(*packed.body[:3])
    sent_at = message_codec.int64_or_none(entry.message.sent_at)
    assert message_codec.unpack(text, entry.id, stamps | packed.marks, sent_at, blobs.__getitem__) == entry.message


@pytest.mark.parametrize(
    "data",
    [
        PICTURE.source.data,
        base64.urlsafe_b64encode(os.urandom(3000)).decode(),
        base64.encodebytes(os.urandom(3000)).decode(),
        PICTURE.source.data.rstrip("="),
        base64.b64encode(b"x" * 1000).decode().replace("eA==", "eB=="),
        "no base64 " * 200,
        "\ud800" * 2000,
    ],
    ids=["standard", "url-safe", "lines", "no padding", "bits left over", "none", "surrogates"],
)
def test_inline_media_leave_the_message_and_come_back_as_the_same_text(data):
    message = p.user("x", p.Image(p.Inline(data), "image/png"), p.File(p.Inline(data), name="n"))
    packed = message_codec.pack(message)
    assert len(packed.body.data) < 600
    assert len(packed.media) == 1
    assert packed.uses == (packed.media[0].digest,)
    (entry,) = Thread().append(message)
    assert back(message, packed, entry).images[0].source.data == data


def test_the_blob_of_an_image_goes_by_the_hash_of_its_bytes():
    (blob,) = message_codec.pack(p.user(PICTURE)).media
    assert (
        message_codec.blob_for(blob.digest).hash
        == "sha256:" + __import__("hashlib").sha256(PICTURE.source.bytes).hexdigest()
    )
    message = p.user(p.Image(message_codec.blob_for(blob.digest)))
    assert message_codec.pack(message).uses == (blob.digest,)
    assert message_codec.pack(message).media == ()


def test_names_that_look_like_ours_are_not_taken_for_ours():
    for name in ("stored:x", "stored:sha256:" + "0" * 64, "stored-text:sha256:" + "0" * 64, "stored-other:stored:x"):
        message = p.user(p.Image(p.Blob(name)))
        (entry,) = Thread().append(message)
        assert back(message, message_codec.pack(message), entry).images[0].source.hash == name


def test_small_media_stay():
    packed = message_codec.pack(p.user(p.Image.from_bytes(b"x" * 100)))
    assert packed.media == ()


def test_a_time_that_no_column_holds_stays_in_the_message():
    for sent_at in (2**63, -(2**63) - 1, 2**70):
        assert message_codec.int64_or_none(sent_at) is None
    for sent_at in (2**63 - 1, -(2**63), 0):
        assert message_codec.int64_or_none(sent_at) == sent_at


def test_messages_of_one_read_share_their_media():
    packed = message_codec.pack(p.user(PICTURE))
    body, blobs = (
        message_codec.decompress(*packed.body[:3]),
        {each.digest: message_codec.decompress(*each[:3]) for each in packed.media},
    )
    shared = message_codec.BlobCache(blobs.__getitem__)
    one, two = (message_codec.unpack(body, "e", message_codec.MEDIA_EXTRACTED, None, shared) for _ in range(2))
    assert one.images[0].source is two.images[0].source
    assert one.images == (PICTURE,)


def test_long_text_is_compressed_and_random_bytes_are_not():
    assert message_codec.compress(b"abc" * 1000).encoding == message_codec.ZSTD
    assert message_codec.compress(os.urandom(3000)).encoding == message_codec.RAW
    assert message_codec.compress(b"abc").encoding == message_codec.RAW


@given(st.integers(0, 200), st.integers(1, 255), st.booleans())
def test_a_changed_byte_is_found(place, flip, long):
    kept = message_codec.compress((b"hello " * 500) if long else b"hello")
    data = bytearray(kept.data)
    data[place % len(data)] ^= flip
    with pytest.raises(DamageError, match="bodies 7"):
        message_codec.decompress(kept.digest, kept.encoding, bytes(data), "bodies 7")


def test_a_seal_vouches_for_everything_before_it():
    start = message_codec.first_seal("t")
    base = message_codec.seal(start, "id", 3, 5, b"d" * 32)
    others = [
        message_codec.seal(message_codec.first_seal("u"), "id", 3, 5, b"d" * 32),
        message_codec.seal(start, "ie", 3, 5, b"d" * 32),
        message_codec.seal(start, "id", 2, 5, b"d" * 32),
        message_codec.seal(start, "id", 3, 6, b"d" * 32),
        message_codec.seal(start, "id", 3, None, b"d" * 32),
        message_codec.seal(start, "id", 3, 5, b"e" * 32),
    ]
    assert len({base, *others}) == 7


@pytest.mark.parametrize("name", ["", "sha256:", "sha256:zz", "sha256:" + "0" * 63, "md5:" + "0" * 64, "0" * 64])
def test_what_names_no_blob_is_refused(name):
    with pytest.raises(NotFoundError):
        message_codec.digest_of(name)


IDS = ['a"b', 'x","agent":"b', "a\\", "a\x00b", "\ud800", ""]


@pytest.mark.law(1)
@pytest.mark.parametrize("id", IDS)
@pytest.mark.parametrize("own", [{}, {"id": True}, {"sent_at": 7}, {"id": True, "sent_at": 7}], ids=str)
def test_an_entry_of_any_id_is_kept_as_it_is(id, own):
    """Also where the id says JSON, and where nothing stamped the message: nothing is made up on the way back."""
    message = p.user("hi").replace(**(own | {"id": id} if "id" in own else own))
    bare, stamps = message_codec.unstamped(Entry(id, None, message))
    packed = message_codec.pack(bare)
    text = message_codec.decompress(*packed.body[:3])
    assert message_codec.unpack(text, id, stamps | packed.marks, message.sent_at, {}.__getitem__) == message
    assert len(message_codec.seal(message_codec.first_seal("t"), id, stamps, message.sent_at, packed.body.digest)) == 32


@pytest.mark.law(6)
@pytest.mark.parametrize("stamps", range(8))
@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[]", b'"', b'{"role":"user', b'{"role":"user","content":[],', b"\xff" * 30]
)
def test_a_body_that_is_no_message_is_one_error(body, stamps):
    with pytest.raises(DecodeError):
        message_codec.unpack(body, "e1", stamps, None, {}.__getitem__)


@pytest.mark.law(6)
@pytest.mark.parametrize("name", ["stored:sha256:xy", "stored-text:sha256:xy", "stored-text:sha256:00"])
def test_media_that_cannot_be_put_back_are_one_error(name):
    message = p.user(p.Image(p.Blob(name)))
    with pytest.raises(DecodeError, match=name[:14]):
        message_codec.restore_media(message, lambda _: b"\xff")
