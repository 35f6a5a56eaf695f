"""bsd's SQLite files."""

from __future__ import annotations

import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from bsd.core.database_file import (
    being_opened,
    make_database_file,
    remove_database,
    signed,
    unsigned,
    version_of,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "some.db"


def test_a_new_file_is_private(path: Path) -> None:
    assert make_database_file(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_bytes(b"x")
    assert not make_database_file(path)
    assert path.read_bytes() == b"x"


@pytest.mark.parametrize("is_there", [True, False])
def test_no_link_is_followed(path: Path, *, is_there: bool) -> None:
    target = path.with_name("other.db")
    path.symlink_to(target)
    if is_there:
        target.touch()
    with pytest.raises(OSError, match="a symbolic link"):
        make_database_file(path)
    assert target.exists() is is_there


def test_what_lies_beside_it_goes_too(path: Path) -> None:
    for suffix in ("", "-journal", "-wal"):
        path.with_name(path.name + suffix).touch()
    other = path.with_name("some.db-other")
    other.touch()
    remove_database(path)
    assert list(path.parent.iterdir()) == [other]
    remove_database(path)


def test_a_connection_that_cannot_be_used_is_closed(path: Path) -> None:
    database = sqlite3.connect(path)
    assert version_of(database) == 0
    with pytest.raises(KeyboardInterrupt), being_opened(database):
        raise KeyboardInterrupt
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        database.execute("SELECT 1")


@pytest.mark.parametrize("number", [0, 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_numbers_of_64_bits(path: Path, number: int) -> None:
    with closing(sqlite3.connect(path)) as database:
        (kept,) = database.execute("SELECT ?", (signed(number),)).fetchone()
    assert unsigned(kept) == number
