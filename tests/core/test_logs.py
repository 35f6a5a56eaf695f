"""The log: SPEC §3 "Log", seed 000's SP-09."""

from __future__ import annotations

import io
import json
import logging
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from bsd.core.layout import Layout
from bsd.core.logs import (
    BoundLogger,
    close_logs,
    configure_logs,
    is_journal,
    terminal_or_service,
)

NAMES = ["trace", "debug", "info", "warn", "error"]


@pytest.fixture(autouse=True)
def quiet_afterwards() -> Iterator[None]:
    yield
    close_logs()


def get_logger(module: str) -> BoundLogger:
    """Return a logger as bsd's modules get it."""
    logger: BoundLogger = structlog.get_logger("bsd.test", module=module)
    return logger


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def lines(layout: Layout) -> list[dict[str, object]]:
    if not layout.log_file.exists():
        return []
    return [json.loads(line) for line in layout.log_file.read_text().split("\n") if line]


def say_all() -> None:
    log = get_logger("extraction")
    log.trace("trace")
    log.debug("debug")
    log.info("info")
    log.warning("warn")
    log.error("error")


@pytest.mark.parametrize("level", NAMES)
def test_writes_its_level_and_all_above(layout: Layout, level: str) -> None:
    configure_logs(layout, level, environ={})
    say_all()
    expected = NAMES[NAMES.index(level) :]
    assert [line["level"] for line in lines(layout)] == expected
    assert [line["event"] for line in lines(layout)] == expected


def test_a_line_names_time_level_module_event_first(layout: Layout) -> None:
    configure_logs(layout, environ={})
    get_logger("extraction").info("Extracted", session="main/abc", entry_id="e1", sizes=[3])
    (line,) = lines(layout)
    assert list(line) == ["time", "level", "module", "event", "session", "entry_id", "sizes"]
    time = line.pop("time")
    assert isinstance(time, str)
    assert time.endswith("Z")
    assert line == {
        "level": "info",
        "module": "extraction",
        "event": "Extracted",
        "session": "main/abc",
        "entry_id": "e1",
        "sizes": [3],
    }


def test_nothing_is_written_before_it_is_configured(capfd: pytest.CaptureFixture[str]) -> None:
    say_all()
    assert capfd.readouterr() == ("", "")


def test_the_file_is_private_and_so_is_its_new_directory(layout: Layout) -> None:
    configure_logs(layout, environ={})
    get_logger("m").info("x")
    assert stat.S_IMODE(layout.log_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(layout.log_file.parent.stat().st_mode) == 0o700


def test_the_owners_directory_keeps_its_mode(layout: Layout) -> None:
    layout.log_file.parent.mkdir()
    layout.log_file.parent.chmod(0o750)
    configure_logs(layout, environ={})
    get_logger("m").info("x")
    assert stat.S_IMODE(layout.log_file.parent.stat().st_mode) == 0o750


def test_no_root_is_created_for_a_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    configure_logs(Layout(tmp_path / "mistyped"), environ={})
    get_logger("m").error("x")
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


def test_a_link_is_not_followed(layout: Layout, capfd: pytest.CaptureFixture[str]) -> None:
    layout.log_file.parent.mkdir()
    elsewhere = layout.root / "elsewhere"
    elsewhere.write_text("")
    layout.log_file.symlink_to(elsewhere)
    configure_logs(layout, environ={})
    get_logger("m").info("x")
    assert elsewhere.read_text() == ""
    assert "cannot write to" in capfd.readouterr().err


class Unspeakable:
    def __repr__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("\ud800 lone", "\ud800 lone"),
        ("a\nb\u2028c\x00", "a\nb\u2028c\x00"),
        (2**70, 2**70),
        (Path("/a/b"), "/a/b"),
        (ValueError("why"), "why"),
        (b"\xff", "b'\\xff'"),
        ({1}, "{1}"),
        ((1, "x"), [1, "x"]),
        ({1: {"b": None}}, {"1": {"b": None}}),
        (float("nan"), None),
    ],
)
def test_any_value_is_written_as_one_line_of_json(
    layout: Layout, value: object, written: object
) -> None:
    configure_logs(layout, environ={})
    get_logger("m").info("text \ud83d", value=value)
    get_logger("m").info("text", value=value)
    first, second = lines(layout)
    assert first["event"] == "text \ud83d"
    assert second["value"] == written


def test_fields_may_have_any_name_and_do_not_overwrite_the_head(layout: Layout) -> None:
    configure_logs(layout, environ={})
    fields: dict[str, object] = {"level": "l", "time": 1, "name": 2, "args": 3}
    get_logger("m").info("the event", **fields)
    (line,) = lines(layout)
    assert line["event"] == "the event"
    assert line["level"] == "info"
    assert line["time"] != 1
    assert (line["name"], line["args"]) == (2, 3)


def test_percent_signs_are_text(layout: Layout) -> None:
    configure_logs(layout, environ={})
    get_logger("m").info("100%s {x}")
    assert lines(layout)[0]["event"] == "100%s {x}"


def test_tracebacks_are_data(layout: Layout) -> None:
    configure_logs(layout, environ={})
    try:
        int("broken")
    except ValueError as error:
        get_logger("m").exception("now", session="a/b")
        kept = error
    get_logger("m").warning("later", exc_info=kept)
    for line in lines(layout):
        assert str(line["exception"]).endswith("with base 10: 'broken'")
    assert [line["level"] for line in lines(layout)] == ["error", "warn"]


def test_a_rotated_file_is_noticed(layout: Layout) -> None:
    configure_logs(layout, environ={})
    log = get_logger("m")
    log.info("one")
    rotated = layout.log_file.with_suffix(".1")
    layout.log_file.rename(rotated)
    log.info("two")
    layout.log_file.unlink()
    log.info("three")
    assert json.loads(rotated.read_text())["event"] == "one"
    assert [line["event"] for line in lines(layout)] == ["three"]


def test_reopening_closes_the_old_file(layout: Layout) -> None:
    configure_logs(layout, environ={})
    log = get_logger("m")
    log.info("one")

    def is_open() -> bool:
        here = layout.log_file.stat().st_ino
        inodes = []
        for name in os.listdir("/proc/self/fd"):
            try:
                inodes.append(os.stat(f"/proc/self/fd/{name}").st_ino)
            except FileNotFoundError:  # the descriptor of the directory listing itself
                continue
        return here in inodes

    if not Path("/proc/self/fd").is_dir():
        pytest.skip("needs /proc")
    assert is_open()
    configure_logs(layout, environ={})
    assert not is_open()
    log.info("two")
    assert [line["event"] for line in lines(layout)] == ["one", "two"]
    close_logs()
    assert not is_open()


def test_a_full_disk_is_said_once_and_stops_nothing(layout: Layout) -> None:
    program = f"""
import resource
from pathlib import Path
import structlog
from bsd.core.layout import Layout
from bsd.core.logs import configure_logs
configure_logs(Layout(Path({str(layout.root)!r})), environ={{}})
log = structlog.get_logger("bsd.test", module="m")
log.info("before")
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
for number in range(1000):
    log.info("while it is full", number=number)
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
for _ in range(2):
    log.info("after")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"bsd: cannot write to {layout.log_file}: File too large")
    first, *_, last = layout.log_file.read_text().splitlines()
    assert json.loads(first)["event"] == "before"
    assert json.loads(last)["event"] == "after"


def test_an_object_that_cannot_be_written_stops_nothing(
    layout: Layout, capfd: pytest.CaptureFixture[str]
) -> None:
    configure_logs(layout, environ={})
    get_logger("m").info("x", value=Unspeakable())
    get_logger("m").info("y")
    assert [line["event"] for line in lines(layout)][-1] == "y"
    assert capfd.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("tty", "environ", "expected"),
    [
        (True, {}, True),
        (False, {}, False),
        (False, {"INVOCATION_ID": "inherited by every shell of a desktop session"}, False),
        (False, {"SYSTEMD_EXEC_PID": str(os.getpid())}, True),
        (False, {"SYSTEMD_EXEC_PID": "1"}, False),
        (False, {"JOURNAL_STREAM": "1:2"}, False),
        (False, {"JOURNAL_STREAM": ""}, False),
        (False, {"XPC_SERVICE_NAME": "0"}, False),
    ],
)
def test_stderr_only_for_a_terminal_or_a_service_manager(
    monkeypatch: pytest.MonkeyPatch, tty: bool, environ: dict[str, str], expected: bool
) -> None:
    stream = Terminal() if tty else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    assert terminal_or_service(environ) is expected
    configure_logs(None, environ=environ)
    get_logger("m").info("x")
    assert bool(stream.getvalue()) is expected


def test_no_stderr_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    assert not terminal_or_service({})
    configure_logs(None, environ={"SYSTEMD_EXEC_PID": str(os.getpid())})
    get_logger("m").info("x")


@pytest.mark.parametrize(
    ("fmt", "environ", "expected"),
    [
        ("auto", {}, "\x1b["),
        ("auto", {"NO_COLOR": "1"}, "[warn ] Text"),
        ("auto", {"TERM": "dumb"}, "[warn ] Text"),
        ("console", {"NO_COLOR": "1"}, "[warn ] Text"),
        ("json", {}, '"level":"warn"'),
    ],
)
def test_forms_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, fmt: str, environ: dict[str, str], expected: str
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    configure_logs(None, "trace", fmt, environ=environ)
    get_logger("m").warning("Text", text="\x1b]0;title\x07")
    written = terminal.getvalue()
    assert expected in written
    assert "\x1b]" not in written  # text from a transcript must not steer the terminal
    if "NO_COLOR" in environ:
        assert "\x1b" not in written


def test_stderr_may_have_a_level_of_its_own(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    configure_logs(layout, "debug", stderr_level="error", environ={"NO_COLOR": "1"})
    say_all()
    assert [line["level"] for line in lines(layout)] == ["debug", "info", "warn", "error"]
    assert terminal.getvalue().count("\n") == 1


def test_the_journal_gets_prefixed_json_lines(tmp_path: Path) -> None:
    program = """
import os
import structlog
from bsd.core.logs import configure_logs
status = os.fstat(2)
environ = {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"}
configure_logs(None, "trace", "auto", environ=environ)
log = structlog.get_logger("bsd.test", module="m")
for say in (log.trace, log.debug, log.info, log.warning, log.error):
    say("two\\nlines")
configure_logs(None, "trace", "console", environ={**environ, "NO_COLOR": "1"})
try:
    1 / 0
except ZeroDivisionError:
    log.exception("bad")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == ""
    written = done.stderr.split("\n")
    assert [line[:3] for line in written[:5]] == ["<7>", "<7>", "<6>", "<4>", "<3>"]
    assert all(json.loads(line[3:])["event"] == "two\nlines" for line in written[:5])
    assert written[-1] == ""
    assert len(written) > 7
    assert all(line.startswith("<3>") for line in written[5:-1])


def test_the_journal_is_recognised_by_its_stream() -> None:
    status = os.fstat(2)
    assert is_journal({"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"})
    assert not is_journal({"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino + 1}"})


def test_libraries_are_heard(layout: Layout) -> None:
    configure_logs(layout, environ={})
    library = logging.getLogger("watchdog.observers.inotify_c")
    library.info("chatter")
    library.warning("queue %s", "overflow")
    try:
        os.stat(layout.root / "missing")
    except OSError:
        library.exception("failed")
    found = [(line["module"], line["level"], line["event"]) for line in lines(layout)]
    assert found == [
        (library.name, "warn", "queue overflow"),
        (library.name, "error", "failed"),
    ]
    assert "No such file" in str(lines(layout)[-1]["exception"])


def test_at_trace_libraries_may_chatter_and_afterwards_not(layout: Layout) -> None:
    configure_logs(layout, "trace", environ={})
    configure_logs(layout, "trace", environ={})  # a second call: each line still arrives once
    logging.getLogger("watchdog").debug("chatter")
    logging.getLogger("watchdog").info("chat")
    assert [line["level"] for line in lines(layout)] == ["debug", "info"]
    close_logs()
    assert logging.getLogger().level == logging.WARNING


def test_stdout_stays_clean(layout: Layout, capfd: pytest.CaptureFixture[str]) -> None:
    configure_logs(layout, "trace", environ={"SYSTEMD_EXEC_PID": str(os.getpid())})
    say_all()
    assert capfd.readouterr().out == ""
