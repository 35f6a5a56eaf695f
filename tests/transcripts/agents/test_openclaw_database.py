"""Sessions in OpenClaw's database: read as lines, never written, and refused in words."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from bsd.actions.archive import bring_back, copy_back, copy_sessions, list_archive
from bsd.actions.export import ExportFormat, export_session
from bsd.actions.list_sessions import list_all_sessions
from bsd.actions.search import search_all, search_extracted
from bsd.actions.summary import summarize_session
from bsd.core.errors import BsdError, Busy, LeftAlone, NotFound, Unavailable
from bsd.core.layout import Layout, SessionName
from bsd.core.zstd import zstd
from bsd.daemon.scan import Scan, sessions_by_stat
from bsd.maintenance import catalog
from bsd.maintenance.references import References
from bsd.maintenance.verify import verify
from bsd.mcp.restoring import Inline, restore_with_text
from bsd.planning.result import Status
from bsd.sessions.session import Session
from bsd.transcripts.agents import database as databases
from bsd.transcripts.agents.opening import has_transcript, open_transcript, stat_transcript
from bsd.transcripts.agents.programs import program_of
from bsd.transcripts.change import Identity, Written
from tests.openclaw_database import (
    add_events,
    add_node,
    cold_archive,
    conversation,
    database_path,
    writing,
)
from tests.openclaw_tree import add_session
from tests.session_files import Clock, make_caller

NAME = SessionName("main", "s1")


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path)


def put(layout: Layout, *texts: str, session: str = "s1", compressed: bool = False) -> list[bytes]:
    """Add a session to the database; return its events."""
    events = conversation(session, *texts)
    with writing(database_path(layout.root)) as connection:
        add_events(connection, session, events, compressed=compressed)
    return events


def lines_of(layout: Layout, name: SessionName = NAME) -> list[bytes]:
    with open_transcript(layout, name) as source:
        assert source.identity == Identity.of(stat_transcript(layout, name))
        return [line.raw for line in source.lines()]


def whole(events: list[bytes]) -> list[bytes]:
    return [event + b"\n" for event in events]


@pytest.mark.parametrize("compressed", [False, True])
def test_its_lines_are_the_events_as_they_are_stored(layout: Layout, *, compressed: bool) -> None:
    events = put(layout, "Grüße, 世界", "two", compressed=compressed)
    assert lines_of(layout) == whole(events)
    found = stat_transcript(layout, NAME)
    assert found.st_size == sum(len(event) + 1 for event in events)
    assert found.st_mode & 0o777 == 0o400
    assert found.st_mtime == pytest.approx(1_795_000_000, abs=1)


def test_reading_leaves_no_trace_and_takes_all_batches(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bsd.transcripts.agents.openclaw.database.BATCH_BYTES", 1000)
    events = put(layout, *(f"text {number}" for number in range(50)))
    path = database_path(layout.root)
    before = path.read_bytes(), sorted(path.parent.iterdir())
    assert lines_of(layout) == whole(events)
    assert (path.read_bytes(), sorted(path.parent.iterdir())) == before


def test_each_change_of_a_session_changes_its_state_and_no_other(layout: Layout) -> None:
    put(layout, "one")
    put(layout, "other", session="s2")
    other = stat_transcript(layout, SessionName("main", "s2"))
    states = {Written.of(stat_transcript(layout, NAME))}
    with writing(database_path(layout.root)) as connection:
        add_events(connection, "s1", [b'{"type":"custom","id":"x"}'])
    states.add(Written.of(stat_transcript(layout, NAME)))
    assert lines_of(layout)[-1] == b'{"type":"custom","id":"x"}\n'
    with writing(database_path(layout.root)) as connection:
        connection.execute("UPDATE transcript_events SET event_json = '{\"a\":1}' WHERE seq = 1")
        connection.execute("UPDATE transcript_rewrite_watermarks SET generation = 'second'")
    states.add(Written.of(stat_transcript(layout, NAME)))
    assert lines_of(layout)[1] == b'{"a":1}\n'
    assert len(states) == 3
    assert len({state.ino for state in states}) == 1
    assert stat_transcript(layout, SessionName("main", "s2")).st_ino == other.st_ino


def test_only_new_events_are_measured(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    put(layout, "one")
    database = program_of(layout, "main").database()
    assert database is not None
    assert set(database.sessions()) == {"s1"}
    measured: list[tuple[str, int | None]] = []
    measure = database.measure

    def noted(connection: sqlite3.Connection, version: object, after: int | None) -> int:
        measured.append((version.session, after))  # type: ignore[attr-defined]
        return measure(connection, version, after)  # type: ignore[arg-type]

    monkeypatch.setattr(database, "measure", noted)
    put(layout, "two", session="s2")
    with writing(database_path(layout.root)) as connection:
        add_events(connection, "s1", [b"{}"])
    database.sessions()
    database.sessions()
    assert sorted(measured) == [("s1", 4), ("s2", None)]


def test_odd_rows_spoil_no_other(layout: Layout) -> None:
    [header, *_] = put(layout, "one")
    odd = [b"no JSON", b'{"a":\n1}', b"x" * 3_000_000]
    with writing(database_path(layout.root)) as connection:
        add_events(connection, "s1", odd)
        for seq, packed, size in ((90, b"no zstd", 5), (91, b"", 1 << 40), (92, None, None)):
            row = ("s1", seq, None, 0, packed, size, None)
            connection.execute("INSERT INTO transcript_events VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        add_events(connection, "s1", [b'{"last":1}'])
    found = lines_of(layout)
    assert found[0] == header + b"\n"
    assert found[5:] == [b"no JSON\n", b'{"a": 1}\n', odd[2] + b"\n", b"     \n", b'{"last":1}\n']


def test_a_damaged_session_in_cold_storage_is_named_and_stops_no_other(layout: Layout) -> None:
    put(layout, "hello")
    packed = cold_archive("c", conversation("c", "cold"))
    damaged: dict[str, tuple[str, bytes | None]] = {
        "garbage": ("a", b"garbage"),
        "cut": ("a", packed[: len(packed) // 2]),
        "empty": ("a", b""),
        "gone": ("nowhere", None),
        "directory": ("..", None),
    }
    columns = ", ".join("?" * 11)
    with writing(database_path(layout.root)) as connection:
        for name, (file, blob) in damaged.items():
            connection.execute(
                f"INSERT INTO session_transcript_cold_archives VALUES ({columns})",
                (name, "first", file, "d", 5, 1, 1, 4, 0, "any", blob),
            )
    listed = {one.session for one in list_all_sessions(make_caller(layout, Clock())).sessions}
    assert listed == {"main/s1", *(f"main/{name}" for name in damaged)}
    for name in damaged:
        with pytest.raises(Unavailable, match=f"session {name} is in OpenClaw's cold storage"):
            open_transcript(layout, SessionName("main", name))
    assert b"hello" in b"".join(lines_of(layout))


def test_numbers_of_another_type_are_no_sessions(layout: Layout) -> None:
    path = database_path(layout.root)
    path.parent.mkdir(parents=True)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "CREATE TABLE transcript_events (session_id, seq, event_json, created_at);"
            "INSERT INTO transcript_events VALUES ('s1', 0, '{}', 'then'), ('s2', 'x', '{}', 1),"
            " ('s3', X'01', '{}', 1), ('s4', 1e300, '{}', 1), (NULL, NULL, NULL, NULL);"
            "CREATE TABLE session_transcript_cold_archives"
            " (session_id, archive_sha256, last_seq, archived_at);"
            "INSERT INTO session_transcript_cold_archives VALUES ('s5', 1, 'x', 1);"
        )
    assert [one.session for one in list_all_sessions(make_caller(layout, Clock())).sessions] == [
        "main/s1"
    ]
    assert lines_of(layout) == [b"{}\n"]


def test_a_session_in_cold_storage(layout: Layout) -> None:
    events = {name: conversation(name, "cold") for name in ("s1", "s2")}
    packed = {name: cold_archive(name, each) for name, each in events.items()}
    cold = layout.agents / "main" / "sessions" / "cold"
    cold.mkdir(parents=True)
    (cold / "abc.jsonl.zst").write_bytes(packed["s1"])
    with writing(database_path(layout.root)) as connection:
        for name, blob in (("s1", None), ("s2", packed["s2"])):
            digest = hashlib.sha256(packed[name]).hexdigest()
            row = (name, "first", "abc.jsonl.zst", digest, 5, 0, 0, 4, 1_795_000_000_000, "file")
            connection.execute(
                f"INSERT INTO session_transcript_cold_archives VALUES ({', '.join('?' * 11)})",
                (*row, blob),
            )
    assert lines_of(layout) == whole(events["s1"])
    assert lines_of(layout, SessionName("main", "s2")) == whole(events["s2"])


# --- in lists, and for actions ---


def test_it_is_like_any_other_session_but_never_edited(layout: Layout, tmp_path: Path) -> None:
    long = "needle in a haystack " * 100
    events = put(layout, long)
    with writing(database_path(layout.root)) as connection:
        key = "agent:main:main"
        add_node(connection, key, "s1", label="The label", status="done")
        add_node(connection, "child", "s2", parent_session_key=key)
    before = database_path(layout.root).read_bytes()
    caller = make_caller(layout, Clock())
    [row] = list_all_sessions(caller).sessions
    assert (row.session, row.title, row.label, row.status) == (str(NAME), "The label", key, "done")
    assert row.resume == f"openclaw tui --session {key}"
    [found] = search_all(caller, "needle").results
    assert (found.session, found.index) == (str(NAME), 1)
    out = tmp_path / "out.jsonl"
    export_session(caller, NAME, ExportFormat.JSONL, out)
    assert out.read_bytes() == b"".join(whole(events))
    assert copy_sessions(caller, [str(NAME)]).copied == 1
    result = caller.extract(NAME)
    assert result.status is Status.LEFT_ALONE
    assert "no other program than OpenClaw" in (result.reason or "")
    with pytest.raises(LeftAlone, match="may write to it"):
        Session(layout, NAME).open()
    assert database_path(layout.root).read_bytes() == before


def test_the_result_that_the_host_has_cleared_is_found_by_its_call(layout: Layout) -> None:
    put(layout, "first", "second needle")
    caller = make_caller(layout, Clock())
    [hit] = search_extracted(caller, NAME, "needle").results
    assert hit.entry_id == "s1-7"
    for entry in ("call_00000001", "call00000001", "s1-7"):
        found = restore_with_text(caller, NAME, entry)
        assert list(found.texts.values()) == ["out of second needle"]
        assert found.inline is Inline.NEVER
        assert "database" not in (found.note or "").partition("never changed")[0]
    with pytest.raises(NotFound):
        restore_with_text(caller, NAME, "call00000009")


def test_values_that_bsd_extracted_before_the_import_are_still_needed(layout: Layout) -> None:
    put(layout, "one")
    [session] = [each for each in References(layout).sessions() if each.name == NAME]
    with session.open() as source:
        assert source.identity == Identity.of(stat_transcript(layout, NAME))


def test_the_scan_reports_each_change_once(layout: Layout) -> None:
    put(layout, "one")
    scan = Scan(layout)
    assert [name for name, _ in scan.step()] == [NAME]
    assert list(scan.step()) == []
    assert [name for name, _ in sessions_by_stat(layout)] == [NAME]
    with writing(database_path(layout.root)) as connection:
        add_events(connection, "s1", [b"{}"])
    assert [name for name, _ in scan.step()] == [NAME]
    with writing(database_path(layout.root)) as connection:
        connection.execute("DELETE FROM transcript_events")
    assert list(scan.step()) == [(NAME, None)]
    assert not has_transcript(layout, NAME)


def test_files_beside_the_database_are_read_only_too(layout: Layout) -> None:
    put(layout, "in the database")
    add_session(layout.root, "main/s1", b'{"type":"session","version":3,"id":"s1"}\n')
    add_session(layout.root, "main/old", b'{"type":"session","version":3,"id":"old"}\n')
    names = sorted(str(name) for name, _ in catalog.with_stats(layout))
    assert names == ["main/old", "main/s1"]
    assert len(lines_of(layout)) == 5
    source, _, why = Session(layout, SessionName("main", "old")).open_to_read()
    source.close()
    assert why is not None
    with pytest.raises(LeftAlone):
        Session(layout, SessionName("main", "old")).open()


# --- beside the database ---


def test_imported_files_are_compared_with_the_database(layout: Layout) -> None:
    events = put(layout, "one", "two")
    archive = layout.agents / "main" / "session-sqlite-import-archive" / "1"
    archive.mkdir(parents=True)
    header = b'{"type":"session","version":3,"id":"s1"}'
    spaced = json.dumps(json.loads(events[3])).encode()  # with spaces, and its members in order
    whole_file = archive / "s1.jsonl"
    whole_file.write_bytes(b"".join(whole([header, *events[1:3], spaced])))
    part = archive / "s1.jsonl.deleted.2026-09-01T00-00-00.000Z.zst"
    part.write_bytes(zstd.compress(b"".join(whole([header, *events[1:], b'{"id":"lost"}']))))
    (archive / "broken.jsonl.zst").write_bytes(b"broken")
    found = {each.where: each for each in verify(layout).findings}
    assert found[str(part)].message == "1 of its 9 lines are not in the database"
    assert "cannot be compared" in found[str(archive / "broken.jsonl.zst")].message
    size = whole_file.stat().st_size
    assert found["main"].message == (
        f"all lines of 1 imported files ({size:,} bytes) are in the database"
    )


def test_a_summary_says_what_fills_the_database(layout: Layout) -> None:
    put(layout, "one")
    with writing(database_path(layout.root)) as connection:
        row = ("s1", 0, None, "x" * 100_000, 0)
        connection.execute("INSERT INTO trajectory_runtime_events VALUES (?, ?, ?, ?, ?)", row)
    archive = layout.agents / "main" / "session-sqlite-import-archive"
    archive.mkdir()
    (archive / "old.jsonl").write_bytes(b"x" * 50_000)
    filled = summarize_session(make_caller(layout, Clock()), NAME).directory
    assert [files.what for files in filled[:2]] == [
        "trajectories (records of runs, never sent)",
        "imported JSONL (session-sqlite-import-archive)",
    ]
    assert filled[0].bytes > 100_000
    assert "openclaw update cleanup" in (filled[1].advice or "")


def test_the_file_of_a_deleted_session_is_kept_like_any_that_is_gone(layout: Layout) -> None:
    put(layout, "here")
    sessions = layout.agents / "main" / "sessions"
    sessions.mkdir()
    content = b"".join(whole(conversation("gone", "needle")))
    name = "gone.jsonl.deleted.2026-09-01T00-00-00.000Z.zst"
    (sessions / name).write_bytes(zstd.compress(content))
    caller = make_caller(layout, Clock())
    assert copy_sessions(caller).copied == 2
    [gone] = list_archive(caller).sessions
    assert gone.session == "main/gone"
    [found] = search_all(caller, "needle").results
    assert found.session == "main/gone"
    before = database_path(layout.root).read_bytes()
    with pytest.raises(LeftAlone) as refused:
        bring_back(caller, "main/gone")
    assert refused.value.hint == "bsd archive bring-back main/gone --to FILE"
    written: list[bytes] = []
    assert copy_back(caller, "main/gone", written.append).unavailable == {}
    assert b"".join(written) == content
    assert database_path(layout.root).read_bytes() == before


# --- hostile databases ---


def newer(path: Path) -> None:
    with writing(path) as connection:
        connection.execute("UPDATE schema_meta SET schema_version = 24")


def other_columns(path: Path) -> None:
    with writing(path) as connection:
        connection.execute("ALTER TABLE transcript_events RENAME event_json TO event")


def corrupt(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [(newer, "schema 24"), (other_columns, "does not know"), (corrupt, "cannot be read")],
)
def test_a_database_that_cannot_be_read_is_refused_in_words(
    layout: Layout, spoil: Callable[[Path], None], why: str
) -> None:
    put(layout, "one")
    add_session(layout.root, "main/file", b'{"type":"session","version":3,"id":"x"}\n')
    add_session(layout.root, "healthy/file", b'{"type":"session","version":3,"id":"x"}\n')
    spoil(database_path(layout.root))
    about = {agent.name: agent for agent in catalog.agents(layout)}
    assert why in (about["main"].note or "")
    assert about["healthy"].note is None
    with pytest.raises(BsdError, match=why):
        open_transcript(layout, NAME)
    names = sorted(str(name) for name, _ in catalog.with_stats(layout))
    assert names == ["healthy/file", "main/file"]
    assert [name.session for name, _ in Scan(layout).step()] == ["file", "file"]


@pytest.mark.parametrize("kind", ["no tables", "empty"])
def test_what_is_no_database_is_none(layout: Layout, kind: str) -> None:
    path = database_path(layout.root)
    path.parent.mkdir(parents=True)
    with closing(sqlite3.connect(path)) as connection:
        if kind == "no tables":
            connection.execute("CREATE TABLE other (x)")
    assert path.is_file()
    assert program_of(layout, "main").database() is None
    with pytest.raises(NotFound):
        open_transcript(layout, NAME)


@pytest.mark.parametrize("kind", ["fifo", "link", "directory", "garbage", "log"])
def test_something_else_in_the_place_of_a_database_is_named(layout: Layout, kind: str) -> None:
    put(layout, "one")
    add_session(layout.root, "main/file", b"{}\n")
    path = database_path(layout.root)
    moved = path if kind == "log" else path.rename(path.with_name("moved"))
    match kind:
        case "fifo":
            os.mkfifo(path)
        case "link":
            path.symlink_to(moved)
        case "directory":
            path.mkdir()
        case "garbage":
            path.write_bytes(b"no database " * 90)
        case "log":
            os.mkfifo(f"{path}-wal")
    [about] = catalog.agents(layout)
    assert str(path) in (about.note or "")
    with pytest.raises(LeftAlone, match="openclaw-agent"):
        open_transcript(layout, NAME)
    assert [str(name) for name, _ in catalog.with_stats(layout)] == ["main/file"]


def test_a_locked_database_is_busy(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(databases, "_WAIT_SECONDS", 0.01)
    put(layout, "one")
    path = database_path(layout.root)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("BEGIN EXCLUSIVE")
        with pytest.raises(Busy):
            open_transcript(layout, NAME)
        connection.execute("ROLLBACK")
    assert len(lines_of(layout)) == 5


def test_a_log_is_read_beside_its_writer(layout: Layout) -> None:
    events = put(layout, "one")
    with writing(database_path(layout.root)) as connection:
        add_events(connection, "s1", [b'{"in":"the log"}'])
        connection.commit()
        assert lines_of(layout) == whole([*events, b'{"in":"the log"}'])
        connection.execute("DELETE FROM transcript_events")  # not committed
        assert len(lines_of(layout)) == 6
        connection.rollback()


def test_a_log_without_an_index_in_a_directory_that_is_read_only(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(layout, "one")
    path, copy = database_path(layout.root), database_path(tmp_path / "copy")
    copy.parent.mkdir(parents=True)
    with writing(path) as connection:
        add_events(connection, "s1", [b"{}"])
        connection.commit()
        for ending in ("", "-wal"):
            shutil.copyfile(f"{path}{ending}", f"{copy}{ending}")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(LeftAlone, match="without its index"):
        open_transcript(Layout(tmp_path / "copy"), NAME)
    assert sorted(each.name for each in copy.parent.iterdir()) == [copy.name, f"{copy.name}-wal"]


def test_a_database_that_is_replaced_meanwhile(layout: Layout, tmp_path: Path) -> None:
    put(layout, "one")
    assert len(lines_of(layout)) == 5
    with open_transcript(layout, NAME) as before:
        database_path(layout.root).unlink()
        put(layout, "another", "database")
        assert sum(1 for _ in before.lines()) == 5
    assert len(lines_of(layout)) == 9
