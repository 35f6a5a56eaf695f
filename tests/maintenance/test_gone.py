"""Sessions that their program deletes: copied, listed, brought back unchanged."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from bsd.actions.search import found_entries
from bsd.core.database_file import remove_database
from bsd.core.errors import BsdError, Conflict, NotFound, Unavailable
from bsd.core.layout import Layout, SessionName
from bsd.core.locks import own_lock
from bsd.maintenance import bring_back as bringing_back
from bsd.maintenance.deleted_sessions import deleted_sessions, find_deleted
from bsd.maintenance.leftovers import stores_without_transcript
from bsd.maintenance.retention import RetentionRun
from bsd.maintenance.search import search, search_gone
from bsd.maintenance.verify import verify
from bsd.sessions.idle import RetryBudget
from bsd.store.snapshot_parts import damaged_snapshots
from bsd.store.snapshots import snapshots_of
from tests.maintenance.keeping import DAY, ClaudeHome, bring_back, extract, keep
from tests.maintenance.test_forgetting import secret_session
from tests.maintenance.trashing import register, registry
from tests.openclaw_tree import add_session, set_idle
from tests.session_files import NAME, Clock, conversation, entry, jsonl, sample, write


def test_claude_codes_cleaning_up_takes_nothing_for_good(tmp_path: Path, clock: Clock) -> None:
    home = ClaudeHome.of(tmp_path, 40)
    before = home.now()
    for name in home.names:
        for each in (name, *home.subagents(name)):
            extract(home.layout, each, clock)
    lean = sum(len(content) for content, _, _ in home.now().values())
    assert lean < sum(len(content) for content, _, _ in before.values())
    done = keep(home.layout, clock)
    assert (done.sessions, done.complete) == (160, True)
    assert keep(home.layout, clock).sessions == 0  # no file has changed since

    assert home.delete_older_than(30) == 12 * 7
    assert len(keep(home.layout, clock).gone) == 12 * 4
    gone = deleted_sessions(home.layout)
    assert len(gone) == 12 * 4
    heads = [copy for copy in gone if copy.parent is None]
    assert [copy.name for copy in heads] == home.names[28:]
    assert all(copy.title for copy in heads)
    for copy in heads:
        answer = bring_back(home.layout, str(copy.name), clock)
        assert answer.files == 7
        assert not answer.unavailable
        assert set(answer.sessions) == {str(copy.name), *map(str, home.subagents(copy.name))}
        assert "cleanupPeriodDays" in str(answer.advice)
    after = home.now()
    assert after.keys() == before.keys()
    came_back = [path for path in before if any(n.session in str(path) for n in home.names[28:])]
    assert len(came_back) == 84
    assert {path: after[path] for path in came_back} == {path: before[path] for path in came_back}
    assert deleted_sessions(home.layout) == []
    assert not list((home.layout.own / "returning").iterdir())


def test_a_session_put_aside_by_a_reset_comes_back(layout: Layout, clock: Clock) -> None:
    path = write(layout, conversation())
    extract(layout, NAME, clock)
    original = jsonl(*conversation())
    aside = path.with_name("s1.jsonl.reset.2026-02-01T00-00-00.000Z")
    path.rename(aside)
    set_idle(aside, 2 * DAY)
    then = aside.stat().st_mtime_ns
    assert keep(layout, clock).sessions == 1
    aside.unlink()
    [_] = deleted_sessions(layout)
    answer = bring_back(layout, str(NAME), clock)
    assert answer.path == str(path)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (original, then)


def test_one_that_is_not_at_rest_for_a_day_waits(layout: Layout, clock: Clock) -> None:
    path = write(layout, conversation())
    assert keep(layout, clock).sessions == 0
    set_idle(path, DAY + 10)
    assert keep(layout, clock).sessions == 1


def test_only_what_is_new_is_read_and_packed(layout: Layout, clock: Clock) -> None:
    content = sample(600)
    assert len(content) > 2 << 20
    path = add_session(layout.root, str(NAME), content)
    set_idle(path, 3 * DAY)
    first = keep(layout, clock)
    assert (first.read, first.packed) == (len(content), len(content))
    more = sample(3, seed=2)
    with path.open("ab") as file:
        file.write(more)
    set_idle(path, 2 * DAY)
    second = keep(layout, clock)
    assert second.sessions == 1
    assert second.read < len(more) + (2 << 20)
    assert second.packed < len(more) + (1 << 20)
    # One line in the middle becomes shorter, and the file is replaced, as an extraction makes it.
    lines = (content + more).splitlines(keepends=True)
    middle = len(lines) // 2
    lines[middle] = lines[middle][:-2] + b"   }\n"
    path.unlink()
    path.write_bytes(b"".join(lines))
    set_idle(path, 2 * DAY)
    third = keep(layout, clock)
    assert third.packed < 3 << 20
    path.unlink()
    bring_back(layout, str(NAME), clock)
    assert path.read_bytes() == b"".join(lines)


def test_nothing_is_put_over_another_file(layout: Layout, clock: Clock) -> None:
    path = write(layout, conversation())
    set_idle(path, 2 * DAY)
    keep(layout, clock)
    path.unlink()
    path.write_bytes(b"somebody's own\n")
    set_idle(path, 2 * DAY)
    [copy] = deleted_sessions(layout)
    with pytest.raises(Conflict, match="there is a session main/s1 again"):
        bring_back(layout, str(NAME), clock)
    assert path.read_bytes() == b"somebody's own\n"
    answer = bring_back(layout, str(NAME), clock, renamed=SessionName("main", "older"))
    assert answer.session == "main/older"
    assert path.with_name("older.jsonl").read_bytes() == jsonl(*conversation())
    # The new copy is kept beside it; the two copies do not conflict.
    assert keep(layout, clock).sessions == 2
    path.unlink()
    assert {each.id for each in deleted_sessions(layout)} >= {copy.id}
    assert len(deleted_sessions(layout)) == 2


def test_what_is_not_gone_is_not_brought_back(layout: Layout, clock: Clock) -> None:
    path = write(layout, conversation())
    set_idle(path, 2 * DAY)
    with pytest.raises(NotFound):
        find_deleted(layout, str(NAME))
    keep(layout, clock)
    with pytest.raises(Conflict, match="was not deleted"):
        find_deleted(layout, str(NAME))


def test_a_clock_that_was_put_back_keeps_and_lists_all_the_same(
    layout: Layout, clock: Clock
) -> None:
    path = write(layout, conversation())
    clock.ahead -= 400 * DAY
    assert keep(layout, clock).sessions == 1
    path.unlink()
    assert len(keep(layout, clock).gone) == 1
    clock.ahead -= 100 * DAY
    assert [copy.name for copy in deleted_sessions(layout)] == [NAME]
    bring_back(layout, str(NAME), clock)
    assert path.read_bytes() == jsonl(*conversation())


def test_off_keeps_nothing(layout: Layout, clock: Clock) -> None:
    set_idle(write(layout, conversation()), 2 * DAY)
    assert keep(layout, clock, keep="off").sessions == 0
    assert not layout.archive.exists()


def test_what_is_gone_for_long_enough_is_forgotten(layout: Layout, clock: Clock) -> None:
    path = write(layout, conversation())
    extract(layout, NAME, clock)
    set_idle(path, 2 * DAY)
    keep(layout, clock)
    path.unlink()
    [left] = stores_without_transcript(layout)
    assert f"`bsd archive bring-back {NAME}`" in left.message
    keep(layout, clock)
    steady = clock.now  # both clocks advance together
    first = RetentionRun(layout, actor="test", clock=clock.now, steady=steady)
    assert first.clean_gone("180d").cleaned == 0
    clock.ahead += 179 * DAY
    assert (
        not RetentionRun(layout, actor="test", clock=clock.now, steady=steady)
        .clean_gone("180d")
        .cleaned
    )
    assert len(deleted_sessions(layout)) == 1
    clock.ahead += 2 * DAY
    later = RetentionRun(layout, actor="test", clock=clock.now, steady=steady)
    assert later.clean_gone("never").cleaned == 0
    assert later.clean_gone("off").cleaned == 0
    done = later.clean_gone("180d")
    assert (done.cleaned, done.errors) == (1, 0)
    assert deleted_sessions(layout) == []
    assert not layout.store_dir(NAME).exists()


def test_a_clock_put_forward_takes_nothing(layout: Layout, clock: Clock) -> None:
    path = write(layout, conversation())
    set_idle(path, 2 * DAY)
    keep(layout, clock)
    path.unlink()
    keep(layout, clock)
    RetentionRun(layout, actor="test", clock=clock.now, steady=lambda: 1000.0)
    clock.ahead += 400 * DAY
    run = RetentionRun(layout, actor="test", clock=clock.now, steady=lambda: 1060.0)
    done = run.clean_gone("180d")
    assert done.cleaned == 0
    assert "put forward" in str(done.held)
    assert len(deleted_sessions(layout)) == 1


def test_what_is_gone_is_searched_as_before(layout: Layout, clock: Clock) -> None:
    """The index keeps the data that it has, and reads a copy that it does not know."""
    path = write(layout, [*conversation(), entry(20, "user", "the quince is ripe")])
    set_idle(path, 2 * DAY)
    keep(layout, clock)
    search(layout, "quince")
    path.unlink()
    [hit] = search(layout, "quince")
    [told] = found_entries(layout, [hit])
    assert (told.session, told.gone) == (str(NAME), True)
    assert [one.session for one in search_gone(layout, "quince")] == [NAME]
    remove_database(layout.search_db)
    assert search_gone(layout, "quince") == []
    assert [one.session for one in search_gone(layout, "quince", read=True)] == [NAME]
    assert [one.session for one in search(layout, "quince")] == [NAME]
    bring_back(layout, str(NAME), clock)
    [told] = found_entries(layout, search(layout, "quince"))
    assert told.gone is None
    assert search_gone(layout, "quince", read=True) == []


@pytest.mark.parametrize("kind", ["directory", "link", "fifo"])
def test_whatever_is_in_the_way_stays(layout: Layout, clock: Clock, kind: str) -> None:
    path = write(layout, conversation())
    set_idle(path, 2 * DAY)
    keep(layout, clock)
    path.unlink()
    match kind:
        case "directory":
            path.mkdir()
        case "link":
            path.symlink_to("/nowhere")
        case "fifo":
            os.mkfifo(path)
    was = path.lstat()
    [copy] = snapshots_of(layout, NAME)
    budget = RetryBudget(wait=0.0, clock=clock.now)
    with pytest.raises(BsdError, match=r"again|not gone"):
        bringing_back.bring_back(layout, copy, budget=budget)
    assert path.lstat().st_ino == was.st_ino
    assert sorted(file.name for file in path.parent.iterdir()) == [path.name]


def test_a_file_where_a_directory_should_be_is_named_and_stays(
    tmp_path: Path, clock: Clock
) -> None:
    home = ClaudeHome.of(tmp_path, 1, small=True)
    [name] = home.names
    keep(home.layout, clock)
    home.delete_older_than(1)
    beside = home.source / "-home-me-project" / name.session
    beside.parent.mkdir()
    beside.write_text("mine")
    with pytest.raises(Conflict, match=f"{name.session} exists and is not a directory"):
        bring_back(home.layout, str(name), clock)
    assert [path.name for path in beside.parent.iterdir()] == [name.session]
    assert beside.read_text() == "mine"


def test_under_the_name_of_a_session_that_is_there_that_one_is_named(
    tmp_path: Path, clock: Clock
) -> None:
    home = ClaudeHome.of(tmp_path, 2, small=True)
    gone, other = home.names
    keep(home.layout, clock)
    home.layout.session_file(gone).unlink()
    with pytest.raises(Conflict, match=f"there is a session {other} again"):
        bring_back(home.layout, str(gone), clock, renamed=other)


@pytest.mark.parametrize("kind", ["cut", "fifo", "link"])
def test_a_copy_whose_pack_cannot_be_read_says_why(
    layout: Layout, clock: Clock, tmp_path: Path, kind: str
) -> None:
    path = write(layout, conversation())
    set_idle(path, 2 * DAY)
    keep(layout, clock)
    path.unlink()
    [pack] = layout.archive_dir(NAME).glob("session-*/*.zst")
    content = pack.read_bytes()
    pack.unlink()
    match kind:
        case "cut":
            pack.write_bytes(content[:-1])
        case "fifo":
            os.mkfifo(pack)
        case "link":
            (tmp_path / "elsewhere").write_bytes(content)
            pack.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Unavailable, match=pack.name):
        bring_back(layout, str(NAME), clock)
    assert not path.exists()


def test_another_users_directory_is_an_error_and_no_loss(layout: Layout, clock: Clock) -> None:
    path = write(layout, conversation())
    set_idle(path, 2 * DAY)
    keep(layout, clock)
    path.unlink()
    path.parent.rmdir()
    path.parent.symlink_to("/tmp")
    with pytest.raises(BsdError):
        bring_back(layout, str(NAME), clock)
    path.parent.unlink()
    bring_back(layout, str(NAME), clock)
    assert path.read_bytes() == jsonl(*conversation())


def test_what_belongs_to_it_and_cannot_be_read_is_told(tmp_path: Path, clock: Clock) -> None:
    home = ClaudeHome.of(tmp_path, 1)
    [name] = home.names
    beside = home.layout.session_file(name).with_suffix("")
    os.mkfifo(beside / "tool-results" / "pipe")
    (beside / "tool-results" / "link").symlink_to("/etc/passwd")
    assert keep(home.layout, clock).sessions == 4
    home.delete_older_than(1)
    shutil.rmtree(beside)
    answer = bring_back(home.layout, str(name), clock)
    assert [text.rpartition("/")[2].partition(" ")[0] for text in answer.left_out] == [
        "link",
        "pipe",
    ]
    assert home.now() == home.files


def test_a_session_that_is_worked_on_comes_later(layout: Layout, clock: Clock) -> None:
    path = write(layout, conversation())
    set_idle(path, 2 * DAY)
    with own_lock(layout, NAME, 0.0):
        assert keep(layout, clock).sessions == 0
    add_lock(path)
    assert keep(layout, clock).sessions == 0  # its program's lock is held
    path.with_name(f"{path.name}.lock").unlink()
    assert keep(layout, clock).sessions == 1


def add_lock(path: Path) -> None:
    stat = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    said = {"pid": os.getpid(), "createdAt": "2026-02-01T00:00:00Z", "starttime": int(stat[19])}
    path.with_name(f"{path.name}.lock").write_text(json.dumps(said, indent=2))


@pytest.mark.parametrize("what", ["manifest", "pack", "no pack"])
def test_a_damaged_copy_is_told_of_and_gives_out_nothing_wrong(
    layout: Layout, clock: Clock, what: str
) -> None:
    path = write(layout, conversation())
    set_idle(path, 2 * DAY)
    keep(layout, clock)
    assert verify(layout).clean
    [pack] = layout.archive.rglob("*.zst")
    match what:
        case "manifest":
            (pack.parent / "copy.json").write_bytes(b"{")
        case "pack":
            content = bytearray(pack.read_bytes())
            content[60] ^= 1
            pack.write_bytes(content)
        case "no pack":
            pack.unlink()
    [finding] = verify(layout).findings
    assert (finding.kind, finding.where) == ("damaged_copy", str(pack.parent))
    path.unlink()
    with pytest.raises((Unavailable, NotFound)):
        bring_back(layout, str(NAME), clock)
    assert not path.exists()


def test_its_entry_in_the_list_comes_back_unless_it_is_taken(layout: Layout, clock: Clock) -> None:
    path = write(layout, conversation())
    set_idle(path, 2 * DAY)
    listed = register(layout, "main", registry(main={"sessionId": "s1", "label": "Boats"}))
    was = listed.read_bytes()
    keep(layout, clock)
    path.unlink()
    listed.write_text(registry())
    assert [copy.title for copy in deleted_sessions(layout)] == ["Boats"]
    assert bring_back(layout, str(NAME), clock).keys == ["agent:main:main"]
    assert json.loads(listed.read_bytes()) == json.loads(was)
    path.unlink()
    listed.write_text(registry(main={"sessionId": "another"}))
    answer = bring_back(layout, str(NAME), clock)
    assert (answer.keys, answer.keys_taken) == ([], ["agent:main:main"])
    path.unlink()
    listed.write_text("{")
    set_idle(listed)
    assert "left as it is" in str(bring_back(layout, str(NAME), clock).advice)
    assert path.read_bytes() == jsonl(*conversation())


def test_a_copy_whose_packs_are_gone_is_made_whole_with_the_next(
    layout: Layout, clock: Clock
) -> None:
    content = sample(600)
    path = add_session(layout.root, str(NAME), content)
    set_idle(path, 3 * DAY)
    keep(layout, clock)
    [pack] = layout.archive.rglob("*.zst")
    pack.unlink()
    with path.open("ab") as file:
        file.write(sample(1, seed=3))
    set_idle(path, 2 * DAY)
    content = path.read_bytes()
    assert keep(layout, clock).packed == len(content)
    path.unlink()
    bring_back(layout, str(NAME), clock)
    assert path.read_bytes() == content


def test_a_damaged_copy_of_a_session_in_its_place_is_made_anew(
    layout: Layout, clock: Clock
) -> None:
    secret_session(layout)
    keep(layout, clock)
    [copy] = snapshots_of(layout, NAME)
    [pack] = copy.directory.glob("*.zst")
    data = bytearray(pack.read_bytes())
    data[40] ^= 0xFF
    pack.write_bytes(data)
    assert keep(layout, clock).sessions == 0
    week = [keep(layout, clock).sessions for _ in turns(clock)]
    assert sum(week) == 1
    assert list(damaged_snapshots(layout.archive_dir(NAME))) == []
    assert not pack.exists()


def turns(clock: Clock) -> Iterator[float]:
    """The moments of a week at which bsd may look at copies."""
    for _ in range(1008):
        clock.ahead += 600
        yield clock.ahead


@pytest.mark.parametrize("what", ["pack", "manifest"])
def test_verify_has_a_damaged_copy_made_anew(layout: Layout, what: str) -> None:
    path = secret_session(layout)
    clock = Clock()
    keep(layout, clock)
    [copy] = snapshots_of(layout, NAME)
    [broken] = copy.directory.glob("*.zst" if what == "pack" else "copy.json")
    broken.write_bytes(b"{")
    assert not verify(layout).clean
    [finding] = verify(layout, repair=True).findings
    assert (finding.kind, finding.repaired) == ("damaged_copy", True)
    assert verify(layout).clean
    original = path.read_bytes()
    path.unlink()
    keep(layout, clock)
    bring_back(layout, str(NAME), clock)
    assert path.read_bytes() == original
