"""Retention: deleted and kept content, the locks, and the effect of a failure."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyfakefs.fake_filesystem import FakeFilesystem

from bsd.core.answers import as_json
from bsd.core.audit import AuditLog
from bsd.core.clock import RunTime
from bsd.core.config import PruningConfig
from bsd.core.errors import Forbidden
from bsd.core.layout import Layout, SessionName
from bsd.core.locks import OwnLock, own_lock
from bsd.maintenance import targets
from bsd.maintenance.expiry import Cleaned, clean, forecast
from bsd.maintenance.retention import CleanedAll, RetentionRun, in_plain_words
from bsd.maintenance.targets import ExtractedFiles, HistoryFiles
from bsd.sessions.notes import told_expired
from bsd.store.entry_notes import UNDONE
from bsd.store.index import Record
from bsd.store.originals import APART, SessionStore
from tests.logs import capture_logs

NOW = time.time()
HOUR = 3600.0
NAME = SessionName("main", "s1")


@pytest.fixture
def layout(fs: FakeFilesystem) -> Layout:
    """A root in memory; locks have no effect there."""
    root = Path("/srv/openclaw")
    fs.create_dir(root)
    return Layout(root)


@pytest.fixture
def real_layout(root: Path) -> Layout:
    """A root on disk, for tests that depend on a lock, on ctime, or on the audit log.

    In pyfakefs `os.utime` leaves ctime as it is, and `os.pread` reads real descriptors.
    """
    return Layout(root)


def put(layout: Layout, name: SessionName, ages: dict[str, float], size: int = 100) -> SessionStore:
    """Store files of the given ages (hours), indexed as an extraction would."""
    store = SessionStore(layout, name)
    store.directory.mkdir(parents=True, exist_ok=True)
    for ref, hours in ages.items():
        store.file(ref).write_bytes(b"x" * size)
        os.utime(store.file(ref), (NOW - hours * HOUR,) * 2)
    store.index.add(
        Record(
            entry_id=f"e-{ref}",
            index=int(ref[:4]),
            file=f"{ref}.json",
            hash="sha256:0",
            size=size,
            keys=("text",),
            sizes_bytes={"text": size},
            extracted_at="2026-01-01T00:00:00.000Z",
        )
        for ref in ages
    )
    return store


def store_of(layout: Layout, keep: str = "24h") -> ExtractedFiles:
    return ExtractedFiles(layout, keep, wait=0.0)


def test_older_than_the_setting_goes_and_the_index_follows(layout: Layout) -> None:
    store = put(layout, NAME, {"0001_thinking": 25, "0002_thinking": 23, "0003_tool_result": 400})
    assert clean(store_of(layout), RunTime(NOW)) == Cleaned(2, 200, 0)
    again = SessionStore(layout, NAME)
    assert again.refs() == ["0002_thinking"]
    assert list(again.index.records) == ["0002_thinking.json"]
    assert json.loads(store.index.path.read_bytes())["session"] == "main/s1"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda index: index[:-5],  # torn
        lambda index: index.replace(b'"entry_id":"e-0002', b'"entry":"e-0002'),  # another's
    ],
)
def test_an_index_that_cannot_be_read_is_left_for_whoever_can_mend_it(
    layout: Layout, spoil: Callable[[bytes], bytes]
) -> None:
    """Even if it can be read in part: the unread part would count as never stored."""
    store = put(layout, NAME, {"0001_thinking": 25, "0002_thinking": 23})
    content = spoil(store.index.path.read_bytes())
    store.index.path.write_bytes(content)
    assert clean(store_of(layout), RunTime(NOW)) == Cleaned(1, 100, 0)
    assert store.index.path.read_bytes() == content


def test_exactly_as_old_as_the_setting_stays(layout: Layout) -> None:
    put(layout, NAME, {"0001_thinking": 24})
    exact = SessionStore(layout, NAME).file("0001_thinking").stat().st_mtime
    assert clean(store_of(layout), RunTime(exact + 24 * HOUR)) == Cleaned()
    assert clean(store_of(layout), RunTime(exact + 24 * HOUR + 1)) == Cleaned(1, 100, 0)


def test_by_a_clock_in_doubt_nothing_goes_however_old_it_is(layout: Layout) -> None:
    store = put(layout, NAME, {"0001_thinking": 400})
    doubt = RunTime(NOW, "the clock was put forward by 1d 6h", 30 * HOUR)
    with capture_logs() as lines:
        assert clean(store_of(layout), doubt) == Cleaned()
    assert [line["problem"] for line in lines] == [doubt.doubt]
    found = forecast(store_of(layout), doubt)
    assert (found.going, found.staying, found.held) == ((), 1, doubt.doubt)
    assert store.refs() == ["0001_thinking"]
    assert clean(store_of(layout), RunTime(NOW)).cleaned == 1


def test_what_moves_into_the_archive_goes_by_any_clock(real_layout: Layout) -> None:
    put(real_layout, NAME, {"0001_thinking": 400})
    into_archive = ExtractedFiles(real_layout, "24h", wait=0.0, packed_at=NOW)
    assert clean(into_archive, RunTime(NOW, "the clock was put forward", 30 * HOUR)).cleaned == 1
    assert len(list(real_layout.archive.rglob("*.zst"))) == 1


def test_a_run_by_a_clock_that_was_set_destroys_nothing_and_the_next_one_does(
    real_layout: Layout,
) -> None:
    put(real_layout, NAME, {"0001_thinking": 400})
    config = PruningConfig(archive=False)

    def run(wall: float, steady: float) -> CleanedAll:
        begun = RetentionRun(real_layout, actor="cli", clock=lambda: wall, steady=lambda: steady)
        return begun.clean_all(config)

    RetentionRun(real_layout, actor="cli", clock=lambda: NOW - HOUR, steady=lambda: 1000.0)
    held = run(NOW + 30 * HOUR, 1000.0 + HOUR)
    assert held.store.cleaned == held.failures == 0
    assert set(held.held_places) == {
        "the store",
        "the copies of deleted sessions",
        "history and trash",
    }
    assert run(NOW + 31 * HOUR, 1000.0 + 2 * HOUR).store.cleaned == 1


def test_directories_that_became_empty_go_too(layout: Layout) -> None:
    gone = put(layout, NAME, {"0001_thinking": 25})
    hollow = put(layout, SessionName("main", "hollow"), {})
    strange = put(layout, SessionName("main", "strange"), {"0001_thinking": 25})
    (strange.directory / "note.txt").write_text("mine")
    assert clean(store_of(layout), RunTime(NOW)) == Cleaned(2, 200, 0)
    assert not gone.directory.exists()
    assert not hollow.directory.exists()
    assert sorted(os.listdir(strange.directory)) == ["index.json", "note.txt"]


def test_stores_of_sessions_that_are_no_more_and_odd_names_are_cleaned_as_well(
    layout: Layout,
) -> None:
    long = SessionName("a_b", "s" * 250)
    names = [SessionName("gone", "for_ever"), SessionName("under_score", "x"), long]
    for name in names:
        put(layout, name, {"0001_thinking": 25, "0002_thinking": 1})
    SessionStore(layout, long).index.path.unlink()  # its session can no longer be determined
    assert clean(store_of(layout), RunTime(NOW)) == Cleaned(3, 300, 0)
    for name in names:
        assert SessionStore(layout, name).refs() == ["0002_thinking"]
    index = SessionStore(layout, names[1]).index
    assert json.loads(index.path.read_bytes())["session"] == "under_score/x"


def test_never_is_never(layout: Layout) -> None:
    put(layout, NAME, {"0001_thinking": 24 * 365 * 20})
    for word in ("never", " Never "):
        assert clean(store_of(layout, word), RunTime(NOW)) == Cleaned()
    found = forecast(store_of(layout, "never"), RunTime(NOW))
    assert (found.going, found.staying, found.next_expiry) == ((), 1, None)


def test_a_time_in_the_future_is_young(layout: Layout) -> None:
    put(layout, NAME, {"0001_thinking": -1000})
    assert clean(store_of(layout), RunTime(NOW)) == Cleaned()


def test_a_file_that_was_used_again_meanwhile_stays(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file's time under the lock counts, not its time when it was found."""
    store = put(layout, NAME, {"0001_thinking": 25})
    lock_of = targets.lock_of

    def renewed(layout: Layout, place: Path, wait: float) -> OwnLock:
        os.utime(store.file("0001_thinking"))
        return lock_of(layout, place, wait)

    monkeypatch.setattr(targets, "lock_of", renewed)
    assert clean(store_of(layout), RunTime(NOW)) == Cleaned()
    assert store.file("0001_thinking").exists()


def test_what_is_locked_is_left_and_stops_nothing(real_layout: Layout) -> None:
    put(real_layout, NAME, {"0001_thinking": 25})
    put(real_layout, SessionName("main", "s2"), {"0001_thinking": 25})
    with own_lock(real_layout, NAME, 0.0), capture_logs() as lines:
        assert clean(store_of(real_layout), RunTime(NOW)) == Cleaned(1, 100, 1)
    assert any("another bsd" in line.get("problem", "") for line in lines)
    assert clean(store_of(real_layout), RunTime(NOW)) == Cleaned(1, 100, 0)


def test_a_file_that_cannot_be_deleted_stops_nothing(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = put(layout, NAME, {"0001_thinking": 25, "0002_thinking": 26})
    path_type = type(store.directory)  # the path type of the fake file system
    unlink = path_type.unlink

    def stubborn(path: Path, *, missing_ok: bool = False) -> None:
        if path.name == "0001_thinking.json":
            raise PermissionError(13, "Permission denied", str(path))
        unlink(path, missing_ok=missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(path_type, "unlink", stubborn)
        assert clean(store_of(layout), RunTime(NOW)) == Cleaned(1, 100, 1)
    assert store.refs() == ["0001_thinking"]
    assert list(SessionStore(layout, NAME).index.records) == ["0001_thinking.json"]


def test_links_and_strange_files_are_not_touched(layout: Layout) -> None:
    outside = layout.root.with_name("outside")
    outside.mkdir()
    (outside / "0001_thinking.json").write_text("not ours")
    os.utime(outside / "0001_thinking.json", (0, 0))
    store = put(layout, NAME, {"0001_thinking": 1})
    (layout.extracted / "main_link").symlink_to(outside)
    link = store.directory / "0009_thinking.json"
    link.symlink_to(outside / "0001_thinking.json")
    os.utime(link, (0, 0), follow_symlinks=False)
    (store.directory / "notes.json").write_text("{}")
    os.utime(store.directory / "notes.json", (0, 0))
    assert clean(store_of(layout), RunTime(NOW)) == Cleaned()
    assert (outside / "0001_thinking.json").exists()


def test_a_store_that_leads_out_of_the_root_is_refused(layout: Layout) -> None:
    outside = Layout(layout.root.with_name("elsewhere"))
    put(outside, NAME, {"0001_thinking": 25})
    layout.extracted.symlink_to(outside.extracted)
    assert clean(store_of(layout), RunTime(NOW)) == Cleaned(0, 0, 1)
    with pytest.raises(Forbidden):
        forecast(store_of(layout), RunTime(NOW))
    assert SessionStore(outside, NAME).refs() == ["0001_thinking"]


@pytest.mark.parametrize("keep", ["24h", "never"])
def test_leftovers_of_an_interrupted_extraction_go_whatever_their_age(
    real_layout: Layout, keep: str
) -> None:
    store = put(real_layout, NAME, {"0002_thinking": 1})
    half = store.file("0001_thinking").with_suffix(".tmp")
    half.write_bytes(b"half")
    with own_lock(real_layout, NAME, 0.0):  # its extraction continues: then it is no leftover
        assert clean(store_of(real_layout, keep), RunTime(NOW)) == Cleaned()
    assert half.exists()
    assert clean(store_of(real_layout, keep), RunTime(NOW)) == Cleaned()
    assert not half.exists()
    assert store.refs() == ["0002_thinking"]


@pytest.mark.parametrize("keep", ["24h", "never"])
def test_a_store_that_was_never_finished_goes_whatever_its_age(
    real_layout: Layout, keep: str
) -> None:
    put(real_layout, NAME, {"0002_thinking": 1})
    half = real_layout.extracted / APART / real_layout.store_name(NAME) / "0001_thinking.json"
    half.parent.mkdir(parents=True)
    half.write_bytes(b"half")
    assert forecast(store_of(real_layout, keep), RunTime(NOW)).staying == 1
    with own_lock(real_layout, NAME, 0.0):  # its extraction continues
        assert clean(store_of(real_layout, keep), RunTime(NOW)) == Cleaned()
    assert half.exists()
    assert clean(store_of(real_layout, keep), RunTime(NOW)) == Cleaned()
    assert not half.exists()


def test_a_forecast_is_what_a_run_then_does(layout: Layout) -> None:
    put(layout, NAME, {"0001_thinking": 25, "0002_thinking": 30, "0003_thinking": 23})
    put(layout, SessionName("main", "s2"), {"0001_thinking": 1})
    found = forecast(store_of(layout), RunTime(NOW))
    assert [thing.path.stem for thing in found.going] == ["0002_thinking", "0001_thinking"]
    assert found.staying == 2
    assert found.next_expiry == pytest.approx(NOW + HOUR, abs=1)
    later = forecast(store_of(layout), RunTime(NOW + 2 * HOUR))
    assert len(later.going) == 3
    assert clean(store_of(layout), RunTime(NOW)) == Cleaned(len(found.going), found.bytes, 0)


def test_a_run_is_logged_in_the_seeds_words_and_audited(real_layout: Layout) -> None:
    put(real_layout, NAME, {f"{n:04d}_thinking": 25 for n in range(15)}, size=83_886)
    with capture_logs() as lines:
        done = RetentionRun(real_layout, actor="daemon", clock=lambda: NOW).clean_store("24h")
    assert as_json(done) == {
        "keep": "24h",
        "held": None,
        "cleaned": 15,
        "bytes": 1_258_290,
        "errors": 0,
    }
    told = [line for line in lines if line["log_level"] == "info"]
    assert [line["event"] for line in told] == ["[RETENTION] Deleted 15 extracted files (1.2 MB)"]
    (audited,) = map(json.loads, real_layout.audit_file.read_bytes().splitlines())
    assert audited["actor"] == "daemon"
    assert audited["action"] == "retention"
    assert audited["filesRemoved"] == 15
    with capture_logs() as lines:
        RetentionRun(real_layout, actor="daemon", clock=lambda: NOW).clean_store("24h")
    assert [line for line in lines if line["log_level"] != "debug"] == []


def test_a_run_that_is_to_stop_stops_between_two_sessions(layout: Layout) -> None:
    for number in range(3):
        put(layout, SessionName("main", f"s{number}"), {"0001_thinking": 25})
    answers = iter([False, True])
    assert clean(store_of(layout), RunTime(NOW), lambda: next(answers)) == Cleaned(1, 100, 0)


def test_a_root_without_a_store_has_nothing_to_delete(layout: Layout) -> None:
    assert clean(store_of(layout), RunTime(NOW)) == Cleaned()
    assert not layout.own.exists(), "looking leaves no traces"


def test_drafts_of_edits_go_with_the_history(real_layout: Layout) -> None:
    for name, hours in (("old", 25), ("young", 23)):
        draft = real_layout.edits / name / "entry.json"
        draft.parent.mkdir(parents=True)
        draft.write_text("what the entry says")
        os.utime(draft, (NOW - hours * HOUR,) * 2)
        (real_layout.edits / name / "backup~").symlink_to("/nowhere")
        os.utime(real_layout.edits / name / "backup~", (0, 0), follow_symlinks=False)
    RetentionRun(real_layout, actor="cli", clock=lambda: NOW).clean_history("never")
    assert len(list(real_layout.edits.iterdir())) == 2
    RetentionRun(real_layout, actor="cli", clock=lambda: NOW).clean_history("24h")
    assert [path.name for path in real_layout.edits.iterdir()] == ["young"]


@pytest.mark.parametrize("text", [b"{}", b'{"session":"main/../s1"}', b'{"session":7}', b"[]"])
def test_what_lasts_goes_with_the_last_that_was_taken_out_of_a_session_that_is_gone(
    layout: Layout, text: bytes
) -> None:
    store = put(layout, NAME, {"0001_thinking": 1})
    undone = layout.history_dir(NAME) / UNDONE
    undone.parent.mkdir(parents=True)
    undone.write_bytes(text)
    os.utime(undone, (NOW - 400 * HOUR,) * 2)
    history = HistoryFiles(layout, "24h", wait=0.0)
    assert clean(history, RunTime(NOW)) == Cleaned(), "what is stored may come back by it"
    shutil.rmtree(store.directory)
    assert len(forecast(history, RunTime(NOW)).going) == 1
    assert clean(history, RunTime(NOW)).cleaned == 1
    assert not undone.parent.exists()


def test_the_plain_words_say_how_long_and_how_to_keep_it() -> None:
    words = in_plain_words(PruningConfig(archive=False))
    assert "24h" in words
    assert "deletes them for good" in words
    assert "bsd config set retention never" in words
    assert "for ever" in in_plain_words(PruningConfig(retention="never"))


# --- messages about expired content: when it was deleted, and by which setting ---


def test_the_first_run_that_deleted_it_is_named(real_layout: Layout) -> None:
    for hour, keep in ((1, "12h"), (2, "24h"), (3, "7d")):
        AuditLog(real_layout.audit_file, clock=lambda hour=hour: hour * 3600.0).record(  # type: ignore[misc]
            actor="daemon",
            action="retention",
            expired_before=f"1970-01-01T0{hour - 1}:30:00.000Z",
            keep=keep,
        )
    assert told_expired(real_layout, "1970-01-01T01:00:00.000Z") == (
        "expired: it was extracted at 1970-01-01T01:00:00.000Z, and the setting `retention` of 24h"
        " let it be deleted at 1970-01-01T02:00:00.000Z"
    )
    assert told_expired(real_layout, "1970-01-01T03:00:00.000Z") is None
