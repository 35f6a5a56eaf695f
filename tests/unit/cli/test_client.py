"""Which daemon is asked: a path that nobody can be sure of is refused, not guessed at."""

from __future__ import annotations

from pathlib import Path

import pytest

from bsd.cli.client import find_client
from bsd.foundation.errors import ConfigError


@pytest.mark.parametrize("line", ['root = "here"', "root = 5", 'socket = "run/bsd.sock"'])
def test_a_path_in_the_file_that_is_no_whole_one(tmp_path: Path, line: str) -> None:
    file = tmp_path / "bsd.toml"
    file.write_text(f"{line}\n")
    with pytest.raises(ConfigError, match=r"absolute or from ~"):
        find_client(None, str(file), {"HOME": str(tmp_path)})


@pytest.mark.parametrize(("root", "place"), [("~", ""), ("~/a", "a"), ("/b", "/b")])
def test_a_whole_path_in_the_file(tmp_path: Path, root: str, place: str) -> None:
    file = tmp_path / "bsd.toml"
    file.write_text(f'root = "{root}"\n')
    found = find_client(None, str(file), {"HOME": str(tmp_path)}).path
    assert found == tmp_path / place / ".brainsurgeon" / "bsd.sock"
