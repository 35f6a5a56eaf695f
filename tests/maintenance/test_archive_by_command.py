"""The archive as commands see it: what is damaged, how old what was merged is, who is told."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bsd.core.layout import Layout
from bsd.core.zstd import zstd
from tests.commands import Commands
from tests.maintenance.keeping import keep
from tests.openclaw_tree import add_session, grow_old, set_idle
from tests.session_files import LONG, Clock, conversation, entry, jsonl, text

DAY = 86_400.0
SESSION = "main/s1"
# The format of packs, as far as it is needed here: what stands at the end of the file.
END = struct.Struct("<QQIIQQQ")
HASH, STAMP = 32, 8


@pytest.fixture
def bsd(root: Path) -> Commands:
    return Commands(root)


@pytest.fixture
def path(root: Path) -> Path:
    return add_session(root, SESSION, jsonl(*conversation(4)))


@pytest.fixture
def original(bsd: Commands, root: Path, path: Path) -> bytes:
    """What the session was before four values left it, which are due to be packed."""
    was = path.read_bytes()
    assert bsd("extract", SESSION)["totals"]["entries"] == 4
    grow_old(root)
    return was


def the_pack(root: Path) -> Path:
    (pack,) = root.glob("archive/*/*.zst")
    return pack


def damage(pack: Path, at: int) -> None:
    data = bytearray(pack.read_bytes())
    data[at] ^= 0xFF
    pack.write_bytes(data)


def date(pack: Path, first: float, last: float) -> Path:
    """Let a pack say that its first and its last line came so many days ago."""
    data = pack.read_bytes()
    at = len(data) - STAMP - HASH - END.size
    fields = list(END.unpack_from(data, at))
    moments = [round(time.time() - days * DAY) for days in (first, last)]
    fields[-2:] = [moment * 1000 for moment in moments]
    frame = data[fields[0] - 8 : at] + END.pack(*fields)
    hash_ = hashlib.sha256(data[:16] + frame).digest()
    name = f"{datetime.fromtimestamp(moments[1], UTC):%Y%m%dT%H%M%SZ}-{hash_.hex()[:16]}.zst"
    dated = pack.with_name(name)
    dated.write_bytes(data[: fields[0] - 8] + frame + hash_ + data[-STAMP:])
    dated.chmod(0o600)
    pack.unlink()
    return dated


def comes_back(bsd: Commands, path: Path, original: bytes) -> None:
    """All values are inline again, as they were."""
    done = bsd("restore-all", SESSION, "--yes")
    assert done["sessions"][0]["unavailable"] in ({}, []), done
    now, was = (
        [json.loads(line).get("message") for line in content.splitlines()]
        for content in (path.read_bytes(), original)
    )
    assert now == was


@pytest.mark.parametrize("at", [40, 200])
def test_what_a_whole_index_names_and_a_block_has_lost_is_packed_again(
    bsd: Commands, root: Path, path: Path, original: bytes, at: int
) -> None:
    """The same values leave again, or a store comes back from a backup."""
    backup = root.parent / "backup"
    shutil.copytree(root / "extracted", backup)
    assert bsd("retention")["cleaned"] == 4
    damage(the_pack(root), at)
    shutil.copytree(backup, root / "extracted", dirs_exist_ok=True)
    grow_old(root)
    done = bsd("retention")
    assert (done["cleaned"], done["errors"]) == (4, 0)
    assert not list(root.glob("extracted/*/[0-9]*.json"))
    comes_back(bsd, path, original)


def test_what_a_whole_pack_has_is_not_packed_again(
    bsd: Commands, root: Path, path: Path, original: bytes
) -> None:
    backup = root.parent / "backup"
    shutil.copytree(root / "extracted", backup)
    bsd("retention")
    pack = the_pack(root)
    shutil.copytree(backup, root / "extracted", dirs_exist_ok=True)
    grow_old(root)
    assert bsd("retention")["cleaned"] == 4
    assert the_pack(root) == pack
    comes_back(bsd, path, original)


def test_a_torn_index_is_no_proof_that_a_line_is_not_there(
    bsd: Commands, root: Path, path: Path, original: bytes
) -> None:
    """What lies at another place by the index is found all the same, and the pack is named."""
    bsd("retention")
    pack = the_pack(root)
    data = pack.read_bytes()
    index, records, lines = END.unpack_from(data, len(data) - STAMP - HASH - END.size)[:3]
    damage(pack, index + records)  # the first hash: what is asked for is not among them
    for number in range(1, lines):
        damage(pack, index + records + 48 * number)
    comes_back(bsd, path, original)


@pytest.mark.parametrize(("last", "stays"), [(20, True), (31, False)])
def test_a_pack_is_as_old_as_the_line_that_came_last(
    bsd: Commands, root: Path, path: Path, original: bytes, last: float, *, stays: bool
) -> None:
    """Of a merged one the first is over its time long before."""
    bsd("retention")
    pack = date(the_pack(root), 90, last)
    assert bsd("verify")["clean"]
    bsd("config", "set", "archive_retention", "30d")
    foretold = bsd("retention", "--dry-run")["archive"]["cleaned"]
    done = bsd("retention")["archive"]["cleaned"]
    assert (foretold, done, pack.exists()) == (not stays, not stays, stays)
    if stays:
        comes_back(bsd, path, original)


@pytest.mark.parametrize("packs", [9])
def test_a_merged_pack_has_the_times_of_its_first_and_its_last_line(
    bsd: Commands, root: Path, path: Path, original: bytes, packs: int
) -> None:
    """Also by what merges again, and names the oldest among them."""
    lines = [line for line in original.splitlines() if LONG.encode() in line]
    for number in range(packs):
        store = root / "extracted/main_s1"
        shutil.rmtree(store, ignore_errors=True)
        store.mkdir(mode=0o700, parents=True)
        line = lines[number] if number < len(lines) else b'{"id":"x%d"}' % number
        (store / f"{number:04d}_tool_result.json").write_bytes(line + b"\n")
        grow_old(root)
        already = set(root.glob("archive/*/*.zst"))
        if number == packs - 1:
            bsd("config", "set", "archive_retention", "never")
        bsd("retention")
        fresh = set(root.glob("archive/*/*.zst")) - already
        if len(fresh) == 1 and already <= set(root.glob("archive/*/*.zst")):
            date(fresh.pop(), 50 - number, 40 - number if number else -2)
        else:
            break
    merged = the_pack(root)
    data = merged.read_bytes()
    first, last = END.unpack_from(data, len(data) - STAMP - HASH - END.size)[-2:]
    now = time.time()
    assert round((now - first / 1000) / DAY) == 50
    assert round((now - last / 1000) / DAY) == -2, "the clock has been put back since"
    assert path.is_file()


def test_a_damaged_pack_keeps_no_others_from_being_merged(
    bsd: Commands, root: Path, path: Path, original: bytes
) -> None:
    bsd("retention")
    broken = the_pack(root)
    damage(broken, 40)
    store = root / "extracted/main_s1"
    for number in range(9):
        store.mkdir(mode=0o700, parents=True, exist_ok=True)
        (store / f"{number:04d}_user.json").write_bytes(b'{"id":"x%d"}\n' % number)
        grow_old(root)
        bsd("retention")
    packs = set(root.glob("archive/*/*.zst"))
    assert broken in packs
    assert len(packs) < 6
    assert path.is_file()
    assert original


def test_of_two_packs_with_the_same_lines_the_whole_one_stays(
    bsd: Commands, root: Path, path: Path, original: bytes
) -> None:
    """A merge was killed before it let the others go; then the new one was damaged."""
    bsd("retention")
    whole = the_pack(root)
    time_of, _, hash_ = whole.name.partition("-")
    for name in (f"{time_of}-{'0' * 16}.zst", f"{time_of}-{'f' * 16}.zst"):
        other = whole.with_name(name)
        shutil.copy2(whole, other)
        damage(other, 40)
    bsd("retention")
    assert whole.exists()
    comes_back(bsd, path, original)
    assert hash_


def test_what_another_store_has_only_in_pieces_is_handed_down(
    bsd: Commands, root: Path, path: Path, original: bytes
) -> None:
    """What its index says is not enough: the file must be as it was."""
    entries = [json.loads(line) for line in path.read_bytes().splitlines()]
    entries[0] |= {"id": "s2", "parentSession": str(path)}
    heir = add_session(root, "main/s2", jsonl(*entries))
    shutil.copytree(root / "extracted/main_s1", root / "extracted/main_s2")
    spoilt = sorted((root / "extracted/main_s2").glob("[0-9]*.json"))[1]
    damage(spoilt, 100)
    bsd("delete", SESSION, "--permanent", "--yes")
    set_idle(heir, DAY)
    done = bsd("restore-all", "main/s2", "--yes")
    assert done["sessions"][0]["unavailable"] in ({}, [])
    now = [json.loads(line)["message"] for line in heir.read_bytes().splitlines()[1:]]
    assert now == [json.loads(line)["message"] for line in original.splitlines()[1:]]


def test_what_is_noted_of_entries_lasts_as_long_as_the_archive_has_some(
    bsd: Commands, root: Path, path: Path, original: bytes
) -> None:
    assert original
    bsd("restore", SESSION, "e1")
    grow_old(root)
    bsd("undo", SESSION, "--yes")
    grow_old(root)
    bsd("undo", SESSION, "--yes")
    notes = [*root.glob(".brainsurgeon/history/*/restored.json")]
    notes += root.glob(".brainsurgeon/history/*/undone.json")
    assert notes
    bsd("retention")
    assert the_pack(root).is_file()
    path.unlink()
    for file in root.glob(".brainsurgeon/history/*/*"):
        set_idle(file, 40 * DAY)
    bsd("retention")
    assert not list(root.glob(".brainsurgeon/history/*/[0-9]*"))
    assert all(note.exists() for note in notes)
    for pack in root.glob("archive/*/*.zst"):
        date(pack, 400, 400)
    bsd("config", "set", "archive_retention", "30d")
    bsd("retention")
    bsd("retention")
    assert not any(note.exists() for note in notes)


def test_no_word_of_a_short_value_stays_in_a_copy_that_is_long(bsd: Commands, root: Path) -> None:
    """What is forgotten is written out of the packs of the copy, however little it is of them."""
    entries = conversation(4)
    entries[1]["message"]["content"][0]["text"] = "say Quicksilver"
    path = add_session(root, SESSION, jsonl(*entries))
    set_idle(path, 3 * DAY)
    keep(Layout(root), Clock())
    assert in_packs(root, b"Quicksilver")
    path.unlink()
    bsd("archive", "forget", SESSION, "e0", "--yes")
    assert not in_packs(root, b"Quicksilver")
    assert in_packs(root, LONG.encode()), "and nothing else"
    bsd("archive", "bring-back", SESSION)
    assert b"Quicksilver" not in path.read_bytes()
    assert path.read_bytes().count(LONG.encode()) == 4


def in_packs(root: Path, word: bytes) -> bool:
    packs = [pack.read_bytes() for pack in root.glob("archive/**/*.zst")]
    return any(word in zstd.decompress(pack) for pack in packs)


def test_what_is_handed_down_is_audited(
    bsd: Commands, root: Path, path: Path, original: bytes
) -> None:
    entries = [json.loads(line) for line in path.read_bytes().splitlines()]
    entries[0] |= {"id": "s2", "parentSession": str(path)}
    heir = add_session(root, "main/s2", jsonl(*entries))
    bsd("delete", SESSION, "--permanent", "--yes")
    stored = list(root.glob("extracted/main_s2/[0-9]*.json"))
    told = [line for line in audited(root) if line["action"] == "hand_down"]
    (line,) = told
    assert (line["actor"], line["agent"], line["sessionId"]) == ("cli", "main", "s2")
    assert line["files"] == len(stored) == 4
    assert line["bytes"] == sum(file.stat().st_size for file in stored)
    set_idle(heir, DAY)
    bsd("restore-all", "main/s2", "--yes")
    assert LONG in heir.read_text()
    assert original


def audited(root: Path) -> list[dict[str, Any]]:
    lines = (root / ".brainsurgeon/audit.jsonl").read_bytes().splitlines()
    return [json.loads(line) for line in lines]


def drop_markers(path: Path) -> bytes:
    """What a program does that writes lines anew without members that it does not know."""
    entries = [json.loads(line) for line in path.read_bytes().splitlines()]
    for one in entries:
        one.pop("_extracted", None)
    path.write_bytes(jsonl(*entries))
    set_idle(path, DAY)
    for file in path.parents[3].glob(".brainsurgeon/inflight/*"):
        file.unlink()
    return path.read_bytes()


def test_verify_puts_no_marker_in_the_place_of_another(bsd: Commands, root: Path) -> None:
    """Of an entry two stored lines are away; a marker can name one of them."""
    entries = conversation(1)
    entries[2]["message"]["content"].append({"type": "text", "text": f"second {'y' * 400}"})
    path = add_session(root, SESSION, jsonl(*entries))
    original = path.read_bytes()
    bsd("extract", SESSION, "--min-value-length", "500")
    assert b'"text": "second' in path.read_bytes()
    assert b"[[extracted-e1]]" in drop_markers(path)
    bsd("extract", SESSION, "--min-value-length", "300")
    assert path.read_bytes().count(b'"[[extracted-e1]]"') == 2
    set_idle(path, DAY)
    before = path.read_bytes()
    bsd.said("verify", "--repair")
    assert path.read_bytes() == before
    comes_back(bsd, path, original)


def test_verify_puts_no_marker_where_several_stored_lines_are_away(
    bsd: Commands, root: Path
) -> None:
    """A program has made one entry of two. A marker names one line, so none is put there."""
    first, second = "a" * 700, "b" * 700
    entries = conversation(0)
    entries[1:1] = [entry(number, "user", "", _extractable=True) for number in (101, 102)]
    entries[1]["message"]["content"] = [text(first)]
    entries[2]["message"]["content"] = [text(""), text(second)]
    path = add_session(root, SESSION, jsonl(*entries))
    assert bsd("extract", SESSION)["totals"]["entries"] == 2
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    lines[1]["message"]["content"] += lines[2]["message"]["content"][1:]
    path.write_bytes(jsonl(*lines[:2], *lines[3:]))
    merged = drop_markers(path).splitlines()[1]
    assert (merged.count(b"[[extracted-e101]]"), merged.count(b"[[extracted-e102]]")) == (1, 1)

    other = Commands(root.parent / "other")
    shutil.copytree(root, other.root, copy_function=shutil.copy2)
    other("restore-all", SESSION, "--yes")
    restored = (other.root / path.relative_to(root)).read_bytes().splitlines()[1]
    both = json.loads(restored)["message"]["content"] == [text(first), text(second)]

    bsd.said("verify", "--repair")
    now = path.read_bytes().splitlines()[1]
    if both:
        assert now == merged
    set_idle(path, DAY)
    bsd("restore-all", SESSION, "--yes")
    content = json.loads(path.read_bytes().splitlines()[1])["message"]["content"]
    assert content == [text(first), text(second) if both else text("[[extracted-e102]]")]


def test_verify_puts_a_marker_back_where_one_stored_line_is_away(
    bsd: Commands, root: Path, path: Path, original: bytes
) -> None:
    with_markers = path.read_bytes()
    assert drop_markers(path) != with_markers
    bsd.said("verify", "--repair")
    assert path.read_bytes().count(b'"_extracted"') == 4
    os.utime(path, (time.time() - DAY,) * 2)
    comes_back(bsd, path, original)
