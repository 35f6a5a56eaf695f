"""config.json: created, upgraded, live, kept valid, never overwritten from a stale copy (SP-01)."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyfakefs.fake_filesystem import FakeFilesystem

from bsd.core import config_file, file_lock
from bsd.core.audit import AuditLog
from bsd.core.config import PruningConfig
from bsd.core.config_file import ConfigService, default_text
from bsd.core.errors import Busy, ConfigError, Forbidden, Invalid, NotFound
from bsd.core.layout import Layout
from tests.logs import capture_logs
from tests.refusing import raising

Lines = list[dict[str, Any]]


@pytest.fixture
def logged() -> Iterator[Lines]:
    with capture_logs() as lines:
        yield lines


@pytest.fixture
def layout(fs: FakeFilesystem) -> Layout:
    """A root in memory, whose locks have no effect."""
    root = Path("/srv/openclaw")
    fs.create_dir(root)
    return Layout(root)


@pytest.fixture
def path(layout: Layout) -> Path:
    return layout.config_file


@pytest.fixture
def real_path(tmp_path: Path) -> Path:
    """Path of config.json in a root on disk, for tests that need locks or another process."""
    return Layout(tmp_path).config_file


@pytest.fixture
def service(path: Path) -> ConfigService:
    return ConfigService(path)


def write(path: Path, text: str | bytes | dict[str, object]) -> None:
    """Edit the file by hand."""
    if isinstance(text, dict):
        text = json.dumps(text)
    path.parent.mkdir(exist_ok=True)
    temporary = path.with_name("edited")  # a new inode: no two edits have the same stamp
    temporary.write_bytes(text.encode() if isinstance(text, str) else text)
    temporary.replace(path)


def read(path: Path) -> dict[str, object]:
    values = json.loads(path.read_text())
    assert isinstance(values, dict)
    return values


def events(logged: Lines, level: str | None = None) -> list[str]:
    """Return the log records of one level, or of all levels except trace."""
    levels = {level} if level else {"debug", "info", "warn", "error"}
    return [line["event"] for line in logged if line["log_level"] in levels]


def defaults(**changed: object) -> dict[str, object]:
    return {**json.loads(default_text()), **changed}


# --- created and upgraded -----------------------------------------------------------------------


def test_a_missing_file_is_created_with_defaults(
    service: ConfigService, path: Path, logged: Lines
) -> None:
    assert service.current == PruningConfig()
    assert path.read_text() == default_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert events(logged) == ["Config created with defaults"]
    assert service.problem is None


def test_a_dry_run_creates_nothing(path: Path) -> None:
    service = ConfigService(path, create=False)
    assert service.current == PruningConfig()
    assert not path.parent.exists()
    write(path, {"enabled": False})
    assert service.current == PruningConfig(enabled=False)
    assert read(path) == {"enabled": False}


def test_new_fields_are_added_and_logged(service: ConfigService, path: Path, logged: Lines) -> None:
    old = defaults(keep_recent=7)
    del old["scope"], old["keep_chars"], old["trash_retention"]
    write(path, {**old, "mine": [1, 2.5]})
    assert service.current == PruningConfig(keep_recent=7)
    assert read(path) == {**defaults(keep_recent=7), "mine": [1, 2.5]}
    assert events(logged, "info") == [
        "Config upgraded: added field keep_chars with default 0",
        'Config upgraded: added field trash_retention with default "14d"',
        'Config upgraded: added field scope with default "all"',
    ]
    again = ConfigService(path)
    assert again.current == service.current
    assert len(events(logged, "info")) == 3


def test_an_empty_object_is_an_old_file(service: ConfigService, path: Path) -> None:
    write(path, {})
    assert service.current == PruningConfig()
    assert read(path) == defaults()


@pytest.mark.parametrize("text", [b"\xef\xbb\xbf{}", b" {\r\n} "])
def test_marks_of_other_editors_are_fine(service: ConfigService, path: Path, text: bytes) -> None:
    write(path, text)
    assert service.current == PruningConfig()


def test_unknown_fields_are_kept_and_warned_about_once(
    service: ConfigService, path: Path, logged: Lines
) -> None:
    write(path, defaults(keep_recnt=9))
    assert service.current == PruningConfig()
    service.update({"keep_chars": 5})
    assert service.current.keep_chars == 5
    assert read(path) == {**defaults(keep_chars=5), "keep_recnt": 9}
    (warning,) = [line for line in logged if line["log_level"] == "warn"]
    assert warning["problem"] == "keep_recnt is not a known setting; did you mean keep_recent?"


def test_what_is_kept_is_kept_exactly(service: ConfigService, path: Path) -> None:
    others: dict[str, object] = {"big": 2**80, "lone": "\ud800", "deep": {"a": [None, {"b": 1.5}]}}
    write(path, defaults(**others))
    service.update({"enabled": False})
    assert {key: read(path)[key] for key in others} == others


def test_the_older_name_of_a_field_is_understood(service: ConfigService, path: Path) -> None:
    write(path, {"keep_restore_calls": True})
    assert service.current.keep_purge_control_calls
    assert read(path) == defaults(keep_purge_control_calls=True)
    assert not service.update({"keep_restore_calls": False}).keep_purge_control_calls
    assert read(path) == defaults()
    both = {"keep_restore_calls": True, "keep_purge_control_calls": True}
    assert service.update(both).keep_purge_control_calls
    with pytest.raises(Invalid, match="another name of keep_purge_control_calls"):
        service.update({"keep_restore_calls": True, "keep_purge_control_calls": False})


# --- broken files -------------------------------------------------------------------------------

BROKEN = [
    ('{\n  "enabled": tru\n}', "not valid JSON: .*line 2 column 14"),
    ("", "not valid JSON"),
    ("[1]", "not a JSON object"),
    ('{"keep_recent": NaN}', "not valid JSON: NaN"),
    (b"\xff\xfe{}", "not valid JSON"),
    ("[" * 200_000, "not valid JSON"),
    ('{"keep_recent": 101}', "keep_recent: Input should be less than or equal to 100"),
    ('{"retention": "5x", "scope": 1}', "2 settings are not valid: retention, scope"),
    ('{"keep_restore_calls": true, "keep_purge_control_calls": false}', "another name of"),
]


@pytest.mark.parametrize(("text", "message"), BROKEN)
def test_broken_at_first_sight(
    service: ConfigService, path: Path, text: str | bytes, message: str
) -> None:
    write(path, text)
    before = path.read_bytes()
    for _ in range(2):
        with pytest.raises(ConfigError, match=message) as caught:
            _ = service.current
        assert str(path) in caught.value.message
        assert "defaults" not in str(caught.value.hint), "which would delete what is kept longer"
        assert "retention" in str(caught.value.hint)
    with pytest.raises(ConfigError):
        service.update({"enabled": False})
    service.note_run("last_run_at", 0)
    assert path.read_bytes() == before


@pytest.mark.parametrize(("text", "message"), BROKEN)
def test_broken_later_the_last_good_one_stays(
    service: ConfigService, path: Path, logged: Lines, text: str | bytes, message: str
) -> None:
    service.update({"keep_recent": 7})
    good = service.current
    write(path, text)
    before = path.read_bytes()
    for _ in range(3):
        assert service.current == good
    assert events(logged, "error") == ["Config is broken; the last valid settings stay in force"]
    assert service.problem is not None
    assert str(path) in service.problem.message
    service.note_run("last_run_at", 0)
    with pytest.raises(ConfigError, match=message):
        service.update({"enabled": False})
    assert path.read_bytes() == before
    write(path, {"keep_recent": 8})
    assert service.current.keep_recent == 8
    assert service.problem is None


def test_a_bad_field_can_be_mended_by_an_update(service: ConfigService, path: Path) -> None:
    write(path, {"keep_recent": 101})
    assert service.update({"keep_recent": 100}).keep_recent == 100
    assert service.current.keep_recent == 100


def test_a_removed_file_changes_nothing_until_the_next_update(
    service: ConfigService, path: Path, logged: Lines
) -> None:
    service.update({"enabled": False, "keep_chars": 4})
    assert service.current.keep_chars == 4
    path.unlink()
    assert not service.current.enabled
    assert service.problem is not None
    assert not path.exists()
    assert len(events(logged, "error")) == 1
    service.update({"keep_chars": 3})
    assert read(path) == defaults(enabled=False, keep_chars=3)
    assert service.current == PruningConfig(enabled=False, keep_chars=3)
    assert service.problem is None


def test_a_directory_in_its_place_is_said(service: ConfigService, path: Path) -> None:
    path.mkdir(parents=True)
    with pytest.raises(ConfigError, match=str(path)):
        _ = service.current


def test_a_root_that_cannot_be_written_is_read_with_defaults(
    service: ConfigService, path: Path, logged: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config_file, "write_private", raising(OSError(30, "Read-only file system")))
    assert service.current == PruningConfig()
    assert service.current == PruningConfig()
    assert events(logged, "warn") == ["Config could not be created"]
    write(path, {"keep_recent": 5})
    assert service.current.keep_recent == 5
    assert read(path) == {"keep_recent": 5}
    with pytest.raises(Forbidden, match="Read-only file system"):
        service.update({"keep_recent": 6})
    assert service.current.keep_recent == 5


def test_no_root_is_created_for_settings(tmp_path: Path) -> None:
    service = ConfigService(Layout(tmp_path / "mistyped").config_file)
    assert service.current == PruningConfig()
    with pytest.raises(NotFound, match=r"there is no directory .*mistyped"):
        service.update({"enabled": False})
    assert list(tmp_path.iterdir()) == []


# --- live ---------------------------------------------------------------------------------------


def test_a_change_by_hand_is_in_force_at_once(
    service: ConfigService, path: Path, logged: Lines
) -> None:
    assert service.current.keep_recent == 3
    write(path, defaults(keep_recent=4))
    assert service.current.keep_recent == 4
    text = path.read_text().replace('"keep_recent": 4', '"keep_recent": 5')
    before = path.stat()
    path.write_text(text)  # in place and of the same size: only the time differs
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert service.current.keep_recent == 5
    assert events(logged, "info").count("Config changed") == 2


def test_an_unchanged_file_is_not_read_again(
    service: ConfigService, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.update({"keep_recent": 4})
    first = service.current

    monkeypatch.setattr(Path, "read_bytes", raising(AssertionError("read again")))
    assert service.current is first


def test_two_services_see_each_others_changes(path: Path) -> None:
    one, two = ConfigService(path), ConfigService(path)
    one.update({"keep_recent": 4})
    two.update({"keep_chars": 10})
    one.update({"enabled": False})
    expected = PruningConfig(keep_recent=4, keep_chars=10, enabled=False)
    assert one.current == two.current == expected
    assert read(path) == defaults(keep_recent=4, keep_chars=10, enabled=False)


# --- update -------------------------------------------------------------------------------------


def test_an_update_is_written_checked_logged_and_in_force(
    service: ConfigService, path: Path, logged: Lines
) -> None:
    _ = service.current
    path.chmod(0o644)
    answer = service.update({"retention": "7d", "keep_recent": 3}, actor="1234abcd")
    assert answer == service.current == PruningConfig(retention="7d")
    assert read(path) == defaults(retention="7d")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    line = [each for each in logged if each["log_level"] == "info"][-1]
    assert line["event"] == "Config changed"
    assert line["actor"] == "1234abcd"
    assert line["fields"] == ["retention"]


def test_who_changed_what_stands_in_the_audit(service: ConfigService, layout: Layout) -> None:
    service.update({"retention": "30m", "keep_recent": 3}, actor="6ab9f1eb")
    service.update({"retention": "30m"})
    (line,) = AuditLog(layout.audit_file).search(b"")
    assert line["actor"] == "6ab9f1eb"
    assert line["action"] == "config"
    assert (line["changed"], line["before"]) == ({"retention": "30m"}, {"retention": "24h"})


def test_an_audit_that_cannot_be_written_undoes_no_change(
    service: ConfigService, layout: Layout, logged: Lines
) -> None:
    layout.audit_file.mkdir(parents=True)
    service.update({"keep_recent": 5})
    assert service.current.keep_recent == 5
    assert "The audit log cannot be written" in events(logged)


def test_an_update_that_changes_nothing_is_not_logged(
    service: ConfigService, logged: Lines
) -> None:
    service.update({"keep_recent": 3})
    assert "Config changed" not in events(logged)


def test_all_bad_fields_are_named_and_nothing_is_written(
    service: ConfigService, path: Path
) -> None:
    _ = service.current
    changes = {"enabled": False, "keep_recent": -1, "retension": "1d", "scope": "x"}
    with pytest.raises(Invalid) as caught:
        service.update(changes)
    assert [(error.field, error.message) for error in caught.value.errors] == [
        (
            "keep_recent",
            "keep_recent: Input should be greater than or equal to 0, not -1",
        ),
        ("scope", "scope: Input should be 'all' or 'display', not 'x'"),
        ("retension", "retension is not a known setting; did you mean retention?"),
    ]
    assert service.current == PruningConfig()
    assert path.read_text() == default_text()


def test_times_of_runs_cannot_be_set_by_an_update(service: ConfigService) -> None:
    service.note_run("last_run_at", 0)
    answer = service.update(
        {"last_run_at": "nonsense", "last_retention_run_at": 5, "enabled": False}
    )
    assert answer.last_run_at == "1970-01-01T00:00:00.000Z"
    assert answer.last_retention_run_at is None
    assert not answer.enabled


# --- note_run -----------------------------------------------------------------------------------


def test_the_time_of_a_run_is_written_beside_everything_else(
    service: ConfigService, path: Path
) -> None:
    _ = service.current
    write(path, defaults(keep_recent=9, mine=1))  # by hand, and not yet seen
    service.note_run("last_retention_run_at", datetime(2026, 1, 2, tzinfo=UTC))
    moment = "2026-01-02T00:00:00.000Z"
    assert read(path) == defaults(keep_recent=9, mine=1, last_retention_run_at=moment)
    assert service.current.keep_recent == 9


def test_a_stale_service_does_not_undo_the_time_of_a_run(path: Path) -> None:
    stale, other = ConfigService(path), ConfigService(path)
    _ = stale.current
    other.note_run("last_run_at", 1.0)
    stale.update({"keep_recent": 5})
    stale.note_run("last_retention_run_at", 2.0)
    assert read(path) == defaults(
        keep_recent=5,
        last_run_at="1970-01-01T00:00:01.000Z",
        last_retention_run_at="1970-01-01T00:00:02.000Z",
    )


def test_only_times_of_runs_are_noted(service: ConfigService) -> None:
    with pytest.raises(ValueError, match="enabled"):
        service.note_run("enabled", 0)


# --- at once ------------------------------------------------------------------------------------


def test_threads_and_services_lose_no_change(real_path: Path) -> None:
    _ = ConfigService(real_path).current
    shared = ConfigService(real_path)
    failures: list[BaseException] = []

    def work(service: ConfigService, field: str) -> None:
        try:
            for value in range(10, 20):
                service.update({field: value})
                _ = service.current
        except BaseException as failure:  # noqa: BLE001 - reported by the test itself
            failures.append(failure)

    threads = [
        threading.Thread(target=work, args=(service, field))
        for service, field in [
            (shared, "keep_recent"),
            (shared, "keep_chars"),
            (ConfigService(real_path), "scan_interval_seconds"),
        ]
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert read(real_path) == defaults(keep_recent=19, keep_chars=19, scan_interval_seconds=19)


def test_another_process_that_writes_is_waited_for_and_then_named(
    real_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = ConfigService(real_path)
    _ = service.current
    program = """
import sys
from filelock import FileLock
with FileLock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""
    holder = subprocess.Popen(
        [sys.executable, "-c", program, f"{real_path}.lock"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    monkeypatch.setattr(file_lock, "_LOCK_SECONDS", 0)
    with pytest.raises(Busy, match=r"config\.json is being changed by another bsd"):
        service.update({"enabled": False})
    assert service.current == PruningConfig()  # reading takes no lock
    holder.communicate()
    assert not service.update({"enabled": False}).enabled


def test_a_root_that_cannot_be_entered_is_an_error_with_a_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "is_dir", raising(PermissionError(errno.EACCES, "Permission denied")))
    with pytest.raises(Forbidden, match="Permission denied"):
        ConfigService(tmp_path / ".brainsurgeon" / "config.json").update({"keep_recent": 4})
