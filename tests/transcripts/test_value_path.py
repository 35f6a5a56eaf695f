"""Names of values: every path that is written can be read again."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bsd.transcripts.spans import ValuePath, format_path, names_value, parse_path

# Every text JSON can hold as a key: lone surrogates too, though not two that make a pair.
keys = st.text(st.characters() | st.sampled_from('.[]"\\ 09\n')).filter(
    lambda key: json.loads(json.dumps(key)) == key
)
paths = st.lists(keys | st.integers(min_value=0), min_size=1).map(tuple)


@given(paths)
@example(("",))
@example(("a", "", 0, ""))
@example(("\\", '"', '\\"', "]", '"]'))
@example(("a.b", "[0]", "0", 0))
@example(("\ud800", "é\u2028\x85\u00a0", "\u0663"))
def test_what_is_written_is_read_again(path: ValuePath) -> None:
    text = format_path(path)
    assert parse_path(text) == path
    text.encode()  # it goes into index files, into `_extracted` and over the wire


@given(paths, paths)
def test_no_two_paths_are_written_alike(one: ValuePath, other: ValuePath) -> None:
    assert (format_path(one) == format_path(other)) is (one == other)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (("output",), "output"),
        (("message", "content", 2, "text"), "message.content[2].text"),
        (("message", "content", 1, "arguments", "patch"), "message.content[1].arguments.patch"),
        (("details", "a.b"), 'details["a.b"]'),
        (("details", "a b", "c"), 'details["a b"].c'),
        ((0, "a"), "[0].a"),
        ((0, 1), "[0][1]"),
        (("a", "0"), "a.0"),
        (("größe",), "größe"),
        (("",), '[""]'),
    ],
)
def test_reads_and_writes(path: ValuePath, text: str) -> None:
    assert format_path(path) == text
    assert parse_path(text) == path


@pytest.mark.parametrize(
    "text",
    # format_path does not write this form, but it has a single possible meaning.
    ['["output"]', '["\\u006futput"]'],
)
def test_reads_other_spellings(text: str) -> None:
    assert parse_path(text) == ("output",)


@pytest.mark.parametrize(
    "text",
    [
        *["", ".", ".a", "a.", "a..b", "a b", "a[", "a[]", "a[-1]", "a[x]", "a]", 'a["b]'],
        *['a["\\x"]', "[0]a", 'a["b"]c', "a.[0]", "a[1.5]", "a[٣]", 'a["b\nc"]', "a\n"],
        f"a[{'9' * 5000}]",
    ],
)
def test_refuses_what_is_no_path(text: str) -> None:
    with pytest.raises(ValueError, match=f"not the path of a value: {re.escape(repr(text))}|empty"):
        parse_path(text)


@pytest.mark.parametrize(
    ("name", "means"),
    [
        ("message.content[2].text", True),
        ("message", True),
        ("content", True),
        ("content[2]", True),
        ("text", True),
        ("content[1]", False),
        ("content.text", False),
        ("tex", False),
        ("2", False),
        ("", False),
    ],
)
def test_what_a_name_means(name: str, means: bool) -> None:
    assert names_value(name, ("message", "content", 2, "text")) is means
