"""What files hold, of which others may have made any."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bsd.foundation import files
from bsd.foundation.files import holds


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
