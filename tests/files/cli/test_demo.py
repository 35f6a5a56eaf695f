"""`bsd demo` ends by itself, tells the truth and leaves nothing behind."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.files.cli.conftest import Program


@pytest.fixture
def place(tmp_path: Path) -> Path:
    place = tmp_path / "tmp"
    place.mkdir()
    return place


def test_demo(program: Program, place: Path) -> None:
    ended = program("demo", TMPDIR=str(place))
    assert ended.code == 0, ended
    assert "[[extracted-" in ended.out
    assert ended.out.endswith("Every byte came back.\n")
    assert list(place.iterdir()) == []


def test_demo_fails_when_a_byte_is_lost(
    monkeypatch: pytest.MonkeyPatch, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from bsd.cli import demo
    from bsd.cli.main import run

    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(demo, "_SESSIONS", {"main/a": 60_000})
    monkeypatch.setattr(demo, "_RESTORED", re.compile(rb'"type":"message",'))
    assert run(["demo", "--json"]) == 1
    assert '"exact": false' in capsys.readouterr().out
