"""Entries leave `sessions.json` and come back; every other byte stays the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bsd.core.errors import Busy, Conflict
from bsd.transcripts import splice
from bsd.transcripts.agents.openclaw.lock import SessionLock
from bsd.transcripts.agents.openclaw.registry import excerpt, put_back, take_out

_KEYS = st.lists(st.text(max_size=8).filter(str.isprintable), unique=True, max_size=14)
_ENTRIES = st.dictionaries(
    st.sampled_from(["sessionId", "n", "é", "x"]),
    st.none() | st.integers() | st.text(max_size=5) | st.lists(st.booleans(), max_size=2),
    min_size=1,
)


def take(directory: Path, *keys: str) -> str:
    kept: list[str] = []
    take_out(directory, lambda content: [k for k in keys if k in content], kept.append, wait=0.0)
    return kept[-1] if kept else ""


@given(st.data(), st.sampled_from([None, 0, 2]), st.booleans())
def test_taken_out_and_put_back_it_is_the_same_to_the_byte(
    data: st.DataObject, indent: int | None, ascii_only: bool
) -> None:
    keys = data.draw(_KEYS)
    content = {key: data.draw(_ENTRIES) for key in keys}
    raw = json.dumps(content, indent=indent, ensure_ascii=ascii_only).encode()
    going = [key for key in keys if data.draw(st.booleans())]
    if not going:
        return
    text = excerpt(raw, going)
    without = splice.edit(raw, remove=[(key,) for key in going])
    assert json.loads(without) == {k: v for k, v in content.items() if k not in going}
    assert splice.edit(without, reinsert=[(key,) for key in going], original=text.encode()) == raw


def test_the_excerpt_of_one_among_many_is_small() -> None:
    many: dict[str, Any] = {f"agent:main:{n}": {"sessionId": "x" * 1000} for n in range(500)}
    assert len(excerpt(json.dumps(many).encode(), ["agent:main:250"])) < 2000


def test_other_bytes_stay_whatever_they_look_like(tmp_path: Path) -> None:
    odd = '{ "a" : {"n":1e5,"n":2, "u":"\\u00e9"} ,\r\n\t"b":{"sessionId":"s"},"c":{ }\n}\n'
    path = tmp_path / "sessions.json"
    path.write_bytes(odd.encode())
    path.chmod(0o640)
    text = take(tmp_path, "b")
    assert path.read_bytes() == b'{ "a" : {"n":1e5,"n":2, "u":"\\u00e9"},"c":{ }\n}\n'
    assert path.stat().st_mode & 0o777 == 0o640
    assert put_back(tmp_path, text, wait=0.0).keys == ("b",)
    assert path.read_bytes() == odd.encode()
    assert put_back(tmp_path, text, wait=0.0).taken == ()
    assert path.read_bytes() == odd.encode()
    assert [each.name for each in tmp_path.iterdir()] == ["sessions.json"]


def test_what_cannot_be_edited_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "sessions.json"
    for content in (b"{", b"[]", b"\xff{}", b'{"a":{},"a":{}}'):
        path.write_bytes(content)
        with pytest.raises(Conflict):
            take(tmp_path, "a")
        assert path.read_bytes() == content
    path.unlink()
    (tmp_path / "real").write_bytes(b'{"a":{}}')
    path.symlink_to("real")
    with pytest.raises(Conflict, match="not a plain file"):
        take(tmp_path, "a")
    assert path.is_symlink()


def test_a_change_that_comes_between_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "sessions.json"
    path.write_bytes(b'{"a":{"x":1},"b":{}}')
    looked: list[str] = []

    def keep(text: str) -> None:
        looked.append(text)
        if len(looked) == 1:  # a writer that does not use the lock
            path.with_name("theirs").write_bytes(b'{"a":{"x":2},"b":{},"c":{}}')
            path.with_name("theirs").rename(path)

    take_out(tmp_path, lambda content: ["a"], keep, wait=0.0)
    assert path.read_bytes() == b'{"b":{},"c":{}}'
    assert json.loads(looked[-1])["a"] == {"x": 2}


def test_the_gateways_lock_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "sessions.json"
    path.write_bytes(b'{"a":{}}')
    with SessionLock(path, 0.0), pytest.raises(Busy):
        take(tmp_path, "a")
    assert path.read_bytes() == b'{"a":{}}'
