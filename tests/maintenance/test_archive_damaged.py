"""Packs that are damaged, lost or unreadable: the reports, and the lines that still come back."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from bsd.core.audit import AuditLog
from bsd.core.errors import BsdError
from bsd.core.layout import Layout
from bsd.maintenance.deleted_sessions import deleted_sessions
from bsd.maintenance.search import search
from bsd.maintenance.verify import verify
from bsd.store.contents import contents_of
from bsd.store.pack import Pack, PackWriter
from tests.actions import performed
from tests.actions.performed import Caller
from tests.logs import capture_logs
from tests.maintenance.archiving import (
    age,
    clean,
    everything_back,
    kept,
    packs,
)
from tests.session_files import NAME, conversation, write


def test_a_pack_without_its_end_still_gives_what_it_has(
    layout: Layout, caller: Caller, path: Path, archived: bytes
) -> None:
    (pack,) = packs(layout)
    pack.write_bytes(pack.read_bytes()[:-10])
    with capture_logs() as lines:
        everything_back(caller)
    assert path.read_bytes() == archived
    told = [line for line in lines if line["event"] == "A pack of the archive is damaged"]
    assert (told[0]["session"], told[0]["log_level"]) == ("main_s1", "error")
    (audited,) = AuditLog(layout.audit_file).search(b'"damaged_pack"')
    assert audited["path"] == str(pack)
    assert audited["problem"] == told[0]["problem"]


def test_a_lost_pack_is_told_as_content_that_is_missing(
    layout: Layout, caller: Caller, archived: bytes
) -> None:
    packs(layout)[0].unlink()
    contents_of(layout).changed()
    assert len(performed.restore_all(caller, NAME).unavailable) == 4
    found = verify(layout)
    assert {one.where for one in found.findings} == {f"{NAME} e{n}" for n in range(1, 5)}


def test_verify_mends_the_index_of_a_pack(
    layout: Layout, caller: Caller, path: Path, archived: bytes
) -> None:
    (pack,) = packs(layout)
    torn = bytearray(pack.read_bytes())
    torn[-100] ^= 1
    pack.write_bytes(torn)
    (told,) = verify(layout).findings
    assert (told.kind, told.repaired, told.hint) == ("damaged_pack", False, "bsd verify --repair")
    assert str(NAME) in told.message
    (mended,) = verify(layout, repair=True).findings
    assert mended.repaired
    assert pack not in packs(layout)
    (aside,) = verify(layout).findings
    assert (aside.kind, aside.harmless) == ("set_aside_pack", True)
    assert Path(aside.where).read_bytes() == torn
    everything_back(caller)
    assert path.read_bytes() == archived


def test_verify_names_the_entries_of_a_block_that_cannot_be_read(
    layout: Layout, archived: bytes
) -> None:
    (pack,) = packs(layout)
    torn = bytearray(pack.read_bytes())
    torn[40] ^= 0xFF
    pack.write_bytes(torn)
    (told, *missing) = sorted(verify(layout, repair=True).findings, key=lambda one: one.kind)
    assert told.kind == "damaged_pack"
    assert not told.repaired
    assert "4 of its lines cannot be read: e1, e2, e3, e4" in told.message
    assert {one.where for one in missing} == {f"{NAME} e{n}" for n in range(1, 5)}


def test_a_line_of_a_damaged_pack_is_packed_again_and_made_one(
    layout: Layout, caller: Caller, archived: bytes
) -> None:
    """Lines stored twice, because a pack could not be read, are repaired without a loss."""
    (pack,) = packs(layout)
    whole = pack.read_bytes()
    lines = kept(layout)
    store = layout.store_dir(NAME)
    store.mkdir(parents=True)
    for number, one in enumerate(lines):
        (store / f"{number:04d}_text.json").write_bytes(one.line)
    pack.write_bytes(whole[:-10])
    age(layout)
    assert clean(layout).errors == 0
    assert len(packs(layout)) == 2
    assert verify(layout, repair=True).clean
    (left,) = packs(layout)
    with Pack(left) as opened:
        assert {one.line for one in opened} == {one.line for one in lines}
    everything_back(caller)
    assert layout.session_file(NAME).read_bytes() == archived


def test_lines_that_a_pack_has_lost_and_others_have_are_mended(
    layout: Layout, archived: bytes
) -> None:
    assert archived
    (pack,) = packs(layout)
    lines = kept(layout)
    with PackWriter(pack.parent) as writer:
        for one in lines:
            writer.add(one.line, one.record)
        other = writer.finish(time.time() + 5, time.time() + 5)
    data = bytearray(pack.read_bytes())
    data[40] ^= 0xFF  # in its only block
    pack.write_bytes(data)
    assert not verify(layout).clean
    found = verify(layout, repair=True)
    assert found.clean, found
    assert packs(layout) == [other]
    assert found.packed == 4


def refusing(monkeypatch: pytest.MonkeyPatch, wanted: str) -> None:
    """Refuse to open a file whose path contains this text."""
    real = os.open

    def refused(path: str | Path, *args: int, **more: int) -> int:
        if wanted in str(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path, *args, **more)

    monkeypatch.setattr(os, "open", refused)


def test_a_pack_that_cannot_be_read_now_doubles_nothing_and_is_named(
    layout: Layout, caller: Caller, archived: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert archived
    (pack,) = packs(layout)
    line = kept(layout)[0].line
    with monkeypatch.context() as patch:
        refusing(patch, pack.name)
        answer = performed.restore(caller, NAME, "e1")
        told = str(answer["unavailable"])
        assert str(pack) in told
        assert "Permission denied" in told
        store = layout.store_dir(NAME)
        store.mkdir(parents=True)
        (store / "0001_text.json").write_bytes(line)
        age(layout)
        assert clean(layout).errors == 1
    assert packs(layout) == [pack]
    assert store.exists()
    assert performed.restore(caller, NAME, "e2")["restored"]


def test_a_damaged_pack_is_named_to_who_restores(
    layout: Layout, caller: Caller, archived: bytes
) -> None:
    assert archived
    (pack,) = packs(layout)
    pack.write_bytes(b"x" * 400)
    told = str(performed.restore(caller, NAME, "e1")["unavailable"])
    assert str(pack) in told
    assert "is damaged" in told


def test_a_file_in_place_of_the_archive_is_named(layout: Layout, caller: Caller) -> None:
    write(layout, conversation(4))
    caller.extract(NAME)
    layout.archive.write_bytes(b"")
    with pytest.raises(BsdError, match="not a directory"):
        deleted_sessions(layout)
    assert [hit.session for hit in search(layout, "seen")] != []  # other sessions are not affected
    [finding] = [one for one in verify(layout).findings if one.kind == "unreadable"]
    assert finding.where == str(layout.archive)
