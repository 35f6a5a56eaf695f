"""Elements of arrays in raw lines: out with their commas, in at the front, all else stays."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsd.text.splice import SpliceError, elements, prepend_elements, remove_elements
from tests.text import nasty

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
