"""A pack with a damaged index and a block that cannot be read: all other blocks are salvaged."""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests import forked
from tests.openclaw_tree import add_session
from tests.session_files import HEADER, entry, jsonl

LINES = 24
SESSION = "main/large"
FRAME = bytes.fromhex("28b52ffd")  # the first bytes of a block of a pack
_CHANCE = random.Random(7)


def bsd(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    done = forked.run("--root", str(root), *arguments)
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.fixture
def values() -> list[str]:
    """Values of 200 kB, so that five or six of them fill a block of the pack."""
    return [f"v{number}. {_CHANCE.randbytes(100_000).hex()}" for number in range(1, LINES + 1)]


@pytest.fixture
def archived(root: Path, values: list[str]) -> Path:
    """A session whose values are in one pack of the archive; returns its transcript."""
    root.joinpath(".brainsurgeon").mkdir(mode=0o700)
    entries: list[dict[str, Any]] = [HEADER, entry(0, "user", "look")]
    entries += [entry(n, "toolResult", text) for n, text in enumerate(values, 1)]
    entries += [entry(LINES + n, "assistant", "seen") for n in range(1, 6)]
    path = add_session(root, SESSION, jsonl(*entries))
    assert bsd(root, "extract", SESSION).returncode == 0
    then = time.time() - 25 * 3600
    stored = list((root / "extracted" / "main_large").glob("[0-9]*.json"))
    assert len(stored) == LINES
    for file in stored:
        os.utime(file, (then, then))
    assert bsd(root, "retention").returncode == 0
    return path


def only_pack(root: Path) -> Path:
    (pack,) = (root / "archive" / "main_large").glob("*.zst")
    return pack


def blocks(data: bytes) -> list[int]:
    """Offsets of a pack's frames; the last frame holds its records."""
    found, at = [], data.find(FRAME)
    while at >= 0:
        found.append(at)
        at = data.find(FRAME, at + 1)
    return found


def damage(root: Path, *, block: int | None, index: bool = True) -> bytes:
    """Tear the index, and overwrite the middle of a block; return the pack's new content."""
    pack = only_pack(root)
    data = bytearray(pack.read_bytes())
    starts = blocks(bytes(data))
    assert len(starts) >= 5, "several blocks and the records"
    if block is not None:
        middle = (starts[block] + starts[block + 1]) // 2
        data[starts[block] + 4 : middle] = bytes(middle - starts[block] - 4)
    if index:
        data[-100] ^= 1
    pack.write_bytes(data)
    return bytes(data)


def restored(root: Path, path: Path, values: list[str]) -> int:
    """The number of values that come back."""
    bsd(root, "restore-all", SESSION, "--yes")
    said = path.read_text()
    return sum(value in said for value in values)


@pytest.mark.parametrize("block", [0, 1, -3])
def test_every_block_that_can_be_read_is_salvaged(
    root: Path, archived: Path, values: list[str], block: int
) -> None:
    """Lines after the unreadable line are saved too; and the damaged pack is not deleted."""
    block %= len(blocks(only_pack(root).read_bytes()))
    torn = damage(root, block=block)
    looked = bsd(root, "--json", "verify")
    assert looked.returncode == 1
    mended = bsd(root, "--json", "verify", "--repair")
    (finding,) = (
        one for one in json.loads(mended.stdout)["findings"] if one["kind"] == "damaged_pack"
    )
    assert mended.returncode == 1, "lines are missing"
    assert not finding["repaired"]
    assert "the rest of it cannot be read" in finding["message"]
    kept = [file for file in only_pack(root).parent.iterdir() if file.read_bytes() == torn]
    assert [file.suffix for file in kept] == [".damaged"]
    again = bsd(root, "--json", "verify", "--repair")
    kinds = {one["kind"] for one in json.loads(again.stdout)["findings"]}
    assert kinds == {"missing_file", "set_aside_pack"}
    # A block holds no more than six of these lines.
    assert LINES - 6 <= restored(root, archived, values) < LINES


def test_before_it_is_mended_all_of_these_come_back_too(
    root: Path, archived: Path, values: list[str]
) -> None:
    damage(root, block=1)
    assert LINES - 6 <= restored(root, archived, values) < LINES


def test_a_damaged_index_alone_loses_nothing(root: Path, archived: Path, values: list[str]) -> None:
    torn = damage(root, block=None)
    mended = bsd(root, "--json", "verify", "--repair")
    assert mended.returncode == 0
    (finding,) = json.loads(mended.stdout)["findings"]
    assert finding["repaired"]
    assert f"{LINES} lines were found in it" in finding["message"]
    (aside,) = only_pack(root).parent.glob("*.damaged")
    assert aside.read_bytes() == torn
    assert restored(root, archived, values) == LINES


def test_a_pack_cut_off_in_a_block_is_set_aside_too(
    root: Path, archived: Path, values: list[str]
) -> None:
    pack = only_pack(root)
    data = pack.read_bytes()
    cut = data[: blocks(data)[2] + 1000]
    pack.write_bytes(cut)
    mended = bsd(root, "--json", "verify", "--repair")
    assert mended.returncode == 1
    (aside,) = pack.parent.glob("*.damaged")
    assert aside.read_bytes() == cut
    assert restored(root, archived, values) > 0


def test_what_was_set_aside_goes_with_the_session_and_when_its_time_is_up(
    root: Path, archived: Path, values: list[str]
) -> None:
    damage(root, block=1)
    bsd(root, "verify", "--repair")
    directory = only_pack(root).parent
    aside = next(directory.glob("*.damaged"))
    said = aside.read_bytes()

    forgotten = bsd(root, "archive", "forget", SESSION, "e1", "--yes")
    assert forgotten.returncode == 0, forgotten.stderr
    assert not aside.exists(), "it may say what is forgotten"

    aside.write_bytes(said[:-100])  # without the times that its end says
    then = time.time() - 40 * 24 * 3600
    os.utime(aside, (then, then))
    bsd(root, "config", "set", "archive_retention", "30d")
    shown = bsd(root, "retention", "--dry-run")
    assert shown.returncode == 0, shown.stderr
    cleaned = bsd(root, "retention", "--trust-clock")
    assert cleaned.returncode == 0, cleaned.stderr
    assert not aside.exists()

    aside.write_bytes(said)
    bsd(root, "delete", SESSION, "--yes", "--permanent")
    assert not directory.exists()
