"""Tables on terminals of any width, and on none."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.cells import cell_len

from bsd.cli.table_layout import TableColumn, fit_table, wrap_line
from tests.cli.conftest import Call

NAME = "claude-code:-home-me-shop/8463c716-a2ea-4c14-9efa-87158ebd9f20"
COLUMNS = [
    TableColumn("SESSION", (NAME, "main/4f2a")),
    TableColumn("SIZE", ("1.2 MB", "3 B"), right=True),
    TableColumn("ENTRIES", ("12", "1,234"), right=True, spare=1),
    TableColumn("", ("", "")),
    TableColumn("STATUS", ("waits: cache warm until 14:05, 38k tokens ready", "done"), wraps=True),
    TableColumn("TITLE", ("港" * 40, "mend the harbour"), cuts=True),
]


def test_without_a_terminal_nothing_is_cut_or_left_out() -> None:
    title, rows = fit_table(COLUMNS, None)
    assert len(title + rows) == 3
    assert "港" * 40 in rows[0]
    assert title[0].split() == ["SESSION", "SIZE", "ENTRIES", "STATUS", "TITLE"]


@pytest.mark.parametrize("width", [30, 60, 80, 160, 400])
def test_on_one_only_a_name_alone_on_its_line_is_wider(width: int) -> None:
    title, rows = fit_table(COLUMNS, width)
    wide = [line for line in title + rows if cell_len(line) > width]
    assert wide in ([], [NAME])
    assert any(line == NAME or line.startswith(f"{NAME} ") for line in rows)


def test_columns_are_left_out_one_by_one_and_others_wrap() -> None:
    wide, _ = fit_table(COLUMNS, 80)
    title, rows = fit_table(COLUMNS, 60)
    assert wide == ["SESSION", "    SIZE  ENTRIES  STATUS                TITLE"]
    assert "ENTRIES" not in "".join(title)
    status = " ".join(line[10:32].strip() for line in rows if NAME not in line)
    assert "waits: cache warm until 14:05, 38k" in status
    assert fit_table(COLUMNS, 160)[0][0].split() == [
        *("SESSION", "SIZE", "ENTRIES", "STATUS", "TITLE")
    ]


def test_what_must_be_copied_whole_is_left_to_the_terminal_to_break() -> None:
    command = "cd /home/me/projects/harbour && claude --resume 8463c716-a2ea-4c14"
    columns = [TableColumn("A", ("main/4f2a",)), TableColumn("DO", (command,), whole=True)]
    assert fit_table(columns, 40)[1][-1].endswith(command)


def test_a_long_line_goes_on_below_its_text() -> None:
    line = "  disk       12 MB: store 3 MB, archive 4 MB, history 5 MB"
    assert wrap_line(line, None, 13) == [line]
    first, second = wrap_line(line, 40, 13)
    assert first == "  disk       12 MB: store 3 MB, archive"
    assert second == " " * 13 + "4 MB, history 5 MB"
    command = "`bsd archive bring-back main/4f2a`"
    assert wrap_line(f"it takes 12.0 KB: try {command} now", 16, 2) == [
        *("it takes", "  12.0 KB: try", f"  {command}", "  now")
    ]


@pytest.mark.parametrize("width", ["60", "160"])
def test_tables_of_commands_fit(
    bsd: Call, root: Path, monkeypatch: pytest.MonkeyPatch, width: str
) -> None:
    bsd("extract", "main/alpha", "--keep-recent", "0")
    bsd("delete", "main/beta", "--yes")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", width)
    for line in (
        *("sessions", "show main/alpha --no-pager", "context main/alpha", "history main/alpha"),
        *("trash list", "config show", "extract --dry-run", "verify", "agents", "archive keep"),
    ):
        shown = bsd(*line.split()).out
        rows = [row for row in shown.splitlines() if not row.startswith(("tokens:", "/"))]
        assert [row for row in rows if cell_len(row) > int(width) and "  " in row] == [], line
        assert rows, line
