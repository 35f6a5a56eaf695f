"""The world of the recorded calls, and their caller."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bsd.cli.main import run
from bsd.core.logs import close_logs
from tests.golden.steady import document
from tests.golden.world import World, make

Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def world(
    tmp_path: Path, clean_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[World]:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("EDITOR", "false")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield make(tmp_path / "top", clean_environment)
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def ask(world: World, capsys: pytest.CaptureFixture[str]) -> Iterator[Ask]:
    """Run `bsd --root ROOT …` in this process; return its exit code, its output and its files."""
    seen: dict[str, int] = {}

    def asked(*arguments: str) -> dict[str, Any]:
        world.rest()
        code = run(["--root", str(world.root), *arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in err, err
        assert "internal error" not in err, err
        answer = {"exit": code, "out": document(out), "err": document(err) if err else []}
        return answer | world.noted(seen)

    yield asked
    close_logs()
