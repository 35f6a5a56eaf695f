"""Retention moves content from the store to the archive, and every reader finds it there."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from bsd.actions.context import ActionContext
from bsd.actions.read_extracted import show_extracted
from bsd.core.answers import as_json
from bsd.core.audit import AuditLog
from bsd.core.clock import RunTime
from bsd.core.config import PruningConfig
from bsd.core.config_file import ConfigService
from bsd.core.files import read_plain
from bsd.core.layout import Layout, SessionName
from bsd.http.entries import StoredDocument
from bsd.maintenance import catalog
from bsd.maintenance import search as care_search
from bsd.maintenance.archive_limit import archive_use
from bsd.maintenance.retention import RetentionRun, forecast_all, in_plain_words
from bsd.maintenance.search import search, search_as_it_is
from bsd.maintenance.trash import Trash
from bsd.maintenance.verify import verify
from bsd.sessions.idle import RetryBudget
from bsd.store.archive import SessionArchive
from bsd.store.contents import contents_of
from bsd.store.originals import SessionStore, digest
from bsd.store.pack import PackWriter
from tests.actions import performed
from tests.actions.performed import Caller
from tests.logs import capture_logs
from tests.maintenance.archiving import (
    DAY,
    OFF,
    ON,
    age,
    clean,
    everything_back,
    kept,
    long_lines,
    packs,
)
from tests.openclaw_tree import set_idle
from tests.searching import everything, index_holds
from tests.session_files import LONG, NAME, Clock, make_caller, write
from tests.sessions.test_branched import BRANCH, branch_off, texts
from tests.sessions.test_editor import real_sessions
from tests.sessions.test_sources import each_kind
from tests.transcripts.agents.sources.tree import EVERYTHING, Kind, recorded_homes


def later() -> float:
    return time.time() + 5


def trash_of(layout: Layout) -> Trash:
    return Trash(layout, "14d", budget=RetryBudget(wait=0.0, clock=later))


# --- content that moves ---


def test_what_is_old_enough_moves_into_one_pack_and_leaves_the_store(
    layout: Layout, original: bytes
) -> None:
    age(layout)
    newest = max(layout.store_dir(NAME).glob("[0-9]*.json"))
    os.utime(newest)
    with capture_logs() as lines:
        done = clean(layout)
    assert (done.cleaned, done.errors) == (3, 0)
    assert SessionStore(layout, NAME).refs() == [newest.stem]
    (pack,) = packs(layout)
    assert done.archived_bytes == pack.stat().st_size
    said = [str(line["event"]) for line in lines if "RETENTION" in str(line["event"])]
    assert said[0].startswith("[RETENTION] Deleted 3 extracted files (")
    assert said[1].startswith(f"[RETENTION] Packed 3 of them into {pack} (")
    assert [one.line for one in kept(layout)] == long_lines(original)[:3]
    assert [one.record["entry_id"] for one in kept(layout)] == ["e1", "e2", "e3"]
    assert {one.record["session"] for one in kept(layout)} == {str(NAME)}
    (run,) = AuditLog(layout.audit_file).search(b'"action":"archive"')
    assert run["filesRemoved"] == 3
    assert "expiredBefore" not in run  # no content has expired


def test_with_the_archive_off_it_is_deleted_as_ever(
    layout: Layout, caller: Caller, original: bytes
) -> None:
    age(layout)
    assert clean(layout, OFF).archived_bytes is None
    assert not layout.store_dir(NAME).exists()
    assert packs(layout) == []
    assert performed.restore_all(caller, NAME).unavailable.keys() == {
        f"e{n} message.content[0].text" for n in range(1, 5)
    }


def test_forget_deletes_what_is_due_and_leaves_packs_alone(layout: Layout, archived: bytes) -> None:
    before = packs(layout)
    other = SessionName("main", "other")
    store = layout.store_dir(other)
    store.mkdir(parents=True)
    (store / "0001_thinking.json").write_bytes(b"{}")
    age(layout, other)
    assert clean(layout, forget=True).cleaned == 1
    assert packs(layout) == before
    assert packs(layout, other) == []


def test_what_a_crash_left_unfinished_is_found_and_not_kept_twice(
    layout: Layout, original: bytes
) -> None:
    store = layout.store_dir(NAME)
    files = {file.name: file.read_bytes() for file in store.iterdir()}
    age(layout)
    clean(layout)
    store.mkdir()
    for name, content in files.items():  # as if bsd had been killed before they went
        (store / name).write_bytes(content)
    (layout.archive_dir(NAME) / ".1234.tmp").write_bytes(b"half")
    age(layout)
    assert clean(layout).cleaned == 4
    assert not store.exists()
    assert [one.line for one in kept(layout)] == long_lines(original)
    assert [path.name for path in layout.archive_dir(NAME).iterdir()] == [packs(layout)[0].name]


def test_what_leaves_again_is_not_kept_twice(
    layout: Layout, caller: Caller, archived: bytes
) -> None:
    assert performed.restore(caller, NAME, "e2")["restored"]
    caller.config.update({"keep_after_restore_seconds": 0})
    set_idle(layout.session_file(NAME))
    caller.extract(NAME)
    (ref,) = SessionStore(layout, NAME).refs()
    assert ref not in SessionArchive(layout.archive_dir(NAME)).names()  # a name of its own
    age(layout)
    assert clean(layout).cleaned == 1
    lines = [one.line for one in kept(layout)]
    assert len(lines) == len(set(lines))
    everything_back(caller)


def test_a_file_that_cannot_be_read_stays_and_stops_no_other(
    layout: Layout, original: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    age(layout)
    bad = min(layout.store_dir(NAME).glob("[0-9]*.json"))

    def reading(path: Path, most: int) -> bytes:
        if path == bad:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return read_plain(path, most)

    monkeypatch.setattr("bsd.store.archive.read_plain", reading)
    done = clean(layout)
    assert (done.cleaned, done.errors) == (3, 1)
    assert bad.exists()


# --- readers that find it there ---


def test_a_session_comes_back_byte_for_byte_from_the_archive_alone(
    layout: Layout, caller: Caller, path: Path, archived: bytes
) -> None:
    everything_back(caller)
    assert path.read_bytes() == archived


def test_one_entry_and_single_keys_of_it_come_back(
    caller: Caller, path: Path, archived: bytes
) -> None:
    assert performed.restore(caller, NAME, "e2", ["message.content[0].text"])["restored"]
    assert texts(path)["e2"] == f"2 {LONG}"


def test_an_extraction_and_a_restore_can_be_undone(
    caller: Caller, path: Path, archived: bytes
) -> None:
    lean = path.read_bytes()
    assert performed.restore(caller, NAME, "e2")["restored"]
    performed.undo(caller, NAME)
    assert path.read_bytes() == lean
    performed.undo(caller, NAME)
    assert path.read_bytes() == archived


def test_it_is_shown_listed_and_searched_without_being_put_back(
    layout: Layout, caller: Caller, archived: bytes
) -> None:
    context = ActionContext(layout=layout, config=ConfigService(layout.config_file))
    content = StoredDocument.open(show_extracted(context, NAME, "e3"))
    (text,) = json.loads(b"".join(content.pieces()))["content"].values()
    assert text == f"3 {LONG}"
    assert performed.extracted_content(caller, NAME, "e1")["unavailable"] == {}
    found = everything(layout, LONG, only=NAME)
    assert sorted(str(hit.entry) for hit in found) == ["e1", "e2", "e3", "e4"]
    (info,) = [one for one in catalog.sessions(layout) if one.name == NAME]
    assert info.extracted_entries == 4


@pytest.fixture
def answers(path: Path, caller: Caller) -> None:
    """The values that left the session are an assistant's texts."""
    path.write_bytes(path.read_bytes().replace(b'"toolResult"', b'"assistant"'))
    set_idle(path)
    assert caller.extract(NAME, overrides={"trigger_types": ("assistant",)}).values == 4


@pytest.mark.usefixtures("answers")
def test_what_is_searched_stays_found_when_it_moves(layout: Layout) -> None:
    assert len(search(layout, LONG)) == 4
    assert len(everything(layout, LONG, only=NAME)) == 4
    age(layout)
    clean(layout)
    assert len(search_as_it_is(layout, LONG)) == 4
    assert len(everything(layout, LONG, only=NAME)) == 4


def test_a_branch_finds_its_parents_content(
    layout: Layout, caller: Caller, path: Path, original: bytes
) -> None:
    branch = branch_off(layout, NAME, BRANCH)
    age(layout)
    clean(layout)
    everything_back(caller, BRANCH)
    assert texts(branch)["e4"] == f"4 {LONG}"


def test_a_hash_alone_opens_nothing(
    layout: Layout, caller: Caller, path: Path, archived: bytes
) -> None:
    """A line may name the hash of another entry's content; bsd does not restore that content."""
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    marked = {one["id"]: one for one in lines if "_extracted" in one}
    marked["e1"]["_extracted"]["hash"] = marked["e2"]["_extracted"]["hash"]
    write(layout, lines)
    assert performed.restore(caller, NAME, "e1")["restored"] is False


# --- exit codes ---


def test_the_trash_takes_the_packs_along_and_gives_them_back(
    layout: Layout, caller: Caller, path: Path, archived: bytes
) -> None:
    item = trash_of(layout).delete(NAME).items[0]
    assert not layout.archive_dir(NAME).exists()
    trash_of(layout).restore(item.id)
    everything_back(caller)
    assert path.read_bytes() == archived


@pytest.mark.parametrize("by_way_of_the_trash", [True, False])
def test_deleting_for_good_deletes_the_packs_but_what_a_branch_needs(
    layout: Layout, caller: Caller, archived: bytes, by_way_of_the_trash: bool
) -> None:
    branch = branch_off(layout, NAME, BRANCH)
    if by_way_of_the_trash:
        trash_of(layout).remove(trash_of(layout).delete(NAME).items[0].id)
    else:
        trash_of(layout).delete(NAME, permanent=True)
    assert not list(layout.root.rglob("*.zst"))
    everything_back(caller, BRANCH)
    assert texts(branch)["e1"] == f"1 {LONG}"
    assert verify(layout).clean


def test_deleting_for_good_leaves_nothing_where_nobody_needs_it(
    layout: Layout, archived: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bsd.store.contents._SELDOM", 1e9)  # as after a slow look
    trash_of(layout).delete(NAME, permanent=True)
    assert not list(layout.root.rglob("*.zst"))
    assert not layout.extracted.exists() or not list(layout.extracted.rglob("*.json"))
    assert contents_of(layout).of_entry("e1") == []


def test_an_archive_whose_session_is_no_more_can_be_deleted(
    layout: Layout, path: Path, archived: bytes
) -> None:
    path.unlink()
    trash_of(layout).delete(NAME, permanent=True)
    assert not list(layout.root.rglob("*.zst"))


def test_archive_retention_ends_it(layout: Layout, caller: Caller, archived: bytes) -> None:
    assert len(everything(layout, LONG, only=NAME)) == 4
    config = PruningConfig(archive_retention="30d")
    assert clean(layout, config).archive.cleaned == 0
    later = time.time() + 31 * DAY
    run = RetentionRun(layout, actor="cli", clock=lambda: later, trust_clock=True)
    assert run.clean_all(config).archive.cleaned == 1
    assert not layout.archive_dir(NAME).exists()
    assert search_as_it_is(layout, LONG) == []
    assert len(performed.restore_all(caller, NAME).unavailable) == 4
    found = verify(layout)
    assert found.clean  # it expired, and the audit log records that
    assert found.expired == 4


def test_over_archive_max_bytes_the_oldest_goes(layout: Layout, archived: bytes) -> None:
    other = SessionName("main", "other")
    archive = SessionArchive(layout.archive_dir(other))
    with PackWriter(archive.directory) as writer:
        writer.add(b'{"id":"old"}', {"file": "0001_thinking.json"})
        old = writer.finish(1000.0, 1000.0)
    most = sum(path.stat().st_size for path in (*packs(layout), old)) - 1
    config = PruningConfig(archive_max_bytes=most)
    told = forecast_all(layout, config, RunTime(time.time()))
    assert [thing.path for thing in told.archive.going] == [old]
    assert as_json(clean(layout, config).archive)["cleaned"] == 1
    assert packs(layout, other) == []
    assert len(packs(layout)) == 1


# --- many packs ---


def _in_packs(layout: Layout, number: int, times: list[float] | None = None) -> list[bytes]:
    archive = SessionArchive(layout.archive_dir(NAME))
    lines = [b'{"id":"e%d","text":"%b"}\n' % (n, LONG.encode()) for n in range(number)]
    for n, line in enumerate(lines):
        with PackWriter(archive.directory) as writer:
            writer.add(line, {"file": f"{n:04d}_thinking.json", "entry_id": f"e{n}"})
            if n:
                writer.add(lines[0], {"file": "0000_thinking.json", "entry_id": "e0"})
            at = times[n] if times else 1000.0 + n
            writer.finish(at, at)
    return lines


def test_many_small_packs_become_one_and_nothing_is_in_it_twice(layout: Layout) -> None:
    lines = _in_packs(layout, 8)
    archive = SessionArchive(layout.archive_dir(NAME))
    (made,) = archive.merge()
    assert archive.packs() == [made]
    assert [one.line for one in kept(layout)] == lines
    ((_, summary),) = archive.summaries()
    assert (summary.oldest, summary.newest) == (1000.0, 1007.0)
    assert archive.merge() == []


def test_a_few_packs_and_those_of_other_ages_stay(layout: Layout) -> None:
    _in_packs(layout, 7)
    archive = SessionArchive(layout.archive_dir(NAME))
    assert archive.merge() == []
    for path in archive.packs():
        archive.remove(path)
    lines = _in_packs(layout, 17, [1000.0 * (n // 9) + n for n in range(17)])
    (first, second) = archive.merge(span=100.0)
    assert archive.packs() == [first, second]
    assert {one.line for one in kept(layout)} == set(lines)


def test_a_damaged_pack_is_not_merged(layout: Layout) -> None:
    lines = _in_packs(layout, 9)
    archive = SessionArchive(layout.archive_dir(NAME))
    bad = archive.packs()[4]
    bad.write_bytes(bad.read_bytes()[:-1])
    (made,) = archive.merge()
    assert archive.packs() == sorted([bad, made])
    assert all(archive.line(digest(line)) == line for line in lines)


def test_retention_merges(layout: Layout, original: bytes) -> None:
    _in_packs(layout, 8)
    age(layout)
    assert clean(layout).cleaned == 4
    assert len(packs(layout)) == 1
    assert len(kept(layout)) == 12


def test_who_looks_while_packs_are_merged_finds_the_line(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout.own.mkdir()
    lines = _in_packs(layout, 8)
    archive = SessionArchive(layout.archive_dir(NAME))
    places = contents_of(layout).with_hash(digest(lines[3]))
    before = archive.packs()
    (made,) = archive.merge()
    seen = iter([before, [made], [made]])
    monkeypatch.setattr(archive, "packs", lambda: next(seen))
    assert archive.line(digest(lines[3])) == lines[3]
    assert [place.line() for place in places] == [lines[3]]


def test_a_branch_finds_what_moves_while_it_looks(
    layout: Layout, original: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    branch_off(layout, NAME, BRANCH)
    line = long_lines(original)[0]
    contents = contents_of(layout)
    known = contents.with_hash(digest(line))
    age(layout)
    clean(layout)
    with_hash = contents.with_hash
    answers = iter([known])
    monkeypatch.setattr(contents, "with_hash", lambda one: next(answers, None) or with_hash(one))
    assert SessionStore(layout, BRANCH).load("0001_x", digest(line)) == line


def test_the_list_counts_an_entry_that_left_again_once(
    layout: Layout, caller: Caller, archived: bytes
) -> None:
    def listed() -> tuple[int, int]:
        [one] = catalog.sessions(layout)
        return one.extracted_entries, one.extracted_bytes

    assert archived
    entries, size = listed()
    assert entries == 4
    performed.restore(caller, NAME, "e1")
    set_idle(layout.session_file(NAME))
    caller.extract(NAME, overrides={"keep_after_restore_seconds": 0})
    assert SessionStore(layout, NAME).refs() != []
    assert listed()[0] == 4
    assert size <= listed()[1] < size + 100  # its line has `_restored` now
    age(layout)
    clean(layout)
    assert listed()[0] == 4
    assert (
        sum(summary.lines for _, summary in SessionArchive(layout.archive_dir(NAME)).summaries())
        == 5
    )


# --- messages ---


def test_a_dry_run_says_what_would_move_and_how_small_it_becomes(
    layout: Layout, original: bytes
) -> None:
    age(layout)
    told = forecast_all(layout, ON, RunTime(time.time()))
    assert told.cleaned == 4
    assert told.archived_bytes == round(told.bytes / 4)  # until the archive has better figures
    assert forecast_all(layout, OFF, RunTime(time.time())).archived_bytes is None
    assert packs(layout) == []
    clean(layout)
    use = archive_use(layout)
    assert (use.packs, use.lines, use.content) == (1, 4, told.bytes)
    assert use.kept == packs(layout)[0].stat().st_size
    assert use.ratio == use.content / use.kept


def test_the_plain_words_say_that_nothing_is_deleted_and_how_to_delete() -> None:
    words = in_plain_words(ON)
    assert "compressed, into the archive" in words
    assert "bsd config set archive false" in words
    assert "90d" in in_plain_words(PruningConfig(archive_retention="90d"))


# --- real transcripts ---


def disk(directory: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in directory.rglob("*"))


def archive_all(layout: Layout, names: Iterable[SessionName]) -> tuple[int, int]:
    """Archive all extracted lines; return their size on the disk before and after."""
    for name in names:
        age(layout, name)
    before = disk(layout.extracted)
    assert clean(layout).errors == 0
    assert list(layout.extracted.rglob("*.json")) == []
    return before, disk(layout.archive)


def test_real_sessions_come_back_from_a_sixth_of_what_the_store_took(
    layout: Layout, caller: Caller, shared_data: Path
) -> None:
    originals = real_sessions(layout, shared_data)
    for name in originals:
        caller.extract(name, overrides=EVERYTHING)
    before, now = archive_all(layout, originals)
    assert now <= before / 6
    assert verify(layout).clean
    caller.config.update({"enabled": False})
    for name, original in originals.items():
        performed.restore_all(caller, name, leaving=True)
        assert layout.session_file(name).read_bytes() == original


@each_kind
def test_real_sessions_of_other_programs_come_back(
    kind: Kind, tmp_path: Path, shared_data: Path, clock: Clock
) -> None:
    for home, old in recorded_homes(kind, tmp_path, shared_data):
        caller = make_caller(home.layout, clock)
        assert caller.extract(home.name, overrides=EVERYTHING).values
        archive_all(home.layout, [home.name])
        set_idle(home.path)
        everything_back(caller, home.name)
        assert home.path.read_bytes() == old


@pytest.mark.usefixtures("answers")
@pytest.mark.parametrize("place", ["store", "archive"])
def test_words_of_what_was_deleted_go_though_who_deleted_was_killed(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """A kill between the files and their words; the next run recognises it by its mark."""
    search(layout, "seen")
    assert search_as_it_is(layout, LONG) != []
    age(layout)
    config = OFF
    if place == "archive":
        clean(layout)
        config = PruningConfig(archive_max_bytes=1)
    with monkeypatch.context() as patch:
        patch.setattr(care_search, "forget_stored", _killed)
        with pytest.raises(_Killed):
            clean(layout, config)
    assert layout.letting_go.exists()
    assert index_holds(layout, LONG)
    clean(layout, PruningConfig(retention="never"))
    assert not layout.letting_go.exists()
    assert not index_holds(layout, LONG)


class _Killed(BaseException):
    """Passes every handler, as a kill does."""


def _killed(*_: object) -> bool:
    raise _Killed
