"""Checkpoints are used only if they match the file, and no result depends on them."""

from __future__ import annotations

import sqlite3
import stat
import threading
from array import array
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from bsd.core.errors import Forbidden, TemporaryFailure
from bsd.core.layout import SessionName
from bsd.store.entry_notes import Stamp, Stamps, learn
from bsd.store.state import (
    Accounted,
    CacheSeen,
    Checkpoint,
    Checkpoints,
    Left,
    StateDb,
    WaitingValues,
    guard,
)
from bsd.transcripts.change import Edit, Identity, Written, edited
from bsd.transcripts.reader import BytesTranscript, TranscriptFile
from tests.logs import capture_logs

NAME = SessionName("main", "s1")
SETTINGS = "abc"
CONTENT = b"".join(b"line %d\n" % number for number in range(2000))
IDS = array("Q", [5, 2**64 - 1, 5, 2**63])
AT = Checkpoint(CONTENT.index(b"line 1500"), 1500, 1400, IDS, ("call",))
KEPT = replace(AT, ids=array("Q"))  # ids of this session stay in the database


@pytest.fixture
def session(tmp_path: Path) -> Path:
    path = tmp_path / "s1.jsonl"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture
def state(tmp_path: Path, session: Path) -> StateDb:
    state = StateDb(tmp_path / "own" / "state.db")
    keep(state, session, AT)
    return state


def identity(path: Path) -> Identity:
    return Identity.of(path.stat())


def keep(state: StateDb, session: Path, at: Checkpoint, name: SessionName = NAME) -> None:
    with TranscriptFile(session) as source:
        state.save(name, SETTINGS, source.identity, [guard(source, at.offset)], Checkpoints(at))


def load(state: StateDb, session: Path, settings: str = SETTINGS) -> Checkpoint | None:
    with TranscriptFile(session) as source:
        return state.load(NAME, settings, source).first


def test_it_is_there_again_and_private(state: StateDb, session: Path, tmp_path: Path) -> None:
    assert load(state, session) == KEPT
    assert load(StateDb(tmp_path / "own" / "state.db"), session) == KEPT
    for path in (tmp_path / "own").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_it_knows_the_ids_before_it(state: StateDb, session: Path) -> None:
    found = load(state, session)
    assert found is not None
    assert found.among([5, 6, 2**63, 2**64 - 1]) == {5, 2**63, 2**64 - 1}
    assert found.among(range(3000)) == {5}


def test_it_goes_on_with_what_is_new(state: StateDb, session: Path, tmp_path: Path) -> None:
    first = load(state, session)
    later = replace(AT, index=1600, ids=array("Q", [6]), earlier=first and first.earlier)
    keep(state, session, later)
    found = load(state, session)
    assert found == replace(later, ids=array("Q"))
    assert found is not None
    assert found.among([4, 5, 6]) == {5, 6}
    with closing(sqlite3.connect(tmp_path / "own" / "state.db")) as database:
        assert database.execute("SELECT count(*) FROM ids").fetchone() == (4,)


def test_what_was_forgotten_meanwhile_is_not_gone_on_with(state: StateDb, session: Path) -> None:
    first = load(state, session)
    state.forget(NAME)
    assert first is not None
    with pytest.raises(TemporaryFailure, match="was removed"):
        first.among([5])
    later = replace(AT, index=1600, ids=array("Q", [6]), earlier=first.earlier)
    keep(state, session, later)
    assert load(state, session) is None
    keep(state, session, AT)
    found = load(state, session)
    assert found is not None
    assert found.among([5, 6]) == {5}


def test_an_append_leaves_it_good(state: StateDb, session: Path) -> None:
    with session.open("ab") as stream:
        stream.write(b"more\n")
    assert load(state, session) == KEPT


def test_it_does_not_fit_other_settings(state: StateDb, session: Path) -> None:
    assert load(state, session, "other") is None


def test_it_does_not_fit_another_file(state: StateDb, session: Path) -> None:
    other = session.with_suffix(".new")
    other.write_bytes(CONTENT)
    other.rename(session)
    assert load(state, session) is None


def test_it_does_not_fit_other_bytes_before_it(state: StateDb, session: Path) -> None:
    with session.open("r+b") as stream:
        stream.seek(AT.offset - 2)
        stream.write(b"!")
    assert load(state, session) is None


def test_it_does_not_fit_a_shorter_file(state: StateDb, session: Path) -> None:
    with session.open("r+b") as stream:
        stream.truncate(AT.offset - 1)
    assert load(state, session) is None


def test_it_is_of_no_use_for_a_file_that_was_replaced(
    state: StateDb, session: Path, tmp_path: Path
) -> None:
    with TranscriptFile(session) as left:
        before = guard(left, AT.offset)
    session.rename(tmp_path / "elsewhere")
    session.write_bytes(CONTENT)
    state.forget(NAME)
    state.save(NAME, SETTINGS, left.identity, [before], Checkpoints(AT))
    assert load(state, session) is None
    keep(state, session, AT)
    assert load(state, session) == KEPT


@pytest.mark.parametrize("at", [0, 5, 4095, 4096, 4097, len(CONTENT)])
def test_the_guard_of_edits_is_that_of_the_file_they_make(at: int) -> None:
    edits = [
        Edit(0, 7, b"first\n"),
        Edit(7, 0, b"put in\n"),
        Edit(100, 8000, b""),
        Edit(9000, 20, b"x" * 5000 + b"\n"),
        Edit(len(CONTENT) - 10, 10, b"last\n"),
    ]
    after, read = b"", 0
    for edit in edits:
        after += CONTENT[read : edit.offset] + edit.new
        read = edit.offset + edit.length
    after += CONTENT[read:]
    source = BytesTranscript(CONTENT)
    for offset in {min(at, len(after)), len(after), len(after) - 3}:
        assert guard(source, offset, edits) == guard(BytesTranscript(after), offset)
    assert edited(source, edits, 0, len(after)) == after


def test_it_can_be_forgotten(state: StateDb, session: Path) -> None:
    state.forget(NAME)
    assert load(state, session) is None


def test_what_is_gone_is_forgotten_and_the_rest_kept(
    state: StateDb, session: Path, tmp_path: Path
) -> None:
    gone, unsure = SessionName("main", "gone"), SessionName("main", "unsure")
    keep(state, session, AT, name=gone)
    state.note_rests(
        {name: Left(name, SETTINGS, Written(1, 2, 3, 4), None) for name in (gone, unsure)}
    )

    def is_there(name: SessionName) -> bool:
        if name == unsure:
            raise Forbidden("nobody may look")
        return name == NAME

    assert state.keep_only(is_there) == 1
    assert load(state, session) == KEPT
    assert [rest.session for rest in state.rests(SETTINGS)] == [unsure]
    with closing(sqlite3.connect(tmp_path / "own" / "state.db")) as database:
        counts = "SELECT (SELECT COUNT(*) FROM checkpoints), COUNT(DISTINCT number) FROM ids"
        assert database.execute(counts).fetchone() == (1, 1)
    assert state.keep_only(is_there) == 0


@pytest.mark.parametrize("damage", [b"not a database at all" * 100, b""])
def test_a_damaged_database_is_replaced(
    state: StateDb, session: Path, tmp_path: Path, damage: bytes
) -> None:
    path = tmp_path / "own" / "state.db"
    for extra in path.parent.glob("state.db-*"):
        extra.unlink()
    path.write_bytes(damage)
    with capture_logs() as logs:
        assert load(state, session) is None
    assert len(logs) == bool(damage)
    keep(state, session, AT)
    assert load(state, session) == KEPT


def test_a_database_of_another_version_is_made_anew(
    state: StateDb, session: Path, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(tmp_path / "own" / "state.db")) as database, database:
        database.execute("PRAGMA user_version = 99")
    assert load(state, session) is None
    keep(state, session, AT)
    assert load(state, session) == KEPT


@pytest.mark.parametrize(
    "place",
    [
        b'{"offset":1}',
        # A checkpoint of a version with more fields.
        b'{"offset":1,"index":1,"messages":1,"barrier":0,"own_calls":[],"bound":false}',
    ],
)
def test_a_row_of_another_version_is_not_used(
    state: StateDb, session: Path, tmp_path: Path, place: bytes
) -> None:
    with closing(sqlite3.connect(tmp_path / "own" / "state.db")) as database, database:
        database.execute("UPDATE checkpoints SET place = ?", (place,))
    assert load(state, session) is None
    keep(state, session, AT)
    assert load(state, session) == KEPT


def test_without_a_database_nothing_is_known_and_nothing_made(
    session: Path, tmp_path: Path
) -> None:
    state = StateDb(tmp_path / "none" / "state.db")
    assert load(state, session) is None
    state.forget(NAME)
    assert not (tmp_path / "none").exists()


def test_many_who_come_first_at_the_same_moment_find_the_same_tables(
    tmp_path: Path, session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(StateDb, "_give_up", lambda _, error: told.append(str(error)))
    for attempt in range(5):
        states = [StateDb(tmp_path / f"first-{attempt}" / "state.db") for _ in range(6)]
        together = threading.Barrier(len(states))

        def come(state: StateDb, together: threading.Barrier = together) -> None:
            together.wait()
            keep(state, session, AT)

        with ThreadPoolExecutor(len(states)) as pool:
            list(pool.map(come, states))
        assert load(states[0], session) is not None
    assert told == []


# --- the original at a path with a `_restored` member is the value before the first of these ---


@pytest.mark.parametrize("before", [None, b'"theirs"'])
def test_later_stamps_stand_for_what_was_before_the_first(before: bytes | None) -> None:
    known: Stamps = {}
    learn(known, [Stamp("e1", b'"1"', present=before, original=before)])
    learn(known, [Stamp("e1", b'"2"', present=b'"1"', original=b'"1"')])
    learn(known, [Stamp("e1", b'"3"', present=b'"2"', original=before)])
    assert known == {"e1": {b'"1"': before, b'"2"': before, b'"3"': before}}


FURTHER = replace(
    AT, index=1600, ids=array("Q", [6, 7]), earlier=None, waiting=WaitingValues(900, 70)
)


def keep_both(state: StateDb, session: Path, places: Checkpoints) -> None:
    with TranscriptFile(session) as source:
        guards = [guard(source, at.offset) for at in places if at is not None]
        state.save(NAME, SETTINGS, source.identity, guards, places)


def load_both(state: StateDb, session: Path) -> Checkpoints:
    with TranscriptFile(session) as source:
        return state.load(NAME, SETTINGS, source)


def test_a_further_checkpoint_goes_on_with_the_first(state: StateDb, session: Path) -> None:
    seen = CacheSeen(in_use=True, usage=(1, 2, 3, 4), growth=1.5)
    first = load_both(state, session).first
    assert first is not None
    keep_both(state, session, Checkpoints(first, replace(FURTHER, earlier=first.earlier)))
    both = load_both(state, session)
    assert both == Checkpoints(KEPT, replace(FURTHER, ids=array("Q")))
    assert both.further is not None
    assert both.further.among([5, 6, 7, 8]) == {5, 6, 7}
    assert both.first is not None
    assert both.first.among([5, 6, 7, 8]) == {5}

    later = replace(FURTHER, index=1700, ids=array("Q", [8]), cache=seen)
    keep_both(state, session, Checkpoints(both.first, replace(later, earlier=both.further.earlier)))
    both = load_both(state, session)
    assert both.further == replace(later, ids=array("Q"))
    assert both.further.among([5, 6, 7, 8, 9]) == {5, 6, 7, 8}

    keep_both(state, session, Checkpoints(both.first))
    assert load_both(state, session) == (KEPT, None)


def test_a_further_checkpoint_is_of_no_use_alone(state: StateDb, session: Path) -> None:
    first = load_both(state, session).first
    assert first is not None
    further = replace(FURTHER, offset=len(CONTENT) - 5, earlier=first.earlier)
    keep_both(state, session, Checkpoints(first, further))
    with session.open("r+b") as stream:  # after the first place
        stream.seek(-50, 2)
        stream.write(b"!")
    assert load_both(state, session) == (KEPT, None)
    with session.open("r+b") as stream:
        stream.seek(AT.offset - 2)
        stream.write(b"!")
    assert load_both(state, session) == (None, None)
    state.forget(NAME)
    keep_both(state, session, Checkpoints(first, further))
    assert load_both(state, session) == (None, None)


def test_an_account_outlives_checkpoints_and_settings(state: StateDb, tmp_path: Path) -> None:
    account = Accounted(12.5, 3.0, -1.0, 40, 4)
    assert state.account(NAME) is None
    state.note_account(NAME, account)
    state.forget(NAME)
    assert StateDb(tmp_path / "own" / "state.db").account(NAME) == account
    state.end_savings(NAME)
    assert state.account(NAME) == Accounted(12.5, 3.0, -1.0)
    state.keep_only(lambda _: False)
    assert state.account(NAME) is None
