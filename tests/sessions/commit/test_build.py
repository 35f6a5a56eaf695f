from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bsd.core.filesystem import keep_metadata
from bsd.core.leases import hash_under, is_same_beside
from bsd.sessions.commit import protocol
from bsd.sessions.commit.protocol import FileChanged, splice
from bsd.transcripts.change import Change, Edit, Identity
from tests.sessions.commit.scene import NAME


@contextmanager
def files(directory: Path, data: bytes) -> Iterator[tuple[int, int, Path]]:
    (directory / "source").write_bytes(data)
    source = os.open(directory / "source", os.O_RDWR)
    target = os.open(directory / "target", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        yield source, target, directory / "target"
    finally:
        os.close(source)
        os.close(target)


def change_of(source: int, edits: tuple[Edit, ...]) -> Change:
    return Change(Path("s"), Identity.of(os.fstat(source)), edits, NAME, 0)


def spliced(data: bytes, edits: tuple[Edit, ...]) -> bytes:
    """The same, naively."""
    parts, at = [], 0
    for edit in edits:
        parts += [data[at : edit.offset], edit.new]
        at = edit.offset + edit.length
    return b"".join([*parts, data[at:]])


@st.composite
def edited_files(draw: st.DrawFn) -> tuple[bytes, tuple[Edit, ...]]:
    cuts = draw(st.lists(st.integers(0, 300), max_size=12))
    data = draw(st.binary(min_size=max([0, *cuts]), max_size=400))
    marks = sorted(cuts[: len(cuts) // 2 * 2])
    return data, tuple(
        Edit(start, end - start, draw(st.binary(max_size=40)))
        for start, end in zip(marks[::2], marks[1::2], strict=True)
    )


@given(edited_files(), st.sampled_from([1, 20, 1 << 16]), st.sampled_from([1, 30, 1 << 22]))
def test_splicing_is_splicing(
    tmp_path_factory: pytest.TempPathFactory,
    case: tuple[bytes, tuple[Edit, ...]],
    small_gap: int,
    gather: int,
) -> None:
    data, edits = case
    directory = tmp_path_factory.mktemp("splice")
    with pytest.MonkeyPatch.context() as patch, files(directory, data) as (source, target, path):
        patch.setattr(protocol, "_SMALL_GAP", small_gap)
        patch.setattr(protocol, "_GATHER", gather)
        built = splice(source, target, change_of(source, edits))
        assert path.read_bytes() == spliced(data, edits)
        assert built.spans == tuple((edit.offset, edit.length, len(edit.new)) for edit in edits)
        assert is_same_beside(source, target, built.spans, len(data))
        assert hash_under(source, built.spans) == built.sha256


def test_what_the_planner_saw_is_what_must_lie_under_the_edits(tmp_path: Path) -> None:
    data = bytes(range(256)) * 2
    seen = tuple(
        Edit(at, 100, b"new", f"sha256:{sha256(data[at : at + 100]).hexdigest()}")
        for at in (0, 100, 300)
    )
    unseen = tuple(Edit(edit.offset, edit.length, edit.new) for edit in seen)
    with files(tmp_path, data) as (source, target, _):
        expected = splice(source, target, change_of(source, unseen)).sha256
        assert splice(source, target, change_of(source, seen)).sha256 == expected
        os.pwrite(source, b"!", 150)
        assert splice(source, target, change_of(source, seen)).sha256 == expected
        assert splice(source, target, change_of(source, unseen)).sha256 != expected


def _missing(*_: Any, **__: Any) -> int:
    raise OSError(errno.ENOSYS, "not here")


@pytest.mark.parametrize("without", [[], ["copy_file_range"], ["copy_file_range", "sendfile"]])
def test_bytes_are_copied_one_way_or_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without: list[str]
) -> None:
    data = os.urandom(3 << 20)
    edits = (Edit(1 << 20, 5, b"first"), Edit(2 << 20, 1 << 19, b""))
    for name in without:
        monkeypatch.setattr(os, name, _missing)
    with files(tmp_path, data) as (source, target, path):
        splice(source, target, change_of(source, edits))
        assert path.read_bytes() == spliced(data, edits)


def test_many_edits_of_a_large_file_cost_few_system_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = bytes(8 << 20)
    edits = tuple(Edit(offset, 10, b"short") for offset in range(0, 4 << 20, 1 << 10))
    calls = 0

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            nonlocal calls
            calls += 1
            return real(*args, **more)

        return call

    monkeypatch.setattr(os, "write", counted(os.write))
    monkeypatch.setattr(os, "copy_file_range", counted(os.copy_file_range))
    with files(tmp_path, data) as (source, target, path):
        splice(source, target, change_of(source, edits))
        assert path.read_bytes() == spliced(data, edits)
    assert len(edits) == 4096
    assert calls <= 4


@pytest.mark.parametrize("length", [100, 1 << 20])
def test_a_file_that_ends_too_early_has_changed(tmp_path: Path, length: int) -> None:
    data = bytes(length)
    with files(tmp_path, data) as (source, target, _):
        change = change_of(source, (Edit(10, 10, b""),))
        os.ftruncate(source, length - 1)
        with pytest.raises(FileChanged):
            splice(source, target, change)


def test_an_edited_span_that_is_gone_has_changed(tmp_path: Path) -> None:
    with files(tmp_path, bytes(100)) as (source, target, _):
        change = change_of(source, (Edit(90, 10, b""),))
        os.ftruncate(source, 95)
        with pytest.raises(FileChanged):
            splice(source, target, change)


@pytest.mark.parametrize("later_ns", [-1, 0, 1, 10**12])
def test_the_mtime_advances_by_a_nanosecond_where_it_must(tmp_path: Path, later_ns: int) -> None:
    """Clocks are coarse and may be put back: the new file can be as old as the original."""
    with files(tmp_path, b"x") as (source, target, path):
        made = path.stat().st_mtime_ns
        os.utime(source, ns=(made, made + later_ns))
        keep_metadata(source, target)
        assert path.stat().st_mtime_ns == max(made, made + later_ns + 1)


def test_the_mtime_stays_where_its_owner_needs_it(tmp_path: Path) -> None:
    with files(tmp_path, b"x") as (source, target, path):
        os.utime(source, ns=(10**18, 10**18))
        keep_metadata(source, target, mtime=True)
        assert path.stat().st_mtime_ns == 10**18
