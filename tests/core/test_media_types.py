"""Media: from bytes, a path, a URL or a data URI; typed by what is there; never fetched."""

import pytest

from palaver import Audio, File, FileId, Image, Inline, MessageError, Url, Video

HEADS = {
    "image/png": b"\x89PNG\r\n\x1a\n",
    "image/jpeg": b"\xff\xd8\xff\xe0",
    "image/gif": b"GIF89a",
    "image/webp": b"RIFF\0\0\0\0WEBP",
    "audio/wav": b"RIFF\0\0\0\0WAVE",
    "video/mp4": b"\0\0\0\x18ftypisom",
    "application/pdf": b"%PDF-1.7",
}


@pytest.mark.parametrize("media_type", HEADS)
def test_the_first_bytes_tell_the_type(media_type):
    part = File.from_bytes(HEADS[media_type])
    assert part.media_type == media_type
    assert part.source.bytes == HEADS[media_type]
    assert part.source.size == len(HEADS[media_type])


def test_a_path_is_read_and_its_ending_is_the_second_witness(tmp_path):
    text = tmp_path / "Notes.MD"
    text.write_bytes(b"# hi")
    assert File.from_path(text).media_type == "text/markdown"
    assert File.from_path(text).name == text.name
    assert File.from_path(str(text)).source.bytes == b"# hi"
    assert File.from_path(text, "text/plain").media_type == "text/plain"
    lying = tmp_path / "photo.jpg"
    lying.write_bytes(HEADS["image/png"])
    assert Image.from_path(lying).media_type == "image/png"
    with pytest.raises(FileNotFoundError):
        Image.from_path(tmp_path / "none.png")


def test_a_url_is_kept_and_never_fetched():
    part = Image.from_url("https://example.invalid/a/b.PNG?x=1#y")
    assert part == Image(Url("https://example.invalid/a/b.PNG?x=1#y"), "image/png")
    assert Video.from_url("https://example.invalid/").media_type is None
    assert part.data_uri is None


@pytest.mark.parametrize(
    ("uri", "media_type", "data"),
    [
        ("data:image/png;base64,iVBORw0KGgo=", "image/png", HEADS["image/png"]),
        ("DATA:text/plain;charset=utf-8;base64,aGk=", "text/plain", b"hi"),
        ("data:,a%20b%2", None, b"a b%2"),
        ("data:text/plain,h%C3%A9", "text/plain", "hé".encode()),
    ],
)
def test_data_uris_are_taken_apart(uri, media_type, data):
    part = File.from_url(uri)
    assert (part.media_type, part.source.bytes) == (media_type, data)


def test_a_data_uri_can_be_had_back():
    uri = "data:audio/wav;base64,AAAA"
    assert Audio.from_data_uri(uri).data_uri == uri
    assert Audio(FileId("f", "w")).data_uri is None


@pytest.mark.parametrize("wrong", ["data:image/png;base64", "http://x", ""])
def test_what_is_no_data_uri_is_an_error(wrong):
    with pytest.raises(MessageError, match="not a data URI"):
        Image.from_data_uri(wrong)


@pytest.mark.parametrize("data", ["-_8", "-_8=", "+/8=", "+/8"])
def test_inline_takes_both_alphabets_and_missing_padding(data):
    assert Inline(data).bytes == b"\xfb\xff"
    assert Inline(data).data == data


def test_inline_text_that_is_no_base64_is_an_error():
    with pytest.raises(MessageError, match="not base64"):
        _ = Inline("é").bytes
    with pytest.raises(MessageError, match="not base64"):
        _ = Inline("A").bytes
