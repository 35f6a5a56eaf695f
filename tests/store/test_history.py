"""The journal of operations as files: numbers, durability, damage, and lines found again."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from bsd.core.errors import NotFound, Unavailable
from bsd.core.layout import Layout, SessionName
from bsd.store.changed_lines import find_lines, happened
from bsd.store.history import (
    Act,
    History,
    HistoryDamaged,
    Operation,
    TouchedLine,
    as_ended,
    named_files,
    undone_entries,
    with_end,
)
from bsd.store.originals import FileSpan, Missing, SessionStore, StoredOriginal, digest
from bsd.transcripts.change import Edit
from bsd.transcripts.reader import BytesTranscript
from tests.refusing import raising

NAME = SessionName("main", "s1")
ACT = Act("edit", "cli", "2026-02-01T00:00:00.000Z", 1, 10, 12)
LINES = [b'{"id":"a","x":1}\n', b'\xff\x00 not "JSON"\r\n', b'{"id":"c","x":"%b"}' % (b"y" * 300)]
NEW = [b'{"id":"a","x":22}\n', b"\xfe other\r\n", b'{"id":"c","x":"%b"}' % (b"z" * 300)]
SESSION = b"".join(LINES)


@pytest.fixture
def history(layout: Layout) -> History:
    return History(layout, NAME)


def edits() -> list[Edit]:
    offsets = [0, len(LINES[0]), len(LINES[0] + LINES[1])]
    return [
        Edit(offset, len(line), new) for offset, line, new in zip(offsets, LINES, NEW, strict=True)
    ]


def touched() -> list[TouchedLine]:
    return [TouchedLine(0, "a"), TouchedLine(1, None), TouchedLine(2, "c", undoes=5)]


def begin(history: History, layout: Layout, act: Act = ACT) -> int:
    source = BytesTranscript(SESSION)
    return history.begin(act, edits(), touched(), (), source, SessionStore(layout, NAME))


def test_what_was_begun_comes_back_whole(history: History, layout: Layout) -> None:
    assert begin(history, layout) == 1
    (operation,) = history.pending()
    assert operation.pending
    history.done()
    assert history.pending() == []
    (operation,) = History(layout, NAME).operations()
    assert (operation.number, operation.act, operation.entries) == (1, ACT, 3)
    assert str(operation) == "operation 1 (edit, 2026-02-01T00:00:00.000Z)"
    lines = history.lines(operation)
    assert [(line.index, line.entry_id, line.undoes) for line in lines] == [
        *((0, "a", None), (1, None, None), (2, "c", 5)),
    ]
    assert [line.ended for line in lines] == [True, True, False]
    store = SessionStore(layout, NAME)
    for line, now, was in zip(lines, NEW, LINES, strict=True):
        assert (line.now, line.was) == (digest(now), digest(was))
        assert history.former(operation, line, now, store) == was
        assert history.former(operation, line, b"something else", store) is Missing.CORRUPT


def test_numbers_go_on(history: History, layout: Layout) -> None:
    for number in (1, 2):
        assert begin(history, layout) == number
        history.done()
    assert begin(history, layout) == 3
    history.discard()
    assert begin(history, layout) == 3
    history.done()
    (history.directory / "000001_edit.jsonl").unlink()
    assert [operation.number for operation in history.operations()] == [2, 3]
    assert begin(history, layout) == 4


def test_a_stored_line_is_referred_to(history: History, layout: Layout) -> None:
    store = SessionStore(layout, NAME)
    source = BytesTranscript(SESSION)
    line = LINES[2]
    keep = StoredOriginal(
        *("0002_user", "c", 2, "user", digest(line), len(line), ("x",), (302,)),
        FileSpan(edits()[2].offset, len(line)),
    )
    store.add([keep], source)
    history.begin(ACT, edits()[2:], touched()[2:], [keep], source, store)
    history.done()
    (operation,) = history.operations()
    assert b"yyyy" not in operation.path.read_bytes()
    (changed,) = history.lines(operation)
    assert history.former(operation, changed, NEW[2], store) == line
    store.file("0002_user").write_bytes(b"damaged")
    assert history.former(operation, changed, NEW[2], store) is Missing.CORRUPT
    store.file("0002_user").unlink()
    assert history.former(operation, changed, NEW[2], store) is Missing.GONE


@pytest.mark.parametrize("keep", [0, 20, 200, -1])
def test_what_is_cut_short_is_damaged(history: History, layout: Layout, keep: int) -> None:
    begin(history, layout)
    history.done()
    (operation,) = history.operations()
    operation.path.write_bytes(operation.path.read_bytes()[:keep])
    if history.operations():
        with pytest.raises(HistoryDamaged):
            history.lines(operation)
    operation.path.unlink()
    with pytest.raises(NotFound, match="has expired"):
        history.lines(operation)


def test_what_stands_nowhere_else_is_durable_before_the_session_changes(
    history: History, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, int]] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        real(descriptor)
        what = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        synced.append((what.name, 0 if what.is_dir() else what.stat().st_size))

    monkeypatch.setattr(os, "fsync", fsync)
    begin(history, layout)
    (operation,) = history.pending()
    whole, name = operation.path.stat().st_size, history.directory.name
    assert synced[-2:] == [(operation.path.name, whole), (name, 0)], "its content, then its name"


def test_a_full_disk_leaves_nothing(
    history: History, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", raising(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))
    with pytest.raises(Unavailable):
        begin(history, layout)
    assert not history.directory.exists()
    assert history.operations() == []


def test_other_files_are_none_of_ours(history: History) -> None:
    history.directory.mkdir(parents=True)
    for name in ("1_x.jsonl", "000001_x.txt", "notes", "000002_.jsonl"):
        (history.directory / name).write_text("{}")
    (history.directory / "000003_odd.jsonl").write_text('{"entries":1}\n')
    assert history.operations() == []


def test_names_never_collide_and_never_leave_the_root(layout: Layout) -> None:
    one, other = SessionName("a_b", "c"), SessionName("a", "b_c")
    assert layout.history_dir(one) != layout.history_dir(other)
    assert layout.history_dir(SessionName("a", "s" * 300)).name.startswith("a_sss")


def test_an_undone_undo_undoes_nothing() -> None:
    def operation(number: int, undoes: int | None, entries: int = 2) -> Operation:
        act = Act("x", "cli", "", 0, 0, 0, undoes)
        return Operation(number, act, entries, Path(f"{number}.jsonl"))

    operations = [
        operation(1, None),
        operation(2, 1),
        operation(3, 2),
        operation(4, None),
        operation(5, 4, entries=1),
    ]
    assert undone_entries(operations) == {1: 0, 2: 2, 3: 0, 4: 1, 5: 0}
    assert undone_entries(operations[:2]) == {1: 2, 2: 0}
    # the operation that it undid has expired
    assert undone_entries(operations[1:3]) == {2: 2, 3: 0}


def test_lines_are_found_where_they_are_now(history: History, layout: Layout) -> None:
    begin(history, layout)
    history.done()
    lines = history.lines(history.operations()[0])
    new = b"".join(NEW)
    assert {at: place.index for at, place in find_lines(BytesTranscript(new), lines).items()} == {
        0: 0,
        1: 1,
        2: 2,
    }
    moved = BytesTranscript(b'{"id":"0"}\n' + NEW[2] + b"\n" + NEW[0] + NEW[0])
    found = find_lines(moved, lines)
    assert {at: place.index for at, place in found.items()} == {0: 2, 2: 1}
    now = moved.read(found[2].offset, found[2].length)
    assert now == NEW[2] + b"\n"
    assert as_ended(lines[2], now) == NEW[2]
    assert with_end(LINES[2], lines[2], now) == LINES[2] + b"\n"
    assert with_end(LINES[0], lines[0], NEW[0]) == LINES[0]


def test_whether_it_happened_is_seen_in_the_session(history: History, layout: Layout) -> None:
    begin(history, layout)
    (operation,) = history.pending()
    lines = history.lines(operation)
    assert happened(BytesTranscript(b"".join(NEW)), lines)
    assert happened(BytesTranscript(b"x\n" + b"".join(NEW)), lines)
    assert not happened(BytesTranscript(SESSION), lines)
    assert not happened(BytesTranscript(SESSION + b"\n" + NEW[0]), lines)
    assert not happened(BytesTranscript(b""), lines)
    history.note_effect(operation, happened=True)
    assert [operation.pending for operation in history.operations()] == [False]


def test_names_that_a_block_cuts_in_two_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bsd.store.history._BUFFER", 4096)
    line = b'"ref":"%s","hash":"sha256:%064d"'
    content = b"".join(b"x" * 1000 + line % (b"r%03d" % n, n) for n in range(100))
    (tmp_path / "0001.jsonl").write_bytes(content)
    (tmp_path / "0002.jsonl").touch()
    found = named_files(tmp_path)
    assert found == {(f"r{n:03d}", f"sha256:{n:064d}") for n in range(100)}
