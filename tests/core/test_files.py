"""Files that are written whole or not at all, privately; and reading files of other programs."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from bsd.core import files
from bsd.core.files import holds, write_all, write_private
from tests.refusing import raising


@pytest.fixture(params=[0o022, 0o777], ids=["usual umask", "umask that takes all"])
def umask(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize("data", [b"", b"x", bytes(range(256)) * 5000])
def test_writes_the_bytes_privately(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "new" / "dir" / "file.json"
    write_private(path, data)
    assert path.read_bytes() == data
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.parent.parent.stat().st_mode) == 0o700
    assert list(path.parent.iterdir()) == [path]


def test_replaces_a_file_and_tightens_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old and longer")
    path.chmod(0o644)
    write_private(path, b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("failing", ["write", "fsync", "replace"])
def test_a_failure_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    monkeypatch.setattr(os, failing, raising(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        write_private(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_short_writes_are_continued(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, bytes(data[:3])))
    write_all(writer, b"ten bytes!")
    os.close(writer)
    assert os.read(reader, 100) == b"ten bytes!"
    os.close(reader)


def test_a_long_name_is_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 255)
    write_private(path, b"x")
    assert path.read_bytes() == b"x"


# --- content of files that other programs may have made in any form ---


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 100])
def test_bytes_are_found_wherever_pieces_are_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"aaab, aab")
    monkeypatch.setattr(files, "_BLOCK", piece)
    assert holds(path, b"aaab")
    assert holds(path, b"aab")
    assert not holds(path, b"aaaab")


def test_what_cannot_be_read_holds_nothing(tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    (tmp_path / "file").write_bytes(b"x")
    link.symlink_to(tmp_path / "file")
    for path in (pipe, link, tmp_path, tmp_path / "missing"):
        assert not holds(path, b"x")
