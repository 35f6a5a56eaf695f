"""Byte-exact splicing, case by case: SPEC §2.1's odd lines, separators, and every error by name."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsd.core.errors import BsdError
from bsd.transcripts.spans import ValuePath
from bsd.transcripts.splice import (
    NoSuchValue,
    Span,
    SpliceError,
    edit,
    elements,
    encode_string,
    find,
    prepend_elements,
    remove_elements,
)
from tests.transcripts import nasty

# SPEC §2.1: `text` becomes `"-"`, and no other byte may change.
ODD_LINES: dict[str, tuple[bytes, bytes]] = {
    "plain": (b'{"id":1,"text":"old"}\n', b'{"id":1,"text":"-"}\n'),
    "crlf": (b'{"text":"old"}\r\n', b'{"text":"-"}\r\n'),
    "no final newline": (b'{"text":"old"}', b'{"text":"-"}'),
    "white space": (b' { "text" :\t"old" } \r\n', b' { "text" :\t"-" } \r\n'),
    "huge integer": (b'{"n":%s,"text":1}\n' % (b"9" * 99), b'{"n":%s,"text":"-"}\n' % (b"9" * 99)),
    "1e5": (b'{"n":1e5,"text":1e5}\n', b'{"n":1e5,"text":"-"}\n'),
    "1.10": (b'{"n":1.10,"text":[]}\n', b'{"n":1.10,"text":"-"}\n'),
    "minus zero": (b'{"n":-0,"text":-0}\n', b'{"n":-0,"text":"-"}\n'),
    "lone surrogate": (rb'{"t":"\ud83d","text":"\udc00"}', rb'{"t":"\ud83d","text":"-"}'),
    "surrogate pair": (rb'{"t":"\uD83D\uDE00","text":""}', rb'{"t":"\uD83D\uDE00","text":"-"}'),
    "raw emoji": ('{"t":"😀","text":"😀"}'.encode(), '{"t":"😀","text":"-"}'.encode()),
    "raw U+2028": ('{"t":"\u2028","text":"\u2028"}'.encode(), '{"t":"\u2028","text":"-"}'.encode()),
    "escaped slash": (rb'{"t":"<\/b>","text":"<\/"}', rb'{"t":"<\/b>","text":"-"}'),
    "escaped letter in a value": (
        rb'{"t":"\u0061","text":"\u0061"}',
        rb'{"t":"\u0061","text":"-"}',
    ),
    "escaped letter in the key": (rb'{"te\u0078t":"old"}', rb'{"te\u0078t":"-"}'),
    "escaped quote in a key": (rb'{"\"text":1,"text":2}', rb'{"\"text":1,"text":"-"}'),
    "escaped nul": (rb'{"t":"\u0000","text":"\u0000"}', rb'{"t":"\u0000","text":"-"}'),
    "raw nul": (b'{"t":"\x00","text":"\x00"}', b'{"t":"\x00","text":"-"}'),
    "no utf-8": (b'{"t":"\xff\xc3","text":"\xed"}', b'{"t":"\xff\xc3","text":"-"}'),
    "no utf-8 in a key": (b'{"\xff\\n":1,"text":2}', b'{"\xff\\n":1,"text":"-"}'),
    "duplicate key off the path": (
        b'{"a":1,"a":{"text":0,"text":0},"text":[{"b":1,"b":2}]}',
        b'{"a":1,"a":{"text":0,"text":0},"text":"-"}',
    ),
    "brackets and quotes in strings": (
        rb'{"t":["}]{[\"",{"x":"\\"}],"text":"\\\""}',
        rb'{"t":["}]{[\"",{"x":"\\"}],"text":"-"}',
    ),
    "the same key deeper down": (b'{"a":{"text":1},"text":2}', b'{"a":{"text":1},"text":"-"}'),
    "empty neighbours": (b'{"":"","a":{},"b":[],"text":{}}', b'{"":"","a":{},"b":[],"text":"-"}'),
}


@pytest.mark.parametrize(("raw", "edited"), ODD_LINES.values(), ids=ODD_LINES)
def test_only_the_edited_value_changes(raw: bytes, edited: bytes) -> None:
    span = find(raw, [("text",)])[("text",)]
    assert edit(raw, replace={("text",): b'"-"'}) == edited
    assert edit(edited, replace={("text",): raw[span.start : span.end]}) == raw


NOT_ONE_OBJECT: dict[str, bytes] = {
    "empty": b"",
    "blank": b" \r\n",
    "two objects": b'{"text":1}{"text":2}\n',
    "two objects, one line end": b'{"text":1} {"text":2}',
    "array": b'[{"text":1}]\n',
    "string": b'"text"\n',
    "number": b"1\n",
    "byte order mark": b'\xef\xbb\xbf{"text":1}\n',
    "torn in a key": b'{"text":1,"te',
    "torn in a string": b'{"text":"abc',
    "torn after a backslash": b'{"text":"abc\\"',
    "torn in an escaped string": b'{"text":"a\\"bc\\',
    "torn after a colon": b'{"text":',
    "torn after a comma": b'{"text":1,',
    "torn in an object": b'{"text":1,"b":{"c":[1,',
    "not closed": b'{"text":1',
    "closed twice": b'{"text":1}}',
    "comma at the end": b'{"text":1,}',
    "no comma": b'{"text":1 "b":2}',
    "no colon": b'{"text" 1}',
    "no value": b'{"text":,"b":1}',
    "bare key": b"{text:1}",
    "impossible escape in a key": rb'{"text":1,"\x":2}',
    "text after it": b'{"text":1} x\n',
}


@pytest.mark.parametrize("raw", NOT_ONE_OBJECT.values(), ids=NOT_ONE_OBJECT)
def test_what_is_not_one_object_is_not_edited(raw: bytes) -> None:
    with pytest.raises(SpliceError, match="not one JSON object"):
        edit(raw, replace={("text",): b'"-"'})
    with pytest.raises(SpliceError, match="not one JSON object"):
        edit(raw, put={"_k": b"1"})


DUPLICATES: dict[str, tuple[bytes, ValuePath]] = {
    "the key itself": (b'{"a":1,"a":2}', ("a",)),
    "in another spelling": (rb'{"a":1,"\u0061":2}', ("a",)),
    "both escaped": (rb'{"\/":1,"\u002f":2}', ("/",)),
    "not ASCII": ('{"é":1,"\\u00e9":2}'.encode(), ("é",)),
    "emoji as a pair": ('{"😀":1,"\\ud83d\\ude00":2}'.encode(), ("😀",)),
    "a lone surrogate": (rb'{"\ud83d":1,"\uD83D":2}', ("\ud83d",)),
    "above the value": (b'{"a":{"b":1},"c":0,"a":{"b":1}}', ("a", "b")),
    "above, without the value": (b'{"a":{"b":1},"a":null}', ("a", "b")),
    "in an array": (b'{"a":[0,{"b":1,"b":1}]}', ("a", 1, "b")),
}


@pytest.mark.parametrize(("raw", "path"), DUPLICATES.values(), ids=DUPLICATES)
def test_a_duplicate_key_on_the_path_forbids_the_edit(raw: bytes, path: ValuePath) -> None:
    edits: list[Callable[[], object]] = [
        lambda: find(raw, [path]),
        lambda: edit(raw, replace={path: b"0"}),
        lambda: edit(raw, remove=[path]),
        lambda: edit(b"{}", reinsert=[path], original=raw),
    ]
    for attempt in edits:
        with pytest.raises(SpliceError, match="twice in the line"):
            attempt()


def test_a_duplicate_of_the_key_to_set_forbids_the_edit() -> None:
    with pytest.raises(SpliceError, match="twice in the line"):
        edit(rb'{"_k":1,"\u005fk":2}', put={"_k": b"0"})


MISSING: dict[str, tuple[bytes, ValuePath]] = {
    "key": (b'{"a":1}', ("b",)),
    "below a scalar": (b'{"a":1}', ("a", "b")),
    "below a string": (b'{"a":"b"}', ("a", "b")),
    "key in an array": (b'{"a":[1]}', ("a", "b")),
    "index in an object": (b'{"a":{"0":1}}', ("a", 0)),
    "index out of range": (b'{"a":[1]}', ("a", 1)),
    "negative index": (b'{"a":[1]}', ("a", -1)),
    "in an empty array": (b'{"a":[ ]}', ("a", 0)),
    "in an empty object": (b'{"a":{ }}', ("a", "b")),
    "in an empty line": (b"{}", ("a",)),
    "other case": (b'{"A":1}', ("a",)),
}


@pytest.mark.parametrize(("raw", "path"), MISSING.values(), ids=MISSING)
def test_a_missing_value_is_an_error(raw: bytes, path: ValuePath) -> None:
    with pytest.raises(NoSuchValue):
        find(raw, [path])
    with pytest.raises(NoSuchValue):
        edit(raw, replace={path: b"0"})


def test_all_values_are_found_in_one_go() -> None:
    raw = b'{"a":{"b":[10,{"c":"x"},[]]},"d":null}'
    paths: list[ValuePath] = [("a",), ("a", "b", 0), ("a", "b", 1, "c"), ("a", "b", 2), ("d",)]
    spans = find(raw, paths)
    assert list(spans) == paths
    assert [raw[span.start : span.end] for span in spans.values()] == [
        b'{"b":[10,{"c":"x"},[]]}',
        b"10",
        b'"x"',
        b"[]",
        b"null",
    ]
    assert find(raw, [()]) == {(): Span(0, len(raw))}
    assert find(raw, []) == {}


ADDED: dict[str, tuple[bytes, bytes]] = {
    "after the last": (b'{"a":1}\n', b'{"a":1,"k":9}\n'),
    "before white space": (b'{"a":1 }\r\n', b'{"a":1,"k":9 }\r\n'),
    "after an object": (b'{"a":{"k":1}}', b'{"a":{"k":1},"k":9}'),
    "alone": (b"{}", b'{"k":9}'),
    "alone in white space": (b"{ }\n", b'{ "k":9}\n'),
}


@pytest.mark.parametrize(("raw", "edited"), ADDED.values(), ids=ADDED)
def test_a_new_member_comes_last_and_leaves_no_trace(raw: bytes, edited: bytes) -> None:
    assert edit(raw, put={"k": b"9"}) == edited
    assert edit(edited, remove=[("k",)]) == raw


def test_a_member_that_is_there_is_set_in_place() -> None:
    assert edit(rb'{"\u006b" : 1 ,"b":2}', put={"k": b"9"}) == rb'{"\u006b" : 9 ,"b":2}'


def test_several_new_members_come_in_their_order() -> None:
    edited = edit(b'{"a":1 }', put={"y": b"1", "a": b"0", "x": b"2", 'q"\u2028': b"3"})
    assert edited == '{"a":0,"y":1,"x":2,"q\\"\u2028":3 }'.encode()


REMOVED: dict[str, tuple[bytes, list[ValuePath], bytes]] = {
    "first": (b'{ "a":1 , "b":2 ,"c":3 }', [("a",)], b'{ "b":2 ,"c":3 }'),
    "middle": (b'{ "a":1 , "b":2 ,"c":3 }', [("b",)], b'{ "a":1 ,"c":3 }'),
    "last": (b'{ "a":1 , "b":2 ,"c":3 }', [("c",)], b'{ "a":1 , "b":2 }'),
    "first two": (b'{ "a":1 , "b":2 ,"c":3 }', [("a",), ("b",)], b'{ "c":3 }'),
    "last two": (b'{ "a":1 , "b":2 ,"c":3 }', [("b",), ("c",)], b'{ "a":1 }'),
    "outer two": (b'{ "a":1 , "b":2 ,"c":3 }', [("a",), ("c",)], b'{ "b":2 }'),
    "all": (b'{"a":1,"b":2}', [("a",), ("b",)], b"{}"),
    "only": (b'{"a":1}\n', [("a",)], b"{}\n"),
    "only, in white space": (b'{ "a":1\t}', [("a",)], b"{ \t}"),
    "in an array": (b'{"a":[{"b":1,"c":2}]}', [("a", 0, "b")], b'{"a":[{"c":2}]}'),
    "in two objects": (b'{"a":{"b":1},"c":{"b":1}}', [("a", "b"), ("c", "b")], b'{"a":{},"c":{}}'),
    "between duplicates": (b'{"d":1 ,"a":1, "d":2}', [("a",)], b'{"d":1, "d":2}'),
}


@pytest.mark.parametrize(("raw", "paths", "edited"), REMOVED.values(), ids=REMOVED)
def test_members_leave_and_come_back(raw: bytes, paths: list[ValuePath], edited: bytes) -> None:
    assert edit(raw, remove=paths) == edited
    assert edit(edited, reinsert=paths, original=raw) == raw
    assert edit(edited, reinsert=paths[::-1], original=raw) == raw


def test_a_member_comes_back_beside_what_was_changed_meanwhile() -> None:
    original = b'{"type":"thinking", "thinking" : "long" ,"sig":"xyz", "n":1e5}\r\n'
    now = b'{"type":"thinking", "thinking" : "[[extracted-a]]", "n":1e5,"_extracted":{}}\r\n'
    back = edit(now, reinsert=[("sig",)], original=original)
    assert back == now.replace(b', "n"', b' ,"sig":"xyz", "n"')
    restored = edit(back, replace={("thinking",): b'"long"'}, remove=[("_extracted",)])
    assert restored == original


def test_a_first_member_comes_back_before_one_that_was_added_meanwhile() -> None:
    original = b'{"m":{ "a":1 }}'
    now = b'{"m":{"x":0}}'
    back = edit(now, reinsert=[("m", "a")], original=original)
    assert back == b'{"m":{ "a":1,"x":0 }}'
    assert edit(back, remove=[("m", "x")]) == original


def test_putting_back_what_is_there_or_has_no_place_is_an_error() -> None:
    original = b'{"a":{"b":1,"c":2}}'
    with pytest.raises(SpliceError, match="already"):
        edit(b'{"a":{"b":0}}', reinsert=[("a", "b")], original=original)
    with pytest.raises(NoSuchValue):
        edit(b"{}", reinsert=[("a", "b")], original=original)
    with pytest.raises(SpliceError, match="only members of objects"):
        edit(b'{"a":1}', reinsert=[("a", "b")], original=original)
    with pytest.raises(NoSuchValue):
        edit(b'{"a":{}}', reinsert=[("a", "d")], original=original)
    with pytest.raises(SpliceError, match="not one JSON object"):
        edit(b'{"a":{}}', reinsert=[("a", "b")], original=b"")


OVERLAPS: dict[str, Callable[[bytes], bytes]] = {
    "value in a value": lambda raw: edit(raw, replace={("a",): b"0", ("a", "b"): b"0"}),
    "value in a removed one": lambda raw: edit(raw, replace={("a", "b"): b"0"}, remove=[("a",)]),
    "value removed": lambda raw: edit(raw, replace={("a",): b"0"}, remove=[("a",)]),
    "removed twice": lambda raw: edit(raw, remove=[("a",), ("a",)]),
    "removed in a removed one": lambda raw: edit(raw, remove=[("a", "b"), ("a",)]),
    "set and replaced": lambda raw: edit(raw, replace={("a",): b"0"}, put={"a": b"0"}),
    "set and replaced inside": lambda raw: edit(raw, replace={("a", "b"): b"0"}, put={"a": b"0"}),
    "put back in a removed one": lambda raw: edit(
        raw, remove=[("a",)], reinsert=[("a", "c")], original=b'{"a":{"c":1}}'
    ),
}


@pytest.mark.parametrize("attempt", OVERLAPS.values(), ids=OVERLAPS)
def test_edits_that_touch_the_same_bytes_are_an_error(attempt: Callable[[bytes], bytes]) -> None:
    with pytest.raises(SpliceError, match=r"the same value twice|inside it too"):
        attempt(b'{"a":{"b":1}}')


def test_only_members_of_objects_can_leave() -> None:
    with pytest.raises(SpliceError, match="not a member"):
        edit(b'{"a":[1]}', remove=[("a", 0)])
    with pytest.raises(SpliceError, match="not a member"):
        edit(b'{"a":[1]}', remove=[()])
    with pytest.raises(SpliceError, match="not a member"):
        edit(b'{"a":[]}', reinsert=[("a", 0)], original=b'{"a":[1]}')


@pytest.mark.parametrize("value", [b"", b'{\n"a":1}', b"1\n"])
def test_a_value_must_not_break_the_line(value: bytes) -> None:
    with pytest.raises(ValueError, match="fits in a line"):
        edit(b'{"a":1}', replace={("a",): value})
    with pytest.raises(ValueError, match="fits in a line"):
        edit(b'{"a":1}', put={"b": value})


def test_no_edit_is_no_change() -> None:
    raw = b' {"a" :1}\r\n'
    assert edit(raw) == raw


def test_deep_nesting_beside_the_path_is_skipped() -> None:
    deep = b"[" * 50_000 + b'{"a":"]"}' + b"]" * 50_000
    raw = b'{"deep":%s,"a":[%s,1],"b":{"c":%s}}' % (deep, deep, deep)
    spans = find(raw, [("a", 1), ("b",)])
    assert raw[slice(*spans[("a", 1)])] == b"1"
    assert raw[slice(*spans[("b",)])] == b'{"c":%s}' % deep


def test_a_path_that_is_too_deep_leaves_the_line_alone() -> None:
    depth = sys.getrecursionlimit() + 10
    raw = b'{"a":' * depth + b"1" + b"}" * depth
    with pytest.raises(SpliceError, match="is too long"):
        find(raw, [("a",) * depth])


def test_a_long_line_is_edited_around_its_long_strings() -> None:
    long = b'"' + (rb"x\"y\n\\" * 500_000) + b'"'
    raw = b'{"a":[%s,{"b":%s}],"text":"old"}\n' % (long, long)
    spans = find(raw, [("a", 0), ("a", 1, "b")])
    assert {span.end - span.start for span in spans.values()} == {len(long)}
    assert edit(raw, replace={("text",): b'"-"'}) == raw.replace(b'"old"', b'"-"')


STRINGS: dict[str, tuple[str, bytes]] = {
    "plain": ("abc", b'"abc"'),
    "quotes": ('a"b\\c', rb'"a\"b\\c"'),
    "line ends": ("a\r\nb", rb'"a\r\nb"'),
    "nul": ("\x00", rb'"\u0000"'),
    "emoji": ("😀", '"😀"'.encode()),
    "high surrogate": ("a\ud83d", rb'"a\ud83d"'),
    "low surrogate": ("\udc00b", rb'"\udc00b"'),
}


@pytest.mark.parametrize(("text", "written"), STRINGS.values(), ids=STRINGS)
def test_text_is_written_as_a_string(text: str, written: bytes) -> None:
    assert encode_string(text) == written


def test_every_error_is_one_a_planner_can_catch_and_a_user_can_read() -> None:
    assert issubclass(NoSuchValue, SpliceError)
    assert issubclass(SpliceError, BsdError)
    with pytest.raises(NoSuchValue, match=r"message\.content\[2\]\.text"):
        find(b'{"message":{}}', [("message", "content", 2, "text")])


# --- elements of arrays in raw lines: removed with their commas, inserted at the front ---


ITEMS = st.lists(
    st.sampled_from(["1", '"a,b"', '"]"', "[ ]", "[1 ,2]", '{"x" : [3]}', "1e5", '"\\u005d"']),
    max_size=5,
)
SPACES = st.sampled_from(["", " ", "\t "])


@settings(nasty.unhurried, max_examples=60)
@given(ITEMS, SPACES, SPACES, st.data())
def test_what_stays_keeps_its_bytes(
    items: list[str], before: str, after: str, data: st.DataObject
) -> None:
    inside = f"{after},{before}".join(items)
    line = f'{{"n": 1e5 ,"a":[{before}{inside}{after}], "z":"é"}}\r\n'.encode()
    gone = data.draw(st.sets(st.sampled_from(range(len(items))))) if items else set()
    kept = [item for at, item in enumerate(items) if at not in gone]
    assert elements(line, ("a",), len(items)) == [item.encode() for item in items]
    new = remove_elements(line, ("a",), len(items), gone)
    assert json.loads(new)["a"] == [json.loads(item) for item in kept]
    start, end = line.index(b"["), line.rindex(b"]")
    assert new.startswith(line[: start + 1])
    assert new.endswith(line[end:])
    assert elements(new, ("a",), len(kept)) == [item.encode() for item in kept]
    if not gone:
        assert new == line
    front = prepend_elements(new, ("a",), [b"7", b'"8"'], empty=not kept)
    assert json.loads(front)["a"] == [7, "8", *(json.loads(item) for item in kept)]
    assert prepend_elements(new, ("a",), [], empty=not kept) == new


@pytest.mark.parametrize("line", [b'{"a":1}', b'{"b":[1]}', b'{"a":[1],"a":[2]}', b'{"a":[]}'])
def test_what_is_no_such_array_is_refused(line: bytes) -> None:
    with pytest.raises(SpliceError):
        remove_elements(line, ("a",), 1, {0})
