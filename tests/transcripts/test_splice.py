"""Splicing changes the bytes of the named values and no others, on lines of every odd spelling."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any
from unittest.mock import patch

import orjson
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bsd.transcripts import splice
from bsd.transcripts.reader import TranscriptFile, parse_entry
from bsd.transcripts.spans import ValuePath
from bsd.transcripts.splice import (
    NoSuchValue,
    SpliceError,
    Stood,
    edit,
    edit_and_measure,
    encode_string,
    find,
    text_size,
    text_sizes,
)
from tests.transcripts import nasty
from tests.transcripts.nasty import Members, unhurried

NEW = b'{"new": ["value"]}'


def apart(paths: list[ValuePath]) -> list[ValuePath]:
    """The paths, without paths that lie inside an earlier path's value or around it."""
    chosen: list[ValuePath] = []
    for path in paths:
        if all(path[: len(other)] != other[: len(path)] for other in chosen):
            chosen.append(path)
    return chosen


def some_paths(draw: st.DataObject, raw: bytes, *, only_members: bool = False) -> list[ValuePath]:
    """Paths that can be edited together, in any order."""
    plain, _ = nasty.paths(raw)
    candidates = [path for path in plain if not only_members or isinstance(path[-1], str)]
    assume(candidates)
    return apart(draw.draw(st.lists(st.sampled_from(candidates), min_size=1, unique=True)))


def changed(
    value: Any, change: Callable[[ValuePath, Any], list[Any]], path: ValuePath = ()
) -> list[Any]:
    """The value with `change` applied to each value in it; [] if it is gone."""
    result = change(path, value)
    if not result or result[0] is not value:
        return result
    if isinstance(value, Members):
        items = [(k, new) for k, v in value.items for new in changed(v, change, (*path, k))]
        return [Members(items)]
    if isinstance(value, list):
        return [[x for i, v in enumerate(value) for x in changed(v, change, (*path, i))]]
    return [value]


def meaning(value: Any) -> str:
    """Distinguish 1 from true and 0 from -0.0, which compare as equal."""
    return repr(value)


def outside(raw: bytes, paths: list[ValuePath]) -> list[bytes]:
    """The pieces of a line around the values at `paths`."""
    pieces, done = [], 0
    for start, end in sorted(find(raw, paths).values()):
        pieces.append(raw[done:start])
        done = end
    return [*pieces, raw[done:]]


@unhurried
@given(nasty.lines())
def test_every_value_is_found_where_json_reads_it(raw: bytes) -> None:
    plain, _ = nasty.paths(raw)
    spans = find(raw, plain)
    assert set(spans) == set(plain)
    for path, (start, end) in spans.items():
        value = json.loads(raw[start:end].decode(), object_pairs_hook=Members)
        assert meaning(value) == meaning(plain[path])
        assert raw[start:end] == raw[start:end].strip()


@unhurried
@given(nasty.lines())
def test_a_key_that_stands_twice_on_the_path_is_an_error(raw: bytes) -> None:
    plain, doubtful = nasty.paths(raw)
    for path in doubtful:
        with pytest.raises(SpliceError, match="twice in the line"):
            find(raw, [*plain, path])


@unhurried
@given(nasty.lines(), st.lists(st.text(max_size=2) | st.integers(-1, 3), min_size=1, max_size=4))
def test_what_is_not_there_is_not_found(raw: bytes, steps: list[str | int]) -> None:
    plain, doubtful = nasty.paths(raw)
    path = tuple(steps)
    assume(path not in plain)
    assume(not any(path[: len(other)] == other for other in doubtful))
    with pytest.raises(NoSuchValue):
        find(raw, [path])


@unhurried
@given(nasty.lines(), st.data())
def test_replacing_changes_these_values_only(raw: bytes, draw: st.DataObject) -> None:
    paths = some_paths(draw, raw)
    edited = edit(raw, replace=dict.fromkeys(paths, NEW))

    assert outside(edited, paths) == outside(raw, paths)
    new = json.loads(NEW, object_pairs_hook=Members)
    expected = changed(nasty.members(raw), lambda path, value: [new if path in paths else value])
    assert meaning([nasty.members(edited)]) == meaning(expected)
    original = {path: raw[start:end] for path, (start, end) in find(raw, paths).items()}
    assert edit(edited, replace=original) == raw


@unhurried
@given(nasty.lines(utf8=False), st.data())
def test_bytes_that_are_no_text_pass_through(raw: bytes, draw: st.DataObject) -> None:
    paths = some_paths(draw, raw)
    original = {path: raw[start:end] for path, (start, end) in find(raw, paths).items()}
    edited = edit(raw, replace=dict.fromkeys(paths, NEW))
    assert outside(edited, paths) == outside(raw, paths)
    assert edit(edited, replace=original) == raw


@unhurried
@given(nasty.lines(), nasty.strings, nasty.values)
def test_setting_a_member_adds_it_last_or_replaces_its_value(
    raw: bytes, name: bytes, value: bytes
) -> None:
    key: str = json.loads(name)
    plain, doubtful = nasty.paths(raw)
    assume((key,) not in doubtful)
    edited = edit(raw, put={key: value})

    start, end = find(edited, [(key,)])[(key,)]
    assert edited[start:end] == value
    if (key,) in plain:
        assert outside(edited, [(key,)]) == outside(raw, [(key,)])
    else:
        before, after = nasty.members(raw), nasty.members(edited)
        assert meaning(after.items[:-1]) == meaning(before.items)
        assert after.items[-1][0] == key
        assert edit(edited, remove=[(key,)]) == raw


@unhurried
@given(nasty.lines(), st.data())
def test_removed_members_are_gone_and_nothing_else(raw: bytes, draw: st.DataObject) -> None:
    paths = some_paths(draw, raw, only_members=True)
    edited = edit(raw, remove=paths)
    expected = changed(nasty.members(raw), lambda path, value: [] if path in paths else [value])
    assert meaning([nasty.members(edited)]) == meaning(expected)
    one_by_one = raw
    for path in draw.draw(st.permutations(paths)):
        one_by_one = edit(one_by_one, remove=[path])
    assert one_by_one == edited


@unhurried
@given(nasty.lines(), st.data())
def test_removed_members_come_back_to_their_old_place(raw: bytes, draw: st.DataObject) -> None:
    paths = some_paths(draw, raw, only_members=True)
    edited = edit(raw, remove=paths)
    assert edit(edited, reinsert=draw.draw(st.permutations(paths)), original=raw) == raw

    one_by_one = edited
    for path in draw.draw(st.permutations(paths)):
        one_by_one = edit(one_by_one, reinsert=[path], original=raw)
    assert one_by_one == raw


@unhurried
@given(nasty.lines(), st.data())
def test_some_removed_members_come_back_as_if_only_the_others_had_left(
    raw: bytes, draw: st.DataObject
) -> None:
    paths = some_paths(draw, raw, only_members=True)
    back = draw.draw(st.lists(st.sampled_from(paths), unique=True))
    still_gone = [path for path in paths if path not in back]
    edited = edit(edit(raw, remove=paths), reinsert=back, original=raw)
    assert edited == edit(raw, remove=still_gone)


@unhurried
@given(nasty.lines(), st.data(), nasty.values, nasty.values)
def test_extraction_and_restoration_leave_only_what_was_set(
    raw: bytes, draw: st.DataObject, marker: bytes, note: bytes
) -> None:
    """The change of extract in a line, then the change of restore, each in one edit."""
    paths = some_paths(draw, raw)
    gone = [path for path in paths if isinstance(path[-1], str) and draw.draw(st.booleans())]
    replaced = [path for path in paths if path not in gone]
    plain, doubtful = nasty.paths(raw)
    assume(not {("_m",), ("_n",)} & {*plain, *doubtful})

    extracted = edit(
        raw, replace=dict.fromkeys(replaced, NEW), remove=gone, put={"_m": marker, "_n": b"0"}
    )
    assert extracted == edit(
        edit(
            edit(edit(raw, replace=dict.fromkeys(replaced, NEW)), remove=gone), put={"_m": marker}
        ),
        put={"_n": b"0"},
    )
    original = {path: raw[start:end] for path, (start, end) in find(raw, replaced).items()}
    restored = edit(
        extracted,
        replace=original,
        remove=[("_m",)],
        reinsert=gone,
        original=raw,
        put={"_n": note},
    )
    assert restored == edit(raw, put={"_n": note})
    assert edit(restored, remove=[("_n",)]) == raw


@st.composite
def usual_lines(draw: st.DrawFn) -> bytes:
    """Lines as most programs write them, with the ends of Windows' and of torn files."""
    entry = draw(nasty.lines().filter(lambda raw: parse_entry(raw) is not None).map(parse_entry))
    try:
        return orjson.dumps(entry) + draw(st.sampled_from([b"\n", b"\r\n", b""]))
    except TypeError:  # half a character, or a number that is too large
        assume(False)
        raise


@unhurried
@given(nasty.lines() | usual_lines(), st.data(), nasty.values, nasty.strings)
def test_a_line_of_the_usual_form_is_edited_as_any_other(
    raw: bytes, draw: st.DataObject, value: bytes, key: bytes
) -> None:
    paths = some_paths(draw, raw)
    gone = [path for path in paths if isinstance(path[-1], str) and draw.draw(st.booleans())]
    replaced = {path: value for path in paths if path not in gone}
    put = {str(name): b"[0]" for name in [nasty.json_text(key)] if (name,) not in paths}
    assume(not any(path[:1] == (name,) for path in paths for name in put))

    def made() -> tuple[bytes, dict[ValuePath, Stood]] | str:
        try:
            return edit_and_measure(raw, replace=replaced, remove=gone, put=put)
        except SpliceError as error:
            return repr(error)

    with patch.object(splice, "_LONG", -1):  # so that every line is searched
        searched = made()
    assert made() == searched


def test_a_line_of_the_usual_form_is_not_searched() -> None:
    raw = '{"id":"e1","n":[1,-2,0.5,null,true],"t":"ä\\n\\u0001","s":{"x":"y"}}\n'.encode()
    with patch.object(splice, "scan", side_effect=AssertionError("it was searched")):
        line, stood = edit_and_measure(
            raw, replace={("t",): b'"-"', ("n", 1): b"{}"}, remove=[("s", "x")], put={"_m": b"1"}
        )
    assert line == b'{"id":"e1","n":[1,{},0.5,null,true],"t":"-","s":{},"_m":1}\n'
    assert stood == {("t",): (12, 4, 3), ("n", 1): (2, 2, 2), ("s", "x"): (3, 1, 1)}


@pytest.mark.parametrize(
    "raw",
    [
        b'{"a":1.0,"b":1e5,"c":"x"}',
        b'{"a":1,"a":2,"c":"x"}',
        b'{"a":"\\/","c":"x"}',
        b'{"a":"\\u00E4","c":"x"}',
        b'{"a":"\\ud83d","c":"x"}',
        b'{"a":12345678901234567890123,"c":"x"}',
        b'{"a": 1,"c":"x"}',
        b' {"a":-0,"c":"x"}',
    ],
)
def test_what_would_be_written_in_another_way_stays(raw: bytes) -> None:
    assert edit(raw, replace={("c",): b'"y"'}) == raw.replace(b'"x"', b'"y"')


@unhurried
@given(nasty.lines(), st.data())
def test_a_line_that_breaks_off_is_never_edited(raw: bytes, draw: st.DataObject) -> None:
    content = raw.rstrip()
    torn = content[: draw.draw(st.integers(0, len(content) - 1))]
    with pytest.raises(SpliceError):
        find(torn, [("a",)])
    with pytest.raises(SpliceError):
        edit(torn, put={"_k": b"1"})


@unhurried
@given(st.binary(max_size=50) | st.text('{}[]",:\\u0a1 \r\n', max_size=30).map(str.encode))
def test_no_bytes_cause_another_error(raw: bytes) -> None:
    try:
        edited = edit(raw, put={"_k": b"1"})
    except SpliceError:
        return
    assert b"1" in edited


# Runs around the sizes of the pieces in which strings with escapes are read.
_runs = st.integers(0, 5) | st.integers(500, 520) | st.integers(2030, 2060) | st.just(40_000)
_units = st.sampled_from([b"x", rb"\\", rb"\"", rb"\u0022", rb"\n"])


@unhurried
@given(st.lists(st.tuples(_units, _runs), max_size=6))
def test_strings_end_where_they_end(runs: list[tuple[bytes, int]]) -> None:
    string = b'"%s"' % b"".join(unit * times for unit, times in runs)
    raw = b'{"skipped":%s,"nested":[{"deep":%s}],"a":%s}' % (string, string, string)
    start, end = find(raw, [("a",)])[("a",)]
    assert raw[start:end] == string
    assert end == len(raw) - 1


@pytest.mark.parametrize("unit", [rb"\"", rb"\\"])
@pytest.mark.parametrize("border", [512, 512 + 2048, 512 + 2048 + 8192])
def test_no_escape_is_cut_in_two_where_a_string_is_read_in_pieces(unit: bytes, border: int) -> None:
    """Eight bytes that look like the end of a string make the rest be read in pieces."""
    guesses = rb"\"," * 8
    for filler in range(border - 4, border + 5):
        string = b'"%b%b%b,%b"' % (guesses, b"x" * filler, unit * 2, b"y" * 9000)
        raw = b'{"skipped":%b,"a":%b}' % (string, string)
        start, end = find(raw, [("a",)])[("a",)]
        assert raw[start:end] == string


@unhurried
@given(st.text(st.characters(), max_size=20))
def test_any_text_can_be_written_as_a_string(text: str) -> None:
    written = encode_string(text)
    assert b"\n" not in written
    assert written.isascii() or written.decode()
    # A high and a low surrogate side by side are, in JSON, one character.
    assert json.loads(written) == text.encode("utf-16", "surrogatepass").decode(
        "utf-16", "surrogatepass"
    )


@pytest.mark.parametrize(
    ("raw", "size"),
    [
        (b'"abc"', 3),
        (b'""', 0),
        ('"äö"'.encode(), 4),
        (b'"\\u00e4\\n\\"x"', 5),
        (b'"\\ud83d\\ude00"', 4),
        (b'"\\ud83d"', 3),
        (b'{"a": "b"}', 10),
        (b"[1,2]", 5),
    ],
)
def test_the_size_of_a_text_is_that_of_its_utf_8(raw: bytes, size: int) -> None:
    assert text_size(raw) == size


@unhurried
@given(st.lists(st.sampled_from(["\\", "\n", '"', "u", "n", "ä", "😀", "\x01"])), st.booleans())
def test_the_size_of_a_text_is_the_same_however_it_is_written(
    pieces: list[str], ascii_only: bool
) -> None:
    text = "".join(pieces)
    raw = json.dumps(text, ensure_ascii=ascii_only).encode()
    assert text_size(raw) == len(text.encode())
    assert text_sizes(raw) == (len(text.encode()), len(text))


@unhurried
@given(
    st.lists(st.sampled_from(["\\", "\n", '"', "u", "ä", "😀", "\x01"])),
    st.booleans(),
    st.sampled_from(["x", "ä", "\n", "\\", "😀"]),
)
def test_a_long_text_has_the_same_size(pieces: list[str], ascii_only: bool, filling: str) -> None:
    text = "".join(pieces) + filling * (1 << 20)
    raw = json.dumps(text, ensure_ascii=ascii_only).encode()
    assert text_sizes(raw) == (len(text.encode()), len(text))


def test_what_is_not_utf_8_has_a_size_too() -> None:
    assert text_sizes(b'"\xff\x80a"') == (3, 2)


# --- real transcripts: every long value can leave its line and come back, byte for byte ---


PLACEHOLDER = b'"[[extracted-abc]]"'
LONG = 200  # characters


def long_strings(value: Any, path: ValuePath = ()) -> Iterator[tuple[ValuePath, str]]:
    if isinstance(value, str) and len(value) >= LONG:
        yield path, value
    elif isinstance(value, dict):
        for key, member in value.items():
            yield from long_strings(member, (*path, key))
    elif isinstance(value, list):
        for index, element in enumerate(value):
            yield from long_strings(element, (*path, index))


@pytest.fixture
def transcripts(shared_data: Path) -> list[Path]:
    paths = sorted(shared_data.glob("*.jsonl"))
    assert paths
    return paths


def test_lines_joined_are_the_file(transcripts: list[Path]) -> None:
    for path in transcripts:
        data = path.read_bytes()
        with TranscriptFile(path, block=1 << 16) as transcript:
            lines = list(transcript.lines())
        assert b"".join(line.raw for line in lines) == data
        ends = accumulate(len(line.raw) for line in lines)
        assert [line.offset for line in lines] == [0, *ends][:-1]


def test_long_values_leave_and_come_back(transcripts: list[Path]) -> None:
    edited_lines = 0
    for path in transcripts:
        with TranscriptFile(path) as transcript:
            for line in transcript.lines():
                entry = parse_entry(line.raw)
                if entry is not None:
                    edited_lines += check_line(line.raw, dict(long_strings(entry)))
    assert edited_lines > 1000


def check_line(raw: bytes, values: dict[ValuePath, str]) -> bool:
    spans = find(raw, values)
    original = {path: raw[span.start : span.end] for path, span in spans.items()}
    for path, text in values.items():
        read = parse_entry(b'{"text":%s}' % original[path])
        assert read == {"text": text}

    extracted = edit(raw, replace=dict.fromkeys(values, PLACEHOLDER), put={"_extracted": b"{}"})
    assert len(extracted) < len(raw) or not values
    assert edit(extracted, replace=original, remove=[("_extracted",)]) == raw
    assert edit(edit(raw, replace=dict.fromkeys(values, PLACEHOLDER)), replace=original) == raw

    members = [path for path in values if isinstance(path[-1], str)]
    assert edit(edit(raw, remove=members), reinsert=members, original=raw) == raw
    return bool(values)
