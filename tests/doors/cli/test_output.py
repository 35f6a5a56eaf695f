"""Tables: what is beside what, whatever the cells hold."""

from __future__ import annotations

import pytest

from bsd.doors.cli.output import print_table


def test_columns_stand_below_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [("a", "1", "x"), ("港 ⚓", "1,000", ""), ("\x1b[31m", "20", "naïve")]
    print_table(("NAME", "SIZE", ""), rows, right=("SIZE",))
    assert capsys.readouterr().out.splitlines() == [
        "NAME       SIZE",
        "a             1  x",
        "港 ⚓     1,000",
        r"\x1b[31m     20  naïve",
    ]


def test_the_last_column_takes_the_room_that_is_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setenv("NO_COLOR", "1")
    rows = [("first", "x" * 50), ("second", "港" * 20)]
    print_table(("NAME", "TEXT"), rows, last_may_shrink=True)
    _, *lines = capsys.readouterr().out.splitlines()
    assert lines == ["first   " + "x" * 21 + "…", "second  " + "港" * 10 + " …"]
