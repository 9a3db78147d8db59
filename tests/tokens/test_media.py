"""Media are weighed by what their first bytes tell, and hostile bytes tell nothing."""

import base64
import struct

import pytest
from hypothesis import given, strategies as st

import palaver as p
from palaver.core.errors import MessageError
from palaver.tokens import MediaRates, image_tokens
from palaver.tokens.media import media_tokens, pixels


def png(width, height):
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height) + b"\x08\x06\0\0\0"


def gif(width, height):
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\xf7\0\0"


def jpeg(width, height, before=0):
    segments = b""
    while before > 0:
        size = min(before, 60_000)
        segments += b"\xff\xe1" + struct.pack(">H", size + 2) + b"e" * size
        before -= size
    frame = b"\xff\xff\xc2" + struct.pack(">HBHHB", 17, 8, height, width, 3)
    return b"\xff\xd8" + segments + frame + b"\0" * 40


def webp(width, height, kind):
    head = b"RIFF" + b"\0" * 4 + b"WEBP" + kind + b"\0" * 4
    match kind:
        case b"VP8X":
            body = b"\0" * 4 + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
        case b"VP8L":
            body = b"\x2f" + ((width - 1) | (height - 1) << 14).to_bytes(4, "little")
        case _:
            body = b"\0" * 3 + b"\x9d\x01\x2a" + struct.pack("<HH", width, height)
    return head + body + b"\0" * 20


FORMATS = {
    "png": png,
    "gif": gif,
    "jpeg": jpeg,
    "webp": lambda w, h: webp(w, h, b"VP8X"),
    "webp lossless": lambda w, h: webp(w, h, b"VP8L"),
    "webp lossy": lambda w, h: webp(w, h, b"VP8 "),
}


@pytest.mark.row("KAI-03")
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("size", [(1, 1), (400, 301), (8000, 6000)])
def test_the_size_is_read_off_the_first_bytes(name, size):
    image = p.Image.from_bytes(FORMATS[name](*size))
    assert pixels(image.source) == size
    assert media_tokens(image) == max(1, image_tokens(*size))


def test_a_size_behind_a_large_profile_is_found():
    for before in (70_000, 600_000):
        assert pixels(p.Image.from_bytes(jpeg(640, 480, before)).source) == (640, 480)
    assert pixels(p.Image.from_bytes(jpeg(640, 480, 2_000_000)).source) is None


def test_only_the_beginning_is_decoded():
    torn = base64.b64encode(png(400, 301)).decode() + "A" * 4000 + "not base64 at all!"
    assert pixels(p.Inline(torn)) == (400, 301)


@pytest.mark.parametrize(
    "data", ["", "!", "iVBORw0KGgo=", base64.b64encode(png(0, 4)).decode(), base64.b64encode(b"\xff\xd8").decode()]
)
def test_what_tells_no_size_costs_what_an_unknown_image_costs(data):
    assert media_tokens(p.Image(p.Inline(data))) == MediaRates().image


_STARTS = st.sampled_from(
    [png(3, 4)[:12], b"GIF89a", b"\xff\xd8\xff", b"RIFF\0\0\0\0WEBPVP8L", b"RIFF\0\0\0\0WEBPVP8 ", b"%PDF"]
)


@given(st.builds(bytes.__add__, _STARTS | st.just(b""), st.binary(max_size=80)), st.text(max_size=20))
def test_hostile_bytes_never_raise(data, text):
    for kind in (p.Image, p.Audio, p.Video, p.File):
        for made in (kind.from_bytes(data), kind.from_bytes(data, "application/pdf"), kind(p.Inline(text))):
            assert media_tokens(made) >= 1


def test_areas_patches_and_tiles():
    tiles = MediaRates(side=512, piece=170, base=85, max_long_edge=2048, max_short_edge=768)
    assert image_tokens(540, 360, tiles) == 85 + 2 * 170
    assert image_tokens(2048, 4096, tiles) == 85 + 6 * 170
    patches = MediaRates(side=32, piece=1.2, max_long_edge=None, max_tokens=1843)
    assert image_tokens(400, 301, patches) == 156
    assert image_tokens(9000, 9000, patches) == 1843
    assert image_tokens(9000, 10, MediaRates(base=258, piece=0)) == 258
    assert 430 < image_tokens(597, 566) < 480
    assert image_tokens(10_000, 10_000) == MediaRates().max_tokens


def test_documents_by_pages_then_by_bytes():
    rates = MediaRates(page=100, page_bytes=1000, document=7)
    pages = b"%PDF-1.7 " + b"<< /Type /Pages /Count 3 >>" + b"<< /Type /Page >> <</Type/Page/Parent 1 0 R>>" * 3
    assert media_tokens(p.File.from_bytes(pages, "application/pdf"), rates) == 600
    assert media_tokens(p.File.from_bytes(b"%PDF" + b"x" * 4000, "application/pdf"), rates) == 400
    assert media_tokens(p.File.from_bytes(b"%PDF", "application/pdf"), rates) == 100
    assert media_tokens(p.File.from_url("https://example.org/a.pdf"), rates) == 7
    assert media_tokens(p.File.from_bytes(b"x" * 70, "text/plain"), rates) == 20


def test_a_file_that_is_an_image_is_weighed_as_one():
    assert media_tokens(p.File.from_bytes(png(400, 301), "image/png")) == image_tokens(400, 301)


def test_recordings_and_films_by_bytes_or_by_a_constant():
    rates = MediaRates(audio_bytes=10, video_bytes=20, audio=5, video=6)
    assert media_tokens(p.Audio.from_bytes(b"x" * 100), rates) == 10
    assert media_tokens(p.Video.from_bytes(b"x" * 100), rates) == 5
    assert media_tokens(p.Audio(p.FileId("f", "google_generate")), rates) == 5
    assert media_tokens(p.Video(p.Blob("sha256:" + "0" * 64)), rates) == 6


@pytest.mark.parametrize(
    "wrong", [{"side": 0}, {"piece": -1.0}, {"piece": float("nan")}, {"max_long_edge": 0}, {"audio_bytes": 0}]
)
def test_what_is_no_rate_is_refused(wrong):
    with pytest.raises(MessageError, match=next(iter(wrong))):
        MediaRates(**wrong)
