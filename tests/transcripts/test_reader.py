"""Lines joined are the file, for any bytes and any block size."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bsd.core.errors import BsdError, Forbidden, NotFound, Unavailable
from bsd.transcripts.change import Identity
from bsd.transcripts.reader import (
    BytesTranscript,
    ChangedWhileReading,
    Line,
    Transcript,
    TranscriptFile,
    parse_entry,
)
from tests.transcripts import nasty
from tests.transcripts.nasty import unhurried

# Everything that some other reader takes for the end of a line, and a few plain bytes.
PIECES = [
    *(b"\n", b"\n", b"\r\n", b"\r", b"\x00", b"\x0b", b"\x0c", b"\x1c", b"\x85", b"\xff"),
    *("\u2028".encode(), "\u2029".encode(), "😀".encode(), b"a", b"bcdefg"),
]
file_bytes = st.lists(st.sampled_from(PIECES), max_size=40).map(b"".join)
blocks = st.integers(1, 9) | st.just(1 << 20)


def expected_lines(data: bytes) -> list[Line]:
    lines: list[Line] = []
    offset = 0
    while offset < len(data):
        newline = data.find(b"\n", offset)
        end = newline + 1 if newline >= 0 else len(data)
        lines.append(Line(len(lines), offset, data[offset:end]))
        offset = end
    return lines


@unhurried
@given(file_bytes, blocks)
def test_lines_are_the_file(data: bytes, block: int) -> None:
    transcript = BytesTranscript(data, block=block)
    expected = expected_lines(data)
    assert list(transcript.lines()) == expected
    assert b"".join(line.raw for line in expected) == data


@unhurried
@given(file_bytes, blocks, st.binary(max_size=3) | st.sampled_from(PIECES))
def test_lines_that_hold_something(data: bytes, block: int, needle: bytes) -> None:
    found = list(BytesTranscript(data, block=block).lines_holding(needle))
    assert found == [line for line in expected_lines(data) if needle in line.raw]


@unhurried
@given(file_bytes, blocks, st.data())
def test_reading_can_start_at_any_line(data: bytes, block: int, draw: st.DataObject) -> None:
    transcript = BytesTranscript(data, block=block)
    if expected := expected_lines(data):
        first = draw.draw(st.sampled_from(expected))
        assert list(transcript.lines(first.offset, first.index)) == expected[first.index :]


@unhurried
@given(file_bytes, blocks)
def test_two_readers_of_one_transcript_do_not_disturb_each_other(data: bytes, block: int) -> None:
    transcript = BytesTranscript(data, block=block)
    pairs = list(zip(transcript.lines(), transcript.lines(), strict=True))
    assert all(one == other for one, other in pairs)


@pytest.fixture(params=[1, 7, 4096, 1 << 20])
def block(request: pytest.FixtureRequest) -> int:
    size = request.param
    assert isinstance(size, int)
    return size


def test_a_file_reads_like_its_bytes(tmp_path: Path, block: int) -> None:
    data = b'{"type":"session"}\n\n' + b"x" * 9000 + b"\r\n\x00\n" + "\u2028\n".encode() + b"end"
    path = tmp_path / "s.jsonl"
    path.write_bytes(data)
    with TranscriptFile(path, block=block) as transcript:
        assert transcript.identity == Identity.of(path.stat())
        assert list(transcript.lines()) == expected_lines(data)
        assert transcript.read(2, 4) == data[2:6]
        assert transcript.read(len(data), 0) == b""


def test_appends_after_opening_are_not_seen(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"one\ntw")
    with TranscriptFile(path) as transcript:
        with path.open("ab") as appender:
            appender.write(b"o\nthree\n")
        assert [line.raw for line in transcript.lines()] == [b"one\n", b"tw"]
        with pytest.raises(ChangedWhileReading):
            transcript.read(4, 3)


READERS: dict[str, Callable[[Transcript], object]] = {
    "forwards": lambda transcript: list(transcript.lines()),
    "read": lambda transcript: transcript.read(0, 8),
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_a_file_that_shrinks_is_reported(
    tmp_path: Path, reader: Callable[[Transcript], object]
) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"one\ntwo\n")
    with TranscriptFile(path, block=4) as transcript:
        os.truncate(path, 5)
        with pytest.raises(ChangedWhileReading, match="changed while it was read"):
            reader(transcript)


def test_an_empty_file_has_no_lines(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.touch()
    with TranscriptFile(path) as transcript:
        assert list(transcript.lines()) == []


def test_closing_gives_the_descriptor_back_once(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"x")
    transcript = TranscriptFile(path)
    held = transcript._fd
    transcript.close()
    with pytest.raises(Unavailable, match="Bad file descriptor"):
        transcript.read(0, 1)
    other = os.open(path, os.O_RDONLY)
    try:
        assert other == held, "it is free again"
        transcript.close()
        assert os.read(other, 1) == b"x", "and what is somebody else's by now stays open"
    finally:
        os.close(other)


def test_what_is_not_a_plain_file_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"{}\n")
    link = tmp_path / "link.jsonl"
    link.symlink_to(target)
    with pytest.raises(Forbidden, match="symbolic link"):
        TranscriptFile(link)
    with pytest.raises(Forbidden, match="not a regular file"):
        TranscriptFile(tmp_path)
    with pytest.raises(NotFound, match="no file"):
        TranscriptFile(tmp_path / "absent.jsonl")
    with pytest.raises(NotFound):
        TranscriptFile(target / "below.jsonl")
    with pytest.raises(BsdError, match=r"opening .*: File name too long"):
        TranscriptFile(tmp_path / ("n" * 300))


ENTRIES: dict[str, tuple[bytes, object]] = {
    "plain": (b'{"id":"a"}\n', {"id": "a"}),
    "no newline": (b'{"id":"a"}', {"id": "a"}),
    "crlf": (b' \t{"id":"a"} \r\n', {"id": "a"}),
    "lone surrogate escape": (b'{"text":"a\\ud83d"}\n', {"text": "a\ud83d"}),
    "lone low surrogate escape": (b'{"\\udc00":1}\n', {"\udc00": 1}),
    "surrogate pair": (b'{"text":"\\ud83d\\ude00"}\n', {"text": "😀"}),
    "raw line separator": (b'{"text":"\xe2\x80\xa8"}\n', {"text": "\u2028"}),
    "escaped nul": (b'{"text":"\\u0000"}\n', {"text": "\x00"}),
    "duplicate key, the last one counts": (b'{"a":1,"a":2}\n', {"a": 2}),
    "raw nul": (b'{"text":"\x00"}\n', None),
    "not a number": (b'{"a":NaN}\n', None),
    "not a number beside a lone surrogate": (b'{"a":NaN,"b":"\\ud83d"}\n', None),
    "infinity": (b'{"a":-Infinity}\n', None),
    "two objects": (b'{"a":1}{"b":2}\n', None),
    "two objects and a lone surrogate": (b'{"a":"\\ud83d"} {}\n', None),
    "array": (b'[{"a":1}]\n', None),
    "string": (b'"a"\n', None),
    "null": (b"null\n", None),
    "blank": (b"\n", None),
    "spaces": (b"  \r\n", None),
    "empty": (b"", None),
    "torn": (b'{"a":"b', None),
    "byte order mark": (b'\xef\xbb\xbf{"a":1}\n', None),
    "invalid utf-8": (b'{"a":"\xff"}\n', None),
    "raw surrogate": (b'{"a":"\xed\xa0\xbd"}\n', None),
    "utf-16": ('{"a":1}'.encode("utf-16"), None),
    "single quotes": (b"{'a':1}\n", None),
    "too deep": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, None),
    "too deep array": (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", None),
    "long number beside a lone surrogate": (b'{"a":%s,"b":"\\ud83d"}' % (b"9" * 5000), None),
}


@pytest.mark.parametrize(("raw", "entry"), ENTRIES.values(), ids=ENTRIES)
def test_an_entry_is_exactly_one_object(raw: bytes, entry: object) -> None:
    assert parse_entry(raw) == entry


def test_a_huge_number_does_not_hide_an_entry() -> None:
    entry = parse_entry(b'{"id":"a","n":123456789012345678901234567890,"m":1e400}\n')
    assert entry is not None
    assert entry["id"] == "a"


@unhurried
@given(nasty.lines())
def test_every_odd_spelling_of_an_object_is_read(raw: bytes) -> None:
    entry = parse_entry(raw)
    assert entry is not None
    assert list(entry) == list(nasty.json_text(raw))


@unhurried
@given(nasty.lines() | st.binary(max_size=60), st.integers(0, 100), st.binary(max_size=2))
def test_no_bytes_are_an_exception(raw: bytes, at: int, inserted: bytes) -> None:
    entry = parse_entry(raw[:at] + inserted + raw[at:])
    assert entry is None or isinstance(entry, dict)
