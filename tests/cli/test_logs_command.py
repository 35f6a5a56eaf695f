"""`bsd logs`: the end of the log and its new lines, through every change of the log file."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from bsd.cli import logs
from bsd.cli.logs import LineFilter, LogReader, console_line, json_line
from bsd.cli.main import run
from tests.refusing import raising

ALL = LineFilter()


def line(event: str, level: str = "info", **fields: object) -> bytes:
    head = {"time": "2026-11-22T10:00:00.000Z", "level": level, "module": "m", "event": event}
    return json.dumps({**head, **fields}).encode() + b"\n"


def events(lines: list[bytes]) -> list[str]:
    return [json.loads(one)["event"] for one in lines]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bsd.log"


class Enough(Exception):
    """The test has seen enough."""


def following(
    path: Path, *steps: Callable[[], object], begin: int = 0, wanted: LineFilter = ALL
) -> list[bytes]:
    """Return the lines that `follow` shows if the steps happen in turn while it sleeps."""
    rest = iter(steps)

    def sleep(_: float) -> None:
        step = next(rest, None)
        if step is None:
            raise Enough
        step()

    with LogReader(path, sleep=sleep) as file:
        seen = file.last(begin, wanted)
        with suppress(Enough):
            # In turn: lines seen before the end count.
            for one in file.follow(wanted):
                seen.append(one)
    assert next(rest, None) is None, "it ended before the last step"
    return seen


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


# --- the end ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "expected"), [(0, []), (1, ["3"]), (2, ["2", "3"]), (9, ["1", "2", "3"])]
)
def test_the_last_lines(path: Path, count: int, expected: list[str]) -> None:
    path.write_bytes(b"".join(line(event) for event in "123"))
    with LogReader(path) as file:
        assert events(file.last(count, ALL)) == expected


def test_the_last_wanted_lines(path: Path) -> None:
    levels = ["error", "info", "warn", "debug"] * 3
    path.write_bytes(b"".join(line(str(n), level) for n, level in enumerate(levels)))
    with LogReader(path) as file:
        assert events(file.last(3, LineFilter("warn"))) == ["6", "8", "10"]


def test_of_a_large_file_only_the_end_is_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_bytes(b"".join(line(str(n)) for n in range(100)))
    monkeypatch.setattr(logs, "_MOST_READ", 10 * len(line("10")))
    with LogReader(path) as file:
        found = events(file.last(50, ALL))
    assert found == [str(n) for n in range(91, 100)]


def test_no_file_is_no_lines(path: Path) -> None:
    with LogReader(path) as file:
        assert not file.is_there()
        assert file.last(5, ALL) == []


# --- new lines -------------------------------------------------------------------------------


def test_what_is_added_is_shown_once(path: Path) -> None:
    path.write_bytes(line("1") + line("2"))
    seen = following(
        path,
        lambda: append(path, line("3")),
        lambda: None,
        lambda: append(path, line("4") + line("5")),
        begin=1,
    )
    assert events(seen) == ["2", "3", "4", "5"]


def test_half_a_line_waits_for_its_end(path: Path) -> None:
    whole = line("2")
    path.write_bytes(line("1") + whole[:10])
    seen = following(
        path,
        lambda: append(path, whole[10:20]),
        lambda: append(path, whole[20:] + line("3")),
        begin=5,
    )
    assert events(seen) == ["1", "2", "3"]


def rotate(path: Path) -> None:
    os.rename(path, path.with_suffix(".1"))


def test_rotation_loses_nothing(path: Path) -> None:
    path.write_bytes(line("1"))
    old = path.with_suffix(".1")

    def grow_and_rotate() -> None:
        append(path, line("3"))
        rotate(path)
        append(path, line("4"))

    seen = following(
        path,
        lambda: rotate(path),
        lambda: append(old, line("late, before the writer has noticed")),
        lambda: append(path, line("2")),
        grow_and_rotate,
    )
    assert events(seen) == ["late, before the writer has noticed", "2", "3", "4"]


def test_truncation_begins_anew(path: Path) -> None:
    path.write_bytes(line("a long line that was there before") * 3)
    seen = following(
        path, lambda: os.truncate(path, 0), lambda: append(path, line("1")), lambda: None
    )
    assert events(seen) == ["1"]


def test_a_file_that_is_still_to_come_is_waited_for(path: Path) -> None:
    seen = following(path, lambda: None, lambda: path.write_bytes(line("1")))
    assert events(seen) == ["1"]


def test_deletion_is_survived(path: Path) -> None:
    path.write_bytes(line("0"))
    seen = following(path, path.unlink, lambda: None, lambda: path.write_bytes(line("1")))
    assert events(seen) == ["1"]


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_every_line_is_shown_once_and_in_order(path: Path, seed: int) -> None:
    chance = random.Random(seed)
    path.write_bytes(b"")
    written: list[str] = []

    def act() -> None:
        for _ in range(chance.randrange(4)):
            written.append(str(len(written)))
            append(path, line(written[-1]))
        if chance.random() < 0.3:
            rotate(path)
            append(path, b"")

    assert events(following(path, *[act] * 30)) == written


# --- which lines ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (LineFilter(), "tdiwe?"),
        (LineFilter("debug"), "diwe"),
        (LineFilter("warn"), "we"),
        (LineFilter("error"), "e"),
        (LineFilter(session="main/a"), "dw"),
        (LineFilter("info", "main/a"), "w"),
    ],
)
def test_level_and_session(path: Path, wanted: LineFilter, expected: str) -> None:
    lines = [
        line("t", "trace", session="main/ab"),
        line("d", "debug", session="main/a"),
        line("i", "info", note="about main/a, says the text"),
        line("w", "warn", session="main/a"),
        line("e", "error", session="other/a"),
        b"torn line\n",
    ]
    path.write_bytes(b"".join(lines))
    with LogReader(path) as file:
        found = file.last(99, wanted)
    assert "".join("?" if one == b"torn line" else events([one])[0] for one in found) == expected


def test_a_line_for_people() -> None:
    _, level, rest = console_line(
        line("Extracted 2 values", "info", session="main/a", sizes={"a": 1}, text="two words")[:-1]
    )
    assert level == "info"
    assert rest == 'Extracted 2 values session=main/a sizes={"a": 1} text="two words" [m]'


def test_a_traceback_keeps_its_lines_below() -> None:
    _, _, rest = console_line(line("failed", "error", exception="Traceback:\n  here\n")[:-1])
    assert rest == "failed [m]\n    Traceback:\n      here"


def test_nothing_in_a_line_commands_the_terminal() -> None:
    raw = line("\x1b[2J\u202e", "info", **{"k\x07": "\x1b]0;x\x07", "exception": "\x1b[31m"})
    text = "".join(console_line(raw))
    assert text.replace("\n", "").isprintable()
    assert console_line(b"\x1b[2J torn")[2] == "\\x1b[2J torn"
    passed = json_line('{"event":"\u202e\U000e0001ok"}'.encode())
    assert passed.isprintable()
    assert json.loads(passed)["event"] == "\u202e\U000e0001ok"


# --- the command ------------------------------------------------------------------------------


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "root"
    (root / "logs").mkdir(parents=True)
    monkeypatch.setenv("OPENCLAW_ROOT", str(root))
    return root


def test_the_command_shows_the_end_of_the_log(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = root / "logs" / "brainsurgeon.log"
    log.write_bytes(line("one") + line("two", "warn", session="main/a") + line("three"))
    assert run(["logs", "-n", "2"]) == 0
    two, three = capsys.readouterr().out.splitlines()
    assert two.endswith(" warn  two session=main/a [m]")
    assert three.endswith(" info  three [m]")
    assert run(["logs", "--level", "warn", "--session", "main/a", "--json"]) == 0
    assert [json.loads(one)["event"] for one in capsys.readouterr().out.splitlines()] == ["two"]


def test_the_command_says_if_there_is_no_log(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["logs"]) == 0
    told = capsys.readouterr()
    assert told.out == ""
    assert "nothing has been logged yet" in told.err


def test_following_ends_with_an_interrupt(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "logs" / "brainsurgeon.log").write_bytes(line("one"))

    monkeypatch.setattr("bsd.cli.logs.time.sleep", raising(KeyboardInterrupt))
    assert run(["logs", "-f"]) == 130
    assert "one" in capsys.readouterr().out
