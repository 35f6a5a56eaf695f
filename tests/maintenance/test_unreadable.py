"""An unreadable file does not count as absent: bsd deletes, skips or approves no data because of
it.

A fork names lines that only its origin has, in the store or in the archive.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import TypeVar

import pytest

from tests import forked
from tests.openclaw_tree import add_session, set_idle
from tests.session_files import LONG, conversation, jsonl

_T = TypeVar("_T")
WHOLE = jsonl(*conversation(3))
STORE = "extracted/main_s1"
PLACEHOLDER = b"[[extracted-"
DAY = 24 * 3600.0


@dataclass(frozen=True)
class Root:
    """A root, and commands in which some calls of the system fail."""

    path: Path
    library: Path

    def __call__(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        more = {"LD_PRELOAD": str(self.library), **env} if env else {}
        done = forked.run("--root", str(self.path), *arguments, env={**os.environ, **more})
        said = done.stdout + done.stderr
        assert "Traceback" not in said, said
        assert "internal error" not in said.lower(), said
        return done

    def session(self, name: str) -> Path:
        return self.path / "agents" / "main" / "sessions" / f"{name}.jsonl"

    def files(self) -> dict[str, bytes]:
        """All files that may be deleted."""
        return {
            str(path.relative_to(self.path)): path.read_bytes()
            for top in ("agents", "extracted", "archive", "trash")
            for path in sorted((self.path / top).rglob("*"))
            if path.is_file()
        }

    def age(self, name: str) -> None:
        then = time.time() - 25 * 3600
        for file in (self.path / "extracted" / f"main_{name}").glob("[0-9]*.json"):
            os.utime(file, (then, then))

    def pack(self) -> Path:
        (pack,) = (self.path / "archive" / "main_s1").glob("*.zst")
        return pack


@pytest.fixture
def bsd(root: Path, failing: Path) -> Root:
    """A session from which three values were extracted, and a fork that names them."""
    bsd = Root(root, failing)
    path = add_session(root, "main/s1", WHOLE)
    assert bsd("extract", "main/s1").returncode == 0
    away = path.read_bytes()
    assert away.count(PLACEHOLDER) == 3
    add_session(root, "main/fork", away.replace(b'"id": "s"', b'"id": "f"'))
    set_idle(path)
    return bsd


@pytest.fixture
def archived(bsd: Root) -> Root:
    """The same; the values are in a pack."""
    bsd.age("s1")
    assert bsd("retention").returncode == 0
    assert not (bsd.path / STORE).exists()
    return bsd


def reading(file: str) -> dict[str, str]:
    return {"FAILING_FILE": file}


def opening(path: str, error: int) -> dict[str, str]:
    return {"FAILING_PATH": path, "FAILING_ERRNO": str(error)}


IN_THE_STORE = {
    "a stored file: EIO": reading(f"{STORE}/0002"),
    "a stored file: EACCES": opening(f"{STORE}/0002", errno.EACCES),
    "a stored file: EMFILE": opening(f"{STORE}/0003", errno.EMFILE),
    "the fork: EIO": reading("sessions/fork.jsonl"),
    "the fork: EACCES": opening("sessions/fork.jsonl", errno.EACCES),
    "the fork's history: EACCES": opening("history/main_fork", errno.EACCES),
    "the agent: EACCES": opening("agents/main/sessions", errno.EACCES),
    "all agents: EIO": opening("/agents", errno.EIO),
}
IN_THE_ARCHIVE = {
    "a pack: EIO": reading(".zst"),
    "a pack: EACCES": opening(".zst", errno.EACCES),
    "the archive: EMFILE": opening("archive/main_s1", errno.EMFILE),
}
COMMANDS = {
    "delete --permanent": ("delete", "main/s1", "--permanent", "--yes"),
    "archive forget": ("archive", "forget", "main/s1", "--yes"),
}


def refused(bsd: Root, command: tuple[str, ...], how: dict[str, str]) -> None:
    """The command is refused, the file is named, and no data is gone."""
    before = bsd.files()
    done = bsd(*command, **how)
    assert done.returncode not in {0, None}, done
    wanted = (how.get("FAILING_FILE") or how["FAILING_PATH"]).split("/")[-1].strip("$")
    assert wanted in done.stderr, done.stderr
    assert "Try: " in done.stderr
    assert bsd.files() == before


def comes_back(bsd: Root, *names: str) -> None:
    for name in names:
        set_idle(bsd.session(name))
        done = bsd("restore-all", f"main/{name}", "--yes")
        assert done.returncode == 0, done.stderr
        assert bsd.session(name).read_bytes().count(LONG.encode()) == 3


def in_turn(ways: Iterable[_T]) -> Iterator[tuple[str, _T]]:
    """Each way with one of the commands: what a command deletes is found by the same code."""
    return zip(cycle(COMMANDS), ways)


@pytest.mark.parametrize(("command", "how"), list(in_turn(IN_THE_STORE)))
def test_what_cannot_be_read_of_a_store_keeps_all_of_it(bsd: Root, command: str, how: str) -> None:
    refused(bsd, COMMANDS[command], IN_THE_STORE[how])
    comes_back(bsd, "s1", "fork")


@pytest.mark.parametrize(("command", "how"), list(in_turn(IN_THE_ARCHIVE)))
def test_what_cannot_be_read_of_an_archive_keeps_all_of_it(
    archived: Root, command: str, how: str
) -> None:
    refused(archived, COMMANDS[command], IN_THE_ARCHIVE[how])
    comes_back(archived, "s1", "fork")


@pytest.mark.parametrize("how", ["a stored file: EIO", "a stored file: EACCES", "the fork: EIO"])
def test_nor_does_it_leave_the_trash(bsd: Root, how: str) -> None:
    assert bsd("delete", "main/s1", "--yes").returncode == 0
    where = {key: text.replace(STORE, "") for key, text in IN_THE_STORE[how].items()}
    refused(bsd, ("trash", "delete", "main/s1", "--yes"), where)
    comes_back(bsd, "fork")


def test_nor_when_its_time_in_the_trash_is_up(bsd: Root) -> None:
    assert bsd("delete", "main/s1", "--yes").returncode == 0
    for path in sorted((bsd.path / "trash").iterdir()):  # as if it had happened long ago
        stamp = path.name.rpartition("_")[2].partition(".")[0]
        path.rename(path.with_name(path.name.replace(stamp, "20200101T000000")))
    (meta,) = (bsd.path / "trash").glob("*.meta.json")
    said = json.loads(meta.read_text())
    said["id"] = meta.name.removesuffix(".meta.json")
    said["trashed_at"] = "2020-01-01T00:00:00.000Z"
    meta.write_text(json.dumps(said))
    before = bsd.files()
    done = bsd("retention", "--trust-clock", **reading("/0002_"))
    assert done.returncode != 0, done
    assert bsd.files() == before
    assert bsd("retention", "--trust-clock").returncode == 0
    assert not list((bsd.path / "trash").iterdir()), "it can be read again: it was handed down"
    comes_back(bsd, "fork")


def damage(pack: Path, *, index: bool) -> None:
    data = bytearray(pack.read_bytes())
    data[40] ^= 0xFF  # in its only block
    if index:
        data[-100] ^= 1
    pack.write_bytes(data)


@pytest.mark.parametrize(("command", "index"), list(in_turn([False, True])))
def test_a_damaged_pack_that_the_fork_needs_stays(
    archived: Root, command: str, index: bool
) -> None:
    damage(archived.pack(), index=index)
    before = archived.files()
    done = archived(*COMMANDS[command])
    assert done.returncode != 0, done
    assert str(archived.pack()) in done.stderr
    assert "Try: " in done.stderr
    assert archived.files() == before
    # Without the fork, no session needs it.
    assert archived("delete", "main/fork", "--permanent", "--yes").returncode == 0
    assert archived(*COMMANDS[command]).returncode == 0
    assert not (archived.path / "archive" / "main_s1").exists()


def test_a_stored_file_that_has_rotted_stays_until_somebody_removes_it(bsd: Root) -> None:
    file = next((bsd.path / STORE).glob("0002_*"))
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b"x", b"y"))
    before = bsd.files()
    done = bsd("delete", "main/s1", "--permanent", "--yes")
    assert done.returncode != 0
    assert str(file) in done.stderr
    assert bsd.files() == before
    file.write_bytes(whole)
    assert bsd("delete", "main/s1", "--permanent", "--yes").returncode == 0
    comes_back(bsd, "fork")


def test_what_is_gone_is_an_absence(bsd: Root) -> None:
    next((bsd.path / STORE).glob("0002_*")).unlink()
    assert bsd("delete", "main/s1", "--permanent", "--yes").returncode == 0
    bsd("restore-all", "main/fork", "--yes")
    assert bsd.session("fork").read_bytes().count(LONG.encode()) == 2


def test_a_store_that_could_not_be_read_once_is_read_again(bsd: Root) -> None:
    """The index of all stores does not record that a line was absent."""
    (bsd.path / STORE / "index.json").unlink()
    then = time.time() - DAY
    os.utime(bsd.path / STORE, (then, then))
    for file in (bsd.path / ".brainsurgeon").glob("contents.db*"):
        file.unlink()
    failed = bsd("restore-all", "main/fork", "--yes", **opening(f"{STORE}/0", errno.EMFILE))
    assert failed.returncode != 0
    assert "Too many open files" in failed.stderr
    told = bsd("verify", **opening(f"{STORE}/0", errno.EMFILE))
    assert told.returncode != 0
    assert "Too many open files" in told.stdout
    comes_back(bsd, "fork")


@pytest.mark.parametrize(
    "command", [("verify",), ("verify", "--repair"), ("restore-all", "--yes"), ("extract",)]
)
def test_an_agent_that_cannot_be_listed_is_a_failure(bsd: Root, command: tuple[str, ...]) -> None:
    """The agent does not count as sound and without sessions."""
    add_session(bsd.path, "second/one", WHOLE)
    before = bsd.files()
    done = bsd(*command, **opening("agents/main/sessions$", errno.EACCES))
    assert done.returncode != 0, done
    assert "agents/main/sessions: Permission denied" in done.stdout + done.stderr
    after = bsd.files()
    for file in before:
        if file.startswith("agents/main"):
            assert after[file] == before[file]
    if command == ("extract",):  # the other commands continue
        assert PLACEHOLDER in after["agents/second/sessions/one.jsonl"]


def test_a_store_that_cannot_be_listed_is_told_by_verify(bsd: Root) -> None:
    done = bsd("verify", **opening("/extracted", errno.EIO))
    assert done.returncode != 0
    assert "Input/output error" in done.stdout


def test_a_source_that_cannot_be_listed_is_a_failure(bsd: Root, tmp_path: Path) -> None:
    source = tmp_path / "home" / "projects"
    (source / "-home-me").mkdir(parents=True)
    settings = Path(os.environ["XDG_CONFIG_HOME"]) / "bsd" / "bsd.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(f'[[sources]]\nkind = "claude-code"\npath = "{source}"\n')
    assert bsd("verify").returncode == 0
    for path in (source, source / "-home-me"):
        done = bsd("verify", **opening(f"{path}$", errno.EACCES))
        assert done.returncode != 0, path
        assert "Permission denied" in done.stdout
        refused(bsd, COMMANDS["delete --permanent"], opening(f"{path}$", errno.EACCES))


def test_what_was_forgotten_is_not_had_from_a_fork_as_the_note_cannot_be_read(bsd: Root) -> None:
    assert bsd("archive", "forget", "main/s1", "e1", "--yes").returncode == 0
    set_idle(bsd.session("s1"))
    note = bsd.path / ".brainsurgeon" / "history" / "main_s1" / "forgotten.json"
    said = json.loads(note.read_text())["hashes"]
    how = reading("main_s1/forgotten.json")
    assert bsd("restore", "main/s1", "e1", **how).returncode != 0
    # And a second entry does not make the first entry's state known again.
    failed = bsd("archive", "forget", "main/s1", "e2", "--yes", **how)
    assert failed.returncode != 0
    assert set(said) <= set(json.loads(note.read_text())["hashes"])
    assert bsd("archive", "forget", "main/s1", "e2", "--yes").returncode == 0
    assert set(said) < set(json.loads(note.read_text())["hashes"])


def test_a_session_that_cannot_be_looked_at_is_not_forgotten_as_one_that_is_gone(
    bsd: Root,
) -> None:
    before = bsd.files()
    done = bsd(
        "archive", "forget", "main/s1", "--yes", **opening("sessions/s1.jsonl", errno.EACCES)
    )
    assert done.returncode != 0, done
    assert bsd.files() == before


def test_a_history_that_cannot_be_listed_is_not_forgotten(bsd: Root) -> None:
    """The file may name lines to forget, so the command does not report that they are forgotten."""
    done = bsd("archive", "forget", "main/s1", "--yes", **opening("history/main_s1", errno.EACCES))
    assert done.returncode != 0, done
    assert "history/main_s1" in done.stderr


FORGET_ENTRY = ("archive", "forget", "main/s1", "e2", "--yes")
OF_THE_ENTRY = {
    "all stores: EACCES": opening("/extracted$", errno.EACCES),
    "the store: EIO": opening(f"{STORE}$", errno.EIO),
    "the store: EMFILE": opening(STORE, errno.EMFILE),
    "the archive: EACCES": opening("archive/main_s1$", errno.EACCES),
    "its copy: EIO": reading("/copy.json"),
    "its copy: EACCES": opening("/copy.json", errno.EACCES),
}


def copied(bsd: Root) -> Path:
    """Put a copy of the whole session into the archive; return the file that records it."""
    set_idle(bsd.session("s1"), 3 * DAY)
    bsd("archive", "keep", "main/s1")
    (manifest,) = (bsd.path / "archive" / "main_s1").glob("session-*/copy.json")
    return manifest


@pytest.mark.parametrize("how", OF_THE_ENTRY)
def test_an_entry_is_not_forgotten_where_it_cannot_be_looked_for(bsd: Root, how: str) -> None:
    copied(bsd)
    refused(bsd, FORGET_ENTRY, OF_THE_ENTRY[how])
    comes_back(bsd, "s1", "fork")


def test_nor_if_a_copy_that_may_hold_it_is_damaged(bsd: Root) -> None:
    manifest = copied(bsd)
    manifest.write_bytes(manifest.read_bytes()[:-100])
    before = bsd.files()
    done = bsd(*FORGET_ENTRY)
    assert done.returncode != 0, done
    assert str(manifest) in done.stderr
    assert "`bsd archive forget`" in done.stderr
    assert bsd.files() == before


def test_a_session_that_claims_more_than_any_disk_has_holds_nothing_up(bsd: Root) -> None:
    """A sparse file: its references cannot be determined, and it can be deleted."""
    huge = bsd.session("fork")
    os.truncate(huge, 1 << 42)
    set_idle(huge)
    done = bsd("delete", "main/s1", "--permanent", "--yes")
    assert done.returncode != 0
    assert str(huge) in done.stderr
    assert "Try: " in done.stderr
    done = bsd("delete", "main/fork", "--yes")
    assert done.returncode == 0, done
    assert not huge.exists()


def test_a_lock_whose_files_cannot_be_removed_again_is_named(bsd: Root) -> None:
    """As in a directory in which files may only be added."""
    before = bsd.files()
    done = bsd("delete", "main/s1", "--permanent", "--yes", FAILING_UNLINK="main/sessions/")
    assert done.returncode == 77, done
    assert f"taking the lock {bsd.session('s1')}.lock: Permission denied" in done.stderr
    assert before.items() <= bsd.files().items()
    assert bsd("delete", "main/s1", "--permanent", "--yes").returncode == 0
    comes_back(bsd, "fork")
