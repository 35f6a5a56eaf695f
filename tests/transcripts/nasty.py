"""Lines as other programs may write them: valid JSON in every odd spelling (SPEC §2.1).

`json.loads` is the oracle for what they mean; `members` and `paths` read them without losing
duplicate keys.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from bsd.transcripts.spans import ValuePath

# A busy machine is no reason to fail: no test asserts a duration.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

_ESCAPES = [
    *(rb"\"", rb"\\", rb"\/", rb"\b", rb"\f", rb"\n", rb"\r", rb"\t"),
    *(rb"\u0000", rb"\u0022", rb"\u005c", rb"\u005C", rb"\u000a", rb"\u2028", rb"\u00e9"),
    *(rb"\ud83d\ude00", rb"\uD83D\uDE00", rb"\ud83d", rb"\udc00", rb"\ud83dx", rb"\\\"", rb"\\\\"),
]
_RAW = [b"a", b"b", b" ", b"{", b"}", b"[", b"]", b":", b",", b"/", b"'", b"\x7f", b"abc" * 20]
_RAW += [text.encode() for text in ("\u2028", "\u2029", "\x85", "😀", "é", "\ufeff", "\ufffd")]
_PLACEHOLDER = b"[[extracted-abc]]"

_code_units = st.integers(0, 0xFFFF).map(lambda unit: rb"\u%04x" % unit)
_characters = st.characters(codec="utf-8", min_codepoint=32, exclude_characters='"\\').map(
    lambda character: character.encode()
)
_tokens = st.sampled_from(_ESCAPES) | st.sampled_from(_RAW) | _characters | _code_units
_any_bytes = st.sampled_from([b"\xff", b"\xc3", b"\xed\xa0\xbd", b"\xf0\x9f"])


def _quoted(tokens: list[bytes]) -> bytes:
    return b'"%s"' % b"".join(tokens)


strings = st.lists(_tokens, max_size=5).map(_quoted)
undecodable_strings = st.lists(_tokens | _any_bytes, max_size=5).map(_quoted)

# Few names in several spellings, so that duplicate keys are common.
keys = (
    st.sampled_from([b'"a"', rb'"\u0061"', b'"b"', b'""', rb'"\/"', b'"/"', b'"id"', b'"content"'])
    | strings
)

_ODD_NUMBERS = [b"0", b"-0", b"-0.0", b"1e5", b"1E+05", b"1.10", b"1e400", b"5e-324"]
_ODD_NUMBERS += [b"12345678901234567890", b"9" * 400, b"0.1000000000000000055511151231257827"]
numbers = st.sampled_from(_ODD_NUMBERS) | st.integers().map(lambda number: b"%d" % number)

scalars = strings | numbers | st.sampled_from([b"true", b"false", b"null", b'"%s"' % _PLACEHOLDER])

spaces = st.sampled_from([b"", b"", b"", b" ", b"\t", b"\r", b" \r\t "])
colons = st.sampled_from([b":", b":", b": ", b" :", b"\r:\t"])


def arrays(values: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    element = st.tuples(spaces, values, spaces).map(b"".join)
    filled = st.lists(element, min_size=1, max_size=4).map(lambda parts: b"[%s]" % b",".join(parts))
    return filled | spaces.map(lambda space: b"[%s]" % space)


def objects(values: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    member = st.tuples(spaces, keys, colons, values, spaces).map(b"".join)
    filled = st.lists(member, min_size=1, max_size=5).map(lambda parts: b"{%s}" % b",".join(parts))
    return filled | spaces.map(lambda space: b"{%s}" % space)


def json_text(raw: bytes) -> Any:
    """The meaning of a piece of JSON, by the standard library; bytes that are no UTF-8 survive."""
    return json.loads(raw.decode("utf-8", "surrogateescape"))


values = st.recursive(scalars, lambda inner: arrays(inner) | objects(inner), max_leaves=8)
_lossy_values = st.recursive(
    undecodable_strings | numbers, lambda inner: arrays(inner) | objects(inner), max_leaves=6
)
line_ends = st.sampled_from([b"\n", b"\r\n", b"", b" \n"])


def lines(*, utf8: bool = True) -> st.SearchStrategy[bytes]:
    """Raw lines that hold exactly one object; without `utf8`, values may hold any bytes."""
    content = objects(values if utf8 else _lossy_values)
    return st.tuples(spaces, content, line_ends).map(b"".join)


@dataclass
class Members:
    """An object with all its members, duplicate keys too."""

    items: list[tuple[str, Any]]


def members(raw: bytes) -> Members:
    """A line's object as `Members` all the way down."""
    text = raw.decode("utf-8", "surrogateescape")
    parsed = json.loads(text, object_pairs_hook=Members)
    assert isinstance(parsed, Members)
    return parsed


def paths(raw: bytes) -> tuple[dict[ValuePath, Any], set[ValuePath]]:
    """All paths of a line with their values, and the paths that lead over a duplicate key."""
    plain: dict[ValuePath, Any] = {}
    doubtful: set[ValuePath] = set()
    for path, value, certain in _walk(members(raw), (), True):
        if certain:
            plain[path] = value
        else:
            doubtful.add(path)
    return plain, doubtful


def _walk(value: Any, path: ValuePath, certain: bool) -> Iterator[tuple[ValuePath, Any, bool]]:
    if path:
        yield path, value, certain
    if isinstance(value, Members):
        names = [key for key, _ in value.items]
        for key, member in value.items:
            yield from _walk(member, (*path, key), certain and names.count(key) == 1)
    elif isinstance(value, list):
        for index, element in enumerate(value):
            yield from _walk(element, (*path, index), certain)
